//! Layer 4: tools from servers that speak the Model Context Protocol (MCP).
//!
//! [`McpServers::start`] starts the servers concurrently, negotiates a protocol mode with each, and lists its tools
//! once: the list is fixed for the run. Each [`ServerTool`] has a unique name, `mcp_{server}_{tool}`, and makes its own
//! calls. If a server fails, its tools are missing and a [`ServerProblem`] is reported, but the run does not end; the
//! caller decides whether the server was required.
//!
//! ```text
//! servers ── server ── connection ── channel: stdio | http ── oauth: access tokens
//!    │         └ restarts
//!    └ tools: names, filters, caps; call_result: a result as text and images
//! ```
//!
//! A server gets the arguments of its tools, and the user's answers to simple questions if there is a user. Its other
//! requests (replies of a model, folders) are refused, and no capability for them is announced. Its output is
//! untrusted, and limited.

mod call_result;
mod connection;
mod elicitation;
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
pub use servers::{McpServers, ServerInstructions, ServerStart};
pub use settings::{
    ClientCredentials, Necessity, SecretSource, ServerLimits, ServerSetup, ServerSpec,
    ServerTransport, ToolFilter, ToolLimits,
};
pub use tool::ServerTool;
pub use tool_description::ToolHints;
