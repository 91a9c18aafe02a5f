//! The account of compactions, which keeps them from following each other for ever.

use serde::{Deserialize, Serialize};

use super::event::Facts;
use crate::model::{Rules, Tokens};

/// What a run has compacted so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Compactions {
    /// How many there were.
    pub count: u32,
    /// How large the context was before the newest one; none once the model has answered since.
    pub before: Option<Tokens>,
    /// Whether one did not make the context smaller; it was the last.
    pub futile: bool,
}

impl Compactions {
    /// Returns whether the context may be compacted: not twice without an accepted reply in between, not after one
    /// that did not help, and not more often than the rules allow.
    pub(super) fn allowed(&self, rules: &Rules) -> bool {
        self.before.is_none() && !self.futile && self.count < rules.context.max_compactions
    }

    /// Counts a compaction of a context of this size.
    pub(super) fn begin(&mut self, context: Tokens) {
        self.count += 1;
        self.before = Some(context);
    }

    /// Looks at the context after a compaction: one that is not smaller was futile.
    pub(super) fn judge(&mut self, facts: &Facts) {
        self.futile |= self.before.is_some_and(|before| facts.context >= before);
    }

    /// Notes that the model has accepted the context.
    pub(super) fn accepted(&mut self) {
        self.before = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ContextRules;

    fn facts(context: u64) -> Facts {
        Facts { context: Tokens(context), ..Facts::default() }
    }

    #[test]
    fn a_compaction_follows_another_only_when_a_reply_came_in_between() {
        let (mut compactions, rules) = (Compactions::default(), Rules::default());
        assert!(compactions.allowed(&rules));
        compactions.begin(Tokens(10));
        compactions.judge(&facts(9));
        assert!(!compactions.allowed(&rules));
        compactions.accepted();
        assert!(compactions.allowed(&rules));
    }

    #[test]
    fn one_that_did_not_help_is_the_last() {
        for (after, helped) in [(9, true), (10, false), (11, false)] {
            let mut compactions = Compactions::default();
            compactions.begin(Tokens(10));
            compactions.judge(&facts(after));
            compactions.accepted();
            // What is judged without a compaction before it says nothing.
            compactions.judge(&facts(100));
            assert_eq!(compactions.allowed(&Rules::default()), helped, "{after}");
        }
    }

    #[test]
    fn there_are_as_many_as_the_rules_allow() {
        let context = ContextRules { max_compactions: 2, ..ContextRules::default() };
        let rules = Rules { context, ..Rules::default() };
        let mut compactions = Compactions::default();
        for _ in 0..2 {
            assert!(compactions.allowed(&rules));
            compactions.begin(Tokens(10));
            compactions.accepted();
        }
        assert!(!compactions.allowed(&rules));
    }
}
