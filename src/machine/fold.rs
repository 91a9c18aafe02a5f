//! The state and the conversation that a list of events folds to.
//!
//! A live run, a resume, a replay and a test all go through [`Fold::accept`]; there is no second way to get from an
//! event to a state.

use std::borrow::Cow;

use super::closing;
use super::context;
use super::conversation::{Conversation, Entry};
use super::deadline::Deadline;
use super::effect::{Effect, Note, Purpose};
use super::event::{Event, EventKind, Facts};
use super::instructions;
use super::next::Next;
use super::resume::{self, Resumption};
use super::state::{self, State, StateKind};
use crate::model::{Item, Rules, Time, Tokens, UserMessage};

/// The state and the conversation that the events so far fold to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Fold {
    /// Control: where the run stands.
    pub state: State,
    /// Content: what the model sees.
    pub conversation: Conversation,
}

/// What follows from an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcomes {
    /// What is to be done, in this order.
    pub effects: Vec<Effect>,
    /// What is to be shown.
    pub notes: Vec<Note>,
    /// The states that were left and entered.
    pub moves: Vec<Move>,
}

/// A change from one state to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// The state that was left.
    pub from: StateKind,
    /// What led out of it.
    pub event: EventKind,
    /// The state that was entered.
    pub to: StateKind,
}

/// What a model call sends of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// The entries, oldest first.
    pub entries: Cow<'a, [Entry]>,
    /// What the model is told behind them.
    pub instruction: Option<String>,
    /// How large it all probably is, with the system prompt and, where they go along, the tools.
    pub size: Tokens,
}

/// The most bytes that the frame of a message takes.
const FRAME: u64 = 64;

impl Fold {
    /// Begins a run with a conversation that may have a history already.
    pub fn start(rules: Rules, mut conversation: Conversation, task: Item) -> (Self, Outcomes) {
        let Next { state, changes, effects, notes } = state::start(rules, task);
        for change in changes {
            conversation.apply(change);
        }
        (Self { state, conversation }, Outcomes { effects, notes, moves: Vec::new() })
    }

    /// Goes on at this time from where the fold stands.
    pub fn resume(self, at: Time, resumption: Resumption) -> (Self, Outcomes) {
        let Self { state, mut conversation } = self;
        let Next { state, changes, effects, notes } = resume::resume(state, at, resumption);
        for change in changes {
            conversation.apply(change);
        }
        (Self { state, conversation }, Outcomes { effects, notes, moves: Vec::new() })
    }

    /// Takes an event in that happened at this time: first the deadlines that have passed by then, then the event.
    pub fn accept(self, at: Time, event: Event) -> (Self, Outcomes) {
        let mut fold = self;
        let mut outcomes = Outcomes::default();
        while fold.state.run().now < at || fold.deadline().is_some_and(|due| due.at <= at) {
            if matches!(fold.state, State::Done(_)) {
                break;
            }
            fold = fold.step(Event::Tick { now: at }, &mut outcomes);
        }
        if !matches!(event, Event::Tick { .. }) {
            fold = fold.step(event, &mut outcomes);
        }
        (fold, outcomes)
    }

    /// Returns when the fold wants to be told the time although nothing happened.
    pub fn deadline(&self) -> Option<Deadline> {
        state::deadline(&self.state)
    }

    /// Returns what the next model call would be like, with these messages before it and a system prompt of this many
    /// bytes.
    pub fn facts(&self, messages: &[UserMessage], system: u64) -> Facts {
        let facts = self.conversation.facts();
        let more: u64 = messages.iter().map(|message| message.text.len() as u64 + FRAME).sum();
        let facts = Facts {
            context: facts.context + self.conversation.gauge().tokens(more),
            bound: facts.bound + Tokens(more),
            ..facts
        };
        match &self.state {
            State::Closing(state) => {
                closing::shortened(&state.run, &self.conversation, system, facts)
            }
            State::Preparing(_)
            | State::Compacting(_)
            | State::Calling(_)
            | State::Executing(_)
            | State::Done(_) => facts,
        }
    }

    /// Returns what a model call for this purpose sends beside a system prompt of this many bytes.
    pub fn request(&self, purpose: Purpose, system: u64) -> Request<'_> {
        let Self { state, conversation } = self;
        let rules = &state.run().rules.context;
        match purpose {
            Purpose::Agent => Request {
                entries: Cow::Borrowed(conversation.entries()),
                instruction: None,
                size: conversation.gauge().estimate(),
            },
            Purpose::Compaction => {
                let instruction = self.how_to_sum_up();
                let beside = system + context::instruction_bytes(&instruction);
                let (entries, bytes) = conversation.fitted(self.to_sum_up(), beside, rules);
                let size = conversation.gauge().measure(bytes);
                Request { entries, instruction: Some(instruction), size }
            }
            Purpose::Closing => {
                let (entries, bytes) = conversation.fitted(conversation.entries(), system, rules);
                let size = conversation.gauge().measure(bytes);
                Request { entries, instruction: None, size }
            }
        }
    }

    /// Returns the entries that the model is asked to sum up; none unless it is.
    pub fn to_sum_up(&self) -> &[Entry] {
        match &self.state {
            State::Compacting(state) => self.conversation.older(state.keep()),
            State::Preparing(_)
            | State::Calling(_)
            | State::Executing(_)
            | State::Closing(_)
            | State::Done(_) => &[],
        }
    }

    /// Returns what a model is told that sums up: what to write under which headings, and what is known for certain.
    pub fn how_to_sum_up(&self) -> String {
        let records = match &self.state {
            State::Compacting(state) => self.conversation.records(state.keep()),
            State::Preparing(_)
            | State::Calling(_)
            | State::Executing(_)
            | State::Closing(_)
            | State::Done(_) => String::new(),
        };
        instructions::sum_up(&records)
    }

    fn step(self, event: Event, outcomes: &mut Outcomes) -> Self {
        let Self { state, mut conversation } = self;
        let (from, kind) = (state.kind(), event.kind());
        if let Event::Replied { reply, .. } = &event
            && from == StateKind::CallingSending
            && state.awaits(&event)
        {
            conversation.count(&reply.usage);
        }
        let Next { state, changes, effects, notes } = state::step(state, event);
        for change in changes {
            conversation.apply(change);
        }
        outcomes.effects.extend(effects);
        outcomes.notes.extend(notes);
        let to = state.kind();
        if from != to {
            outcomes.moves.push(Move { from, event: kind, to });
        }
        Self { state, conversation }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Change, Facts};
    use crate::model::{
        EffectId, Exchange, FileAction, FileChange, Finish, Origin, Part, Reply, Signal, Tokens,
        ToolCall, ToolResult, ToolStatus, Usage,
    };

    fn reply(text: &str, input: u64) -> Reply {
        let usage = Usage { input: Tokens(input), ..Usage::default() };
        Reply::text_only(text, Finish::Stop, usage)
    }

    /// A conversation with three turns, each of which changed a file.
    fn history() -> Conversation {
        let mut conversation = Conversation::new(0);
        for path in ["old", "newer", "newest"] {
            let call = ToolCall::new("1".into(), "edit_file", "{}");
            let mut result = ToolResult::new("1".into(), ToolStatus::Ok, path);
            let action = FileAction::Modified;
            result.changes.push(FileChange { path: path.into(), action, added: 1, removed: 0 });
            let reply = Reply { parts: [Part::Call(call)].into(), ..reply("", 1) };
            let item = Item::Exchange(Exchange::new(reply, [result]).unwrap());
            conversation.apply(Change::Append { item });
        }
        conversation
    }

    /// Lives until the model is asked.
    fn asked(rules: Rules, context: u64) -> Fold {
        let task = Item::user(Origin::Task, "task");
        let (fold, _) = Fold::start(rules, history(), task);
        let facts = Facts {
            context: Tokens(context),
            bound: Tokens(context),
            exchanges: 3,
            ..Facts::default()
        };
        let event = Event::Prepared { id: EffectId(1), facts, messages: [].into() };
        fold.accept(Time(5), event).0
    }

    /// Lives until the model is asked for a summary of all but the two newest turns.
    fn compacting() -> Fold {
        let mut rules = Rules::default();
        (rules.context.window, rules.context.summarize_after) = (Tokens(100), 2);
        rules.context.keep_recent = 2;
        let fold = asked(rules, 80);
        assert_eq!(fold.state.kind(), StateKind::CompactingSending);
        fold
    }

    fn replied(fold: Fold, id: EffectId) -> (Fold, Outcomes) {
        let event = Event::Replied { id, reply: reply("well", 900), access: [].into() };
        fold.accept(Time(6), event)
    }

    #[test]
    fn what_the_model_has_to_sum_up_is_what_goes_and_it_is_told_what_is_known_of_it() {
        let fold = compacting();
        assert_eq!(fold.to_sum_up(), &fold.conversation.entries()[..1]);
        let told = fold.how_to_sum_up();
        assert!(told.contains("don't repeat them:\n\nFiles that changed: old."), "{told}");
        assert!(!told.contains("new"), "{told}");
        let calling = asked(Rules::default(), 80);
        assert!(calling.to_sum_up().is_empty());
        assert!(!calling.how_to_sum_up().contains("records"));
    }

    #[test]
    fn only_the_size_that_an_awaited_reply_of_the_agent_tells_is_taken_over() {
        let size = |fold: &Fold| fold.conversation.gauge().bound();
        let counted = Tokens(900);
        let calling = asked(Rules::default(), 80);
        let before = size(&calling);
        let (stale, _) = replied(calling.clone(), EffectId(1));
        assert_eq!(size(&stale), before);
        let (answered, _) = replied(calling, EffectId(2));
        assert!(size(&answered) > counted, "{:?}", size(&answered));
        // The request for a summary was another text.
        let (compacted, _) = replied(compacting(), EffectId(2));
        assert!(size(&compacted) < counted, "{:?}", size(&compacted));
    }

    #[test]
    fn only_a_change_of_state_is_a_move() {
        let task = Item::user(Origin::Task, "task");
        let (fold, _) = Fold::start(Rules::default(), Conversation::new(0), task);
        let (fold, outcomes) = fold.accept(Time(5), Event::Tick { now: Time(5) });
        assert_eq!((fold.state.run().now, outcomes.moves), (Time(5), vec![]));
        let (_, outcomes) = fold.accept(Time(5), Event::Interrupt { signal: Signal::Hangup });
        let (from, event, to) = (StateKind::Preparing, EventKind::Interrupt, StateKind::Done);
        assert_eq!(outcomes.moves, [Move { from, event, to }]);
    }
}
