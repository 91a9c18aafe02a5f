//! `architect`: a headless coding agent whose loop is an explicit, exhaustively checked state machine.
//!
//! # The house
//!
//! A file uses its own floor's folder and lower floors, never higher; families on one floor don't know each other. A test
//! holds this table.
//!
//! | floor | rooms | what |
//! |---|---|---|
//! | bin | `cli` | arguments as typed, then what they mean; terminal; errors with hints; exit codes |
//! | 6 | [`app`], [`workflow`] | composition: the only place that knows every adapter; runs made of runs |
//! | 5 | [`runner`] | the driver; effect → port call, one arm each; the inline driver for tests and benchmarks |
//! | 4 | [`llm`], [`tools`], [`mcp`], [`hooks`], [`journal`], [`view`], [`config`] | one adapter family each |
//! | 3 | [`net`], [`exec`], [`workspace`] | means: HTTP and SSE; supervised processes; confined paths |
//! | 2 | [`port`] | traits and their plain errors: model, tools, journal, observer, clock, cancel |
//! | 1 | [`machine`] | pure: one file per state, events, effects, deadlines, the statechart |
//! | 0 | [`model`] | words: ids, message, usage, money, rules |

pub mod app;
pub mod config;
pub mod exec;
pub mod hooks;
pub mod journal;
pub mod llm;
pub mod machine;
pub mod mcp;
pub mod model;
pub mod net;
pub mod port;
pub mod runner;
pub mod tools;
pub mod view;
pub mod workflow;
pub mod workspace;
