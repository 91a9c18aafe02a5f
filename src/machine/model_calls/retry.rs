//! The decision whether, and after which wait, a failed call is retried.

use crate::machine::run_context::RunContext;
use crate::types::{Fault, FaultClass, RunTime, TimeSpan};

/// The decision after a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RetryDecision {
    /// Another attempt after this wait.
    After(TimeSpan),
    /// The request has to become smaller.
    ShrinkRequest,
    /// A retry can't help.
    GiveUp,
}

/// The shortest wait that isn't requested by the provider. Full jitter may come close to zero, which doesn't help an
/// overloaded provider.
const MIN_WAIT: TimeSpan = TimeSpan::from_millis(100);

/// Decides the reaction to the failure of attempt `number`. A retry must begin before `limit`.
pub(crate) fn decide(
    run: &RunContext,
    number: u32,
    fault: &Fault,
    limit: Option<RunTime>,
) -> RetryDecision {
    match fault.class() {
        FaultClass::Overflow => RetryDecision::ShrinkRequest,
        FaultClass::Fatal => RetryDecision::GiveUp,
        FaultClass::Transient => {
            let rules = &run.rules.backoff;
            let asked = fault.retry_after.unwrap_or(TimeSpan::ZERO);
            let wait = backoff_wait(run, number).max(asked);
            let too_late = limit.is_some_and(|limit| run.now.after(wait) >= limit);
            let is_used_up = match (rules.retry_for, failing_since(run, number)) {
                (Some(time), Some(since)) => run.now.after(wait) >= since.after(time),
                (Some(_) | None, _) => number > rules.retries,
            };
            if is_used_up || asked > rules.max_provider_wait || too_late {
                RetryDecision::GiveUp
            } else {
                RetryDecision::After(wait)
            }
        }
    }
}

/// Returns the time of a call's first failure, if its retries are limited by time. Attempt `number` fails now.
pub(crate) fn failing_since(run: &RunContext, number: u32) -> Option<RunTime> {
    run.rules.backoff.retry_for?;
    if number == 1 { Some(run.now) } else { run.failing_since.or(Some(run.now)) }
}

/// Returns the wait after attempt `number`: a random part of a time that doubles with each attempt.
fn backoff_wait(run: &RunContext, number: u32) -> TimeSpan {
    let rules = &run.rules.backoff;
    let doubled = rules.base_wait.0.saturating_mul(1 << (number - 1).min(32));
    let longest = doubled.min(rules.max_wait.0);
    let random = splitmix(run.rules.seed ^ splitmix(run.next_effect.0));
    let part = (u128::from(longest) * u128::from(random)) >> 64;
    #[allow(clippy::cast_possible_truncation)] // at most `longest`
    TimeSpan(part as u64).max(MIN_WAIT.min(TimeSpan(longest)))
}

/// The finalizer of `SplitMix64`, which spreads the bits of a counter over the whole word.
fn splitmix(counter: u64) -> u64 {
    let mut z = counter.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use crate::types::{EffectId, FaultKind, RetryBackoff, RunRules};

    fn run(seed: u64) -> Box<RunContext> {
        RunContext::new(RunRules { seed, ..RunRules::default() })
    }

    fn asking(wait: TimeSpan) -> Fault {
        Fault { retry_after: Some(wait), ..Fault::new(FaultKind::RateLimited, "") }
    }

    #[test]
    fn waits_are_jittered_and_stay_below_a_doubling_ceiling() {
        let waits = |number| (0..500).map(move |seed| backoff_wait(&run(seed), number));
        for (number, ceiling) in [(1, 1), (2, 2), (3, 4), (6, 30), (40, 30)] {
            assert!(
                waits(number).all(|wait| (MIN_WAIT..=TimeSpan::from_secs(ceiling)).contains(&wait))
            );
            assert!(waits(number).any(|wait| wait > TimeSpan::from_secs(ceiling).fraction(9, 10)));
            assert!(waits(number).any(|wait| wait < TimeSpan::from_secs(ceiling).fraction(2, 10)));
        }
    }

    #[test]
    fn a_wait_requested_by_the_provider_is_respected_up_to_a_limit() {
        let decide = |wait| decide(&run(1), 1, &asking(wait), None);
        assert_eq!(decide(TimeSpan::from_secs(7)), RetryDecision::After(TimeSpan::from_secs(7)));
        assert_eq!(decide(TimeSpan::from_secs(60)), RetryDecision::After(TimeSpan::from_secs(60)));
        assert_eq!(decide(TimeSpan::from_secs(61)), RetryDecision::GiveUp);
        assert!(
            matches!(decide(TimeSpan::from_millis(1)), RetryDecision::After(wait) if wait >= MIN_WAIT)
        );
    }

    #[test]
    fn a_retry_that_would_begin_too_late_is_not_made() {
        let decide = |limit| decide(&run(1), 1, &asking(TimeSpan::from_secs(7)), Some(limit));
        assert_eq!(decide(RunTime::START.after(TimeSpan::from_secs(7))), RetryDecision::GiveUp);
        assert_eq!(
            decide(RunTime::START.after(TimeSpan::from_secs(8))),
            RetryDecision::After(TimeSpan::from_secs(7))
        );
    }

    #[test]
    fn retries_end_at_their_limit() {
        let fault = Fault::new(FaultKind::Server, "");
        assert!(matches!(decide(&run(1), 3, &fault, None), RetryDecision::After(_)));
        assert_eq!(decide(&run(1), 4, &fault, None), RetryDecision::GiveUp);
    }

    /// A time replaces the number of attempts.
    #[test]
    fn retries_end_after_their_time() {
        let minutes = |count: u64| TimeSpan::from_secs(60 * count);
        let backoff = RetryBackoff { retry_for: Some(minutes(10)), ..RetryBackoff::default() };
        let rules = Arc::new(RunRules { backoff, ..RunRules::default() });
        let since = RunTime::START.after(minutes(5));
        let decide = |number, now| {
            let context = *run(1);
            let failing_since = Some(since);
            let rules = Arc::clone(&rules);
            decide(
                &RunContext { rules, now, failing_since, ..context },
                number,
                &asking(TimeSpan::from_secs(30)),
                None,
            )
        };
        let after = |span| since.after(span);
        assert!(matches!(decide(40, after(minutes(9))), RetryDecision::After(_)));
        assert_eq!(decide(2, after(TimeSpan::from_secs(570))), RetryDecision::GiveUp);
        // The first failure of a later call begins a new time.
        assert!(matches!(decide(1, after(minutes(60))), RetryDecision::After(_)));
    }

    /// The reference values of `SplitMix64` with the seed 0.
    #[test]
    fn the_bits_match_the_reference_values() {
        let gamma = 0x9e37_79b9_7f4a_7c15_u64;
        let numbers = [0, gamma, gamma.wrapping_mul(2)].map(splitmix);
        assert_eq!(numbers, [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f]);
    }

    /// Stored runs are replayed by later releases, which must compute the same waits.
    #[test]
    fn waits_never_change_between_releases() {
        let wait = |seed, next| {
            let next = EffectId(next);
            backoff_wait(&RunContext { next_effect: next, ..*run(seed) }, 1)
        };
        assert_eq!(wait(1, 1), TimeSpan(914_022));
        assert_eq!(wait(2, 1), TimeSpan(737_699));
        assert_eq!(wait(2, 2), TimeSpan(587_783));
    }
}
