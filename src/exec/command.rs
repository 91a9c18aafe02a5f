//! A command that is to be run, and what became of it.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use thiserror::Error;

use super::capture::OutputCapture;
use super::confine::SandboxLevel;
use super::egress::ConnectionRefusal;
use super::supervisor::protocol::{
    CommandReport, CommandWords, ProcessStatus, StartFailure, StopCause,
};

/// A command that is to be run.
#[derive(Clone, Debug)]
pub struct CommandSpec {
    /// Program and arguments.
    pub argv: Vec<OsString>,
    /// The folder that it runs in.
    pub cwd: PathBuf,
    /// What is added to the environment that all commands have.
    pub env: Vec<(OsString, OsString)>,
    /// What it reads from its standard input.
    pub stdin: CommandInput,
    /// How long it may run before it is asked to end; none for as long as it wants.
    pub timeout: Option<Duration>,
    /// How long it may take to end before it is killed.
    pub kill_timeout: Duration,
    /// How many bytes of the beginning, and as many of the end, are kept of each of its outputs.
    pub kept_bytes: usize,
}

/// What a command reads from its standard input. There is never a terminal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CommandInput {
    /// Nothing; the input is at its end.
    #[default]
    Empty,
    /// These bytes, and then the end.
    Bytes(Arc<[u8]>),
}

/// What became of a command.
#[derive(Clone, Debug)]
pub struct CommandOutcome {
    /// How it ended.
    pub end: CommandEnd,
    /// What it wrote to its standard output.
    pub stdout: OutputCapture,
    /// What it wrote to its standard error.
    pub stderr: OutputCapture,
    /// How many processes it left in the background, which were killed.
    pub strays: u32,
    /// How far it was confined.
    pub level: SandboxLevel,
    /// What it had put where the policy protects something that is not there; it has another name now.
    pub renamed: Vec<PathBuf>,
    /// The connections that the list of hosts did not allow.
    pub refused: Vec<ConnectionRefusal>,
    /// Protected paths that it had changed, which are as they were before.
    pub restored: Vec<PathBuf>,
    /// What became of what it had made for git, a sentence for each.
    pub notices: Vec<String>,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandEnd {
    /// With this code.
    Exited(i32),
    /// By a signal that was not ours.
    Signalled(i32),
    /// Its time was over.
    TimedOut,
    /// Nobody waited for it any more.
    Cancelled,
    /// It used more memory than it may, and was killed.
    OutOfMemory,
    /// It could not be killed, and was left alone.
    Stuck,
    /// Its supervisor ended before it told how. The command may have completed, or partially, or not have started.
    Lost,
}

/// Why a command was not run.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ExecError {
    /// The program does not exist.
    #[error("program '{0}' was not found")]
    NoProgram(String),
    /// The folder does not exist.
    #[error("the working directory '{0}' does not exist")]
    NoFolder(PathBuf),
    /// It is longer than what the system can start.
    #[error("the command is too long for the system; put it into a script file")]
    TooLong,
    /// There are too many processes or threads already.
    #[error("the system has no room for another process ({0}); try again later")]
    NoRoom(String),
    /// There are too many open files.
    #[error("too many files are open ({0})")]
    NoFiles(String),
    /// The system said no.
    #[error("the command could not be started: {0}")]
    Start(String),
    /// There is no place for temporary files.
    #[error("the folder for temporary files could not be made: {0}")]
    NoTemp(String),
    /// The supervisor could not be started.
    #[error("the supervisor of commands could not be started: {0}")]
    Supervisor(#[source] io::Error),
    /// The supervisor ended before it was told of the command.
    #[error("the supervisor of commands broke down")]
    Lost,
    /// Commands cannot be confined in the way that was asked for.
    #[error(
        "commands cannot be confined here as required: {0}; {CONFINEMENT_HELP}; without --sandbox, --network and `sandbox.required` commands are confined as far as it is possible"
    )]
    Unconfined(String),
}

/// What a system needs to confine commands, for people who want to have it.
pub const CONFINEMENT_HELP: &str = "confining commands takes user namespaces, or Landlock for a part of it (in a container: a runtime \
                        that allows them; on Ubuntu: `sysctl kernel.apparmor_restrict_unprivileged_userns=0`)";

/// The longest word that the system takes, with room for what surrounds it.
const MAX_WORD_LENGTH: usize = 120 * 1024;

impl CommandSpec {
    /// Returns a command that a shell runs.
    pub fn shell(line: &str, cwd: impl Into<PathBuf>) -> Self {
        let (argv, stdin) = if line.len() > MAX_WORD_LENGTH {
            // As a single word it would be refused. The shell reads it from its input, which is then at its end.
            let read = r#"eval "$(cat)" </dev/null"#;
            (["-c", read].map(OsString::from), CommandInput::Bytes(line.as_bytes().into()))
        } else {
            (["-c", line].map(OsString::from), CommandInput::Empty)
        };
        let argv = [shell_path().into()].into_iter().chain(argv).collect();
        Self { stdin, ..Self::new(argv, cwd) }
    }

    /// Returns a command without a time limit.
    pub fn new(argv: Vec<OsString>, cwd: impl Into<PathBuf>) -> Self {
        Self {
            argv,
            cwd: cwd.into(),
            env: Vec::new(),
            stdin: CommandInput::Empty,
            timeout: None,
            kill_timeout: Duration::from_secs(2),
            kept_bytes: 256 * 1024,
        }
    }

    pub(super) fn command_words(&self) -> CommandWords {
        CommandWords { cwd: self.cwd.clone(), env: self.env.clone(), argv: self.argv.clone() }
    }

    /// Returns the error for what the system said when the command was to be started.
    pub(super) fn start_error(&self, fault: StartFailure) -> ExecError {
        let StartFailure { errno, error, folder_exists: folder } = fault;
        // A missing folder and a missing program are the same to the system.
        match errno.map(Errno::from_raw_os_error) {
            Some(Errno::NOENT | Errno::NOTDIR) if !folder => ExecError::NoFolder(self.cwd.clone()),
            Some(Errno::NOENT) => {
                let program = self.argv.first().map(|program| program.to_string_lossy());
                ExecError::NoProgram(program.unwrap_or_default().into_owned())
            }
            Some(Errno::TOOBIG) => ExecError::TooLong,
            Some(Errno::AGAIN | Errno::NOMEM) => ExecError::NoRoom(error),
            Some(Errno::MFILE | Errno::NFILE) => ExecError::NoFiles(error),
            Some(_) | None => ExecError::Start(error),
        }
    }
}

/// Models write for bash; not every system has it.
fn shell_path() -> &'static str {
    let bash = ["/bin/bash", "/usr/bin/bash"];
    bash.into_iter().find(|path| Path::new(path).exists()).unwrap_or("/bin/sh")
}

/// Returns whether commands are run by bash, and not by what the system has instead.
pub fn shell_is_bash() -> bool {
    shell_path().ends_with("/bash")
}

impl CommandEnd {
    pub(super) fn from_report(ended: CommandReport) -> Self {
        match (ended.stopped, ended.status) {
            (_, None) => Self::Stuck,
            (Some(StopCause::TimedOut), _) => Self::TimedOut,
            (Some(StopCause::Cancelled), _) => Self::Cancelled,
            (Some(StopCause::TooMuchMemory), _) => Self::OutOfMemory,
            (None, Some(ProcessStatus::Exited(code))) => Self::Exited(code),
            (None, Some(ProcessStatus::Signalled(signal))) => Self::Signalled(signal),
        }
    }

    /// Returns whether the command ended by itself and says that all went well.
    pub fn is_success(self) -> bool {
        self == Self::Exited(0)
    }
}
