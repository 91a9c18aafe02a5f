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
//! process itself: folders, variables and options come in as [`ConfigSources`].
//!
//! Each layer is checked for itself, also where another one covers it, and everything that is wrong is told at once. A
//! setting is asked for in one place (`settings/`), with its default and its range; `keys` says for each one what an
//! untrusted project may do with it.

mod agents;
mod checked_file;
mod effective;
mod folders;
mod keys;
mod layers;
mod load;
mod mcp_json;
mod merge;
mod origin;
mod overrides;
mod problem;
mod resolved;
mod run_rules;
mod setting_value;
mod settings;
mod settings_reader;
mod template;
mod text_types;
mod tighten;
mod trust;
mod value_tree;

pub use agents::Agent;
pub use checked_file::ConfigFileError;
pub use effective::EffectiveValue;
pub use folders::Folders;
pub use keys::is_cumulative;
pub use layers::{ConfigFile, ConfigFileState};
pub use load::{ConfigSources, ProjectTrust, load};
pub use origin::{
    ConfigDocument, LayerRank, OriginSource, SourceExcerpt, TextPosition, ValueOrigin,
};
pub use overrides::{OptionOverride, TRUST_VARIABLE};
pub use problem::{ConfigError, ConfigNotice, ConfigProblem, NoticeCause, ProblemKind};
pub use resolved::Config;
pub use run_rules::{ModelLimits, quality_gates, run_rules};
pub use settings::{
    AgentConfig, CommandsConfig, ConfirmModeSetting, ContextConfig, CostsConfig, DurabilitySetting,
    EvaluationConfig, EvaluationMode, ExpectedDecision, GuardrailsConfig, HookConfig,
    HookConfinement, HooksConfig, IndexerConfig, LanguageSetting, LimitsConfig, LlmConfig,
    LogLevel, LoggingConfig, McpConfig, McpServerConfig, McpTransportConfig, NetworkSetting,
    OnFailureSetting, PermissionsConfig, QualityGate, SandboxConfig, SandboxModeSetting,
    SessionsConfig, Settings, UnknownPricePolicy, WorkspaceConfig,
};
pub use template::{ProjectPreset, template};
pub use text_types::{
    ConfigName, HttpUrl, ModelName, PathPattern, ProcessArgument, SecretText, VariableName,
};
pub use trust::{ChangedFile, TrustError, TrustStore};
