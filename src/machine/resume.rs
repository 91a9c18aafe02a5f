//! Resuming from a stored state: after a crash, after an interrupt, or with another message.
//!
//! This module decides what happens to each effect that was pending when the process ended. No effect that may have had
//! consequences outside is performed twice, unless it is known to be safe.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::machine::budget::charge_unanswered_call;
use crate::machine::context::instructions;
use crate::machine::effect::CallPurpose;
use crate::machine::output::{Step, StepBuilder};
use crate::machine::run_context::{RunContext, Streaks};
use crate::machine::state::State;
use crate::machine::states::calling::{Calling, CallingStage};
use crate::machine::states::closing::{Closing, ClosingStage};
use crate::machine::states::compacting::Compacting;
use crate::machine::states::done::Done;
use crate::machine::states::executing::{CallState, Executing};
use crate::machine::states::preparing::Preparing;
use crate::machine::stop_reason::{CloseReason, StopReason};
use crate::machine::tool_calls::loop_detection::TurnRepetition;
use crate::types::{CallId, RunRules, RunTime, Tokens, ToolResult};

/// The parameters for resuming a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resumption {
    /// The rules from now on.
    pub rules: RunRules,
    /// The recovered results of running calls. A call without a result may run again.
    #[serde(rename = "found")]
    pub recovered: Vec<RecoveredCall>,
    /// The prompt with which a run continues that had ended.
    #[serde(rename = "opening")]
    pub prompt: ResumePrompt,
    /// The received part of the reply to a call that was pending when the process ended; [`Tokens::MAX`] if it is
    /// unknown. Zero in journals of older releases.
    #[serde(default, skip_serializing_if = "Tokens::is_zero")]
    pub received: Tokens,
}

/// The recovered result of a call that was running when the process ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecoveredCall {
    /// The call.
    pub call: CallId,
    /// The result, or a result that says that the outcome is unknown.
    pub result: ToolResult,
}

/// The prompt with which a run continues that had ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResumePrompt {
    /// A message of the user, which arrives with the next preparation.
    #[serde(rename = "message")]
    FromUser,
    /// An instruction to continue.
    #[serde(rename = "go_on")]
    Continue,
}

/// Resumes from a stored state at this time.
pub fn resume(mut state: State, now: RunTime, resumption: Resumption) -> Step {
    let Resumption { rules, recovered, prompt, received } = resumption;
    let mut out = StepBuilder::default();
    charge_lost_call(&mut state, received, &mut out);
    let has_waited = state.run().needs_commands();
    let renew = |mut run: Box<RunContext>| {
        let model = resumed_model(&run, &rules);
        run.rules = rules.clone().into();
        if model > 0 {
            run.change_model(model);
        }
        run.model = model;
        // The commands ended with the process that ran them.
        run.commands.clear();
        run.now = run.now.max(now);
        run.started_at = run.now;
        run
    };
    match state {
        State::Preparing(state) => Preparing::enter(renew(state.run), out),
        State::Compacting(state) => {
            resume_compacting(Compacting { run: renew(state.run), ..state }, out)
        }
        State::Calling(state) => {
            resume_calling(Calling { run: renew(state.run), ..state }, prompt, has_waited, out)
        }
        State::Executing(state) => {
            resume_executing(Executing { run: renew(state.run), ..state }, &recovered, out)
        }
        State::Closing(state) => {
            resume_closing(Closing { run: renew(state.run), ..state }, prompt, out)
        }
        State::Done(state) => restart(renew(state.run), out, prompt),
    }
}

/// Returns the model of a run that is resumed with these rules: the model that was last called, unless the user has
/// chosen another one.
fn resumed_model(run: &RunContext, rules: &RunRules) -> u32 {
    let name = |rules: &RunRules, index| rules.model(index).map(|model| Arc::clone(&model.name));
    match (name(&run.rules, 0), name(rules, 0), name(&run.rules, run.model)) {
        (Some(first), Some(chosen), Some(called)) if first == chosen => {
            rules.model_index(&called).unwrap_or(0)
        }
        _ => 0,
    }
}

/// Returns the state of a run whose process has ended and that is not resumed. A call without a reply is charged.
pub fn abandon(mut state: State) -> State {
    charge_lost_call(&mut state, Tokens::MAX, &mut StepBuilder::default());
    state
}

/// Charges a call that was sent and has lost its reply, by the rules under which it was sent.
fn charge_lost_call(state: &mut State, received: Tokens, out: &mut StepBuilder) {
    let (run, size, purpose) =
        match state {
            State::Calling(Calling {
                run, size, stage: CallingStage::Requesting(attempt), ..
            }) if attempt.pending_call().is_some() => (run, size, CallPurpose::Agent),
            State::Compacting(Compacting { run, size, attempt, .. })
                if attempt.pending_call().is_some() =>
            {
                (run, size, CallPurpose::Compaction)
            }
            State::Closing(Closing { run, stage: ClosingStage::Sending { size, .. }, .. }) => {
                (run, size, CallPurpose::Closing)
            }
            State::Preparing(_)
            | State::Compacting(_)
            | State::Calling(_)
            | State::Executing(_)
            | State::Closing(_)
            | State::Done(_) => return,
        };
    run.received = received;
    charge_unanswered_call(run, (size, purpose), out);
}

/// Requests a pending summary again while there are attempts left.
fn resume_compacting(state: Compacting, out: StepBuilder) -> Step {
    let Compacting { run, size, target_size, attempt } = state;
    Compacting::send_attempt(run, out, size, target_size, attempt.number() + 1)
}

/// Prepares a call again if its reply was lost. A final answer is checked again, unless the user has sent a message, or
/// a command that it had to wait for is lost.
fn resume_calling(
    state: Calling,
    prompt: ResumePrompt,
    has_waited: bool,
    mut out: StepBuilder,
) -> Step {
    let Calling { run, size, stage, .. } = state;
    match (stage, prompt) {
        (CallingStage::Checking { answer, .. }, ResumePrompt::Continue) if !has_waited => {
            return Calling::check(run, out, size, answer);
        }
        (CallingStage::Checking { .. }, ResumePrompt::Continue) => {
            out.append(instructions::continue_run());
        }
        (CallingStage::Checking { .. } | CallingStage::Requesting(_), _) => {}
    }
    Preparing::enter(run, out)
}

/// Starts the calls that had not started. Calls that were running get their recovered result, or run again without one.
fn resume_executing(mut state: Executing, recovered: &[RecoveredCall], out: StepBuilder) -> Step {
    for call in &mut state.calls {
        let answer = recovered.iter().find(|recovered| recovered.call == call.call.id);
        call.state = match (std::mem::replace(&mut call.state, CallState::Queued), answer) {
            (CallState::Completed(result), _) => CallState::Completed(result),
            (CallState::Running { .. }, Some(recovered)) => {
                let result = recovered.result.clone();
                CallState::Completed(ToolResult { call: call.call.id.clone(), ..result })
            }
            (CallState::Queued | CallState::Authorizing { .. } | CallState::Running { .. }, _) => {
                CallState::Queued
            }
        };
    }
    state.start_calls(out)
}

/// Resumes a closing run. There is only one closing call, even across a crash: if it was sent, the run is over. If the
/// user has sent a message, or allows more steps to a run that had used all of its steps, the run continues.
fn resume_closing(state: Closing, prompt: ResumePrompt, out: StepBuilder) -> Step {
    let Closing { run, reason, stage, .. } = state;
    match (prompt, stage) {
        (ResumePrompt::FromUser, _) => restart(run, out, prompt),
        (ResumePrompt::Continue, ClosingStage::Sending { .. }) => {
            Done::end(run, out, StopReason::Closed(reason))
        }
        (ResumePrompt::Continue, ClosingStage::Preparing { .. })
            if reason == CloseReason::MaxSteps && run.has_steps_left() =>
        {
            restart(run, out, prompt)
        }
        (ResumePrompt::Continue, ClosingStage::Preparing { .. }) => {
            Closing::prepare(run, out, reason)
        }
    }
}

/// Continues a run that had ended. Its usage stays; its repetitions and streaks are reset.
fn restart(mut run: Box<RunContext>, mut out: StepBuilder, prompt: ResumePrompt) -> Step {
    run.streaks = Streaks::default();
    run.repetition = TurnRepetition::default();
    run.partial_answer = None;
    if prompt == ResumePrompt::Continue {
        out.append(instructions::continue_run());
    }
    Preparing::enter(run, out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Authorization, CallIntent, Event, RequestSize, start, step};
    use crate::machine::{CallPurpose, Effect, StartedCommand, StateKind};
    use crate::types::{
        CallAccess, ConversationItem, EffectId, MessageOrigin, ModelRules, Reply, ReplyFinish,
        ReplyPart, RetryBackoff, TimeSpan, Tokens, ToolCall, ToolStatus, Usage,
    };

    fn rules(retries: u32) -> RunRules {
        let backoff = RetryBackoff { retries, ..RetryBackoff::default() };
        let mut rules = RunRules { backoff, ..RunRules::default() };
        (rules.context.window, rules.context.summarize_after) = (Tokens(100), 1);
        rules.context.keep_recent = 1;
        rules
    }

    /// Returns the state in which the first call of a context of this size was prepared.
    fn prepared(retries: u32, context: u64) -> State {
        let state =
            start(rules(retries), ConversationItem::user(MessageOrigin::Task, "task")).state;
        let size = RequestSize {
            estimate: Tokens(context),
            upper_bound: Tokens(context),
            exchanges: 3,
            ..RequestSize::default()
        };
        step(state, Event::Prepared { id: EffectId(1), size, messages: [].into() }).state
    }

    fn resumed(state: State, retries: u32) -> Step {
        let (rules, recovered, prompt) = (rules(retries), vec![], ResumePrompt::Continue);
        resume(
            state,
            RunTime::START,
            Resumption { rules, recovered, prompt, received: Tokens::ZERO },
        )
    }

    #[test]
    fn a_summary_is_requested_again_while_there_are_attempts() {
        let next = resumed(prepared(1, 80), 1);
        let [Effect::CallModel { purpose: CallPurpose::Compaction, attempt: 2, .. }] =
            next.effects[..]
        else {
            panic!("{:?}", next.effects)
        };
        // The provider has probably read the request.
        assert_eq!(next.state.run().used.tokens, Tokens(80));
        let next = resumed(next.state, 1);
        assert!(matches!(next.state, State::Preparing(_)), "{:?}", next.state);
        assert_eq!(next.state.run().used.tokens, Tokens(160));
    }

    #[test]
    fn a_run_that_closes_continues_if_it_may_take_more_steps() {
        let closing = |reason| {
            let mut run = RunContext::new(rules(0));
            run.steps = 5;
            Closing::enter(run, StepBuilder::default(), reason).state
        };
        let resumed = |reason, most| {
            let mut rules = rules(0);
            rules.limits.max_steps = most;
            let (recovered, prompt, received) = (vec![], ResumePrompt::Continue, Tokens::ZERO);
            let resumption = Resumption { rules, recovered, prompt, received };
            resume(closing(reason), RunTime::START, resumption).state.kind()
        };
        assert_eq!(resumed(CloseReason::MaxSteps, 6), StateKind::Preparing);
        assert_eq!(resumed(CloseReason::MaxSteps, 5), StateKind::ClosingPreparing);
        assert_eq!(resumed(CloseReason::Timeout, 6), StateKind::ClosingPreparing);
    }

    #[test]
    fn a_call_that_ran_gets_its_recovered_result() {
        let call = |id: &str| ReplyPart::Call(ToolCall::new(id.into(), "tool", "{}"));
        let (parts, finish) = ([call("a"), call("b")].into(), ReplyFinish::ToolCalls);
        let reply = Reply { parts, finish, usage: Usage::default(), model: None };
        let mut state = prepared(1, 10);
        let access = [CallAccess::read("a"), CallAccess::read("b")].into();
        state = step(state, Event::Replied { id: EffectId(2), reply, access }).state;
        for id in [3, 4].map(EffectId) {
            let (limit, intent) = (TimeSpan::from_secs(1), CallIntent::Opaque);
            let authorization =
                Authorization::Approved { timeout: limit, intent, reason: "".into() };
            state = step(state, Event::Authorized { id, authorization }).state;
        }
        let result = ToolResult::new("b".into(), ToolStatus::InDoubt, "unknown");
        let recovered = vec![RecoveredCall { call: "b".into(), result: result.clone() }];
        let (rules, prompt) = (rules(1), ResumePrompt::Continue);
        let next = resume(
            state,
            RunTime::START,
            Resumption { rules, recovered, prompt, received: Tokens::ZERO },
        );
        let State::Executing(state) = next.state else { panic!("not executing") };
        let slots: Vec<_> = state.calls.into_iter().map(|call| call.state).collect();
        // The other call may run again, and is authorized again.
        assert!(
            matches!(&slots[..], [CallState::Authorizing { .. }, CallState::Completed(recovered)] if *recovered == result)
        );
    }

    #[test]
    fn a_resumed_run_has_new_rules_and_a_new_start_time() {
        let (rules, recovered, prompt) = (rules(7), vec![], ResumePrompt::Continue);
        let resumption =
            Resumption { rules: rules.clone(), recovered, prompt, received: Tokens::ZERO };
        for state in [
            start(RunRules::default(), ConversationItem::user(MessageOrigin::Task, "task")).state,
            prepared(1, 10),
            prepared(1, 80),
        ] {
            let now = RunTime::START.after(TimeSpan::from_secs(9));
            let next = resume(state.clone(), now, resumption.clone());
            let run = next.state.run();
            assert_eq!((&*run.rules, run.now, run.started_at), (&rules, now, now));
            // A clock that is behind doesn't turn time back.
            let mut later = next.state;
            later = resume(later, RunTime::START, resumption.clone()).state;
            assert_eq!(later.run().now, now);
        }
    }

    #[test]
    fn a_run_is_resumed_with_the_model_that_it_called_unless_another_one_is_chosen() {
        let rules = |names: &[&str]| {
            let model = |name: &&str| ModelRules {
                name: (*name).into(),
                price: None,
                window: Tokens(name.len() as u64),
                model_limit: Tokens(1),
            };
            RunRules { models: names.iter().map(model).collect(), ..RunRules::default() }
        };
        let resumed = |names: &[&str]| {
            let task = ConversationItem::user(MessageOrigin::Task, "task");
            let mut state = start(rules(&["a", "bbb", "cc"]), task).state;
            state.run_mut().change_model(1);
            let (rules, recovered, prompt) = (rules(names), vec![], ResumePrompt::Continue);
            let next = resume(
                state,
                RunTime::START,
                Resumption { rules, recovered, prompt, received: Tokens::ZERO },
            );
            let run = next.state.run();
            (run.model, run.rules.context.window)
        };
        assert_eq!(resumed(&["a", "bbb", "cc"]), (1, Tokens(3)));
        assert_eq!(resumed(&["a", "cc", "bbb"]), (2, Tokens(3)));
        let initial = (0, RunRules::default().context.window);
        assert_eq!(resumed(&["other", "bbb"]), initial);
        assert_eq!(resumed(&["a", "cc"]), initial);
        assert_eq!(resumed(&[]), initial);
    }

    /// If the command that an answer had to wait for is lost, the answer is not simply checked again.
    #[test]
    fn the_check_of_an_answer_begins_again_unless_the_user_has_a_message() {
        let mut state = prepared(1, 10);
        Arc::make_mut(&mut state.run_mut().rules).has_checks = true;
        let reply = Reply::text_only("done", ReplyFinish::Stop, Usage::default());
        let event = Event::Replied { id: EffectId(2), reply, access: [].into() };
        let checking = step(state, event).state;
        let resumed = |state: &State, prompt| {
            let (rules, recovered, received) = (rules(1), vec![], Tokens::ZERO);
            let resumption = Resumption { rules, recovered, prompt, received };
            let next = resume(state.clone(), RunTime::START, resumption);
            (next.state.kind(), next.changes.len())
        };
        let again = (StateKind::CallingChecking, 0);
        assert_eq!(resumed(&checking, ResumePrompt::Continue), again);
        assert_eq!(resumed(&checking, ResumePrompt::FromUser), (StateKind::Preparing, 0));
        let mut waiting = checking;
        let (id, call, command) = (EffectId(9), "c".into(), "serve".into());
        let command = StartedCommand { id, call, command, is_needed: true };
        waiting.run_mut().commands.push(command);
        // The message says that the run continues.
        assert_eq!(resumed(&waiting, ResumePrompt::Continue), (StateKind::Preparing, 1));
    }
}
