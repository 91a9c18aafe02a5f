//! The ledger: what stands for the part of a conversation that is gone.
//!
//! What the model wrote about it is one half. The other is taken from the conversation's own records and rendered anew
//! by every compaction, for a model forgets and mixes up: which files changed and were read, which tools ran. So no
//! number of compactions loses a file.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::model::{ConversationItem, FileAction, ToolExchange};

/// What stands for the part of a conversation that is gone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct WorkRecord {
    /// What the model wrote about it.
    summary: Option<Arc<str>>,
    /// How often each tool ran, and how often it failed.
    tool_counts: BTreeMap<Arc<str>, (u32, u32)>,
    /// What became of files.
    changed_files: BTreeMap<Arc<str>, FileAction>,
    /// Files that were read, the latest last.
    read_files: Vec<Arc<str>>,
    /// The newest answer that the model has not written about.
    last_answer: Option<Arc<str>>,
}

/// What a summary begins with, so that the model knows what it reads.
const SUMMARY_HEADING: &str =
    "[SUMMARY] Earlier parts of this conversation were replaced by this summary.";

/// The longest text of the model that is kept, in bytes.
const MAX_SUMMARY_BYTES: usize = 24_000;

/// How much of the newest answer is told, in characters.
const ANSWER_EXCERPT_CHARS: usize = 500;

/// The most files that are told: of those that changed, and of those that were read.
const MAX_CHANGED_FILES: usize = 200;
const MAX_READ_FILES: usize = 50;

impl WorkRecord {
    /// Takes an entry in that goes. Summaries and the user's own words are no records.
    pub(crate) fn add(&mut self, item: &ConversationItem) {
        match item {
            ConversationItem::User(_) => {}
            ConversationItem::Assistant(reply) if reply.has_text() => {
                self.last_answer = Some(reply.text())
            }
            ConversationItem::Assistant(_) => {}
            ConversationItem::Exchange(exchange) => self.add_exchange(exchange),
        }
    }

    /// Takes in what the model wrote about all that has gone so far.
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
                self.changed_files.insert(Arc::clone(&change.path), change.action);
            }
            for path in &result.reads {
                self.read_files.retain(|known| known != path);
                self.read_files.push(Arc::clone(path));
            }
            let surplus = self.read_files.len().saturating_sub(MAX_READ_FILES);
            self.read_files.drain(..surplus);
        }
    }

    /// Returns the summary, or nothing when there is nothing to be summed up.
    pub(crate) fn text(&self) -> Option<String> {
        let records = self.facts();
        let said = self.last_answer.as_ref().map(|said| {
            let head: String = said.chars().take(ANSWER_EXCERPT_CHARS).collect();
            format!("The newest answer among them began: {head}\n")
        });
        let parts = [self.summary.as_deref(), Some(records.as_str()), said.as_deref()];
        let parts: Vec<&str> =
            parts.into_iter().flatten().filter(|part| !part.is_empty()).collect();
        (!parts.is_empty())
            .then(|| format!("{SUMMARY_HEADING}\n\n{}", parts.join("\n\n")).trim_end().into())
    }

    /// Returns what is known for certain: files and tools, a line for each kind.
    pub(crate) fn facts(&self) -> String {
        let mut text = String::new();
        if !self.changed_files.is_empty() {
            let files =
                self.changed_files.iter().take(MAX_CHANGED_FILES).map(
                    |(path, action)| match action {
                        FileAction::Created => format!("{path} (created)"),
                        FileAction::Modified => path.to_string(),
                        FileAction::Deleted => format!("{path} (deleted)"),
                    },
                );
            let files: Vec<String> = files.collect();
            let _ = write!(text, "Files that changed: {}", files.join(", "));
            let _ = match self.changed_files.len().saturating_sub(MAX_CHANGED_FILES) {
                0 => writeln!(text, "."),
                more => writeln!(text, ", and {more} more."),
            };
        }
        if !self.read_files.is_empty() {
            let _ = writeln!(text, "Files that were read: {}.", self.read_files.join(", "));
        }
        if !self.tool_counts.is_empty() {
            let tools = self.tool_counts.iter().map(|(name, (runs, failures))| match failures {
                0 => format!("{name} ×{runs}"),
                _ => format!("{name} ×{runs} ({failures} failed)"),
            });
            let tools: Vec<String> = tools.collect();
            let _ = writeln!(text, "Tools that ran: {}.", tools.join(", "));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{
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
        result.reads.extend(read.iter().map(|path| Arc::from(*path)));
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
    fn files_and_tools_are_told_after_what_the_model_wrote() {
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
    fn what_the_model_writes_anew_replaces_its_words_but_no_record() {
        let mut record = WorkRecord::default();
        record.add(&exchange("edit_file", &[], ToolStatus::Ok, &["x"]));
        record.set_summary(&"first".into());
        record.set_summary(&"second".into());
        let text = record.text().unwrap();
        assert!(text.contains("second\n\nFiles that changed: x.") && !text.contains("first"));
    }

    #[test]
    fn a_ledger_stays_small_however_long_a_run_is() {
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
    fn the_newest_answer_is_told_until_the_model_has_written_about_it() {
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
