//! `run_command`: a shell command in the workspace.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use super::schema;
use super::settings::CommandSettings;
use super::tool::{CommandTarget, Context, Kind, Output, Prepared, Target, Tool};
use crate::exec::{Command, End, Level, Outcome, Supervisor};
use crate::model::{Access, Span, ToolStatus};
use crate::port::ToolSpec;
use crate::workspace::{RelPath, Root};

/// Runs commands.
pub(super) struct RunCommand {
    root: Root,
    supervisor: Supervisor,
    settings: CommandSettings,
    spec: ToolSpec,
}

/// What the model says.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The command line, for a shell.
    command: String,
    /// The folder to run it in, relative to the workspace. Default: the workspace.
    cwd: Option<String>,
    /// Seconds after which it is ended.
    timeout: Option<u64>,
    /// Variables that are added to its environment.
    #[serde(default)]
    env: BTreeMap<String, String>,
}

struct Call {
    root: Root,
    supervisor: Supervisor,
    command: String,
    cwd: RelPath,
    timeout: Duration,
    env: BTreeMap<String, String>,
    max_lines: usize,
}

/// The longest that a command may be given.
const LONGEST: u64 = 3_600;

impl RunCommand {
    /// Returns the tool.
    pub(super) fn new(root: Root, supervisor: Supervisor, settings: CommandSettings) -> Self {
        let description = format!(
            "Runs a shell command in the workspace and returns its output, its error output and its exit code. It has \
             no terminal and no input; it is ended after {} seconds unless timeout says otherwise. Nothing that it \
             leaves in the background survives it. Each command starts afresh: use cwd instead of cd.",
            settings.default_timeout
        );
        let spec = schema::spec::<Arguments>("run_command", &description);
        Self { root, supervisor, settings, spec }
    }
}

impl Tool for RunCommand {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare(&self, arguments: &str) -> Result<Box<dyn Prepared>, String> {
        let Arguments { command, cwd, timeout, env } = schema::parse(&self.spec, arguments)?;
        let invalid = |what: String| Err(format!("Invalid arguments for run_command: {what}."));
        if command.trim().is_empty() {
            return invalid("command is empty".to_owned());
        }
        if command.contains('\0') || env.iter().any(|(name, value)| !is_variable(name, value)) {
            return invalid(
                "a NUL character, or a variable's name with =, is not possible".to_owned(),
            );
        }
        let timeout = timeout.unwrap_or(self.settings.default_timeout);
        if !(1..=LONGEST).contains(&timeout) {
            return invalid(format!(
                "timeout is {timeout}, and has to be between 1 and {LONGEST} seconds"
            ));
        }
        let cwd = self.root.resolve(cwd.as_deref().unwrap_or(".")).map_err(|e| e.to_string())?;
        Ok(Box::new(Call {
            root: self.root.clone(),
            supervisor: self.supervisor.clone(),
            command,
            cwd,
            timeout: Duration::from_secs(timeout),
            env,
            max_lines: self.settings.max_output_lines,
        }))
    }
}

fn is_variable(name: &str, value: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0')
}

/// Returns the value of a variable as it is shown to somebody who decides about it.
fn shown(value: &str) -> String {
    match value.char_indices().nth(60) {
        Some((end, _)) => format!("{:?}…", &value[..end]),
        None => format!("{value:?}"),
    }
}

impl Prepared for Call {
    fn kind(&self) -> Kind {
        Kind::Command
    }

    fn access(&self) -> Access {
        Access::Exclusive
    }

    fn targets(&self) -> Vec<Target> {
        let folder = if self.cwd.is_root() { String::new() } else { self.cwd.to_string() };
        let env = self.env.keys().cloned().collect();
        vec![Target::Command(CommandTarget { line: self.command.clone(), folder, env })]
    }

    fn summary(&self) -> String {
        let mut summary = self.command.clone();
        if !self.cwd.is_root() {
            summary += &format!(" (in {})", self.cwd);
        }
        if !self.env.is_empty() {
            let set = self.env.iter().map(|(name, value)| format!("{name}={}", shown(value)));
            summary += &format!(" (with {})", set.collect::<Vec<_>>().join(" "));
        }
        summary
    }

    fn limit(&self) -> Span {
        Span::from(self.timeout + Duration::from_secs(20))
    }

    fn run(self: Box<Self>, context: &Context<'_>) -> Output {
        // Looked up by the handle of the workspace, so that no link leads the command outside.
        match self.root.kind(&self.cwd) {
            Ok(crate::workspace::Kind::Directory) => {}
            Ok(_) => return Output::failed(format!("'{}' is not a directory", self.cwd)),
            Err(error) => return Output::failed(super::advice::missing(&self.root, &error)),
        }
        let cwd = self.root.path().join(self.cwd.as_path());
        let own = [("ARCHITECT_CALL_ID".into(), context.call.as_str().into())];
        let env = self.env.iter().map(|(name, value)| (name.into(), value.into())).chain(own);
        let command = Command {
            env: env.collect(),
            timeout: Some(self.timeout),
            ..Command::shell(&self.command, cwd)
        };
        match self.supervisor.run(&command, &context.scope.cancel) {
            Ok(outcome) => self.answer(&outcome, &command.cwd),
            Err(error) => Output::failed(format!("The command was not run: {error}.")),
        }
    }
}

impl Call {
    fn answer(&self, outcome: &Outcome, cwd: &Path) -> Output {
        let (status, end) = match outcome.end {
            End::Exited(0) => (ToolStatus::Ok, "exit code 0".to_owned()),
            End::Exited(126) => (ToolStatus::Failed, "exit code 126: not executable".to_owned()),
            End::Exited(127) => (ToolStatus::Failed, "exit code 127: command not found".to_owned()),
            End::Exited(code @ 129..=159) => {
                let signal = signal_name(code - 128);
                (ToolStatus::Failed, format!("exit code {code}, as after signal {signal}"))
            }
            End::Exited(code) => (ToolStatus::Failed, format!("exit code {code}")),
            End::Signalled(signal) => {
                (ToolStatus::Failed, format!("ended by signal {}", signal_name(signal)))
            }
            End::TimedOut => {
                let seconds = self.timeout.as_secs();
                (ToolStatus::TimedOut, format!("timed out after {seconds} s and was ended"))
            }
            End::Cancelled => (ToolStatus::Interrupted, "interrupted".to_owned()),
            End::Stuck => (
                ToolStatus::Abandoned,
                "could not be ended, not even by SIGKILL, and was left alone".to_owned(),
            ),
        };
        let mut notes = vec![end];
        match outcome.strays {
            0 => {}
            1 => notes.push("a background process was ended with it".to_owned()),
            n => notes.push(format!("{n} background processes were ended with it")),
        }
        notes.extend(outcome.aside.iter().map(|path| {
            let path = path.strip_prefix(self.root.path()).unwrap_or(path).display();
            format!(
                "sandbox denied: {path} is protected, and nothing may be put there; what the command made of it was \
                 renamed to {path}.denied"
            )
        }));
        notes.extend(outcome.notices.iter().cloned());
        let whole = [outcome.stdout.text(), outcome.stderr.text()];
        if outcome.level > Level::None {
            let policy = self.supervisor.policy();
            // What a command that has failed says is said for a reason.
            let said = if outcome.end.is_success() { &whole[1..] } else { &whole[..] };
            notes.extend(said.iter().find_map(|text| super::denial::explained(text, policy, cwd)));
        }
        let [(stdout, out_cut), (stderr, err_cut)] = whole.each_ref().map(|text| self.shown(text));
        let end = format!("[{}]", notes.join("; "));
        let text = sections(&stdout, &stderr, &end);
        let whole = (out_cut || err_cut).then(|| sections(&whole[0], &whole[1], &end).into());
        Output { whole, ..Output::new(status, text) }
    }

    /// Returns an output as it is shown, and whether lines were left out.
    fn shown(&self, text: &str) -> (String, bool) {
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

fn sections(stdout: &str, stderr: &str, end: &str) -> String {
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

/// Returns the name of a signal.
fn signal_name(signal: i32) -> String {
    use rustix::process::Signal;

    let known = [
        (Signal::HUP, "SIGHUP"),
        (Signal::INT, "SIGINT"),
        (Signal::QUIT, "SIGQUIT"),
        (Signal::ILL, "SIGILL"),
        (Signal::ABORT, "SIGABRT"),
        (Signal::BUS, "SIGBUS"),
        (Signal::FPE, "SIGFPE"),
        (Signal::KILL, "SIGKILL, perhaps for want of memory"),
        (Signal::SEGV, "SIGSEGV"),
        (Signal::PIPE, "SIGPIPE"),
        (Signal::TERM, "SIGTERM"),
        (Signal::XCPU, "SIGXCPU"),
        (Signal::XFSZ, "SIGXFSZ, a file grew too large"),
    ];
    let found = known.into_iter().find(|(known, _)| known.as_raw() == signal);
    found.map_or_else(|| format!("{signal}"), |(_, name)| format!("{signal} ({name})"))
}
