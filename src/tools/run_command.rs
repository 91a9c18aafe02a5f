//! `run_command`: runs a shell command in the workspace.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use super::calls::{build_tool, resolve};
use super::description::{BuiltInTool, Subject, TargetKind};
use super::error_hints;
use super::tool::{CallContext, ToolInvocation, ToolOutput};
use crate::exec::{
    CommandEnd, CommandOutcome, CommandSpec, SandboxLevel, Supervisor, explain_denial,
};
use crate::model::{CallAccess, TimeSpan, ToolStatus};
use crate::policy::{CallKind, CallTarget, CommandTarget, DeniedFiles};
use crate::port::EffectNotice;
use crate::workspace::{FileKind, RelPath, WorkspaceRoot};

const NAME: &str = "run_command";

pub(super) const TOOL: BuiltInTool = BuiltInTool {
    name: NAME,
    target: TargetKind::Command,
    summarize: |arguments| Subject::Text(arguments.text("command").unwrap_or_default()).into(),
    build: |context| {
        let settings = context.settings.commands.clone();
        let (root, supervisor) = (context.root.clone(), context.supervisor.clone());
        let denied = DeniedFiles::new(context.root, &context.settings.rules);
        let description = format!(
            "Runs a shell command in the workspace and returns its output, its error output and its exit code. It has \
             no terminal and no input; it is ended after {} seconds unless timeout says otherwise, which can be up to {MAX_TIMEOUT}. Nothing that it \
             leaves in the background survives it. Each command starts afresh: use cwd instead of cd.",
            settings.default_timeout
        );
        Some(build_tool(NAME, &description, move |arguments: Arguments| {
            let Arguments { command, cwd, timeout, env } = arguments;
            let invalid = |what: &str| Err(format!("Invalid arguments for run_command: {what}."));
            if command.trim().is_empty() {
                return invalid("command is empty");
            }
            if command.contains('\0') || !env.iter().all(is_valid_variable) {
                return invalid("a NUL character, or a variable's name with =, is not possible");
            }
            let timeout = timeout.unwrap_or(settings.default_timeout);
            if !(1..=MAX_TIMEOUT).contains(&timeout) {
                return invalid(&format!(
                    "timeout is {timeout}, and has to be between 1 and {MAX_TIMEOUT} seconds"
                ));
            }
            let cwd = resolve(&root, cwd.as_deref())?;
            let folder = if cwd.is_root() { String::new() } else { cwd.to_string() };
            Ok(Call {
                root: root.clone(),
                supervisor: supervisor.clone(),
                command: CommandTarget::new(&command, &folder, env.keys().cloned().collect()),
                cwd,
                timeout: Duration::from_secs(timeout),
                env,
                max_lines: settings.max_output_lines,
                denied: denied.clone(),
            })
        }))
    },
};

/// The arguments from the model.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The command line, for a shell.
    command: String,
    /// The folder to run it in, relative to the workspace. Default: the workspace.
    cwd: Option<String>,
    /// Seconds after which it is ended. Give it more for builds and tests that take long.
    timeout: Option<u64>,
    /// Variables that are added to its environment.
    #[serde(default)]
    env: BTreeMap<String, String>,
}

struct Call {
    root: WorkspaceRoot,
    supervisor: Supervisor,
    command: CommandTarget,
    cwd: RelPath,
    timeout: Duration,
    env: BTreeMap<String, String>,
    max_lines: usize,
    denied: DeniedFiles,
}

/// The maximum timeout of a command, in seconds.
const MAX_TIMEOUT: u64 = 3_600;

fn is_valid_variable((name, value): (&String, &String)) -> bool {
    !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0')
}

/// Returns the value of a variable as a confirmation shows it.
fn format_variable(value: &str) -> String {
    match value.char_indices().nth(60) {
        Some((end, _)) => format!("{:?}…", &value[..end]),
        None => format!("{value:?}"),
    }
}

impl ToolInvocation for Call {
    fn kind(&self) -> CallKind {
        CallKind::Command
    }

    fn access(&self) -> CallAccess {
        CallAccess::Exclusive
    }

    fn targets(&self) -> Vec<CallTarget> {
        vec![CallTarget::Command(self.command.clone())]
    }

    fn summary(&self) -> String {
        let mut summary = self.command.text().to_owned();
        if !self.cwd.is_root() {
            summary += &format!(" (in {})", self.cwd);
        }
        if !self.env.is_empty() {
            let set =
                self.env.iter().map(|(name, value)| format!("{name}={}", format_variable(value)));
            summary += &format!(" (with {})", set.collect::<Vec<_>>().join(" "));
        }
        summary
    }

    fn time_limit(&self) -> TimeSpan {
        TimeSpan::from(self.timeout + Duration::from_secs(20))
    }

    fn run(self: Box<Self>, context: &CallContext<'_>) -> ToolOutput {
        // The folder is resolved through the handle of the workspace, so that no symbolic link leads the command outside.
        match self.root.kind(&self.cwd) {
            Ok(FileKind::Directory) => {}
            Ok(_) => return ToolOutput::failed(format!("'{}' is not a directory", self.cwd)),
            Err(error) => {
                return ToolOutput::failed(error_hints::describe_missing(&self.root, &error));
            }
        }
        let cwd = self.root.path().join(self.cwd.as_path());
        let own = [("ARCHITECT_CALL_ID".into(), context.call.as_str().into())];
        let env = self.env.iter().map(|(name, value)| (name.into(), value.into())).chain(own);
        let command = CommandSpec {
            env: env.collect(),
            timeout: Some(self.timeout),
            ..CommandSpec::shell(self.command.text(), cwd)
        };
        let before = self.denied.existing();
        let watch = |text: &str| {
            let (call, text) = (context.call.clone(), text.into());
            context.scope.notify(EffectNotice::Output { call, text });
        };
        match self.supervisor.run_watched(&command, &context.scope.cancel, &watch) {
            Ok(outcome) => {
                self.describe_outcome(&outcome, &command.cwd, self.denied.rename_denied(&before))
            }
            Err(error) => ToolOutput::failed(format!("The command was not run: {error}.")),
        }
    }
}

/// The result of a command whose supervisor has crashed.
const SUPERVISOR_LOST: &str = "outcome unknown: the supervisor of the command broke down, or was killed, while the command was \
     running. The command was ended; it may have completed, partially completed, or not run at all. Look at what is \
     there before you repeat it";

impl Call {
    fn describe_outcome(
        &self,
        outcome: &CommandOutcome,
        cwd: &Path,
        denied: Vec<String>,
    ) -> ToolOutput {
        let status = match outcome.end {
            CommandEnd::Exited(0) => ToolStatus::Ok,
            CommandEnd::Exited(_) | CommandEnd::Signalled(_) | CommandEnd::OutOfMemory => {
                ToolStatus::Failed
            }
            CommandEnd::TimedOut => ToolStatus::TimedOut,
            CommandEnd::Cancelled => ToolStatus::Interrupted,
            CommandEnd::Stuck => ToolStatus::Abandoned,
            CommandEnd::Lost => ToolStatus::InDoubt,
        };
        let end = match outcome.end {
            CommandEnd::Exited(126) => "exit code 126: not executable".to_owned(),
            CommandEnd::Exited(127) => "exit code 127: command not found".to_owned(),
            CommandEnd::Exited(code @ 129..=159) => {
                format!("exit code {code}, as after signal {}", signal_name(code - 128))
            }
            CommandEnd::Exited(code) => format!("exit code {code}"),
            CommandEnd::Signalled(signal) => format!("ended by signal {}", signal_name(signal)),
            CommandEnd::TimedOut => format!(
                "timed out after {} s and was ended with all that it had started; `timeout` can be up to {MAX_TIMEOUT} s",
                self.timeout.as_secs()
            ),
            CommandEnd::OutOfMemory => format!(
                "used more than {} MB of memory and was killed with all that it had started; the user can \
                 allow more with sandbox.max_memory_mb",
                self.supervisor.policy().limits.memory.unwrap_or_default() >> 20
            ),
            CommandEnd::Cancelled => "interrupted".to_owned(),
            CommandEnd::Stuck => {
                "could not be ended, not even by SIGKILL, and was left alone".to_owned()
            }
            CommandEnd::Lost => SUPERVISOR_LOST.to_owned(),
        };
        let mut notes = vec![end];
        match outcome.strays {
            0 => {}
            1 => notes.push("a background process was ended with it".to_owned()),
            n => notes.push(format!("{n} background processes were ended with it")),
        }
        notes.extend(denied);
        let relative =
            |path: &Path| path.strip_prefix(self.root.path()).unwrap_or(path).display().to_string();
        notes.extend(outcome.renamed.iter().map(|path| relative(path)).map(|path| {
            format!(
                "sandbox denied: {path} is protected, and nothing may be put there; what the command made of it was \
                 renamed to {path}.denied"
            )
        }));
        if !outcome.refused.is_empty() {
            let refused: Vec<String> = outcome.refused.iter().map(ToString::to_string).collect();
            notes.push(format!(
                "sandbox denied: {}; the user can allow a host with sandbox.allowed_hosts",
                refused.join(", ")
            ));
        }
        notes.extend(outcome.restored.iter().map(|path| relative(path)).map(|path| {
            format!(
                "sandbox denied: {path} is protected; what the command changed in it was undone"
            )
        }));
        notes.extend(outcome.notices.iter().cloned());
        let whole = [outcome.stdout.text(), outcome.stderr.text()];
        if outcome.level > SandboxLevel::None {
            let policy = self.supervisor.policy();
            // If the command failed, its standard output may contain the error, too.
            let texts = if outcome.end.is_success() { &whole[1..] } else { &whole[..] };
            notes.extend(texts.iter().find_map(|text| explain_denial(text, policy, cwd)));
        }
        let [(stdout, out_cut), (stderr, err_cut)] =
            whole.each_ref().map(|text| self.truncate_output(text));
        let end = format!("[{}]", notes.join("; "));
        let text = format_sections(&stdout, &stderr, &end);
        let whole =
            (out_cut || err_cut).then(|| format_sections(&whole[0], &whole[1], &end).into());
        ToolOutput { full_text: whole, ..ToolOutput::new(status, text) }
    }

    /// Omits the middle of a long output, and returns whether lines were omitted.
    fn truncate_output(&self, text: &str) -> (String, bool) {
        let lines: Vec<&str> = text.split_inclusive('\n').collect();
        if self.max_lines == 0 || lines.len() <= self.max_lines {
            return (text.to_owned(), false);
        }
        let tail = self.max_lines / 2;
        let head = self.max_lines - tail;
        let omitted = lines.len() - self.max_lines;
        let (head, tail) = (lines[..head].concat(), lines[lines.len() - tail..].concat());
        (format!("{head}[... {omitted} lines omitted ...]\n{tail}"), true)
    }
}

fn format_sections(stdout: &str, stderr: &str, end: &str) -> String {
    let mut text = String::with_capacity(stdout.len() + stderr.len() + end.len() + 16);
    for (title, section) in [("", stdout), ("[stderr]\n", stderr)] {
        if !section.is_empty() {
            text += title;
            text += section;
            if !section.ends_with('\n') {
                text.push('\n');
            }
        }
    }
    text + end
}

/// Returns the name of a signal, and the likely reason for it.
fn signal_name(signal: i32) -> String {
    let Some(name) = signal_hook::low_level::signal_name(signal) else { return signal.to_string() };
    let reason = match name {
        "SIGKILL" => ", perhaps for want of memory",
        "SIGXFSZ" => ", a file grew too large",
        _ => "",
    };
    format!("{signal} ({name}{reason})")
}
