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
//! | 9 | [`workflow`] | runs made of runs: a plan first, an evaluation behind; scenarios |
//! | 8 | [`app`] | composition: the only place that knows every adapter |
//! | 7 | [`runner`] | the driver; effect → port call, one arm each; the inline driver for tests and benchmarks |
//! | 6 | [`llm`], [`mcp`], [`hooks`], [`journal`], [`view`], [`config`] | one adapter family each |
//! | 5 | [`tools`] | the built-in tools and the registry that runs them |
//! | 4 | [`policy`] | rules, guardrails and modes: whether a call may run |
//! | 3 | [`net`], [`exec`], [`workspace`] | means: HTTP and SSE; supervised processes; confined paths |
//! | 2 | [`port`] | traits and their plain errors: model, tools, journal, observer, clock, cancel |
//! | 1 | [`machine`] | pure: one file per state, events, effects, deadlines, the statechart |
//! | 0 | [`model`] | words: ids, message, usage, money, rules |

//!
//! # A run in twenty lines
//!
//! A scripted model, no tools, and hands that work on the spot:
//!
//! ```
//! use architect::llm::scripted::{Script, ScriptPosition, ScriptedModel};
//! use architect::machine::{Conversation, Fold, State};
//! use architect::model::{Item, Origin, Rules};
//! use architect::runner::{Brief, Driver, Inline, Ports};
//!
//! let script = Script::from_toml("hello", "[[turn]]\ntext = 'Hello.'")?;
//! let brief = Brief { system: "Be brief.".into(), tools: [].into(), schema: None };
//! let ports = Ports::new(Box::new(ScriptedModel::new(script, ScriptPosition::default())));
//! let task = Item::user(Origin::Task, "Say hello.");
//! let (fold, first) = Fold::start(Rules::default(), Conversation::new(brief.bytes()), task);
//! let fold = Driver::new(Inline::new(), ports, brief, fold).run(first);
//!
//! let State::Done(done) = &fold.state else { unreachable!("a driver drives to the end") };
//! assert_eq!(done.outcome.reason.name(), "llm_done");
//! assert_eq!(done.outcome.output.as_deref(), Some("Hello."));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(feature = "cli")]
pub mod app;
#[cfg(feature = "cli")]
pub mod config;
#[cfg(feature = "cli")]
pub mod exec;
#[cfg(feature = "cli")]
pub mod hooks;
#[cfg(feature = "cli")]
pub mod journal;
#[cfg(feature = "cli")]
pub mod llm;
pub mod machine;
#[cfg(feature = "cli")]
pub mod mcp;
pub mod model;
#[cfg(feature = "cli")]
pub mod net;
#[cfg(feature = "cli")]
pub mod policy;
#[cfg(feature = "runner")]
pub mod port;
#[cfg(feature = "runner")]
pub mod runner;
#[cfg(feature = "cli")]
pub mod tools;
#[cfg(feature = "cli")]
pub mod view;
#[cfg(feature = "cli")]
pub mod workflow;
#[cfg(feature = "cli")]
pub mod workspace;
