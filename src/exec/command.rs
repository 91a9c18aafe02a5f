//! A command, and its result.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::capture::{OutputCapture, OutputSpool};
use super::command_env::Variable;
use super::confine::SandboxLevel;
use super::egress::ConnectionRefusal;
use super::supervisor::protocol::{CommandWords, StartFailure};

/// A command to run.
#[derive(Clone, Debug)]
pub struct CommandSpec {
    /// Program and arguments.
    pub argv: Vec<OsString>,
    /// Its working directory.
    pub cwd: PathBuf,
    /// Variables added to the environment of all commands.
    pub env: Vec<Variable>,
    /// Its standard input.
    pub stdin: CommandInput,
    /// Time after which it is terminated; `None` for no limit.
    pub timeout: Option<Duration>,
    /// Time between termination and kill.
    pub kill_timeout: Duration,
    /// How many bytes of the head, and of the tail, are kept of each output.
    pub kept_bytes: usize,
    /// The place for the whole of each output; `None` to keep head and tail only.
    pub spool: Option<OutputSpool>,
}

/// The standard input of a command; never a terminal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CommandInput {
    /// Empty input.
    #[default]
    Empty,
    /// These bytes.
    Bytes(Arc<[u8]>),
}

/// The result of a command.
#[derive(Clone, Debug)]
pub struct CommandOutcome {
    /// How the command ended.
    pub end: CommandEnd,
    /// Its standard output.
    pub stdout: OutputCapture,
    /// Its standard error.
    pub stderr: OutputCapture,
    /// The number of background processes that it left, which were killed.
    pub strays: u32,
    /// The level of its confinement.
    pub level: SandboxLevel,
    /// Files that it created at protected paths; renamed since.
    pub renamed: Vec<PathBuf>,
    /// Connections refused by the list of allowed hosts.
    pub refused: Vec<ConnectionRefusal>,
    /// Protected paths that it changed; restored since.
    pub restored: Vec<PathBuf>,
    /// What happened to changes of files that git executes or follows, one sentence each.
    pub notices: Vec<String>,
}

impl CommandOutcome {
    /// Returns how the command failed, followed by its output; `None` if it exited with code 0.
    pub fn failure(&self) -> Option<String> {
        let how = match self.end {
            CommandEnd::Exited(0) => return None,
            CommandEnd::Exited(code) => format!("exit code {code}"),
            CommandEnd::Signalled(signal) => format!("ended by signal {signal}"),
            CommandEnd::TimedOut => "timed out".to_owned(),
            CommandEnd::OutOfMemory => "used too much memory".to_owned(),
            CommandEnd::Cancelled => "cancelled".to_owned(),
            CommandEnd::Stuck => "could not be ended".to_owned(),
            CommandEnd::Lost => "the supervisor of the command broke down".to_owned(),
        };
        let output = [self.stdout.text(), self.stderr.text()].join("\n");
        Some(format!("{how}\n{}", output.trim()))
    }
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CommandEnd {
    /// It exited with this code.
    Exited(i32),
    /// It was ended by a signal from elsewhere.
    Signalled(i32),
    /// It reached its time limit.
    TimedOut,
    /// The caller cancelled it.
    Cancelled,
    /// It exceeded its memory limit and was killed.
    OutOfMemory,
    /// It could not be killed.
    Stuck,
    /// Its supervisor ended without a report. The command may have run completely, partly, or not at all.
    Lost,
}

/// Why a command was not run.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ExecError {
    /// The program does not exist.
    #[error("program '{0}' was not found")]
    NoProgram(String),
    /// The working directory does not exist.
    #[error("the working directory '{0}' does not exist")]
    NoFolder(PathBuf),
    /// It exceeds the system's limit for a command line.
    #[error("the command is too long for the system; put it into a script file")]
    TooLong,
    /// The system has too many processes or threads.
    #[error("the system cannot start another process ({0}); try again later")]
    OutOfResources(String),
    /// Too many files are open.
    #[error("too many files are open ({0})")]
    NoFiles(String),
    /// The system refused to start it.
    #[error("the command could not be started: {0}")]
    Start(String),
    /// The folder for temporary files cannot be created.
    #[error("the folder for temporary files could not be created: {0}")]
    NoTemp(String),
    /// The supervisor could not be started.
    #[error("the supervisor of commands could not be started: {0}")]
    Supervisor(#[source] io::Error),
    /// A link is on the way to the workspace now.
    #[error("the workspace {} has become a link to {}", .0.display(), .1.display())]
    Replaced(PathBuf, PathBuf),
    /// The supervisor ended before the command was started.
    #[error("the supervisor of commands ended unexpectedly")]
    Lost,
    /// Commands cannot be confined as required.
    #[error(
        "commands cannot be confined here as required: {0}; {CONFINEMENT_HELP}; without --sandbox, --network and `sandbox.required`, commands are confined as far as this system allows"
    )]
    Unconfined(String),
}

/// What a system needs to confine commands, as help for the user.
pub const CONFINEMENT_HELP: &str = "confining commands takes user namespaces, or Landlock for a part of it (in a container: a runtime \
                        that allows them; on Ubuntu: `sysctl kernel.apparmor_restrict_unprivileged_userns=0`)";

/// The longest argument that the system accepts, less some reserve for what the shell adds.
const MAX_WORD_LENGTH: usize = 120 * 1024;

impl CommandSpec {
    /// Returns a command line for the shell.
    pub fn shell(line: &str, cwd: impl Into<PathBuf>) -> Self {
        let (argv, stdin) = if line.len() > MAX_WORD_LENGTH {
            // Too long for a single argument: the shell reads it from its standard input, which is empty afterwards.
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
            spool: None,
        }
    }

    pub(super) fn command_words(&self) -> CommandWords {
        CommandWords { cwd: self.cwd.clone(), env: self.env.clone(), argv: self.argv.clone() }
    }

    /// Returns the error for a failed start.
    pub(super) fn start_error(&self, fault: StartFailure) -> ExecError {
        let StartFailure { errno, error, folder_exists: folder } = fault;
        // The system reports a missing folder and a missing program alike.
        match errno.map(Errno::from_raw_os_error) {
            Some(Errno::NOENT | Errno::NOTDIR) if !folder => ExecError::NoFolder(self.cwd.clone()),
            Some(Errno::NOENT) => {
                let program = self.argv.first().map(|program| program.to_string_lossy());
                ExecError::NoProgram(program.unwrap_or_default().into_owned())
            }
            Some(Errno::TOOBIG) => ExecError::TooLong,
            Some(Errno::AGAIN | Errno::NOMEM) => ExecError::OutOfResources(error),
            Some(Errno::MFILE | Errno::NFILE) => ExecError::NoFiles(error),
            Some(_) | None => ExecError::Start(error),
        }
    }
}

/// Models write for bash, which not every system has.
fn shell_path() -> &'static str {
    let bash = ["/bin/bash", "/usr/bin/bash"];
    bash.into_iter().find(|path| Path::new(path).exists()).unwrap_or("/bin/sh")
}

/// Returns whether commands are run by bash rather than by another shell.
pub fn shell_is_bash() -> bool {
    shell_path().ends_with("/bash")
}

impl CommandEnd {
    /// Returns whether the command exited with code 0.
    pub fn is_success(self) -> bool {
        self == Self::Exited(0)
    }
}
