//! A command that is to be run, and what became of it.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use thiserror::Error;

use super::capture::Capture;
use super::confine::Level;
use super::wire::{Ended, StartFault, Status, Stopped, Words};

/// A command that is to be run.
#[derive(Clone, Debug)]
pub struct Command {
    /// Program and arguments.
    pub argv: Vec<OsString>,
    /// The folder that it runs in.
    pub cwd: PathBuf,
    /// What is added to the environment that all commands have.
    pub env: Vec<(OsString, OsString)>,
    /// What it reads from its standard input.
    pub stdin: Input,
    /// How long it may run before it is asked to end; none for as long as it wants.
    pub timeout: Option<Duration>,
    /// How long it may take to end before it is killed.
    pub grace: Duration,
    /// How many bytes of the beginning, and as many of the end, are kept of each of its outputs.
    pub keep: usize,
}

/// What a command reads from its standard input. There is never a terminal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Input {
    /// Nothing; the input is at its end.
    #[default]
    Nothing,
    /// These bytes, and then the end.
    Bytes(Arc<[u8]>),
}

/// What became of a command.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// How it ended.
    pub end: End,
    /// What it wrote to its standard output.
    pub stdout: Capture,
    /// What it wrote to its standard error.
    pub stderr: Capture,
    /// How many processes it left in the background, which were killed.
    pub strays: u32,
    /// How far it was confined.
    pub level: Level,
    /// What it had put where the policy protects something that is not there; it has another name now.
    pub aside: Vec<PathBuf>,
    /// What became of what it had made for git, a sentence for each.
    pub notices: Vec<String>,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With this code.
    Exited(i32),
    /// By a signal that was not ours.
    Signalled(i32),
    /// Its time was over.
    TimedOut,
    /// Nobody waited for it any more.
    Cancelled,
    /// It could not be killed, and was left alone.
    Stuck,
}

/// Why a command was not run, or is not known to have ended.
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
    /// The supervisor ended while the command was under way.
    #[error("the supervisor of the command broke down; the command was killed")]
    Lost,
    /// Commands cannot be confined in the way that was asked for.
    #[error("commands cannot be confined here as required: {0}")]
    Unconfined(String),
}

/// The longest word that the system takes, with room for what surrounds it.
const LONGEST_WORD: usize = 120 * 1024;

impl Command {
    /// Returns a command that a shell runs.
    pub fn shell(line: &str, cwd: impl Into<PathBuf>) -> Self {
        let (argv, stdin) = if line.len() > LONGEST_WORD {
            // As a single word it would be refused. The shell reads it from its input, which is then at its end.
            let read = r#"eval "$(cat)" </dev/null"#;
            (["-c", read].map(OsString::from), Input::Bytes(line.as_bytes().into()))
        } else {
            (["-c", line].map(OsString::from), Input::Nothing)
        };
        let argv = [shell().into()].into_iter().chain(argv).collect();
        Self { stdin, ..Self::new(argv, cwd) }
    }

    /// Returns a command without a time limit.
    pub fn new(argv: Vec<OsString>, cwd: impl Into<PathBuf>) -> Self {
        Self {
            argv,
            cwd: cwd.into(),
            env: Vec::new(),
            stdin: Input::Nothing,
            timeout: None,
            grace: Duration::from_secs(2),
            keep: 256 * 1024,
        }
    }

    pub(super) fn words(&self) -> Words {
        Words { cwd: self.cwd.clone(), env: self.env.clone(), argv: self.argv.clone() }
    }

    /// Returns the error for what the system said when the command was to be started.
    pub(super) fn refused(&self, fault: StartFault) -> ExecError {
        let StartFault { errno, error, folder } = fault;
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
fn shell() -> &'static str {
    let bash = ["/bin/bash", "/usr/bin/bash"];
    bash.into_iter().find(|path| Path::new(path).exists()).unwrap_or("/bin/sh")
}

impl End {
    pub(super) fn of(ended: Ended) -> Self {
        match (ended.stopped, ended.status) {
            (_, None) => Self::Stuck,
            (Some(Stopped::TimedOut), _) => Self::TimedOut,
            (Some(Stopped::Cancelled), _) => Self::Cancelled,
            (None, Some(Status::Exited(code))) => Self::Exited(code),
            (None, Some(Status::Signalled(signal))) => Self::Signalled(signal),
        }
    }

    /// Returns whether the command ended by itself and says that all went well.
    pub fn is_success(self) -> bool {
        self == Self::Exited(0)
    }
}
