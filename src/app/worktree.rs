//! Isolated workspaces of runs: their location, and confined git commands for them.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::time::Duration;

use super::context::find_git;
use super::process_env::ProcessEnv;
use super::sandbox::Sandbox;
use super::skills::SkillSources;
use crate::config::Config;
use crate::exec::{CommandEnd, CommandSpec, SandboxMode};
use crate::policy::GuardedFiles;
use crate::port::CancellationToken;
use crate::view::WorktreeResult;
use crate::workspace::worktree::{ConfinedGit, GitProgram, Worktree, WorktreeError, Worktrees};

/// The time limit of filling a work tree with git, which includes downloads by a filter.
const GIT_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// Git settings that no repository may change: no hooks, no file system monitor, no maintenance.
const GIT_SETTINGS: [(&str, &str); 4] = [
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
];

/// Returns the worktrees of the user.
///
/// # Errors
///
/// Fails if there is no folder for the worktrees.
pub fn open_worktrees(env: &ProcessEnv) -> Result<Worktrees, WorktreeError> {
    let state = env.folders().state.ok_or(WorktreeError::NoStateFolder)?;
    let git = find_git(OsStr::new(env.variable("PATH").unwrap_or_default()));
    Ok(Worktrees::new(&state, git.map(|git| GitProgram::new(git, &env.variables))))
}

/// Runs git confined like the commands of a run in that work tree. The filters of the repository's configuration run,
/// as the user expects of a checkout, and have no more access than a command of the model.
#[derive(Clone, Copy)]
pub struct SandboxedGit<'a> {
    /// The configuration of the run.
    pub config: &'a Config,
    /// The environment of the process.
    pub env: &'a ProcessEnv,
}

impl ConfinedGit for SandboxedGit<'_> {
    fn run(&self, work_tree: &Path, args: &[&str]) -> Result<(), String> {
        let git = find_git(OsStr::new(self.env.variable("PATH").unwrap_or_default()));
        let git = git.ok_or_else(|| "git was not found".to_owned())?;
        let mut config = self.config.clone();
        let mode = &mut config.settings.sandbox.mode;
        if *mode == SandboxMode::ReadOnly {
            // Git creates the tree; this is not the work of the run.
            *mode = SandboxMode::WorkspaceWrite;
        }
        let guarded = GuardedFiles::default();
        let skills = SkillSources::new(&config, self.env).read();
        let sandbox = Sandbox::new(&config, self.env, work_tree.to_owned(), guarded, &skills)
            .map_err(|error| error.to_string())?;
        let argv = [git.into_os_string()].into_iter().chain(args.iter().map(OsString::from));
        let mut command = CommandSpec::new(argv.collect(), work_tree);
        command.timeout = Some(GIT_TIMEOUT);
        for (index, (key, value)) in GIT_SETTINGS.iter().enumerate() {
            command.env.push((format!("GIT_CONFIG_KEY_{index}").into(), key.into()));
            command.env.push((format!("GIT_CONFIG_VALUE_{index}").into(), value.into()));
        }
        command.env.push(("GIT_CONFIG_COUNT".into(), GIT_SETTINGS.len().to_string().into()));
        command.env.push(("GIT_TERMINAL_PROMPT".into(), "0".into()));
        let outcome = sandbox.checks.run(&command, &CancellationToken::new());
        let outcome = outcome.map_err(|error| error.to_string())?;
        match outcome.end {
            CommandEnd::Exited(0) => Ok(()),
            CommandEnd::Exited(_) => Err(outcome.stderr.text().trim().to_owned()),
            end => Err(format!("it ended unexpectedly: {end:?}")),
        }
    }
}

/// Returns the description of a worktree, for the result of its run.
pub fn worktree_result(worktree: &Worktree) -> WorktreeResult {
    let (changes, is_kept) = worktree
        .outcome()
        .inspect_err(|error| log::warn!("the changes in the worktree are unknown: {error}"))
        .map_or((None, true), |(changes, is_kept)| (Some(changes), is_kept));
    let name = worktree.name().to_owned();
    let command = |what: &str| is_kept.then(|| format!("architect worktrees {what} {name}"));
    let (merge_command, remove_command) = (command("merge"), command("rm"));
    let summary = changes.as_ref().map_or("unknown".to_owned(), ToString::to_string);
    let changes = changes.unwrap_or_default();
    WorktreeResult {
        branch: worktree.branch(),
        folder: worktree.folder().display().to_string(),
        commits: changes.commits,
        files_changed: changes.files,
        lines_added: changes.added,
        lines_removed: changes.removed,
        uncommitted: changes.uncommitted.iter().map(|path| path.display().to_string()).collect(),
        summary,
        kept: is_kept,
        merge_command,
        remove_command,
        name,
    }
}
