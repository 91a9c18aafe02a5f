//! The machine: a state with its conversation.
//!
//! Live runs, resume, replay and tests all use [`Machine::handle`]; there is no other way from an event to a state.

use std::borrow::Cow;

use crate::machine::context::context_usage::{self, ContentSize};
use crate::machine::context::conversation::{Conversation, ConversationEntry};
use crate::machine::context::instructions;
use crate::machine::deadline::Deadline;
use crate::machine::effect::{CallPurpose, Effect, MachineNote};
use crate::machine::event::{Event, EventKind, RequestSize};
use crate::machine::output::Step;
use crate::machine::resume::{self, Resumption};
use crate::machine::state::{State, StateKind};
use crate::machine::states::closing;
use crate::machine::step;
use crate::types::{ConversationItem, RunRules, RunTime, Tokens, UserMessage};

/// The state and the conversation of a run, as a result of its events.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Machine {
    /// The control state.
    pub state: State,
    /// The conversation with the model.
    pub conversation: Conversation,
}

/// The output of the machine for an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineOutput {
    /// The effects to perform, in this order.
    pub effects: Vec<Effect>,
    /// The notes to show.
    pub notes: Vec<MachineNote>,
    /// The changes of state, in their order.
    pub transitions: Vec<Transition>,
}

/// A change from one state to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    /// The state that was left.
    pub from: StateKind,
    /// The event.
    pub event: EventKind,
    /// The state that was entered.
    pub to: StateKind,
}

/// The content of a request to the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestContent<'a> {
    /// The entries, oldest first.
    pub entries: Cow<'a, [ConversationEntry]>,
    /// An instruction after the entries.
    pub instruction: Option<String>,
    /// The estimated size of the request, with the system prompt and, where they are sent, the tools.
    pub size: Tokens,
    /// The upper bound of that size.
    pub upper_bound: Tokens,
}

/// Returns the bytes of a message that is not yet part of the conversation.
fn message_bytes(message: &UserMessage) -> u64 {
    let images = context_usage::images_size(&message.images).bytes;
    message.text.len() as u64 + images + MESSAGE_FRAME_BYTES
}

/// The upper bound for the frame of a message, in bytes.
const MESSAGE_FRAME_BYTES: u64 = 64;

impl Machine {
    /// Begins a run with a conversation, which may have a history.
    pub fn start(
        rules: RunRules,
        mut conversation: Conversation,
        task: ConversationItem,
    ) -> (Self, MachineOutput) {
        let mut output = MachineOutput::default();
        let state = apply(step::start(rules, task), &mut conversation, &mut output);
        (Self { state, conversation }, output)
    }

    /// Resumes a run at this time.
    pub fn resume(self, at: RunTime, resumption: Resumption) -> (Self, MachineOutput) {
        let (Self { state, mut conversation }, mut output) = (self, MachineOutput::default());
        let step = resume::resume(state, at, resumption);
        let state = apply(step, &mut conversation, &mut output);
        (Self { state, conversation }, output)
    }

    /// Sets the received part of the pending model call's reply. The call is charged for it if the next event cuts it
    /// off.
    pub fn with_received(mut self, received: Tokens) -> Self {
        if !matches!(self.state, State::Done(_)) {
            self.state.run_mut().received = received;
        }
        self
    }

    /// Handles an event at this time: first the deadlines that have passed by then, then the event itself.
    pub fn handle(self, at: RunTime, event: Event) -> (Self, MachineOutput) {
        let mut machine = self;
        let mut output = MachineOutput::default();
        while machine.state.run().now < at || machine.deadline().is_some_and(|due| due.at <= at) {
            if matches!(machine.state, State::Done(_)) {
                break;
            }
            machine = machine.step(Event::Tick { now: at }, &mut output);
        }
        if !matches!(event, Event::Tick { .. }) {
            machine = machine.step(event, &mut output);
        }
        (machine, output)
    }

    /// Returns the time at which the machine needs an [`Event::Tick`] if nothing else happens.
    pub fn deadline(&self) -> Option<Deadline> {
        step::deadline(&self.state)
    }

    /// Returns the size of the next model call, with these messages before it and a system prompt of this many bytes.
    pub fn request_size(&self, messages: &[UserMessage], system: u64) -> RequestSize {
        let size = self.conversation.request_size();
        let more: u64 = messages.iter().map(message_bytes).sum();
        let size = RequestSize {
            estimate: size.estimate + self.conversation.context_usage().estimate_tokens(more),
            upper_bound: size.upper_bound + Tokens(more),
            ..size
        };
        let State::Closing(state) = &self.state else { return size };
        closing::with_shortened_size(&state.run, &self.conversation, system, size)
    }

    /// Returns the content of a request for this purpose, with a system prompt of this many bytes.
    pub fn request_content(&self, purpose: CallPurpose, system: u64) -> RequestContent<'_> {
        let Self { state, conversation } = self;
        let usage = conversation.context_usage();
        if purpose == CallPurpose::Agent {
            let (entries, size) = (Cow::Borrowed(conversation.entries()), usage.estimate());
            let upper_bound = usage.upper_bound();
            return RequestContent { entries, instruction: None, size, upper_bound };
        }
        let instruction = (purpose == CallPurpose::Compaction).then(|| self.summary_instruction());
        let (sent, added) = match &instruction {
            Some(text) => (self.entries_to_summarize(), context_usage::instruction_size(text)),
            None => (conversation.entries(), ContentSize::ZERO),
        };
        let rules = &state.run().rules.context;
        let beside = ContentSize::of_own(system) + added;
        let (entries, sent) = conversation.fit_to_window(sent, beside, rules);
        let size = usage.estimate_request(sent.bytes);
        let upper_bound = sent.most_tokens.min(usage.upper_bound() + added.most_tokens);
        RequestContent { entries, instruction, size, upper_bound }
    }

    /// Returns the entries that the model is asked to summarize; empty if it isn't.
    pub fn entries_to_summarize(&self) -> &[ConversationEntry] {
        let State::Compacting(state) = &self.state else { return &[] };
        self.conversation.entries_to_compact(state.kept_exchanges())
    }

    /// Returns the instruction for a summary: its headings, and the facts that are already recorded.
    pub fn summary_instruction(&self) -> String {
        let State::Compacting(state) = &self.state else {
            return instructions::summarize_history("");
        };
        instructions::summarize_history(&self.conversation.describe_work(state.kept_exchanges()))
    }

    fn step(self, event: Event, output: &mut MachineOutput) -> Self {
        let Self { state, mut conversation } = self;
        let (from, kind) = (state.kind(), event.kind());
        if let Event::Replied { reply, .. } = &event
            && from == StateKind::CallingSending
            && state.awaits(&event)
        {
            conversation.calibrate(&reply.usage);
        }
        let state = apply(step(state, event), &mut conversation, output);
        let to = state.kind();
        if from != to {
            output.transitions.push(Transition { from, event: kind, to });
        }
        Self { state, conversation }
    }
}

/// Applies the changes of a step to the conversation, and collects its output.
fn apply(step: Step, conversation: &mut Conversation, output: &mut MachineOutput) -> State {
    for change in step.changes {
        conversation.apply(change);
    }
    output.effects.extend(step.effects);
    output.notes.extend(step.notes);
    step.state
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{ConversationChange, RequestSize};
    use crate::types::{
        EffectId, FileAction, FileChange, MessageOrigin, Reply, ReplyFinish, ReplyPart, Signal,
        Tokens, ToolCall, ToolExchange, ToolResult, ToolStatus, Usage,
    };

    fn reply(text: &str, input: u64) -> Reply {
        let usage = Usage { input: Tokens(input), ..Usage::default() };
        Reply::text_only(text, ReplyFinish::Stop, usage)
    }

    /// Returns a conversation with three turns, each with a changed file.
    fn history() -> Conversation {
        let mut conversation = Conversation::new(0);
        for path in ["old", "newer", "newest"] {
            let call = ToolCall::new("1".into(), "edit_file", "{}");
            let mut result = ToolResult::new("1".into(), ToolStatus::Ok, path);
            let action = FileAction::Modified;
            result.changes.push(FileChange { path: path.into(), action, added: 1, removed: 0 });
            let reply = Reply { parts: [ReplyPart::Call(call)].into(), ..reply("", 1) };
            let item = ConversationItem::Exchange(ToolExchange::new(reply, [result]).unwrap());
            conversation.apply(ConversationChange::Append { item });
        }
        conversation
    }

    /// Returns a machine that calls the model.
    fn asked(rules: RunRules, context: u64) -> Machine {
        let task = ConversationItem::user(MessageOrigin::Task, "task");
        let (machine, _) = Machine::start(rules, history(), task);
        let size = RequestSize {
            estimate: Tokens(context),
            upper_bound: Tokens(context),
            exchanges: 3,
            ..RequestSize::default()
        };
        let event = Event::Prepared { id: EffectId(1), size, messages: [].into() };
        machine.handle(RunTime(5), event).0
    }

    /// Returns a machine that summarizes all but the two newest turns.
    fn compacting(window: u64) -> Machine {
        let mut rules = RunRules::default();
        (rules.context.window, rules.context.summarize_after) = (Tokens(window), 2);
        rules.context.keep_recent = 2;
        let machine = asked(rules, window - 1);
        assert_eq!(machine.state.kind(), StateKind::CompactingSending);
        machine
    }

    fn replied(machine: Machine, id: EffectId) -> (Machine, MachineOutput) {
        let event = Event::Replied { id, reply: reply("well", 900), access: [].into() };
        machine.handle(RunTime(6), event)
    }

    #[test]
    fn a_summary_covers_the_entries_that_are_replaced_and_names_their_records() {
        let machine = compacting(100);
        assert_eq!(machine.entries_to_summarize(), &machine.conversation.entries()[..1]);
        let instruction = machine.summary_instruction();
        assert!(
            instruction.contains("don't repeat them:\n\nFiles that changed: old."),
            "{instruction}"
        );
        assert!(!instruction.contains("new"), "{instruction}");
        let calling = asked(RunRules::default(), 80);
        assert!(calling.entries_to_summarize().is_empty());
        assert!(!calling.summary_instruction().contains("records"));
    }

    #[test]
    fn only_the_usage_of_an_awaited_reply_of_the_agent_calibrates_the_context() {
        let size = |machine: &Machine| machine.conversation.context_usage().upper_bound();
        let counted = Tokens(900);
        let calling = asked(RunRules::default(), 80);
        let before = size(&calling);
        let (stale, _) = replied(calling.clone(), EffectId(1));
        assert_eq!(size(&stale), before);
        let (answered, _) = replied(calling, EffectId(2));
        assert!(size(&answered) > counted, "{:?}", size(&answered));
        // The request for a summary had other content.
        let (compacted, _) = replied(compacting(100), EffectId(2));
        assert!(size(&compacted) < counted, "{:?}", size(&compacted));
    }

    #[test]
    fn only_a_change_of_state_is_a_transition() {
        let task = ConversationItem::user(MessageOrigin::Task, "task");
        let (machine, _) = Machine::start(RunRules::default(), Conversation::new(0), task);
        let (machine, output) = machine.handle(RunTime(5), Event::Tick { now: RunTime(5) });
        assert_eq!((machine.state.run().now, output.transitions), (RunTime(5), vec![]));
        let (_, output) = machine.handle(RunTime(5), Event::Interrupt { signal: Signal::Hangup });
        let (from, event, to) = (StateKind::Preparing, EventKind::Interrupt, StateKind::Done);
        assert_eq!(output.transitions, [Transition { from, event, to }]);
    }

    #[test]
    fn a_message_adds_its_bytes_to_the_size_of_the_next_call() {
        let machine = asked(RunRules::default(), 80);
        let message = UserMessage::new(MessageOrigin::Steering, "text");
        let sizes = [vec![], vec![message]].map(|messages| machine.request_size(&messages, 0));
        let bytes = 4 + MESSAGE_FRAME_BYTES;
        let estimate = machine.conversation.context_usage().estimate_tokens(bytes);
        let expected = RequestSize {
            estimate: sizes[0].estimate + estimate,
            upper_bound: sizes[0].upper_bound + Tokens(bytes),
            ..sizes[0]
        };
        assert_eq!(sizes[1], expected);
    }

    #[test]
    fn a_request_for_a_summary_has_the_size_of_its_instruction_and_of_what_is_beside_it() {
        let machine = compacting(10_000);
        let [small, large] =
            [0, 1_000].map(|system| machine.request_content(CallPurpose::Compaction, system));
        let entries = small.entries.iter().map(|entry| context_usage::item_size(&entry.item));
        let instruction = context_usage::instruction_size(small.instruction.as_deref().unwrap());
        let sizes = [0, 1_000].map(|system| {
            ContentSize::of_own(system) + instruction + entries.clone().sum::<ContentSize>()
        });
        let usage = machine.conversation.context_usage();
        let estimates = sizes.map(|size| usage.estimate_request(size.bytes));
        assert_eq!([small.size, large.size], estimates);
        // At most the size of the whole conversation and the instruction.
        let whole = usage.upper_bound() + instruction.most_tokens;
        assert_eq!(
            [small.upper_bound, large.upper_bound],
            sizes.map(|size| size.most_tokens.min(whole))
        );
        assert!(instruction.bytes > machine.summary_instruction().len() as u64);
    }
}
