//! Floor 4: MCP — further tools, from servers that speak the Model Context Protocol.
//!
//! [`Servers::start`] starts them all at the same time, agrees with each on an era of the protocol, and lists its tools
//! once: the list is pinned for the run, whatever a server says later. Each [`Tool`] has a name of its own,
//! `mcp_{server}_{tool}`, and makes its calls by itself. A server that fails costs its tools and a [`Problem`], never
//! the run; whether it was required is for the caller to judge.
//!
//! ```text
//! servers ── server ── connection ── channel: stdio | http
//!    │         │           └ era, ids, deadlines
//!    │         └ restarts
//!    └ tools: names, filters, caps; outcome: what a result says
//! ```
//!
//! A server gets the tools' arguments and nothing else: what it asks for itself (a model's answer, the user's input,
//! folders) is refused, and no capability for it is announced. What it says is neither trusted nor unbounded.

mod connection;
mod describe;
mod era;
mod error;
mod http;
mod message;
mod outcome;
mod server;
mod servers;
mod settings;
mod stdio;
mod tool;
mod validate;

pub use error::{Problem, Refusal, ServerError};
pub use outcome::Answer;
pub use servers::{Instructions, Servers};
pub use settings::{Caps, Filter, Necessity, Setup, Spec, Transport};
pub use tool::{Hints, Tool};
