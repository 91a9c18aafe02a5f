//! Errors of commands, with hints.

use std::io;

use architect::app::AppError;
use architect::config::{ConfigError, ProblemKind};
use architect::exec::ExecError;
use architect::journal::{JournalError, ReadOnlyReason, SessionId};
use architect::llm::{ConnectError, ModelSpecError};
use architect::machine::StopReason;
use architect::view::RunResult;

use super::{USAGE_EXIT_CODE, output};

/// An error of a command.
#[derive(Debug)]
pub(crate) struct CliError {
    kind: CliErrorKind,
    message: String,
    hints: Vec<String>,
    /// The result that could not be written.
    result: Option<Box<RunResult>>,
}

/// Who can fix it. Determines the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CliErrorKind {
    /// The user: arguments, configuration, files.
    Usage,
    /// Standard output is closed.
    Pipe,
    /// The system: the journal could not be kept.
    Store,
    /// The system, or a defect.
    Failed,
}

impl CliErrorKind {
    /// Returns the stop reason of a run that could not begin because of it, if it has one.
    fn stop_reason(self) -> Option<StopReason> {
        match self {
            Self::Usage | Self::Pipe => None,
            Self::Store => Some(StopReason::StoreError),
            Self::Failed => Some(StopReason::InternalError),
        }
    }
}

impl CliError {
    /// Returns an error that the user can fix.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { kind: CliErrorKind::Usage, message: message.into(), hints: Vec::new(), result: None }
    }

    /// Returns an error of the system, or a defect.
    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self {
            kind: CliErrorKind::Failed,
            message: message.into(),
            hints: Vec::new(),
            result: None,
        }
    }

    /// Returns the failure of a write to standard output.
    pub(crate) fn from_stdout(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self {
                kind: CliErrorKind::Pipe,
                message: String::new(),
                hints: Vec::new(),
                result: None,
            },
            _ => Self::failed(format!("could not write to standard output: {error}")),
        }
    }

    /// Adds a hint.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// Keeps the result that could not be written.
    pub(crate) fn with_result(self, result: RunResult) -> Self {
        Self { result: Some(Box::new(result)), ..self }
    }

    /// Returns the result document of a run that failed with this error.
    pub(crate) fn to_result(&self) -> RunResult {
        let refused = RunResult::not_started(self.message());
        let exit_code = self.code();
        match &self.result {
            None => RunResult { exit_code, stop_reason: self.kind.stop_reason(), ..refused },
            Some(result) => {
                let RunResult { status, error, .. } = refused;
                RunResult { exit_code, status, error, ..RunResult::clone(result) }
            }
        }
    }

    /// Returns the exit code.
    pub(crate) fn code(&self) -> u8 {
        match self.kind {
            CliErrorKind::Usage => USAGE_EXIT_CODE,
            CliErrorKind::Pipe => 141,
            CliErrorKind::Store | CliErrorKind::Failed => 1,
        }
    }

    /// Returns what is wrong.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// Writes the failure to standard error.
    pub(crate) fn print(&self) {
        if self.kind == CliErrorKind::Pipe {
            return;
        }
        let mut text = format!("error: {}\n", self.message);
        for hint in &self.hints {
            text.push_str(&format!("  hint: {hint}\n"));
        }
        output::print_stderr(&text);
    }
}

impl From<AppError> for CliError {
    fn from(error: AppError) -> Self {
        let failure = match &error {
            AppError::Config(error) => return from_config_error(error),
            _ if error.is_user_error() => Self::usage(error.to_string()),
            AppError::Journal(_) => {
                Self { kind: CliErrorKind::Store, ..Self::failed(error.to_string()) }
            }
            _ => Self::failed(error.to_string()),
        };
        error_hints(&error).into_iter().fold(failure, Self::hint)
    }
}

impl From<JournalError> for CliError {
    fn from(error: JournalError) -> Self {
        AppError::from(error).into()
    }
}

/// Shows the line that each problem is in.
fn from_config_error(error: &ConfigError) -> CliError {
    if let [problem] = &*error.problems
        && let ProblemKind::Unknown { kind, known, .. } = &problem.kind
        && !known.is_empty()
    {
        // Which option names it is plain, and `--mode` stands for a key that the user has not typed.
        let trouble = &problem.kind;
        let failure = CliError::usage(format!("{trouble}\n  known {kind}s: {}", known.join(", ")));
        return match *kind {
            "agent" => failure.hint("`architect agents` describes them"),
            _ => failure,
        };
    }
    let mut message = String::from("the configuration is wrong");
    for problem in &error.problems {
        message.push_str(&format!("\n  {problem}"));
        if let Some(excerpt) = problem.excerpt() {
            let (indent, mark) = (" ".repeat(excerpt.column - 1), "^".repeat(excerpt.width));
            message.push_str(&format!("\n    | {}\n    | {indent}{mark}", excerpt.line));
        }
    }
    // The origin of values does not help if a file can't be read at all.
    let is_of_a_file = |trouble: &ProblemKind| {
        matches!(trouble, ProblemKind::Unreadable(_) | ProblemKind::Syntax(_))
    };
    if error.problems.iter().all(|problem| is_of_a_file(&problem.kind)) {
        return CliError::usage(message);
    }
    CliError::usage(message)
        .hint("`architect config show` shows every key with its value and where it comes from")
}

/// Returns what the user can do about a session that can only be read.
fn read_only_hints(session: SessionId, why: &ReadOnlyReason) -> Vec<String> {
    let fork = |seq: u64| {
        format!("`architect fork {session}@{}` continues in a copy of what is intact", seq - 1)
    };
    match why {
        ReadOnlyReason::NewerFormat { .. } => vec!["resume it with that release".to_owned()],
        // Without its first record a journal can't be read.
        ReadOnlyReason::UnknownRecord { seq: 0, .. } | ReadOnlyReason::Damaged { seq: 0, .. } => {
            Vec::new()
        }
        ReadOnlyReason::UnknownRecord { seq, .. } => vec![fork(*seq)],
        ReadOnlyReason::Damaged { seq, .. } => vec![
            fork(*seq),
            format!("`architect resume {session} --repair` cuts off what is damaged"),
        ],
    }
}

/// Returns what the user can do about an error.
fn error_hints(error: &AppError) -> Vec<String> {
    let hint = |text: &str| vec![text.to_owned()];
    match error {
        AppError::NoModel => vec![
            "name one: --model PROVIDER/NAME, or `model` in [llm] of the configuration".to_owned(),
            "`architect demo` shows a whole run without a model".to_owned(),
        ],
        AppError::Model(ModelSpecError::UnknownName { .. }) => {
            hint("with --api-base any name is accepted, for an OpenAI-compatible server")
        }
        AppError::Connect(ConnectError::MissingKey { .. }) => {
            hint("set the variable, or name another one with --api-key-env")
        }
        AppError::NoPrice(_) => hint(
            "add its price to the file of `costs.prices_file`, or run without counting costs: --set costs.unknown_price=warn",
        ),
        AppError::HomeAsWorkspace(path) => vec![
            "change to the folder of a project, or name one with --workspace".to_owned(),
            format!("--workspace {} uses it anyway; its dotfiles stay protected", path.display()),
        ],
        AppError::Workspace { .. } => hint("name another folder with --workspace"),
        AppError::Exec(ExecError::Unconfined(_)) => hint(
            "`architect doctor` shows what this system supports; --sandbox off disables the confinement",
        ),
        AppError::Journal(JournalError::Busy { session, .. }) => vec![
            format!("`architect steer {session} MESSAGE` sends a message to the running session"),
            format!("`architect fork {session}` continues in a copy"),
        ],
        AppError::Journal(JournalError::SessionExists(session)) => vec![
            format!("`architect resume {session} PROMPT` resumes it"),
            "without --session an id is generated".to_owned(),
        ],
        AppError::Journal(JournalError::NotRunning(session)) => {
            vec![format!("`architect resume {session} PROMPT` resumes it")]
        }
        AppError::Journal(JournalError::UnknownSession(_) | JournalError::InvalidId(_)) => {
            hint("`architect sessions list` lists the stored sessions")
        }
        AppError::Journal(JournalError::ReadOnly { session, reason: why }) => {
            read_only_hints(*session, why)
        }
        AppError::Journal(JournalError::Damaged { session, reason: why }) => {
            let partial = "--partial uses what comes before the damage".to_owned();
            read_only_hints(*session, why).into_iter().chain([partial]).collect()
        }
        AppError::Journal(JournalError::Misnamed { header, .. }) => {
            vec![format!("rename the file and the folder beside it to {header}, or remove them")]
        }
        AppError::Journal(
            JournalError::Io { .. }
            | JournalError::NoStateFolder
            | JournalError::UntrustedFolder { .. },
        ) => hint(
            "--ephemeral runs without storing the session; `sessions.dir` names another folder",
        ),
        _ => Vec::new(),
    }
}
