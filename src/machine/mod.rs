//! The machine: the agent loop as an explicit, typed state machine.
//!
//! [`step()`] takes a [`State`] and an [`Event`] and returns a [`Step`]: the next state, the [`Effect`]s to perform and the
//! [`MachineNote`]s to show. It is total and pure: it reads no clock, environment or random source, does no I/O and never
//! panics. Time arrives as an event; [`deadline`](deadline()) returns when the machine needs the next one.
//!
//! Three rules:
//!
//! * **Every effect has an id, its completion carries the same id, and a completion that isn't pending changes nothing.**
//!   Late replies, cancelled calls and timeouts need no further handling.
//! * **Control and content are separate.** A state holds counters, limits and pending effects. The [`Conversation`] is
//!   built from the [`ConversationChange`]s of the steps; its types hold the invariant of every API format: each tool
//!   call has exactly one result, in order, before the next request.
//! * **Every cycle consumes something bounded**: steps, attempts, compactions, continuations, repairs, money or time.
//!   [`rank`](rank()) measures the rest of the run; it falls with each step, so that every run ends.
//!
//! `step.rs` is the transition table, `states` has a file for each of the six states. [`Machine`] is a state with its
//! conversation; live runs, resume and replay all use it. The specification is the statechart `statecharts/run.json`:
//! [`chart`] reads it, and tests compare the code with it in both directions.
//!
#![cfg_attr(doc, doc = include_str!("../../statecharts/overview.svg"))]
//!
//! From every state on, `interrupt`, `store failed` and `defect` lead to `Done`.
//!
//! # A driver
//!
//! A driver performs the effects, and reports each completion as an event. This driver answers itself, without a model:
//!
//! ```
//! use architect::machine::{CheckResult, Conversation, Effect, Event, Machine, State};
//! use architect::types::*;
//!
//! let task = ConversationItem::user(MessageOrigin::Task, "Say hello.");
//! let (mut machine, output) = Machine::start(RunRules::default(), Conversation::new(0), task);
//! let mut effects = output.effects;
//! let mut now = RunTime::START; // of a real driver: of its clock
//! while let Some(effect) = effects.pop() {
//!     let event = match effect {
//!         Effect::Prepare { id, .. } => {
//!             Event::Prepared { id, size: machine.request_size(&[], 0), messages: [].into() }
//!         }
//!         Effect::CallModel { id, .. } => {
//!             let reply = Reply::text_only("Hello.", ReplyFinish::Stop, Usage::default());
//!             Event::Replied { id, reply, access: [].into() }
//!         }
//!         Effect::CheckAnswer { id, .. } => Event::Checked { id, result: CheckResult::Passed },
//!         _ => continue, // calls of tools; cancellation; the end
//!     };
//!     now = now.after(TimeSpan::from_millis(10));
//!     let (next, output) = machine.handle(now, event); // here a real driver stores the event
//!     machine = next;
//!     effects.extend(output.effects);
//! }
//! let State::Done(done) = &machine.state else { panic!("it waits for an event") };
//! assert_eq!(done.outcome.output.as_deref(), Some("Hello."));
//! ```
//!
//! `examples/manual_machine.rs` has a driver with tools.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

pub mod chart;

mod budget;
mod context;
mod deadline;
mod effect;
mod event;
mod fingerprint;
#[allow(clippy::module_inception)] // named after its type
mod machine;
mod model_calls;
mod output;
mod resume;
mod run_bounds;
mod run_context;
mod state;
mod states;
mod step;
mod stop_reason;
mod termination_rank;
mod tool_calls;

pub use budget::budget_share::BudgetShare;
pub use budget::cost_breakdown::{CostBreakdown, PricedUsage};
pub use budget::least_limits;
pub use budget::model_usage::ModelUsage;
pub use chart::transition_guards::Guard;
pub use context::compaction_history::CompactionHistory;
pub use context::context_usage::ContextUsage;
pub use context::conversation::{Conversation, ConversationEntry, EntryId};
#[cfg(feature = "cli")]
pub(crate) use context::instructions::needed_commands_run;
pub use deadline::{Deadline, DeadlineKind};
pub use effect::{
    CallPurpose, CompactionSummary, ConversationChange, Effect, EffectKind, MachineNote,
    NoFinalSummary,
};
pub use event::{
    Authorization, CallIntent, CheckResult, Event, EventKind, FileDigests, READS_ONLY, RequestSize,
};
pub use fingerprint::Fingerprint;
pub use machine::{Machine, MachineOutput, RequestContent, Transition};
pub use model_calls::attempt::CallAttempt;
pub use output::Step;
pub use resume::{RecoveredCall, ResumePrompt, Resumption, abandon, resume};
pub use run_bounds::RunBounds;
pub use run_context::{BudgetUsage, RunContext, Streaks};
pub use state::{State, StateKind};
pub use states::calling::{Calling, CallingStage};
pub use states::closing::{Closing, ClosingStage};
pub use states::compacting::Compacting;
pub use states::done::{Done, RunOutcome};
pub use states::executing::{CallState, Executing, TrackedCall};
pub use states::preparing::Preparing;
pub use step::{deadline, start, step};
pub use stop_reason::{CloseReason, LlmFailure, RunStatus, StopReason};
pub use termination_rank::{Rank, rank};
pub use tool_calls::loop_detection::TurnRepetition;
pub use tool_calls::started_command::StartedCommand;
