//! Servers of further tools: real processes and real sockets.

mod server;
mod stdio;
mod tools;
mod world;
