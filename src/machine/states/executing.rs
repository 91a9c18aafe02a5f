//! Executing: the tool calls of a reply are authorized, run and answered, each exactly once.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::machine::budget::budget_share::BudgetShare;
use crate::machine::context::instructions;
use crate::machine::deadline::{ExecutingDeadline, StateDeadlines};
use crate::machine::effect::{Effect, EffectKind, MachineNote};
use crate::machine::event::{Authorization, CallIntent};
use crate::machine::output::{Step, StepBuilder};
use crate::machine::run_context::{BudgetUsage, RunContext};
use crate::machine::state::State;
use crate::machine::states::done::Done;
use crate::machine::states::preparing::Preparing;
use crate::machine::stop_reason::StopReason;
use crate::machine::tool_calls::loop_detection::TurnRepetition;
use crate::machine::tool_calls::scheduling::{self, SchedulingState};
use crate::types::{
    CallAccess, ConversationItem, EffectId, Reply, RunRules, RunTime, Signal, ToolArguments,
    ToolCall, ToolExchange, ToolResult, ToolStatus,
};

/// The tool calls of a reply are being executed. At least one of them has no result yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Executing {
    /// The shared context.
    pub run: Box<RunContext>,
    /// The reply with the calls.
    pub reply: Reply,
    /// The calls of the reply, in call order.
    pub calls: Vec<TrackedCall>,
}

/// A tool call and its progress.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TrackedCall {
    /// The call.
    pub call: ToolCall,
    /// The files that the call touches.
    pub access: CallAccess,
    /// The progress of the call.
    pub state: CallState,
}

/// The progress of a tool call.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallState {
    /// The call waits for its turn.
    Queued,
    /// The call is being authorized.
    Authorizing {
        /// The pending authorization.
        id: EffectId,
        /// The time at which the authorization times out.
        due: RunTime,
    },
    /// The call is running.
    Running {
        /// The pending execution.
        id: EffectId,
        /// The time at which the execution times out.
        due: RunTime,
        /// The rest of the call's budget share, if it makes model calls of its own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        budget: Option<BudgetShare>,
    },
    /// The call has a result.
    Completed(ToolResult),
}

impl CallState {
    /// Returns the pending effect.
    pub(crate) fn pending(&self) -> Option<(EffectId, EffectKind)> {
        match self {
            Self::Queued | Self::Completed(_) => None,
            Self::Authorizing { id, .. } => Some((*id, EffectKind::Authorize)),
            Self::Running { id, budget: None, .. } => Some((*id, EffectKind::RunTool)),
            Self::Running { id, budget: Some(_), .. } => Some((*id, EffectKind::RunSubagent)),
        }
    }

    /// Returns the id of the pending effect.
    pub fn pending_effect(&self) -> Option<EffectId> {
        self.pending().map(|(id, _)| id)
    }

    /// Returns the result, if there is one.
    pub(crate) fn result(&self) -> Option<&ToolResult> {
        if let Self::Completed(result) = self { Some(result) } else { None }
    }

    fn due(&self) -> Option<RunTime> {
        match self {
            Self::Queued | Self::Completed(_) => None,
            Self::Authorizing { due, .. } | Self::Running { due, .. } => Some(*due),
        }
    }

    /// Returns the rest of the call's budget share.
    fn budget(&self) -> Option<BudgetShare> {
        if let Self::Running { budget, .. } = self { *budget } else { None }
    }
}

impl TrackedCall {
    /// Returns the access and the progress of the call.
    fn for_scheduling(&self) -> (&CallAccess, SchedulingState) {
        let state = match self.state {
            CallState::Queued => SchedulingState::Queued,
            CallState::Authorizing { .. } | CallState::Running { .. } => SchedulingState::Started,
            CallState::Completed(_) => SchedulingState::Completed,
        };
        (&self.access, state)
    }

    fn complete(&mut self, status: ToolStatus, text: impl Into<Arc<str>>) {
        self.state = CallState::Completed(ToolResult::new(self.call.id.clone(), status, text));
    }

    /// Completes the call with a result. The result gets the id of the call, even if the tool has set another one.
    fn accept(&mut self, result: ToolResult) {
        self.state = CallState::Completed(ToolResult { call: self.call.id.clone(), ..result });
    }

    /// Completes a call whose result is no longer awaited, according to its progress.
    fn complete_unfinished(&mut self, out: &mut StepBuilder) {
        if let Some(id) = self.state.pending_effect() {
            out.cancel(id);
        }
        let (status, text) = match self.state {
            CallState::Queued | CallState::Authorizing { .. } => {
                (ToolStatus::Skipped, instructions::SKIPPED)
            }
            CallState::Running { .. } => (ToolStatus::Interrupted, instructions::INTERRUPTED),
            CallState::Completed(_) => return,
        };
        self.complete(status, text);
    }
}

/// Returns the calls of a reply before execution. Calls that can't run already have a result.
pub(crate) fn track_calls(
    rules: &RunRules,
    reply: &Reply,
    access: &[CallAccess],
) -> Vec<TrackedCall> {
    let allowed = rules.bounds.calls_per_reply;
    let track = |(index, call): (usize, &ToolCall)| {
        let access = access.get(index).cloned().unwrap_or(CallAccess::Exclusive);
        let mut tracked = TrackedCall { call: call.clone(), access, state: CallState::Queued };
        if index >= allowed as usize {
            tracked.complete(ToolStatus::Skipped, instructions::too_many_calls(allowed));
        } else if matches!(call.arguments, ToolArguments::Truncated { .. }) {
            tracked.complete(ToolStatus::Truncated, instructions::TRUNCATED);
        }
        tracked
    };
    reply.calls().enumerate().map(track).collect()
}

/// Returns the call of a pending effect.
fn find_pending(calls: &mut [TrackedCall], id: EffectId) -> Option<&mut TrackedCall> {
    calls.iter_mut().find(|call| call.state.pending_effect() == Some(id))
}

/// Returns whether the call of this effect is the only one without a result.
pub(crate) fn is_last_pending(state: &Executing, id: EffectId) -> bool {
    let open = |call: &&TrackedCall| !matches!(call.state, CallState::Completed(_));
    state.calls.iter().filter(open).all(|call| call.state.pending_effect() == Some(id))
}

/// Returns whether there are too many consecutive replies with only invalid calls, if the newest reply has these
/// statuses.
pub(crate) fn too_many_invalid(
    run: &RunContext,
    statuses: impl Iterator<Item = ToolStatus>,
) -> bool {
    all_invalid(statuses) && is_last_invalid(run)
}

fn is_last_invalid(run: &RunContext) -> bool {
    run.streaks.invalid + 1 >= run.rules.bounds.invalid_replies
}

fn all_invalid(mut statuses: impl Iterator<Item = ToolStatus>) -> bool {
    statuses.all(ToolStatus::is_invalid)
}

impl Executing {
    /// Starts the first calls of a reply.
    pub(crate) fn enter(
        mut run: Box<RunContext>,
        out: StepBuilder,
        reply: Reply,
        access: &[CallAccess],
    ) -> Step {
        run.steps += 1;
        let calls = track_calls(&run.rules, &reply, access);
        Self { run, reply, calls }.start_calls(out)
    }

    pub(crate) fn deadlines(&self) -> StateDeadlines<ExecutingDeadline, 2> {
        let first = self.calls.iter().filter_map(|call| call.state.due()).min();
        let run = self.run.closing_time().map(|at| (at, ExecutingDeadline::RunTimeout));
        StateDeadlines([first.map(|at| (at, ExecutingDeadline::ToolTimeout)), run])
    }

    /// Continues without the calls that did not complete in time.
    pub(crate) fn on_tool_timeout(mut self) -> Step {
        let mut out = StepBuilder::default();
        let now = self.run.now;
        for call in &mut self.calls {
            let (id, status, text) = match call.state {
                CallState::Authorizing { id, due } if due <= now => {
                    (id, ToolStatus::Denied, instructions::NOT_AUTHORIZED)
                }
                CallState::Running { id, due, .. } if due <= now => {
                    (id, ToolStatus::Abandoned, instructions::ABANDONED)
                }
                CallState::Queued
                | CallState::Authorizing { .. }
                | CallState::Running { .. }
                | CallState::Completed(_) => continue,
            };
            out.cancel(id);
            call.complete(status, text);
        }
        self.start_calls(out)
    }

    pub(crate) fn on_authorization(mut self, id: EffectId, authorization: Authorization) -> Step {
        let mut out = StepBuilder::default();
        let now = self.run.now;
        let budget = self.assign_budget(&authorization);
        let Some(call) = find_pending(&mut self.calls, id) else {
            return out.finish(State::Executing(self));
        };
        match authorization {
            Authorization::Approved { timeout: limit, intent, .. } => {
                let id = self.run.next_effect.allocate();
                let command = self.run.add_command(&call.call.id, &intent);
                let (called, share) = (call.call.clone(), budget.map(Box::new));
                out.add_effect(Effect::RunTool { id, call: called, budget: share, command });
                call.state = CallState::Running { id, due: now.after(limit), budget };
                out.finish(State::Executing(self))
            }
            Authorization::Rejected { result } => {
                call.accept(result);
                self.start_calls(out)
            }
            Authorization::Abort => {
                // The authorization is complete, so it must not be cancelled like the others.
                call.state = CallState::Queued;
                let (run, out) = self.cancel();
                Done::end(run, out, StopReason::UserInterrupt(Signal::Interrupt))
            }
        }
    }

    /// Returns the budget share of a call that makes model calls of its own.
    fn assign_budget(&self, authorization: &Authorization) -> Option<BudgetShare> {
        let Authorization::Approved { intent: CallIntent::Delegated { .. }, .. } = authorization
        else {
            return None;
        };
        let others = self.calls.iter().filter_map(|call| call.state.budget());
        Some(BudgetShare::new(&self.run, others))
    }

    /// Subtracts usage from the budget share of a call, and adds it to the usage of the run.
    pub(crate) fn on_usage(mut self, id: EffectId, used: BudgetUsage) -> Step {
        let mut out = StepBuilder::default();
        for call in &mut self.calls {
            if let CallState::Running { id: open, budget: Some(left), .. } = &mut call.state
                && *open == id
            {
                *left = left.after_usage(used);
            }
        }
        self.run.add_usage(used, &mut out);
        out.finish(State::Executing(self))
    }

    pub(crate) fn on_completion(mut self, id: EffectId, result: ToolResult) -> Step {
        if let Some(call) = find_pending(&mut self.calls, id) {
            call.accept(result);
        }
        self.start_calls(StepBuilder::default())
    }

    /// Starts the calls that may start now. If all have results, prepares the next model call.
    pub(crate) fn start_calls(mut self, mut out: StepBuilder) -> Step {
        let due = self.run.now.after(self.run.rules.timeouts.authorize);
        let parallel = self.run.rules.bounds.parallel_calls;
        let view = TrackedCall::for_scheduling;
        while let Some(index) = scheduling::next_startable(&self.calls, view, parallel) {
            let id = self.run.next_effect.allocate();
            let call = &mut self.calls[index];
            out.add_effect(Effect::Authorize { id, call: call.call.clone() });
            call.state = CallState::Authorizing { id, due };
        }
        if self.calls.iter().all(|call| matches!(call.state, CallState::Completed(_))) {
            self.finish_turn(out)
        } else {
            out.finish(State::Executing(self))
        }
    }

    fn finish_turn(self, mut out: StepBuilder) -> Step {
        let statuses = || self.results().map(|result| result.status);
        let invalid = all_invalid(statuses());
        let hopeless = invalid && is_last_invalid(&self.run);
        let denied = statuses().filter(|status| *status == ToolStatus::Denied).count();
        let pairs = self.calls.iter().map(|call| &call.call).zip(self.results());
        let turn = TurnRepetition::signature(pairs);
        let mut run = self.append_exchange(&mut out);
        if run.rules.fail_on_denied {
            let denied = u32::try_from(denied).unwrap_or(u32::MAX);
            run.denied_calls = run.denied_calls.saturating_add(denied);
        }
        run.streaks.invalid = if invalid { run.streaks.invalid + 1 } else { 0 };
        run.repetition.push(turn);
        let (times, warn_at) = (run.repetition.count(), run.rules.loop_detection.warn_at);
        if times >= warn_at {
            out.add_note(MachineNote::LoopDetected { times });
        }
        if times == warn_at {
            out.append(instructions::repeated_turns(times));
        }
        if hopeless {
            Done::end(run, out, StopReason::InvalidToolCalls)
        } else {
            Preparing::enter(run, out)
        }
    }

    /// Completes every call that has no result, and cancels the running ones.
    pub(crate) fn cancel(mut self) -> (Box<RunContext>, StepBuilder) {
        let mut out = StepBuilder::default();
        self.calls.iter_mut().for_each(|call| call.complete_unfinished(&mut out));
        let run = self.append_exchange(&mut out);
        (run, out)
    }

    /// Adds the reply and its results to the conversation.
    fn append_exchange(self, out: &mut StepBuilder) -> Box<RunContext> {
        let results = self.calls.into_iter().filter_map(|call| match call.state {
            CallState::Completed(result) => Some(result),
            CallState::Queued | CallState::Authorizing { .. } | CallState::Running { .. } => None,
        });
        let results: Vec<ToolResult> = results.collect();
        match ToolExchange::new(self.reply, results) {
            Ok(exchange) => out.append(ConversationItem::Exchange(exchange)),
            Err(error) => debug_assert!(false, "{error}"),
        }
        self.run
    }

    fn results(&self) -> impl Iterator<Item = &ToolResult> {
        self.calls.iter().filter_map(|call| call.state.result())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::ConversationChange;
    use crate::machine::event::Event;
    use crate::machine::step;
    use crate::types::{
        LoopDetection, MicroUsd, ReplyFinish, ReplyPart, RunLimits, TimeSpan, Tokens, Usage,
    };

    /// Returns the state after a reply with this many calls, which may run concurrently.
    fn calls(rules: RunRules, count: u32) -> State {
        let call = |index: u32| {
            let id = index.to_string().as_str().into();
            ReplyPart::Call(ToolCall::new(id, "tool", "{}"))
        };
        let (finish, usage) = (ReplyFinish::ToolCalls, Usage::default());
        let reply = Reply { parts: (0..count).map(call).collect(), finish, usage, model: None };
        let access = vec![CallAccess::read("a"); count as usize];
        Executing::enter(RunContext::new(rules), StepBuilder::default(), reply, &access).state
    }

    fn approved(state: State, id: u64, intent: CallIntent) -> State {
        let authorization =
            Authorization::Approved { timeout: TimeSpan(50), intent, reason: "".into() };
        step(state, Event::Authorized { id: EffectId(id), authorization }).state
    }

    fn slots(state: &State) -> Vec<CallState> {
        let State::Executing(state) = state else { panic!("not executing") };
        state.calls.iter().map(|call| call.state.clone()).collect()
    }

    fn answer(status: ToolStatus) -> ToolResult {
        ToolResult::new("another".into(), status, "it")
    }

    #[test]
    fn usage_of_a_subagent_is_subtracted_from_its_own_budget_share() {
        let limits = RunLimits { max_tokens: Some(Tokens(1_000)), ..RunLimits::default() };
        let mut state = calls(RunRules { limits, ..RunRules::default() }, 3);
        let delegated = || CallIntent::Delegated { session: None, worktree: None };
        // The effects 1 to 3 authorize the calls, and 4 to 6 run them.
        for (id, intent) in [(1, CallIntent::Opaque), (2, delegated()), (3, delegated())] {
            state = approved(state, id, intent);
        }
        let left = |state: &State| {
            slots(state).iter().map(|slot| Some(slot.budget()?.tokens?.0)).collect::<Vec<_>>()
        };
        assert_eq!(left(&state), [None, Some(400), Some(200)]);
        let charged = |id| {
            let usage = Usage { input: Tokens(7), output: Tokens(3), ..Usage::default() };
            Event::UsageReported { id: EffectId(id), usage, cost: MicroUsd(1) }
        };
        let awaited = [4, 5, 6].map(|id| state.awaits(&charged(id)));
        assert_eq!(awaited, [false, true, true]);
        let state = step(state, charged(5)).state;
        assert_eq!(left(&state), [None, Some(390), Some(200)]);
        assert_eq!(state.run().used.tokens, Tokens(10));
    }

    #[test]
    fn a_reply_has_at_most_the_allowed_number_of_calls() {
        let mut rules = RunRules::default();
        rules.bounds.calls_per_reply = 2;
        let settled =
            slots(&calls(rules, 3)).iter().map(|slot| slot.result().cloned()).collect::<Vec<_>>();
        let [None, None, Some(skipped)] = &settled[..] else { panic!("{settled:?}") };
        assert_eq!(skipped.status, ToolStatus::Skipped);
        assert!(skipped.text.contains("at most 2 tool calls"), "{}", skipped.text);
    }

    #[test]
    fn a_result_belongs_to_its_call_whatever_id_it_has() {
        let state = approved(calls(RunRules::default(), 3), 1, CallIntent::Opaque);
        let result = answer(ToolStatus::Ok);
        let state = step(state, Event::ToolCompleted { id: EffectId(4), result }).state;
        let authorization = Authorization::Rejected { result: answer(ToolStatus::Denied) };
        let state = step(state, Event::Authorized { id: EffectId(3), authorization }).state;
        let ids = slots(&state)
            .iter()
            .map(|slot| slot.result().map(|result| result.call.to_string()))
            .collect::<Vec<_>>();
        assert_eq!(ids, [Some("0".to_owned()), None, Some("2".to_owned())]);
    }

    #[test]
    fn a_timeout_completes_a_call_by_its_progress() {
        let mut rules = RunRules::default();
        rules.timeouts.authorize = TimeSpan(50);
        let state = approved(calls(rules, 2), 1, CallIntent::Opaque);
        let next = step(state, Event::Tick { now: RunTime(50) });
        let [ConversationChange::Append { item: ConversationItem::Exchange(exchange) }] =
            &next.changes[..]
        else {
            panic!("{:?}", next.changes)
        };
        let statuses: Vec<_> = exchange.results().iter().map(|result| result.status).collect();
        assert_eq!(statuses, [ToolStatus::Abandoned, ToolStatus::Denied]);
        let cancelled = [3, 2].map(|id| Effect::Cancel { id: EffectId(id) });
        assert_eq!(next.effects[..2], cancelled);
    }

    #[test]
    fn a_timeout_leaves_calls_whose_time_is_not_over() {
        let mut rules = RunRules::default();
        rules.timeouts.authorize = TimeSpan(90);
        let state = approved(calls(rules, 2), 1, CallIntent::Opaque);
        let next = step(state, Event::Tick { now: RunTime(50) }).state;
        let [CallState::Completed(result), CallState::Authorizing { id, .. }] = &slots(&next)[..]
        else {
            panic!("{next:?}")
        };
        assert_eq!((result.status, *id), (ToolStatus::Abandoned, EffectId(2)));
        assert_eq!(next.call_of(EffectId(2)).map(|call| call.call.id.as_str()), Some("1"));
        assert!(next.call_of(EffectId(1)).is_none());
    }

    /// The model is warned once, the user every time.
    #[test]
    fn repeated_turns_are_reported() {
        let mut run = RunContext::new(RunRules {
            loop_detection: LoopDetection { warn_at: 2, end_at: 9 },
            ..RunRules::default()
        });
        for (notes, changes) in [(0, 1), (1, 2), (1, 1)] {
            let State::Executing(mut state) = calls(RunRules::default(), 1) else { unreachable!() };
            state.run = run.clone();
            let authorization = Authorization::Rejected { result: answer(ToolStatus::Denied) };
            let id = EffectId(1);
            let next = step(State::Executing(state), Event::Authorized { id, authorization });
            assert_eq!((next.notes.len(), next.changes.len()), (notes, changes));
            *run = next.state.run().clone();
        }
    }
}
