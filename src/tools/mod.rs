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

use crate::exec::Supervisor;
use crate::workspace::Root;

/// Returns the tools of this program, in the order in which the model sees them.
pub fn standard(root: &Root, supervisor: &Supervisor, settings: &Settings) -> Vec<Box<dyn Tool>> {
    let budget = results::bytes(settings.max_result_tokens.0);
    let judge = Arc::new(settings.judge());
    let mut tools: Vec<Box<dyn Tool>> = vec![
        Box::new(read_file::ReadFile::new(root.clone(), budget)),
        Box::new(write_file::WriteFile::new(root.clone())),
        Box::new(edit_file::EditFile::new(root.clone())),
        Box::new(apply_patch::ApplyPatch::new(root.clone(), settings.delete)),
        Box::new(list_files::ListFiles::new(root.clone())),
        Box::new(search_code::SearchCode::new(root.clone(), Arc::clone(&judge))),
        Box::new(grep::Grep::new(root.clone(), Arc::clone(&judge))),
        Box::new(find_files::FindFiles::new(root.clone(), judge)),
        Box::new(run_command::RunCommand::new(
            root.clone(),
            supervisor.clone(),
            settings.commands.clone(),
            permission::DeniedFiles::of(root, &settings.rules),
        )),
    ];
    if settings.delete == Delete::Allowed {
        tools.push(Box::new(delete_file::DeleteFile::new(root.clone())));
    }
    tools
}
