//! Layer 4: MCP, tools from servers that speak the Model Context Protocol.
//!
//! [`McpServers::start`] starts them concurrently, negotiates a protocol mode with each, and lists its tools once: the
//! list is fixed for the run. Each [`ServerTool`] has a unique name, `mcp_{server}_{tool}`, and makes its own calls. A
//! server that fails costs its tools and causes a [`ServerProblem`], but does not end the run; the caller decides
//! whether it was required.
//!
//! ```text
//! servers ── server ── connection ── channel: stdio | http ── oauth: access tokens
//!    │         └ restarts
//!    └ tools: names, filters, caps; outcome: what a result says
//! ```
//!
//! A server gets the arguments of its tools, and the user's answers to simple questions where there is a user. Its other
//! requests (a model's answer, folders) are refused, and no capability for them is announced. Its output is untrusted and
//! limited.

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
