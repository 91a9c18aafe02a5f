//! The index's data about a journal.
//!
//! The last record of a run contains its totals. For a session that has ended, the list entry follows from that record
//! and the header. The records in between are not parsed, only verified by checksum, which takes a fraction of the time
//! of a replay and still detects a changed byte. All other data needs a replay.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::measures::{CalledModel, Measures};
use super::rows::{CallRow, FileRow, MessageRole, MessageRow, SessionDetail, SessionRow};
use crate::journal::{
    JournalEndKind, JournalError, ListedSession, ParentCall, ReadOnlyReason, ReadRecord,
    ReplayedRecord, SessionHeader, SessionHistory, SessionStore, StoredContent, StoredRecord,
};
use crate::machine::{
    Authorization, BudgetUsage, CallPurpose, CheckResult, Event, EventKind, PricedUsage, StateKind,
    StopReason,
};
use crate::port::rejection;
use crate::types::{
    ConversationItem, FilePath, MessageOrigin, MicroUsd, Reply, Tokens, ToolResult, Usage,
    UserMessage,
};

/// The index's data about a session.
pub(super) struct SessionContents {
    /// The list entry, and the content if the journal was replayed.
    pub(super) detail: SessionDetail,
    /// Whether the journal was replayed.
    pub(super) is_whole: bool,
    /// The session that dispatched it, if any.
    pub(super) dispatched_by: Option<ParentCall>,
    /// The last record that was copied from another session. The calls up to it were charged there.
    pub(super) copied_up_to: Option<u64>,
    /// The measures of the records after that, if the journal was replayed.
    pub(super) measures: Measures,
}

impl SessionContents {
    fn new(header: Option<&SessionHeader>, detail: SessionDetail, is_whole: bool) -> Self {
        let dispatched_by = header.and_then(|header| header.dispatched_by.clone());
        let ancestry = header.and_then(|header| header.ancestry);
        let copied_up_to = ancestry.map(|ancestry| ancestry.seq);
        Self { detail, is_whole, dispatched_by, copied_up_to, measures: Measures::default() }
    }

    /// Reads the list entry of a session from its header and its last record.
    ///
    /// Returns `None` if the session needs a replay: the newest run has not ended, the journal is damaged or can't be
    /// read, a sub-agent may have made model calls, which the last record doesn't count, or the session was imported,
    /// so that its last record is not trusted.
    pub(super) fn skim(store: &SessionStore, listed: &ListedSession) -> Option<Self> {
        let mut reader = store.reader(listed.session).ok()?;
        let Err(ReadRecord::Record(first)) = reader.skim().ok()? else { return None };
        let StoredContent::Header(header) = first.content else { return None };
        let is_foreign = header.session != listed.session || header.imported_up_to.is_some();
        if is_foreign || header.newer_format().is_some() {
            return None;
        }
        let (mut setup, mut price, mut ended) = (None, header.rules.price, None);
        loop {
            let event = match reader.skim().ok()? {
                Ok(event) => event,
                Err(ReadRecord::Record(stored)) => match stored.content {
                    StoredContent::Event(event) => event.kind(),
                    StoredContent::Resumed(resumed) => {
                        setup = resumed.setup.or(setup);
                        (price, ended) = (resumed.resumption.rules.price, None);
                        continue;
                    }
                    StoredContent::Ended(last) => {
                        ended = Some(last);
                        continue;
                    }
                    _ => continue,
                },
                Err(ReadRecord::End) => break,
                Err(ReadRecord::Unknown(_) | ReadRecord::Damage(_)) => return None,
            };
            if event == EventKind::UsageReported {
                return None;
            }
            ended = None;
        }
        let ended = ended?;
        let entry =
            SessionRow::new(listed, &header, setup.as_ref().unwrap_or(&header.setup), Some(&ended));
        let entry = SessionRow {
            steps: ended.steps,
            llm_calls: ended.model_calls,
            tokens: Tokens(ended.tokens),
            cost: price.map(|_| MicroUsd(ended.cost)),
            records: reader.position().seq,
            ..entry
        };
        Some(Self::new(Some(&header), entry.into(), false))
    }

    /// Replays a journal. An unreadable journal is listed with its problem; `None` if it is missing.
    pub(super) fn replay(store: &SessionStore, listed: &ListedSession) -> Option<Self> {
        let mut collector = DetailCollector::default();
        let replayed = store.replay(listed.session, |history, stored, replayed| {
            collector.add_record(history, stored, replayed);
        });
        let (history, end) = match replayed {
            Ok(replayed) => replayed,
            Err(JournalError::UnknownSession(_)) => return None,
            Err(error) => {
                let entry = SessionRow::unreadable(listed, error.to_string());
                return Some(Self::new(None, entry.into(), true));
            }
        };
        let damage = end.damage();
        let problem = match &end.kind {
            JournalEndKind::ReadOnly(reason) => Some(reason),
            JournalEndKind::Whole | JournalEndKind::Torn(_) => damage.as_ref(),
        };
        let run = history.machine.state.run();
        let (header, setup) = (&history.header, &history.setup);
        let entry = SessionRow {
            steps: run.steps,
            llm_calls: run.model_calls + history.costs.subagent_calls,
            tokens: run.used.tokens,
            cost: run.rules.price.map(|_| run.used.cost),
            records: end.position.seq,
            problem: problem.map(ReadOnlyReason::to_string),
            damaged: damage.is_some(),
            ..SessionRow::new(listed, header, setup, history.ended.as_ref())
        };
        collector.add_end(&history, end.position.seq);
        let error = history.ended.as_ref().and_then(|_| {
            let outcome = history.machine.state.outcome()?;
            let rejection = collector.rejection.take();
            let is_rejected =
                matches!(outcome.reason, StopReason::SchemaNotMet | StopReason::ChecksFailed);
            let error = outcome.error.as_deref().map(str::to_owned);
            error.or(rejection.filter(|_| is_rejected))
        });
        let DetailCollector { messages, calls, files, measures, .. } = collector;
        let files = files.into_values().collect();
        let detail = SessionDetail { session: entry, error, messages, calls, files };
        Some(Self { measures, ..Self::new(Some(header), detail, true) })
    }
}

/// A collector of a session's content, record by record.
#[derive(Default)]
struct DetailCollector {
    messages: Vec<MessageRow>,
    calls: Vec<CallRow>,
    files: BTreeMap<FilePath, FileRow>,
    /// The record and its time.
    seq: u64,
    ts: String,
    /// The names of the called tools.
    tool_names: HashMap<String, Arc<str>>,
    /// The usage of the calls so far.
    counted: BudgetUsage,
    /// The reason why the last check rejected the answer, if it did.
    rejection: Option<String>,
    measures: Measures,
}

impl DetailCollector {
    /// Adds the next record, which `history` already contains.
    fn add_record(
        &mut self,
        history: &SessionHistory,
        stored: &StoredRecord,
        replayed: &ReplayedRecord,
    ) {
        self.add_header(&history.header);
        (self.seq, self.ts) = (stored.seq, history.epoch.plus(stored.at).to_string());
        // Taken before the record is added, because the record may begin the next call.
        let called = self.measures.last_call.clone();
        self.measures.add_record(history, stored, replayed, &self.ts);
        match &stored.content {
            StoredContent::Event(event) => {
                self.add_event(history, replayed, event, called.as_ref());
            }
            StoredContent::Partial(partial) => {
                self.add_message(MessageRole::Partial, None, &partial.text);
            }
            StoredContent::Resumed(resumed) => {
                let found = &resumed.resumption.recovered;
                found.iter().for_each(|found| self.add_result(&found.result));
                self.add_unanswered_call(history, called.as_ref());
            }
            StoredContent::Header(_)
            | StoredContent::Checkpoint(_)
            | StoredContent::Ended(_)
            | StoredContent::Other => {}
        }
    }

    /// Adds the end of the journal: the calls that the last process lost.
    fn add_end(&mut self, history: &SessionHistory, seq: u64) {
        self.add_header(&history.header);
        (self.seq, self.ts) = (seq, history.epoch.plus(history.at).to_string());
        let called = self.measures.last_call.clone();
        self.add_unanswered_call(history, called.as_ref());
    }

    /// Adds the messages before the first event.
    fn add_header(&mut self, header: &SessionHeader) {
        if !self.messages.is_empty() {
            return;
        }
        self.ts = header.created.to_string();
        for item in header.history.iter().chain([&header.task]) {
            match item {
                ConversationItem::User(message) => self.add_user_message(message),
                ConversationItem::Assistant(reply) => {
                    self.add_reply(reply, MessageRole::Assistant);
                }
                ConversationItem::Exchange(exchange) => {
                    self.add_reply(exchange.reply(), MessageRole::Assistant);
                    exchange.results().iter().for_each(|result| self.add_result(result));
                }
            }
        }
    }

    fn add_event(
        &mut self,
        history: &SessionHistory,
        replayed: &ReplayedRecord,
        event: &Event,
        called: Option<&CalledModel>,
    ) {
        match event {
            Event::Prepared { messages, .. } => {
                messages.iter().for_each(|message| self.add_user_message(message));
            }
            Event::Replied { reply, .. } => {
                let role = match replayed.fingerprint.state {
                    StateKind::CompactingSending => MessageRole::Summary,
                    _ => MessageRole::Assistant,
                };
                self.add_reply(reply, role);
                self.add_call(history, called, &reply.usage);
                let is_step = called.is_none_or(|called| called.purpose == CallPurpose::Agent)
                    && reply.calls().next().is_some();
                if let Some(call) = self.calls.last_mut() {
                    call.step = is_step.then_some(history.machine.state.run().steps);
                    if let Some((attempt, micros)) = self.measures.last_reply {
                        (call.attempt, call.micros) = (attempt, Some(micros));
                    }
                }
            }
            Event::ToolCompleted { result, .. }
            | Event::Authorized { authorization: Authorization::Rejected { result }, .. } => {
                self.add_result(result);
            }
            Event::Checked { result: check, .. } => {
                self.rejection = rejection(check);
                match check {
                    CheckResult::Passed => {}
                    CheckResult::SentBack { message }
                    | CheckResult::SchemaViolation { message } => {
                        self.add_message(MessageRole::User, Some("check"), message);
                    }
                    CheckResult::FollowUp { message } => {
                        self.add_message(MessageRole::User, Some("follow_up"), message);
                    }
                }
            }
            // The journal of the sub-agent contains its calls.
            Event::UsageReported { .. } => self.counted = history.machine.state.run().used,
            _ => self.add_unanswered_call(history, called),
        }
    }

    fn add_user_message(&mut self, message: &UserMessage) {
        let (role, name) = match message.origin {
            MessageOrigin::Task => (MessageRole::User, "task"),
            MessageOrigin::Steering => (MessageRole::User, "steering"),
            MessageOrigin::FollowUp => (MessageRole::User, "follow_up"),
            MessageOrigin::System => (MessageRole::User, "system"),
            MessageOrigin::Check => (MessageRole::User, "check"),
            MessageOrigin::Summary => (MessageRole::Summary, "summary"),
        };
        self.add_message(role, Some(name), &message.text);
    }

    fn add_reply(&mut self, reply: &Reply, role: MessageRole) {
        if reply.has_text() {
            self.add_message(role, None, &reply.text());
        }
        for call in reply.calls() {
            self.tool_names.insert(call.id.to_string(), Arc::clone(&call.name));
            self.add_message(MessageRole::ToolCall, Some(&call.name), call.arguments.text());
        }
    }

    fn add_result(&mut self, result: &ToolResult) {
        let name = self.tool_names.get(result.call.as_str()).cloned();
        self.add_message(MessageRole::ToolResult, name.as_deref(), &result.text);
        for change in &*result.changes {
            let path = change.path.clone();
            let new = || FileRow { path, action: change.action, added: 0, removed: 0 };
            let file = self.files.entry(change.path.clone()).or_insert_with(new);
            file.action = change.action;
            file.added += change.added;
            file.removed += change.removed;
        }
    }

    /// Adds a model call. Its cost is the amount that was spent since the previous call.
    fn add_call(&mut self, history: &SessionHistory, called: Option<&CalledModel>, usage: &Usage) {
        let run = history.machine.state.run();
        let cost = run.used.cost.saturating_sub(self.counted.cost);
        self.counted = run.used;
        let model = called.and_then(|called| called.model.as_ref());
        let purpose = called.map_or(CallPurpose::Agent, |called| called.purpose);
        self.calls.push(CallRow {
            seq: self.seq,
            ts: self.ts.clone(),
            model: model.unwrap_or(&history.setup.model).to_string(),
            purpose: purpose.to_string(),
            input_tokens: usage.input,
            output_tokens: usage.output,
            cached_input_tokens: usage.cached_input,
            cost: run.rules.price.map(|_| cost),
            attempt: 1,
            step: None,
            micros: None,
        });
    }

    /// Adds a call without a reply, if one was charged since the last call. Its usage is the charged estimate.
    fn add_unanswered_call(&mut self, history: &SessionHistory, called: Option<&CalledModel>) {
        let run = history.machine.state.run();
        if run.used != self.counted {
            let charged = PricedUsage::between(self.counted, run, None);
            self.add_call(history, called, &charged.usage);
        }
    }

    fn add_message(&mut self, role: MessageRole, name: Option<&str>, text: &str) {
        self.messages.push(MessageRow {
            seq: self.seq,
            ts: self.ts.clone(),
            role,
            name: name.map(str::to_owned),
            text: text.to_owned(),
        });
    }
}
