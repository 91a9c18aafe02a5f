//! MCP servers: real processes and real sockets.

mod cli_runs;
mod fixture;
mod http;
mod oauth;
mod on_demand;
mod published_servers;
mod stdio;
pub(crate) mod test_server;
mod tools;
