//! Sums of the time in each state and phase, and counts of transitions.

use std::collections::{BTreeMap, HashMap};

use schemars::JsonSchema;
use serde::Serialize;

use super::phase::TracePhase;
use crate::machine::StateKind;
use crate::port::CallTiming;
use crate::types::TimeSpan;
use crate::view::public_events::millis;

/// The time in one state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct StateTime {
    /// The state.
    pub state: StateKind,
    /// The number of times that the state was entered.
    pub visits: u32,
    /// The time in the state.
    #[serde(rename = "time_ms", serialize_with = "millis")]
    pub time: TimeSpan,
    /// The time by phase.
    pub phases: Vec<PhaseTime>,
}

/// The time of one phase within a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PhaseTime {
    /// The phase.
    pub phase: TracePhase,
    /// The time.
    #[serde(rename = "time_ms", serialize_with = "millis")]
    pub time: TimeSpan,
}

/// A taken transition, with its count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TransitionCount {
    /// The state that was left.
    pub from: StateKind,
    /// The state that was entered.
    pub to: StateKind,
    /// The event by its name in the statechart, or `RESUMED`.
    pub event: &'static str,
    /// The count.
    pub count: u32,
}

/// Collects the times and the counts.
#[derive(Clone, Debug, Default)]
pub(super) struct TimeAccount {
    times: BTreeMap<(StateKind, TracePhase), TimeSpan>,
    visits: HashMap<StateKind, u32>,
    edges: BTreeMap<(StateKind, StateKind, &'static str), u32>,
    pub(super) total: TimeSpan,
}

impl TimeAccount {
    /// Counts a visit of a state.
    pub(super) fn enter(&mut self, state: StateKind) {
        *self.visits.entry(state).or_default() += 1;
    }

    /// Counts a transition.
    pub(super) fn count_edge(&mut self, from: StateKind, to: StateKind, event: &'static str) {
        *self.edges.entry((from, to, event)).or_default() += 1;
        self.enter(to);
    }

    /// Adds time to a state and phase.
    pub(super) fn add_time(&mut self, state: StateKind, phase: TracePhase, time: TimeSpan) {
        let sum = self.times.entry((state, phase)).or_default();
        *sum = add(*sum, time);
        self.total = add(self.total, time);
    }

    /// Splits the time of a completed request. Until then, all of it counted as waiting for the first byte.
    pub(super) fn split_call(&mut self, state: StateKind, waited: TimeSpan, times: CallTiming) {
        let encode = times.encode.min(waited);
        let rest = subtract(waited, encode);
        // Without a first byte, nothing was received.
        let stream =
            times.first_byte.map_or(TimeSpan::ZERO, |first_byte| subtract(rest, first_byte));
        for (phase, time) in [(TracePhase::Encoding, encode), (TracePhase::Stream, stream)] {
            let first_byte = self.times.entry((state, TracePhase::FirstByte)).or_default();
            let moved = time.min(*first_byte);
            *first_byte = subtract(*first_byte, moved);
            let sum = self.times.entry((state, phase)).or_default();
            *sum = add(*sum, moved);
        }
    }

    /// Returns the time of each state, in the order of the chart.
    pub(super) fn states(&self) -> Vec<StateTime> {
        let row = |state: StateKind| {
            let times = self.times.iter().filter(|((at, _), time)| *at == state && time.0 > 0);
            let phases = times.map(|(&(_, phase), &time)| PhaseTime { phase, time });
            let phases: Vec<PhaseTime> = phases.collect();
            let time = phases.iter().fold(TimeSpan::ZERO, |sum, phase| add(sum, phase.time));
            let visits = self.visits.get(&state).copied().unwrap_or(0);
            let is_used = visits > 0 || time > TimeSpan::ZERO;
            is_used.then_some(StateTime { state, visits, time, phases })
        };
        StateKind::ALL.into_iter().filter_map(row).collect()
    }

    /// Returns the taken transitions.
    pub(super) fn edges(&self) -> Vec<TransitionCount> {
        let edge = |(&(from, to, event), &count)| TransitionCount { from, to, event, count };
        self.edges.iter().map(edge).collect()
    }
}

pub(super) fn add(one: TimeSpan, other: TimeSpan) -> TimeSpan {
    TimeSpan(one.0.saturating_add(other.0))
}

pub(super) fn subtract(one: TimeSpan, other: TimeSpan) -> TimeSpan {
    TimeSpan(one.0.saturating_sub(other.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phases(account: &TimeAccount) -> Vec<(TracePhase, u64)> {
        let states = account.states();
        states.iter().flat_map(|s| &s.phases).map(|p| (p.phase, p.time.0)).collect()
    }

    #[test]
    fn the_time_of_a_request_is_split_when_it_comes_back() {
        let mut account = TimeAccount::default();
        account.add_time(StateKind::CallingSending, TracePhase::FirstByte, TimeSpan(100));
        let times = CallTiming {
            encode: TimeSpan(10),
            first_byte: Some(TimeSpan(60)),
            ..CallTiming::default()
        };
        account.split_call(StateKind::CallingSending, TimeSpan(100), times);
        let split =
            [(TracePhase::Encoding, 10), (TracePhase::FirstByte, 60), (TracePhase::Stream, 30)];
        assert_eq!(phases(&account), split);
        assert_eq!(account.total, TimeSpan(100));
    }

    #[test]
    fn no_time_is_made_by_times_that_don_t_fit() {
        let mut account = TimeAccount::default();
        account.add_time(StateKind::CallingSending, TracePhase::FirstByte, TimeSpan(100));
        let times = CallTiming {
            encode: TimeSpan(70),
            first_byte: Some(TimeSpan(u64::MAX)),
            ..CallTiming::default()
        };
        account.split_call(StateKind::CallingSending, TimeSpan(100), times);
        assert_eq!(phases(&account), [(TracePhase::Encoding, 70), (TracePhase::FirstByte, 30)]);
    }
}
