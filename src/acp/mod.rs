//! The agent side of the Agent Client Protocol, version 1: editors drive this program over its standard input and output.
//!
//! ```text
//!  standard input ──▶ reader ──▶ Server ──▶ Prompt (a thread each) ──▶ RunSetup::run
//!                                  ▲                                      │ RunUpdates, PermissionRequests
//!  standard output ◀── writer ◀── ClientConnection ◀──────────────────────┘
//! ```
//!
//! Each line is a JSON-RPC message. A session of the protocol is a stored session; each prompt is a run that begins or
//! continues it. The permissions of a session follow from the configuration, as for a run of the command; the client
//! chooses the folder, the mode and additional servers, as a user of the command does by options.
//!
//! <https://agentclientprotocol.com>

mod call_content;
mod client_connection;
mod client_files;
mod client_message;
mod client_servers;
mod history;
mod modes;
mod permission;
mod plan;
mod prompt;
mod prompt_commands;
mod prompt_content;
mod run_updates;
mod server;
mod session;
mod session_host;

pub use server::{ServeEnd, serve};
pub use session_host::{ConfiguredSession, HostError, SessionChoice, SessionHost};
