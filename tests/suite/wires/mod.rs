//! The wires over real sockets: requests, replies and faults.

mod bedrock;
mod caller;
mod cancel;
mod chat;
mod chat_servers;
mod costs;
mod gzip;
mod key_command;
mod machine_sleep;
mod prompt_prefix;
mod providers;
mod recorded_streams;
mod recordings;
mod replay;
mod request_rules;
mod requests;
mod run_endings;
mod sdk_comparison;
mod timeouts;
mod tls;
mod transport;
mod unusual_replies;
mod vertex;
