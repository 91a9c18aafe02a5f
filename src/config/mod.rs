//! Configuration: layers of values, each with its origin.
//!
//! [`load()`] reads these layers and merges them, each overriding the ones before:
//!
//! 1. the defaults,
//! 2. the user's folder: `config.toml`, `agents/*.md`,
//! 3. the project: `.architect/config.toml`, `.architect/agents/*.md`, `.mcp.json`; only what tightens, if its folder is
//!    not trusted,
//! 4. `ARCHITECT_*` variables: `llm.model` is `ARCHITECT_LLM_MODEL`,
//! 5. the files of `--config` and `--mcp-config`,
//! 6. the selected profile: `[profiles.NAME]` of each file, and `profiles/NAME.toml` beside it,
//! 7. `--set KEY=VALUE` and the other options.
//!
//! Tables are merged key by key. Lists of rules and of guarded files are concatenated. Lists of named tables are
//! combined by name, and the higher layer wins. Any other list is replaced as a whole. Each `--set` is a layer of its
//! own. Nothing is read from the process: folders, variables and options come in as [`ConfigSources`].
//!
//! Each layer is checked by itself, even if another one overrides it, and all problems are reported at once.
//!
//! Each key is declared in one place, in `settings/`: its type, default, range, merging, option, description, and what an
//! untrusted project may do with it. The variables, the options and their help, the template and the JSON Schema follow.

mod agents;
mod checked_file;
mod effective;
mod folders;
mod json_schema;
mod key_declaration;
mod key_spec;
mod layers;
mod load;
mod mcp_json;
mod merge;
mod origin;
mod overrides;
mod problem;
mod request_option;
mod resolved;
mod run_rules;
mod setting_value;
mod settings;
mod settings_reader;
mod template;
mod text_types;
mod toml_document;
mod trust;
mod untrusted_layer;
mod user_rules;
mod value_tree;

pub use agents::AgentDefinition;
pub use checked_file::ConfigFileError;
pub use effective::EffectiveValue;
pub(crate) use effective::mask_command;
pub use folders::Folders;
pub use json_schema::schema;
pub use key_spec::{
    KeyOption, KeySpec, OptionValue, VARIABLE_PREFIX, is_cumulative, is_list, keys,
    untrusted_changes,
};
pub use layers::profile_names;
pub use layers::{ConfigFile, ConfigFileState};
pub use load::{ConfigSources, ProjectTrust, load};
pub use origin::may_set_secret;
pub use origin::{ConfigDocument, LayerRank, OriginSource, SourceExcerpt, ValueOrigin};
pub(crate) use origin::{has_address_with_user, may_be_secret};
pub use overrides::{OptionOverride, TRUST_VARIABLE};
pub use problem::{ConfigError, ConfigNotice, ConfigProblem, NoticeCause, ProblemKind};
pub use resolved::Config;
pub(crate) use resolved::UNENCRYPTED_KEY;
pub use run_rules::{ModelLimits, model_rules, quality_gates, run_rules};
pub use setting_value::is_time;
pub use settings::{
    AgentConfig, CheckpointsConfig, CommandsConfig, ContextConfig, CostsConfig, DeferMode,
    EffortChoice, EvaluationConfig, EvaluationMode, ExpectedDecision, GuardrailsConfig, HookConfig,
    HookConfinement, HooksConfig, IndexerConfig, LimitsConfig, LlmConfig, LoggingConfig, McpConfig,
    McpServerConfig, ModelConfig, OauthConfig, PermissionsConfig, QualityGate, SandboxConfig,
    SessionsConfig, Settings, SkillsConfig, UnknownPricePolicy, WorkspaceConfig,
};
pub use template::{ProjectPreset, SCHEMA_FILE, template};
pub use text_types::{
    ConfigName, HttpUrl, ModelName, PathPattern, ProcessArgument, SecretText, VariableName,
};
pub use trust::{ChangedFile, TrustError, TrustStore};
pub use user_rules::{UserRuleError, allow_in_user_config};
