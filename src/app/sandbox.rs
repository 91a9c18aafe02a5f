//! Execution of commands: confined as configured, without secrets, with a separate temporary folder.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::{fs, io};

use rustix::fs::{Access, access};
use rustix::process::geteuid;
use sha2::{Digest, Sha256};

use super::error::AppError;
use super::hidden_paths::{hidden_paths, redacted_files, secret_settings};
use super::process_env::ProcessEnv;
use super::skills::{SkillSources, UserSkills};
use crate::config::{self, Config, HookConfinement, LayerRank, TRUST_VARIABLE};
use crate::exec::{
    self, CONFINEMENT_HELP, CommandSpec, Enforcement, LinkedRepositoryAccess, NetworkAccess,
    PackageCaches, ResourceLimits, SandboxLevel, SandboxMode, SandboxPolicy, SandboxRequirement,
    Supervisor, TEMP_PREFIX, TempOwner, UserGitConfig, VariableFilter, WriteWatch,
    clean_environment, new_temp_name, remove_abandoned,
};
use crate::policy::GuardedFiles;
use crate::port::lock;
use crate::types::{hex, matches_wildcard};
use crate::workspace::worktree::{BRANCH_PREFIX, is_isolated};
use crate::workspace::{LinkResolver, remove_tree};

/// Runs commands: those of the model confined, those of the user with the user's rights.
#[derive(Clone)]
pub struct Sandbox {
    /// Removed with the last clone, and before the supervisors, which remove the folders if this process is killed.
    _temp: Arc<[SandboxTemp; 3]>,
    /// Runs the model's commands, and MCP servers.
    pub model: Supervisor,
    /// Runs hooks, quality gates and git: confined like the model's commands, since they execute what those have
    /// written, and with separate temporary files.
    pub checks: Supervisor,
    /// Runs the hooks that the user allows to run unconfined.
    pub user: Supervisor,
}

/// The folder for temporary files, created when the first command runs.
struct SandboxTemp(PathBuf);

impl SandboxTemp {
    /// Chooses a folder with an unpredictable name: in the folder for temporary files or, if that is not usable, in
    /// this program's state folder.
    fn new(world: &ProcessEnv) -> Self {
        let usual = std::env::temp_dir();
        let writable = Access::WRITE_OK | Access::EXEC_OK;
        let is_usable = usual.is_dir() && access(&usual, writable).is_ok();
        let own = world.folders().state.map(|state| state.join("tmp")).filter(|own| {
            let mut builder = fs::DirBuilder::new();
            !is_usable && builder.recursive(true).mode(0o700).create(own).is_ok()
        });
        let folder = own.unwrap_or(usual);
        if is_first_cleanup(&folder) {
            remove_abandoned(&folder, TEMP_PREFIX);
        }
        Self(folder.join(new_temp_name()))
    }
}

impl Drop for SandboxTemp {
    fn drop(&mut self) {
        match remove_tree(&self.0) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                log::debug!("the temporary files in {} stay: {error}", self.0.display());
            }
            _ => {}
        }
    }
}

/// Paths in the workspace that commands can't write, because the user's own programs would execute or follow them.
///
/// The supervisor protects the paths that git executes or follows.
const PROTECTED_PATHS: [&str; 5] = [".agents", ".architect", ".claude", ".codex", ".mcp.json"];

/// Paths at the top of a workspace that other version control systems execute or follow: Mercurial, Jujutsu.
const OTHER_REPOSITORIES: [&str; 5] = [
    ".hg/hgrc",
    ".hg/hgrc-not-shared",
    ".hg/sharedpath",
    ".jj/repo/config.toml",
    ".jj/workspace-config.toml",
];

/// Paths in the state folders of this program that it writes while commands run.
const OWN_STATE: &str =
    "caches index.db index.db-journal index.db-lock repositories sessions tmp workspaces worktrees";

/// Folders of this program in a workspace: its results and worktrees.
pub(super) const OWN_FOLDERS: [&str; 4] =
    [".architect/batch", ".architect/loop", ".architect/pipeline", ".architect/worktrees"];

impl Sandbox {
    /// Returns the sandbox of a run. Nothing is started before the first command, except to check that a required level
    /// is available.
    ///
    /// # Errors
    ///
    /// Fails if a required level is unavailable.
    pub fn new(
        config: &Config,
        world: &ProcessEnv,
        workspace: PathBuf,
        guarded: GuardedFiles,
        skills: &UserSkills,
    ) -> Result<Self, AppError> {
        finish_interrupted(world);
        let temps = [(); 3].map(|()| SandboxTemp::new(world));
        let [for_model, for_checks, for_user] = temps.each_ref().map(|temp| temp.0.clone());
        let env = |temp: &Path| command_environment(config, world, temp);
        let mut policy = build_policy(config, world, workspace.clone(), &for_model, skills);
        policy.protected.extend(guarded.protected);
        policy.hidden.extend(guarded.sensitive);
        let needs = policy.need == SandboxRequirement::Required;
        let free = SandboxPolicy {
            temp: for_user.clone(),
            temp_owner: TempOwner::Supervisors,
            ..SandboxPolicy::off(workspace)
        };
        // Each supervisor keeps a separate record of the paths that its commands must not change.
        let record_path = record_path(world);
        let checks = SandboxPolicy { temp: for_checks.clone(), record_path, ..policy.clone() };
        let sandbox = Self {
            model: Supervisor::new(policy, env(&for_model)),
            checks: Supervisor::new(checks, env(&for_checks)),
            user: Supervisor::new(free, env(&for_user)),
            _temp: Arc::new(temps),
        };
        if needs {
            sandbox.model.enforcement()?;
        }
        Ok(sandbox)
    }

    /// Returns the actual confinement of commands, in words for the log.
    ///
    /// # Errors
    ///
    /// Fails if no command can be run.
    pub fn describe(&self) -> Result<String, AppError> {
        let Enforcement { level, gaps, reason } = self.model.enforcement()?;
        let name = match level {
            SandboxLevel::None => "not confined",
            SandboxLevel::Seatbelt => "confined by the system's sandbox",
            SandboxLevel::Landlock => "confined by Landlock and a system call filter",
            SandboxLevel::Namespaces => "confined by namespaces, Landlock and a system call filter",
        };
        let gaps: Vec<String> = gaps.iter().map(ToString::to_string).collect();
        let open = if gaps.is_empty() { "" } else { "; left open: " };
        let reason = reason.map_or(String::new(), |reason| format!(" ({reason})"));
        let is_enough = level > SandboxLevel::Landlock || self.model.policy().is_off();
        let help = if is_enough { String::new() } else { format!("; {CONFINEMENT_HELP}") };
        Ok(format!("{name}{open}{}{reason}{help}", gaps.join(", ")))
    }

    /// Returns a shell command in the workspace.
    pub(super) fn command(&self, line: &str) -> CommandSpec {
        CommandSpec::shell(line, &self.model.policy().workspace)
    }
}

/// The folders in which this process has cleaned up after killed processes.
static CLEANED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Returns whether this is the first cleanup of a folder in this process, which may have thousands of runs.
fn is_first_cleanup(folder: &Path) -> bool {
    lock(&CLEANED).insert(folder.to_owned())
}

/// Cleans up, once in a process, after the commands and interrupted writes of killed runs.
pub fn finish_interrupted(world: &ProcessEnv) {
    let Some(state) = world.folders().state.filter(|state| is_first_cleanup(state)) else { return };
    for sentence in exec::finish_interrupted(&state, || user_git(world)) {
        log::warn!("after a run that was killed: {sentence}");
    }
}

/// Returns a warning if root runs this program in a workspace of another user: commands are confined without the
/// privileges of root, and can't write there.
pub fn foreign_workspace_warning(config: &Config, workspace: &Path) -> Option<String> {
    let is_confined = config.settings.sandbox.mode == SandboxMode::WorkspaceWrite;
    let found = workspace.metadata().ok()?;
    let (owner, mode) = (found.uid(), found.mode());
    let is_writable = owner == 0 || mode & 0o002 != 0 || found.gid() == 0 && mode & 0o020 != 0;
    (geteuid().is_root() && is_confined && !is_writable).then(|| {
        format!(
            "the workspace belongs to the user {owner}: confined commands of root have no privileges, and can't write \
             there; run architect as that user, such as by `docker run --user {owner}`"
        )
    })
}

fn build_policy(
    config: &Config,
    world: &ProcessEnv,
    workspace: PathBuf,
    temp: &Path,
    skills: &UserSkills,
) -> SandboxPolicy {
    let sandbox = &config.settings.sandbox;
    let links = LinkResolver::default();
    let writable = without_links_out("sandbox.writable", &sandbox.writable, &workspace);
    let readable = without_links_out("sandbox.readable", &sandbox.readable, &workspace);
    let folders = world.folders();
    let state = folders.state.into_iter().chain(config.settings.sessions.dir.clone());
    let state: Vec<PathBuf> = state.collect();
    let sessions = state.iter().filter(|path| !path.starts_with(&workspace));
    let sessions: Vec<PathBuf> = sessions.map(|path| path.join("sessions")).collect();
    let user_git = user_git(world);
    let followed = exec::followed_by_git(&workspace, &workspace, &user_git, &links);
    let home = folders.home.and_then(|home| home.canonicalize().ok());
    let dotfiles = home.map(|home| workspace_dotfiles(&home, &workspace, &writable, &links));
    let own = PROTECTED_PATHS.iter().chain(&OTHER_REPOSITORIES).map(|path| workspace.join(path));
    let own = exec::with_link_targets(own, &workspace, &links).into_iter().chain(followed);
    // The user's programs read this folder, and so does this program.
    let configs = world.variable("XDG_CONFIG_HOME").and_then(|path| links.resolve(path.as_ref()));
    let configs = configs.filter(|path| path.starts_with(&workspace) && *path != workspace);
    let own = own.chain(dotfiles.into_iter().flatten()).chain(configs);
    let user =
        folders.config.into_iter().chain(followed_files(config, world, &workspace, &user_git));
    let own = own.chain(user_files(user.collect(), skills, &workspace, &writable, &links));
    let settings = secret_settings(world);
    let hidden = hidden_paths(world, &settings, &sessions, &readable, &[&workspace, temp], &links);
    SandboxPolicy {
        mode: sandbox.mode,
        network: sandbox.network,
        allowed_hosts: sandbox.allowed_hosts.iter().cloned().collect(),
        // A list of hosts is meant to keep secrets in, so the confinement is required.
        need: if sandbox.required || sandbox.network == NetworkAccess::List {
            SandboxRequirement::Required
        } else {
            SandboxRequirement::Preferred
        },
        ceiling: SandboxLevel::Namespaces,
        temp: temp.to_owned(),
        temp_owner: TempOwner::Supervisors,
        writable,
        caches: build_caches(world, &workspace, temp),
        redacted: redacted_files(&settings, &hidden),
        hidden,
        readable,
        visible: skills.folders(),
        linked_repository: linked_repository_access(world, &workspace),
        limits: resource_limits(sandbox),
        own_state: state
            .iter()
            .flat_map(|folder| OWN_STATE.split_whitespace().map(|name| folder.join(name)))
            .chain(config.settings.sessions.dir.clone())
            // Other runs of this program may write there.
            .chain(
                OWN_FOLDERS
                    .map(|folder| workspace.join(folder))
                    .into_iter()
                    .filter(|it| it.is_dir()),
            )
            .collect(),
        protected: own.chain(state).collect(),
        record_path: record_path(world),
        obeyed: PROTECTED_PATHS.map(OsString::from).to_vec(),
        user_git,
        ..SandboxPolicy::off(workspace)
    }
}

/// Returns the files that the user's settings or options name: configurations, prices, and commands that may run
/// unconfined.
fn followed_files(
    config: &Config,
    world: &ProcessEnv,
    workspace: &Path,
    git: &UserGitConfig,
) -> Vec<PathBuf> {
    let config::Settings { llm, models, mcp, hooks, costs, .. } = &config.settings;
    let of_models = models.values().filter_map(|model| model.api_key_command.as_ref());
    let of_servers = mcp.servers.iter().filter_map(|server| server.oauth.as_ref());
    let of_servers = of_servers.filter_map(|oauth| oauth.client_secret_command.as_ref());
    let unconfined = hooks.0.values().flatten();
    let unconfined = unconfined.filter(|hook| hook.sandbox == HookConfinement::Off);
    let lines = llm.api_key_command.iter().chain(of_models).chain(of_servers);
    let lines = lines.chain(unconfined.map(|hook| &hook.command));
    let run = lines.flat_map(|line| {
        let folders = [workspace, &world.cwd].into_iter();
        folders.flat_map(|folder| git.paths_in_command(line, folder)).collect::<Vec<_>>()
    });
    let read = config.files.iter().filter(|file| file.rank != LayerRank::Project);
    read.map(|file| file.path.clone()).chain(costs.prices_file.clone()).chain(run).collect()
}

/// Returns the paths of the user's configuration and skills that are in the workspace or another writable folder,
/// including the targets of links there. Returns the workspace itself if it is inside such a path.
fn user_files(
    configuration: Vec<PathBuf>,
    skills: &UserSkills,
    workspace: &Path,
    writable: &[PathBuf],
    links: &LinkResolver,
) -> Vec<PathBuf> {
    let used = skills.folders();
    let SkillSources { folders, parents, .. } = skills.sources();
    let all: Vec<PathBuf> =
        configuration.into_iter().chain(folders.iter().chain(&used).cloned()).collect();
    let real: Vec<PathBuf> = all.iter().filter_map(|path| links.resolve(path)).collect();
    let is_around = real.iter().any(|path| workspace.starts_with(path));
    let open = writable.iter().filter_map(|path| links.resolve(path));
    let inside = open.chain([workspace.to_owned()]).flat_map(|open| {
        let mut found = exec::link_targets_within(all.iter().cloned(), &open, links);
        found.extend(exec::with_link_targets(parents.iter().cloned(), &open, links));
        found.extend(real.iter().filter(|path| **path == open).cloned());
        found
    });
    let mut found: Vec<PathBuf> = inside.chain(is_around.then(|| workspace.to_owned())).collect();
    found.sort();
    found.dedup();
    found
}

/// Returns a unique path for the record of a supervisor.
fn record_path(world: &ProcessEnv) -> Option<PathBuf> {
    world.folders().state.as_deref().map(exec::new_record_path)
}

/// Returns the paths with links resolved, without those that lead out of a folder that commands may write: commands or
/// the author of the repository may have made such links. Logs a warning for each removed path.
fn without_links_out(key: &str, paths: &[PathBuf], workspace: &Path) -> Vec<PathBuf> {
    let roots = paths.iter().map(PathBuf::as_path).chain([workspace]);
    let roots: Vec<PathBuf> = roots.filter_map(exec::resolve_path).collect();
    let kept = paths.iter().filter_map(|path| {
        let real = exec::resolve_within(path, &roots);
        if real.is_none() {
            log::warn!(
                "{} in {key} is a link out of a folder that commands may write, and is ignored; name the folder that is meant",
                path.display()
            );
        }
        real
    });
    kept.collect()
}

/// Watches the files that this program writes into a workspace for a run: restored, merged or applied files.
pub fn watch_writes(config: &Config, world: &ProcessEnv, workspace: &Path) -> WriteWatch {
    finish_interrupted(world);
    let workspace = workspace.canonicalize().unwrap_or_else(|_| workspace.to_owned());
    let skills = SkillSources::new(config, world).read();
    let mut policy = build_policy(config, world, workspace, &std::env::temp_dir(), &skills);
    // A run in a read-only workspace leaves nothing to protect there, so the policy is that of a writable one.
    if policy.mode == SandboxMode::ReadOnly {
        policy.mode = SandboxMode::WorkspaceWrite;
    }
    WriteWatch::begin(&policy)
}

fn user_git(world: &ProcessEnv) -> UserGitConfig {
    UserGitConfig::new(world.folders().home.as_deref(), world.text_variables())
}

/// Returns the access of commands to the repository of a linked work tree: for an isolated worktree, only its own
/// branch.
fn linked_repository_access(world: &ProcessEnv, workspace: &Path) -> LinkedRepositoryAccess {
    match world.folders().state {
        Some(state) if is_isolated(&state, workspace) => {
            let branches = Path::new("refs/heads").join(BRANCH_PREFIX.trim_end_matches('/'));
            LinkedRepositoryAccess::Branches(branches)
        }
        _ => LinkedRepositoryAccess::Shared,
    }
}

/// Returns the caches of package managers. Private ones are separate for each workspace, since a project must not
/// change the inputs of another project's build. Without a permanent folder, as in a container without a home, they are
/// temporary.
fn build_caches(world: &ProcessEnv, workspace: &Path, temp: &Path) -> PackageCaches {
    let folders = world.folders();
    let can_be_created = |path: &Path| {
        let around = path.ancestors().find(|it| it.symlink_metadata().is_ok());
        around.is_some_and(|it| it.is_dir() && access(it, Access::WRITE_OK).is_ok())
    };
    let all = folders.state.map(|state| state.join("caches")).filter(|all| can_be_created(all));
    let store = all.map_or_else(
        || temp.join("caches"),
        |all| all.join(hex(&Sha256::digest(workspace.as_os_str().as_bytes())[..8])),
    );
    PackageCaches::detect(store, folders.home.as_deref(), |name| world.variable(name))
}

fn resource_limits(sandbox: &config::SandboxConfig) -> ResourceLimits {
    let memory = match sandbox.max_memory_mb {
        Some(megabytes) => Some(megabytes.saturating_mul(1 << 20)),
        None => total_memory().map(|bytes| bytes / 4 * 3),
    };
    let processes = Some(sandbox.max_processes);
    ResourceLimits { processes, memory, ..ResourceLimits::default() }
}

/// Returns the memory of this machine, in bytes.
#[cfg(target_os = "linux")]
fn total_memory() -> Option<u64> {
    let about = fs::read_to_string("/proc/meminfo").ok()?;
    let total = about.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kilobytes: u64 = total.split_whitespace().next()?.parse().ok()?;
    Some(kilobytes << 10)
}

#[cfg(not(target_os = "linux"))]
fn total_memory() -> Option<u64> {
    None
}

/// Files of a home that programs read when they start, which may not exist yet.
const STARTUP_FILES: &str = "
    .bash_aliases .bash_login .bash_logout .bash_profile .bashrc .cshrc .login .profile .zprofile .zshenv .zshrc
    .config .envrc .gitconfig .inputrc .local .ssh .xprofile
";

/// Returns the dotfiles of the home that are in the workspace, including links to files there.
fn workspace_dotfiles(
    home: &Path,
    workspace: &Path,
    writable: &[PathBuf],
    links: &LinkResolver,
) -> Vec<PathBuf> {
    let below = |folder: &Path| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect::<Vec<_>>()
    };
    let is_dotfile = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
    };
    let there = below(home).into_iter().filter(is_dotfile).chain(below(&home.join(".config")));
    let all = there.chain(STARTUP_FILES.split_whitespace().map(|name| home.join(name)));
    let real = all.filter_map(|path| links.resolve(&path));
    let inside = real.filter(|path| path.starts_with(workspace) && path != workspace);
    // Paths that the user has made writable stay writable.
    let mut inside: Vec<PathBuf> =
        inside.filter(|path| !writable.iter().any(|open| open.starts_with(path))).collect();
    inside.sort();
    inside.dedup();
    inside
}

fn command_environment(
    config: &Config,
    world: &ProcessEnv,
    temp: &Path,
) -> Vec<(OsString, OsString)> {
    let commands = &config.settings.commands;
    let among = |list: &[String], name: &str| list.iter().any(|item| matches_wildcard(item, name));
    let rule = |name: &str| {
        // Trust applies to one run, not to runs that its commands may start.
        if name == TRUST_VARIABLE || among(&commands.env_exclude, name) {
            Some(false)
        } else {
            among(&commands.env_include, name).then_some(true)
        }
    };
    clean_environment(world.variables.iter().cloned(), &VariableFilter { rule: &rule }, temp)
}
