//! A worker: a process or a thread that supervises one command after another.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal};
use uuid::Uuid;

use super::helper;
use super::process_tree::ProcessTree;
use super::protocol::{ReceivedMessage, SupervisorCommand, SupervisorLink, SupervisorReport};
use super::supervise::{CommandStart, SupervisionRules, serve};
use crate::exec::command::ExecError;
use crate::exec::command_env::Variable;
use crate::exec::confine::policy::SandboxPolicy;
use crate::exec::confine::temp_folder;
use crate::exec::confine::{Enforcement, SandboxLevel};
use crate::exec::egress::EgressProxy;
use crate::exec::protected::absent_paths::AbsentPaths;
#[cfg(target_os = "linux")]
use crate::exec::protected::covered::CoveredPaths;
use crate::exec::protected::snapshot::ProtectedPaths;

/// The backend of workers: processes or threads.
pub(in crate::exec) enum WorkerBackend {
    /// Processes of a program that calls [`helper::main`].
    Process(PathBuf),
    /// Threads of this process.
    Thread,
}

/// A worker that has reported the confinement of its commands.
pub(in crate::exec) struct SupervisorWorker {
    pub link: SupervisorLink,
    pub enforced: Enforcement,
    /// The proxy for its commands; only with a list of hosts.
    pub egress: Option<EgressProxy>,
    /// The protected paths that did not exist at the start, checked after each command.
    absent: AbsentPaths,
    /// The covered files, including those of other programs.
    #[cfg(target_os = "linux")]
    covered: CoveredPaths,
    /// The folder for copies of configuration files, relative to the folder for temporary files.
    pub copies: PathBuf,
    /// The process; `None` for a thread, which ends with its link.
    process: Option<Child>,
}

/// The time limit for an unused worker to end.
const EXIT_TIMEOUT: Duration = Duration::from_secs(6);

impl SupervisorWorker {
    /// Starts a worker.
    pub(in crate::exec) fn start(
        means: &WorkerBackend,
        policy: &SandboxPolicy,
        env: &[Variable],
    ) -> Result<Self, ExecError> {
        match means {
            WorkerBackend::Thread => Self::start_thread(policy, env),
            WorkerBackend::Process(program) => Self::start_at_highest_level(program, policy, env),
        }
    }

    /// Tries the levels of confinement, from the highest to the lowest.
    fn start_at_highest_level(
        program: &Path,
        policy: &SandboxPolicy,
        env: &[Variable],
    ) -> Result<Self, ExecError> {
        // The name is unpredictable, so that no command can create the folder first.
        let copies = PathBuf::from(format!(".git-{}", Uuid::now_v7().simple()));
        let policy = &SandboxPolicy { copies, ..policy.clone() };
        let mut ceiling = policy.ceiling;
        let mut why = None;
        loop {
            let no_process = |error: io::Error| match is_shortage(&error) {
                true => ExecError::OutOfResources(error.to_string()),
                false => ExecError::Supervisor(error),
            };
            let mut worker = Self::process(program, policy, env).map_err(no_process)?;
            match worker.negotiate(policy, ceiling, why)? {
                Ok((enforced, listener)) => {
                    #[cfg(target_os = "linux")]
                    worker.covered.limited_to(&enforced);
                    worker.enforced = enforced;
                    let hosts = || policy.allowed_hosts.clone();
                    let serve = |listener: OwnedFd| EgressProxy::start(listener.into(), hosts());
                    let exhausted = |error: io::Error| ExecError::OutOfResources(error.to_string());
                    worker.egress = listener.map(serve).transpose().map_err(exhausted)?;
                    return Ok(worker);
                }
                Err(reason) if ceiling == SandboxLevel::Namespaces => {
                    ceiling = SandboxLevel::Landlock;
                    why = Some(reason);
                }
                Err(reason) => return Err(ExecError::Unconfined(reason)),
            }
        }
    }

    /// Returns a worker that is not started yet, and its end of the connection. Files created from now on must not be
    /// visible to it.
    fn prepare(policy: &SandboxPolicy) -> io::Result<(Self, SupervisorLink)> {
        let (link, theirs) = SupervisorLink::pair()?;
        let worker = Self {
            link,
            enforced: Enforcement::none(),
            egress: None,
            absent: AbsentPaths::new(policy),
            #[cfg(target_os = "linux")]
            covered: CoveredPaths::default(),
            copies: policy.copies.clone(),
            process: None,
        };
        Ok((worker, theirs))
    }

    fn process(program: &Path, policy: &SandboxPolicy, env: &[Variable]) -> io::Result<Self> {
        let (mut worker, theirs) = Self::prepare(policy)?;
        #[cfg(target_os = "linux")]
        (worker.covered = CoveredPaths::by(policy));
        let process = std::process::Command::new(program)
            .arg(helper::ARGUMENT)
            .env_clear()
            .envs(env.iter().map(|(name, value)| (name, value)))
            .current_dir("/")
            .stdin(theirs.into_socket())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        worker.process = Some(process);
        Ok(worker)
    }

    /// Sends the policy to the worker. Returns its enforcement with the socket for its proxy, or the reason why it
    /// cannot confine commands at this level.
    fn negotiate(
        &mut self,
        policy: &SandboxPolicy,
        ceiling: SandboxLevel,
        why: Option<String>,
    ) -> Result<Result<(Enforcement, Option<OwnedFd>), String>, ExecError> {
        let failed = ExecError::Supervisor;
        let ask = SupervisorCommand::Confine { policy: Box::new(policy.clone()), ceiling, why };
        self.link.send(&ask, &[], &[]).map_err(failed)?;
        let answer = self.link.receive().map_err(failed)?;
        match answer.map(|ReceivedMessage { message, files, .. }| (message, files)) {
            Some((SupervisorReport::Ready(enforced), files)) => {
                Ok(Ok((enforced, files.into_iter().next())))
            }
            Some((SupervisorReport::Lower(why), _)) => Ok(Err(why)),
            Some((SupervisorReport::Unable(why), _)) => Err(ExecError::Unconfined(why)),
            Some((SupervisorReport::NoTemp(why), _)) => Err(ExecError::NoTemp(why)),
            Some((SupervisorReport::OutOfResources(why), _)) => Err(ExecError::OutOfResources(why)),
            Some(_) | None => {
                let error = "the program did not answer as a supervisor does";
                Err(failed(io::Error::new(io::ErrorKind::InvalidData, error)))
            }
        }
    }

    fn start_thread(policy: &SandboxPolicy, env: &[Variable]) -> Result<Self, ExecError> {
        let why = "commands are not run by the architect program".to_owned();
        let enforced = Enforcement::unconfined(policy, why).map_err(ExecError::Unconfined)?;
        temp_folder::create(policy).map_err(|error| ExecError::NoTemp(error.to_string()))?;
        let (mut worker, theirs) = Self::prepare(policy).map_err(ExecError::Supervisor)?;
        worker.enforced = enforced;
        let env = env.to_vec();
        let rules = SupervisionRules::new(policy, ProcessTree::Group, ProtectedPaths::new(policy));
        let body = move || {
            let start = |start: CommandStart| {
                start.spawn(|command| command.env_clear().envs(env.iter().cloned()))
            };
            if let Err(error) = serve(&theirs, &rules, start) {
                log::debug!("a supervisor thread failed: {error}");
            }
        };
        let started = thread::Builder::new().name("supervisor".to_owned()).spawn(body);
        started.map_err(|error| ExecError::OutOfResources(error.to_string()))?;
        Ok(worker)
    }

    /// Waits for a report; `None` if the worker has ended.
    pub(super) fn receive_report(&self) -> Option<SupervisorReport> {
        Some(self.link.receive().ok()??.message)
    }

    /// Kills the process group of a command whose supervisor has ended.
    pub(super) fn kill_group(&self, leader: Option<Pid>) {
        // A namespace ends with its first process, and its process IDs have no meaning outside.
        if let Some(leader) = leader.filter(|_| self.enforced.level != SandboxLevel::Namespaces) {
            ProcessTree::signal(leader, Signal::KILL);
        }
    }

    /// Renames files at protected paths that did not exist when the worker started, and returns these paths.
    pub(super) fn rename_created(&self) -> Vec<PathBuf> {
        self.absent.rename_created()
    }

    /// Returns the paths that were covered when the worker started, but now hold another file that is not covered.
    #[cfg(target_os = "linux")]
    pub(super) fn uncovered(&self) -> Vec<PathBuf> {
        self.covered.replaced().cloned().collect()
    }

    /// Returns an empty list: nothing is covered.
    #[cfg(not(target_os = "linux"))]
    #[allow(clippy::unused_self)] // the same function as on Linux
    pub(super) fn uncovered(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Returns whether the worker is alive and still protects everything.
    pub(in crate::exec) fn is_usable(&mut self) -> bool {
        if self.absent.is_outdated() {
            // The path exists now, and a new worker can make it read-only.
            return false;
        }
        #[cfg(target_os = "linux")]
        if self.covered.is_outdated() {
            return false;
        }
        let mut fds = [PollFd::new(&self.link, PollFlags::IN)];
        // An idle worker sends nothing, so its link becomes readable only when it is closed.
        matches!(poll(&mut fds, Some(&Timespec::default())), Ok(0))
    }
}

/// Returns whether an error means that the system is short of processes, threads or memory. Such a failure does not
/// show what the system supports.
pub(in crate::exec) fn is_shortage(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory)
}

impl Drop for SupervisorWorker {
    /// Ends the worker and everything that it supervises.
    fn drop(&mut self) {
        let Some(process) = &mut self.process else { return };
        self.link.finish();
        let until = Instant::now() + EXIT_TIMEOUT;
        let mut pause = Duration::from_micros(100);
        while let Ok(None) = process.try_wait() {
            if Instant::now() >= until {
                let _ = process.kill();
                let _ = process.wait();
                return;
            }
            thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(20));
        }
    }
}
