//! `run_command`: runs a shell command in the workspace.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::Deserialize;

use super::background::{BackgroundCommand, BackgroundCommands, CommandEnding, NeededWork};
use super::calls::{build_tool, resolve};
use super::description::{BuiltInTool, Subject, TargetKind};
use super::line_log::LineLog;
use super::readiness::{ReadinessCondition, ReadinessOutcome};
use super::spooled_text::SpooledText;
use super::tool::{CallContext, CallPlan, Tool, ToolInvocation, ToolOutput};
use super::{command_output, error_hints, stop_command};
use crate::exec::{
    CommandEnd, CommandOutcome, CommandSpec, NetworkAccess, Omission, OutputCapture, OutputSpool,
    SandboxLevel, Supervisor, explain_denial, sure_denials,
};
use crate::machine::CallIntent;
use crate::policy::{CallKind, CallTarget, CommandTarget, DeniedFiles};
use crate::port::{CancellationToken, EffectNotice, ToolSpec};
use crate::types::{CallAccess, TimeSpan, ToolStatus};
use crate::workspace::{FileKind, RelPath, WorkspaceRoot};

const NAME: &str = "run_command";

pub(super) const TOOL: BuiltInTool = BuiltInTool {
    name: NAME,
    aliases: &["Bash", "shell"],
    target: TargetKind::Command,
    summarize: |arguments| Subject::Text(arguments.text("command").unwrap_or_default()).into(),
    build: |context| {
        let settings = context.settings.commands.clone();
        let (root, supervisor) = (context.root.clone(), context.supervisor.clone());
        let denied =
            DeniedFiles::new(context.root, &context.settings.rules, &context.settings.guardrails);
        let description = format!(
            "Runs a shell command in the workspace and returns its output, its error output and its exit code. It has \
             no terminal and no input; it is ended after {} seconds unless timeout says otherwise, which can be up to {MAX_TIMEOUT}. Nothing that it \
             leaves in the background survives it, unless background is true: then the call returns and the command runs on, such as \
             a development server, with an input that stays open, until stop_command or the end of the run. Each command starts afresh: use cwd instead of cd.",
            settings.default_timeout
        );
        let background = context.background.clone();
        let tool = build_tool(NAME, &description, move |arguments: Arguments| {
            let Arguments { command, cwd, timeout, env, .. } = arguments;
            let Arguments { ready_pattern, ready_port, ready_file, needed, .. } = arguments;
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
            let has_condition =
                [ready_pattern.is_some(), ready_port.is_some(), ready_file.is_some()];
            let conditions = has_condition.into_iter().filter(|is_given| *is_given).count();
            if !arguments.background && (conditions > 0 || needed) {
                return invalid(
                    "ready_pattern, ready_port, ready_file and needed are for background: true",
                );
            }
            if conditions > 1 {
                return invalid("give one of ready_pattern, ready_port and ready_file");
            }
            let ready = match (ready_pattern, ready_port, ready_file) {
                (Some(pattern), ..) => Some(
                    ReadinessCondition::pattern(&pattern)
                        .map_err(|error| format!("Invalid arguments for run_command: {error}."))?,
                ),
                (_, Some(0), _) => return invalid("ready_port is 0"),
                (_, Some(_), _) if supervisor.policy().network != NetworkAccess::On => {
                    return invalid(
                        "ready_port is not possible, since each command has a network of its own here (--network): use \
                         ready_pattern, and reach the port in the same command",
                    );
                }
                (_, Some(port), _) => Some(ReadinessCondition::Port(port)),
                (.., Some(path)) => {
                    Some(ReadinessCondition::file(&root, resolve(&root, Some(&path))?))
                }
                (None, None, None) => None,
            };
            let background = arguments.background.then(|| BackgroundStart {
                commands: background.clone(),
                ready,
                is_needed: needed,
            });
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
                max_stored: settings.max_stored_output,
                denied: denied.clone(),
                background,
            })
        });
        Some(Box::new(CommandTool { tool, background: context.background.clone() }))
    },
};

/// The tool; its commands may continue to run after their calls.
struct CommandTool {
    tool: Box<dyn Tool>,
    background: BackgroundCommands,
}

impl Tool for CommandTool {
    fn spec(&self) -> &ToolSpec {
        self.tool.spec()
    }

    fn prepare(&self, arguments: &str) -> Result<Box<dyn ToolInvocation>, String> {
        self.tool.prepare(arguments)
    }

    fn wait_for_needed(&self, most: Duration, cancel: &CancellationToken) -> NeededWork {
        self.background.wait_for_needed(most, cancel)
    }

    fn finish(&self, most: Duration) {
        self.background.close(most);
    }
}

/// The arguments from the model.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The command line, for a shell.
    command: String,
    /// The folder to run it in, relative to the workspace. Default: the workspace.
    cwd: Option<String>,
    /// Seconds after which it is ended. Give it more for builds and tests that take long. In the background: seconds within
    /// which it has to be ready.
    #[schemars(range(min = 1, max = MAX_TIMEOUT))]
    timeout: Option<u64>,
    /// Variables that are added to its environment.
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// Whether it runs on in the background after the call. `command_output`, `command_input` and `stop_command` take the id of
    /// the call.
    #[serde(default)]
    background: bool,
    /// In the background: it is ready when a line of its output matches this regular expression.
    ready_pattern: Option<String>,
    /// In the background: it is ready when this TCP port of the machine is open.
    ready_port: Option<u16>,
    /// In the background: it is ready when this file of the workspace is new or was changed.
    ready_file: Option<String>,
    /// In the background: whether it has to end before the task is done. Without it, it is stopped then.
    #[serde(default)]
    needed: bool,
}

struct Call {
    root: WorkspaceRoot,
    supervisor: Supervisor,
    command: CommandTarget,
    cwd: RelPath,
    timeout: Duration,
    env: BTreeMap<String, String>,
    max_lines: usize,
    /// The maximum number of stored bytes of each output.
    max_stored: u64,
    denied: DeniedFiles,
    /// The start in the background; `None` for a command in the foreground.
    background: Option<BackgroundStart>,
}

/// The options of a start in the background.
struct BackgroundStart {
    commands: BackgroundCommands,
    /// The condition to wait for; `None` if the command is ready as soon as it runs.
    ready: Option<ReadinessCondition>,
    is_needed: bool,
}

/// The time in which a failure of a command without a condition is still reported by its call.
const START_TIME: Duration = Duration::from_millis(300);

/// The size of the beginning, and of the end, of the output of a background command that are kept in memory for its
/// first result, in bytes.
const MAX_KEPT_OUTPUT: usize = 256 << 10;

/// The maximum timeout of a command, in seconds.
const MAX_TIMEOUT: u64 = 3_600;

fn is_valid_variable((name, value): (&String, &String)) -> bool {
    !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0')
}

/// Returns the value of a variable, shortened for a confirmation.
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
        if self.background.is_some() {
            summary += " (in the background)";
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

    fn plan(&mut self) -> Result<CallPlan, Box<ToolOutput>> {
        let intent = match self.background {
            Some(BackgroundStart { is_needed, .. }) => {
                let command = self.command.text().into();
                CallIntent::Background { command, needed: Some(is_needed) }
            }
            None => CallIntent::Opaque,
        };
        Ok(CallPlan { intent, changes: Vec::new() })
    }

    fn run(mut self: Box<Self>, context: &CallContext<'_>) -> ToolOutput {
        // The folder is resolved through the handle of the workspace, so that no symbolic link can lead outside.
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
        let results = Arc::clone(context.results);
        let open = Arc::new(move || results.open_spool());
        let spool = OutputSpool { open, limit: self.max_stored };
        let command = CommandSpec {
            env: env.collect(),
            timeout: Some(self.timeout),
            spool: Some(spool.clone()),
            ..CommandSpec::shell(self.command.text(), cwd)
        };
        if let Some(start) = self.background.take() {
            let command = CommandSpec { timeout: None, spool: None, ..command };
            return self.run_in_background(start, command, spool, context);
        }
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
    /// Starts the command on a thread, and waits until it is ready.
    fn run_in_background(
        self,
        start: BackgroundStart,
        command: CommandSpec,
        spool: OutputSpool,
        context: &CallContext<'_>,
    ) -> ToolOutput {
        let BackgroundStart { commands, ready, is_needed } = start;
        let failed = |error: &dyn fmt::Display| {
            ToolOutput::failed(format!("The command was not run: {error}."))
        };
        let ready = match ready.map_or(Ok(None), |ready| ready.begin().map(Some)) {
            Ok(ready) => ready,
            Err(error) => return failed(&error),
        };
        let (input, writer) = match self.supervisor.open_input() {
            Ok(pipe) => pipe,
            Err(error) => return failed(&error),
        };
        let call = Arc::new(self);
        let body = Arc::clone(&call);
        let run = move |running: &BackgroundCommand, cancel: &CancellationToken| {
            let before = body.denied.existing();
            let output = |output: usize, bytes: &[u8]| running.add_output(output, bytes);
            let ended = body.supervisor.run_in_background(&command, cancel, input, &output);
            match ended {
                Ok(outcome) => {
                    let denied = body.denied.rename_denied(&before);
                    let texts = [outcome.stdout.text(), outcome.stderr.text()];
                    body.describe_end(&outcome, &texts, &command.cwd, denied)
                }
                Err(error) => CommandEnding {
                    status: ToolStatus::Failed,
                    text: format!("the command was not run: {error}"),
                },
            }
        };
        let line = (call.command.text(), is_needed);
        let life = context.scope.command.clone();
        let log = LineLog::new(spool.clone(), context.secrets.clone());
        let started = commands.start(context.call, line, life, writer, log, run);
        let running = match started {
            Ok(running) => running,
            Err(error) => return failed(&error),
        };
        let limit = if ready.is_some() { call.timeout } else { START_TIME };
        let outcome = wait_until_ready(&running, ready, limit, context);
        let age = format!("{:.1} s", running.age().as_secs_f64());
        let goes_on = format!(
            "it runs on in the background with call_id \"{}\": read its output with {}, end it with {}",
            context.call,
            command_output::NAME,
            stop_command::NAME
        );
        let ending = running.state().show_end();
        let (status, note) = match (outcome, ending) {
            (ReadinessOutcome::Interrupted, _) => {
                running.stop();
                (ToolStatus::Interrupted, "interrupted, and stopped".to_owned())
            }
            (ReadinessOutcome::Ready(why), None) => {
                (ToolStatus::Ok, format!("ready after {age}: {why}; {goes_on}"))
            }
            (ReadinessOutcome::Started, None) => (ToolStatus::Ok, format!("started; {goes_on}")),
            (ReadinessOutcome::Started | ReadinessOutcome::Ready(_), Some(ending)) => {
                (ending.status, ending.text)
            }
            (ReadinessOutcome::NotReady(_), Some(ending)) => {
                let status = match ending.status {
                    ToolStatus::Ok => ToolStatus::Failed,
                    status => status,
                };
                (status, format!("it ended before it was ready: {}", ending.text))
            }
            (ReadinessOutcome::NotReady(why), None) => {
                (ToolStatus::Failed, format!("not ready after {age}: {why}; {goes_on}"))
            }
        };
        let mut output = OutputCapture::new(MAX_KEPT_OUTPUT).with_spool(Some(spool));
        running.state().log.read_all(&mut |line| output.write(line));
        call.format_outputs(status, &[("", &output)], format!("[{note}]"))
    }

    fn describe_outcome(
        &self,
        outcome: &CommandOutcome,
        cwd: &Path,
        denied: Vec<String>,
    ) -> ToolOutput {
        let whole = [outcome.stdout.text(), outcome.stderr.text()];
        let CommandEnding { status, text: end } = self.describe_end(outcome, &whole, cwd, denied);
        let outputs = [("", &outcome.stdout), ("[stderr]\n", &outcome.stderr)];
        self.format_outputs(status, &outputs, format!("[{end}]"))
    }

    /// Returns a result with titled outputs. Long outputs are shortened, and stored in full.
    fn format_outputs(
        &self,
        status: ToolStatus,
        outputs: &[(&'static str, &OutputCapture)],
        end: String,
    ) -> ToolOutput {
        let mut omissions = Vec::new();
        let shown = outputs.iter().map(|(title, output)| {
            let (text, omission) = self.truncate_output(output);
            omissions.extend(omission);
            (*title, text)
        });
        let text = format_sections(shown, &end);
        let is_whole = outputs.iter().all(|(_, output)| output.omitted() == 0);
        let whole = || outputs.iter().map(|(title, output)| (*title, output.text()));
        let full_text =
            (is_whole && !omissions.is_empty()).then(|| format_sections(whole(), &end).into());
        let spooled = (!is_whole).then(|| {
            let sections = outputs.iter().map(|(title, output)| (*title, (*output).clone()));
            Arc::new(SpooledText { sections: sections.collect(), end })
        });
        ToolOutput { full_text, spooled, omissions, ..ToolOutput::new(status, text) }
    }

    /// Describes the end of a command with these texts of its output and error output, including killed processes and
    /// undone changes.
    fn describe_end(
        &self,
        outcome: &CommandOutcome,
        whole: &[String; 2],
        cwd: &Path,
        denied: Vec<String>,
    ) -> CommandEnding {
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
                "timed out after {} s and was killed with all its processes; `timeout` can be up to {MAX_TIMEOUT} s",
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
        notes.extend(outcome.renamed.iter().map(|path| {
            let new = new_name(path).map_or_else(
                || "a name with .denied at its end, or a link on the way to it was".to_owned(),
                |new| relative(&new),
            );
            let made = match path.symlink_metadata() {
                Err(_) => format!("was renamed to {new}"),
                Ok(_) => "could not be renamed; remove it before a program reads it".to_owned(),
            };
            format!(
                "sandbox denied: {} is protected: nothing may be created there; the command's file {made}",
                relative(path)
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
        if outcome.level > SandboxLevel::None {
            let policy = self.supervisor.policy();
            // If the command failed, its standard output may contain the error, too.
            let [output, errors] = &whole;
            let output = match outcome.end.is_success() {
                true => Cow::Owned(sure_denials(output)),
                false => Cow::Borrowed(&**output),
            };
            let texts = [&*output, &**errors];
            notes.extend(texts.iter().find_map(|text| explain_denial(text, policy, cwd)));
        }
        CommandEnding { status, text: notes.join("; ") }
    }

    /// Omits the middle of a long output.
    fn truncate_output(&self, output: &OutputCapture) -> (String, Option<Omission>) {
        let tail = self.max_lines / 2;
        match self.max_lines {
            0 => output.excerpt(usize::MAX, usize::MAX),
            lines => output.excerpt(lines - tail, tail),
        }
    }
}

/// Waits until a command is ready or has ended, or the time is over. Meanwhile, shows its output.
fn wait_until_ready(
    command: &BackgroundCommand,
    ready: Option<ReadinessCondition>,
    limit: Duration,
    context: &CallContext<'_>,
) -> ReadinessOutcome {
    /// The interval at which the output is shown.
    const INTERVAL: Duration = Duration::from_millis(200);

    let cancel = &context.scope.cancel;
    let until = Instant::now() + limit;
    let (mut shown, mut checked) = (0, ready);
    loop {
        let step = until.min(Instant::now() + INTERVAL);
        let mut found = None;
        command.wait_until(Some(step), Some(cancel), |state| {
            found = checked.as_mut().and_then(|ready| ready.check(&state.log));
            found.is_some() || state.ending.is_some()
        });
        if cancel.is_cancelled() {
            return ReadinessOutcome::Interrupted;
        }
        if let Some(why) = found {
            return ReadinessOutcome::Ready(why);
        }
        if !command.is_running() || Instant::now() >= until {
            return checked.map_or(ReadinessOutcome::Started, |ready| {
                ReadinessOutcome::NotReady(ready.describe_missing())
            });
        }
        let preview = {
            let log = &command.state().log;
            (log.complete() > shown).then(|| (log.complete(), log.preview(SHOWN_LINES)))
        };
        if let Some((count, text)) = preview {
            shown = count;
            let (call, text) = (context.call.clone(), text.into());
            context.scope.notify(EffectNotice::Output { call, text });
        }
    }
}

/// The number of output lines that are shown while a command gets ready.
const SHOWN_LINES: u64 = 5;

/// Returns outputs with their titles, followed by a last line.
fn format_sections(sections: impl Iterator<Item = (&'static str, String)>, end: &str) -> String {
    let mut text = String::new();
    for (title, section) in sections.filter(|(_, section)| !section.is_empty()) {
        text += title;
        text += &section;
        if !section.ends_with('\n') {
            text.push('\n');
        }
    }
    text + end
}

/// Returns the name of a signal, and its likely cause.
fn signal_name(signal: i32) -> String {
    let Some(name) = signal_hook::low_level::signal_name(signal) else { return signal.to_string() };
    let reason = match name {
        "SIGKILL" => ", perhaps for want of memory",
        "SIGXFSZ" => ", a file grew too large",
        _ => "",
    };
    format!("{signal} ({name}{reason})")
}

/// Returns the new name of a denied file; `None` if it may be one of several.
fn new_name(path: &Path) -> Option<PathBuf> {
    let ending = |ending: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(ending);
        let name = PathBuf::from(name);
        name.symlink_metadata().is_ok().then_some(name)
    };
    ending(".denied").filter(|_| ending(".denied-2").is_none())
}
