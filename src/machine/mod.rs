//! Floor 1: the machine — the agent loop as an explicit, typed, exhaustively checked state machine.
//!
//! [`step`] leads from a [`State`] and an [`Event`] to the [`Step`] state, with the [`Effect`]s that are to be done and
//! the [`MachineNote`]s that are to be shown. It is total, it owns the state, and it is pure: it reads no clock, no
//! environment and no random source, does no I/O, and never panics. Time arrives as an event; [`deadline`](deadline()) tells when
//! the machine wants to be woken although nothing happened, and why.
//!
//! Three rules carry everything else:
//!
//! * **Every effect has an id; every completion carries it; a completion that is not awaited changes nothing.** So a
//!   late answer, a cancelled call and a timeout need no classification.
//! * **Control and content are apart.** A state holds counters, limits and what is pending. The [`Conversation`] is
//!   folded from the [`Change`]s that the steps name; its types hold the invariant of every wire format: each tool call
//!   is answered exactly once, in order, before the next request.
//! * **Every cycle consumes something bounded**: steps, attempts, compactions, continuations, repairs, money or time.
//!
//! A file for each state: [`Preparing`], [`Compacting`], [`Calling`], [`Executing`], [`Closing`], [`Done`]. What several
//! of them need has a file of its own: the account of the [`Run`], reservation (`budget`, `allowance`), retries (`attempt`,
//! `retry`), the order of tool calls (`order`), loop detection (`repeats`), the size of the context (`context`), and what
//! stands for what was compacted (`ledger`).
//!
//! The specification is the statechart `statecharts/run.json`; [`chart`] reads it, and tests hold the code against it.

pub mod chart;

mod attempt;
mod budget;
mod budget_share;
mod calling;
mod closing;
mod compacting;
mod compaction_history;
mod context_usage;
mod conversation;
mod cost_breakdown;
mod deadline;
mod done;
mod effect;
mod event;
mod executing;
mod fingerprint;
mod guard;
mod instructions;
mod machine;
mod preparing;
mod repeated_results;
mod repetition;
mod resume;
mod retry;
mod run_context;
mod scheduling;
mod shorten;
mod state;
mod step;
mod stop_reason;
mod work_record;

pub use attempt::CallAttempt;
pub use budget_share::BudgetShare;
pub use calling::{Calling, CallingStage as CallStage};
pub use closing::{Closing, ClosingStage as CloseStage};
pub use compacting::Compacting;
pub use compaction_history::CompactionHistory;
pub use context_usage::ContextUsage;
pub use conversation::{Conversation, ConversationEntry, EntryId};
pub use cost_breakdown::{CostBreakdown, PricedUsage};
pub use deadline::{Deadline, DeadlineKind};
pub use done::{Done, RunOutcome};
pub use effect::{
    CallPurpose, CompactionSummary, ConversationChange, Effect, MachineNote, NoFinalSummary,
};
pub use event::{
    Authorization, CallIntent, CheckResult, Event, EventKind, FileDigests, RequestSize,
};
pub use executing::{CallState, Executing, TrackedCall};
pub use fingerprint::Fingerprint;
pub use guard::Guard;
pub use machine::{Machine, MachineOutput, RequestContent, Transition};
pub use preparing::Preparing;
pub use repetition::TurnRepetition;
pub use resume::{RecoveredCall, ResumePrompt, Resumption, resume};
pub use run_context::{BudgetUsage, RunContext, SharedRunRules, Streaks};
pub use state::{State, StateKind, deadline, start, step};
pub use step::Step;
pub use stop_reason::{CloseReason, LlmFailure, RunStatus, StopReason};
