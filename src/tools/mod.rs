//! The built-in tools and the registry through which a model calls them.
//!
//! A tool implements [`Tool`]; library users add theirs in the same way. The [`ToolRegistry`] is the toolbox of a run.
//! Every call goes through it in the same order: its arguments are parsed, the [policy](crate::policy) decides, the
//! change is planned, the user confirms it if required, and then the call runs. A result that is too long is shortened
//! for the model, and its full text is kept in an [`OutputStore`].
//!
//! Each tool has its own file with its [`BuiltInTool`]; [`standard_tools`] returns the tools in the order of their
//! descriptions for the model.
//!
//! # The tools of a run
//!
//! ```
//! use architect::exec::{SandboxPolicy, Supervisor};
//! use architect::types::ToolCall;
//! use architect::policy::{FilePatterns, GuardrailLimits, Guardrails};
//! use architect::port::Toolbox;
//! use architect::tools::{ToolRegistry, ToolSettings, permission_rules, standard_tools};
//! use architect::workspace::WorkspaceRoot;
//!
//! # let folder = tempfile::tempdir()?;
//! # let workspace = folder.path();
//! let settings = ToolSettings {
//!     rules: permission_rules(&["run_command(git push *)"], &[], &["run_command(git *)"])?,
//!     guardrails: Guardrails {
//!         sensitive: FilePatterns::parse(&[".env*"])?,
//!         limits: GuardrailLimits { files: Some(20), ..GuardrailLimits::default() },
//!         ..Guardrails::default()
//!     },
//!     ..ToolSettings::default()
//! };
//! let root = WorkspaceRoot::open(workspace)?;
//! let supervisor = Supervisor::in_process(SandboxPolicy::off(workspace), Vec::new());
//! let tools = ToolRegistry::new(standard_tools(&root, &supervisor, &settings), settings);
//!
//! let push = ToolCall::new("1".into(), "run_command", r#"{"command": "git add -A && git push"}"#);
//! let rejection = tools.prepare(&push).rejection().expect("a denial takes precedence");
//! assert_eq!(
//!     &*rejection.text,
//!     "Denied: rule run_command(git push *) of permissions.deny matches."
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod apply_patch;
mod background;
mod calls;
mod command_input;
mod command_output;
mod deferred;
mod delete_file;
mod description;
mod edit_file;
mod error_hints;
mod file_edit;
mod find_files;
mod glob;
mod grep;
mod line_file;
mod line_log;
mod list_files;
mod nearest_lines;
mod output_store;
mod patch;
mod read_file;
mod read_output;
mod read_skill;
mod readiness;
mod registry;
mod replace;
mod run_command;
mod schema;
mod schema_validator;
mod search;
mod search_code;
mod settings;
mod spooled_text;
mod stop_command;
mod tool;
mod write_file;

pub use background::NeededWork;
pub(crate) use deferred::DeferredToolsModel;
pub use deferred::{CALL_TOOL, SEARCH_TOOLS};
pub use description::{
    BuiltInTool, CallArguments, CallSummary, Subject, SummaryDetail, TargetKind,
};
pub use output_store::{MemoryOutputStore, OutputStore, TextWriter};
pub use read_file::{NAME as READ_FILE, implied_read};
pub use read_output::NAME as READ_OUTPUT;
pub use read_skill::NAME as READ_SKILL;
pub use registry::{PlannedCall, SharedQuota, ToolRegistry};
pub use schema::{invalid_arguments, parse_arguments, tool_spec};
pub use schema_validator::{
    SchemaError, SchemaValidator, SchemaViolation, TooManySteps, first_big_integer,
};
pub use settings::ShownDiffs;
pub use settings::{
    CommandSettings, ExecutionMode, FileDeletion, MaxResultTokens, SkillFolder, ToolSettings,
};
pub use spooled_text::SpooledText;
pub use tool::{CallContext, CallPlan, Tool, ToolInvocation, ToolOutput, Truncation};

use std::sync::Arc;

use self::background::BackgroundCommands;
use self::description::BuildContext;
use crate::exec::Supervisor;
use crate::policy::{CallTarget, PermissionRules, PolicyEngine, RuleError, RuleTools};
use crate::workspace::{AccessGuard, AccessMode, RelPath, WorkspaceRoot};

/// Checks by their real paths whether a tool may access files.
struct ToolAccessGuard {
    tool: &'static str,
    policy: Arc<PolicyEngine>,
}

impl AccessGuard for ToolAccessGuard {
    fn restricts_reading(&self) -> bool {
        self.policy.has_search_limits()
    }

    fn denial_reason(&self, path: &RelPath, access: AccessMode) -> Option<String> {
        let path = path.to_string();
        match access {
            AccessMode::Read => (!self.policy.can_search(self.tool, &path))
                .then(|| format!("it is '{path}', which a rule or a guardrail denies")),
            AccessMode::Write => self.policy.denial_reason(self.tool, &CallTarget::Write(path)),
        }
    }

    fn protects_repositories(&self) -> bool {
        self.policy.protects_repositories()
    }
}

/// The built-in tools, in the order of their descriptions for the model.
pub static BUILT_IN: [BuiltInTool; 15] = [
    read_file::TOOL,
    write_file::TOOL,
    edit_file::TOOL,
    apply_patch::TOOL,
    list_files::TOOL,
    search_code::TOOL,
    grep::TOOL,
    find_files::TOOL,
    run_command::TOOL,
    command_output::TOOL,
    command_input::TOOL,
    stop_command::TOOL,
    delete_file::TOOL,
    read_skill::TOOL,
    read_output::TOOL,
];

/// Returns a built-in tool; `None` if the name is unknown.
pub fn describe(name: &str) -> Option<&'static BuiltInTool> {
    BUILT_IN.iter().find(|tool| tool.name == name)
}

/// Returns the tools whose rules apply to more than their own calls, according to their descriptions.
pub fn rule_tools() -> RuleTools {
    let with = |target: TargetKind| {
        let tools = BUILT_IN.iter().filter(|tool| tool.target == target);
        tools.map(|tool| tool.name).collect()
    };
    RuleTools {
        command: with(TargetKind::Command),
        read: with(TargetKind::Read),
        write: with(TargetKind::Write),
    }
}

/// Parses permission rules for the built-in tools.
///
/// # Errors
///
/// Fails at the first invalid rule.
pub fn permission_rules<T: AsRef<str>>(
    deny: &[T],
    ask: &[T],
    allow: &[T],
) -> Result<PermissionRules, RuleError> {
    PermissionRules::parse(&rule_tools(), deny, ask, allow)
}

/// Returns the built-in tools that the settings include, except `read_output`, which the registry adds.
pub fn standard_tools(
    root: &WorkspaceRoot,
    supervisor: &Supervisor,
    settings: &ToolSettings,
) -> Vec<Box<dyn Tool>> {
    let policy = Arc::new(settings.policy_engine());
    let background = BackgroundCommands::default();
    let context = BuildContext { root, supervisor, settings, policy, background };
    BUILT_IN.iter().filter_map(|tool| (tool.build)(&context)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::SandboxPolicy;

    #[test]
    fn each_tool_is_built_under_its_own_name() {
        let folder = tempfile::tempdir().unwrap();
        let root = WorkspaceRoot::open(folder.path()).unwrap();
        let supervisor = Supervisor::in_process(SandboxPolicy::off(folder.path()), Vec::new());
        let skills = vec![SkillFolder { name: "a".to_owned(), path: folder.path().to_owned() }];
        let settings =
            ToolSettings { delete: FileDeletion::Allowed, skills, ..ToolSettings::default() };
        let tools = standard_tools(&root, &supervisor, &settings);
        let names: Vec<&str> = tools.iter().map(|tool| &*tool.spec().name).collect();
        let described = BUILT_IN.iter().map(|tool| tool.name).filter(|name| *name != READ_OUTPUT);
        assert_eq!(names, described.collect::<Vec<_>>());
    }

    #[test]
    fn the_rules_of_some_tools_are_about_commands_and_files() {
        let RuleTools { command, read, write } = rule_tools();
        assert!(command.contains(&"run_command") && read.contains(&"read_file"));
        // The rules of the first tool apply to redirections, too.
        assert_eq!(write[..2], ["write_file", "edit_file"]);
    }
}
