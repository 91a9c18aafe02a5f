//! Shared code of the tests and the benchmarks: a fake model and fake tools, a server on loopback, time, folders,
//! processes.

#![allow(dead_code)] // no test needs all of it

pub(crate) mod bedrock;
pub(crate) mod browser;
pub(crate) mod chat;
pub(crate) mod cli;
pub(crate) mod effect;
pub(crate) mod harmless_syscalls;
pub(crate) mod model;
pub(crate) mod run;
pub(crate) mod sealing;
pub(crate) mod server;
pub(crate) mod service_account;
pub(crate) mod sources;
pub(crate) mod system;
pub(crate) mod terminal;
pub(crate) mod tools;
