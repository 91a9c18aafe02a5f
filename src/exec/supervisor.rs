//! The engine's side: supervisors that stay up, and one command at a time for each.
//!
//! Starting a supervisor costs more than starting a command, and confining it still more; so it is done once, and a
//! supervisor takes the next command when one has ended. Nothing of a command survives it, hence nothing is handed on.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};

use super::capture::Capture;
use super::command::{Command, End, ExecError, Input, Outcome};
use super::confine::{Enforced, Level};
use super::egress::Egress;
use super::nameless;
use super::policy::Policy;
use super::repository::Watch;
use super::supervise::timespec;
use super::wire::{Ask, Ended, Limits, Received, StartFault, Tell};
use super::worker::{Means, Worker};
use crate::port::Cancel;

/// Runs commands, each in a tree of its own of which nothing survives. Clones share their workers.
#[derive(Clone)]
pub struct Supervisor(Arc<Shared>);

struct Shared {
    means: Means,
    policy: Policy,
    env: Vec<(OsString, OsString)>,
    idle: Mutex<Vec<Worker>>,
    /// Set when the first command is to be run.
    watch: OnceLock<Watch>,
}

/// Workers that are kept for the next command.
const IDLE: usize = 4;

/// How long what a command left in the background may go on after it.
const DRAIN: Duration = Duration::from_millis(300);

/// How long an output may stay open after everything that could write to it is gone.
const CLOSING: Duration = Duration::from_millis(200);

/// How long to wait when the system can't tell what is ready.
const PAUSE: Duration = Duration::from_millis(5);

/// How much longer than all its limits a supervisor may take to answer.
const LATE: Duration = Duration::from_secs(8);

impl Supervisor {
    /// Returns a supervisor that runs in processes made of this very program, which has to hand control to
    /// [`helper::main`](super::helper::main) when it is started as one. Commands get this environment and no other.
    pub fn new(policy: Policy, env: Vec<(OsString, OsString)>) -> Self {
        // The running program, even when its file has been replaced meanwhile.
        let program = if cfg!(target_os = "linux") {
            PathBuf::from("/proc/self/exe")
        } else {
            std::env::current_exe().unwrap_or_else(|_| PathBuf::from("architect"))
        };
        Self::at(program, policy, env)
    }

    /// Returns a supervisor that runs in processes made of another program, which does the same.
    pub fn at(program: impl Into<PathBuf>, policy: Policy, env: Vec<(OsString, OsString)>) -> Self {
        Self::with(Means::Process(program.into()), policy, env)
    }

    /// Returns a supervisor that runs in threads of this process, for programs that are not `architect`. It kills the
    /// process group of a command, confines nothing, and ends with this process.
    pub fn in_process(policy: Policy, env: Vec<(OsString, OsString)>) -> Self {
        Self::with(Means::Thread, policy, env)
    }

    fn with(means: Means, policy: Policy, env: Vec<(OsString, OsString)>) -> Self {
        let (idle, watch) = (Mutex::default(), OnceLock::new());
        Self(Arc::new(Shared { means, policy, env, idle, watch }))
    }

    /// Returns the policy; with all that is protected for the sake of git, once a command was run.
    pub fn policy(&self) -> &Policy {
        self.0.watch.get().map_or(&self.0.policy, Watch::policy)
    }

    pub(super) fn watch(&self) -> &Watch {
        self.0.watch.get_or_init(|| Watch::new(&self.0.policy))
    }

    /// Returns how commands are really confined. Starts a worker for that, which the first command will use.
    ///
    /// # Errors
    ///
    /// Fails when no worker can be started, and when commands cannot be confined as the policy requires.
    pub fn enforced(&self) -> Result<Enforced, ExecError> {
        let worker = self.take()?;
        let enforced = worker.enforced.clone();
        self.give_back(worker);
        Ok(enforced)
    }

    /// Runs a command to its end, and to the end of everything that it started.
    ///
    /// # Errors
    ///
    /// Fails when the command could not be started. One that fails by itself has an [`Outcome`] like any other.
    pub fn run(&self, command: &Command, cancel: &Cancel) -> Result<Outcome, ExecError> {
        let worker = self.take()?;
        let (stdout, out) = pipe()?;
        let (stderr, err) = pipe()?;
        let stdin = input(&command.stdin)?;
        let limits = Limits { timeout: command.timeout, grace: command.grace, drain: DRAIN };
        let words = command.words().encode().map_err(|e| ExecError::Start(e.to_string()))?;
        let lent = self.watch().lend_to(&worker.copies);
        let stop = worker.link.again().map_err(ExecError::Supervisor)?;
        let files = [stdin.as_fd(), out.as_fd(), err.as_fd()];
        // Without the whole message the supervisor starts nothing. From here on the command may run.
        worker.link.send(&Ask::Start(limits), &words, &files).map_err(|_| ExecError::Lost)?;
        drop((stdin, out, err));
        let guard = cancel.on_cancel(move || {
            // Whoever does not hear it any more has ended.
            let _ = stop.send(&Ask::Stop, &[], &[]);
        });
        let due = command.timeout.and_then(|timeout| {
            Instant::now().checked_add(timeout.saturating_add(command.grace).saturating_add(LATE))
        });
        let mut gathering = Gathering {
            worker: &worker,
            outputs: [Output::new(stdout, command.keep), Output::new(stderr, command.keep)],
            due,
            leader: None,
        };
        let told = gathering.run();
        let level = worker.enforced.level;
        let refused = worker.egress.as_ref().map(Egress::finish).unwrap_or_default();
        let [stdout, stderr] = gathering.outputs.map(|output| output.capture);
        drop(guard);
        let mut notices = self.watch().take_back(&worker.copies, &lent);
        notices.extend(self.watch().after());
        let (end, strays, [aside, restored]) = match told {
            Told::Ended(ended, paths) => {
                let end = End::of(ended);
                // A request to stop may still be on its way; it must not meet the next command. Nor must what is stuck.
                if !cancel.is_cancelled() && end != End::Stuck {
                    self.give_back(worker);
                }
                (end, ended.strays, paths)
            }
            Told::Failed(fault) => {
                self.give_back(worker);
                return Err(command.refused(fault));
            }
            Told::Nothing => (End::Stuck, 0, [const { Vec::new() }; 2]),
            Told::Lost => (End::Lost, 0, [const { Vec::new() }; 2]),
        };
        Ok(Outcome { end, stdout, stderr, strays, level, aside, refused, restored, notices })
    }

    /// Returns a worker that waits for a command; a new one when there is none.
    pub(super) fn take(&self) -> Result<Worker, ExecError> {
        loop {
            let Some(mut worker) = self.idle().pop() else { break };
            if worker.is_fit() {
                return Ok(worker);
            }
        }
        let worker = Worker::start(&self.0.means, self.watch().policy(), &self.0.env)?;
        if matches!(self.0.means, Means::Process(_)) {
            worker.enforced.warn(&self.0.policy);
        }
        self.watch().begin(worker.enforced.level);
        Ok(worker)
    }

    pub(super) fn give_back(&self, worker: Worker) {
        let mut idle = self.idle();
        if idle.len() < IDLE {
            idle.push(worker);
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Worker>> {
        self.0.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a supervisor said of a command in the end.
enum Told {
    /// With the protected paths that were set aside, and those that were put back.
    Ended(Ended, [Vec<PathBuf>; 2]),
    Failed(StartFault),
    /// It did not answer in time.
    Nothing,
    /// It is gone, or can't be listened to any more.
    Lost,
}

/// Reads what a command writes until it has ended.
struct Gathering<'a> {
    worker: &'a Worker,
    outputs: [Output; 2],
    due: Option<Instant>,
    /// The process of the command, as the worker numbers it.
    leader: Option<Pid>,
}

/// What can be done next.
enum Ready {
    Outputs,
    Answer,
    TimeIsUp,
}

/// One output of a command.
struct Output {
    /// None when it is closed.
    pipe: Option<io::PipeReader>,
    capture: Capture,
}

impl Output {
    fn new(pipe: io::PipeReader, keep: usize) -> Self {
        Self { pipe: Some(pipe), capture: Capture::new(keep) }
    }

    fn read(&mut self, buffer: &mut [u8]) {
        let Some(pipe) = &mut self.pipe else { return };
        match pipe.read(buffer) {
            Ok(0) => self.pipe = None,
            Ok(length) => self.capture.push(&buffer[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => self.pipe = None,
        }
    }
}

impl Gathering<'_> {
    fn run(&mut self) -> Told {
        let mut buffer = vec![0; 64 * 1024];
        let mut told = None;
        while told.is_none() || self.outputs.iter().any(|output| output.pipe.is_some()) {
            let has_answer = match self.wait(&mut buffer, told.is_none()) {
                Ready::TimeIsUp => break,
                Ready::Outputs => false,
                Ready::Answer => true,
            };
            if has_answer && let Some(answer) = self.hear() {
                if let Told::Failed(..) = answer {
                    return answer;
                }
                told = Some(answer);
                self.due = Some(Instant::now() + CLOSING);
            }
        }
        told.unwrap_or(Told::Nothing)
    }

    /// Waits for something to read, and reads what the command wrote.
    fn wait(&mut self, buffer: &mut [u8], listens: bool) -> Ready {
        let left = self.due.map(|due| due.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            return Ready::TimeIsUp;
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
                thread::sleep(PAUSE);
                return Ready::Outputs;
            }
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        let mut ready = ready.into_iter();
        for output in self.outputs.iter_mut().filter(|output| output.pipe.is_some()) {
            if ready.next() == Some(true) {
                output.read(buffer);
            }
        }
        if ready.next() == Some(true) { Ready::Answer } else { Ready::Outputs }
    }

    fn hear(&mut self) -> Option<Told> {
        let Ok(Some(Received { message, .. })) = self.worker.link.receive::<Tell>() else {
            // In a namespace everything has ended with it, and the number means nothing out here.
            if let (Some(leader), true) =
                (self.leader, self.worker.enforced.level != Level::Namespaces)
            {
                let _ = kill_process_group(leader, Signal::KILL);
            }
            return Some(Told::Lost);
        };
        match message {
            Tell::Ended { ended, aside, restored } => Some(Told::Ended(ended, [aside, restored])),
            Tell::Failed(fault) => Some(Told::Failed(fault)),
            Tell::Started { pid } => {
                self.leader = Pid::from_raw(pid);
                None
            }
            Tell::Ready(_)
            | Tell::Lower(_)
            | Tell::Unable(_)
            | Tell::NoTemp(_)
            | Tell::NoRoom(_) => None,
        }
    }
}

pub(super) fn pipe() -> Result<(io::PipeReader, io::PipeWriter), ExecError> {
    io::pipe().map_err(|error| match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::MFILE | Errno::NFILE) => ExecError::NoFiles(error.to_string()),
        Some(_) | None => ExecError::Supervisor(error),
    })
}

/// Returns the standard input of a command. It is a file, so that nobody waits for a command that does not read.
fn input(input: &Input) -> Result<OwnedFd, ExecError> {
    let file = match input {
        Input::Nothing => std::fs::File::open("/dev/null"),
        Input::Bytes(bytes) => nameless::filled(bytes),
    };
    file.map(OwnedFd::from).map_err(ExecError::Supervisor)
}
