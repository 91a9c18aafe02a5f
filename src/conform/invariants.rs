//! Checks of the invariants, entry by entry.

use std::collections::{HashMap, HashSet, VecDeque};

use super::{
    ConformanceReport, CutOffRule, Invariant, ParentEntry, TraceEntry, TraceItem, Violation,
};

/// Limit of failed attempts in a row for a recording that states no limit of its own.
const MAX_UNSTATED_RETRIES: u64 = 100;

/// A recorded tool call.
struct RecordedCall<'a> {
    /// The index of the entry that contains the call.
    entry: usize,
    line: usize,
    /// The id of the reply that contains the call.
    reply: Option<&'a str>,
    needs_result: bool,
    /// The line of the result.
    answered: Option<usize>,
    /// Whether the call was cut off.
    is_cut_off: bool,
}

/// Checks the entries of one conversation.
pub(super) struct InvariantChecker<'a> {
    entries: &'a [TraceEntry],
    rule: CutOffRule,
    report: &'a mut ConformanceReport,
    calls: HashMap<&'a str, RecordedCall<'a>>,
    /// The ids of calls, by entry.
    calls_of: Vec<Vec<&'a str>>,
    /// Whether all calls of an entry, and of its ancestors, have a result or were cut off.
    is_settled: Vec<bool>,
    /// The ids of calls, in order. Calls with a result are removed from the front.
    open: VecDeque<&'a str>,
    replies: HashSet<&'a str>,
    newest_reply: Option<&'a str>,
    has_ended: bool,
    failed_attempts: u64,
}

impl<'a> InvariantChecker<'a> {
    pub(super) fn new(
        entries: &'a [TraceEntry],
        rule: CutOffRule,
        report: &'a mut ConformanceReport,
    ) -> Self {
        Self {
            entries,
            rule,
            report,
            calls: HashMap::new(),
            calls_of: entries.iter().map(|_| Vec::new()).collect(),
            is_settled: vec![false; entries.len()],
            open: VecDeque::new(),
            replies: HashSet::new(),
            newest_reply: None,
            has_ended: false,
            failed_attempts: 0,
        }
    }

    /// Returns the first violation, and adds the counts of this conversation to the report.
    pub(super) fn check(mut self) -> Option<Violation> {
        let violation = self.first_violation();
        let is_cut_off = |call: &&RecordedCall<'_>| call.answered.is_none() && call.needs_result;
        self.report.calls += self.calls.len();
        self.report.cut_off_calls += self.calls.values().filter(is_cut_off).count();
        violation
    }

    fn first_violation(&mut self) -> Option<Violation> {
        let entries = self.entries;
        for (index, entry) in entries.iter().enumerate() {
            for item in &entry.items {
                if let Err((invariant, path, message)) = self.check_item(index, entry, item) {
                    return Some(Violation {
                        invariant,
                        line: entry.line,
                        path: path.to_owned(),
                        message,
                    });
                }
            }
        }
        None
    }

    fn check_item(
        &mut self,
        index: usize,
        entry: &'a TraceEntry,
        item: &'a TraceItem,
    ) -> Result<(), (Invariant, &'a str, String)> {
        match item {
            TraceItem::Reply { id, path } => self.check_reply(index, id.as_deref(), path)?,
            TraceItem::Call { id, path, needs_result } => {
                self.check_call(index, entry, id, path, *needs_result)?;
            }
            TraceItem::Result { call, path } => self.check_result(entry, call.as_deref(), path)?,
            TraceItem::EarlierResult { call, path } => {
                if self.calls.contains_key(&**call) {
                    self.check_result(entry, Some(call), path)?;
                } else {
                    self.report.results += 1;
                }
            }
            TraceItem::User => {
                (self.has_ended, self.failed_attempts) = (false, 0);
                if self.rule == CutOffRule::Allowed {
                    self.cut_off(index);
                }
            }
            TraceItem::Compaction => {
                self.report.compactions += 1;
                self.is_settled[index] = true;
                self.open.clear();
            }
            TraceItem::End => self.has_ended = true,
            TraceItem::Retry { attempt, most, path } => {
                self.failed_attempts += 1;
                let (count, most) = match most {
                    Some(most) => (*attempt, *most),
                    None => (self.failed_attempts, MAX_UNSTATED_RETRIES),
                };
                if count > most {
                    let message = format!("attempt {count} of at most {most}");
                    return Err((Invariant::UnboundedRetries, path, message));
                }
            }
            TraceItem::Limit { value, stated, allowed, what, path } => {
                if value > allowed {
                    let message = format!(
                        "{what}: {value}, and the stated limit is {stated} ({allowed} with a margin)"
                    );
                    return Err((Invariant::LimitExceeded, path, message));
                }
            }
            TraceItem::Violated { invariant, path, message } => {
                return Err((*invariant, path, message.clone()));
            }
        }
        Ok(())
    }

    fn parent(&self, index: usize) -> Option<usize> {
        match self.entries[index].parent {
            ParentEntry::Previous => index.checked_sub(1),
            ParentEntry::Entry(parent) => Some(parent).filter(|parent| *parent < index),
            ParentEntry::Root => None,
        }
    }

    /// Returns the ancestors of an entry, up to one whose calls are all settled.
    fn unsettled_ancestors(&self, index: usize) -> Vec<usize> {
        let mut found = Vec::new();
        let mut at = self.parent(index);
        while let Some(entry) = at.filter(|entry| !self.is_settled[*entry]) {
            found.push(entry);
            at = self.parent(entry);
        }
        found
    }

    /// Marks the open calls before a message of the user as cut off.
    fn cut_off(&mut self, index: usize) {
        for entry in self.unsettled_ancestors(index) {
            for id in &self.calls_of[entry] {
                if let Some(call) = self.calls.get_mut(id) {
                    call.is_cut_off = true;
                }
            }
            self.is_settled[entry] = true;
        }
    }

    fn check_reply(
        &mut self,
        index: usize,
        id: Option<&'a str>,
        path: &'a str,
    ) -> Result<(), (Invariant, &'a str, String)> {
        self.newest_reply = id;
        if id.is_some_and(|id| !self.replies.insert(id)) {
            return Ok(());
        }
        self.report.replies += 1;
        self.failed_attempts = 0;
        if self.has_ended {
            let message = "a reply after the end of the run, without a new turn".to_owned();
            return Err((Invariant::ReplyAfterEnd, path, message));
        }
        let ancestors = self.unsettled_ancestors(index);
        for &entry in ancestors.iter().rev() {
            for id in &self.calls_of[entry] {
                let Some(call) = self.calls.get(id) else { continue };
                let is_open = call.needs_result && call.answered.is_none() && !call.is_cut_off;
                if is_open && call.entry == entry {
                    let message =
                        format!("a reply, while the call {id} of line {} has no result", call.line);
                    return Err((Invariant::UnansweredCall, path, message));
                }
            }
        }
        ancestors.into_iter().for_each(|entry| self.is_settled[entry] = true);
        Ok(())
    }

    fn check_call(
        &mut self,
        index: usize,
        entry: &TraceEntry,
        id: &'a str,
        path: &'a str,
        needs_result: bool,
    ) -> Result<(), (Invariant, &'a str, String)> {
        if let Some(before) = self.calls.get(id) {
            if before.reply.is_some() && before.reply == self.newest_reply {
                // The program has written the same part of the reply again.
                return Ok(());
            }
            let message = format!("line {} has a call with the id {id}, too", before.line);
            return Err((Invariant::DuplicateCallId, path, message));
        }
        self.calls.insert(
            id,
            RecordedCall {
                entry: index,
                line: entry.line,
                reply: self.newest_reply,
                needs_result,
                answered: None,
                is_cut_off: false,
            },
        );
        self.calls_of[index].push(id);
        self.open.push_back(id);
        Ok(())
    }

    /// Returns the first call without a result.
    fn first_open(&mut self) -> Option<&'a str> {
        while let Some(&id) = self.open.front() {
            if self.calls.get(id).is_some_and(|call| call.answered.is_none()) {
                return Some(id);
            }
            self.open.pop_front();
        }
        None
    }

    fn check_result(
        &mut self,
        entry: &TraceEntry,
        id: Option<&'a str>,
        path: &'a str,
    ) -> Result<(), (Invariant, &'a str, String)> {
        self.report.results += 1;
        let Some(id) = id.or_else(|| self.first_open()) else { return Ok(()) };
        let Some(call) = self.calls.get_mut(id) else {
            let later = self.entries.iter().find(|entry| {
                let is_it = |item: &TraceItem| matches!(item, TraceItem::Call { id: call, .. } if call == id);
                entry.items.iter().any(is_it)
            });
            return Err(match later {
                Some(call) => (
                    Invariant::ResultBeforeCall,
                    path,
                    format!("the result of the call {id}, which is in line {}", call.line),
                ),
                None => {
                    (Invariant::OrphanResult, path, format!("a result for {id}, which no call has"))
                }
            });
        };
        if let Some(line) = call.answered.replace(entry.line) {
            let message = format!("another result for {id}; the first one is in line {line}");
            return Err((Invariant::AnsweredTwice, path, message));
        }
        Ok(())
    }
}
