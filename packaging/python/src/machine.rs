//! The state machine without a driver.

use architect::machine::{
    CallPurpose, Conversation, ConversationChange, Fingerprint, Machine as PureMachine,
    MachineOutput, Resumption,
};
use architect::types::{
    CallId, ConversationItem, MessageOrigin, RunTime, ToolCall, ToolResult, ToolStatus, UserMessage,
};
use pyo3::prelude::*;
use serde_json::{Value, json};

use crate::chat::messages;
use crate::rules::rules;
use crate::{parse, to_json, value_error};

/// The state and the conversation of a run.
#[pyclass(module = "architect._native")]
#[derive(Clone)]
pub(crate) struct Machine(PureMachine);

#[pymethods]
impl Machine {
    /// Begins a run; returns the machine and its first step. The task is a text, or an item of a conversation.
    #[staticmethod]
    fn start(
        task: &str,
        rules_json: &str,
        history: &str,
        request_bytes: u64,
    ) -> PyResult<(Self, String)> {
        let task = match parse("task", task)? {
            Value::String(text) => ConversationItem::user(MessageOrigin::Task, text),
            item => {
                serde_json::from_value(item).map_err(|error| value_error("invalid task", error))?
            }
        };
        let mut conversation = Conversation::new(request_bytes);
        let history: Vec<ConversationItem> = parse("history", history)?;
        for item in history {
            conversation.apply(ConversationChange::Append { item });
        }
        let (machine, output) = PureMachine::start(rules(rules_json)?, conversation, task);
        let step = step_json(&machine, &output)?;
        Ok((Self(machine), step))
    }

    fn step(&mut self, event: &str, at: u64) -> PyResult<String> {
        let event = parse("event", event)?;
        let (machine, output) = self.0.clone().handle(RunTime(at), event);
        self.0 = machine;
        step_json(&self.0, &output)
    }

    fn resume(&mut self, resumption: &str, at: u64) -> PyResult<String> {
        let mut document: Value = parse("resumption", resumption)?;
        let given = document["rules"].take();
        document["rules"] = serde_json::to_value(rules(&given.to_string())?)
            .map_err(|error| value_error("invalid rules", error))?;
        let resumption: Resumption = serde_json::from_value(document)
            .map_err(|error| value_error("invalid resumption", error))?;
        let (machine, output) = self.0.clone().resume(RunTime(at), resumption);
        self.0 = machine;
        step_json(&self.0, &output)
    }

    fn copy(&self) -> Self {
        self.clone()
    }

    fn state(&self) -> PyResult<String> {
        to_json(&self.0.state)
    }

    fn outcome(&self) -> PyResult<String> {
        let outcome = self.0.state.outcome().map(|outcome| {
            json!({
                "stop_reason": outcome.reason.name(),
                "status": outcome.reason.status(),
                "exit_code": outcome.reason.exit_code(),
                "output": outcome.output,
                "error": outcome.error,
            })
        });
        to_json(&outcome)
    }

    fn conversation(&self) -> PyResult<String> {
        to_json(&self.0.conversation.entries().iter().map(|entry| &entry.item).collect::<Vec<_>>())
    }

    fn messages(&self, purpose: &str, system: &str) -> PyResult<String> {
        let purpose: CallPurpose = serde_json::from_value(purpose.into())
            .map_err(|error| value_error("invalid purpose", error))?;
        let content = self.0.request_content(purpose, system.len() as u64);
        let mut all = Vec::new();
        if !system.is_empty() {
            all.push(json!({"role": "system", "content": system}));
        }
        all.extend(messages(&content.entries));
        all.extend(content.instruction.map(|text| json!({"role": "user", "content": text})));
        to_json(&all)
    }

    fn request_size(&self, messages: &str, system_bytes: u64) -> PyResult<String> {
        let messages: Vec<UserMessage> = parse("messages", messages)?;
        to_json(&self.0.request_size(&messages, system_bytes))
    }
}

/// Returns a step as JSON: an effect is an object with its `type` beside its fields.
fn step_json(machine: &PureMachine, output: &MachineOutput) -> PyResult<String> {
    let effects: Result<Vec<Value>, _> =
        output.effects.iter().map(|effect| serde_json::to_value(effect).map(flatten)).collect();
    let notes: Result<Vec<Value>, _> =
        output.notes.iter().map(|note| serde_json::to_value(note).map(flatten)).collect();
    let transitions = output.transitions.iter();
    let transitions = transitions
        .map(|change| json!({"from": change.from, "event": change.event, "to": change.to}));
    let invalid = |error| value_error("not JSON", error);
    to_json(&json!({
        "effects": effects.map_err(invalid)?,
        "notes": notes.map_err(invalid)?,
        "transitions": transitions.collect::<Vec<_>>(),
        "state": machine.state.kind(),
        "deadline": machine.deadline().map(|due| json!({"at": due.at, "kind": due.kind})),
        "fingerprint": Fingerprint::of(machine, &output.effects).digest.to_string(),
    }))
}

/// Returns an enum's variant, `{"name": {…}}` or `"name"`, as `{"type": "name", …}`.
fn flatten(variant: Value) -> Value {
    let (name, fields) = match variant {
        Value::Object(map) => match map.into_iter().next() {
            Some((name, Value::Object(fields))) => (name, fields),
            other => return json!(other),
        },
        Value::String(name) => (name, serde_json::Map::new()),
        other => return other,
    };
    let tag = [("type".to_owned(), Value::String(name))];
    Value::Object(tag.into_iter().chain(fields).collect())
}

/// Returns a tool call, with the digest by which the machine recognizes repetitions.
#[pyfunction]
pub(crate) fn tool_call(id: &str, name: &str, arguments: &str) -> PyResult<String> {
    to_json(&ToolCall::new(id.into(), name, arguments))
}

/// Returns the result of a tool call, likewise.
#[pyfunction]
pub(crate) fn tool_result(call: &str, status: &str, text: &str) -> PyResult<String> {
    let status: ToolStatus = serde_json::from_value(status.into())
        .map_err(|error| value_error("invalid status", error))?;
    to_json(&ToolResult::new(CallId::from(call), status, text))
}
