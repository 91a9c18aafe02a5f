//! The upper bounds of a run's use, derived from its rules.

use crate::machine::budget;
use crate::machine::effect::CallPurpose;
use crate::machine::event::RequestSize;
use crate::machine::step::start;
use crate::machine::termination_rank::rank;
use crate::types::{ConversationItem, MessageOrigin, MicroUsd, RunRules, TimeSpan, Tokens};

/// The upper bounds of a run's use, for any behaviour of model, tools, checks and users. Model calls of sub-agents
/// count only towards cost, tokens and time: a sub-agent is a run with its own bounds.
///
/// Steps and model calls follow from the [`rank`] of the first state: between two steps the model is asked again at most as
/// often as `repeats` allows, each compaction needs a reply or another model before the next one, and a run never returns
/// to an earlier model. `tests/machine` has an environment that reaches each bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunBounds {
    /// Model calls, each counted once with its retries.
    pub calls: u64,
    /// Requests to the model, retries included; `None` if retries are limited by time instead.
    pub requests: Option<u64>,
    /// The cost, if there is a budget and the model has a price. A provider that reports more than was reserved exceeds it.
    pub cost: Option<MicroUsd>,
    /// Input and output tokens, if they are limited.
    pub tokens: Option<Tokens>,
    /// The time from the start, if it is limited, with the part that the process needs to exit.
    pub time: Option<TimeSpan>,
    /// Replies whose tool calls run.
    pub steps: u64,
}

impl RunBounds {
    /// Returns the bounds of a new run with these rules.
    pub fn new(rules: &RunRules) -> Self {
        let first = start(rules.clone(), ConversationItem::user(MessageOrigin::Task, "")).state;
        let run = first.run();
        let pays = |purpose| budget::reserve(run, &RequestSize::default(), purpose).is_ok();
        let has_time = rules.limits.allow_calls() && rules.limits.timeout != Some(TimeSpan::ZERO);
        let begins = has_time && pays(CallPurpose::Agent) && rules.loop_detection.end_at > 1;
        let steps = if begins { rank(&first).steps } else { 0 };
        let closing = u64::from(has_time && pays(CallPurpose::Closing));

        // Replies that the machine accepts: one for each step, those that are requested again before it, and
        // follow-ups, which are counted for the whole run.
        let bounds = &rules.bounds;
        let sum = |counts: &[u32]| counts.iter().map(|count| u64::from(*count)).sum::<u64>();
        let of_replies = sum(&[bounds.continuations, bounds.empty_replies, bounds.pauses]);
        let of_checks = sum(&[bounds.sent_back, bounds.repairs]);
        // Without checks, an answer is checked only for a command that an earlier step has started.
        let checked = if rules.has_checks { steps } else { steps.saturating_sub(1) };
        let follow_ups = if checked > 0 { u64::from(bounds.follow_ups) } else { 0 };
        let replies = steps
            .saturating_mul(1 + of_replies)
            .saturating_add(checked.saturating_mul(of_checks))
            .saturating_add(follow_ups);
        // Each fallback model follows a call that failed with all its retries, and may compact the context for its own
        // window.
        let fallbacks = if replies > 0 { u64::from(rules.fallbacks()) } else { 0 };
        // A compaction costs a call that doesn't fit, and the call for the summary.
        let compactions =
            u64::from(rules.context.max_compactions).min(replies.saturating_add(fallbacks));
        let retried = replies.saturating_add(fallbacks + 2 * compactions);
        let attempts = u64::from(rules.backoff.retries) + 1;
        Self {
            calls: retried.saturating_add(closing),
            requests: match rules.backoff.retry_for {
                Some(_) => None,
                None => Some(retried.saturating_mul(attempts).saturating_add(closing)),
            },
            cost: rules.limits.budget.filter(|_| rules.price.is_some()),
            tokens: rules.limits.max_tokens,
            time: rules.limits.timeout,
            steps,
        }
    }
}
