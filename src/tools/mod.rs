//! Floor 4: the tools that a model can call, and whether it may.
//!
//! A tool implements [`Tool`]; library users add theirs in the same way. The [`Registry`] is the toolbox of a run: every
//! call goes through it, in the same order whatever the tool — is there such a tool, are its arguments what it takes, do
//! the rules allow it ([`permission`]), what would it do, does the user agree — and only then it runs. What is too long
//! for the model is shortened, and its whole is kept ([`Results`]).
//!
//! A file for each tool: [`standard`] returns them in the order in which the model sees them.
//!
//! # The tools of a run
//!
//! ```
//! use architect::exec::{Policy, Supervisor};
//! use architect::model::ToolCall;
//! use architect::port::Toolbox;
//! use architect::tools::permission::{FilePatterns, Guardrails, Limits, Rules};
//! use architect::tools::{Registry, Settings, standard};
//! use architect::workspace::Root;
//!
//! # let folder = tempfile::tempdir()?;
//! # let workspace = folder.path();
//! let settings = Settings {
//!     rules: Rules::parse(&["run_command(git push *)"], &[], &["run_command(git *)"])?,
//!     guardrails: Guardrails {
//!         sensitive: FilePatterns::parse(&[".env*"])?,
//!         limits: Limits { files: Some(20), ..Limits::default() },
//!         ..Guardrails::default()
//!     },
//!     ..Settings::default()
//! };
//! let root = Root::open(workspace)?;
//! let supervisor = Supervisor::in_process(Policy::off(workspace), Vec::new());
//! // `.asking(…)` says who confirms calls, `.keeping(…)` where the whole of long results goes.
//! let tools = Registry::new(standard(&root, &supervisor, &settings), settings);
//!
//! let push = ToolCall::new("1".into(), "run_command", r#"{"command": "git add -A && git push"}"#);
//! let refusal = tools.refusal(&push).expect("a denial goes before a permission");
//! assert_eq!(
//!     &*refusal.text,
//!     "Denied: rule run_command(git push *) of permissions.deny is against it."
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod advice;
mod apply_patch;
mod delete_file;
mod denial;
mod edit;
mod edit_file;
mod find_files;
mod grep;
mod list_files;
mod near;
mod patch;
mod pattern;
pub mod permission;
mod read_file;
mod read_output;
mod registry;
mod replace;
mod results;
mod run_command;
mod schema;
mod search;
mod search_code;
mod settings;
mod tool;
mod write_file;

pub use read_output::NAME as READ_OUTPUT;
pub use registry::{Common, Judged, Planned, Registry};
pub use results::{InMemory, Kept, Results};
pub use schema::{parse, spec};
pub use settings::{CommandSettings, Delete, Effect, MaxTokens, Settings};
pub use tool::{CommandTarget, Context, Kind, Length, Output, Plan, Prepared, Target, Tool};

use std::sync::Arc;

use self::permission::Judge;
use crate::exec::Supervisor;
use crate::workspace::{Access, Guard, RelPath, Root};

/// What a tool may touch, by what it really is.
struct ToolGuard {
    tool: &'static str,
    judge: Arc<Judge>,
}

impl Guard for ToolGuard {
    fn limits(&self, access: Access) -> bool {
        match access {
            Access::Read => self.judge.limits_searches(),
            Access::Write => true,
        }
    }

    fn refuses(&self, path: &RelPath, access: Access) -> Option<String> {
        let path = path.to_string();
        match access {
            Access::Read => (!self.judge.may_search(self.tool, &path))
                .then(|| format!("it is '{path}', which a rule or a guardrail is against")),
            Access::Write => self.judge.refusal(self.tool, &Target::Write(path)),
        }
    }

    fn guards_repositories(&self) -> bool {
        self.judge.guards_repositories()
    }
}

/// Returns the tools of this program, in the order in which the model sees them.
pub fn standard(root: &Root, supervisor: &Supervisor, settings: &Settings) -> Vec<Box<dyn Tool>> {
    let budget = results::bytes(settings.max_result_tokens.0);
    let judge = Arc::new(settings.judge());
    let of =
        |tool: &'static str| root.guarded(Arc::new(ToolGuard { tool, judge: Arc::clone(&judge) }));
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
        )),
    ];
    if settings.delete == Delete::Allowed {
        tools.push(Box::new(delete_file::DeleteFile::new(of("delete_file"))));
    }
    tools
}
