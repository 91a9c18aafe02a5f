//! Building the trajectory of a session from its records.

use serde_json::{Map, Value, json};

use super::{
    ATIF_VERSION, StepSource, Trajectory, TrajectoryAgent, TrajectoryCall, TrajectoryMetrics,
    TrajectoryObservation, TrajectoryResult, TrajectoryStep, TrajectoryTotals,
};
use crate::machine::{
    CallState, EntryId, Event, Executing, Machine, MachineOutput, State, StopReason,
};
use crate::types::{
    ConversationItem, MessageOrigin, MicroUsd, OpaqueBlock, Reply, ReplyPart, ToolCall, ToolResult,
};
use crate::view::trace::new_entries;

/// A record of a session, with the machine after it.
#[derive(Clone, Copy, Debug)]
pub struct TrajectoryRecord<'a> {
    /// The time of the record, in RFC 3339.
    pub at: &'a str,
    /// The event, if the record has one.
    pub event: Option<&'a Event>,
    /// The machine after the record.
    pub machine: &'a Machine,
    /// The machine's output.
    pub output: &'a MachineOutput,
}

/// Builds a trajectory.
#[derive(Debug)]
pub struct TrajectoryBuilder {
    agent: TrajectoryAgent,
    steps: Vec<TrajectoryStep>,
    newest: Option<EntryId>,
    /// The spent money up to the newest reply.
    spent: MicroUsd,
    /// The time and the cost of the newest reply, which is added together with the results of its calls.
    reply: Option<(String, Option<MicroUsd>)>,
}

impl TrajectoryBuilder {
    /// Begins with a session before its first event: the system prompt and the task.
    pub fn begin(agent: TrajectoryAgent, system: &str, start: &TrajectoryRecord<'_>) -> Self {
        let spent = MicroUsd(0);
        let mut builder = Self { agent, steps: Vec::new(), newest: None, spent, reply: None };
        builder.push(start.at, StepSource::System, system.into());
        builder.add(start);
        builder
    }

    /// Adds the next record.
    pub fn add(&mut self, record: &TrajectoryRecord<'_>) {
        match record.event {
            Some(Event::Replied { .. }) => {
                let run = record.machine.state.run();
                let cost = run.used.cost.saturating_sub(self.spent);
                self.spent = run.used.cost;
                self.reply = Some((record.at.to_owned(), run.rules.price.map(|_| cost)));
            }
            Some(Event::UsageReported { cost, .. }) => self.spent = self.spent + *cost,
            _ => {}
        }
        for entry in new_entries(record.machine, record.output, &mut self.newest) {
            match &entry.item {
                ConversationItem::User(message) => {
                    let source = match message.origin {
                        MessageOrigin::Task | MessageOrigin::Steering | MessageOrigin::FollowUp => {
                            StepSource::User
                        }
                        MessageOrigin::System | MessageOrigin::Check | MessageOrigin::Summary => {
                            StepSource::System
                        }
                    };
                    let step = self.push(record.at, source, (*message.text).into());
                    step.extra.insert("origin".to_owned(), json!(message.origin));
                }
                ConversationItem::Assistant(reply) => self.add_turn(record.at, reply, []),
                ConversationItem::Exchange(exchange) => {
                    let results = exchange.results().iter().map(Some);
                    self.add_turn(record.at, exchange.reply(), results);
                }
            }
        }
    }

    /// Returns the trajectory of the session so far.
    pub fn finish(
        mut self,
        session: String,
        last: &TrajectoryRecord<'_>,
        reason: Option<StopReason>,
    ) -> Trajectory {
        if let State::Executing(Executing { reply, calls, .. }) = &last.machine.state {
            let results = calls.iter().map(|open| match &open.state {
                CallState::Completed(result) => Some(result),
                _ => None,
            });
            self.add_turn(last.at, reply, results);
        }
        let metrics = || self.steps.iter().filter_map(|step| step.metrics.as_ref());
        let sum = |number: fn(&TrajectoryMetrics) -> Option<u64>| {
            Some(metrics().filter_map(number).sum::<u64>())
        };
        let run = last.machine.state.run();
        let totals = TrajectoryTotals {
            total_prompt_tokens: sum(|metrics| metrics.prompt_tokens),
            total_completion_tokens: sum(|metrics| metrics.completion_tokens),
            total_cached_tokens: sum(|metrics| metrics.cached_tokens),
            total_cost_usd: run.rules.price.map(|_| run.used.cost.as_dollars()),
            total_steps: Some(self.steps.len()),
            extra: Map::new(),
        };
        let mut extra = Map::new();
        extra.insert("stop_reason".to_owned(), json!(reason.map(StopReason::name)));
        Trajectory {
            schema_version: ATIF_VERSION.to_owned(),
            session_id: Some(session.clone()),
            trajectory_id: Some(session),
            agent: self.agent,
            steps: self.steps,
            final_metrics: Some(totals),
            subagent_trajectories: Vec::new(),
            extra,
        }
    }

    /// Adds a reply, with the available results of its calls.
    fn add_turn<'a>(
        &mut self,
        at: &str,
        reply: &'a Reply,
        results: impl IntoIterator<Item = Option<&'a ToolResult>>,
    ) {
        let (at, cost) = self.reply.take().unwrap_or_else(|| (at.to_owned(), None));
        let is_other = |model: &&str| self.agent.model_name.as_deref() != Some(*model);
        let model = reply.model.as_deref().filter(is_other).map(str::to_owned);
        let usage = &reply.usage;
        let metrics = TrajectoryMetrics {
            prompt_tokens: Some(usage.input.0),
            completion_tokens: Some(usage.output.0),
            cached_tokens: Some(usage.cached_input.0),
            cost_usd: cost.map(MicroUsd::as_dollars),
            extra: match usage.reasoning.0 {
                0 => Map::new(),
                tokens => Map::from_iter([("reasoning_tokens".to_owned(), json!(tokens))]),
            },
        };
        let calls: Vec<TrajectoryCall> = reply.calls().map(call).collect();
        let results: Vec<_> = results.into_iter().flatten().map(result).collect();
        let step = self.push(&at, StepSource::Agent, (*reply.text()).into());
        step.model_name = model;
        step.reasoning_content = reasoning(reply);
        step.metrics = Some(metrics);
        step.observation = (!results.is_empty()).then_some(TrajectoryObservation { results });
        step.tool_calls = calls;
    }

    fn push(&mut self, at: &str, source: StepSource, message: Value) -> &mut TrajectoryStep {
        let step = TrajectoryStep {
            step_id: self.steps.len() + 1,
            timestamp: Some(at.to_owned()),
            source,
            model_name: None,
            message,
            reasoning_content: None,
            tool_calls: Vec::new(),
            observation: None,
            metrics: None,
            extra: Map::new(),
        };
        self.steps.push(step);
        let last = self.steps.len() - 1;
        &mut self.steps[last]
    }
}

fn call(call: &ToolCall) -> TrajectoryCall {
    let text = call.arguments.text();
    let (arguments, extra) = match serde_json::from_str(text) {
        Ok(Value::Object(arguments)) => (arguments, Map::new()),
        _ => (Map::new(), Map::from_iter([("arguments_text".to_owned(), json!(text))])),
    };
    let (tool_call_id, function_name) = (call.id.to_string(), call.name.to_string());
    TrajectoryCall { tool_call_id, function_name, arguments, extra }
}

fn result(result: &ToolResult) -> TrajectoryResult {
    TrajectoryResult {
        source_call_id: Some(result.call.to_string()),
        content: (*result.text).into(),
        subagent_trajectory_ref: Vec::new(),
        extra: Map::from_iter([("status".to_owned(), json!(result.status))]),
    }
}

/// Returns the reasoning of a reply, without parts that the provider has encrypted.
fn reasoning(reply: &Reply) -> Option<String> {
    let texts: Vec<String> = reply
        .parts
        .iter()
        .filter_map(|part| match part {
            ReplyPart::Opaque(block) => reasoning_text(block),
            ReplyPart::Text(_) | ReplyPart::Call(_) => None,
        })
        .collect();
    (!texts.is_empty()).then(|| texts.join("\n\n"))
}

fn reasoning_text(block: &OpaqueBlock) -> Option<String> {
    let block: Value = serde_json::from_str(&block.json).ok()?;
    let summary = || {
        let texts = block["summary"].as_array()?.iter().filter_map(|part| part["text"].as_str());
        Some(texts.collect::<Vec<_>>().join("\n\n"))
    };
    let text = |key: &str| block[key].as_str().map(str::to_owned);
    let found = text("thinking").or_else(|| text("reasoning_content")).or_else(summary);
    found.filter(|text| !text.trim().is_empty())
}
