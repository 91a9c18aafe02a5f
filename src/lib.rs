//! `architect`: a headless coding agent whose loop is an explicit, exhaustively checked state machine.
//!
//! # An agent in a program
//!
//! ```
//! use architect::{Agent, FunctionTool, Script};
//!
//! # let folder = tempfile::tempdir()?;
//! # let (workspace, script) = (folder.path(), "[[turn]]\ntext = 'Done.'");
//! #[derive(serde::Deserialize, schemars::JsonSchema)]
//! struct Text { text: String }
//!
//! let count = FunctionTool::new("count_words", "Counts words.", |arguments: Text| {
//!     Ok(arguments.text.split_whitespace().count().to_string())
//! });
//! let agent = Agent::builder()
//!     .scripted_model(Script::from_toml("demo", script)?) // or `.model("anthropic/claude-sonnet-4-5")`
//!     .workspace(workspace)
//!     .tool(count)
//!     .build()?;
//! let result = agent.run("Count the words of README.md.")?;
//! assert_eq!(&*result.output, "Done.");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `examples/` has complete programs: a custom tool, a custom model, an observer, resuming a session, and the machine
//! without a driver.
//!
//! # Stability
//!
//! The items of this page, and the modules [`machine`], [`types`] and `port`, follow semantic versioning. All other
//! modules are public only for the tests and benchmarks of this project; they are hidden here and may change at any
//! time.
//!
//! # Features
//!
//! | feature | what it adds |
//! |---|---|
//! | none | [`types`] and [`machine`]: pure, without files, network, threads, clocks or environment |
//! | `runner` | `port` and the runner, which drives the machine through them |
//! | `cli` (default) | providers, tools, journal, configuration, `Agent`, and the command |
//!
//! # Layers
//!
//! A file uses its own module and modules of lower layers; modules of the same layer don't use each other. A test
//! checks this with the table below.
//!
//! | layer | modules | what |
//! |---|---|---|
//! | 11 | `cli` | the binary: arguments, terminal, errors with hints, exit codes |
//! | 10 | `workflow`, `acp` | runs made of runs: a plan first, an evaluation after; scenarios. Editors |
//! | 9 | `app` | composition: the only module that knows every adapter; the façade |
//! | 8 | `runner` | the driver, which turns effects into calls of ports; executors |
//! | 7 | `llm`, `mcp`, `hooks`, `journal`, `view`, `config` | adapters |
//! | 7 | `conform` | recordings of other programs, checked against the invariants |
//! | 6 | `tools` | the built-in tools and the registry that runs them |
//! | 5 | `policy` | rules, guardrails and modes: whether a call may run |
//! | 4 | `net`, `exec` | HTTP and SSE; supervised processes and their confinement |
//! | 3 | `workspace` | confined paths, worktrees, checkpoints |
//! | 2 | `port` | traits and their errors: model, tools, journal, observer, clock, cancellation |
//! | 1 | [`machine`] | pure: one file for each state, events, effects, deadlines, the statechart |
//! | 0 | [`types`] | data types of all layers: ids, messages, usage, money, rules |

#[cfg(feature = "cli")]
pub use self::{
    app::{Agent, AgentBuilder, AppError, FunctionTool, set_supervisor, supervisor_main},
    llm::scripted::Script,
    view::RunResult,
};

#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod acp;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod app;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod config;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod conform;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod exec;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod hooks;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod journal;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod llm;
pub mod machine;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod mcp;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod net;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod policy;
#[cfg(feature = "runner")]
pub mod port;
#[cfg(feature = "runner")]
#[doc(hidden)]
pub mod runner;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod tools;
pub mod types;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod view;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod workflow;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod workspace;

/// The example of the page about the library.
#[cfg(all(doctest, feature = "cli"))]
#[doc = include_str!("../docs/library.md")]
pub struct LibraryPage;
