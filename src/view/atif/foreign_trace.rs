//! The trace of a trajectory, possibly of another program: its messages, calls and times.

use jiff::Timestamp;
use serde_json::Value;

use super::{StepSource, Trajectory, TrajectoryMetrics, TrajectoryStep};
use crate::machine::{CallPurpose, StateKind, StopReason};
use crate::types::{
    CallId, MessageOrigin, MicroUsd, ReplyFinish, RunTime, TimeSpan, Tokens, ToolStatus, WordEnum,
};
use crate::view::trace::{
    CallEnd, CallSpan, SpanUsage, Speaker, SubagentSpan, SubagentTrace, ToolSpan, Trace,
    TraceMessage, TraceSubject,
};

impl Trajectory {
    /// Returns the trace of the trajectory. The time of a model call is the time since the previous step, since the
    /// format has no better one. The trace has no states.
    pub fn trace(&self) -> Trace {
        let text = |key: &str| self.agent.extra.get(key).and_then(Value::as_str);
        let created = self.steps.iter().find_map(|step| step.timestamp.clone());
        let subject = TraceSubject {
            session_id: self.session_id.clone().unwrap_or_default(),
            created: created.unwrap_or_default(),
            program: format!("{} {}", self.agent.name, self.agent.version),
            model: self.agent.model_name.clone().unwrap_or_default(),
            agent: text("agent").unwrap_or(&self.agent.name).to_owned(),
            workspace: text("workspace").unwrap_or_default().to_owned(),
        };
        let begun = self.begun();
        let mut trace = Trace {
            subject,
            state: StateKind::Done,
            stop_reason: self.stop_reason(),
            duration: TimeSpan::ZERO,
            steps: 0,
            llm_calls: 0,
            tokens: Tokens::ZERO,
            cost: None,
            states: Vec::new(),
            edges: Vec::new(),
            calls: Vec::new(),
            tools: Vec::new(),
            subagents: Vec::new(),
            messages: Vec::new(),
            changes: Vec::new(),
            subagent_traces: Vec::new(),
        };
        let mut at = RunTime::START;
        for step in &self.steps {
            let before = at;
            at = at.max(step.time(begun));
            trace.add_step(step, before, at);
        }
        trace.duration = at.since(RunTime::START);
        for subagent in &self.subagent_trajectories {
            subagent.add_calls(begun, &mut trace.subagents);
            trace.subagent_traces.push(SubagentTrace {
                call: self.call_of(subagent),
                started_at: subagent.steps.first().map_or(RunTime::START, |step| step.time(begun)),
                trace: subagent.trace(),
            });
        }
        let usages = trace.usages();
        trace.llm_calls = u32::try_from(usages.len()).unwrap_or(u32::MAX);
        trace.tokens = Tokens(usages.iter().map(|one| one.input_tokens + one.output_tokens).sum());
        let total = self.final_metrics.as_ref().and_then(|totals| totals.total_cost_usd);
        let sum = || usages.iter().filter_map(|one| one.cost).reduce(|sum, cost| sum + cost);
        trace.cost = total.and_then(MicroUsd::from_dollars).or_else(sum);
        trace
    }

    /// Returns the tool call on which a sub-agent worked, if a result refers to the sub-agent.
    fn call_of(&self, subagent: &Self) -> Option<CallId> {
        let observations = self.steps.iter().filter_map(|step| step.observation.as_ref());
        let mut results = observations.flat_map(|observation| &observation.results);
        let found = results.find(|result| {
            let is_same = |own: &Option<String>, other| own.is_some() && own == other;
            result.subagent_trajectory_ref.iter().any(|reference| {
                is_same(&reference.trajectory_id, &subagent.trajectory_id)
                    || is_same(&reference.session_id, &subagent.session_id)
            })
        });
        found?.source_call_id.as_deref().map(CallId::from)
    }

    fn stop_reason(&self) -> Option<StopReason> {
        StopReason::from_name(self.extra.get("stop_reason")?.as_str()?)
    }

    /// Returns the time of the first step.
    fn begun(&self) -> Option<Timestamp> {
        self.steps.iter().find_map(|step| step.timestamp.as_deref()?.parse().ok())
    }

    /// Adds the model calls of a sub-agent, and of the sub-agents below it.
    fn add_calls(&self, begun: Option<Timestamp>, spans: &mut Vec<SubagentSpan>) {
        let turns = self.steps.iter().filter(|step| step.source == StepSource::Agent);
        spans.extend(turns.map(|step| SubagentSpan { at: step.time(begun), usage: step.usage() }));
        for subagent in &self.subagent_trajectories {
            subagent.add_calls(begun, spans);
        }
    }
}

impl TrajectoryStep {
    fn time(&self, begun: Option<Timestamp>) -> RunTime {
        let at: Option<Timestamp> = self.timestamp.as_deref().and_then(|text| text.parse().ok());
        let since = at.zip(begun).map(|(at, begun)| at.as_microsecond() - begun.as_microsecond());
        RunTime(since.and_then(|since| u64::try_from(since).ok()).unwrap_or(0))
    }

    fn usage(&self) -> SpanUsage {
        let metrics = self.metrics.as_ref();
        let number = |number: fn(&TrajectoryMetrics) -> Option<u64>| metrics.and_then(number);
        let cost = metrics.and_then(|metrics| metrics.cost_usd);
        SpanUsage {
            input_tokens: number(|metrics| metrics.prompt_tokens).unwrap_or(0),
            output_tokens: number(|metrics| metrics.completion_tokens).unwrap_or(0),
            cached_input_tokens: number(|metrics| metrics.cached_tokens).unwrap_or(0),
            cost: cost.and_then(MicroUsd::from_dollars),
        }
    }
}

impl Trace {
    fn usages(&self) -> Vec<SpanUsage> {
        let own = self.calls.iter().filter_map(|call| match call.end {
            CallEnd::Replied { usage, .. } => Some(usage),
            _ => None,
        });
        own.chain(self.subagents.iter().map(|span| span.usage)).collect()
    }

    fn add_step(&mut self, step: &TrajectoryStep, before: RunTime, at: RunTime) {
        let (seq, request) = (step.step_id as u64, self.calls.len());
        let mut add = |speaker: Speaker, call: Option<CallId>, text: String| {
            if !text.is_empty() {
                let text = text.into();
                self.messages.push(TraceMessage { seq, at, request, call, speaker, text });
            }
        };
        let mut say = |speaker, text| add(speaker, None, text);
        let message = content_text(&step.message);
        match step.source {
            StepSource::System => say(Speaker::User { origin: MessageOrigin::System }, message),
            StepSource::User => say(Speaker::User { origin: MessageOrigin::Task }, message),
            StepSource::Agent => say(Speaker::Assistant, message),
        }
        let results = step.observation.iter().flat_map(|observation| &observation.results);
        let results: Vec<_> = results.collect();
        for call in &step.tool_calls {
            let id = Some(call.tool_call_id.as_str());
            let result = results.iter().find(|result| result.source_call_id.as_deref() == id);
            let known = result.and_then(|result| result.extra.get("status")?.as_str());
            let status =
                result.map(|_| known.and_then(ToolStatus::from_word).unwrap_or(ToolStatus::Ok));
            let arguments = Value::Object(call.arguments.clone()).to_string();
            let name = || call.function_name.as_str().into();
            let call_id = CallId::from(&*call.tool_call_id);
            add(Speaker::ToolCall { name: name() }, Some(call_id.clone()), arguments.clone());
            if let Some((result, status)) = result.zip(status) {
                let speaker = Speaker::ToolResult { name: name(), status };
                add(speaker, Some(call_id.clone()), content_text(&result.content));
            }
            self.tools.push(ToolSpan {
                call: call_id,
                request,
                name: name(),
                arguments: arguments.into(),
                authorized_at: at,
                started_at: None,
                ended_at: at,
                status,
                decision: None,
                changes: Vec::new(),
            });
        }
        if step.source != StepSource::Agent {
            return;
        }
        let has_calls = !step.tool_calls.is_empty();
        self.steps += u32::from(has_calls);
        let finish = if has_calls { ReplyFinish::ToolCalls } else { ReplyFinish::Stop };
        self.calls.push(CallSpan {
            purpose: CallPurpose::Agent,
            attempt: 1,
            model: None,
            step: has_calls.then_some(self.steps),
            messages: u32::try_from(step.step_id.saturating_sub(1)).unwrap_or(u32::MAX),
            started_at: before,
            duration: at.since(before),
            encode: None,
            first_byte: None,
            end: CallEnd::Replied { finish, usage: step.usage() },
            charged: None,
        });
    }
}

/// Returns the text of a message or a result, which is a string or a list of parts.
fn content_text(content: &Value) -> String {
    match content {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let part = |part: &Value| match part["text"].as_str() {
                Some(text) => text.to_owned(),
                None => format!("[{}]", part["type"].as_str().unwrap_or("part")),
            };
            parts.iter().map(part).collect::<Vec<_>>().join("\n")
        }
        other => other.to_string(),
    }
}
