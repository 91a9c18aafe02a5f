//! What the processes of a batch share: who runs which cell, and how much money and tokens are left.
//!
//! ```text
//!  workers ──▶ Coordinator ──▶ decide(state, request) ──▶ records ──▶ DIR/coordination.jsonl
//!  (threads, processes, machines)        ▲                                   │
//!                                        └────── apply(state, record) ◀──────┘
//! ```
//!
//! One append-only log in the folder of the batch, one file lock around read, decide, append and sync. [`protocol`] is
//! pure: no clock, no I/O; a test explores it. A worker holds a lease on a cell while it runs it, with a token that grows
//! with every lease; requests with an old token or after the end of the lease are refused. Before each model call its
//! worst case is reserved, and after it the reservation is settled, so that what is spent and what is reserved never
//! exceed the limits together.

mod budgeted_model;
mod coordinator;
mod error;
pub mod protocol;
mod shared_log;

pub use budgeted_model::{BudgetedModel, CallLimits, CellPayer};
pub use coordinator::{CellClaim, CoordinationSettings, Coordinator, Progress, SessionProbe};
pub use error::{CoordinationError, ReserveError};
pub use protocol::{
    CellId, CellOutcome, Charge, ChargeLimits, Lease, LeaseToken, ReopenAs, ReservationId, WorkerId,
};
