//! Floor 4: the tools that a model can call, and whether it may.
//!
//! A tool implements [`Tool`]; library users add theirs in the same way. The [`ToolRegistry`] is the toolbox of a run: every
//! call goes through it, in the same order whatever the tool — is there such a tool, are its arguments what it takes, do
//! the rules allow it ([`permission`]), what would it do, does the user agree — and only then it runs. What is too long
//! for the model is shortened, and its whole is kept ([`OutputStore`]).
//!
//! A file for each tool: [`standard`] returns them in the order in which the model sees them.
//!
//! # The tools of a run
//!
//! ```
//! use architect::exec::{SandboxPolicy, Supervisor};
//! use architect::model::ToolCall;
//! use architect::policy::{FilePatterns, GuardrailLimits, Guardrails, PermissionRules};
//! use architect::port::Toolbox;
//! use architect::tools::{ToolRegistry, ToolSettings, standard_tools};
//! use architect::workspace::WorkspaceRoot;
//!
//! # let folder = tempfile::tempdir()?;
//! # let workspace = folder.path();
//! let settings = ToolSettings {
//!     rules: PermissionRules::parse(&["run_command(git push *)"], &[], &["run_command(git *)"])?,
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
//!     "Denied: rule run_command(git push *) of permissions.deny is against it."
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod apply_patch;
mod delete_file;
mod edit_file;
mod error_hints;
mod file_edit;
mod find_files;
mod glob;
mod grep;
mod list_files;
mod nearest_lines;
mod output_store;
mod patch;

mod read_file;
mod read_output;
mod registry;
mod replace;
mod run_command;
mod schema;
mod search;
mod search_code;
mod settings;
mod tool;
mod write_file;

pub use output_store::{MemoryOutputStore, OutputStore, ResultPage};
pub use read_output::NAME as READ_OUTPUT;
pub use registry::{PlannedCall, SharedQuota, ToolRegistry};
pub use schema::{parse_arguments, tool_spec};
pub use settings::{CommandSettings, ExecutionMode, FileDeletion, MaxResultTokens, ToolSettings};
pub use tool::{CallContext, CallPlan, Tool, ToolInvocation, ToolOutput, Truncation};

use std::sync::Arc;

use crate::exec::Supervisor;
use crate::policy::{CallTarget, DeniedFiles, PolicyEngine};
use crate::workspace::{AccessGuard, AccessMode, RelPath, WorkspaceRoot};

/// What a tool may touch, by what it really is.
struct ToolAccessGuard {
    tool: &'static str,
    policy: Arc<PolicyEngine>,
}

impl AccessGuard for ToolAccessGuard {
    fn is_restricted(&self, access: AccessMode) -> bool {
        match access {
            AccessMode::Read => self.policy.has_search_limits(),
            AccessMode::Write => true,
        }
    }

    fn denial_reason(&self, path: &RelPath, access: AccessMode) -> Option<String> {
        let path = path.to_string();
        match access {
            AccessMode::Read => (!self.policy.can_search(self.tool, &path))
                .then(|| format!("it is '{path}', which a rule or a guardrail is against")),
            AccessMode::Write => self.policy.denial_reason(self.tool, &CallTarget::Write(path)),
        }
    }

    fn protects_repositories(&self) -> bool {
        self.policy.protects_repositories()
    }
}

/// Returns the tools of this program, in the order in which the model sees them.
pub fn standard_tools(
    root: &WorkspaceRoot,
    supervisor: &Supervisor,
    settings: &ToolSettings,
) -> Vec<Box<dyn Tool>> {
    let budget = output_store::bytes_for_tokens(settings.max_result_tokens.0);
    let judge = Arc::new(settings.policy_engine());
    let of = |tool: &'static str| {
        root.with_guard(Arc::new(ToolAccessGuard { tool, policy: Arc::clone(&judge) }))
    };
    let mut tools: Vec<Box<dyn Tool>> = vec![
        Box::new(read_file::ReadFile::new(of("read_file"), budget)),
        Box::new(write_file::WriteFile::new(of("write_file"))),
        Box::new(edit_file::EditFile::new(of("edit_file"))),
        Box::new(apply_patch::ApplyPatch::new(of("apply_patch"), settings.delete)),
        Box::new(list_files::ListFiles::new(root.clone())),
        Box::new(search_code::SearchCode::new(of("search_code"), Arc::clone(&judge))),
        Box::new(grep::Grep::new(of("grep"), Arc::clone(&judge))),
        Box::new(find_files::FindFiles::new(root.clone(), Arc::clone(&judge))),
        Box::new(run_command::RunCommand::new(
            root.clone(),
            supervisor.clone(),
            settings.commands.clone(),
            DeniedFiles::new(root, &settings.rules),
        )),
    ];
    if settings.delete == FileDeletion::Allowed {
        tools.push(Box::new(delete_file::DeleteFile::new(of("delete_file"))));
    }
    tools
}
