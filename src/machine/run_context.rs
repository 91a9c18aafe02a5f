//! The extended state, which all states share: rules, time and usage.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::machine::context::compaction_history::CompactionHistory;
use crate::machine::effect::{CallPurpose, MachineNote};
use crate::machine::output::StepBuilder;
use crate::machine::stop_reason::StopReason;
use crate::machine::tool_calls::loop_detection::TurnRepetition;
use crate::machine::tool_calls::started_command::StartedCommand;
use crate::types::{EffectId, MicroUsd, Price, RunRules, RunTime, TimeSpan, Tokens, Usage};

/// The extended state of a run. All of it is meaningful in every state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RunContext {
    /// The rules of the run.
    pub rules: Arc<RunRules>,
    /// The current time, as of the last event.
    pub now: RunTime,
    /// The time at which the run began. Its timeout counts from here.
    pub started_at: RunTime,
    /// The id of the next effect.
    pub next_effect: EffectId,
    /// Replies with tool calls.
    pub steps: u32,
    /// The index of the current model in `rules.models`, if there are several.
    #[serde(default, skip_serializing_if = "is_first_model")]
    pub model: u32,
    /// Model calls, each counted once with its retries. A call that falls back to another model counts for each model.
    pub model_calls: u32,
    /// Requests that were sent, retries included.
    pub requests: u32,
    /// The cost and tokens so far.
    pub used: BudgetUsage,
    /// Denied tool calls. They are counted only if they affect how the run ends.
    #[serde(default)]
    pub denied_calls: u32,
    /// Consecutive occurrences.
    pub streaks: Streaks,
    /// The compactions so far.
    pub compactions: CompactionHistory,
    /// The turns that repeat.
    pub repetition: TurnRepetition,
    /// The parts of an answer that the output limit split into several replies.
    pub partial_answer: Option<Arc<str>>,
    /// The commands that run in the background.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<StartedCommand>,
    /// The time of the current call's first failure, if it limits the retries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing_since: Option<RunTime>,
    /// The received part of the pending model call's reply, as last reported; [`Tokens::MAX`] if it is unknown. A call
    /// that is cut off is charged for it.
    #[serde(default, skip_serializing_if = "Tokens::is_zero")]
    pub received: Tokens,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // asked for by serde
fn is_first_model(model: &u32) -> bool {
    *model == 0
}

/// The usage that counts against the budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BudgetUsage {
    /// The cost; zero if the model has no price.
    pub cost: MicroUsd,
    /// Input and output tokens.
    pub tokens: Tokens,
}

/// The numbers of consecutive occurrences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Streaks {
    /// Replies that the output limit cut off.
    pub truncated: u32,
    /// Empty replies.
    pub empty: u32,
    /// Paused turns.
    pub pauses: u32,
    /// Replies whose tool calls were all invalid.
    pub invalid: u32,
    /// Final answers that were sent back.
    pub sent_back: u32,
    /// Final answers that did not satisfy the schema.
    pub schema_violations: u32,
    /// Follow-up messages, of the whole run.
    pub follow_ups: u32,
}

impl RunContext {
    /// Returns whether the run may take another follow-up message.
    pub fn can_take_follow_up(&self) -> bool {
        self.streaks.follow_ups < self.rules.bounds.follow_ups
    }

    /// Creates the context of a new run.
    pub(crate) fn new(rules: RunRules) -> Box<Self> {
        Box::new(Self { rules: rules.into(), next_effect: EffectId(1), ..Self::default() })
    }

    /// Returns whether the run may take another step.
    pub(crate) fn has_steps_left(&self) -> bool {
        let taken = self.steps.saturating_sub(self.rules.limit_baseline.steps);
        taken < self.rules.limits.max_steps
    }

    /// Returns the time at which the run must close so that its closing call fits into the timeout. A tenth of the
    /// timeout is reserved for it, at most 30 s.
    pub(crate) fn closing_time(&self) -> Option<RunTime> {
        let timeout = self.rules.limits.timeout?;
        let share = timeout.fraction(1, 10).min(TimeSpan::from_secs(30));
        Some(self.started_at.after(timeout).before(share))
    }

    /// Returns the time by which the closing call must be over, so that the process exits within the timeout.
    pub(crate) fn end_time(&self) -> Option<RunTime> {
        let timeout = self.rules.limits.timeout?;
        let margin = timeout.fraction(1, 20).min(TimeSpan::from_millis(250));
        Some(self.started_at.after(timeout).before(margin))
    }

    /// Returns the stop reason of a run with a final answer. Denied calls make it a failure if the user wants that.
    pub(crate) fn final_stop_reason(&self) -> StopReason {
        let denied = self.denied_calls > self.rules.limit_baseline.denied_calls;
        if denied && self.rules.fail_on_denied {
            StopReason::ChecksFailed
        } else {
            StopReason::LlmDone
        }
    }

    /// Switches to another model, with its price and limits.
    pub(crate) fn change_model(&mut self, model: u32) {
        self.model = model;
        self.rules = self.rules.for_model(model).into();
    }

    /// Returns the name of the model for a call with this purpose. `None` for the model of the run, if there is no
    /// other one.
    pub fn called_model(&self, purpose: CallPurpose) -> Option<&Arc<str>> {
        let summary_model = match purpose {
            CallPurpose::Compaction => self.rules.summary_model.as_ref(),
            CallPurpose::Agent | CallPurpose::Closing => None,
        };
        summary_model.or_else(|| self.rules.model(self.model).map(|model| &model.name))
    }

    /// Returns the price of a call. `None` if no costs are counted.
    pub(crate) fn price_for(&self, purpose: CallPurpose) -> Option<Price> {
        let price = self.rules.price?;
        match purpose {
            CallPurpose::Compaction => Some(self.rules.summary_price.unwrap_or(price)),
            CallPurpose::Agent | CallPurpose::Closing => Some(price),
        }
    }

    /// Charges the usage of a reply.
    pub(crate) fn charge_usage(
        &mut self,
        usage: &Usage,
        purpose: CallPurpose,
        out: &mut StepBuilder,
    ) {
        let cost = self.price_for(purpose).map_or(MicroUsd::ZERO, |price| price.cost(usage));
        self.add_usage(BudgetUsage { cost, tokens: usage.total() }, out);
    }

    /// Adds to the usage, and warns when it reaches the configured cost.
    pub(crate) fn add_usage(&mut self, used: BudgetUsage, out: &mut StepBuilder) {
        let before = self.used.cost;
        self.used.cost = before + used.cost;
        self.used.tokens = self.used.tokens + used.tokens;
        if let Some(warn) = self.rules.limits.warn_at
            && before < warn
            && self.used.cost >= warn
        {
            out.add_note(MachineNote::CostWarning { cost: self.used.cost });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Step, start};
    use crate::types::{ConversationItem, LimitBaseline, MessageOrigin, RunLimits};

    fn run(limits: RunLimits) -> Box<RunContext> {
        RunContext::new(RunRules { limits, ..RunRules::default() })
    }

    fn timed(timeout: TimeSpan) -> Box<RunContext> {
        let mut run = run(RunLimits { timeout: Some(timeout), ..RunLimits::default() });
        run.started_at = RunTime(7);
        run
    }

    #[test]
    fn a_tenth_of_the_timeout_is_reserved_for_closing_and_half_of_that_for_the_exit() {
        let ends = |timeout| {
            let run = timed(timeout);
            (run.closing_time(), run.end_time())
        };
        let at = |span| Some(RunTime(7).after(span));
        assert_eq!(ends(TimeSpan(1_000)), (at(TimeSpan(900)), at(TimeSpan(950))));
        // Both are capped.
        assert_eq!(
            ends(TimeSpan::from_secs(600)),
            (at(TimeSpan::from_secs(570)), at(TimeSpan::from_millis(599_750)))
        );
    }

    #[test]
    fn without_a_timeout_nothing_ends_by_time() {
        let run = run(RunLimits::default());
        assert_eq!((run.closing_time(), run.end_time()), (None, None));
    }

    #[test]
    fn a_denied_call_is_a_failure_if_the_user_wants_that_until_new_limits_begin() {
        let rules = RunRules { fail_on_denied: true, ..RunRules::default() };
        let mut run = RunContext::new(rules.clone());
        assert_eq!(run.final_stop_reason(), StopReason::LlmDone);
        run.denied_calls = 1;
        assert_eq!(run.final_stop_reason(), StopReason::ChecksFailed);
        run.rules = RunRules { fail_on_denied: false, ..rules.clone() }.into();
        assert_eq!(run.final_stop_reason(), StopReason::LlmDone);
        let from = LimitBaseline { denied_calls: 1, ..LimitBaseline::default() };
        run.rules = RunRules { limit_baseline: from, ..rules }.into();
        assert_eq!(run.final_stop_reason(), StopReason::LlmDone);
    }

    #[test]
    fn the_cost_warning_comes_once() {
        let mut run = run(RunLimits { warn_at: Some(MicroUsd(10)), ..RunLimits::default() });
        let mut notes = |cost| {
            let mut out = StepBuilder::default();
            run.add_usage(BudgetUsage { cost: MicroUsd(cost), tokens: Tokens(3) }, &mut out);
            let state =
                start(RunRules::default(), ConversationItem::user(MessageOrigin::Task, "task"))
                    .state;
            let Step { notes, .. } = out.finish(state);
            notes
        };
        assert_eq!(notes(9), []);
        assert_eq!(notes(1), [MachineNote::CostWarning { cost: MicroUsd(10) }]);
        assert_eq!(notes(5), []);
        assert_eq!(run.used, BudgetUsage { cost: MicroUsd(15), tokens: Tokens(9) });
    }

    #[test]
    fn a_stored_run_has_its_model() {
        for model in [0, 2] {
            let mut run = run(RunLimits::default());
            run.model = model;
            let stored = serde_json::to_string(&run).unwrap();
            assert_eq!(stored.contains("\"model\":"), model > 0, "{stored}");
            assert_eq!(serde_json::from_str::<RunContext>(&stored).unwrap(), *run);
        }
    }
}
