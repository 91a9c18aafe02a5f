//! Floor 1: the machine — the agent loop as an explicit, typed, exhaustively checked state machine.
//!
//! [`step`] leads from a [`State`] and an [`Event`] to the [`Next`] state, with the [`Effect`]s that are to be done and
//! the [`Note`]s that are to be shown. It is total, it owns the state, and it is pure: it reads no clock, no
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

mod allowance;
mod attempt;
mod bill;
mod budget;
mod calling;
mod closing;
mod compacting;
mod compactions;
mod context;
mod conversation;
mod deadline;
mod done;
mod effect;
mod event;
mod executing;
mod fold;
mod guard;
mod instructions;
mod ledger;
mod mark;
mod next;
mod order;
mod preparing;
mod repeats;
mod rereads;
mod resume;
mod retry;
mod run;
mod shorten;
mod state;
mod stop;

pub use allowance::Allowance;
pub use attempt::Attempt;
pub use bill::{Bill, Charge};
pub use calling::{Calling, Stage as CallStage};
pub use closing::{Closing, Stage as CloseStage};
pub use compacting::Compacting;
pub use compactions::Compactions;
pub use context::Gauge;
pub use conversation::{Conversation, Entry, EntryId};
pub use deadline::{Deadline, Why};
pub use done::{Done, Outcome};
pub use effect::{Change, Effect, NoSummary, Note, Purpose, Summary};
pub use event::{Check, Event, EventKind, Facts, Image, Intent, Verdict};
pub use executing::{Executing, OpenCall, Slot};
pub use fold::{Fold, Move, Outcomes, Request};
pub use guard::Guard;
pub use mark::Mark;
pub use next::Next;
pub use preparing::Preparing;
pub use repeats::Repeats;
pub use resume::{Found, Opening, Resumption, resume};
pub use run::{Run, SharedRules, Spent, Streaks};
pub use state::{State, StateKind, deadline, start, step};
pub use stop::{CloseReason, LlmFailure, Status, StopReason};
