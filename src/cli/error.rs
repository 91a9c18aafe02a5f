//! Errors of commands, with hints.

use std::fmt::Display;
use std::io;

use architect::app::AppError;
use architect::config::{ConfigError, ConfigProblem, ProblemKind};
use architect::exec::ExecError;
use architect::journal::{JournalError, ReadOnlyReason, SessionId};
use architect::llm::{ConnectError, ModelSpecError};
use architect::machine::StopReason;
use architect::types::Signal;
use architect::view::{OutputError, RunResult};

use super::{USAGE_EXIT_CODE, output};

/// An error of a command.
#[derive(Debug)]
pub(crate) struct CliError {
    exit_code: u8,
    /// The stop reason of a run that fails with this error; `None` if no run began.
    stop_reason: Option<StopReason>,
    message: String,
    hints: Vec<String>,
    /// The result that could not be written.
    result: Option<Box<RunResult>>,
}

impl CliError {
    /// Returns an error that the user can fix, as in arguments, the configuration or files.
    pub(crate) fn usage(message: impl Display) -> Self {
        Self::new(USAGE_EXIT_CODE, None, message)
    }

    /// Returns an error of the system, or an internal error.
    pub(crate) fn failed(message: impl Display) -> Self {
        Self::new(1, Some(StopReason::InternalError), message)
    }

    /// Returns the error of starting a thread before a run.
    pub(crate) fn no_thread(what: &str, error: &io::Error) -> Self {
        let failure = Self::new(1, None, format!("could not start {what}: {error}"));
        match error.kind() {
            io::ErrorKind::WouldBlock => failure.hint(
                "the system allows no more threads or processes: end other ones, or raise the limit (`ulimit -u`, or \
                 that of the container)",
            ),
            _ => failure,
        }
    }

    fn new(exit_code: u8, stop_reason: Option<StopReason>, message: impl Display) -> Self {
        let message = message.to_string();
        Self { exit_code, stop_reason, message, hints: Vec::new(), result: None }
    }

    /// Returns the error of reading a file that the user has named.
    pub(crate) fn unreadable(name: impl Display, error: &io::Error) -> Self {
        Self::usage(format!("could not read {name}: {error}"))
    }

    /// Returns the error of a write to standard output.
    pub(crate) fn from_stdout(error: &io::Error) -> Self {
        match OutputError::from(error) {
            OutputError::ReaderGone => Self::new(Signal::Pipe.exit_code(), None, ""),
            OutputError::HungUp if output::is_stdout_device() => {
                Self::new(Signal::Hangup.exit_code(), None, "")
            }
            _ => Self::failed(format!("could not write to standard output: {error}")),
        }
    }

    /// Adds a hint.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// Attaches the result that could not be written.
    pub(crate) fn with_result(self, result: RunResult) -> Self {
        Self { result: Some(Box::new(result)), ..self }
    }

    /// Returns the result document of a run that failed with this error.
    pub(crate) fn to_result(&self) -> RunResult {
        let refused = RunResult::not_started(&*self.message);
        let (exit_code, stop_reason) = (self.exit_code, self.stop_reason);
        match &self.result {
            None => RunResult { exit_code, stop_reason, ..refused },
            Some(result) => {
                let RunResult { status, error, .. } = refused;
                RunResult { exit_code, status, error, ..RunResult::clone(result) }
            }
        }
    }

    /// Returns the exit code.
    pub(crate) fn code(&self) -> u8 {
        self.exit_code
    }

    /// Returns hints for the user.
    pub(crate) fn hints(&self) -> &[String] {
        &self.hints
    }

    /// Returns the message with its hints, for a program that displays it.
    pub(crate) fn text(&self) -> String {
        let hints = self.hints.iter().map(|hint| format!("\n{hint}"));
        std::iter::once(self.message.clone()).chain(hints).collect()
    }

    /// Writes the error to standard error.
    pub(crate) fn print(&self) {
        // The reader of the output has gone, so there is nothing to report.
        if self.message.is_empty() {
            return;
        }
        let hints: String = self.hints.iter().map(|hint| format!("  hint: {hint}\n")).collect();
        output::print_stderr(&format!("error: {}\n{hints}", self.message));
    }
}

impl From<AppError> for CliError {
    fn from(error: AppError) -> Self {
        let failure = match &error {
            AppError::Config(error) => return from_config_error(error),
            _ if error.is_user_error() => Self::usage(&error),
            AppError::Journal(_) => Self::new(1, Some(StopReason::StoreError), &error),
            _ => Self::failed(&error),
        };
        error_hints(&error).into_iter().fold(failure, Self::hint)
    }
}

impl From<JournalError> for CliError {
    fn from(error: JournalError) -> Self {
        AppError::from(error).into()
    }
}

/// Converts the error, with the source line of each problem.
fn from_config_error(error: &ConfigError) -> CliError {
    if let [problem] = &*error.problems
        && let ProblemKind::Unknown { kind, known, .. } = &problem.kind
        && (!known.is_empty() || *kind == "profile")
    {
        // The option need not be named, and `--mode` stands for a key that the user has not typed.
        let trouble = &problem.kind;
        let names = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        let failure = CliError::usage(format!("{trouble}\n  known {kind}s: {names}"));
        return match *kind {
            "agent" => failure.hint("`architect agents` describes them"),
            "profile" if known.is_empty() => {
                failure.hint("a table `[profiles.NAME]` of a configuration file defines one")
            }
            _ => failure,
        };
    }
    let mut message = String::from("invalid configuration");
    for problem in &error.problems {
        message.push_str(&format!("\n  {problem}"));
        if let Some(excerpt) = problem.excerpt() {
            let (indent, mark) = (" ".repeat(excerpt.column - 1), "^".repeat(excerpt.width));
            message.push_str(&format!("\n    | {}\n    | {indent}{mark}", excerpt.line));
        }
    }
    // The list of keys does not help with an unreadable file.
    let is_of_a_file = |problem: &ConfigProblem| {
        matches!(problem.kind, ProblemKind::Unreadable(_) | ProblemKind::Syntax(_))
    };
    let hint = "`architect init --print` prints every key with its default";
    match error.problems.iter().all(is_of_a_file) {
        true => CliError::usage(message),
        false => CliError::usage(message).hint(hint),
    }
}

/// Returns hints for a session that can only be read.
fn read_only_hints(session: SessionId, why: &ReadOnlyReason) -> Vec<String> {
    let fork = |seq: u64| {
        format!("`architect fork {session}@{}` continues in a copy of the intact part", seq - 1)
    };
    match *why {
        ReadOnlyReason::NewerFormat { .. } => vec!["resume it with that release".to_owned()],
        // Without its first record, a journal is unreadable.
        ReadOnlyReason::UnknownRecord { seq: 0, .. } | ReadOnlyReason::Damaged { seq: 0, .. } => {
            Vec::new()
        }
        ReadOnlyReason::UnknownRecord { seq, .. } => vec![fork(seq)],
        ReadOnlyReason::Damaged { seq, .. } => vec![
            fork(seq),
            format!("`architect resume {session} --repair` truncates the journal at the damage"),
        ],
    }
}

/// Returns hints for an error.
pub(crate) fn error_hints(error: &AppError) -> Vec<String> {
    let hints: &[&str] = match error {
        AppError::NoModel => &[
            "name one: --model PROVIDER/NAME, or `model` in [llm] of the configuration; `architect models` lists them",
            "`architect demo` shows a whole run without a model",
        ],
        AppError::Model(ModelSpecError::UnknownName { name, .. }) => {
            return vec![
                "`architect models` lists the known names".to_owned(),
                format!("another one needs its provider, as in openai-chat/{name}, or --api-base"),
            ];
        }
        AppError::Model(ModelSpecError::UnknownProvider { .. }) => &[
            "with --api-base, openai-chat/NAME is the model NAME of that server, whatever the name",
        ],
        AppError::Connect(ConnectError::MissingKey { .. }) => {
            &["set the variable, or name another one with --api-key-env"]
        }
        AppError::Connect(ConnectError::KeyCommand { .. }) => &[
            "run it in a shell: it has to print only the key, within a minute, and gets no keys of providers in its \
             environment",
        ],
        AppError::Connect(ConnectError::Credentials(_)) => &[
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or an API key of Bedrock in \
             AWS_BEARER_TOKEN_BEDROCK",
        ],
        AppError::Connect(ConnectError::MissingAddressPart { .. }) => &["set the variable"],
        AppError::Connect(ConnectError::AzureAddress { .. }) => &[
            "the address is the Azure OpenAI endpoint of your resource, such as https://RESOURCE.openai.azure.com; the \
             model is the name of the deployment: azure/DEPLOYMENT",
        ],
        AppError::RepeatedFallback(_) => &[
            "name other models in llm.fallback; requests to a model are retried by themselves: llm.retries, llm.retry_for",
        ],
        AppError::NoPrice(_) => &[
            "add its price to the file of `costs.prices_file`, or run without counting costs: --set costs.unknown_price=warn",
        ],
        AppError::HomeAsWorkspace(path) => {
            let path = path.display();
            return vec![
                "change to the folder of a project, or name one with --workspace".to_owned(),
                format!("--workspace {path} uses it anyway; its dotfiles stay protected"),
            ];
        }
        AppError::Workspace { .. } => &["name another folder with --workspace"],
        AppError::Exec(ExecError::Unconfined(_)) => &[
            "`architect doctor` shows what this system supports; --sandbox off disables the confinement",
        ],
        AppError::Journal(error) => return journal_hints(error),
        _ => &[],
    };
    hints.iter().map(ToString::to_string).collect()
}

/// Returns hints for an error of the store.
fn journal_hints(error: &JournalError) -> Vec<String> {
    let resume = |session: &SessionId| format!("`architect resume {session} PROMPT` resumes it");
    match error {
        JournalError::Busy { session, .. } => vec![
            format!("`architect steer {session} MESSAGE` sends a message to the running session"),
            format!("`architect fork {session}` continues in a copy"),
        ],
        JournalError::SessionExists(session) => {
            vec![resume(session), "without --session, an id is generated".to_owned()]
        }
        JournalError::NotRunning(session) => vec![resume(session)],
        JournalError::UnknownSession(name) => {
            let list = "`architect sessions list` lists the stored sessions".to_owned();
            let task = format!("the session comes first: last {name:?}");
            std::iter::once(list).chain(name.contains(' ').then_some(task)).collect()
        }
        JournalError::NotAnExport { .. } => vec!["`architect export` writes one".to_owned()],
        JournalError::Ambiguous { .. } => vec!["give more of the id".to_owned()],
        JournalError::InvalidId(_) => {
            vec!["an id is a UUID in lower case; without --session, one is generated".to_owned()]
        }
        JournalError::ReadOnly { session, reason } | JournalError::Damaged { session, reason } => {
            read_only_hints(*session, reason)
        }
        JournalError::Misnamed { header, .. } => {
            vec![format!("rename the file and the folder beside it to {header}, or remove them")]
        }
        JournalError::Io(_)
        | JournalError::NoStateFolder
        | JournalError::UntrustedFolder { .. } => vec![
            "`sessions.dir` names another folder, and `--out` that of a batch, a loop or a pipeline; `run --ephemeral` \
             stores nothing"
                .to_owned(),
        ],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_without_threads_is_no_defect() {
        let failure = CliError::no_thread("writing", &io::ErrorKind::WouldBlock.into());
        let result = failure.to_result();
        assert_eq!((result.exit_code, result.stop_reason), (1, None));
        assert!(failure.text().contains("`ulimit -u`"), "{}", failure.text());
    }
}
