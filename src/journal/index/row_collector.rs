//! Turns a journal into table rows, record by record.

use std::collections::HashMap;
use std::sync::Arc;

use rusqlite::types::Value;
use rusqlite::{Transaction, params_from_iter};

use super::rows::MessageRole;
use crate::journal::{
    EndedRecord, JournalEnd, JournalEndKind, ReadOnlyReason, ReplayedRecord, SessionHeader,
    SessionHistory, SessionSetup, StoredContent, StoredRecord, WallTime,
};
use crate::machine::{Authorization, CheckResult, Event, StateKind};
use crate::model::{
    CallId, ConversationItem, FileAction, FileChange, MessageOrigin, MicroUsd, Reply, ToolResult,
    UserMessage,
};

/// The list entry of a session.
pub(super) struct Summary<'a> {
    pub(super) header: &'a SessionHeader,
    /// Its present setup.
    pub(super) setup: &'a SessionSetup,
    /// How its newest run ended; `None` if it has not ended.
    pub(super) ended: Option<&'a EndedRecord>,
    pub(super) steps: u32,
    /// Model calls, including those of sub-agents.
    pub(super) calls: u32,
    pub(super) tokens: u64,
    /// `None` if the model has no price.
    pub(super) cost: Option<u64>,
    /// Records of the valid prefix.
    pub(super) records: u64,
    /// The damage of the journal, if any.
    pub(super) problem: Option<String>,
    /// Whether records are missing because of that.
    pub(super) is_damaged: bool,
}

/// The rows of one session. They are collected first, so that journals can be read in parallel and written by one
/// thread.
#[derive(Default)]
pub(super) struct RowCollector {
    rows: Vec<StatementRow>,
    /// The names of the called tools.
    tool_names: HashMap<CallId, Arc<str>>,
    /// The cost of the calls so far.
    cost_so_far: MicroUsd,
    /// Whether the header was written.
    has_header: bool,
}

/// A statement and its values after the first, which is the key of the session.
pub(super) type StatementRow = (&'static str, Vec<Value>);

/// Writes the rows of a session.
pub(super) fn write_rows(
    change: &Transaction<'_>,
    key: i64,
    rows: Vec<StatementRow>,
) -> rusqlite::Result<()> {
    for (sql, values) in rows {
        let values = std::iter::once(Value::Integer(key)).chain(values);
        change.prepare_cached(sql)?.execute(params_from_iter(values))?;
    }
    Ok(())
}

/// Returns a number as the database's signed 64-bit integer.
fn sql_number(number: u64) -> Value {
    Value::Integer(i64::try_from(number).unwrap_or(i64::MAX))
}

fn sql_text(text: impl Into<String>) -> Value {
    Value::Text(text.into())
}

fn sql_optional_text(text: Option<impl Into<String>>) -> Value {
    text.map_or(Value::Null, |text| Value::Text(text.into()))
}

/// The position of a row: its record and time.
#[derive(Clone, Copy)]
struct RowPosition {
    seq: u64,
    ts: WallTime,
}

/// The maximum length of a task's title, in characters.
const MAX_PROMPT_CHARS: usize = 200;

impl RowCollector {
    /// Adds the next record, which `history` already contains.
    pub(super) fn add_record(
        &mut self,
        history: &SessionHistory,
        stored: &StoredRecord,
        replayed: &ReplayedRecord,
    ) {
        self.add_header(history);
        self.rows(history, stored, replayed);
    }

    /// Returns all rows, with the totals.
    pub(super) fn finish(
        mut self,
        history: &SessionHistory,
        end: &JournalEnd,
    ) -> Vec<StatementRow> {
        self.add_header(history);
        let run = history.machine.state.run();
        self.add_unanswered_cost(history, end);
        let damage = end.damage();
        let problem = match &end.kind {
            JournalEndKind::ReadOnly(reason) => Some(reason.to_string()),
            JournalEndKind::Whole | JournalEndKind::Torn(_) => {
                damage.as_ref().map(ReadOnlyReason::to_string)
            }
        };
        let summary = Summary {
            header: &history.header,
            setup: &history.setup,
            ended: history.ended.as_ref(),
            steps: run.steps,
            calls: run.model_calls + history.costs.subagent_calls,
            tokens: run.used.tokens.0,
            cost: is_priced(history).then_some(run.used.cost.0),
            records: end.position.seq,
            problem,
            is_damaged: damage.is_some(),
        };
        self.rows.push(summary.row());
        self.rows
    }

    /// Adds the rows of the header: the messages before the first event.
    fn add_header(&mut self, history: &SessionHistory) {
        if self.has_header {
            return;
        }
        self.has_header = true;
        let at = RowPosition { seq: 0, ts: history.header.created };
        for item in history.header.history.iter().chain([&history.header.task]) {
            match item {
                ConversationItem::User(message) => self.add_user_message(at, message),
                ConversationItem::Assistant(reply) => {
                    self.add_reply(at, reply, MessageRole::Assistant);
                }
                ConversationItem::Exchange(exchange) => {
                    self.add_reply(at, exchange.reply(), MessageRole::Assistant);
                    for result in exchange.results() {
                        self.add_result(at, result);
                    }
                }
            }
        }
    }

    fn rows(&mut self, history: &SessionHistory, stored: &StoredRecord, replayed: &ReplayedRecord) {
        let at = RowPosition { seq: stored.seq, ts: history.epoch.plus(stored.at) };
        let state = replayed.fingerprint.state;
        let sql = "INSERT INTO events (session, seq, at, ts, state, event) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
        let values = vec![
            sql_number(at.seq),
            sql_number(stored.at.0),
            sql_text(at.ts.to_string()),
            sql_text(state.as_str()),
            sql_text(stored.content.name()),
        ];
        self.rows.push((sql, values));
        match &stored.content {
            StoredContent::Event(event) => self.add_event(history, at, state, event),
            StoredContent::Partial(partial) => {
                self.add_message(at, MessageRole::Partial, None, &partial.text);
            }
            StoredContent::Resumed(resumed) => {
                let found = &resumed.resumption.recovered;
                found.iter().for_each(|found| self.add_result(at, &found.result));
            }
            StoredContent::Header(_) | StoredContent::Ended(_) | StoredContent::Other => {}
        }
    }

    fn add_event(
        &mut self,
        history: &SessionHistory,
        at: RowPosition,
        state: StateKind,
        event: &Event,
    ) {
        match event {
            Event::Prepared { messages, .. } => {
                messages.iter().for_each(|message| self.add_user_message(at, message));
            }
            Event::Replied { reply, .. } => {
                let (purpose, role) = match state {
                    StateKind::CompactingSending => ("compaction", MessageRole::Summary),
                    StateKind::ClosingSending => ("closing", MessageRole::Assistant),
                    _ => ("agent", MessageRole::Assistant),
                };
                self.add_reply(at, reply, role);
                self.add_model_call(history, at, purpose, reply);
            }
            Event::ToolCompleted { result, .. }
            | Event::Authorized { authorization: Authorization::Rejected { result }, .. } => {
                self.add_result(at, result);
            }
            Event::Checked { result: check, .. } => match check {
                CheckResult::Passed => {}
                CheckResult::SentBack { message } | CheckResult::SchemaViolation { message } => {
                    self.add_message(
                        at,
                        MessageRole::User,
                        Some(origin_name(MessageOrigin::Check)),
                        message,
                    );
                }
                CheckResult::FollowUp { message } => {
                    self.add_message(
                        at,
                        MessageRole::User,
                        Some(origin_name(MessageOrigin::FollowUp)),
                        message,
                    );
                }
            },
            // Its own journal contains its calls.
            Event::UsageReported { cost, .. } => self.cost_so_far = self.cost_so_far + *cost,
            Event::Authorized { .. }
            | Event::Tick { .. }
            | Event::Interrupt { .. }
            | Event::StoreFailed { .. }
            | Event::InternalError { .. }
            | Event::CallFailed { .. } => {}
        }
    }

    fn add_user_message(&mut self, at: RowPosition, message: &UserMessage) {
        let role = match message.origin {
            MessageOrigin::Summary => MessageRole::Summary,
            _ => MessageRole::User,
        };
        self.add_message(at, role, Some(origin_name(message.origin)), &message.text);
    }

    fn add_reply(&mut self, at: RowPosition, reply: &Reply, role: MessageRole) {
        if reply.has_text() {
            self.add_message(at, role, None, &reply.text());
        }
        for call in reply.calls() {
            self.tool_names.insert(call.id.clone(), Arc::clone(&call.name));
            self.add_message(at, MessageRole::ToolCall, Some(&call.name), call.arguments.text());
        }
    }

    fn add_result(&mut self, at: RowPosition, result: &ToolResult) {
        let name = self.tool_names.get(&result.call).cloned();
        self.add_message(at, MessageRole::ToolResult, name.as_deref(), &result.text);
        result.changes.iter().for_each(|change| self.add_file_change(change));
    }

    fn add_file_change(&mut self, change: &FileChange) {
        let sql = "INSERT INTO files (session, path, action, added, removed) VALUES (?1, ?2, ?3, ?4, ?5) \
             ON CONFLICT DO UPDATE SET action = excluded.action, added = added + excluded.added, \
             removed = removed + excluded.removed";
        let FileChange { path, action, added, removed } = change;
        let values = vec![
            sql_text(&**path),
            sql_text(action_name(*action)),
            sql_number(*added),
            sql_number(*removed),
        ];
        self.rows.push((sql, values));
    }

    /// The cost of a reply is what was spent since the one before.
    fn add_model_call(
        &mut self,
        history: &SessionHistory,
        at: RowPosition,
        purpose: &str,
        reply: &Reply,
    ) {
        let spent = history.machine.state.run().used.cost;
        let cost = is_priced(history).then(|| spent.saturating_sub(self.cost_so_far).0);
        let cost = cost.map_or(Value::Null, sql_number);
        self.cost_so_far = spent;
        let sql = "INSERT INTO calls (session, seq, ts, model, purpose, input, output, cached, cost) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
        let usage = &reply.usage;
        let values = vec![
            sql_number(at.seq),
            sql_text(at.ts.to_string()),
            sql_text(&*history.setup.model),
            sql_text(purpose),
            sql_number(usage.input.0),
            sql_number(usage.output.0),
            sql_number(usage.cached_input.0),
            cost,
        ];
        self.rows.push((sql, values));
    }

    /// Adds what was charged for calls without a reply after the last reply.
    fn add_unanswered_cost(&mut self, history: &SessionHistory, end: &JournalEnd) {
        let cost = history.machine.state.run().used.cost.saturating_sub(self.cost_so_far);
        if !is_priced(history) || cost == MicroUsd::ZERO {
            return;
        }
        self.cost_so_far = self.cost_so_far + cost;
        let sql = "INSERT INTO calls (session, seq, ts, model, purpose, input, output, cached, cost) \
             VALUES (?1, ?2, ?3, ?4, 'agent', 0, 0, 0, ?5)";
        let values = vec![
            sql_number(end.position.seq),
            sql_text(history.epoch.plus(history.at).to_string()),
            sql_text(&*history.setup.model),
            sql_number(cost.0),
        ];
        self.rows.push((sql, values));
    }

    fn add_message(&mut self, at: RowPosition, role: MessageRole, name: Option<&str>, text: &str) {
        let sql = "INSERT INTO messages (session, seq, ts, role, name, text) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
        let (seq, ts) = (sql_number(at.seq), sql_text(at.ts.to_string()));
        self.rows.push((
            sql,
            vec![seq, ts, sql_text(role.as_str()), sql_optional_text(name), sql_text(text)],
        ));
        let sql = "INSERT INTO words (rowid, text) VALUES (last_insert_rowid(), ?2)";
        self.rows.push((sql, vec![sql_text(text)]));
    }
}

impl Summary<'_> {
    /// Returns the row.
    pub(super) fn row(self) -> StatementRow {
        let Self { header, setup, ended, .. } = self;
        let dispatcher = header.dispatched_by.as_ref().map(|dispatcher| dispatcher.session);
        let parent = header.ancestry.map(|ancestry| ancestry.session).or(dispatcher);
        let serves =
            header.dispatched_by.as_ref().map(|dispatcher| match dispatcher.is_evaluation() {
                true => "eval",
                false => "subagent",
            });
        let sql = "UPDATE sessions SET created = ?2, parent = ?3, parent_seq = ?4, model = ?5, agent = ?6, \
             workspace = ?7, prompt = ?8, status = ?9, reason = ?10, steps = ?11, calls = ?12, tokens = ?13, \
             cost = ?14, records = ?15, problem = ?16, serves = ?17, damaged = ?18 WHERE key = ?1";
        let values = vec![
            sql_text(header.created.to_string()),
            sql_optional_text(parent.map(|session| session.to_string())),
            header.ancestry.map_or(Value::Null, |ancestry| sql_number(ancestry.seq)),
            sql_text(&*setup.model),
            sql_text(&*setup.agent),
            sql_text(setup.workspace.root.to_string_lossy()),
            sql_optional_text(first_task_line(&header.task)),
            sql_text(ended.map_or("unfinished", |ended| &ended.status)),
            sql_optional_text(ended.map(|ended| &*ended.reason)),
            sql_number(self.steps.into()),
            sql_number(self.calls.into()),
            sql_number(self.tokens),
            self.cost.map_or(Value::Null, sql_number),
            sql_number(self.records),
            sql_optional_text(self.problem),
            sql_optional_text(serves),
            Value::Integer(self.is_damaged.into()),
        ];
        (sql, values)
    }
}

fn is_priced(history: &SessionHistory) -> bool {
    history.machine.state.run().rules.price.is_some()
}

/// Returns the first line of a task that is not blank.
fn first_task_line(task: &ConversationItem) -> Option<String> {
    let ConversationItem::User(message) = task else { return None };
    let line = message.text.lines().map(str::trim).find(|line| !line.is_empty())?;
    Some(line.chars().take(MAX_PROMPT_CHARS).collect())
}

fn origin_name(origin: MessageOrigin) -> &'static str {
    match origin {
        MessageOrigin::Task => "task",
        MessageOrigin::Steering => "steering",
        MessageOrigin::FollowUp => "follow_up",
        MessageOrigin::System => "system",
        MessageOrigin::Check => "check",
        MessageOrigin::Summary => "summary",
    }
}

/// Returns the database's name of an action.
pub(super) fn action_name(action: FileAction) -> &'static str {
    match action {
        FileAction::Created => "created",
        FileAction::Modified => "modified",
        FileAction::Deleted => "deleted",
    }
}
