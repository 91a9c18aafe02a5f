//! The compactions of a run. They are limited so that they can't follow each other endlessly.

use serde::{Deserialize, Serialize};

use crate::machine::event::RequestSize;
use crate::types::{RunRules, Tokens};

/// The compactions of a run so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CompactionHistory {
    /// The number of compactions.
    pub count: u32,
    /// The size of the context before the newest compaction, until the model has replied since.
    pub size_before: Option<Tokens>,
    /// Whether a compaction did not make the context smaller. No other one follows it.
    pub is_futile: bool,
}

impl CompactionHistory {
    /// Returns whether the context may be compacted: not twice without an accepted reply in between, not after a futile
    /// compaction, and not more often than the rules allow.
    pub(crate) fn is_allowed(&self, rules: &RunRules) -> bool {
        self.size_before.is_none() && !self.is_futile && self.count < rules.context.max_compactions
    }

    /// Counts a compaction of a context of this size.
    pub(crate) fn begin(&mut self, context: Tokens) {
        self.count += 1;
        self.size_before = Some(context);
    }

    /// Compares the context after a compaction: if it isn't smaller, the compaction was futile.
    pub(crate) fn assess(&mut self, size: &RequestSize) {
        self.is_futile |= self.size_before.is_some_and(|before| size.estimate >= before);
    }

    /// Records that the model has accepted the context.
    pub(crate) fn confirm(&mut self) {
        self.size_before = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::ContextLimits;

    fn size(context: u64) -> RequestSize {
        RequestSize { estimate: Tokens(context), ..RequestSize::default() }
    }

    #[test]
    fn another_compaction_needs_a_reply_in_between() {
        let (mut compactions, rules) = (CompactionHistory::default(), RunRules::default());
        assert!(compactions.is_allowed(&rules));
        compactions.begin(Tokens(10));
        compactions.assess(&size(9));
        assert!(!compactions.is_allowed(&rules));
        compactions.confirm();
        assert!(compactions.is_allowed(&rules));
    }

    #[test]
    fn a_futile_compaction_is_the_last() {
        for (after, helped) in [(9, true), (10, false), (11, false)] {
            let mut compactions = CompactionHistory::default();
            compactions.begin(Tokens(10));
            compactions.assess(&size(after));
            compactions.confirm();
            // Without a compaction before there is nothing to compare.
            compactions.assess(&size(100));
            assert_eq!(compactions.is_allowed(&RunRules::default()), helped, "{after}");
        }
    }

    #[test]
    fn compactions_are_limited_by_the_rules() {
        let context = ContextLimits { max_compactions: 2, ..ContextLimits::default() };
        let rules = RunRules { context, ..RunRules::default() };
        let mut compactions = CompactionHistory::default();
        for _ in 0..2 {
            assert!(compactions.is_allowed(&rules));
            compactions.begin(Tokens(10));
            compactions.confirm();
        }
        assert!(!compactions.is_allowed(&rules));
    }
}
