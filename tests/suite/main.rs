//! The product from outside: its command line, its files, its house.

#![allow(clippy::unwrap_used, clippy::expect_used)] // in tests, helpers included

mod config;
mod context;
mod hooks;
mod house;
mod journal;
mod runner;
mod support;
mod tools;
mod view;
mod wires;
