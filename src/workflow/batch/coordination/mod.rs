//! Coordination of the processes of a batch: the owners of cells, and the shared budget of money and tokens.
//!
//! ```text
//!  workers ──▶ Coordinator ──▶ decide(state, request) ──▶ records ──▶ DIR/coordination.jsonl
//!  (threads, processes, machines)        ▲                                   │
//!                                        └────── apply(state, record) ◀──────┘
//! ```
//!
//! The state is one append-only log in the folder of the batch, with one file lock around read, decide, append and
//! sync. [`protocol`] is pure, without a clock or I/O, and a test explores it. A worker holds a lease on the cell that
//! it runs. The token of a lease is larger than that of every earlier lease; requests with an old token, or after the
//! end of the lease, are refused. Each model call reserves its worst case before it is sent and settles it afterwards,
//! so that the spent and the reserved charges together never exceed the limits.

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
