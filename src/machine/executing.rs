//! Executing: the tool calls of a reply are judged, run and answered, each exactly once.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::allowance::Allowance;
use super::closing::Closing;
use super::deadline::{Deadline, Deadlines, Why};
use super::done::Done;
use super::effect::{Change, Effect, Note};
use super::event::{Event, Intent, Verdict};
use super::instructions;
use super::next::{Next, Out};
use super::order::{self, Progress, Waiting};
use super::preparing::Preparing;
use super::repeats::Repeats;
use super::run::{Run, Spent};
use super::state::State;
use super::stop::{CloseReason, StopReason};
use crate::model::{
    Access, Arguments, EffectId, Exchange, Item, Reply, Rules, Signal, Time, ToolCall, ToolResult,
    ToolStatus,
};

/// The tool calls of a reply are under way. At least one of them is not answered.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Executing {
    /// The account of the run.
    pub run: Run,
    /// The reply whose calls are answered.
    pub reply: Reply,
    /// Its calls, in call order.
    pub calls: Vec<OpenCall>,
}

/// One tool call of the reply.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct OpenCall {
    /// The call.
    pub call: ToolCall,
    /// What it touches.
    pub access: Access,
    /// How far it has come.
    pub slot: Slot,
}

/// How far a tool call has come.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Slot {
    /// Its turn has not come.
    Queued,
    /// It is being judged.
    Vetting {
        /// The judgement that is awaited.
        id: EffectId,
        /// When it is given up.
        due: Time,
    },
    /// It runs.
    Running {
        /// The tool that is awaited.
        id: EffectId,
        /// When it is given up.
        due: Time,
        /// What it may still use, when it makes model calls of its own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        left: Option<Allowance>,
    },
    /// It is answered.
    Settled(ToolResult),
}

impl Slot {
    /// Returns the effect that is awaited.
    pub(super) fn awaited(&self) -> Option<EffectId> {
        match self {
            Self::Queued | Self::Settled(_) => None,
            Self::Vetting { id, .. } | Self::Running { id, .. } => Some(*id),
        }
    }

    /// Returns the answer, if there is one.
    pub(super) fn answer(&self) -> Option<&ToolResult> {
        match self {
            Self::Queued | Self::Vetting { .. } | Self::Running { .. } => None,
            Self::Settled(result) => Some(result),
        }
    }

    fn due(&self) -> Option<Time> {
        match self {
            Self::Queued | Self::Settled(_) => None,
            Self::Vetting { due, .. } | Self::Running { due, .. } => Some(*due),
        }
    }

    /// Returns what is set aside for the call.
    fn left(&self) -> Option<Allowance> {
        match self {
            Self::Running { left, .. } => *left,
            Self::Queued | Self::Vetting { .. } | Self::Settled(_) => None,
        }
    }
}

impl Waiting for OpenCall {
    fn access(&self) -> &Access {
        &self.access
    }

    fn progress(&self) -> Progress {
        match self.slot {
            Slot::Queued => Progress::Queued,
            Slot::Vetting { .. } | Slot::Running { .. } => Progress::Open,
            Slot::Settled(_) => Progress::Settled,
        }
    }
}

impl OpenCall {
    fn settle(&mut self, status: ToolStatus, text: impl Into<Arc<str>>) {
        self.slot = Slot::Settled(ToolResult::new(self.call.id.clone(), status, text));
    }

    /// Settles a call that will not be waited for, by how far it had come.
    fn abandon(&mut self, out: &mut Out) {
        if let Some(id) = self.slot.awaited() {
            out.effect(Effect::Cancel { id });
        }
        match self.slot {
            Slot::Queued | Slot::Vetting { .. } => {
                self.settle(ToolStatus::Skipped, instructions::SKIPPED);
            }
            Slot::Running { .. } => self.settle(ToolStatus::Interrupted, instructions::INTERRUPTED),
            Slot::Settled(_) => {}
        }
    }
}

/// Returns the calls of a reply, before any of them has run; those that will not run are answered.
pub(super) fn open(rules: &Rules, reply: &Reply, access: &[Access]) -> Vec<OpenCall> {
    let allowed = rules.bounds.calls;
    let open = |(index, call): (usize, &ToolCall)| {
        let access = access.get(index).cloned().unwrap_or(Access::Exclusive);
        let mut open = OpenCall { call: call.clone(), access, slot: Slot::Queued };
        if index >= allowed as usize {
            open.settle(ToolStatus::Skipped, instructions::too_many_calls(allowed));
        } else if matches!(open.call.arguments, Arguments::Cut { .. }) {
            open.settle(ToolStatus::Cut, instructions::CUT);
        }
        open
    };
    reply.calls().enumerate().map(open).collect()
}

/// Returns whether the call that this effect belongs to is the last one that is not answered.
pub(super) fn is_last(state: &Executing, id: EffectId) -> bool {
    let open = |call: &&OpenCall| !matches!(call.slot, Slot::Settled(_));
    state.calls.iter().filter(open).all(|call| call.slot.awaited() == Some(id))
}

/// Returns whether the model asked, reply after reply, for what cannot be run, should the calls be answered like this.
pub(super) fn too_many_invalid(run: &Run, statuses: impl Iterator<Item = ToolStatus>) -> bool {
    all_invalid(statuses) && run.streaks.invalid + 1 >= run.rules.bounds.invalid
}

fn all_invalid(mut statuses: impl Iterator<Item = ToolStatus>) -> bool {
    statuses.all(ToolStatus::is_invalid)
}

impl Executing {
    /// Starts the calls whose turn it is.
    pub(super) fn enter(mut run: Run, out: Out, reply: Reply, access: &[Access]) -> Next {
        run.steps += 1;
        let calls = open(&run.rules, &reply, access);
        Self { run, reply, calls }.proceed(out)
    }

    pub(super) fn deadlines(&self) -> Deadlines<2> {
        let dues = self.calls.iter().filter_map(|call| call.slot.due());
        let tool = dues.min().map(|at| Deadline { at, why: Why::ToolLimit });
        Deadlines([tool, self.run.closes()])
    }

    /// Returns whether this judgement is awaited.
    pub(super) fn vets(&self, id: EffectId) -> bool {
        self.calls
            .iter()
            .any(|call| matches!(call.slot, Slot::Vetting { id: open, .. } if open == id))
    }

    /// Returns whether this tool is awaited.
    pub(super) fn runs(&self, id: EffectId) -> bool {
        self.calls
            .iter()
            .any(|call| matches!(call.slot, Slot::Running { id: open, .. } if open == id))
    }

    /// Returns what this call may still use, when it runs and makes model calls of its own.
    pub(super) fn allowance(&self, id: EffectId) -> Option<Allowance> {
        let call = self.calls.iter().find(|call| call.slot.awaited() == Some(id));
        call.and_then(|call| call.slot.left())
    }

    pub(super) fn step(self, event: Event) -> Next {
        match event {
            Event::Tick { now } => self.tick(now),
            Event::Interrupt { signal } => self.interrupt(signal),
            Event::StoreFailed { error } => {
                let (run, out) = self.leave();
                Done::fail(run, out, StopReason::StoreError, error)
            }
            Event::Defect { error } => {
                let (run, out) = self.leave();
                Done::fail(run, out, StopReason::InternalError, error)
            }
            Event::Vetted { id, verdict } => self.vetted(id, verdict),
            Event::Settled { id, result } => self.settled(id, result),
            Event::Charged { id, usage, cost } => {
                self.charged(id, Spent { cost, tokens: usage.total() })
            }
            Event::Prepared { .. }
            | Event::Replied { .. }
            | Event::Failed { .. }
            | Event::Checked { .. } => Out::default().to(State::Executing(self)),
        }
    }

    fn interrupt(self, signal: Signal) -> Next {
        let (run, out) = self.leave();
        Done::end(run, out, StopReason::UserInterrupt(signal))
    }

    fn tick(mut self, now: Time) -> Next {
        self.run.now = self.run.now.max(now);
        match self.deadlines().due(self.run.now) {
            Some(Why::RunLimit) => {
                let (run, out) = self.leave();
                Closing::enter(run, out, CloseReason::Timeout)
            }
            Some(
                Why::ToolLimit
                | Why::StepLimit
                | Why::CloseLimit
                | Why::AttemptLimit
                | Why::RetryDue
                | Why::WatchLimit,
            ) => self.overdue(),
            None => Out::default().to(State::Executing(self)),
        }
    }

    /// Goes on without the calls that did not come back in their time.
    fn overdue(mut self) -> Next {
        let mut out = Out::default();
        let now = self.run.now;
        for call in &mut self.calls {
            if call.slot.due().is_some_and(|due| due <= now) {
                if let Some(id) = call.slot.awaited() {
                    out.effect(Effect::Cancel { id });
                }
                match call.slot {
                    Slot::Vetting { .. } => call.settle(ToolStatus::Denied, instructions::UNJUDGED),
                    Slot::Running { .. } => {
                        call.settle(ToolStatus::Abandoned, instructions::ABANDONED);
                    }
                    Slot::Queued | Slot::Settled(_) => {}
                }
            }
        }
        self.proceed(out)
    }

    fn vetted(mut self, id: EffectId, verdict: Verdict) -> Next {
        let mut out = Out::default();
        let now = self.run.now;
        let allowance = self.allow(&verdict);
        let Some(call) = self.calls.iter_mut().find(|call| call.slot.awaited() == Some(id)) else {
            return out.to(State::Executing(self));
        };
        match verdict {
            Verdict::Cleared { limit, .. } => {
                let id = self.run.next.take();
                let called = call.call.clone();
                out.effect(Effect::Run { id, call: called, allowance: allowance.map(Box::new) });
                call.slot = Slot::Running { id, due: now.after(limit), left: allowance };
                out.to(State::Executing(self))
            }
            Verdict::Refused { result } => {
                call.slot = Slot::Settled(ToolResult { call: call.call.id.clone(), ..result });
                self.proceed(out)
            }
            Verdict::Abort => {
                // The judgement has come back; it is not to be cancelled with the others.
                call.slot = Slot::Queued;
                self.interrupt(Signal::Interrupt)
            }
        }
    }

    /// Returns what is set aside for a call, when it is one that makes model calls of its own.
    fn allow(&self, verdict: &Verdict) -> Option<Allowance> {
        match verdict {
            Verdict::Cleared { intent: Intent::Delegated { .. }, .. } => {
                let others = self.calls.iter().filter_map(|call| call.slot.left());
                Some(Allowance::of(&self.run, others))
            }
            Verdict::Cleared {
                intent: Intent::Pure | Intent::Edit { .. } | Intent::Opaque,
                ..
            }
            | Verdict::Refused { .. }
            | Verdict::Abort => None,
        }
    }

    /// Takes what a call has used out of what is set aside for it.
    fn charged(mut self, id: EffectId, spent: Spent) -> Next {
        let mut out = Out::default();
        for call in &mut self.calls {
            if let Slot::Running { id: open, left: Some(left), .. } = &mut call.slot
                && *open == id
            {
                *left = left.after(spent);
            }
        }
        self.run.spend(spent, &mut out);
        out.to(State::Executing(self))
    }

    fn settled(mut self, id: EffectId, result: ToolResult) -> Next {
        let out = Out::default();
        let Some(call) = self.calls.iter_mut().find(|call| call.slot.awaited() == Some(id)) else {
            return out.to(State::Executing(self));
        };
        // The answer belongs to the call that was run, whatever id the tool put on it.
        call.slot = Slot::Settled(ToolResult { call: call.call.id.clone(), ..result });
        self.proceed(out)
    }

    /// Starts the calls whose turn has come; goes on with the model when all are answered.
    pub(super) fn proceed(mut self, mut out: Out) -> Next {
        let due = self.run.now.after(self.run.rules.watch.vet);
        let parallel = self.run.rules.bounds.parallel;
        while let Some(index) = order::next(&self.calls, parallel) {
            let id = self.run.next.take();
            let call = &mut self.calls[index];
            out.effect(Effect::Vet { id, call: call.call.clone() });
            call.slot = Slot::Vetting { id, due };
        }
        if self.calls.iter().all(|call| matches!(call.slot, Slot::Settled(_))) {
            self.answered(out)
        } else {
            out.to(State::Executing(self))
        }
    }

    fn answered(self, mut out: Out) -> Next {
        let invalid = all_invalid(self.results().map(|result| result.status));
        let hopeless = too_many_invalid(&self.run, self.results().map(|result| result.status));
        let pairs = self.calls.iter().map(|call| &call.call).zip(self.results());
        let turn = Repeats::signature(pairs);
        let denied = self.results().filter(|result| result.status == ToolStatus::Denied).count();
        let mut run = self.close(&mut out);
        if run.rules.fail_on_denied {
            run.denied = run.denied.saturating_add(u32::try_from(denied).unwrap_or(u32::MAX));
        }
        run.streaks.invalid = if invalid { run.streaks.invalid + 1 } else { 0 };
        run.repeats.push(turn);
        let times = run.repeats.times();
        if times >= run.rules.loops.warn {
            out.note(Note::LoopDetected { times });
        }
        if times == run.rules.loops.warn {
            out.change(Change::Append { item: instructions::repeating(times) });
        }
        if hopeless {
            Done::end(run, out, StopReason::InvalidToolCalls)
        } else {
            Preparing::enter(run, out)
        }
    }

    /// Settles every call that is open, and stops what runs.
    fn leave(mut self) -> (Run, Out) {
        let mut out = Out::default();
        self.calls.iter_mut().for_each(|call| call.abandon(&mut out));
        let run = self.close(&mut out);
        (run, out)
    }

    /// Moves the reply and its answers into the conversation.
    fn close(self, out: &mut Out) -> Run {
        let results: Vec<ToolResult> = self
            .calls
            .into_iter()
            .filter_map(|call| match call.slot {
                Slot::Settled(result) => Some(result),
                Slot::Queued | Slot::Vetting { .. } | Slot::Running { .. } => None,
            })
            .collect();
        match Exchange::new(self.reply, results) {
            Ok(exchange) => out.change(Change::Append { item: Item::Exchange(exchange) }),
            Err(error) => debug_assert!(false, "{error}"),
        }
        self.run
    }

    fn results(&self) -> impl Iterator<Item = &ToolResult> {
        self.calls.iter().filter_map(|call| call.slot.answer())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::step;
    use crate::model::{Finish, Limits, LoopRules, Micros, Part, Span, Tokens, Usage};

    /// A run whose reply has this many calls, which may run at the same time.
    fn calls(rules: Rules, count: u32) -> State {
        let call = |index: u32| {
            let id = index.to_string().as_str().into();
            Part::Call(ToolCall::new(id, "tool", "{}"))
        };
        let (finish, usage) = (Finish::ToolCalls, Usage::default());
        let reply = Reply { parts: (0..count).map(call).collect(), finish, usage, model: None };
        let access = vec![Access::read("a"); count as usize];
        Executing::enter(Run::new(rules), Out::default(), reply, &access).state
    }

    fn cleared(state: State, id: u64, intent: Intent) -> State {
        let verdict = Verdict::Cleared { limit: Span(50), intent, grounds: "".into() };
        step(state, Event::Vetted { id: EffectId(id), verdict }).state
    }

    fn slots(state: &State) -> Vec<Slot> {
        let State::Executing(state) = state else { panic!("not executing") };
        state.calls.iter().map(|call| call.slot.clone()).collect()
    }

    fn answer(status: ToolStatus) -> ToolResult {
        ToolResult::new("another".into(), status, "it")
    }

    #[test]
    fn what_a_run_within_the_run_has_used_is_taken_out_of_its_own_allowance() {
        let limits = Limits { max_tokens: Some(Tokens(1_000)), ..Limits::default() };
        let mut state = calls(Rules { limits, ..Rules::default() }, 3);
        let delegated = || Intent::Delegated { session: None };
        // The effects 1 to 3 judge the calls, and 4 to 6 run them.
        for (id, intent) in [(1, Intent::Opaque), (2, delegated()), (3, delegated())] {
            state = cleared(state, id, intent);
        }
        let left = |state: &State| {
            slots(state).iter().map(|slot| Some(slot.left()?.tokens?.0)).collect::<Vec<_>>()
        };
        assert_eq!(left(&state), [None, Some(400), Some(200)]);
        let charged = |id| {
            let usage = Usage { input: Tokens(7), output: Tokens(3), ..Usage::default() };
            Event::Charged { id: EffectId(id), usage, cost: Micros(1) }
        };
        let awaited = [4, 5, 6].map(|id| state.awaits(&charged(id)));
        assert_eq!(awaited, [false, true, true]);
        let state = step(state, charged(5)).state;
        assert_eq!(left(&state), [None, Some(390), Some(200)]);
        assert_eq!(state.run().spent.tokens, Tokens(10));
    }

    #[test]
    fn a_reply_has_as_many_calls_as_allowed() {
        let mut rules = Rules::default();
        rules.bounds.calls = 2;
        let settled =
            slots(&calls(rules, 3)).iter().map(|slot| slot.answer().cloned()).collect::<Vec<_>>();
        let [None, None, Some(skipped)] = &settled[..] else { panic!("{settled:?}") };
        assert_eq!(skipped.status, ToolStatus::Skipped);
        assert!(skipped.text.contains("at most 2 tool calls"), "{}", skipped.text);
    }

    #[test]
    fn an_answer_belongs_to_its_call_whatever_id_it_bears() {
        let state = cleared(calls(Rules::default(), 3), 1, Intent::Opaque);
        let result = answer(ToolStatus::Ok);
        let state = step(state, Event::Settled { id: EffectId(4), result }).state;
        let verdict = Verdict::Refused { result: answer(ToolStatus::Denied) };
        let state = step(state, Event::Vetted { id: EffectId(3), verdict }).state;
        let ids = slots(&state)
            .iter()
            .map(|slot| slot.answer().map(|result| result.call.to_string()))
            .collect::<Vec<_>>();
        assert_eq!(ids, [Some("0".to_owned()), None, Some("2".to_owned())]);
    }

    #[test]
    fn what_does_not_come_back_is_answered_by_how_far_it_had_come() {
        let mut rules = Rules::default();
        rules.watch.vet = Span(50);
        let state = cleared(calls(rules, 2), 1, Intent::Opaque);
        let next = step(state, Event::Tick { now: Time(50) });
        let [Change::Append { item: Item::Exchange(exchange) }] = &next.changes[..] else {
            panic!("{:?}", next.changes)
        };
        let statuses: Vec<_> = exchange.results().iter().map(|result| result.status).collect();
        assert_eq!(statuses, [ToolStatus::Abandoned, ToolStatus::Denied]);
        let cancelled = [3, 2].map(|id| Effect::Cancel { id: EffectId(id) });
        assert_eq!(next.effects[..2], cancelled);
    }

    /// The model is told once; the user hears of each.
    #[test]
    fn repeated_turns_are_told() {
        let mut run = Run::new(Rules { loops: LoopRules { warn: 2, end: 9 }, ..Rules::default() });
        for (notes, changes) in [(0, 1), (1, 2), (1, 1)] {
            let State::Executing(mut state) = calls(Rules::default(), 1) else { unreachable!() };
            state.run = run;
            let verdict = Verdict::Refused { result: answer(ToolStatus::Denied) };
            let id = EffectId(1);
            let next = step(State::Executing(state), Event::Vetted { id, verdict });
            assert_eq!((next.notes.len(), next.changes.len()), (notes, changes));
            run = next.state.run().clone();
        }
    }
}
