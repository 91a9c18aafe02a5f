//! New commits of a run with files from which git runs programs once the user checks them out.

use std::ffi::OsString;
use std::time::Duration;

use super::sandbox::Sandbox;
use crate::exec::{CommandEnd, CommandSpec, followed_by_git};
use crate::port::CancellationToken;
use crate::workspace::LinkResolver;

/// The references of a repository before a run, if a git configuration names files of the work tree.
///
/// Commands can't write these files, but they can commit replacements for them.
pub struct CommitWatch<'a> {
    sandbox: &'a Sandbox,
    paths: Vec<String>,
    /// The commits of all references.
    tips: Vec<String>,
}

/// The time limit of a git command.
const GIT_TIMEOUT: Duration = Duration::from_secs(5);

/// The maximum number of bytes of git's output.
const MAX_OUTPUT: usize = 1 << 20;

/// The maximum number of references that are compared.
const MAX_TIPS: usize = 5_000;

/// The maximum number of files that a notice names.
const MAX_SHOWN: usize = 5;

impl<'a> CommitWatch<'a> {
    /// Reads the references before a run. Returns `None` if git runs nothing of the work tree, if commands are not
    /// confined, or if there are too many references.
    pub fn begin(sandbox: &'a Sandbox) -> Option<Self> {
        let policy = sandbox.model.policy();
        if policy.is_off() {
            return None;
        }
        let workspace = &policy.workspace;
        let named =
            followed_by_git(workspace, workspace, &policy.user_git, &LinkResolver::default());
        let inside = named.iter().filter_map(|path| path.strip_prefix(workspace).ok());
        let inside = inside.filter(|path| !path.starts_with(".git"));
        let paths: Vec<String> =
            inside.filter_map(|path| Some(path.to_str()?.to_owned())).collect();
        if paths.is_empty() {
            return None;
        }
        let tips = run_git(sandbox, &["rev-list", "--all", "--no-walk=unsorted"])?;
        let is_hash = |line: &&str| line.bytes().all(|byte| byte.is_ascii_hexdigit());
        let tips: Vec<String> = tips.lines().filter(is_hash).map(str::to_owned).collect();
        (tips.len() <= MAX_TIPS).then_some(Self { sandbox, paths, tips })
    }

    /// Returns a sentence about the files that new commits change; `None` if they change none.
    pub fn notice(&self) -> Option<String> {
        let mut args = vec!["log", "--all", "-m", "--format=", "--name-only", "--not"];
        args.extend(self.tips.iter().map(String::as_str));
        args.push("--");
        let paths: Vec<String> =
            self.paths.iter().map(|path| format!(":(literal){path}")).collect();
        args.extend(paths.iter().map(String::as_str));
        let found = run_git(self.sandbox, &args)?;
        let mut files: Vec<&str> = found.lines().filter(|line| !line.is_empty()).collect();
        files.sort_unstable();
        files.dedup();
        let more = if files.len() > MAX_SHOWN { " and more" } else { "" };
        files.truncate(MAX_SHOWN);
        (!files.is_empty()).then(|| {
            format!(
                "commits of this run change {}{more}, which your git runs or follows once they are checked out: look at \
                 them first (git log -p --all -- {})",
                files.join(", "),
                files.join(" ")
            )
        })
    }
}

/// Returns the output of git, confined as the commands of the model are; `None` if git fails.
fn run_git(sandbox: &Sandbox, args: &[&str]) -> Option<String> {
    let argv = ["git", "--no-pager", "-c", "core.quotePath=true"].iter().chain(args);
    let argv = argv.map(OsString::from).collect();
    let mut command = CommandSpec::new(argv, &sandbox.checks.policy().workspace);
    (command.timeout, command.kept_bytes) = (Some(GIT_TIMEOUT), MAX_OUTPUT);
    let outcome = sandbox.checks.run(&command, &CancellationToken::new()).ok()?;
    (outcome.end == CommandEnd::Exited(0)).then(|| outcome.stdout.text())
}
