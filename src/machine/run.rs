//! What every state carries: the rules, the clock, and what has been used so far.

use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::compactions::Compactions;
use super::deadline::{Deadline, Why};
use super::effect::Note;
use super::event::Facts;
use super::next::Out;
use super::repeats::Repeats;
use crate::model::{EffectId, Micros, Rules, Span, Time, Tokens, Usage};

/// The running account of a run. All of it has a meaning in every state.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Run {
    /// The rules that the run obeys.
    pub rules: SharedRules,
    /// What time it is, as far as the machine was told.
    pub now: Time,
    /// When the run began; the total timeout counts from here.
    pub began: Time,
    /// The id of the next effect.
    pub next: EffectId,
    /// Replies whose tool calls ran.
    pub steps: u32,
    /// Model calls that were made, each with its retries counted once.
    pub calls: u32,
    /// Requests that were sent, retries included.
    pub sends: u32,
    /// What the calls used.
    pub spent: Spent,
    /// What happened several times in a row.
    pub streaks: Streaks,
    /// The compactions so far.
    pub compactions: Compactions,
    /// The turns that repeat.
    pub repeats: Repeats,
    /// The pieces of an answer that the output limit cut into several replies.
    pub partial: Option<Arc<str>>,
}

/// Rules shared by all states of a run; they take no part in the hash, since they never differ within a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SharedRules(Arc<Rules>);

/// What model calls used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Spent {
    /// Money; nothing when the model has no price.
    pub cost: Micros,
    /// Input and output tokens.
    pub tokens: Tokens,
}

/// How often something happened without anything better in between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Streaks {
    /// Replies that the output limit cut off.
    pub cut: u32,
    /// Empty replies.
    pub empty: u32,
    /// Paused turns.
    pub pauses: u32,
    /// Replies of whose tool calls none could be run.
    pub invalid: u32,
    /// Final answers that were sent back.
    pub sent_back: u32,
    /// Final answers that did not satisfy the schema.
    pub unfit: u32,
    /// Follow-up messages; of the whole run.
    pub follow_ups: u32,
}

impl Run {
    /// Returns the account of a run that begins now.
    pub(super) fn new(rules: Rules) -> Self {
        Self {
            rules: rules.into(),
            now: Time::START,
            began: Time::START,
            next: EffectId(1),
            steps: 0,
            calls: 0,
            sends: 0,
            spent: Spent::default(),
            streaks: Streaks::default(),
            compactions: Compactions::default(),
            repeats: Repeats::default(),
            partial: None,
        }
    }

    /// Returns when the run has to close so that its closing call fits into its time: a tenth of it, 30 s at the
    /// most, is kept for that.
    pub(super) fn closes(&self) -> Option<Deadline> {
        let timeout = self.rules.limits.timeout?;
        let share = timeout.share(1, 10).min(Span::secs(30));
        let at = self.began.after(timeout).before(share);
        Some(Deadline { at, why: Why::RunLimit })
    }

    /// Returns when the closing call has to be over, so that the process is gone before its time is.
    pub(super) fn ends(&self) -> Option<Time> {
        let timeout = self.rules.limits.timeout?;
        let margin = timeout.share(1, 20).min(Span::millis(250));
        Some(self.began.after(timeout).before(margin))
    }

    /// Charges what a reply used.
    pub(super) fn charge(&mut self, usage: &Usage, out: &mut Out) {
        let cost = self.rules.price.map_or(Micros::ZERO, |price| price.cost(usage));
        self.spend(Spent { cost, tokens: usage.total() }, out);
    }

    /// Charges what was used, whoever used it.
    pub(super) fn spend(&mut self, spent: Spent, out: &mut Out) {
        let before = self.spent.cost;
        self.spent.cost = before + spent.cost;
        self.spent.tokens = self.spent.tokens + spent.tokens;
        if let Some(warn) = self.rules.limits.warn_at
            && before < warn
            && self.spent.cost >= warn
        {
            out.note(Note::Spent { cost: self.spent.cost });
        }
    }

    /// Charges a call that was sent and brought no reply: the provider has probably read it.
    pub(super) fn charge_lost(&mut self, facts: &Facts, out: &mut Out) {
        let usage =
            Usage { input: facts.context.min(facts.bound), estimated: true, ..Usage::default() };
        self.charge(&usage, out);
    }
}

impl From<Rules> for SharedRules {
    fn from(rules: Rules) -> Self {
        Self(Arc::new(rules))
    }
}

impl Deref for SharedRules {
    type Target = Rules;

    fn deref(&self) -> &Rules {
        &self.0
    }
}

impl Hash for SharedRules {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}
