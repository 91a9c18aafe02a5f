//! Servers of further tools: real processes and real sockets.

mod command;
mod http;
mod published;
mod server;
mod stdio;
mod tools;
mod world;
