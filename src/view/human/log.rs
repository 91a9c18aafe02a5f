//! From public events to lines.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use super::blocks::Blocks;
use super::paint::Paint;
use super::screen::{Draw, Screen};
use super::summary::summary;
use crate::machine::{Status, StopReason};
use crate::model::{CallId, EffectId, Span, Tokens, ToolStatus};
use crate::port::{Clock, Gone, HookOutcome};
use crate::view::catalogue::{Lang, Message};
use crate::view::clean;
use crate::view::failure::brief;
use crate::view::output::Output;
use crate::view::public::{
    AgentEnd, ApiCallEnd, CallOutcome, HookComplete, Kind, Measure, PublicEvent, RetryCause,
    Severity, ToolCallEnd, ToolCallStart,
};
use crate::view::result::RunResult;
use crate::view::writer::{Desk, Lost, Patience, Plain, Writer};

/// How the log looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// Its language.
    pub lang: Lang,
    /// Whether it has colours.
    pub is_styled: bool,
    /// Whether its last line tells what the run cost.
    pub shows_costs: bool,
}

/// The log for people.
pub struct HumanLog {
    look: Look,
    paint: Paint,
    to: To,
    blocks: Blocks,
    /// What hooks said about calls that have not ended.
    hooks: HashMap<CallId, Vec<String>>,
    /// Whether anything was written, and whether the newest line is a tool's.
    so_far: SoFar,
    /// Whether text of the present call was shown.
    has_streamed: bool,
    /// The newest limit of a reply that was shown; the next one is shown if it differs much.
    lowered: Option<Tokens>,
    /// What the newest failed call said; it is not said again when the run ends of it.
    failure: Option<Arc<str>>,
}

/// Where the log goes.
enum To {
    /// Into a pipe or a file.
    Plain(Writer<Vec<u8>>),
    /// Onto a terminal.
    Screen(Writer<Draw>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SoFar {
    Nothing,
    Lines,
    Tools,
}

/// Keeps the spinner away while somebody else uses the terminal: a question to the user, say.
#[derive(Clone)]
pub struct Hush(Option<Arc<Desk<Draw>>>);

/// The most characters of what a tool or a hook says.
const LONGEST: usize = 360;

/// How long a question waits for the spinner to go away.
const CLEARING: Duration = Duration::from_millis(300);

impl HumanLog {
    /// Returns a log that is written line by line.
    ///
    /// # Errors
    ///
    /// Fails when the system has no thread for it.
    pub fn plain(out: impl Write + Send + 'static, look: Look) -> io::Result<Self> {
        Ok(Self::new(look, To::Plain(Writer::start("log", Plain(out))?)))
    }

    /// Returns a log on a terminal, with a spinner, elapsed times, and text that is shown while it arrives. `columns`
    /// tells how wide the terminal is.
    ///
    /// # Errors
    ///
    /// Fails when the system has no thread for it.
    pub fn live(
        out: impl Write + Send + 'static,
        look: Look,
        clock: Arc<dyn Clock>,
        columns: impl Fn() -> usize + Send + 'static,
    ) -> io::Result<Self> {
        let screen = Screen::new(out, clock, Box::new(columns));
        Ok(Self::new(look, To::Screen(Writer::start("log", screen)?)))
    }

    /// Returns what keeps the spinner away.
    pub fn hush(&self) -> Hush {
        match &self.to {
            To::Plain(_) => Hush(None),
            To::Screen(screen) => Hush(Some(Arc::new(screen.desk()))),
        }
    }

    fn new(look: Look, to: To) -> Self {
        Self {
            paint: Paint { is_styled: look.is_styled },
            look,
            to,
            blocks: Blocks::default(),
            hooks: HashMap::new(),
            so_far: SoFar::Nothing,
            has_streamed: false,
            lowered: None,
            failure: None,
        }
    }

    fn say(&self, message: Message<'_>) -> String {
        message.say(self.look.lang)
    }

    fn write(&mut self, lines: &[String]) -> Result<(), Gone> {
        if lines.is_empty() {
            return Ok(());
        }
        if self.so_far == SoFar::Nothing {
            self.so_far = SoFar::Lines;
        }
        let text = lines.join("\n") + "\n";
        match &self.to {
            To::Plain(writer) => writer.put(text.into_bytes()),
            To::Screen(writer) => writer.put(Draw::Lines(text)),
        }
    }

    fn line(&mut self, line: String) -> Result<(), Gone> {
        self.write(&[line])
    }

    /// Returns whether a measure is no news: a reply that may be long still, or about as long as the log says already.
    fn is_told(&mut self, measure: &Measure) -> bool {
        let Measure::LowerOutput { max_output_tokens: to } = *measure else { return false };
        let is_near = |told: Tokens| to.0 > told.0 / 2 && to.0 / 2 < told.0;
        let is_told = to >= LONG_REPLY || self.lowered.is_some_and(is_near);
        if !is_told {
            self.lowered = Some(to);
        }
        is_told
    }

    /// Says what is going on below the log, where that is possible.
    fn status(&self, message: Option<Message<'_>>) -> Result<(), Gone> {
        match &self.to {
            To::Plain(_) => Ok(()),
            To::Screen(writer) => {
                writer.put(Draw::Status(message.map(|message| self.say(message))))
            }
        }
    }

    /// Returns how long something took, where the log is live.
    fn took(&self, span: Span) -> String {
        match &self.to {
            To::Screen(_) if span > Span::ZERO => self.paint.faint(&format!("  {span}")),
            To::Screen(_) | To::Plain(_) => String::new(),
        }
    }

    fn heading(&mut self, icon: &str, message: Message<'_>) -> Result<(), Gone> {
        let heading = format!("{icon} {}", self.paint.strong(&self.say(message)));
        let lines = match self.so_far {
            SoFar::Nothing => vec![heading],
            SoFar::Lines | SoFar::Tools => vec![String::new(), heading],
        };
        self.so_far = SoFar::Lines;
        self.write(&lines)
    }

    fn remark(&mut self, icon: &str, text: &str) -> Result<(), Gone> {
        self.line(format!("   {icon} {text}"))
    }

    fn call_ended(&mut self, end: &ApiCallEnd) -> Result<(), Gone> {
        self.status(None)?;
        let took = self.took(end.duration);
        match &end.outcome {
            CallOutcome::Replied { text, tool_calls, .. } => {
                let said = self.say(Message::Answered { tool_calls: *tool_calls });
                let mark = self.paint.good("✓");
                self.remark(&mark, &format!("{said}{took}"))?;
                // What is said beside tool calls is no answer, but people want to follow.
                let remark = clean::headline(text, LONGEST);
                if *tool_calls > 0 && !remark.is_empty() && !self.has_streamed {
                    self.remark("💬", &self.paint.faint(&remark))?;
                }
                Ok(())
            }
            CallOutcome::Failed { fault, message } => {
                self.failure = Some(Arc::clone(message));
                let message = clean::headline(message, LONGEST);
                let said = self.say(Message::CallFailed { fault: *fault, message: &message });
                let mark = self.paint.bad("✗");
                self.remark(&mark, &format!("{said}{took}"))?;
                self.discard()
            }
            CallOutcome::Cancelled => {
                let (mark, said) = (self.paint.odd("✗"), self.say(Message::CallCancelled));
                self.remark(&mark, &said)?;
                self.discard()
            }
        }
    }

    fn discard(&mut self) -> Result<(), Gone> {
        if std::mem::take(&mut self.has_streamed) {
            let said = self.paint.faint(&self.say(Message::Discarded));
            self.remark("↑", &said)?;
        }
        Ok(())
    }

    fn tool_started(&mut self, start: &ToolCallStart) -> Result<(), Gone> {
        let what = summary(&start.name, &start.arguments, self.look.lang);
        let name = self.paint.strong(&clean::line(&start.name));
        let arrow = if what.is_empty() { "" } else { " → " };
        let lines = self.blocks.begin(&start.id, format!("   🔧 {name}{arrow}{what}"));
        if self.so_far != SoFar::Tools {
            self.so_far = SoFar::Tools;
            self.line(String::new())?;
        }
        self.write(&lines)?;
        self.running()
    }

    fn tool_ended(&mut self, end: &ToolCallEnd) -> Result<(), Gone> {
        let error =
            if end.success { String::new() } else { brief(&end.name, &end.output, LONGEST) };
        let said = self.say(Message::Tool { status: end.status, error: &error });
        let mark = match end.status {
            ToolStatus::Ok => self.paint.good("✓"),
            ToolStatus::Denied => self.paint.odd("⛔"),
            ToolStatus::Failed
            | ToolStatus::TimedOut
            | ToolStatus::Unknown
            | ToolStatus::Malformed
            | ToolStatus::Cut
            | ToolStatus::Skipped
            | ToolStatus::Interrupted
            | ToolStatus::Abandoned
            | ToolStatus::InDoubt => self.paint.bad("✗"),
        };
        let line = format!("      {mark} {said}{}", self.took(end.took));
        let hooks = self.hooks.remove(&end.id).unwrap_or_default();
        let lines = self.blocks.end(&end.id, line, hooks);
        self.write(&lines)?;
        self.running()
    }

    fn running(&self) -> Result<(), Gone> {
        let tools = self.blocks.open();
        self.status((tools > 0).then_some(Message::Running { tools }))
    }

    /// A hook of a tool call is told below the call's own result.
    fn hook(&mut self, hook: &HookComplete) -> Result<(), Gone> {
        let name = clean::headline(&hook.name, LONGEST);
        let said = hook.message.as_deref().map(|said| clean::headline(said, LONGEST));
        let said = said.unwrap_or_default();
        let said = self.say(Message::Hook { name: &name, outcome: hook.outcome, said: &said });
        let said = match hook.outcome {
            HookOutcome::Passed => said,
            HookOutcome::Blocked | HookOutcome::Failed | HookOutcome::TimedOut => {
                self.paint.odd(&said)
            }
        };
        match &hook.tool_call_id {
            Some(id) => {
                self.hooks.entry(id.clone()).or_default().push(format!("      🔍 {said}"));
                Ok(())
            }
            None => self.remark("🔍", &said),
        }
    }

    fn ended(&mut self, end: &AgentEnd) -> Result<(), Gone> {
        self.status(None)?;
        let rest = self.blocks.rest();
        self.write(&rest)?;
        let icon = match (end.status, end.reason) {
            (Status::Success, _) => "✅",
            (Status::Partial, StopReason::UserInterrupt(_)) => "🛑",
            (Status::Partial, _) => "⚠️ ",
            (Status::Failed, _) => "❌",
        };
        let said = self.say(Message::Ended {
            reason: end.reason,
            steps: end.steps,
            llm_calls: end.llm_calls,
        });
        self.line(format!("{icon} {}", self.paint.strong(&said)))?;
        Ok(())
    }

    /// Shows text while it arrives, where the log is live.
    fn stream(&mut self, text: &str) -> Result<(), Gone> {
        let To::Screen(writer) = &self.to else { return Ok(()) };
        self.has_streamed = true;
        writer.put(Draw::Status(None))?;
        writer.put(Draw::Stream(clean::block(text).into_owned()))
    }
}

impl Output for HumanLog {
    fn event(&mut self, event: &PublicEvent) -> Result<(), Gone> {
        match &event.kind {
            Kind::AgentStart(start) => {
                let [id, model, agent] =
                    [&event.session_id, &start.model, &start.agent].map(|text| clean::line(text));
                let (id, model, agent, resumed) = (&*id, &*model, &*agent, start.resumed);
                let said = self.say(Message::Session { id, model, agent, resumed });
                self.line(self.paint.faint(&format!("▶ {said}")))
            }
            Kind::ApiCallStart(start) => {
                self.has_streamed = false;
                let (purpose, step, messages) = (start.purpose, start.step, start.messages);
                if start.attempt == 1 {
                    self.heading("🔄", Message::Call { purpose, step, messages })?;
                }
                self.status(Some(Message::Waiting))
            }
            Kind::ApiCallEnd(end) => self.call_ended(end),
            Kind::TextDelta(delta) => self.stream(&delta.text),
            Kind::Retry(retry) => {
                let said = match retry.cause {
                    RetryCause::Fault { attempt, wait, .. } => {
                        self.say(Message::Retry { attempt, wait })
                    }
                    RetryCause::Unfinished { why } => self.say(Message::Unfinished { why }),
                };
                self.remark("⏳", &self.paint.odd(&said))
            }
            Kind::ToolCallStart(start) => self.tool_started(start),
            Kind::ToolCallEnd(end) => self.tool_ended(end),
            Kind::HookComplete(hook) => self.hook(hook),
            Kind::SteeringReceived(message) => {
                let text = clean::headline(&message.text, LONGEST);
                let said = self.say(Message::Steering { kind: message.kind, text: &text });
                self.line(format!("📨 {said}"))
            }
            Kind::CompactionTriggered(start) => {
                self.heading("📦", Message::Compacting { context: start.context_tokens })
            }
            Kind::CompactionComplete(end) => {
                let (context, by) = (end.context_tokens, end.summary);
                let said = self.say(Message::Compacted { context, by });
                self.remark("📦", &said)
            }
            Kind::SafetyNet(net) if self.is_told(&net.measure) => Ok(()),
            Kind::SafetyNet(net) => {
                let said = self.say(match net.measure {
                    Measure::Close { reason } => Message::Closing { reason },
                    Measure::NoSummary { cause } => Message::NoSummary { cause },
                    Measure::LowerOutput { max_output_tokens: to } => Message::OutputLowered { to },
                    Measure::Warn { cost_usd: cost } => Message::Spent { cost },
                });
                self.line(format!("⚠️  {}", self.paint.odd(&said)))
            }
            Kind::LoopDetected(found) => {
                let said = self.say(Message::Loop { times: found.times });
                self.line(format!("🔁 {}", self.paint.odd(&said)))
            }
            Kind::Error(error) if self.failure.as_ref() == Some(&error.message) => Ok(()),
            Kind::Error(error) => {
                let said = clean::headline(&error.message, LONGEST);
                match error.severity {
                    Severity::Warning => self.line(format!("⚠️  {}", self.paint.odd(&said))),
                    Severity::Error => self.line(format!("❌ {}", self.paint.bad(&said))),
                }
            }
            Kind::AgentEnd(end) => self.ended(end),
            Kind::StateChange(_) | Kind::SubagentCall(_) => Ok(()),
        }
    }

    fn progress(&mut self, _: EffectId, text: &str) {
        if let To::Screen(writer) = &self.to {
            let _ = writer.put(Draw::Status(Some(clean::headline(text, LONGEST))));
        }
    }

    /// The costs are those of all runs together, as the result tells them.
    fn result(&mut self, result: &RunResult) -> Result<(), Gone> {
        self.status(None)?;
        if !result.denied.is_empty() {
            let tools = denied_tools(result);
            let calls = result.denied.len();
            let said = self.say(Message::Denied { calls, tools: &tools });
            self.line(format!("🚫 {}", self.paint.odd(&said)))?;
        }
        if self.look.shows_costs {
            let said = self.say(Message::Costs { cost: result.cost, used: result.usage });
            self.line(format!("💰 {said}"))?;
        }
        if let Some(command) = &result.resume {
            let said = self.say(Message::Resume { command });
            self.line(format!("↩️  {said}"))?;
        }
        Ok(())
    }

    fn finish(self: Box<Self>, patience: Patience) -> Result<(), Lost> {
        match self.to {
            To::Plain(writer) => writer.finish(patience),
            To::Screen(writer) => writer.finish(patience),
        }
    }
}

/// A reply that may be this long is limited by nothing that anybody would notice.
const LONG_REPLY: Tokens = Tokens(8_192);

/// Returns the tools whose calls were denied, each with how often where that is more than once.
fn denied_tools(result: &RunResult) -> String {
    let mut tools: Vec<(&str, usize)> = Vec::new();
    for denied in &result.denied {
        match tools.iter_mut().find(|(tool, _)| *tool == &*denied.tool) {
            Some((_, times)) => *times += 1,
            None => tools.push((&denied.tool, 1)),
        }
    }
    let told = |(tool, times): &(&str, usize)| match times {
        1 => clean::line(tool).into_owned(),
        times => format!("{} ({times})", clean::line(tool)),
    };
    clean::headline(&tools.iter().map(told).collect::<Vec<_>>().join(", "), LONGEST)
}

impl Hush {
    /// Does something while the spinner stays away.
    pub fn during<T>(&self, something: impl FnOnce() -> T) -> T {
        let Some(desk) = &self.0 else { return something() };
        let _ = desk.put(Draw::Hush(true));
        desk.flush(CLEARING);
        let done = something();
        let _ = desk.put(Draw::Hush(false));
        done
    }
}
