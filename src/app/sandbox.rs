//! How commands are run: confined as the settings say, without secrets, with a temporary folder of their own.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use rustix::fs::{Access, access};

use super::error::AppError;
use super::world::World;
use crate::config::{self, Config};
use crate::exec::{
    Command, Enforced, Filter, Level, Mode, Need, Network, Policy, Supervisor, TempOwner, clean,
    sweep,
};
use crate::model::wildcard;
use crate::port::unique;
use crate::tools::permission::GuardedFiles;

/// Where commands run: those of the model confined, those of the user as the user.
#[derive(Clone)]
pub struct Sandbox {
    /// Gone with the last clone, and before the supervisors, who see to it when this process is killed.
    _temp: Arc<Temp>,
    /// Runs the model's commands, and the quality gates that judge its work.
    pub model: Supervisor,
    /// Runs the user's own commands: hooks.
    pub user: Supervisor,
}

/// The folder for temporary files, which is made when the first command runs.
struct Temp(PathBuf);

impl Temp {
    /// Names a folder that nobody can have foreseen: where everybody has them or, where that is no use, among our own
    /// files.
    fn new(world: &World) -> Self {
        let name = unique().simple().to_string();
        // The random half; paths of sockets have to be short.
        let name = format!("architect-{}", &name[20..]);
        let usual = std::env::temp_dir();
        let writable = Access::WRITE_OK | Access::EXEC_OK;
        let own = || {
            let own = world.folders().state?.join("tmp");
            let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&own);
            made.ok().map(|()| own)
        };
        let folder = match usual.is_dir() && access(&usual, writable).is_ok() {
            true => usual,
            false => own().unwrap_or(usual),
        };
        sweep(&folder, "architect-");
        Self(folder.join(name))
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        match fs::remove_dir_all(&self.0) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                log::debug!("the temporary files in {} stay: {error}", self.0.display());
            }
            _ => {}
        }
    }
}

/// What a command may not write although it lies in the workspace: what the user's own programs would run or obey.
const PROTECTED: [&str; 5] =
    [".git/hooks", ".git/config", ".git/config.worktree", ".git/commondir", ".architect"];

/// The same where the repository lies elsewhere, and a file says where.
const PROTECTED_ELSEWHERE: [&str; 2] = [".git", ".architect"];

impl Sandbox {
    /// Returns what commands run in. Nothing is started before the first command, except to see that a level which is
    /// required can be had.
    ///
    /// # Errors
    ///
    /// Fails when a required level can't be had.
    pub fn new(
        config: &Config,
        world: &World,
        workspace: PathBuf,
        guarded: GuardedFiles,
    ) -> Result<Self, AppError> {
        let temp = Temp::new(world);
        let env = environment(config, world, &temp.0);
        let mut policy = policy(config, world, workspace.clone(), &temp.0);
        policy.protected.extend(guarded.protected);
        policy.hidden.extend(guarded.sensitive);
        let needs = policy.need == Need::Required;
        let free = Policy {
            temp: temp.0.clone(),
            temp_owner: TempOwner::Supervisors,
            ..Policy::off(workspace)
        };
        let sandbox = Self {
            model: Supervisor::new(policy, env.clone()),
            user: Supervisor::new(free, env),
            _temp: Arc::new(temp),
        };
        if needs {
            sandbox.model.enforced()?;
        }
        Ok(sandbox)
    }

    /// Returns how commands are really confined, in words for the log.
    ///
    /// # Errors
    ///
    /// Fails when no command can be run.
    pub fn described(&self) -> Result<String, AppError> {
        let Enforced { level, holes, why } = self.model.enforced()?;
        let level = match level {
            Level::None => "not confined",
            Level::Seatbelt => "confined by the system's sandbox",
            Level::Landlock => "confined by Landlock and a system call filter",
            Level::Namespaces => "confined by namespaces, Landlock and a system call filter",
        };
        let holes: Vec<String> = holes.iter().map(ToString::to_string).collect();
        let open = match holes.len() {
            0 => String::new(),
            _ => format!("; left open: {}", holes.join(", ")),
        };
        let why = why.map_or(String::new(), |why| format!(" ({why})"));
        Ok(format!("{level}{open}{why}"))
    }

    /// Returns a command of the workspace, for a shell.
    pub(super) fn command(&self, line: &str) -> Command {
        Command::shell(line, &self.model.policy().workspace)
    }
}

fn policy(config: &Config, world: &World, workspace: PathBuf, temp: &Path) -> Policy {
    let sandbox = &config.settings.sandbox;
    let state = world.folders().state.into_iter().chain(config.settings.sessions.dir.clone());
    let is_elsewhere = workspace.join(".git").is_file();
    let own = if is_elsewhere { &PROTECTED_ELSEWHERE[..] } else { &PROTECTED };
    Policy {
        mode: match sandbox.mode {
            config::SandboxMode::ReadOnly => Mode::ReadOnly,
            config::SandboxMode::WorkspaceWrite => Mode::WorkspaceWrite,
            config::SandboxMode::Off => Mode::Off,
        },
        network: match sandbox.network {
            config::Network::On => Network::On,
            config::Network::Off => Network::Off,
        },
        need: if sandbox.required { Need::Required } else { Need::Preferred },
        ceiling: Level::Namespaces,
        temp: temp.to_owned(),
        temp_owner: TempOwner::Supervisors,
        writable: sandbox.writable.clone(),
        protected: own.iter().map(|path| workspace.join(path)).chain(state).collect(),
        workspace,
        ..Policy::off("")
    }
}

fn environment(
    config: &Config,
    world: &World,
    temp: &Path,
) -> Vec<(std::ffi::OsString, std::ffi::OsString)> {
    let commands = &config.settings.commands;
    let among = |list: &[String], name: &str| list.iter().any(|item| wildcard(item, name));
    let rule = |name: &str| {
        if among(&commands.env_exclude, name) {
            Some(false)
        } else {
            among(&commands.env_include, name).then_some(true)
        }
    };
    clean(world.variables.iter().cloned(), &Filter { rule: &rule }, temp)
}
