//! Floor 4: MCP — further tools, from servers that speak the Model Context Protocol.
//!
//! [`McpServers::start`] starts them all at the same time, agrees with each on an era of the protocol, and lists its tools
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

mod call_result;
mod connection;
mod error;
mod http;
mod message;
mod protocol_mode;
mod server;
mod servers;
mod settings;
mod stdio;
mod tool;
mod tool_description;
mod validate;

pub use call_result::CallResult;
pub use error::{RpcError, ServerError, ServerProblem};
pub use servers::{McpServers, ServerInstructions};
pub use settings::{Necessity, ServerLimits, ServerSetup, ServerSpec, ServerTransport, ToolFilter};
pub use tool::{ServerTool, ToolHints};
