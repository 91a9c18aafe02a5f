//! Tests of the product from outside: its command line, its files, and the architecture of its source.

#![allow(clippy::unwrap_used, clippy::expect_used)] // in tests, helpers included
#![allow(clippy::print_stdout, clippy::print_stderr)] // a test that is skipped says why

mod acp;
mod arbitrary_input;
mod architecture;
#[cfg(target_os = "linux")] // its confinement is what they attack
mod attacks;
mod cli;
mod config;
mod context;
mod coordination;
mod examples;
mod fault_matrix;
mod features;
mod hooks;
mod journal;
#[path = "../kit/mod.rs"]
mod kit;
mod mcp;
mod readme;
mod runner;
mod scenarios;
mod simulator;
mod tools;
mod view;
mod wires;
mod words;
