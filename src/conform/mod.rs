//! Recorded sessions of other programs, checked against the invariants of a run.
//!
//! A reader for each format converts a recording to `TraceEntry`s; `invariants` checks them in order and stops at the
//! first violation. Intended behavior of the programs is no violation: results in any order within a turn, a call
//! without a result at the end of a recording or before the user's next message, a compaction, a copied history.

mod atif;
mod claude;
mod codex;
mod document;
mod goose;
mod invariants;
mod openai;
mod pi;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::types::word_enum;
use document::{Document, RecordingLine};
use invariants::InvariantChecker;

word_enum! {
    /// The format of a recording.
    pub enum TraceFormat {
        /// A session of Claude Code, or its `stream-json`: JSON lines.
        Claude = "claude",
        /// A rollout of Codex: JSON lines.
        Codex = "codex",
        /// A session of pi: JSON lines.
        Pi = "pi",
        /// A session of goose: JSON lines, an export as JSON, or its `stream-json`.
        Goose = "goose",
        /// A trajectory in the Agent Trajectory Interchange Format: JSON.
        Atif = "atif",
        /// Messages or requests of OpenAI's Chat Completions: JSON, or JSON lines.
        OpenAi = "openai",
    }
}

word_enum! {
    /// An invariant that a recording can violate.
    pub enum Invariant {
        /// Each line is JSON.
        DamagedLine = "damaged_line",
        /// Each result answers a call.
        OrphanResult = "orphan_result",
        /// A result comes after its call.
        ResultBeforeCall = "result_before_call",
        /// A call is answered once.
        AnsweredTwice = "answered_twice",
        /// A call is answered before the next reply.
        UnansweredCall = "unanswered_call",
        /// The ids of calls are unique.
        DuplicateCallId = "duplicate_call_id",
        /// A request begins with the messages of the request before.
        ChangedPrefix = "changed_prefix",
        /// No reply comes after the end of a run.
        ReplyAfterEnd = "reply_after_end",
        /// Retries are bounded.
        UnboundedRetries = "unbounded_retries",
        /// A stated limit is kept.
        LimitExceeded = "limit_exceeded",
        /// Steps are numbered in order.
        StepOrder = "step_order",
    }
}

/// The first violation of a recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Violation {
    /// The violated invariant.
    pub invariant: Invariant,
    /// The line, counted from one.
    pub line: usize,
    /// The place within the line, or within the document, as a JSON path.
    pub path: String,
    /// Description of the violation.
    pub message: String,
}

/// The result of checking a recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ConformanceReport {
    /// The format.
    pub format: TraceFormat,
    /// Whether no invariant is violated.
    pub conforms: bool,
    /// The first violation.
    pub violation: Option<Violation>,
    /// Number of model replies up to the violation.
    pub replies: usize,
    /// Number of tool calls.
    pub calls: usize,
    /// Number of results.
    pub results: usize,
    /// Number of calls without a result that were cut off: at the end, or before the next message of the user.
    pub cut_off_calls: usize,
    /// Number of compactions.
    pub compactions: usize,
}

/// A part of a recording, with its line.
#[derive(Debug)]
struct TraceEntry {
    line: usize,
    parent: ParentEntry,
    items: Vec<TraceItem>,
}

/// The parent of an entry in its conversation.
#[derive(Clone, Copy, Debug)]
enum ParentEntry {
    /// The previous entry.
    Previous,
    /// The entry with this index.
    Entry(usize),
    /// No parent: a conversation begins.
    Root,
}

/// An item of an entry. Paths are JSON paths within the line, or within the document.
#[derive(Debug)]
enum TraceItem {
    /// A reply, or a part of one. Parts of a reply have the same id; without an id, each is a separate reply.
    Reply { id: Option<String>, path: String },
    /// A call of the newest reply.
    Call { id: String, path: String, needs_result: bool },
    /// A result. Without `call`, it answers the oldest call that has no result.
    Result { call: Option<String>, path: String },
    /// A result whose call may precede the beginning of the recording.
    EarlierResult { call: String, path: String },
    /// A message of the user, or the beginning of a turn. Earlier calls without a result were cut off.
    User,
    /// A compaction, which replaces the earlier messages.
    Compaction,
    /// The end of a run.
    End,
    /// A retry of a model call, and the program's limit of attempts, if stated.
    Retry { attempt: u64, most: Option<u64>, path: String },
    /// A value with a stated limit. `allowed` is the limit with a margin.
    Limit { value: u64, stated: u64, allowed: u64, what: &'static str, path: String },
    /// A violation found by the reader.
    Violated { invariant: Invariant, path: String, message: String },
}

/// The rule for a call that has no result when the user's next message comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CutOffRule {
    Allowed,
    /// The call violates an invariant: the recording is a request as sent, and a provider would reject it.
    Violates,
}

impl ConformanceReport {
    /// Returns the number of replies, calls, results and violations found in this format: zero for another format.
    pub fn parts(&self) -> usize {
        self.replies + self.calls + self.results + usize::from(self.violation.is_some())
    }
}

/// Checks a recording; `None` if it contains nothing of this format.
pub fn check(format: TraceFormat, text: &str) -> Option<ConformanceReport> {
    let document = Document::parse(text);
    let conversations = match format {
        TraceFormat::Claude => vec![claude::read(&document.lines)?],
        TraceFormat::Codex => vec![codex::read(&document.lines)?],
        TraceFormat::Pi => vec![pi::read(&document.lines)?],
        TraceFormat::Goose => vec![goose::read(&document)?],
        TraceFormat::Atif => atif::read(&document)?,
        TraceFormat::OpenAi => openai::read(&document)?,
    };
    let rule = match format {
        TraceFormat::OpenAi => CutOffRule::Violates,
        _ => CutOffRule::Allowed,
    };
    let mut report = ConformanceReport {
        format,
        conforms: true,
        violation: None,
        replies: 0,
        calls: 0,
        results: 0,
        cut_off_calls: 0,
        compactions: 0,
    };
    for entries in &conversations {
        let violation = InvariantChecker::new(entries, rule, &mut report).check();
        if let Some(mut violation) = violation {
            if document.value().is_some() {
                violation.line = document::line_of(text, &violation.path);
            }
            report.conforms = false;
            report.violation = Some(violation);
            break;
        }
    }
    Some(report)
}

/// Returns the entry for a line that is not JSON. The last line may be incomplete.
fn damaged_entry(line: &RecordingLine) -> TraceEntry {
    let message = match line.is_joined {
        true => "the line has several records: a line end is missing",
        false => "the line is not JSON, and others follow it",
    };
    let violated = TraceItem::Violated {
        invariant: Invariant::DamagedLine,
        path: "$".to_owned(),
        message: message.to_owned(),
    };
    let items = if line.is_last && !line.is_joined { Vec::new() } else { vec![violated] };
    TraceEntry { line: line.number, parent: ParentEntry::Previous, items }
}

/// Returns the string at a key of an object.
fn text_of<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.get(key)?.as_str()
}

/// Returns the elements of the array at a key of an object, with their indexes.
fn elements<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = (usize, &'a Value)> {
    value.get(key).and_then(Value::as_array).into_iter().flatten().enumerate()
}

#[cfg(test)]
mod tests;
