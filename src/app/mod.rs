//! Floor 6: composition — the only place that knows every adapter.
//!
//! ```text
//!  Config ──▶ Setup (model, tools, hooks, sandbox) ──▶ Opening (new, stored, resumed) ──▶ Driver ──▶ Ended
//! ```
//!
//! [`Setup`] finds everything that can be wrong before anything begins; a run that has a [`Setup`] fails only of the
//! world. [`Setup::run`] drives one run to its end before a [`Show`](crate::view::Show). Nothing here asks the process:
//! variables and folders come in as a [`World`].

mod checks;
pub mod context;
pub mod demo;
mod ending;
mod error;
mod examples;
mod gates;
mod hidden;
mod hooks;
mod mcp;
mod model;
mod outputs;
mod probe;
mod prompt;
mod run;
mod sandbox;
mod schema;
mod secrets;
mod session;
mod setup;
mod shared;
mod staging;
mod subagents;
mod telemetry;
mod tool_names;
mod tools;
mod trace;
mod world;

pub use ending::Ending;
pub use error::AppError;
pub use examples::check;
pub use model::{Chosen, Source as ModelSource};
pub use probe::{ProbedServer, Reach, ServerFinding, probe_model, probe_servers};
pub use run::{Ended, Order, Stage};
pub use sandbox::Sandbox;
pub use secrets::{masked, secrets};
pub use session::{Place, store};
pub use setup::{Effect, Setup};
pub use staging::{Listening, Rehearsal};
pub use subagents::Nesting;
pub use telemetry::telemetry;
pub use trace::trace;
pub use world::World;
