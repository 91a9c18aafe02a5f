//! Supervisors, as seen from the engine: reused workers, each running one command at a time.
//!
//! Starting and confining a supervisor costs more than starting a command, so a supervisor runs one command after
//! another. Nothing of a command survives it, so no state passes to the next one.

mod background;
#[cfg(target_os = "linux")]
mod children;
pub mod helper;
pub(super) mod process;
pub(super) mod process_tree;
pub(super) mod protocol;
pub(super) mod supervise;
pub(super) mod worker;

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::Pid;

use self::protocol::{CommandReport, StartFailure, SupervisorCommand, SupervisorReport};
use self::supervise::timespec;
use self::worker::{SupervisorWorker, WorkerBackend};
use super::capture::{OutputCapture, OutputSpool};
use super::command::{CommandEnd, CommandInput, CommandOutcome, CommandSpec, ExecError};
use super::command_env::Variable;
use super::confine::policy::SandboxPolicy;
use super::confine::{Enforcement, SandboxLevel};
use super::egress::EgressProxy;
use super::output_watcher::OutputWatcher;
use super::repository::{ConfigCopies, RepositoryGuard};
use crate::port::{CancellationToken, lock};
use crate::workspace::real_path;

/// Runs commands and ends all of their processes. Clones share their workers.
#[derive(Clone)]
pub struct Supervisor(Arc<SupervisorState>);

struct SupervisorState {
    backend: WorkerBackend,
    policy: SandboxPolicy,
    /// The path of the workspace at the start, without links.
    workspace: Option<PathBuf>,
    env: Vec<Variable>,
    idle: Mutex<Vec<SupervisorWorker>>,
    /// The guard of repositories, set by the first command.
    repositories: OnceLock<RepositoryGuard>,
}

/// The maximum number of idle workers.
const MAX_IDLE: usize = 4;

/// The time for which an output may stay open after all its writers are gone.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(200);

/// The pause after a failed poll.
const POLL_PAUSE: Duration = Duration::from_millis(5);

/// The time limit of an answer, in addition to the limits of the command.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(8);

impl Supervisor {
    /// Returns a supervisor whose workers run this program, or the program set by [`helper::set_program`]. This program
    /// must call [`helper::main`] if [`helper::is_requested`]. Commands get exactly this environment.
    pub fn new(policy: SandboxPolicy, env: Vec<Variable>) -> Self {
        Self::with_program(helper::program(), policy, env)
    }

    /// Returns a supervisor whose workers run another program, which must call [`helper::main`] likewise.
    pub fn with_program(
        program: impl Into<PathBuf>,
        policy: SandboxPolicy,
        env: Vec<Variable>,
    ) -> Self {
        Self::with_backend(WorkerBackend::Process(program.into()), policy, env)
    }

    /// Returns a supervisor whose workers are threads of this process, for programs other than `architect`. It kills
    /// only the process group of a command, confines nothing, and ends with this process.
    pub fn in_process(policy: SandboxPolicy, env: Vec<Variable>) -> Self {
        Self::with_backend(WorkerBackend::Thread, policy, env)
    }

    fn with_backend(backend: WorkerBackend, mut policy: SandboxPolicy, env: Vec<Variable>) -> Self {
        // Links are resolved once: a link that a command creates later was not allowed.
        policy.writable = policy.writable.iter().map(|path| real_path(path)).collect();
        let (idle, repositories) = (Mutex::default(), OnceLock::new());
        let workspace = policy.workspace.canonicalize().ok();
        Self(Arc::new(SupervisorState { backend, policy, workspace, env, idle, repositories }))
    }

    /// Returns the policy, including the paths protected for git after the first command.
    pub fn policy(&self) -> &SandboxPolicy {
        self.0.repositories.get().map_or(&self.0.policy, RepositoryGuard::policy)
    }

    pub(super) fn repositories(&self) -> &RepositoryGuard {
        self.0.repositories.get_or_init(|| RepositoryGuard::new(&self.0.policy))
    }

    /// Returns the confinement of commands. Starts a worker to determine it; the first command uses that worker.
    ///
    /// # Errors
    ///
    /// Fails when no worker can be started, and when commands cannot be confined as required.
    pub fn enforcement(&self) -> Result<Enforcement, ExecError> {
        let worker = self.take_worker()?;
        let enforced = worker.enforced.clone();
        self.return_worker(worker);
        Ok(enforced)
    }

    /// Runs a command, and waits for it and everything that it started.
    ///
    /// # Errors
    ///
    /// Fails when the command cannot be started. A command that fails by itself has a [`CommandOutcome`] like any
    /// other.
    pub fn run(
        &self,
        command: &CommandSpec,
        cancel: &CancellationToken,
    ) -> Result<CommandOutcome, ExecError> {
        self.run_watched(command, cancel, &|_| {})
    }

    /// Runs a command like [`run`](Self::run), and passes the last lines of new output to a function a few times a
    /// second while the command runs.
    ///
    /// # Errors
    ///
    /// Fails when the command cannot be started.
    pub fn run_watched(
        &self,
        command: &CommandSpec,
        cancel: &CancellationToken,
        watch: &dyn Fn(&str),
    ) -> Result<CommandOutcome, ExecError> {
        let (stdout, out) = create_pipe()?;
        let (stderr, err) = create_pipe()?;
        let stdin = open_input(&command.stdin)?;
        let files = CommandFiles { stdin, outputs: [out, err], readers: [stdout, stderr] };
        self.run_with(command, cancel, files, &mut OutputWatcher::new(watch))
    }

    /// Runs a command with these standard files, and passes its output on.
    fn run_with(
        &self,
        command: &CommandSpec,
        cancel: &CancellationToken,
        files: CommandFiles,
        sink: &mut dyn CommandSink,
    ) -> Result<CommandOutcome, ExecError> {
        let worker = self.take_worker()?;
        let stop = worker.link.try_clone().map_err(ExecError::Supervisor)?;
        let CommandFiles { stdin, outputs: [out, err], readers } = files;
        let files = [stdin.as_fd(), out.as_fd(), err.as_fd()];
        let lent = self.send_start(&worker, command, &files)?;
        drop((stdin, out, err));
        let guard = cancel.on_cancel(move || {
            // An error means that the supervisor has ended.
            let _ = stop.send(&SupervisorCommand::Stop, &[], &[]);
        });
        let due = command.timeout.and_then(|timeout| {
            Instant::now().checked_add(
                timeout.saturating_add(command.kill_timeout).saturating_add(ANSWER_TIMEOUT),
            )
        });
        let outputs =
            readers.map(|pipe| OutputPipe::new(pipe, command.kept_bytes, command.spool.clone()));
        let mut gathering = OutputCollector { worker: &worker, outputs, due, leader: None, sink };
        let result = gathering.run();
        let level = worker.enforced.level;
        let refused = worker.egress.as_ref().map(EgressProxy::finish).unwrap_or_default();
        let [stdout, stderr] = gathering.outputs.map(|output| output.capture);
        drop(guard);
        let mut notices = self.repositories().merge_copies(&worker.copies, &lent);
        notices.extend(self.repositories().clean_up(&worker.uncovered()));
        let CommandReport { end, strays, renamed, restored, unrestored, unrecorded } = match result
        {
            Ok(report) => report,
            Err(failure) => {
                self.return_worker(worker);
                return Err(command.start_error(failure));
            }
        };
        unrestored.iter().for_each(|sentence| log::warn!("{sentence}"));
        notices.extend(unrestored);
        if let Some(why) = unrecorded.filter(|_| level == SandboxLevel::Landlock) {
            log::warn!("protected files could not be recorded before a command: {why}");
            notices.push(format!(
                "the protected files could not be recorded before the command ({why}): its changes to them were not undone"
            ));
        }
        // Neither a late request to stop nor a stuck command may affect the next command. Shared memory stays in use as
        // long as the namespaces exist.
        let is_clean =
            !matches!(end, CommandEnd::Stuck | CommandEnd::Lost | CommandEnd::OutOfMemory);
        if !cancel.is_cancelled() && is_clean {
            self.return_worker(worker);
        }
        let outcome = CommandOutcome {
            end,
            stdout,
            stderr,
            strays,
            level,
            renamed,
            refused,
            restored,
            notices,
        };
        Ok(outcome)
    }

    /// Starts a command on a worker, and returns the original contents of the files that were copied for it.
    ///
    /// An incomplete message starts nothing. Once it is sent, the command may run.
    fn send_start(
        &self,
        worker: &SupervisorWorker,
        command: &CommandSpec,
        files: &[BorrowedFd<'_>],
    ) -> Result<ConfigCopies, ExecError> {
        let CommandSpec { timeout, kill_timeout, .. } = *command;
        let words =
            command.command_words().encode().map_err(|e| ExecError::Start(e.to_string()))?;
        let lent = self.repositories().write_copies(&worker.copies);
        let start = SupervisorCommand::Start { timeout, kill_timeout };
        let sent = worker.link.send(&start, &words, files);
        sent.map(|()| lent).map_err(|_| ExecError::Lost)
    }

    /// Returns an idle worker, or a new one.
    pub(super) fn take_worker(&self) -> Result<SupervisorWorker, ExecError> {
        loop {
            let Some(mut worker) = lock(&self.0.idle).pop() else { break };
            if worker.is_usable() {
                return Ok(worker);
            }
        }
        let workspace = &self.0.policy.workspace;
        if let Ok(now) = workspace.canonicalize()
            && self.0.workspace.as_ref().is_some_and(|before| *before != now)
        {
            // The worker would let commands write the link's target.
            return Err(ExecError::Replaced(workspace.clone(), now));
        }
        let worker =
            SupervisorWorker::start(&self.0.backend, self.repositories().policy(), &self.0.env)?;
        if matches!(self.0.backend, WorkerBackend::Process(_)) {
            worker.enforced.warn(&self.0.policy);
        }
        self.repositories().begin(worker.enforced.level);
        Ok(worker)
    }

    pub(super) fn return_worker(&self, worker: SupervisorWorker) {
        let mut idle = lock(&self.0.idle);
        if idle.len() < MAX_IDLE {
            idle.push(worker);
        }
    }
}

/// Receives the output of a command while it runs.
pub(super) trait CommandSink {
    /// Receives bytes of an output: 0 for standard output, 1 for error output.
    fn add(&mut self, output: usize, bytes: &[u8]);

    /// Returns the time until the next action; `None` if there is none.
    fn remaining(&self) -> Option<Duration>;

    /// Performs the action for the running command of a worker, if it is due.
    fn do_due(&mut self, worker: &SupervisorWorker);
}

/// The standard files of a command.
struct CommandFiles {
    stdin: OwnedFd,
    outputs: [io::PipeWriter; 2],
    /// The engine's ends of the outputs.
    readers: [io::PipeReader; 2],
}

/// Reads the output of a command until it ends.
struct OutputCollector<'a> {
    worker: &'a SupervisorWorker,
    outputs: [OutputPipe; 2],
    due: Option<Instant>,
    /// The process ID of the command, in the worker's namespace.
    leader: Option<Pid>,
    sink: &'a mut dyn CommandSink,
}

/// The next event of a command.
enum PollEvent {
    Outputs,
    Report,
    Deadline,
}

/// One output of a command.
struct OutputPipe {
    /// The pipe; `None` once it is closed.
    pipe: Option<io::PipeReader>,
    capture: OutputCapture,
}

impl OutputPipe {
    fn new(pipe: io::PipeReader, keep: usize, spool: Option<OutputSpool>) -> Self {
        Self { pipe: Some(pipe), capture: OutputCapture::new(keep).with_spool(spool) }
    }

    fn read(&mut self, number: usize, buffer: &mut [u8], sink: &mut dyn CommandSink) {
        let Some(pipe) = &mut self.pipe else { return };
        match pipe.read(buffer) {
            Ok(0) => self.pipe = None,
            Ok(length) => {
                self.capture.write(&buffer[..length]);
                sink.add(number, &buffer[..length]);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => self.pipe = None,
        }
    }
}

impl OutputCollector<'_> {
    fn run(&mut self) -> Result<CommandReport, StartFailure> {
        let mut buffer = vec![0; 64 * 1024];
        let mut result = None;
        while result.is_none() || self.outputs.iter().any(|output| output.pipe.is_some()) {
            match self.wait(&mut buffer, result.is_none()) {
                PollEvent::Deadline => break,
                PollEvent::Outputs => {}
                PollEvent::Report => {
                    if let Some(report) = self.receive_report()? {
                        result = Some(report);
                        self.due = Some(Instant::now() + CLOSE_TIMEOUT);
                    }
                }
            }
        }
        Ok(result.unwrap_or_else(|| CommandEnd::Stuck.into()))
    }

    /// Waits for readable output, and reads it.
    fn wait(&mut self, buffer: &mut [u8], listens: bool) -> PollEvent {
        let left = self.due.map(|due| due.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            return PollEvent::Deadline;
        }
        let left = match (left, self.sink.remaining()) {
            (Some(left), Some(watched)) => Some(left.min(watched)),
            (left, watched) => left.or(watched),
        };
        let pipes = self.outputs.iter().filter_map(|output| output.pipe.as_ref());
        let mut fds: Vec<_> = pipes.map(|pipe| PollFd::new(pipe, PollFlags::IN)).collect();
        if listens {
            fds.push(PollFd::new(&self.worker.link, PollFlags::IN));
        }
        match poll(&mut fds, left.and_then(timespec).as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            // Polling needs memory; the command continues meanwhile.
            Err(_) => {
                drop(fds);
                thread::sleep(POLL_PAUSE);
                return PollEvent::Outputs;
            }
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        let mut ready = ready.into_iter();
        let open = self.outputs.iter_mut().enumerate();
        for (number, output) in open.filter(|(_, output)| output.pipe.is_some()) {
            if ready.next() == Some(true) {
                output.read(number, buffer, self.sink);
            }
        }
        self.sink.do_due(self.worker);
        if ready.next() == Some(true) { PollEvent::Report } else { PollEvent::Outputs }
    }

    /// Returns the report of the command's end; `None` for any other report.
    fn receive_report(&mut self) -> Result<Option<CommandReport>, StartFailure> {
        match self.worker.receive_report() {
            Some(SupervisorReport::Ended(report)) => return Ok(Some(report)),
            Some(SupervisorReport::Failed(failure)) => return Err(failure),
            Some(SupervisorReport::Started { pid }) => self.leader = Pid::from_raw(pid),
            Some(_) => {}
            None => {
                self.worker.kill_group(self.leader);
                return Ok(Some(CommandEnd::Lost.into()));
            }
        }
        Ok(None)
    }
}

pub(super) fn create_pipe() -> Result<(io::PipeReader, io::PipeWriter), ExecError> {
    io::pipe().map_err(|error| match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::MFILE | Errno::NFILE) => ExecError::NoFiles(error.to_string()),
        Some(_) | None => ExecError::Supervisor(error),
    })
}

/// Returns an unnamed file with this content, positioned at its start.
pub(super) fn anonymous_file(content: &[u8]) -> io::Result<File> {
    #[cfg(target_os = "linux")]
    let mut file = File::from(rustix::fs::memfd_create("input", rustix::fs::MemfdFlags::CLOEXEC)?);
    #[cfg(not(target_os = "linux"))]
    let mut file = tempfile::tempfile()?;
    file.write_all(content)?;
    file.rewind()?;
    Ok(file)
}

/// Returns the standard input of a command: a file, so that a command that does not read it blocks no writer.
fn open_input(input: &CommandInput) -> Result<OwnedFd, ExecError> {
    let file = match input {
        CommandInput::Empty => File::open("/dev/null"),
        CommandInput::Bytes(bytes) => anonymous_file(bytes),
    };
    file.map(OwnedFd::from).map_err(ExecError::Supervisor)
}
