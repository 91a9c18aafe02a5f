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
    /// The working directory.
    pub cwd: PathBuf,
    /// Variables added to the environment of all commands.
    pub env: Vec<Variable>,
    /// The standard input.
    pub stdin: CommandInput,
    /// The time after which the command is terminated; `None` for no limit.
    pub timeout: Option<Duration>,
    /// The time between termination and kill.
    pub kill_timeout: Duration,
    /// The size of the head, and of the tail, that are kept of each output, in bytes.
    pub kept_bytes: usize,
    /// The file for the whole of each output; `None` to keep head and tail only.
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
    /// The exit code, signal, or other reason of the end.
    pub end: CommandEnd,
    /// The standard output.
    pub stdout: OutputCapture,
    /// The standard error.
    pub stderr: OutputCapture,
    /// The number of background processes that were still running at the end, and were killed.
    pub strays: u32,
    /// The level of confinement.
    pub level: SandboxLevel,
    /// Files that the command created at protected paths; they have been renamed.
    pub renamed: Vec<PathBuf>,
    /// Connections refused because of the list of allowed hosts.
    pub refused: Vec<ConnectionRefusal>,
    /// Protected paths that the command changed; they have been restored.
    pub restored: Vec<PathBuf>,
    /// Notices about changed files that git executes or follows, one sentence each.
    pub notices: Vec<String>,
}

impl CommandOutcome {
    /// Returns a description of the failure, followed by the output; `None` if the command exited with code 0.
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

/// The end of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CommandEnd {
    /// The command exited with this code.
    Exited(i32),
    /// The command was ended by this signal, which came from elsewhere.
    Signalled(i32),
    /// The command reached its time limit.
    TimedOut,
    /// The caller cancelled the command.
    Cancelled,
    /// The command exceeded its memory limit and was killed.
    OutOfMemory,
    /// The command could not be killed.
    Stuck,
    /// The supervisor ended without a report. The command may have run completely, partly, or not at all.
    Lost,
}

/// An error that kept a command from being run.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ExecError {
    /// The program does not exist.
    #[error("program '{0}' was not found")]
    NoProgram(String),
    /// The working directory does not exist.
    #[error("the working directory '{0}' does not exist")]
    NoFolder(PathBuf),
    /// The command line exceeds the limit of the system.
    #[error("the command is too long for the system; put it into a script file")]
    TooLong,
    /// The system has too many processes or threads.
    #[error("the system cannot start another process ({0}); try again later")]
    OutOfResources(String),
    /// Too many files are open.
    #[error("too many files are open ({0})")]
    NoFiles(String),
    /// The system refused to start the command.
    #[error("the command could not be started: {0}")]
    Start(String),
    /// The folder for temporary files cannot be created.
    #[error("the folder for temporary files could not be created: {0}")]
    NoTemp(String),
    /// The supervisor could not be started.
    #[error("the supervisor of commands could not be started: {0}")]
    Supervisor(#[source] io::Error),
    /// The path of the workspace has become a link, or leads through one.
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

/// The requirements for confining commands, as help for the user.
pub const CONFINEMENT_HELP: &str = "confining commands takes user namespaces, or Landlock for a part of it (in a container: a runtime \
                        that allows them; on Ubuntu: `sysctl kernel.apparmor_restrict_unprivileged_userns=0`)";

/// The longest argument that the system accepts, less a reserve for what the shell adds.
const MAX_WORD_LENGTH: usize = 120 * 1024;

impl CommandSpec {
    /// Returns a command line for the shell.
    pub fn shell(line: &str, cwd: impl Into<PathBuf>) -> Self {
        let (argv, stdin) = if line.len() > MAX_WORD_LENGTH {
            // The line is too long for a single argument: the shell reads it from its standard input, which is empty
            // afterwards.
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
        // The system reports the same error for a missing folder and a missing program.
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

/// Returns the path of bash if the system has it, since models write for bash; otherwise that of another shell.
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
