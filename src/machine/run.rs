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
use super::stop::StopReason;
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
    /// Tool calls that were denied; they are counted where they decide how the run ends.
    #[serde(default)]
    pub denied: u32,
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
    /// Returns whether another follow-up may go before the end.
    pub fn takes_follow_up(&self) -> bool {
        self.streaks.follow_ups < self.rules.bounds.follow_ups
    }

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
            denied: 0,
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

    /// Returns the steps that count against the present limit.
    pub(super) fn limited_steps(&self) -> u32 {
        self.steps.saturating_sub(self.rules.from.steps)
    }

    /// Returns how a run ends whose answer is final: a denied call is no success where the user says so.
    pub(super) fn answered(&self) -> StopReason {
        let denied = self.denied > self.rules.from.denied;
        if denied && self.rules.fail_on_denied {
            StopReason::ChecksFailed
        } else {
            StopReason::LlmDone
        }
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
        self.charge(&facts.unanswered(Tokens::ZERO), out);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Next, start};
    use crate::model::{Item, LimitBase, Limits, Origin, Price};

    fn run(limits: Limits) -> Run {
        Run::new(Rules { limits, ..Rules::default() })
    }

    fn timed(timeout: Span) -> Run {
        let mut run = run(Limits { timeout: Some(timeout), ..Limits::default() });
        run.began = Time(7);
        run
    }

    #[test]
    fn a_tenth_of_the_time_is_for_the_closing_call_and_half_of_that_for_the_way_out() {
        let ends = |timeout| {
            let run = timed(timeout);
            (run.closes().map(|deadline| deadline.at), run.ends())
        };
        let at = |span| Some(Time(7).after(span));
        assert_eq!(ends(Span(1_000)), (at(Span(900)), at(Span(950))));
        // Both within measure.
        assert_eq!(ends(Span::secs(600)), (at(Span::secs(570)), at(Span::millis(599_750))));
    }

    #[test]
    fn without_a_timeout_nothing_ends_by_itself() {
        let run = run(Limits::default());
        assert_eq!((run.closes(), run.ends()), (None, None));
    }

    #[test]
    fn a_denied_call_is_no_success_where_the_user_says_so_until_new_limits_begin() {
        let rules = Rules { fail_on_denied: true, ..Rules::default() };
        let mut run = Run::new(rules.clone());
        assert_eq!(run.answered(), StopReason::LlmDone);
        run.denied = 1;
        assert_eq!(run.answered(), StopReason::ChecksFailed);
        run.rules = Rules { fail_on_denied: false, ..rules.clone() }.into();
        assert_eq!(run.answered(), StopReason::LlmDone);
        let from = LimitBase { denied: 1, ..LimitBase::default() };
        run.rules = Rules { from, ..rules }.into();
        assert_eq!(run.answered(), StopReason::LlmDone);
    }

    #[test]
    fn the_user_hears_once_that_more_was_spent_than_he_wants_to_hear_of() {
        let mut run = run(Limits { warn_at: Some(Micros(10)), ..Limits::default() });
        let mut notes = |cost| {
            let mut out = Out::default();
            run.spend(Spent { cost: Micros(cost), tokens: Tokens(3) }, &mut out);
            let state = start(Rules::default(), Item::user(Origin::Task, "task")).state;
            let Next { notes, .. } = out.to(state);
            notes
        };
        assert_eq!(notes(9), []);
        assert_eq!(notes(1), [Note::Spent { cost: Micros(10) }]);
        assert_eq!(notes(5), []);
        assert_eq!(run.spent, Spent { cost: Micros(15), tokens: Tokens(9) });
    }

    #[test]
    fn a_call_that_was_lost_costs_its_input() {
        let price =
            Price { input: 2_000_000, output: 1, cached_input: 0, cache_write: 0, long: None };
        let mut run = Run::new(Rules { price: Some(price), ..Rules::default() });
        let facts =
            Facts { context: Tokens(10), bound: Tokens(20), exchanges: 0, ..Facts::default() };
        run.charge_lost(&facts, &mut Out::default());
        assert_eq!(run.spent, Spent { cost: Micros(20), tokens: Tokens(10) });
    }
}
