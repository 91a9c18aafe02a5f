//! Conversion of public events to log lines.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::call_blocks::ToolCallBlocks;
use super::call_summary::{call_title, summarize_call};
use super::color::{BOLD, DIM, ERROR, Painter, SUCCESS, WARNING};
use super::diff::diff_lines;
use super::live_status::LiveStatus;
use super::terminal_screen::{DrawCommand, TerminalScreen, TerminalView};
use crate::machine::{RunStatus, StopReason};
use crate::port::{Clock, Disconnected, HookOutcome, lock};
use crate::tools::ShownDiffs;
use crate::types::{CallId, Language, TimeSpan, Tokens, ToolStatus};
use crate::view::background_writer::{BackgroundWriter, OutputError, PlainTarget, WriteQueue};
use crate::view::catalogue::{MAX_DETAIL, text};
use crate::view::public_events::{
    ApiCallEnd, CallOutcome, HookComplete, LimitAction, PublicEvent, PublicEventKind, RetryCause,
    Severity, ToolCallEnd, ToolCallStart,
};
use crate::view::result::RunResult;
use crate::view::sanitize;
use crate::view::sink::{LiveEvent, ReportSink};

/// The style of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStyle {
    /// The language.
    pub lang: Language,
    /// Whether the log has colors.
    pub has_color: bool,
    /// Whether the last line shows the cost of the run.
    pub shows_costs: bool,
    /// The level of detail.
    pub detail: LogDetail,
}

/// The level of detail of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogDetail {
    /// One line for each event.
    #[default]
    Short,
    /// Changes of files and the model's reasoning as well.
    Full,
}

/// The maximum number of lines of a diff.
const MAX_DIFF_LINES: usize = 60;

/// The log for people.
pub struct HumanLog {
    style: LogStyle,
    painter: Painter,
    writer: BackgroundWriter<DrawCommand>,
    /// The present activity, on a terminal only. Text is then shown as it arrives, and elapsed times are shown.
    live: Option<Arc<Mutex<LiveStatus>>>,
    blocks: ToolCallBlocks,
    /// The output of hooks, denied calls of sub-agents, and diffs, for calls that have not ended.
    hook_lines: HashMap<CallId, Vec<String>>,
    /// Whether anything was written, and whether the last line is a tool's.
    last_written: LastWritten,
    /// Whether text of the present call was shown.
    has_streamed: bool,
    /// The incomplete line of the model's reasoning, if the reasoning is logged.
    reasoning: String,
    /// The last logged output limit. A similar limit is not logged again.
    lowered: Option<Tokens>,
    /// The message of the last failed call. It is not repeated if the call's failure ends the run.
    failure: Option<Arc<str>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LastWritten {
    None,
    Text,
    Tool,
}

/// A handle for other output in the place of a log: questions to the user, and additional lines.
#[derive(Clone)]
pub struct PauseDrawing(Arc<WriteQueue<DrawCommand>>);

/// Timeout for erasing the status area before a question.
const CLEAR_TIMEOUT: Duration = Duration::from_millis(300);

/// Replies of at least this many tokens are long: a lowered limit above it is not logged.
const LONG_REPLY: Tokens = Tokens(8_192);

impl HumanLog {
    /// Returns a log that is written line by line.
    ///
    /// # Errors
    ///
    /// Fails if the thread cannot be started.
    pub fn plain(out: impl Write + Send + 'static, style: LogStyle) -> io::Result<Self> {
        Ok(Self::new(style, None, BackgroundWriter::start("log", PlainTarget(out))?))
    }

    /// Returns a log for a terminal, with elapsed times, text shown as it arrives, and an area with the present
    /// activity below it. `view` returns the present state of the terminal.
    ///
    /// # Errors
    ///
    /// Fails if the thread cannot be started.
    pub fn live(
        out: impl Write + Send + 'static,
        style: LogStyle,
        clock: Arc<dyn Clock>,
        view: impl Fn() -> TerminalView + Send + 'static,
    ) -> io::Result<Self> {
        let painter = Painter { has_color: style.has_color };
        let status = Arc::new(Mutex::new(LiveStatus::new(style.lang, painter, clock)));
        let screen = TerminalScreen::new(out, Arc::clone(&status), Box::new(view));
        Ok(Self::new(style, Some(status), BackgroundWriter::start("log", screen)?))
    }

    /// Returns a handle for other output in the place of the log.
    pub fn pause_drawing(&self) -> PauseDrawing {
        PauseDrawing(self.writer.queue())
    }

    fn new(
        style: LogStyle,
        live: Option<Arc<Mutex<LiveStatus>>>,
        writer: BackgroundWriter<DrawCommand>,
    ) -> Self {
        Self {
            painter: Painter { has_color: style.has_color },
            style,
            writer,
            live,
            blocks: ToolCallBlocks::default(),
            hook_lines: HashMap::new(),
            last_written: LastWritten::None,
            has_streamed: false,
            reasoning: String::new(),
            lowered: None,
            failure: None,
        }
    }

    fn write(&mut self, lines: &[String]) -> Result<(), Disconnected> {
        if lines.is_empty() {
            return Ok(());
        }
        if self.last_written == LastWritten::None {
            self.last_written = LastWritten::Text;
        }
        self.writer.write(DrawCommand::Lines(lines.join("\n") + "\n"))
    }

    fn line(&mut self, line: String) -> Result<(), Disconnected> {
        self.write(&[line])
    }

    fn warning(&mut self, icon: &str, text: &str) -> Result<(), Disconnected> {
        self.line(format!("{icon} {}", self.painter.paint(WARNING, text)))
    }

    /// Returns whether an action needs no log line, because the reply may still be long, or a similar limit is logged
    /// already.
    fn is_redundant(&mut self, action: &LimitAction) -> bool {
        let LimitAction::LowerOutput { max_output_tokens: to } = *action else { return false };
        let is_near = |logged: Tokens| to.0 > logged.0 / 2 && to.0 / 2 < logged.0;
        let is_redundant = to >= LONG_REPLY || self.lowered.is_some_and(is_near);
        if !is_redundant {
            self.lowered = Some(to);
        }
        is_redundant
    }

    /// Changes the status area, if there is one.
    fn update(&self, change: impl FnOnce(&mut LiveStatus)) {
        let Some(live) = &self.live else { return };
        let was_active = lock(live).is_active();
        change(&mut lock(live));
        if !was_active {
            // The next line reports a failure.
            let _ = self.writer.write(DrawCommand::Wake);
        }
    }

    /// Returns the elapsed time if it is shown, with leading spaces.
    fn elapsed_suffix(&self, span: TimeSpan) -> String {
        match self.live.is_some() && span > TimeSpan::ZERO {
            true => self.painter.paint(DIM, &format!("  {span}")),
            false => String::new(),
        }
    }

    fn write_heading(&mut self, icon: &str, text: &str) -> Result<(), Disconnected> {
        let heading = format!("{icon} {}", self.painter.paint(BOLD, text));
        let lines = match self.last_written {
            LastWritten::None => vec![heading],
            LastWritten::Text | LastWritten::Tool => vec![String::new(), heading],
        };
        self.last_written = LastWritten::Text;
        self.write(&lines)
    }

    fn write_detail(&mut self, icon: &str, text: &str) -> Result<(), Disconnected> {
        self.line(format!("   {icon} {text}"))
    }

    fn call_ended(&mut self, end: &ApiCallEnd, text: &str) -> Result<(), Disconnected> {
        self.end_reasoning()?;
        self.update(|status| {
            status.end_model_call();
            let totals = &mut status.totals().usage;
            totals.input.0 += end.usage.input.0;
            totals.output.0 += end.usage.output.0;
            totals.cached_input.0 += end.usage.cached_input.0;
        });
        let duration = self.elapsed_suffix(end.duration);
        match &end.outcome {
            CallOutcome::Replied { text: reply, tool_calls, .. } => {
                self.write_detail(&self.painter.paint(SUCCESS, "✓"), &format!("{text}{duration}"))?;
                // Text next to tool calls is not the answer, but helps to follow the run.
                let remark = sanitize::headline(reply, MAX_DETAIL);
                if *tool_calls > 0 && !remark.is_empty() && !self.has_streamed {
                    self.write_detail("💬", &self.painter.paint(DIM, &remark))?;
                }
                return Ok(());
            }
            CallOutcome::Failed { message, .. } => {
                self.failure = Some(Arc::clone(message));
                self.write_detail(&self.painter.paint(ERROR, "✗"), &format!("{text}{duration}"))?;
            }
            CallOutcome::Cancelled => self.write_detail(&self.painter.paint(WARNING, "✗"), text)?,
        }
        if std::mem::take(&mut self.has_streamed) {
            let discarded = text!(
                self.style.lang,
                "The text above is discarded: the reply was incomplete",
                "El texto anterior se descarta: la respuesta no llegó completa"
            );
            self.write_detail("↑", &self.painter.paint(DIM, &discarded))?;
        }
        Ok(())
    }

    fn tool_started(&mut self, start: &ToolCallStart) -> Result<(), Disconnected> {
        let what = summarize_call(&start.name, &start.arguments, self.style.lang);
        let name = self.painter.paint(BOLD, &sanitize::line(&start.name));
        let arrow = if what.is_empty() { "" } else { " → " };
        let title = call_title(start, self.style.lang);
        self.update(|status| status.begin_call(&start.id, title));
        let lines = self.blocks.begin(&start.id, format!("   🔧 {name}{arrow}{what}"));
        if self.last_written != LastWritten::Tool {
            self.last_written = LastWritten::Tool;
            self.line(String::new())?;
        }
        self.write(&lines)
    }

    fn tool_ended(&mut self, end: &ToolCallEnd, text: &str) -> Result<(), Disconnected> {
        let mark = match end.status {
            ToolStatus::Ok => self.painter.paint(SUCCESS, "✓"),
            ToolStatus::Denied => self.painter.paint(WARNING, "⛔"),
            _ => self.painter.paint(ERROR, "✗"),
        };
        let line = format!("      {mark} {text}{}", self.elapsed_suffix(end.duration));
        let hooks = self.hook_lines.remove(&end.id).unwrap_or_default();
        let lines = self.blocks.end(&end.id, line, hooks);
        self.update(|status| status.end_call(&end.id));
        self.write(&lines)
    }

    /// Logs a hook. The line for a tool call's hook comes below the result of the call.
    fn hook(&mut self, hook: &HookComplete, text: String) -> Result<(), Disconnected> {
        let text = match hook.outcome {
            HookOutcome::Passed => text,
            _ => self.painter.paint(WARNING, &text),
        };
        match &hook.tool_call_id {
            Some(id) => {
                self.hook_lines.entry(id.clone()).or_default().push(format!("      🔍 {text}"));
                Ok(())
            }
            None => self.write_detail("🔍", &text),
        }
    }

    /// Logs a diff below the result of its tool call.
    fn diff(&mut self, call: &CallId, diff: &str) {
        let lines = diff_lines(diff, self.style.has_color);
        let below = self.hook_lines.entry(call.clone()).or_default();
        below.extend(lines.iter().take(MAX_DIFF_LINES).map(|line| format!("      {line}")));
        if let Some(more) = lines.len().checked_sub(MAX_DIFF_LINES).filter(|more| *more > 0) {
            let lang = self.style.lang;
            let more = text!(lang, "… {more} more lines", "… {more} líneas más");
            below.push(format!("      {}", self.painter.paint(DIM, &more)));
        }
    }

    /// Logs the complete lines of the model's reasoning.
    fn log_reasoning(&mut self, text: &str) -> Result<(), Disconnected> {
        self.reasoning.push_str(text);
        let Some(end) = self.reasoning.rfind('\n') else { return Ok(()) };
        let rest = self.reasoning.split_off(end + 1);
        let lines = std::mem::replace(&mut self.reasoning, rest);
        self.write_reasoning(&lines)
    }

    /// Logs the last line of the model's reasoning.
    fn end_reasoning(&mut self) -> Result<(), Disconnected> {
        let rest = std::mem::take(&mut self.reasoning);
        self.write_reasoning(&rest)
    }

    fn write_reasoning(&mut self, text: &str) -> Result<(), Disconnected> {
        let shown = sanitize::multiline(text);
        let lines = shown.lines().filter(|line| !line.trim().is_empty());
        let lines = lines.map(|line| self.painter.paint(DIM, &format!("   ┊ {line}")));
        let lines: Vec<String> = lines.collect();
        self.write(&lines)
    }

    /// Shows text as it arrives, on a terminal.
    fn stream(&mut self, text: &str) -> Result<(), Disconnected> {
        self.end_reasoning()?;
        if self.live.is_none() {
            return Ok(());
        }
        self.has_streamed = true;
        self.update(LiveStatus::begin_text);
        self.writer.write(DrawCommand::Stream(sanitize::multiline(text).into_owned()))
    }
}

impl ReportSink for HumanLog {
    fn on_event(&mut self, event: &PublicEvent) -> Result<(), Disconnected> {
        let text = self.style.lang.sentence(event);
        match &event.kind {
            PublicEventKind::AgentStart(start) => {
                self.update(|status| status.begin_run(start.limits.clone()));
                self.line(self.painter.paint(DIM, &format!("▶ {text}")))
            }
            PublicEventKind::ApiCallStart(start) => {
                self.has_streamed = false;
                if start.attempt == 1 {
                    self.write_heading("🔄", &text)?;
                }
                self.update(|status| {
                    status.begin_model_call();
                    let totals = status.totals();
                    (totals.step, totals.context) = (start.step, start.context_tokens);
                });
                Ok(())
            }
            PublicEventKind::ApiCallEnd(end) => self.call_ended(end, &text),
            PublicEventKind::TextDelta(delta) => self.stream(&delta.text),
            PublicEventKind::Retry(cause) => {
                if let RetryCause::Fault { wait, fault, .. } = cause {
                    let why = self.style.lang.fault(*fault).to_owned();
                    self.update(|status| status.retry_in(*wait, why));
                }
                self.write_detail("⏳", &self.painter.paint(WARNING, &text))
            }
            PublicEventKind::ModelFallback(_) => self.warning("🔀", &text),
            PublicEventKind::ToolCallStart(start) => self.tool_started(start),
            PublicEventKind::ToolCallEnd(end) => self.tool_ended(end, &text),
            PublicEventKind::SubagentDenied(denied) => {
                let line = format!("      {} {text}", self.painter.paint(WARNING, "⛔"));
                self.hook_lines.entry(denied.tool_call_id.clone()).or_default().push(line);
                Ok(())
            }
            PublicEventKind::HookComplete(hook) => self.hook(hook, text),
            PublicEventKind::SteeringReceived(_) => self.line(format!("📨 {text}")),
            PublicEventKind::CompactionTriggered(_) => self.write_heading("📦", &text),
            PublicEventKind::CompactionComplete(_) => self.write_detail("📦", &text),
            PublicEventKind::LimitReached(action) if self.is_redundant(action) => Ok(()),
            PublicEventKind::LimitReached(_) => self.warning("⚠️ ", &text),
            PublicEventKind::LoopDetected(_) => self.warning("🔁", &text),
            PublicEventKind::Error(error) if self.failure.as_ref() == Some(&error.message) => {
                Ok(())
            }
            PublicEventKind::Error(error) => match error.severity {
                Severity::Warning => self.warning("⚠️ ", &text),
                Severity::Error => self.line(format!("❌ {}", self.painter.paint(ERROR, &text))),
            },
            PublicEventKind::AgentEnd(end) => {
                self.update(LiveStatus::end_run);
                let rest = self.blocks.take_rest();
                self.write(&rest)?;
                let icon = match (end.status, end.reason) {
                    (RunStatus::Success, _) => "✅",
                    (RunStatus::Partial, StopReason::UserInterrupt(_)) => "🛑",
                    (RunStatus::Partial, _) => "⚠️ ",
                    (RunStatus::Failed, _) => "❌",
                };
                self.line(format!("{icon} {}", self.painter.paint(BOLD, &text)))
            }
            PublicEventKind::SubagentCall(call) => {
                self.update(|status| {
                    status.add_subagent_usage(&call.tool_call_id, call.usage, call.cost);
                });
                Ok(())
            }
            PublicEventKind::StateChange(_) => Ok(()),
        }
    }

    fn on_live(&mut self, live: &LiveEvent<'_>) {
        match *live {
            LiveEvent::CallRuns { effect, call } => {
                self.update(|status| status.run_call(call, effect));
            }
            LiveEvent::Progress { effect, text } => {
                self.update(|status| status.set_progress(effect, text));
            }
            LiveEvent::Output { call, text } => self.update(|status| status.set_output(call, text)),
            LiveEvent::Diff { call, diff } => self.diff(call, diff),
            LiveEvent::Reasoning(text) => match self.style.detail {
                LogDetail::Short => self.update(|status| status.add_reasoning(text)),
                LogDetail::Full => {
                    let _ = self.log_reasoning(text);
                }
            },
            LiveEvent::Used { cost, window } => self.update(|status| {
                let totals = status.totals();
                (totals.cost, totals.window) = (cost, window);
            }),
            LiveEvent::Server { name, state } => {
                self.update(|status| status.set_server(name, state));
            }
        }
    }

    fn shown_diffs(&self) -> ShownDiffs {
        match self.style.detail {
            LogDetail::Short => ShownDiffs::DryRun,
            LogDetail::Full => ShownDiffs::All,
        }
    }

    /// Logs the result. The costs are the totals of all runs.
    fn on_result(&mut self, result: &RunResult) -> Result<(), Disconnected> {
        let lang = self.style.lang;
        self.update(LiveStatus::end_run);
        if !result.denied.is_empty() {
            let text = lang.denied(result.denied.len(), &denied_tools(result));
            self.warning("🚫", &text)?;
        }
        // The end of the run was logged before its evaluation.
        if let Some(reason @ StopReason::EvaluationFailed) = result.stop_reason {
            let text = lang.run_ended(reason);
            self.line(format!("⚠️  {}", self.painter.paint(BOLD, &text)))?;
        }
        if self.style.shows_costs {
            self.line(format!("💰 {}", lang.costs(result.cost, result.usage)))?;
        }
        if let Some(worktree) = &result.worktree {
            self.line(format!("🌿 {}", lang.worktree(worktree)))?;
            for command in [&worktree.merge_command, &worktree.remove_command].into_iter().flatten()
            {
                self.line(format!("   {command}"))?;
            }
        }
        if let Some(command) = &result.resume_command {
            let begin = lang.pick(["Continue with", "Para continuar"]);
            self.line(format!("↩️  {begin}: {command}"))?;
        }
        if let Some(hash) = result.journal_hash {
            let journal = lang.pick(["Journal", "Diario"]);
            self.line(format!("🔏 {journal}: {hash}"))?;
        }
        Ok(())
    }

    fn finish(self: Box<Self>, timeout: Option<Duration>) -> Result<(), OutputError> {
        self.writer.finish(timeout)
    }
}

/// Returns the tools with denied calls, each with its count if above one.
fn denied_tools(result: &RunResult) -> String {
    let mut tools: Vec<(&str, usize)> = Vec::new();
    for denied in &result.denied {
        match tools.iter_mut().find(|(tool, _)| *tool == &*denied.tool) {
            Some((_, times)) => *times += 1,
            None => tools.push((&denied.tool, 1)),
        }
    }
    let logged = |(tool, times): &(&str, usize)| match times {
        1 => sanitize::line(tool).into_owned(),
        times => format!("{} ({times})", sanitize::line(tool)),
    };
    sanitize::headline(&tools.iter().map(logged).collect::<Vec<_>>().join(", "), MAX_DETAIL)
}

impl PauseDrawing {
    pub(super) fn new(queue: Arc<WriteQueue<DrawCommand>>) -> Self {
        Self(queue)
    }

    /// Erases the status area, and stops drawing it.
    pub fn end_drawing(&self) {
        let _ = self.0.write(DrawCommand::Pause(true));
        self.flush();
    }

    /// Waits a short time until the lines so far are written.
    pub fn flush(&self) {
        self.0.flush(CLEAR_TIMEOUT);
    }

    /// Writes whole lines above the status area. Returns whether the log still accepts lines.
    pub fn write_lines(&self, lines: String) -> bool {
        self.0.write(DrawCommand::Lines(lines)).is_ok()
    }

    /// Calls a function while drawing is paused.
    pub fn during<T>(&self, something: impl FnOnce() -> T) -> T {
        let _ = self.0.write(DrawCommand::Pause(true));
        self.flush();
        let done = something();
        let _ = self.0.write(DrawCommand::Pause(false));
        done
    }
}
