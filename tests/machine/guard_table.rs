//! A second definition of each guard of the chart: by the public facts of a state and its rules, with arithmetic of its
//! own. It calls no function of the machine that decides anything, so that a wrong one can't agree with itself.

use architect::machine::{
    Authorization, CallAttempt, CallPurpose, CallState, CallingStage, CheckResult, DeadlineKind,
    Event, Guard, RequestSize, RunContext, State,
};
use architect::types::{
    Fault, FaultKind, Price, Reply, ReplyFinish, RetryAdvice, ToolArguments, ToolStatus,
    UnknownFinishPolicy, Usage,
};

/// Money and tokens that a run has used.
#[derive(Clone, Copy)]
struct UsedBudget {
    micros: u128,
    tokens: u128,
}

/// Tokens that the instruction of a closing call may have.
const INSTRUCTION: u128 = 200;

/// The shortest wait before a retry, unless a provider asks for less.
const SHORTEST_WAIT: u64 = 100_000;

/// Returns whether the table says that the guard holds for this event in this state.
#[allow(clippy::too_many_lines)] // a table
pub(crate) fn holds(guard: Guard, state: &State, event: &Event) -> bool {
    let run = state.run();
    let due = due(state, event);
    let rules = &run.rules;
    match guard {
        Guard::TimeIsUp => {
            due == Some(DeadlineKind::RunTimeout) || due == Some(DeadlineKind::StepTimeout)
        }
        Guard::ClosingTimeoutDue => due == Some(DeadlineKind::ClosingTimeout),
        Guard::EffectTimeoutDue => due == Some(DeadlineKind::EffectTimeout),
        Guard::AttemptTimeoutDue => due == Some(DeadlineKind::AttemptTimeout),
        Guard::RetryDue => due == Some(DeadlineKind::RetryDue),
        Guard::ToolTimeoutDue => due == Some(DeadlineKind::ToolTimeout),
        Guard::TimeoutMayRetry => {
            due == Some(DeadlineKind::AttemptTimeout) && retries(state, &timeout(), now(run, event))
        }
        Guard::TimeoutMayFallBack => {
            due == Some(DeadlineKind::AttemptTimeout) && falls_back(state, &timeout())
        }
        Guard::RetryAffordable => {
            due == Some(DeadlineKind::RetryDue)
                && call(state)
                    .is_some_and(|(_, size, purpose)| covers(run, size, purpose, used(run)))
        }
        Guard::LastToolsOverdue => {
            due == Some(DeadlineKind::ToolTimeout)
                && open_calls(state).all(|call| match call {
                    CallState::Authorizing { due, .. } | CallState::Running { due, .. } => {
                        due.0 <= now(run, event)
                    }
                    CallState::Queued | CallState::Completed(_) => false,
                })
        }
        Guard::LimitReached => {
            prepared(event).is_some_and(|size| is_closed(run, size) || is_stuck(run, size))
        }
        Guard::ContextOverThreshold => prepared(event).is_some_and(|size| {
            !is_closed(run, size)
                && wants_summary(run, size)
                && covers(run, size, CallPurpose::Compaction, used(run))
        }),
        Guard::ContextTooFull => prepared(event).is_some_and(|size| {
            !is_closed(run, size)
                && match wants_summary(run, size) {
                    true => !covers(run, size, CallPurpose::Compaction, used(run)),
                    false => {
                        fills(size, run, rules.context.full_at)
                            && size.exchanges > 1
                            && may_compact(run, size)
                    }
                }
        }),
        Guard::HasCalls => reply(event).is_some_and(|reply| calls_run(run, reply)),
        Guard::NoCallCanRun => reply(event).is_some_and(|reply| {
            calls_run(run, reply) && unrunnable(run, reply).len() == calls(reply)
        }),
        Guard::TooManyInvalidReplies => reply(event).is_some_and(|reply| {
            let unrunnable = unrunnable(run, reply);
            calls_run(run, reply)
                && unrunnable.len() == calls(reply)
                && unrunnable.iter().all(|status| is_invalid(*status))
                && run.streaks.invalid + 1 >= rules.bounds.invalid_replies
        }),
        Guard::AnswerToCheck => is_answer(event) && (waits(run) || rules.has_checks),
        Guard::AskedAgain => reply(event).is_some_and(|reply| {
            calls(reply) == 0
                && match reply.finish {
                    ReplyFinish::Pause => run.streaks.pauses < rules.bounds.pauses,
                    ReplyFinish::Length => run.streaks.truncated < rules.bounds.continuations,
                    ReplyFinish::Stop => {
                        !has_text(reply) && run.streaks.empty < rules.bounds.empty_replies
                    }
                    _ => false,
                }
        }),
        Guard::UnrecognizedMayRetry => reply(event).is_some_and(|reply| {
            let is_kept = has_text(reply) && rules.unknown_finish == UnknownFinishPolicy::Keep;
            calls(reply) == 0
                && match reply.finish {
                    ReplyFinish::ToolCalls => true,
                    ReplyFinish::Other(_) => !is_kept,
                    _ => false,
                }
                && retries(state, &Fault::new(FaultKind::Protocol, ""), run.now.0)
        }),
        Guard::ContextOverflow => overflow(state, event).is_some(),
        Guard::OverflowSummarized => overflow(state, event).is_some_and(|(size, used)| {
            shrinks(run, size) && covers(run, size, CallPurpose::Compaction, used)
        }),
        Guard::OverflowTrimmed => overflow(state, event).is_some_and(|(size, used)| {
            shrinks(run, size) && !covers(run, size, CallPurpose::Compaction, used)
        }),
        Guard::MayRetry => fault(event).is_some_and(|fault| retries(state, fault, run.now.0)),
        Guard::MayFallBack => fault(event).is_some_and(|fault| falls_back(state, fault)),
        Guard::UserAborts => {
            matches!(event, Event::Authorized { authorization: Authorization::Abort, .. })
        }
        Guard::CallApproved => {
            matches!(event, Event::Authorized { authorization: Authorization::Approved { .. }, .. })
        }
        Guard::LastCall => statuses_after(state, event).is_some(),
        Guard::LastCallTooManyInvalid => statuses_after(state, event).is_some_and(|statuses| {
            statuses.into_iter().all(is_invalid)
                && run.streaks.invalid + 1 >= rules.bounds.invalid_replies
        }),
        Guard::CheckAsksAgain => {
            let (streaks, bounds) = (&run.streaks, &rules.bounds);
            let may_be_sent_back = streaks.sent_back < bounds.sent_back;
            match event {
                Event::Checked { result, .. } => match result {
                    CheckResult::Passed => waits(run) && may_be_sent_back,
                    CheckResult::SentBack { .. } => may_be_sent_back,
                    CheckResult::SchemaViolation { .. } => {
                        streaks.schema_violations < bounds.repairs
                    }
                    CheckResult::FollowUp { .. } => {
                        streaks.follow_ups < bounds.follow_ups || waits(run) && may_be_sent_back
                    }
                },
                _ => false,
            }
        }
        Guard::FinalSummaryPossible => prepared(event).is_some_and(|size| {
            rules.limits.step_timeout.is_none_or(|limit| limit.0 > 0)
                && size.shortened_estimate <= rules.context.window
                && covers(run, size, CallPurpose::Closing, used(run))
        }),
    }
}

/// Returns whether the event is a reply that is an answer.
fn is_answer(event: &Event) -> bool {
    reply(event).is_some_and(|reply| {
        calls(reply) == 0 && reply.finish == ReplyFinish::Stop && has_text(reply)
    })
}

/// Returns whether a command runs that an answer has to wait for.
fn waits(run: &RunContext) -> bool {
    run.commands.iter().any(|command| command.is_needed)
}

// Time, in microseconds.

/// Returns the time after an event: clocks only go forward.
fn now(run: &RunContext, event: &Event) -> u64 {
    match event {
        Event::Tick { now } => run.now.0.max(now.0),
        _ => run.now.0,
    }
}

/// Returns when the run must close: a tenth of its time before the end, or half a minute if that is less.
pub(crate) fn closing_time(run: &RunContext) -> Option<u64> {
    let timeout = run.rules.limits.timeout?.0;
    Some(run.started_at.0 + timeout - (timeout / 10).min(30_000_000))
}

/// Returns the deadline that a tick meets. Of several, the one that ends more.
fn due(state: &State, event: &Event) -> Option<DeadlineKind> {
    let Event::Tick { .. } = event else { return None };
    let attempt = |attempt: &CallAttempt| match attempt {
        CallAttempt::Sending { due, .. } => (due.0, DeadlineKind::AttemptTimeout),
        CallAttempt::Waiting { until, .. } => (until.0, DeadlineKind::RetryDue),
    };
    let mut own = Vec::new();
    match state {
        State::Preparing(state) => own.push((state.due.0, DeadlineKind::EffectTimeout)),
        State::Compacting(state) => own.push(attempt(&state.attempt)),
        State::Calling(state) => match &state.stage {
            CallingStage::Requesting(made) => {
                own.push(attempt(made));
                own.extend(state.step_deadline.map(|due| (due.0, DeadlineKind::StepTimeout)));
            }
            CallingStage::Checking { due, .. } => own.push((due.0, DeadlineKind::EffectTimeout)),
        },
        State::Executing(_) => own.extend(open_calls(state).filter_map(|call| match call {
            CallState::Authorizing { due, .. } | CallState::Running { due, .. } => {
                Some((due.0, DeadlineKind::ToolTimeout))
            }
            CallState::Queued | CallState::Completed(_) => None,
        })),
        State::Closing(state) => own.push((state.due.0, DeadlineKind::ClosingTimeout)),
        State::Done(_) => return None,
    }
    if !matches!(state, State::Closing(_)) {
        own.extend(closing_time(state.run()).map(|at| (at, DeadlineKind::RunTimeout)));
    }
    let now = now(state.run(), event);
    let order = [
        DeadlineKind::RunTimeout,
        DeadlineKind::StepTimeout,
        DeadlineKind::ClosingTimeout,
        DeadlineKind::AttemptTimeout,
        DeadlineKind::RetryDue,
        DeadlineKind::ToolTimeout,
        DeadlineKind::EffectTimeout,
    ];
    order.into_iter().find(|kind| own.iter().any(|(at, own)| own == kind && *at <= now))
}

// Money and tokens.

fn used(run: &RunContext) -> UsedBudget {
    UsedBudget { micros: run.used.cost.0.into(), tokens: run.used.tokens.0.into() }
}

/// Returns millionths of a micro-dollar.
fn cost(price: &Price, input: u128, output: u128) -> u128 {
    let dearest = price.input.max(price.cached_input).max(price.cache_write);
    input * u128::from(dearest) + output * u128::from(price.output)
}

/// Returns whether the rest of the budget covers a call with the least useful output, and also the needs of the closing
/// call: its own worst case, or a fifth of the budget if that is less.
fn covers(run: &RunContext, size: &RequestSize, purpose: CallPurpose, used: UsedBudget) -> bool {
    let (limits, output) = (&run.rules.limits, &run.rules.output);
    let wanted = output.user_limit.unwrap_or(output.model_limit);
    let (input, least) = (u128::from(size.upper_bound.0), u128::from(output.minimum.min(wanted).0));
    let closing = (input + INSTRUCTION, u128::from(output.closing.0));
    let keeps = purpose != CallPurpose::Closing;
    let of_task = run.rules.price;
    let price = match purpose {
        CallPurpose::Compaction => of_task.map(|price| run.rules.summary_price.unwrap_or(price)),
        CallPurpose::Agent | CallPurpose::Closing => of_task,
    };
    let money = limits.budget.zip(price).is_none_or(|(budget, price)| {
        let worst = cost(&of_task.unwrap_or(price), closing.0, closing.1).div_ceil(1_000_000);
        let kept = if keeps { worst.min(u128::from(budget.0 / 5)) } else { 0 };
        cost(&price, input, least) + (used.micros + kept) * 1_000_000
            <= u128::from(budget.0) * 1_000_000
    });
    let tokens = limits.max_tokens.is_none_or(|most| {
        let kept = if keeps { (closing.0 + closing.1).min(u128::from(most.0 / 5)) } else { 0 };
        input + least + used.tokens + kept <= u128::from(most.0)
    });
    money && tokens
}

/// Returns the used budget after a call with this usage.
fn after(run: &RunContext, usage: &Usage) -> UsedBudget {
    let UsedBudget { micros, tokens } = used(run);
    let (input, output) = (u128::from(usage.input.0), u128::from(usage.output.0));
    let price = |price: Price| {
        let sum = input * u128::from(price.input) + output * u128::from(price.output);
        sum.div_ceil(1_000_000)
    };
    UsedBudget {
        micros: micros + run.rules.price.map_or(0, price),
        tokens: tokens + input + output,
    }
}

/// Returns the used budget after a failed call: the request counts if it is billed. No fault of the small models has
/// output.
fn after_fault(run: &RunContext, size: &RequestSize, fault: &Fault) -> UsedBudget {
    assert_eq!(fault.received.0, 0);
    match fault.billed {
        true => {
            after(run, &Usage { input: size.estimate.min(size.upper_bound), ..Usage::default() })
        }
        false => used(run),
    }
}

// Model calls.

/// Returns the number of the attempt, the size and the purpose of the call that is made or retried.
fn call(state: &State) -> Option<(u32, &RequestSize, CallPurpose)> {
    let number = |attempt: &CallAttempt| match attempt {
        CallAttempt::Sending { number, .. } | CallAttempt::Waiting { number, .. } => *number,
    };
    match state {
        State::Calling(state) => match &state.stage {
            CallingStage::Requesting(attempt) => {
                Some((number(attempt), &state.size, CallPurpose::Agent))
            }
            CallingStage::Checking { .. } => None,
        },
        State::Compacting(state) => {
            Some((number(&state.attempt), &state.size, CallPurpose::Compaction))
        }
        _ => None,
    }
}

fn timeout() -> Fault {
    Fault { billed: true, ..Fault::new(FaultKind::Timeout, "") }
}

fn fault(event: &Event) -> Option<&Fault> {
    match event {
        Event::CallFailed { fault, .. } => Some(fault),
        _ => None,
    }
}

/// Returns whether another attempt may follow a failure at this time: the fault may pass, attempts or time for them are left, the
/// provider doesn't ask for too long a wait, and the attempt begins in time.
fn retries(state: &State, fault: &Fault, now: u64) -> bool {
    let Some((number, ..)) = call(state) else { return false };
    let run = state.run();
    let rules = &run.rules.backoff;
    let passes = match fault.advice {
        _ if fault.kind == FaultKind::Overflow => false,
        RetryAdvice::Retry => true,
        RetryAdvice::GiveUp => false,
        RetryAdvice::Unspecified => [
            FaultKind::Connect,
            FaultKind::Timeout,
            FaultKind::RateLimited,
            FaultKind::Server,
            FaultKind::Truncated,
            FaultKind::Protocol,
        ]
        .contains(&fault.kind),
    };
    let longest = (rules.base_wait.0 << (number - 1)).min(rules.max_wait.0);
    assert!(longest <= SHORTEST_WAIT, "the waits of the small models are not random");
    let asked = fault.retry_after.map_or(0, |wait| wait.0);
    let begins = now + longest.max(asked);
    let step_deadline = match state {
        State::Calling(state) => state.step_deadline.map(|due| due.0),
        _ => None,
    };
    let limits = [closing_time(run), step_deadline];
    let is_left = match rules.retry_for {
        None => number <= rules.retries,
        Some(time) => {
            let since = run.failing_since.filter(|_| number > 1).map_or(now, |since| since.0);
            begins < since + time.0
        }
    };
    passes
        && is_left
        && asked <= rules.max_provider_wait.0
        && limits.into_iter().flatten().all(|limit| begins < limit)
}

/// Returns whether another model may answer: this one is out of reach, and one of those after it is affordable.
fn falls_back(state: &State, fault: &Fault) -> bool {
    let State::Calling(calling) = state else { return false };
    let run = &calling.run;
    let is_out_of_reach = [
        FaultKind::Connect,
        FaultKind::Timeout,
        FaultKind::RateLimited,
        FaultKind::Server,
        FaultKind::Truncated,
        FaultKind::MissingModel,
    ]
    .contains(&fault.kind);
    let used = after_fault(run, &calling.size, fault);
    let mut others = run.rules.models.iter().skip(run.model as usize + 1);
    is_out_of_reach
        && others.any(|model| {
            let mut other = (**run).clone();
            let mut rules = (*run.rules).clone();
            rules.price = model.price;
            rules.output.model_limit = model.model_limit;
            other.rules = rules.into();
            covers(&other, &calling.size, CallPurpose::Agent, used)
        })
}

// The context.

fn prepared(event: &Event) -> Option<&RequestSize> {
    match event {
        Event::Prepared { size, .. } => Some(size),
        _ => None,
    }
}

/// Returns whether the request is larger than this percentage of the window.
fn fills(size: &RequestSize, run: &RunContext, percent: u64) -> bool {
    size.estimate.0 * 100 > run.rules.context.window.0 * percent
}

/// Returns whether the run closes whatever its context.
fn is_closed(run: &RunContext, size: &RequestSize) -> bool {
    let rules = &run.rules;
    run.steps - rules.limit_baseline.steps >= rules.limits.max_steps
        || !covers(run, size, CallPurpose::Agent, used(run))
        || rules.limits.step_timeout.is_some_and(|limit| limit.0 == 0)
        || run.repetition.count() >= rules.loop_detection.end_at
}

/// Returns whether the context is too full, and can't become smaller.
fn is_stuck(run: &RunContext, size: &RequestSize) -> bool {
    fills(size, run, run.rules.context.full_at)
        && !wants_summary(run, size)
        && (size.exchanges <= 1 || !may_compact(run, size))
}

/// Returns whether a compaction is possible before this request: the one before has helped, and a reply has come since.
fn may_compact(run: &RunContext, size: &RequestSize) -> bool {
    let compactions = &run.compactions;
    let has_helped = compactions.size_before.is_none_or(|before| size.estimate < before);
    has_helped && shrinks_at_all(run)
}

fn shrinks_at_all(run: &RunContext) -> bool {
    let compactions = &run.compactions;
    !compactions.is_futile
        && compactions.size_before.is_none()
        && compactions.count < run.rules.context.max_compactions
}

/// Returns whether a request that doesn't fit can become smaller.
fn shrinks(run: &RunContext, size: &RequestSize) -> bool {
    shrinks_at_all(run) && size.exchanges >= 1
}

/// Returns whether a summary is due: over the threshold, and with exchanges that it would replace.
fn wants_summary(run: &RunContext, size: &RequestSize) -> bool {
    let context = &run.rules.context;
    fills(size, run, context.threshold)
        && size.exchanges > context.summarize_after
        && size.exchanges > context.keep_recent
        && may_compact(run, size)
}

/// Returns the size of a request that doesn't fit the context, and the used budget after it.
fn overflow<'a>(state: &'a State, event: &Event) -> Option<(&'a RequestSize, UsedBudget)> {
    let State::Calling(calling) = state else { return None };
    let used = match event {
        Event::CallFailed { fault, .. } if fault.kind == FaultKind::Overflow => {
            after_fault(&calling.run, &calling.size, fault)
        }
        Event::Replied { reply, .. }
            if calls(reply) == 0 && reply.finish == ReplyFinish::ContextFull =>
        {
            after(&calling.run, &reply.usage)
        }
        _ => return None,
    };
    Some((&calling.size, used))
}

// Replies and tool calls.

fn reply(event: &Event) -> Option<&Reply> {
    match event {
        Event::Replied { reply, .. } => Some(reply),
        _ => None,
    }
}

fn calls(reply: &Reply) -> usize {
    reply.calls().count()
}

fn has_text(reply: &Reply) -> bool {
    !reply.text().trim().is_empty()
}

/// Returns whether the calls of a reply are executed: the output limit has not cut off too many replies in a row.
fn calls_run(run: &RunContext, reply: &Reply) -> bool {
    let is_cut =
        reply.calls().any(|call| matches!(call.arguments, ToolArguments::Truncated { .. }));
    calls(reply) > 0 && !(is_cut && run.streaks.truncated >= run.rules.bounds.continuations)
}

/// Returns the statuses of the calls of a reply that can't run: those beyond the limit, and those that are cut off.
fn unrunnable(run: &RunContext, reply: &Reply) -> Vec<ToolStatus> {
    let most = run.rules.bounds.calls_per_reply as usize;
    let status = |(index, call): (usize, &architect::types::ToolCall)| match &call.arguments {
        _ if index >= most => Some(ToolStatus::Skipped),
        ToolArguments::Truncated { .. } => Some(ToolStatus::Truncated),
        ToolArguments::Complete { .. } | ToolArguments::Malformed { .. } => None,
    };
    reply.calls().enumerate().filter_map(status).collect()
}

fn is_invalid(status: ToolStatus) -> bool {
    [ToolStatus::Unknown, ToolStatus::Malformed, ToolStatus::Truncated].contains(&status)
}

/// Returns the progress of the calls that have no result.
fn open_calls(state: &State) -> impl Iterator<Item = &CallState> {
    let calls = match state {
        State::Executing(state) => &state.calls[..],
        _ => &[],
    };
    let states = calls.iter().map(|call| &call.state);
    states.filter(|call| !matches!(call, CallState::Completed(_)))
}

/// Returns the statuses of all calls, if the event completes the only one that has no result.
fn statuses_after(state: &State, event: &Event) -> Option<Vec<ToolStatus>> {
    let State::Executing(executing) = state else { return None };
    let (id, result) = match event {
        Event::ToolCompleted { id, result } => (id, result),
        Event::Authorized { id, authorization: Authorization::Rejected { result } } => (id, result),
        _ => return None,
    };
    let awaited = |call: &CallState| match call {
        CallState::Authorizing { id: open, .. } | CallState::Running { id: open, .. } => open == id,
        CallState::Queued | CallState::Completed(_) => false,
    };
    let statuses = executing.calls.iter().map(|call| match &call.state {
        CallState::Completed(result) => result.status,
        CallState::Queued | CallState::Authorizing { .. } | CallState::Running { .. } => {
            result.status
        }
    });
    open_calls(state).all(awaited).then(|| statuses.collect())
}
