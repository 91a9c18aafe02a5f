//! All reachable states of a small model as a graph, for properties of whole runs that no single step shows.

use std::collections::HashMap;

use architect::machine::{Effect, Event, State, deadline, start};

use crate::explorer::{TransitionFn, canonical};
use crate::small_model::{self, SmallModel};

/// Reachable states in their canonical form, and the steps between them.
pub(crate) struct StateGraph {
    states: Vec<State>,
    steps: Vec<Vec<GraphStep>>,
}

/// A step to another state.
struct GraphStep {
    to: usize,
    /// Whether it begins a model call.
    calls: bool,
    /// Whether it sends a request.
    requests: bool,
    /// Whether it is the tick at the deadline.
    is_due: bool,
}

/// The longest path to the end, by its counts.
pub(crate) struct LongestPath {
    pub(crate) calls: u64,
    pub(crate) requests: u64,
    /// Whether time alone leads from every state to another one, except from the final ones.
    pub(crate) always_ends: bool,
}

impl StateGraph {
    pub(crate) fn of(world: &SmallModel, step: TransitionFn) -> Self {
        let first = canonical(start(world.rules.clone(), small_model::task()).state);
        let mut numbers = HashMap::from([(first.clone(), 0)]);
        let mut graph = Self { states: vec![first], steps: Vec::new() };
        while let Some(state) = graph.states.get(graph.steps.len()).cloned() {
            let mut steps = Vec::new();
            let due = deadline(&state).map(|due| due.at);
            for event in small_model::events(&state, world.words) {
                let is_due = matches!(event, Event::Tick { now } if Some(now) == due);
                let next = step(state.clone(), event);
                let sent = |first_only: bool| {
                    next.effects.iter().any(|effect| {
                        matches!(effect, Effect::CallModel { attempt, .. } if *attempt == 1 || !first_only)
                    })
                };
                let (calls, requests) = (sent(true), sent(false));
                let next = canonical(next.state);
                if next == state && !requests {
                    continue;
                }
                let number = numbers.len();
                let to = *numbers.entry(next).or_insert_with_key(|new| {
                    graph.states.push(new.clone());
                    number
                });
                steps.push(GraphStep { to, calls, requests, is_due });
            }
            graph.steps.push(steps);
            assert!(graph.states.len() < 30_000, "the model is too large for its graph");
        }
        graph
    }

    /// Returns the length of the longest paths to the end, or `None` if there is a cycle, on which a run could stay for
    /// ever.
    pub(crate) fn longest_path(&self) -> Option<LongestPath> {
        let mut left_in = vec![0; self.states.len()];
        self.steps.iter().flatten().for_each(|step| left_in[step.to] += 1);
        let mut longest = vec![(0, 0); self.states.len()];
        let (mut ready, mut seen) = (vec![0], 0);
        while let Some(state) = ready.pop() {
            seen += 1;
            for step in &self.steps[state] {
                let (calls, requests) = longest[state];
                let (most_calls, most_requests) = &mut longest[step.to];
                *most_calls = (*most_calls).max(calls + u64::from(step.calls));
                *most_requests = (*most_requests).max(requests + u64::from(step.requests));
                left_in[step.to] -= 1;
                if left_in[step.to] == 0 {
                    ready.push(step.to);
                }
            }
        }
        let ends = |(state, steps): (&State, &Vec<GraphStep>)| {
            state.outcome().is_some() || steps.iter().any(|step| step.is_due)
        };
        (seen == self.states.len()).then(|| LongestPath {
            calls: longest.iter().map(|(calls, _)| *calls).max().unwrap_or(0),
            requests: longest.iter().map(|(_, requests)| *requests).max().unwrap_or(0),
            always_ends: self.states.iter().zip(&self.steps).all(ends),
        })
    }
}
