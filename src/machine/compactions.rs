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
