//! `architect worktrees`: the isolated worktrees of a project.

use std::path::Path;

use architect::app::{ProcessEnv, SandboxedGit, open_worktrees, watch_writes};
use architect::config::Config;
use architect::types::FilePath;
use architect::view::sanitize;
use architect::workspace::worktree::{
    MergeOutcome, Worktree, WorktreeError, WorktreeInfo, Worktrees,
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use crate::cli::args::{WorktreesArgs, WorktreesCommand};
use crate::cli::error::CliError;
use crate::cli::{config_options, output, worktree_run};

/// The exit code of a merge that made protected files harmless, or left temporary files.
const NOT_ALL_MERGED: u8 = 2;

/// The result of a merge.
pub(super) struct MergeReport {
    /// A [`MergeDocument`].
    pub document: Value,
    pub text: String,
    pub exit_code: u8,
}

pub(crate) fn run(args: &WorktreesArgs, world: &ProcessEnv) -> Result<u8, CliError> {
    let config = config_options::load_layers(&args.layers, world)?;
    let workspace = config.real_workspace();
    let worktrees = open_worktrees(world)?;
    // This comes before the sweep, which also completes removals, but does not report them here.
    let mut completed = Vec::new();
    if let Some(WorktreesCommand::Rm { names, .. }) = &args.command {
        let is_completed = |name: &&String| {
            worktrees.complete_removal(&workspace, name).is_ok_and(|is_completed| is_completed)
        };
        completed.extend(names.iter().filter(is_completed));
    }
    worktree_run::sweep(world);
    let mut exit_code = 0;
    let (json, text) = match args.command.as_ref().unwrap_or(&WorktreesCommand::List) {
        WorktreesCommand::List => {
            let listed = worktrees.list(&workspace)?;
            let text = match listed.is_empty() {
                true => "no worktrees\n".to_owned(),
                false => listed.iter().map(format_worktree).collect(),
            };
            let documents: Vec<_> = listed.iter().map(WorktreeDocument::from).collect();
            (json!(documents), text)
        }
        WorktreesCommand::Merge { name } => {
            let merged = merge(name, &worktrees, &config, world)?;
            exit_code = merged.exit_code;
            (merged.document, merged.text)
        }
        WorktreesCommand::Rm { names, force } => {
            let (mut documents, mut text) = (Vec::new(), String::new());
            let mut removals: Vec<Removal<'_>> = Vec::new();
            // All reasons to refuse are found before anything is removed.
            for name in names {
                if removals.iter().any(|removal| removal.name == name) {
                    continue;
                }
                removals.push(match completed.contains(&name) {
                    true => Removal { name, worktree: None, lost: String::new() },
                    false => Removal::prepare(name, *force, &worktrees, &workspace)?,
                });
            }
            for removal in removals {
                match removal.perform(*force, &worktrees) {
                    Ok((document, line)) => {
                        documents.push(document);
                        text.push_str(&line);
                    }
                    Err(error) if documents.is_empty() => return Err(error),
                    Err(error) => {
                        // Completed removals are reported even if a later one fails.
                        output::print(&if args.json { output::to_json(&documents) } else { text })?;
                        return Err(error);
                    }
                }
            }
            match names.len() {
                1 => (documents.remove(0), text),
                _ => (json!(documents), text),
            }
        }
    };
    output::print(&if args.json { json.to_string() } else { text })?;
    Ok(exit_code)
}

/// A worktree that can be removed.
struct Removal<'a> {
    name: &'a str,
    /// `None` if an earlier removal had failed and is now complete.
    worktree: Option<Worktree>,
    /// The lost work, for messages.
    lost: String,
}

impl<'a> Removal<'a> {
    /// Opens a worktree. Fails if it is unknown or in use. Unless forced, also fails if its work would be lost.
    fn prepare(
        name: &'a str,
        force: bool,
        worktrees: &Worktrees,
        workspace: &Path,
    ) -> Result<Self, CliError> {
        if worktrees.complete_removal(workspace, name)? {
            return Ok(Self { name, worktree: None, lost: String::new() });
        }
        let worktree = worktrees.open(workspace, name)?;
        let lost = match worktrees.loss(&worktree) {
            Ok(Some(loss)) if !force => {
                return Err(WorktreeError::HasWork { name: name.to_owned(), loss }.into());
            }
            Err(error) if !force => return Err(error.into()),
            Ok(Some(loss)) => format!("; lost: {loss}"),
            Ok(None) => String::new(),
            Err(error) => format!("; its content is unknown: {error}"),
        };
        Ok(Self { name, worktree: Some(worktree), lost })
    }

    /// Removes the worktree. Returns the result as JSON and as text.
    fn perform(self, force: bool, worktrees: &Worktrees) -> Result<(Value, String), CliError> {
        if let Some(worktree) = self.worktree {
            worktrees.remove(worktree, force)?;
        }
        Ok(removed(self.name, &self.lost))
    }
}

/// Returns the result of a removal as JSON and as text.
fn removed(name: &str, lost: &str) -> (Value, String) {
    let document = json!(RemovedWorktree { name: name.to_owned(), removed: true });
    (document, format!("worktree {name} removed{lost}\n"))
}

/// Merges a worktree into the workspace of a configuration.
pub(super) fn merge(
    name: &str,
    worktrees: &Worktrees,
    config: &Config,
    world: &ProcessEnv,
) -> Result<MergeReport, CliError> {
    let workspace = config.real_workspace();
    let mut worktree = worktrees.open(&workspace, name)?;
    let confined = SandboxedGit { config, env: world };
    let watch = watch_writes(config, world, &workspace);
    let outcome = worktrees.merge(&mut worktree, &confined)?;
    let denied = watch.finish();
    let remove = format!("`architect worktrees rm {name}` removes the worktree");
    let (merged, mut text) = match outcome {
        MergeOutcome::Nothing => (MergedWork::Nothing, "nothing to merge\n".to_owned()),
        MergeOutcome::FastForward(commit) => {
            let text = format!("fast-forward to {}; {remove}\n", short(&commit));
            (MergedWork::FastForward { commit }, text)
        }
        MergeOutcome::Files(changes) => {
            let paths = changes.into_iter().map(|change| change.path);
            let files: Vec<FilePath> = paths.collect();
            let line = |path: &FilePath| format!("  {}\n", sanitize::line(&path.to_string()));
            let lines: String = files.iter().map(line).collect();
            let text = format!("changed, and not committed:\n{lines}{remove}\n");
            (MergedWork::Files { files }, text)
        }
    };
    let left: Vec<_> = worktree.leftovers().iter().map(|it| it.display().to_string()).collect();
    for path in &left {
        let path = sanitize::line(path);
        text.push_str(&format!("could not be removed, and is not needed any more: {path}\n"));
    }
    if !left.is_empty() {
        text.push_str(&format!("`architect worktrees merge {name}` tries again\n"));
    }
    let exit_code = if denied.is_empty() && left.is_empty() { 0 } else { NOT_ALL_MERGED };
    let document = json!(MergeDocument { name: name.to_owned(), merged, denied, left });
    Ok(MergeReport { document, text, exit_code })
}

pub(super) fn short(commit: &str) -> &str {
    commit.get(..12).unwrap_or(commit)
}

/// A worktree, as `architect worktrees --json` lists it.
#[derive(Serialize, JsonSchema)]
pub(crate) struct WorktreeDocument {
    /// The name.
    name: String,
    /// The branch; null for a copy of a folder without git.
    branch: Option<String>,
    /// The folder.
    folder: String,
    /// The workspace from which the worktree was created.
    workspace: String,
    /// The session that works in the worktree.
    session_id: Option<String>,
    /// Whether a process is using the worktree.
    in_use: bool,
    /// Whether the worktree was removed only in part.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    removal_incomplete: bool,
    /// Whether the worktree has work that exists nowhere else.
    changed: bool,
    /// The number of commits since the worktree was created.
    commits: u64,
    /// The number of files that have changed since then, committed or not.
    files_changed: u64,
    /// The number of added lines; null without git.
    lines_added: Option<u64>,
    /// The number of removed lines; null without git.
    lines_removed: Option<u64>,
    /// The paths with uncommitted changes.
    uncommitted: Vec<String>,
}

impl From<&WorktreeInfo> for WorktreeDocument {
    fn from(worktree: &WorktreeInfo) -> Self {
        let counted = worktree.changes.clone().unwrap_or_default();
        Self {
            name: worktree.name.clone(),
            branch: worktree.branch.clone(),
            folder: worktree.folder.display().to_string(),
            workspace: worktree.workspace.display().to_string(),
            session_id: worktree.session.clone(),
            in_use: worktree.is_used,
            removal_incomplete: worktree.is_removed,
            changed: worktree.has_work,
            commits: counted.commits,
            files_changed: counted.files,
            lines_added: counted.added,
            lines_removed: counted.removed,
            uncommitted: counted.uncommitted.iter().map(|it| it.display().to_string()).collect(),
        }
    }
}

/// The result of `architect worktrees merge --json`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct MergeDocument {
    /// The worktree.
    name: String,
    #[serde(flatten)]
    merged: MergedWork,
    /// A sentence for each file that was made harmless.
    denied: Vec<String>,
    /// Temporary files that could not be removed from the workspace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    left: Vec<String>,
}

/// The result of the merge.
#[derive(Serialize, JsonSchema)]
#[serde(tag = "merged", rename_all = "kebab-case")]
enum MergedWork {
    /// Nothing was merged.
    Nothing,
    /// The user's branch was moved forward.
    FastForward {
        /// The new commit of the branch.
        commit: String,
    },
    /// Files were changed, without a commit.
    Files {
        /// The paths. A path that is not UTF-8 is a NUL character and its bytes in hexadecimal.
        #[schemars(with = "Vec<String>")]
        files: Vec<FilePath>,
    },
}

/// The result of `architect worktrees rm --json` for one worktree.
#[derive(Serialize, JsonSchema)]
pub(crate) struct RemovedWorktree {
    /// The name.
    name: String,
    /// Always true.
    removed: bool,
}

/// The result of `architect worktrees rm --json`.
#[derive(JsonSchema)]
#[serde(untagged)]
#[allow(dead_code)] // names the forms of the document for their schema
pub(crate) enum RemovedWorktrees {
    /// The result for one worktree.
    One(RemovedWorktree),
    /// The results for several worktrees.
    Several(Vec<RemovedWorktree>),
}

fn format_worktree(worktree: &WorktreeInfo) -> String {
    let WorktreeInfo { name, branch, folder, session, is_used, is_removed, changes, .. } = worktree;
    let state = match (is_used, is_removed) {
        (true, _) => " (in use)",
        (_, true) => " (removal incomplete)",
        _ => "",
    };
    let changes = match changes {
        Some(changes) => changes.to_string(),
        None if *is_removed => format!("`architect worktrees rm {name}` removes the rest"),
        None => "its changes can't be determined".to_owned(),
    };
    let branch = branch.as_deref().unwrap_or("a copy, without git");
    format!(
        "{name}{state}\n    branch   {branch}\n    changes  {changes}\n    session  {}\n    folder   {}\n",
        session.as_deref().unwrap_or("-"),
        sanitize::path(folder)
    )
}
