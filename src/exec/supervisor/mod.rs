//! The engine's side: supervisors that stay up, and one command at a time for each.
//!
//! Starting a supervisor costs more than starting a command, and confining it still more; so it is done once, and a
//! supervisor takes the next command when one has ended. Nothing of a command survives it, hence nothing is handed on.

#[cfg(target_os = "linux")]
mod children;
pub mod helper;
pub(super) mod process;
pub(super) mod process_tree;
pub(super) mod protocol;
pub(super) mod supervise;
pub(super) mod worker;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};

use self::protocol::{
    CommandReport, CommandTimeouts, ReceivedMessage, StartFailure, SupervisorCommand,
    SupervisorReport,
};
use self::supervise::timespec;
use self::worker::{SupervisorWorker, WorkerBackend};
use super::capture::OutputCapture;
use super::command::{CommandEnd, CommandInput, CommandOutcome, CommandSpec, ExecError};
use super::confine::policy::SandboxPolicy;
use super::confine::{Enforcement, SandboxLevel};
use super::egress::EgressProxy;
use super::repository::RepositoryGuard;
use crate::port::CancellationToken;

/// Runs commands, each in a tree of its own of which nothing survives. Clones share their workers.
#[derive(Clone)]
pub struct Supervisor(Arc<SupervisorState>);

struct SupervisorState {
    backend: WorkerBackend,
    policy: SandboxPolicy,
    env: Vec<(OsString, OsString)>,
    idle: Mutex<Vec<SupervisorWorker>>,
    /// Set when the first command is to be run.
    repositories: OnceLock<RepositoryGuard>,
}

/// Workers that are kept for the next command.
const MAX_IDLE: usize = 4;

/// How long what a command left in the background may go on after it.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(300);

/// How long an output may stay open after everything that could write to it is gone.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(200);

/// How long to wait when the system can't tell what is ready.
const POLL_PAUSE: Duration = Duration::from_millis(5);

/// How much longer than all its limits a supervisor may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(8);

impl Supervisor {
    /// Returns a supervisor that runs in processes made of this very program, which has to hand control to
    /// [`helper::main`](crate::exec::supervisor::helper::main) when it is started as one. Commands get this environment and no other.
    pub fn new(policy: SandboxPolicy, env: Vec<(OsString, OsString)>) -> Self {
        // The running program, even when its file has been replaced meanwhile.
        let program = if cfg!(target_os = "linux") {
            PathBuf::from("/proc/self/exe")
        } else {
            std::env::current_exe().unwrap_or_else(|_| PathBuf::from("architect"))
        };
        Self::with_program(program, policy, env)
    }

    /// Returns a supervisor that runs in processes made of another program, which does the same.
    pub fn with_program(
        program: impl Into<PathBuf>,
        policy: SandboxPolicy,
        env: Vec<(OsString, OsString)>,
    ) -> Self {
        Self::with_backend(WorkerBackend::Process(program.into()), policy, env)
    }

    /// Returns a supervisor that runs in threads of this process, for programs that are not `architect`. It kills the
    /// process group of a command, confines nothing, and ends with this process.
    pub fn in_process(policy: SandboxPolicy, env: Vec<(OsString, OsString)>) -> Self {
        Self::with_backend(WorkerBackend::Thread, policy, env)
    }

    fn with_backend(
        means: WorkerBackend,
        policy: SandboxPolicy,
        env: Vec<(OsString, OsString)>,
    ) -> Self {
        let (idle, watch) = (Mutex::default(), OnceLock::new());
        Self(Arc::new(SupervisorState { backend: means, policy, env, idle, repositories: watch }))
    }

    /// Returns the policy; with all that is protected for the sake of git, once a command was run.
    pub fn policy(&self) -> &SandboxPolicy {
        self.0.repositories.get().map_or(&self.0.policy, RepositoryGuard::policy)
    }

    pub(super) fn repositories(&self) -> &RepositoryGuard {
        self.0.repositories.get_or_init(|| RepositoryGuard::new(&self.0.policy))
    }

    /// Returns how commands are really confined. Starts a worker for that, which the first command will use.
    ///
    /// # Errors
    ///
    /// Fails when no worker can be started, and when commands cannot be confined as the policy requires.
    pub fn enforcement(&self) -> Result<Enforcement, ExecError> {
        let worker = self.take_worker()?;
        let enforced = worker.enforced.clone();
        self.return_worker(worker);
        Ok(enforced)
    }

    /// Runs a command to its end, and to the end of everything that it started.
    ///
    /// # Errors
    ///
    /// Fails when the command could not be started. One that fails by itself has an [`Outcome`] like any other.
    pub fn run(
        &self,
        command: &CommandSpec,
        cancel: &CancellationToken,
    ) -> Result<CommandOutcome, ExecError> {
        let worker = self.take_worker()?;
        let (stdout, out) = create_pipe()?;
        let (stderr, err) = create_pipe()?;
        let stdin = open_input(&command.stdin)?;
        let limits = CommandTimeouts {
            timeout: command.timeout,
            kill: command.kill_timeout,
            drain: DRAIN_TIMEOUT,
        };
        let words =
            command.command_words().encode().map_err(|e| ExecError::Start(e.to_string()))?;
        let lent = self.repositories().write_copies(&worker.copies);
        let stop = worker.link.try_clone().map_err(ExecError::Supervisor)?;
        let files = [stdin.as_fd(), out.as_fd(), err.as_fd()];
        // Without the whole message the supervisor starts nothing. From here on the command may run.
        worker
            .link
            .send(&SupervisorCommand::Start(limits), &words, &files)
            .map_err(|_| ExecError::Lost)?;
        drop((stdin, out, err));
        let guard = cancel.on_cancel(move || {
            // Whoever does not hear it any more has ended.
            let _ = stop.send(&SupervisorCommand::Stop, &[], &[]);
        });
        let due = command.timeout.and_then(|timeout| {
            Instant::now().checked_add(
                timeout.saturating_add(command.kill_timeout).saturating_add(ANSWER_TIMEOUT),
            )
        });
        let mut gathering = OutputCollector {
            worker: &worker,
            outputs: [
                OutputPipe::new(stdout, command.kept_bytes),
                OutputPipe::new(stderr, command.kept_bytes),
            ],
            due,
            leader: None,
        };
        let told = gathering.run();
        let level = worker.enforced.level;
        let refused = worker.egress.as_ref().map(EgressProxy::finish).unwrap_or_default();
        let [stdout, stderr] = gathering.outputs.map(|output| output.capture);
        drop(guard);
        let mut notices = self.repositories().merge_copies(&worker.copies, &lent);
        notices.extend(self.repositories().clean_up());
        let (end, strays, [aside, restored]) = match told {
            CommandResult::Ended(ended, paths) => {
                let end = CommandEnd::from_report(ended);
                // A request to stop may still be on its way; it must not meet the next command. Nor must what is stuck.
                if !cancel.is_cancelled() && end != CommandEnd::Stuck {
                    self.return_worker(worker);
                }
                (end, ended.strays, paths)
            }
            CommandResult::Failed(fault) => {
                self.return_worker(worker);
                return Err(command.start_error(fault));
            }
            CommandResult::Timeout => (CommandEnd::Stuck, 0, [const { Vec::new() }; 2]),
            CommandResult::Lost => (CommandEnd::Lost, 0, [const { Vec::new() }; 2]),
        };
        Ok(CommandOutcome {
            end,
            stdout,
            stderr,
            strays,
            level,
            renamed: aside,
            refused,
            restored,
            notices,
        })
    }

    /// Returns a worker that waits for a command; a new one when there is none.
    pub(super) fn take_worker(&self) -> Result<SupervisorWorker, ExecError> {
        loop {
            let Some(mut worker) = self.idle_workers().pop() else { break };
            if worker.is_usable() {
                return Ok(worker);
            }
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
        let mut idle = self.idle_workers();
        if idle.len() < MAX_IDLE {
            idle.push(worker);
        }
    }

    fn idle_workers(&self) -> MutexGuard<'_, Vec<SupervisorWorker>> {
        self.0.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a supervisor said of a command in the end.
enum CommandResult {
    /// With the protected paths that were set aside, and those that were put back.
    Ended(CommandReport, [Vec<PathBuf>; 2]),
    Failed(StartFailure),
    /// It did not answer in time.
    Timeout,
    /// It is gone, or can't be listened to any more.
    Lost,
}

/// Reads what a command writes until it has ended.
struct OutputCollector<'a> {
    worker: &'a SupervisorWorker,
    outputs: [OutputPipe; 2],
    due: Option<Instant>,
    /// The process of the command, as the worker numbers it.
    leader: Option<Pid>,
}

/// What can be done next.
enum PollEvent {
    Outputs,
    Report,
    Deadline,
}

/// One output of a command.
struct OutputPipe {
    /// None when it is closed.
    pipe: Option<io::PipeReader>,
    capture: OutputCapture,
}

impl OutputPipe {
    fn new(pipe: io::PipeReader, keep: usize) -> Self {
        Self { pipe: Some(pipe), capture: OutputCapture::new(keep) }
    }

    fn read(&mut self, buffer: &mut [u8]) {
        let Some(pipe) = &mut self.pipe else { return };
        match pipe.read(buffer) {
            Ok(0) => self.pipe = None,
            Ok(length) => self.capture.write(&buffer[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => self.pipe = None,
        }
    }
}

impl OutputCollector<'_> {
    fn run(&mut self) -> CommandResult {
        let mut buffer = vec![0; 64 * 1024];
        let mut told = None;
        while told.is_none() || self.outputs.iter().any(|output| output.pipe.is_some()) {
            let has_answer = match self.wait(&mut buffer, told.is_none()) {
                PollEvent::Deadline => break,
                PollEvent::Outputs => false,
                PollEvent::Report => true,
            };
            if has_answer && let Some(answer) = self.receive_report() {
                if let CommandResult::Failed(..) = answer {
                    return answer;
                }
                told = Some(answer);
                self.due = Some(Instant::now() + CLOSE_TIMEOUT);
            }
        }
        told.unwrap_or(CommandResult::Timeout)
    }

    /// Waits for something to read, and reads what the command wrote.
    fn wait(&mut self, buffer: &mut [u8], listens: bool) -> PollEvent {
        let left = self.due.map(|due| due.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            return PollEvent::Deadline;
        }
        let pipes = self.outputs.iter().filter_map(|output| output.pipe.as_ref());
        let mut fds: Vec<_> = pipes.map(|pipe| PollFd::new(pipe, PollFlags::IN)).collect();
        if listens {
            fds.push(PollFd::new(&self.worker.link, PollFlags::IN));
        }
        match poll(&mut fds, left.and_then(timespec).as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            // There is no memory for it. The command goes on meanwhile.
            Err(_) => {
                drop(fds);
                thread::sleep(POLL_PAUSE);
                return PollEvent::Outputs;
            }
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        let mut ready = ready.into_iter();
        for output in self.outputs.iter_mut().filter(|output| output.pipe.is_some()) {
            if ready.next() == Some(true) {
                output.read(buffer);
            }
        }
        if ready.next() == Some(true) { PollEvent::Report } else { PollEvent::Outputs }
    }

    fn receive_report(&mut self) -> Option<CommandResult> {
        let Ok(Some(ReceivedMessage { message, .. })) =
            self.worker.link.receive::<SupervisorReport>()
        else {
            // In a namespace everything has ended with it, and the number means nothing out here.
            if let (Some(leader), true) =
                (self.leader, self.worker.enforced.level != SandboxLevel::Namespaces)
            {
                let _ = kill_process_group(leader, Signal::KILL);
            }
            return Some(CommandResult::Lost);
        };
        match message {
            SupervisorReport::Ended { ended, aside, restored } => {
                Some(CommandResult::Ended(ended, [aside, restored]))
            }
            SupervisorReport::Failed(fault) => Some(CommandResult::Failed(fault)),
            SupervisorReport::Started { pid } => {
                self.leader = Pid::from_raw(pid);
                None
            }
            SupervisorReport::Ready(_)
            | SupervisorReport::Lower(_)
            | SupervisorReport::Unable(_)
            | SupervisorReport::NoTemp(_)
            | SupervisorReport::NoRoom(_) => None,
        }
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
