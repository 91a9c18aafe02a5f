//! Floor 4: configuration, in layers, each value with where it comes from.
//!
//! [`load()`] reads the layers and puts them above each other, the last one on top:
//!
//! 1. what the program brings along,
//! 2. the user's folder: `config.toml`, `agents/*.md`,
//! 3. the project: `.architect/config.toml`, `.architect/agents/*.md`, `.mcp.json`; of a folder that is not trusted only
//!    what tightens,
//! 4. `ARCHITECT_*` variables: `llm.model` is `ARCHITECT_LLM_MODEL`,
//! 5. the files of `--config` and `--mcp-config`,
//! 6. the chosen profile: `[profiles.NAME]` of each file, and `profiles/NAME.toml` beside it,
//! 7. `--set KEY=VALUE` and the other options.
//!
//! Tables go together key by key. Lists of rules and of guarded files add up, and so do lists of tables with names,
//! where of two with one name the higher one holds; any other list is replaced as a whole. Each `--set` is a layer for
//! itself, the later one above. Nothing is read from the
//! process itself: folders, variables and options come in as [`Sources`].
//!
//! Each layer is checked for itself, also where another one covers it, and everything that is wrong is told at once. A
//! setting is asked for in one place (`settings/`), with its default and its range; `keys` says for each one what an
//! untrusted project may do with it.

mod agents;
mod file;
mod folders;
mod keys;
mod layers;
mod load;
mod loaded;
mod mcp_json;
mod merge;
mod origin;
mod problem;
mod reader;
mod report;
mod rules;
mod setting;
mod settings;
mod template;
mod text;
mod tighten;
mod tree;
mod trust;
mod typed;

pub use agents::Agent;
pub use file::Unreadable;
pub use folders::Folders;
pub use keys::adds_up;
pub use layers::{ConfigFile, FileState};
pub use load::{Sources, Trust, load};
pub use loaded::Config;
pub use origin::{Document, Excerpt, Origin, Position, Rank, Source};
pub use problem::{ConfigError, Notice, NoticeCause, Problem, Trouble};
pub use report::Shown;
pub use rules::{ModelFacts, quality_gates, rules};
pub use settings::{
    AgentSettings, Commands, ConfirmMode, Context, Costs, Durability, Evaluation, EvaluationMode,
    Guardrails, HookSandbox, HookSettings, Hooks, Indexer, Language, LimitSettings, Llm, LogLevel,
    Logging, Mcp, McpServer, McpTransport, Network, OnFailure, Permissions, QualityGate, Sandbox,
    SandboxMode, Sessions, Settings, UnknownPrice, Verdict, Workspace,
};
pub use template::{Preset, template};
pub use text::{Argument, Hidden, HttpUrl, Name, PathPattern, VariableName, Word};
pub use trust::{ChangedFile, TrustError, TrustStore};
pub use typed::{Flag, TRUST};
