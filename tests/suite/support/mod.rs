//! What several end-to-end tests need.

#![allow(dead_code)] // no test needs all of it

pub(crate) mod chat;
pub(crate) mod harmless_syscalls;
pub(crate) mod server;
pub(crate) mod sources;
