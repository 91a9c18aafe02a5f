//! The work record, which replaces the compacted parts of a conversation.
//!
//! One half is the summary that the model wrote. The other half is recorded by the machine and rendered with every
//! compaction, because summaries omit and confuse facts: the files that changed or were read, and the tools that ran.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::types::{ConversationItem, FileAction, FilePath, ToolExchange};

/// The record that replaces the compacted parts of a conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct WorkRecord {
    /// The summary that the model wrote.
    summary: Option<Arc<str>>,
    /// The number of runs and of failures of each tool.
    tool_counts: BTreeMap<Arc<str>, (u32, u32)>,
    /// The last change of each file.
    changed_files: BTreeMap<FilePath, FileAction>,
    /// The files that were read, newest last.
    read_files: Vec<Arc<str>>,
    /// The newest answer that the summary doesn't cover.
    last_answer: Option<Arc<str>>,
}

/// The first line of a summary, by which the model recognizes it.
const SUMMARY_HEADING: &str =
    "[SUMMARY] Earlier parts of this conversation were replaced by this summary.";

/// The maximum length of the model's summary, in bytes.
const MAX_SUMMARY_BYTES: usize = 24_000;

/// The number of characters that are kept of the newest answer.
const ANSWER_EXCERPT_CHARS: usize = 500;

/// The maximum numbers of changed and read files that are listed.
const MAX_CHANGED_FILES: usize = 200;
const MAX_READ_FILES: usize = 50;

impl WorkRecord {
    /// Adds an item that is being replaced. Messages are not recorded.
    pub(crate) fn add(&mut self, item: &ConversationItem) {
        match item {
            ConversationItem::User(_) => {}
            ConversationItem::Assistant(reply) if reply.has_text() => {
                self.last_answer = Some(reply.text());
            }
            ConversationItem::Assistant(_) => {}
            ConversationItem::Exchange(exchange) => self.add_exchange(exchange),
        }
    }

    /// Sets the model's summary of everything so far.
    pub(crate) fn set_summary(&mut self, text: &Arc<str>) {
        let text = text.trim();
        let end =
            (0..=MAX_SUMMARY_BYTES.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
        self.summary = Some(text[..end.unwrap_or(0)].into());
        self.last_answer = None;
    }

    fn add_exchange(&mut self, exchange: &ToolExchange) {
        for (call, result) in exchange.reply().calls().zip(exchange.results()) {
            let (runs, failures) = self.tool_counts.entry(Arc::clone(&call.name)).or_default();
            *runs += 1;
            *failures += u32::from(!result.is_ok());
            for change in &result.changes {
                self.changed_files.insert(change.path.clone(), change.action);
            }
            for path in &result.reads {
                self.read_files.retain(|known| known != path);
                self.read_files.push(Arc::clone(path));
            }
            let surplus = self.read_files.len().saturating_sub(MAX_READ_FILES);
            self.read_files.drain(..surplus);
        }
    }

    /// Returns the summary, or `None` if there is nothing to summarize.
    pub(crate) fn text(&self) -> Option<String> {
        let records = self.facts_text();
        let answer = self.last_answer.as_ref().map(|answer| {
            let head: String = answer.chars().take(ANSWER_EXCERPT_CHARS).collect();
            format!("The newest answer among them began: {head}\n")
        });
        let parts = [self.summary.as_deref(), Some(records.as_str()), answer.as_deref()];
        let parts: Vec<&str> =
            parts.into_iter().flatten().filter(|part| !part.is_empty()).collect();
        (!parts.is_empty())
            .then(|| format!("{SUMMARY_HEADING}\n\n{}", parts.join("\n\n")).trim_end().into())
    }

    /// Returns the recorded files and tools, one line for each kind.
    pub(crate) fn facts_text(&self) -> String {
        let changed = self.changed_files.iter().map(|(path, action)| match action {
            FileAction::Created => format!("{path} (created)"),
            FileAction::Modified => path.to_string(),
            FileAction::Deleted => format!("{path} (deleted)"),
        });
        let more = self.changed_files.len().saturating_sub(MAX_CHANGED_FILES);
        let more = (more > 0).then(|| format!("and {more} more"));
        let read = self.read_files.iter().map(ToString::to_string);
        let tools = self.tool_counts.iter().map(|(name, (runs, failures))| match failures {
            0 => format!("{name} ×{runs}"),
            _ => format!("{name} ×{runs} ({failures} failed)"),
        });
        let lines: [(&str, Vec<String>); 3] = [
            ("Files that changed", changed.take(MAX_CHANGED_FILES).chain(more).collect()),
            ("Files that were read", read.collect()),
            ("Tools that ran", tools.collect()),
        ];
        let lines = lines.iter().filter(|(_, items)| !items.is_empty());
        lines.map(|(title, items)| format!("{title}: {}.\n", items.join(", "))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{
        FileChange, Reply, ReplyFinish, ReplyPart, ToolCall, ToolResult, ToolStatus, Usage,
    };

    fn exchange(
        name: &str,
        read: &[&str],
        status: ToolStatus,
        changed: &[&str],
    ) -> ConversationItem {
        let call = ToolCall::new("1".into(), name, "{}");
        let mut result = ToolResult::new("1".into(), status, "");
        result.reads = read.iter().map(|path| Arc::from(*path)).collect();
        result.changes.extend(changed.iter().map(|path| FileChange {
            path: (*path).into(),
            action: FileAction::Modified,
            added: 1,
            removed: 0,
        }));
        let (usage, model) = (Usage::default(), None);
        let reply = Reply {
            parts: [ReplyPart::Call(call)].into(),
            finish: ReplyFinish::ToolCalls,
            usage,
            model,
        };
        ConversationItem::Exchange(ToolExchange::new(reply, [result]).unwrap())
    }

    fn read(path: &str) -> ConversationItem {
        exchange("read_file", &[path], ToolStatus::Ok, &[])
    }

    #[test]
    fn files_and_tools_follow_the_models_summary() {
        let mut record = WorkRecord::default();
        assert_eq!(record.text(), None);
        for item in [
            read("b"),
            read("a"),
            read("b"),
            exchange("edit_file", &[], ToolStatus::Ok, &["x", "b"]),
            exchange("read_file", &[], ToolStatus::Failed, &[]),
        ] {
            record.add(&item);
        }
        record.set_summary(&"Goal: all.\n".into());
        insta::assert_snapshot!(record.text().unwrap(), @r"
        [SUMMARY] Earlier parts of this conversation were replaced by this summary.

        Goal: all.

        Files that changed: b, x.
        Files that were read: a, b.
        Tools that ran: edit_file ×1, read_file ×4 (1 failed).
        ");
    }

    #[test]
    fn a_new_summary_replaces_the_old_one_but_no_record() {
        let mut record = WorkRecord::default();
        record.add(&exchange("edit_file", &[], ToolStatus::Ok, &["x"]));
        record.set_summary(&"first".into());
        record.set_summary(&"second".into());
        let text = record.text().unwrap();
        assert!(text.contains("second\n\nFiles that changed: x.") && !text.contains("first"));
    }

    #[test]
    fn the_record_stays_small_in_long_runs() {
        let mut record = WorkRecord::default();
        for file in 0..5_000 {
            record.add(&read(&format!("read{file}")));
            let changed = format!("changed{file:04}");
            record.add(&exchange("edit_file", &[], ToolStatus::Ok, &[&changed]));
        }
        record.set_summary(&"ä".repeat(50_000).into());
        let text = record.text().unwrap();
        assert!(text.len() < 32_000, "{}", text.len());
        assert!(text.contains("changed0199, and 4800 more.") && text.contains("read4999."));
    }

    #[test]
    fn the_newest_answer_is_listed_until_a_summary_covers_it() {
        let mut record = WorkRecord::default();
        let usage = Usage::default();
        for text in ["first", "second", " "] {
            record.add(&ConversationItem::Assistant(Reply::text_only(
                text,
                ReplyFinish::Stop,
                usage,
            )));
        }
        assert!(record.text().unwrap().ends_with("among them began: second"));
        record.set_summary(&"all of it".into());
        assert!(record.text().unwrap().ends_with("\n\nall of it"));
    }
}
