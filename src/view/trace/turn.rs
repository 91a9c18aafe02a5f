//! The turns of a trace: a request with its retries, and the tool calls of its reply.

use std::collections::HashMap;

use super::messages::{Speaker, TraceMessage};
use super::timeline::{CallEnd, CallSpan, ToolSpan};
use super::{StepChange, SubagentTrace, Trace};
use crate::machine::CallPurpose;
use crate::types::{CallId, MicroUsd, RunTime, ToolStatus};

/// A request with its retries, and the tool calls of its reply.
#[derive(Default)]
pub(super) struct Turn<'a> {
    /// The messages that are sent first by this turn, and cancelled replies.
    pub(super) messages: Vec<&'a TraceMessage>,
    /// The attempts; empty for messages that no request has sent.
    pub(super) requests: Vec<&'a CallSpan>,
    /// The text of the reply.
    pub(super) reply: Option<&'a TraceMessage>,
    /// The tool calls.
    pub(super) calls: Vec<TurnCall<'a>>,
    /// The changes of the step that are not assigned to a single call.
    pub(super) changes: Vec<&'a StepChange>,
    /// The sub-agents whose tool call is unknown.
    pub(super) subagents: Vec<&'a SubagentTrace>,
}

/// A tool call of a turn.
pub(super) struct TurnCall<'a> {
    pub(super) name: &'a str,
    pub(super) arguments: &'a str,
    /// The times; `None` if the call was never authorized.
    pub(super) span: Option<&'a ToolSpan>,
    pub(super) result: Option<&'a TraceMessage>,
    pub(super) changes: Vec<&'a StepChange>,
    pub(super) subagents: Vec<&'a SubagentTrace>,
}

impl Turn<'_> {
    /// Returns the purpose of the requests; `None` if nothing was sent.
    pub(super) fn purpose(&self) -> Option<CallPurpose> {
        self.requests.first().map(|request| request.purpose)
    }

    /// Returns the step; `None` if the turn is not a step.
    pub(super) fn step(&self) -> Option<u32> {
        self.requests.iter().rev().find_map(|request| request.step)
    }

    /// Returns the start and the end of the turn.
    pub(super) fn period(&self) -> (RunTime, RunTime) {
        let requests = self.requests.iter();
        let requests = requests.map(|call| (call.started_at, call.started_at.after(call.duration)));
        let spans = self.calls.iter().filter_map(|call| call.span);
        let all = requests.chain(spans.map(|span| (span.authorized_at, span.ended_at)));
        let joined = all.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)));
        joined.unwrap_or_else(|| {
            self.messages.first().map_or_else(Default::default, |it| (it.at, it.at))
        })
    }

    /// Returns the cost, including sub-agents; `None` if the model has no price.
    pub(super) fn cost(&self) -> Option<MicroUsd> {
        let own = self.requests.iter().filter_map(|request| match &request.end {
            CallEnd::Replied { usage, .. } => usage.cost,
            _ => None,
        });
        let calls = self.calls.iter().flat_map(|call| &call.subagents);
        let subagents = calls.chain(&self.subagents).filter_map(|subagent| subagent.trace.cost);
        own.chain(subagents).reduce(|sum, cost| sum + cost)
    }

    fn is_empty(&self) -> bool {
        self.requests.is_empty()
            && self.messages.is_empty()
            && self.calls.is_empty()
            && self.reply.is_none()
            && self.subagents.is_empty()
    }

    /// Returns whether the last request or one of the calls has failed.
    pub(super) fn is_failed(&self) -> bool {
        let replied = |call: &&CallSpan| matches!(call.end, CallEnd::Replied { .. });
        !self.requests.last().is_none_or(replied) || self.calls.iter().any(TurnCall::is_failed)
    }
}

impl TurnCall<'_> {
    /// Returns the status; `None` for a call that has not ended.
    pub(super) fn status(&self) -> Option<ToolStatus> {
        match (self.span, self.result.map(|result| &result.speaker)) {
            (Some(span), _) => span.status,
            (None, Some(Speaker::ToolResult { status, .. })) => Some(*status),
            (None, _) => None,
        }
    }

    /// Returns whether the call has not done what was requested.
    pub(super) fn is_failed(&self) -> bool {
        self.status() != Some(ToolStatus::Ok)
    }
}

/// Returns the turns in order, and the changes of steps that no turn contains.
pub(super) fn turns(trace: &Trace) -> (Vec<Turn<'_>>, Vec<&StepChange>) {
    let mut turns: Vec<Turn<'_>> = Vec::new();
    let mut turn_of_request = Vec::with_capacity(trace.calls.len());
    let mut is_open = false;
    for call in &trace.calls {
        match turns.last_mut() {
            Some(turn) if is_open && turn.purpose() == Some(call.purpose) => {
                turn.requests.push(call);
            }
            _ => turns.push(Turn { requests: vec![call], ..Turn::default() }),
        }
        turn_of_request.push(turns.len() - 1);
        is_open = !matches!(call.end, CallEnd::Replied { .. });
    }
    let unsent = turns.len();
    let turn_of = |request: usize| turn_of_request.get(request).copied().unwrap_or(unsent);
    turns.push(Turn::default());
    let mut calls: HashMap<(usize, &CallId), usize> = HashMap::new();
    for message in &trace.messages {
        let index = turn_of(message.request);
        let turn = &mut turns[index];
        match (&message.speaker, &message.call) {
            (Speaker::ToolCall { name }, Some(id)) => {
                calls.insert((index, id), turn.calls.len());
                turn.calls.push(TurnCall::new(name, &message.text));
            }
            (Speaker::ToolResult { .. }, Some(id)) => match calls.get(&(index, id)) {
                Some(&call) => turn.calls[call].result = Some(message),
                None => turn.messages.push(message),
            },
            (Speaker::Assistant, _) if turn.reply.is_none() => turn.reply = Some(message),
            _ => turn.messages.push(message),
        }
    }
    let mut newest: HashMap<&CallId, (usize, usize)> = HashMap::new();
    for span in &trace.tools {
        let index = turn_of(span.request);
        let turn = &mut turns[index];
        let known = calls.get(&(index, &span.call)).copied();
        let place = known.filter(|&call| turn.calls[call].span.is_none()).unwrap_or_else(|| {
            // After its process had ended, the call was authorized again, and the result belongs to the new
            // authorization.
            let result = known.and_then(|call| turn.calls[call].result.take());
            turn.calls.push(TurnCall { result, ..TurnCall::new(&span.name, &span.arguments) });
            turn.calls.len() - 1
        });
        turn.calls[place].span = Some(span);
        calls.insert((index, &span.call), place);
        newest.insert(&span.call, (index, place));
    }
    for subagent in &trace.subagent_traces {
        match subagent.call.as_ref().and_then(|call| newest.get(call)) {
            Some(&(turn, call)) => turns[turn].calls[call].subagents.push(subagent),
            None => turns[0].subagents.push(subagent),
        }
    }
    let steps = turns.iter().enumerate().filter_map(|(index, turn)| Some((turn.step()?, index)));
    let steps: HashMap<u32, usize> = steps.collect();
    let mut unplaced = Vec::new();
    for change in &trace.changes {
        let Some(&index) = steps.get(&change.step) else {
            unplaced.push(change);
            continue;
        };
        let turn = &mut turns[index];
        let changed = |call: &&mut TurnCall<'_>| {
            call.span.is_some_and(|span| span.changes.iter().any(|it| it.path == change.path))
        };
        let mut owners = turn.calls.iter_mut().filter(changed);
        match (owners.next(), owners.next()) {
            (Some(call), None) => call.changes.push(change),
            _ => turn.changes.push(change),
        }
    }
    turns.retain(|turn| !turn.is_empty());
    (turns, unplaced)
}

impl<'a> TurnCall<'a> {
    fn new(name: &'a str, arguments: &'a str) -> Self {
        let (changes, subagents) = (Vec::new(), Vec::new());
        Self { name, arguments, span: None, result: None, changes, subagents }
    }
}
