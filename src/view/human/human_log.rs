//! Turns public events into log lines.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use super::call_blocks::ToolCallBlocks;
use super::call_summary::summarize_call;
use super::painter::Painter;
use super::terminal_screen::{DrawCommand, TerminalScreen};
use crate::machine::{RunStatus, StopReason};
use crate::model::Language;
use crate::model::{CallId, EffectId, TimeSpan, Tokens, ToolStatus};
use crate::port::{Clock, Disconnected, HookOutcome};
use crate::view::background_writer::{
    BackgroundWriter, FinishTimeout, OutputError, PlainTarget, WriteQueue,
};
use crate::view::catalogue::LogMessage;
use crate::view::public::{
    AgentEnd, ApiCallEnd, CallOutcome, HookComplete, LimitAction, PublicEvent, PublicEventKind,
    RetryCause, Severity, ToolCallEnd, ToolCallStart,
};
use crate::view::result::RunResult;
use crate::view::sanitize;
use crate::view::sink::ReportSink;
use crate::view::tool_failure::failure_line;

/// The style of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStyle {
    /// Its language.
    pub lang: Language,
    /// Whether it has colours.
    pub has_color: bool,
    /// Whether its last line shows the cost of the run.
    pub shows_costs: bool,
}

/// The log for people.
pub struct HumanLog {
    style: LogStyle,
    painter: Painter,
    target: LogTarget,
    blocks: ToolCallBlocks,
    /// The output of hooks for calls that have not ended.
    hook_lines: HashMap<CallId, Vec<String>>,
    /// Whether anything was written, and whether the last line is a tool's.
    last_written: LastWritten,
    /// Whether text of the present call was shown.
    has_streamed: bool,
    /// The last output limit that was logged; a similar one is not logged again.
    lowered: Option<Tokens>,
    /// The message of the last failed call, which is not repeated when the run ends because of it.
    failure: Option<Arc<str>>,
}

/// Where the log goes.
enum LogTarget {
    /// Into a pipe or a file.
    Plain(BackgroundWriter<Vec<u8>>),
    /// Onto a terminal.
    Screen(BackgroundWriter<DrawCommand>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LastWritten {
    None,
    Text,
    Tool,
}

/// Pauses the spinner while the terminal is used for something else, such as a question to the user.
#[derive(Clone)]
pub struct PauseDrawing(Option<Arc<WriteQueue<DrawCommand>>>);

/// The maximum length of the output of a tool or a hook, in characters.
const MAX_DETAIL: usize = 360;

/// How long a question waits until the spinner is cleared.
const CLEAR_TIMEOUT: Duration = Duration::from_millis(300);

impl HumanLog {
    /// Returns a log that is written line by line.
    ///
    /// # Errors
    ///
    /// Fails when the thread cannot be started.
    pub fn plain(out: impl Write + Send + 'static, look: LogStyle) -> io::Result<Self> {
        Ok(Self::new(look, LogTarget::Plain(BackgroundWriter::start("log", PlainTarget(out))?)))
    }

    /// Returns a log on a terminal, with a spinner, elapsed times, and text shown while it arrives. `columns` returns
    /// the width of the terminal.
    ///
    /// # Errors
    ///
    /// Fails when the thread cannot be started.
    pub fn live(
        out: impl Write + Send + 'static,
        look: LogStyle,
        clock: Arc<dyn Clock>,
        columns: impl Fn() -> usize + Send + 'static,
    ) -> io::Result<Self> {
        let screen = TerminalScreen::new(out, clock, Box::new(columns));
        Ok(Self::new(look, LogTarget::Screen(BackgroundWriter::start("log", screen)?)))
    }

    /// Returns a handle that pauses the spinner.
    pub fn pause_drawing(&self) -> PauseDrawing {
        match &self.target {
            LogTarget::Plain(_) => PauseDrawing(None),
            LogTarget::Screen(screen) => PauseDrawing(Some(Arc::new(screen.queue()))),
        }
    }

    fn new(look: LogStyle, to: LogTarget) -> Self {
        Self {
            painter: Painter { has_color: look.has_color },
            style: look,
            target: to,
            blocks: ToolCallBlocks::default(),
            hook_lines: HashMap::new(),
            last_written: LastWritten::None,
            has_streamed: false,
            lowered: None,
            failure: None,
        }
    }

    fn render(&self, message: LogMessage<'_>) -> String {
        message.render(self.style.lang)
    }

    fn write(&mut self, lines: &[String]) -> Result<(), Disconnected> {
        if lines.is_empty() {
            return Ok(());
        }
        if self.last_written == LastWritten::None {
            self.last_written = LastWritten::Text;
        }
        let text = lines.join("\n") + "\n";
        match &self.target {
            LogTarget::Plain(writer) => writer.write(text.into_bytes()),
            LogTarget::Screen(writer) => writer.write(DrawCommand::Lines(text)),
        }
    }

    fn line(&mut self, line: String) -> Result<(), Disconnected> {
        self.write(&[line])
    }

    /// Returns whether an action needs no log line: the reply may still be long, or the limit is similar to the
    /// logged one.
    fn is_logged(&mut self, action: &LimitAction) -> bool {
        let LimitAction::LowerOutput { max_output_tokens: to } = *action else { return false };
        let is_near = |logged: Tokens| to.0 > logged.0 / 2 && to.0 / 2 < logged.0;
        let is_logged = to >= LONG_REPLY || self.lowered.is_some_and(is_near);
        if !is_logged {
            self.lowered = Some(to);
        }
        is_logged
    }

    /// Shows the present activity below the log, on a terminal.
    fn status(&self, message: Option<LogMessage<'_>>) -> Result<(), Disconnected> {
        match &self.target {
            LogTarget::Plain(_) => Ok(()),
            LogTarget::Screen(writer) => {
                writer.write(DrawCommand::Status(message.map(|message| self.render(message))))
            }
        }
    }

    /// Returns the elapsed time, on a terminal.
    fn elapsed_suffix(&self, span: TimeSpan) -> String {
        match &self.target {
            LogTarget::Screen(_) if span > TimeSpan::ZERO => self.painter.dim(&format!("  {span}")),
            LogTarget::Screen(_) | LogTarget::Plain(_) => String::new(),
        }
    }

    fn write_heading(&mut self, icon: &str, message: LogMessage<'_>) -> Result<(), Disconnected> {
        let heading = format!("{icon} {}", self.painter.bold(&self.render(message)));
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

    fn call_ended(&mut self, end: &ApiCallEnd) -> Result<(), Disconnected> {
        self.status(None)?;
        let duration = self.elapsed_suffix(end.duration);
        match &end.outcome {
            CallOutcome::Replied { text, tool_calls, .. } => {
                let line = self.render(LogMessage::Replied { tool_calls: *tool_calls });
                let mark = self.painter.success("✓");
                self.write_detail(&mark, &format!("{line}{duration}"))?;
                // Text beside tool calls is not the answer, but useful to follow.
                let remark = sanitize::headline(text, MAX_DETAIL);
                if *tool_calls > 0 && !remark.is_empty() && !self.has_streamed {
                    self.write_detail("💬", &self.painter.dim(&remark))?;
                }
                Ok(())
            }
            CallOutcome::Failed { fault, message } => {
                self.failure = Some(Arc::clone(message));
                let message = sanitize::headline(message, MAX_DETAIL);
                let line = self.render(LogMessage::CallFailed { fault: *fault, message: &message });
                let mark = self.painter.error("✗");
                self.write_detail(&mark, &format!("{line}{duration}"))?;
                self.discard()
            }
            CallOutcome::Cancelled => {
                let (mark, line) =
                    (self.painter.warning("✗"), self.render(LogMessage::CallCancelled));
                self.write_detail(&mark, &line)?;
                self.discard()
            }
        }
    }

    fn discard(&mut self) -> Result<(), Disconnected> {
        if std::mem::take(&mut self.has_streamed) {
            let line = self.painter.dim(&self.render(LogMessage::Discarded));
            self.write_detail("↑", &line)?;
        }
        Ok(())
    }

    fn tool_started(&mut self, start: &ToolCallStart) -> Result<(), Disconnected> {
        let what = summarize_call(&start.name, &start.arguments, self.style.lang);
        let name = self.painter.bold(&sanitize::line(&start.name));
        let arrow = if what.is_empty() { "" } else { " → " };
        let lines = self.blocks.begin(&start.id, format!("   🔧 {name}{arrow}{what}"));
        if self.last_written != LastWritten::Tool {
            self.last_written = LastWritten::Tool;
            self.line(String::new())?;
        }
        self.write(&lines)?;
        self.show_running()
    }

    fn tool_ended(&mut self, end: &ToolCallEnd) -> Result<(), Disconnected> {
        let error = if end.success {
            String::new()
        } else {
            failure_line(&end.name, &end.output, MAX_DETAIL)
        };
        let line = self.render(LogMessage::Tool { status: end.status, error: &error });
        let mark = match end.status {
            ToolStatus::Ok => self.painter.success("✓"),
            ToolStatus::Denied => self.painter.warning("⛔"),
            ToolStatus::Failed
            | ToolStatus::TimedOut
            | ToolStatus::Unknown
            | ToolStatus::Malformed
            | ToolStatus::Truncated
            | ToolStatus::Skipped
            | ToolStatus::Interrupted
            | ToolStatus::Abandoned
            | ToolStatus::InDoubt => self.painter.error("✗"),
        };
        let line = format!("      {mark} {line}{}", self.elapsed_suffix(end.duration));
        let hooks = self.hook_lines.remove(&end.id).unwrap_or_default();
        let lines = self.blocks.end(&end.id, line, hooks);
        self.write(&lines)?;
        self.show_running()
    }

    fn show_running(&self) -> Result<(), Disconnected> {
        let tools = self.blocks.open_count();
        self.status((tools > 0).then_some(LogMessage::Running { tools }))
    }

    /// The hook of a tool call is logged below the call's result.
    fn hook(&mut self, hook: &HookComplete) -> Result<(), Disconnected> {
        let name = sanitize::headline(&hook.name, MAX_DETAIL);
        let line = hook.message.as_deref().map(|line| sanitize::headline(line, MAX_DETAIL));
        let line = line.unwrap_or_default();
        let line =
            self.render(LogMessage::Hook { name: &name, outcome: hook.outcome, output: &line });
        let line = match hook.outcome {
            HookOutcome::Passed => line,
            HookOutcome::Blocked | HookOutcome::Failed | HookOutcome::TimedOut => {
                self.painter.warning(&line)
            }
        };
        match &hook.tool_call_id {
            Some(id) => {
                self.hook_lines.entry(id.clone()).or_default().push(format!("      🔍 {line}"));
                Ok(())
            }
            None => self.write_detail("🔍", &line),
        }
    }

    fn run_ended(&mut self, end: &AgentEnd) -> Result<(), Disconnected> {
        self.status(None)?;
        let rest = self.blocks.take_rest();
        self.write(&rest)?;
        let icon = match (end.status, end.reason) {
            (RunStatus::Success, _) => "✅",
            (RunStatus::Partial, StopReason::UserInterrupt(_)) => "🛑",
            (RunStatus::Partial, _) => "⚠️ ",
            (RunStatus::Failed, _) => "❌",
        };
        let line = self.render(LogMessage::Ended {
            reason: end.reason,
            steps: end.steps,
            llm_calls: end.llm_calls,
        });
        self.line(format!("{icon} {}", self.painter.bold(&line)))?;
        Ok(())
    }

    /// Shows text while it arrives, on a terminal.
    fn stream(&mut self, text: &str) -> Result<(), Disconnected> {
        let LogTarget::Screen(writer) = &self.target else { return Ok(()) };
        self.has_streamed = true;
        writer.write(DrawCommand::Status(None))?;
        writer.write(DrawCommand::Stream(sanitize::multiline(text).into_owned()))
    }
}

impl ReportSink for HumanLog {
    fn on_event(&mut self, event: &PublicEvent) -> Result<(), Disconnected> {
        match &event.kind {
            PublicEventKind::AgentStart(start) => {
                let [id, model, agent] = [&event.session_id, &start.model, &start.agent]
                    .map(|text| sanitize::line(text));
                let (id, model, agent, resumed) = (&*id, &*model, &*agent, start.resumed);
                let line = self.render(LogMessage::Session { id, model, agent, resumed });
                self.line(self.painter.dim(&format!("▶ {line}")))
            }
            PublicEventKind::ApiCallStart(start) => {
                self.has_streamed = false;
                let (purpose, step, messages) = (start.purpose, start.step, start.messages);
                if start.attempt == 1 {
                    self.write_heading("🔄", LogMessage::ModelCall { purpose, step, messages })?;
                }
                self.status(Some(LogMessage::Waiting))
            }
            PublicEventKind::ApiCallEnd(end) => self.call_ended(end),
            PublicEventKind::TextDelta(delta) => self.stream(&delta.text),
            PublicEventKind::Retry(retry) => {
                let line = match retry.cause {
                    RetryCause::Fault { attempt, wait, .. } => {
                        self.render(LogMessage::Retry { attempt, wait })
                    }
                    RetryCause::IncompleteReply { reason } => {
                        self.render(LogMessage::IncompleteReply { reason })
                    }
                };
                self.write_detail("⏳", &self.painter.warning(&line))
            }
            PublicEventKind::ToolCallStart(start) => self.tool_started(start),
            PublicEventKind::ToolCallEnd(end) => self.tool_ended(end),
            PublicEventKind::HookComplete(hook) => self.hook(hook),
            PublicEventKind::SteeringReceived(message) => {
                let text = sanitize::headline(&message.text, MAX_DETAIL);
                let line = self.render(LogMessage::Steering { kind: message.kind, text: &text });
                self.line(format!("📨 {line}"))
            }
            PublicEventKind::CompactionTriggered(start) => {
                self.write_heading("📦", LogMessage::Compacting { context: start.context_tokens })
            }
            PublicEventKind::CompactionComplete(end) => {
                let (context, by) = (end.context_tokens, end.summary);
                let line = self.render(LogMessage::Compacted { context, by });
                self.write_detail("📦", &line)
            }
            PublicEventKind::LimitReached(limit) if self.is_logged(&limit.action) => Ok(()),
            PublicEventKind::LimitReached(limit) => {
                let line = self.render(match limit.action {
                    LimitAction::Close { reason } => LogMessage::Closing { reason },
                    LimitAction::NoSummary { cause } => LogMessage::NoSummary { cause },
                    LimitAction::LowerOutput { max_output_tokens: to } => {
                        LogMessage::OutputLowered { to }
                    }
                    LimitAction::Warn { cost_usd: cost } => LogMessage::CostWarning { cost },
                });
                self.line(format!("⚠️  {}", self.painter.warning(&line)))
            }
            PublicEventKind::LoopDetected(found) => {
                let line = self.render(LogMessage::Loop { times: found.times });
                self.line(format!("🔁 {}", self.painter.warning(&line)))
            }
            PublicEventKind::Error(error) if self.failure.as_ref() == Some(&error.message) => {
                Ok(())
            }
            PublicEventKind::Error(error) => {
                let line = sanitize::headline(&error.message, MAX_DETAIL);
                match error.severity {
                    Severity::Warning => self.line(format!("⚠️  {}", self.painter.warning(&line))),
                    Severity::Error => self.line(format!("❌ {}", self.painter.error(&line))),
                }
            }
            PublicEventKind::AgentEnd(end) => self.run_ended(end),
            PublicEventKind::StateChange(_) | PublicEventKind::SubagentCall(_) => Ok(()),
        }
    }

    fn on_progress(&mut self, _: EffectId, text: &str) {
        if let LogTarget::Screen(writer) = &self.target {
            let _ = writer.write(DrawCommand::Status(Some(sanitize::headline(text, MAX_DETAIL))));
        }
    }

    /// The costs are the totals of all runs.
    fn on_result(&mut self, result: &RunResult) -> Result<(), Disconnected> {
        self.status(None)?;
        if !result.denied.is_empty() {
            let tools = denied_tools(result);
            let calls = result.denied.len();
            let line = self.render(LogMessage::Denied { calls, tools: &tools });
            self.line(format!("🚫 {}", self.painter.warning(&line)))?;
        }
        if self.style.shows_costs {
            let line = self.render(LogMessage::Costs { cost: result.cost, usage: result.usage });
            self.line(format!("💰 {line}"))?;
        }
        if let Some(command) = &result.resume_command {
            let line = self.render(LogMessage::Resume { command });
            self.line(format!("↩️  {line}"))?;
        }
        Ok(())
    }

    fn finish(self: Box<Self>, timeout: FinishTimeout) -> Result<(), OutputError> {
        match self.target {
            LogTarget::Plain(writer) => writer.finish(timeout),
            LogTarget::Screen(writer) => writer.finish(timeout),
        }
    }
}

/// Replies may be this long before their limit is worth a log line.
const LONG_REPLY: Tokens = Tokens(8_192);

/// Returns the tools whose calls were denied, each with its count if that is above one.
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
    /// Calls a function while the spinner is paused.
    pub fn during<T>(&self, something: impl FnOnce() -> T) -> T {
        let Some(queue) = &self.0 else { return something() };
        let _ = queue.write(DrawCommand::Pause(true));
        queue.flush(CLEAR_TIMEOUT);
        let done = something();
        let _ = queue.write(DrawCommand::Pause(false));
        done
    }
}
