//! One journal, record by record, as the rows of the tables.

use std::collections::HashMap;
use std::sync::Arc;

use rusqlite::types::Value;
use rusqlite::{Transaction, params_from_iter};

use super::answers::Role;
use crate::journal::{
    Content, End, EndKind, Ended, Header, Past, ReadOnly, Replayed, Setting, Stored, Wall,
};
use crate::machine::{Check, Event, StateKind, Verdict};
use crate::model::{
    CallId, FileAction, FileChange, Item, Micros, Origin, Reply, ToolResult, UserMessage,
};

/// What a list shows of a session.
pub(super) struct Summary<'a> {
    pub(super) header: &'a Header,
    /// What it works with by now.
    pub(super) setting: &'a Setting,
    /// How its newest run ended; none while that has not ended.
    pub(super) ended: Option<&'a Ended>,
    pub(super) steps: u32,
    /// Model calls, those of sub-agents included.
    pub(super) calls: u32,
    pub(super) tokens: u64,
    /// None when the model has no price.
    pub(super) cost: Option<u64>,
    /// Records of its valid prefix.
    pub(super) records: u64,
    /// What is wrong with the journal.
    pub(super) problem: Option<String>,
    /// Whether records are missing here because of that.
    pub(super) is_damaged: bool,
}

/// The rows of one session, while its journal is read. They are collected first, so that journals can be read at the same
/// time, and written by one thread.
#[derive(Default)]
pub(super) struct Entry {
    rows: Vec<Row>,
    /// The names of the tools that were called.
    names: HashMap<CallId, Arc<str>>,
    /// What the calls so far have cost.
    spent: Micros,
    /// Whether the header was written.
    begun: bool,
}

/// A statement, and its values from the second one on; the first is the key of the session.
pub(super) type Row = (&'static str, Vec<Value>);

/// Writes the rows of a session.
pub(super) fn write(change: &Transaction<'_>, key: i64, rows: Vec<Row>) -> rusqlite::Result<()> {
    for (sql, values) in rows {
        let values = std::iter::once(Value::Integer(key)).chain(values);
        change.prepare_cached(sql)?.execute(params_from_iter(values))?;
    }
    Ok(())
}

/// Returns a number as the database has it, which has no larger ones.
fn number(number: u64) -> Value {
    Value::Integer(i64::try_from(number).unwrap_or(i64::MAX))
}

fn text(text: impl Into<String>) -> Value {
    Value::Text(text.into())
}

fn maybe(text: Option<impl Into<String>>) -> Value {
    text.map_or(Value::Null, |text| Value::Text(text.into()))
}

/// Where a row belongs: its record, and the time of day.
#[derive(Clone, Copy)]
struct At {
    seq: u64,
    ts: Wall,
}

/// The longest first line of a task that is kept, in characters.
const LONGEST_PROMPT: usize = 200;

impl Entry {
    /// Takes the next record; `past` has it already.
    pub(super) fn record(&mut self, past: &Past, stored: &Stored, replayed: &Replayed) {
        self.begin(past);
        self.rows(past, stored, replayed);
    }

    /// Returns the rows, with what the whole amounts to.
    pub(super) fn finish(mut self, past: &Past, end: &End) -> Vec<Row> {
        self.begin(past);
        let run = past.fold.state.run();
        self.lost(past, end);
        let damage = end.damage();
        let problem = match &end.kind {
            EndKind::ReadOnly(why) => Some(why.to_string()),
            EndKind::Whole | EndKind::Torn(_) => damage.as_ref().map(ReadOnly::to_string),
        };
        let summary = Summary {
            header: &past.header,
            setting: &past.setting,
            ended: past.ended.as_ref(),
            steps: run.steps,
            calls: run.calls + past.bill.subagent_calls,
            tokens: run.spent.tokens.0,
            cost: is_priced(past).then_some(run.spent.cost.0),
            records: end.position.seq,
            problem,
            is_damaged: damage.is_some(),
        };
        self.rows.push(summary.row());
        self.rows
    }

    /// Writes what the session was begun with: messages before its first event.
    fn begin(&mut self, past: &Past) {
        if self.begun {
            return;
        }
        self.begun = true;
        let at = At { seq: 0, ts: past.header.created };
        for item in past.header.history.iter().chain([&past.header.task]) {
            match item {
                Item::User(message) => self.told(at, message),
                Item::Assistant(reply) => self.said(at, reply, Role::Assistant),
                Item::Exchange(exchange) => {
                    self.said(at, exchange.reply(), Role::Assistant);
                    for result in exchange.results() {
                        self.answered(at, result);
                    }
                }
            }
        }
    }

    fn rows(&mut self, past: &Past, stored: &Stored, replayed: &Replayed) {
        let at = At { seq: stored.seq, ts: past.dawn.after(stored.at) };
        let state = replayed.met.state;
        let sql = "INSERT INTO events (session, seq, at, ts, state, event) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
        let values = vec![
            number(at.seq),
            number(stored.at.0),
            text(at.ts.to_string()),
            text(state.name()),
            text(stored.content.name()),
        ];
        self.rows.push((sql, values));
        match &stored.content {
            Content::Event(event) => self.event(past, at, state, event),
            Content::Partial(partial) => self.message(at, Role::Partial, None, &partial.text),
            Content::Resumed(resumed) => {
                let found = &resumed.resumption.found;
                found.iter().for_each(|found| self.answered(at, &found.result));
            }
            Content::Header(_) | Content::Ended(_) | Content::Other => {}
        }
    }

    fn event(&mut self, past: &Past, at: At, state: StateKind, event: &Event) {
        match event {
            Event::Prepared { messages, .. } => {
                messages.iter().for_each(|message| self.told(at, message));
            }
            Event::Replied { reply, .. } => {
                let (purpose, role) = match state {
                    StateKind::CompactingSending => ("compaction", Role::Summary),
                    StateKind::ClosingSending => ("closing", Role::Assistant),
                    _ => ("agent", Role::Assistant),
                };
                self.said(at, reply, role);
                self.paid(past, at, purpose, reply);
            }
            Event::Settled { result, .. }
            | Event::Vetted { verdict: Verdict::Refused { result }, .. } => {
                self.answered(at, result);
            }
            Event::Checked { check, .. } => match check {
                Check::Passed => {}
                Check::SentBack { message } | Check::Unfit { message } => {
                    self.message(at, Role::User, Some(origin(Origin::Check)), message);
                }
                Check::FollowUp { message } => {
                    self.message(at, Role::User, Some(origin(Origin::FollowUp)), message);
                }
            },
            // Its own journal has its calls.
            Event::Charged { cost, .. } => self.spent = self.spent + *cost,
            Event::Vetted { .. }
            | Event::Tick { .. }
            | Event::Interrupt { .. }
            | Event::StoreFailed { .. }
            | Event::Defect { .. }
            | Event::Failed { .. } => {}
        }
    }

    fn told(&mut self, at: At, message: &UserMessage) {
        let role = match message.origin {
            Origin::Summary => Role::Summary,
            _ => Role::User,
        };
        self.message(at, role, Some(origin(message.origin)), &message.text);
    }

    fn said(&mut self, at: At, reply: &Reply, role: Role) {
        if reply.has_text() {
            self.message(at, role, None, &reply.text());
        }
        for call in reply.calls() {
            self.names.insert(call.id.clone(), Arc::clone(&call.name));
            self.message(at, Role::ToolCall, Some(&call.name), call.arguments.text());
        }
    }

    fn answered(&mut self, at: At, result: &ToolResult) {
        let name = self.names.get(&result.call).cloned();
        self.message(at, Role::ToolResult, name.as_deref(), &result.text);
        result.changes.iter().for_each(|change| self.changed(change));
    }

    fn changed(&mut self, change: &FileChange) {
        let sql = "INSERT INTO files (session, path, action, added, removed) VALUES (?1, ?2, ?3, ?4, ?5) \
             ON CONFLICT DO UPDATE SET action = excluded.action, added = added + excluded.added, \
             removed = removed + excluded.removed";
        let FileChange { path, action, added, removed } = change;
        let values =
            vec![text(&**path), text(action_name(*action)), number(*added), number(*removed)];
        self.rows.push((sql, values));
    }

    /// What a reply cost is what has been spent since the one before.
    fn paid(&mut self, past: &Past, at: At, purpose: &str, reply: &Reply) {
        let spent = past.fold.state.run().spent.cost;
        let cost = is_priced(past).then(|| spent.minus(self.spent).0);
        let cost = cost.map_or(Value::Null, number);
        self.spent = spent;
        let sql = "INSERT INTO calls (session, seq, ts, model, purpose, input, output, cached, cost) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
        let usage = &reply.usage;
        let values = vec![
            number(at.seq),
            text(at.ts.to_string()),
            text(&*past.setting.model),
            text(purpose),
            number(usage.input.0),
            number(usage.output.0),
            number(usage.cached_input.0),
            cost,
        ];
        self.rows.push((sql, values));
    }

    /// What was charged for a call that brought no reply, and that no reply came after.
    fn lost(&mut self, past: &Past, end: &End) {
        let cost = past.fold.state.run().spent.cost.minus(self.spent);
        if !is_priced(past) || cost == Micros::ZERO {
            return;
        }
        self.spent = self.spent + cost;
        let sql = "INSERT INTO calls (session, seq, ts, model, purpose, input, output, cached, cost) \
             VALUES (?1, ?2, ?3, ?4, 'agent', 0, 0, 0, ?5)";
        let values = vec![
            number(end.position.seq),
            text(past.dawn.after(past.at).to_string()),
            text(&*past.setting.model),
            number(cost.0),
        ];
        self.rows.push((sql, values));
    }

    fn message(&mut self, at: At, role: Role, name: Option<&str>, said: &str) {
        let sql = "INSERT INTO messages (session, seq, ts, role, name, text) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
        let (seq, ts) = (number(at.seq), text(at.ts.to_string()));
        self.rows.push((sql, vec![seq, ts, text(role.name()), maybe(name), text(said)]));
        let sql = "INSERT INTO words (rowid, text) VALUES (last_insert_rowid(), ?2)";
        self.rows.push((sql, vec![text(said)]));
    }
}

impl Summary<'_> {
    /// Returns the row that has it.
    pub(super) fn row(self) -> Row {
        let Self { header, setting, ended, .. } = self;
        let dispatcher = header.dispatched_by.as_ref().map(|dispatcher| dispatcher.session);
        let parent = header.lineage.map(|lineage| lineage.session).or(dispatcher);
        let serves =
            header.dispatched_by.as_ref().map(|dispatcher| match dispatcher.is_evaluation() {
                true => "eval",
                false => "subagent",
            });
        let sql = "UPDATE sessions SET created = ?2, parent = ?3, parent_seq = ?4, model = ?5, agent = ?6, \
             workspace = ?7, prompt = ?8, status = ?9, reason = ?10, steps = ?11, calls = ?12, tokens = ?13, \
             cost = ?14, records = ?15, problem = ?16, serves = ?17, damaged = ?18 WHERE key = ?1";
        let values = vec![
            text(header.created.to_string()),
            maybe(parent.map(|session| session.to_string())),
            header.lineage.map_or(Value::Null, |lineage| number(lineage.seq)),
            text(&*setting.model),
            text(&*setting.agent),
            text(setting.workspace.root.to_string_lossy()),
            maybe(prompt(&header.task)),
            text(ended.map_or("unfinished", |ended| &ended.status)),
            maybe(ended.map(|ended| &*ended.reason)),
            number(self.steps.into()),
            number(self.calls.into()),
            number(self.tokens),
            self.cost.map_or(Value::Null, number),
            number(self.records),
            maybe(self.problem),
            maybe(serves),
            Value::Integer(self.is_damaged.into()),
        ];
        (sql, values)
    }
}

fn is_priced(past: &Past) -> bool {
    past.fold.state.run().rules.price.is_some()
}

/// Returns the first line of a task that says something.
fn prompt(task: &Item) -> Option<String> {
    let Item::User(message) = task else { return None };
    let line = message.text.lines().map(str::trim).find(|line| !line.is_empty())?;
    Some(line.chars().take(LONGEST_PROMPT).collect())
}

fn origin(origin: Origin) -> &'static str {
    match origin {
        Origin::Task => "task",
        Origin::Steering => "steering",
        Origin::FollowUp => "follow_up",
        Origin::System => "system",
        Origin::Check => "check",
        Origin::Summary => "summary",
    }
}

/// Returns the name under which the database knows an action.
pub(super) fn action_name(action: FileAction) -> &'static str {
    match action {
        FileAction::Created => "created",
        FileAction::Modified => "modified",
        FileAction::Deleted => "deleted",
    }
}
