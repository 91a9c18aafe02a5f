//! The invariants of every single step. Together with the start they hold in every reachable state.

use std::collections::BTreeSet;

use architect::machine::{
    CallAttempt, CallPurpose, CallState, CallingStage, CloseReason, ConversationChange, Effect,
    Event, State, StateKind, Step, StopReason, deadline,
};
use architect::types::{ConversationItem, EffectId, FaultClass, MicroUsd, RunLimits, Tokens};

/// Returns the invariants that a step breaks.
pub(crate) fn violations(before: &State, event: &Event, next: &Step) -> Vec<String> {
    let mut broken = Vec::new();
    let mut hold = |name: &str, holds: bool| {
        if !holds {
            broken.push(format!(
                "{name}: {} on {} -> {}",
                before.kind().as_str(),
                event.kind().as_str(),
                next.state.kind().as_str()
            ));
        }
    };
    hold("each effect completes exactly once", bookkeeping(before, event, next));
    hold("what is not awaited changes nothing", stale(before, event, next));
    hold("no call loses its answer", answers(before, next));
    hold("a tool runs once, and only when approved", tools(before, event, next));
    hold("an interrupt ends the run, and nothing starts after it", interrupt(before, event, next));
    hold("done is done", done(before, next));
    hold("the end comes once, with its reason", end(before, next));
    hold("closing is entered once, and calls once without tools", closing(before, next));
    hold("steps grow by one and stay within their limit", steps(before, next));
    hold("usage never decreases", used(before, next));
    hold("no call is made that the budget does not cover", budget(next));
    hold("nothing larger than the window is sent", fits_window(next));
    hold("the budget shares of sub-agents fit what is left", reserves_budget(&next.state));
    hold("another model follows only one that is out of reach", models(before, event, next));
    hold("time goes forward", before.run().now <= next.state.run().now);
    hold(
        "an effect or a deadline is pending",
        deadline(&next.state).is_some() != (next.state.kind() == StateKind::Done),
    );
    hold("what is pending is in its state", shape(&next.state));
    hold("an answer waits for the commands that are needed", waits(before, next));
    let few = 8 + before.run().commands.len();
    hold("few effects follow from a step", next.effects.len() <= few && next.changes.len() <= 4);
    broken
}

fn issued(effect: &Effect) -> Vec<EffectId> {
    match effect {
        Effect::Prepare { id, .. }
        | Effect::CallModel { id, .. }
        | Effect::Authorize { id, .. }
        | Effect::CheckAnswer { id, .. } => vec![*id],
        Effect::RunTool { id, command, .. } => [*id].into_iter().chain(*command).collect(),
        Effect::Cancel { .. } | Effect::End => vec![],
    }
}

/// An answer is not the end while a command runs that it has to wait for. If it is sent back too often, the run fails.
fn waits(before: &State, next: &Step) -> bool {
    let is_answered = before != &next.state
        && matches!(&next.state, State::Done(done) if done.outcome.reason == StopReason::LlmDone);
    !is_answered || before.run().commands.iter().all(|command| !command.is_needed)
}

/// The pending effects after a step are those before it, without the completed and cancelled ones, with the new ones.
fn bookkeeping(before: &State, event: &Event, next: &Step) -> bool {
    let mut open: BTreeSet<EffectId> = before.pending_effects().into_iter().collect();
    if before.awaits(event) {
        event.completed_effect().inspect(|id| assert!(open.remove(id)));
    }
    for effect in &next.effects {
        match effect {
            Effect::Cancel { id } => {
                if !open.remove(id) {
                    return false;
                }
            }
            effect => {
                for id in issued(effect) {
                    let is_new =
                        id >= before.run().next_effect && id < next.state.run().next_effect;
                    if !is_new || !open.insert(id) {
                        return false;
                    }
                }
            }
        }
    }
    open == next.state.pending_effects().into_iter().collect()
}

fn stale(before: &State, event: &Event, next: &Step) -> bool {
    if event.effect_id().is_none() || before.awaits(event) {
        return true;
    }
    next.state == *before
        && next.effects.is_empty()
        && next.changes.is_empty()
        && next.notes.is_empty()
}

/// Leaving `Executing` adds an exchange in which each call of the reply has its result; nothing else does.
fn answers(before: &State, next: &Step) -> bool {
    let exchanges: Vec<_> = next
        .changes
        .iter()
        .filter_map(|change| match change {
            ConversationChange::Append { item: ConversationItem::Exchange(exchange) } => {
                Some(exchange)
            }
            _ => None,
        })
        .collect();
    match (before, &next.state) {
        (State::Executing(_), State::Executing(_)) => exchanges.is_empty(),
        (State::Executing(before), _) => match exchanges.as_slice() {
            [exchange] => {
                *exchange.reply() == before.reply
                    && exchange.results().len() == before.calls.len()
                    && before.calls.iter().zip(exchange.results()).all(|(call, result)| {
                        call.call.id == result.call
                            && match &call.state {
                                CallState::Completed(settled) => settled == result,
                                _ => true,
                            }
                    })
            }
            _ => false,
        },
        // A reply with only invalid calls never gets there.
        (State::Calling(_), State::Preparing(_) | State::Done(_)) => exchanges.len() <= 1,
        _ => exchanges.is_empty(),
    }
}

fn tools(before: &State, event: &Event, next: &Step) -> bool {
    next.effects.iter().all(|effect| match effect {
        Effect::RunTool { call, .. } => {
            let State::Executing(executing) = before else { return false };
            let cleared = matches!(
                event,
                Event::Authorized { authorization: architect::machine::Authorization::Approved { .. }, .. }
            );
            let is_authorizing = |slot: &CallState| matches!(slot, CallState::Authorizing { id, .. } if Some(*id) == event.completed_effect());
            cleared && executing.calls.iter().any(|open| open.call.id == call.id && is_authorizing(&open.state))
        }
        Effect::Authorize { call, .. } => match before {
            State::Executing(executing) => executing
                .calls
                .iter()
                .any(|open| open.call.id == call.id && open.state == CallState::Queued),
            State::Calling(_) => true,
            _ => false,
        },
        _ => true,
    })
}

fn interrupt(before: &State, event: &Event, next: &Step) -> bool {
    let ends = matches!(
        event,
        Event::Interrupt { .. } | Event::StoreFailed { .. } | Event::InternalError { .. }
    );
    if !ends || before.kind() == StateKind::Done {
        return true;
    }
    next.state.kind() == StateKind::Done
        && next.effects.iter().all(|effect| matches!(effect, Effect::Cancel { .. } | Effect::End))
}

fn done(before: &State, next: &Step) -> bool {
    before.kind() != StateKind::Done
        || (next.state == *before && next.effects.is_empty() && next.changes.is_empty())
}

fn end(before: &State, next: &Step) -> bool {
    let ends = next.effects.iter().filter(|effect| **effect == Effect::End).count();
    let entered = before.kind() != StateKind::Done && next.state.kind() == StateKind::Done;
    ends == usize::from(entered) && (ends == 0 || next.effects.last() == Some(&Effect::End))
}

fn closing(before: &State, next: &Step) -> bool {
    let was = matches!(before, State::Closing(_));
    let is = matches!(next.state, State::Closing(_));
    let stays = !was || is || next.state.kind() == StateKind::Done;
    let ends_with_its_reason = match (before, &next.state) {
        (State::Closing(before), State::Done(done)) => {
            matches!(
                done.outcome.reason,
                StopReason::UserInterrupt(_) | StopReason::StoreError | StopReason::InternalError
            ) || done.outcome.reason == StopReason::Closed(before.reason)
        }
        (State::Done(_), _) => true,
        (_, State::Done(done)) => !matches!(done.outcome.reason, StopReason::Closed(_)),
        _ => true,
    };
    let calls_once = next.effects.iter().all(|effect| match effect {
        Effect::CallModel { purpose: CallPurpose::Closing, attempt, .. } => {
            *attempt == 1 && before.kind() == StateKind::ClosingPreparing
        }
        Effect::CallModel { purpose: CallPurpose::Agent | CallPurpose::Compaction, .. }
        | Effect::Authorize { .. }
        | Effect::RunTool { .. }
        | Effect::CheckAnswer { .. } => !was && !is,
        _ => true,
    });
    stays && ends_with_its_reason && calls_once
}

fn steps(before: &State, next: &Step) -> bool {
    let (old, new) = (before.run().steps, next.state.run().steps);
    let replied = before.kind() == StateKind::CallingSending;
    (new == old || (new == old + 1 && replied)) && new <= next.state.run().rules.limits.max_steps
}

fn used(before: &State, next: &Step) -> bool {
    let (old, new) = (before.run().used, next.state.run().used);
    old.cost <= new.cost && old.tokens <= new.tokens
}

/// No call of the agent has a context that is too full, and no closing call is larger than the window.
fn fits_window(next: &Step) -> bool {
    let context = &next.state.run().rules.context;
    next.effects.iter().all(|effect| match (effect, &next.state) {
        (Effect::CallModel { purpose: CallPurpose::Agent, .. }, State::Calling(calling)) => {
            calling.size.estimate <= context.window.percent(context.full_at)
        }
        (Effect::CallModel { purpose: CallPurpose::Closing, .. }, State::Closing(closing)) => {
            match closing.stage {
                architect::machine::ClosingStage::Sending { size, .. } => {
                    size.shortened_estimate <= context.window
                }
                architect::machine::ClosingStage::Preparing { .. } => false,
            }
        }
        _ => true,
    })
}

/// The worst case of every pending call fits the remaining budget.
fn budget(next: &Step) -> bool {
    let run = next.state.run();
    let size = match &next.state {
        State::Calling(calling) => calling.size,
        State::Compacting(compacting) => compacting.size,
        State::Closing(closing) => match closing.stage {
            architect::machine::ClosingStage::Sending { size, .. } => size,
            architect::machine::ClosingStage::Preparing { .. } => return true,
        },
        State::Preparing(_) | State::Executing(_) | State::Done(_) => return true,
    };
    next.effects.iter().all(|effect| {
        let Effect::CallModel { max_output, .. } = effect else { return true };
        let limits = &run.rules.limits;
        let output = max_output.unwrap_or(Tokens(u64::MAX / 4));
        let price = match next.state {
            State::Compacting(_) => run.rules.summary_price.or(run.rules.price),
            _ => run.rules.price,
        };
        let cost = price.map_or(MicroUsd::ZERO, |price| price.max_cost(size.upper_bound, output));
        limits.budget.is_none_or(|budget| run.used.cost + cost <= budget)
            && limits
                .max_tokens
                .is_none_or(|most| run.used.tokens + size.upper_bound + output <= most)
    })
}

/// A run never returns to an earlier model, and each has its own price and window.
fn models(before: &State, event: &Event, next: &Step) -> bool {
    let (old, new) = (before.run().model, next.state.run());
    let is_its_own = new.rules.model(new.model).is_none_or(|model| {
        (model.price, model.window) == (new.rules.price, new.rules.context.window)
    });
    let is_used_up = match before {
        State::Calling(calling) => match &calling.stage {
            CallingStage::Requesting(CallAttempt::Sending { number, .. }) => {
                let backoff = &new.rules.backoff;
                let failing_since = before.run().failing_since.filter(|_| *number > 1);
                let since = failing_since.unwrap_or(new.now);
                // A retry that would begin after the step or the run has to end is not made.
                let closes = new
                    .rules
                    .limits
                    .timeout
                    .map(|it| new.started_at.after(it).before(it.fraction(1, 10)));
                let latest = new.now.after(backoff.max_wait);
                [closes, calling.step_deadline].into_iter().flatten().any(|limit| latest >= limit)
                    || match backoff.retry_for {
                        Some(time) => latest >= since.after(time),
                        None => *number > backoff.retries,
                    }
            }
            CallingStage::Requesting(CallAttempt::Waiting { .. })
            | CallingStage::Checking { .. } => false,
        },
        _ => false,
    };
    let may_change = match event {
        Event::CallFailed { fault, .. } => {
            let is_retried = fault.class() == FaultClass::Transient && fault.retry_after.is_none();
            fault.kind.permits_fallback() && (is_used_up || !is_retried)
        }
        Event::Tick { .. } => is_used_up,
        _ => false,
    };
    is_its_own
        && (new.model == old
            || new.model > old && may_change && next.state.kind() == StateKind::Preparing)
}

/// The budget shares of sub-agents, together with the earlier usage, are within the limits.
fn reserves_budget(state: &State) -> bool {
    let State::Executing(executing) = state else { return true };
    let left = executing.calls.iter().filter_map(|call| match call.state {
        CallState::Running { budget: left, .. } => left,
        CallState::Queued | CallState::Authorizing { .. } | CallState::Completed(_) => None,
    });
    let RunLimits { budget, max_tokens, .. } = &executing.run.rules.limits;
    let used = executing.run.used;
    let (cost, tokens) = left.fold((used.cost, used.tokens), |(cost, tokens), left| {
        (cost + left.cost.unwrap_or_default(), tokens + left.tokens.unwrap_or_default())
    });
    // A run that has used its limit up has no budget to share.
    budget.is_none_or(|budget| cost <= budget.max(used.cost))
        && max_tokens.is_none_or(|most| tokens <= most.max(used.tokens))
}

/// Invariants of a state's fields that the types don't enforce.
fn shape(state: &State) -> bool {
    match state {
        State::Executing(executing) => {
            let open = |slot: &CallState| !matches!(slot, CallState::Completed(_));
            let under_way = |slot: &CallState| {
                matches!(slot, CallState::Authorizing { .. } | CallState::Running { .. })
            };
            let count = executing.calls.iter().filter(|call| under_way(&call.state)).count();
            executing.calls.iter().any(|call| open(&call.state))
                && (1..=executing.run.rules.bounds.parallel_calls as usize).contains(&count)
                && executing.calls.iter().map(|call| &call.call).eq(executing.reply.calls())
        }
        State::Calling(calling) => match &calling.stage {
            CallingStage::Requesting(attempt) => attempts(state, *attempt),
            CallingStage::Checking { answer, .. } => !answer.trim().is_empty(),
        },
        State::Compacting(compacting) => attempts(state, compacting.attempt),
        State::Done(done) => {
            let reason = done.outcome.reason;
            // A hook that blocks a run leaves no answer; other ends of this kind have one.
            let failed = match reason == StopReason::ChecksFailed {
                true => done.outcome.output.is_none(),
                false => reason.status() == architect::machine::RunStatus::Failed,
            };
            failed == done.outcome.error.is_some()
                && (reason != StopReason::LlmDone || done.outcome.output.is_some())
        }
        State::Closing(closing) => {
            closing.reason != CloseReason::MaxSteps
                || closing.run.steps >= closing.run.rules.limits.max_steps
        }
        State::Preparing(_) => true,
    }
}

fn attempts(state: &State, attempt: CallAttempt) -> bool {
    let (CallAttempt::Sending { number, .. } | CallAttempt::Waiting { number, .. }) = attempt;
    let run = state.run();
    let backoff = &run.rules.backoff;
    match (backoff.retry_for, attempt) {
        (Some(time), CallAttempt::Waiting { until, .. }) => {
            number > 1 && run.failing_since.is_some_and(|since| until < since.after(time))
        }
        (Some(_), CallAttempt::Sending { .. }) => number > 0,
        (None, _) => (1..=backoff.retries + 1).contains(&number),
    }
}
