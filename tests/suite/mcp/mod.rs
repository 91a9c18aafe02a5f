//! MCP servers: real processes and real sockets.

pub(crate) mod cli_runs;
mod elicitation;
mod fixture;
mod http;
mod oauth;
mod on_demand;
mod published_servers;
mod stdio;
pub(crate) mod test_server;
mod tools;
