//! Grouping of log lines by tool call, in call order, even if calls run in parallel.

use std::collections::VecDeque;

use crate::types::CallId;

/// The tool calls whose lines are not all written yet.
///
/// Lines of the first call are written at once. Lines of later calls wait until the calls before them have ended.
#[derive(Default)]
pub(super) struct ToolCallBlocks(VecDeque<ToolCallBlock>);

struct ToolCallBlock {
    id: CallId,
    lines: Vec<String>,
    has_ended: bool,
}

impl ToolCallBlocks {
    /// Begins the block of a call. Returns the lines that can be written now.
    pub(super) fn begin(&mut self, id: &CallId, line: String) -> Vec<String> {
        self.0.push_back(ToolCallBlock { id: id.clone(), lines: vec![line], has_ended: false });
        self.take_writable()
    }

    /// Ends the block of a call. Returns the lines that can be written now.
    pub(super) fn end(&mut self, id: &CallId, line: String, after: Vec<String>) -> Vec<String> {
        let lines = [vec![line], after].concat();
        let is_it = |block: &&mut ToolCallBlock| block.id == *id && !block.has_ended;
        let Some(block) = self.0.iter_mut().find(is_it) else { return lines };
        block.lines.extend(lines);
        block.has_ended = true;
        self.take_writable()
    }

    /// Returns all remaining lines.
    pub(super) fn take_rest(&mut self) -> Vec<String> {
        self.0.drain(..).flat_map(|block| block.lines).collect()
    }

    fn take_writable(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        while let Some(first) = self.0.front_mut() {
            lines.append(&mut first.lines);
            if !first.has_ended {
                break;
            }
            self.0.pop_front();
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_run_together_are_written_one_after_the_other() {
        let (a, b, c) = (CallId::from("a"), CallId::from("b"), CallId::from("c"));
        let mut blocks = ToolCallBlocks::default();
        assert_eq!(blocks.begin(&a, "a".to_owned()), ["a"]);
        assert!(blocks.begin(&b, "b".to_owned()).is_empty());
        assert!(blocks.begin(&c, "c".to_owned()).is_empty());
        assert!(blocks.end(&b, "b ok".to_owned(), vec!["b hook".to_owned()]).is_empty());
        assert_eq!(blocks.end(&a, "a ok".to_owned(), vec![]), ["a ok", "b", "b ok", "b hook", "c"]);
        assert_eq!(blocks.end(&c, "c ok".to_owned(), vec![]), ["c ok"]);
        assert!(blocks.take_rest().is_empty());
    }
}
