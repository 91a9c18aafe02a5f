//! The statechart as data: parsed from `statecharts/run.json`, queried, and interpreted.
//!
//! The machine doesn't execute the chart; tests compare the two, and `architect machine` prints the chart.

pub(super) mod transition_guards;

use serde::Deserialize;
use serde_json::{Map, Value};
use thiserror::Error;

use crate::machine::chart::transition_guards::Guard;
use crate::machine::event::{Event, EventKind};
use crate::machine::state::{State, StateKind};
use crate::types::WordEnum;

type Result<T, E = ChartError> = std::result::Result<T, E>;

/// The text of the statechart: an XState v5 configuration.
pub const CHART_JSON: &str = include_str!("../../../statecharts/run.json");

/// A statechart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chart {
    /// The id.
    pub id: String,
    /// The description.
    pub description: String,
    /// The path of the initial state.
    pub initial: String,
    /// The states, parents before children.
    pub states: Vec<ChartState>,
    /// The transitions, in the order of evaluation.
    pub transitions: Vec<ChartTransition>,
}

/// A state of the chart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChartState {
    /// The path from the root, joined with dots.
    pub path: String,
    /// The description.
    pub description: String,
    /// The path of the initial child, if the state has children.
    pub initial: Option<String>,
    /// Whether the state is final.
    pub is_final: bool,
}

/// A transition from a state, or from the chart itself if `from` is empty.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ChartTransition {
    /// The path of the source state.
    #[serde(skip)]
    pub from: String,
    /// The event.
    #[serde(skip)]
    pub event: String,
    /// The guard.
    pub guard: Option<String>,
    /// The path of the target state. A transition that is written without a target leads from each state to itself.
    #[serde(default, rename = "target")]
    pub to: String,
    /// The description.
    #[serde(default)]
    pub description: String,
}

/// A bounded counter that a transition decreases, so that a run can't take it forever. Each is a part of the
/// [`rank`](crate::machine::rank()).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChartCounter {
    /// The remaining steps. A step resets the other counters.
    Steps,
    /// The remaining times that the model may be asked again, or the context be compacted, without a step.
    Repeats,
    /// The remaining fallback models.
    Models,
    /// The remaining attempts at a model call.
    Attempts,
    /// The remaining events for the tool calls of a reply.
    Calls,
    /// The commands that run in the background.
    Commands,
}

/// The reason why a statechart is invalid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ChartError {
    /// The text is not JSON, or something is missing or has an unexpected type.
    #[error("invalid statechart at {path:?}: {error}")]
    Invalid {
        /// The path of the state.
        path: String,
        /// The error.
        error: String,
    },
    /// A target doesn't exist.
    #[error("{from:?} on {event} leads to {target:?}, which is not a state")]
    UnknownTarget {
        /// The path of the state.
        from: String,
        /// The event.
        event: String,
        /// The target.
        target: String,
    },
    /// The code doesn't know a name of the chart.
    #[error("the code knows no state or guard with the name {0:?}")]
    UnknownName(String),
}

impl ChartTransition {
    /// Returns the counter that the transition decreases. A transition without a counter leads to a later phase of the
    /// run, or, on [`UsageReported`](Event::UsageReported), to the same state, which ends by time.
    pub fn counter(&self) -> Option<ChartCounter> {
        let guard = self.guard.as_deref().and_then(Guard::from_word);
        match guard {
            Some(Guard::HasCalls | Guard::NoCallCanRun) => Some(ChartCounter::Steps),
            Some(
                Guard::AskedAgain
                | Guard::CheckAsksAgain
                | Guard::ContextOverThreshold
                | Guard::ContextTooFull
                | Guard::OverflowSummarized
                | Guard::OverflowTrimmed,
            ) => Some(ChartCounter::Repeats),
            Some(Guard::TimeoutMayRetry | Guard::MayRetry | Guard::UnrecognizedMayRetry) => {
                Some(ChartCounter::Attempts)
            }
            Some(Guard::MayFallBack | Guard::TimeoutMayFallBack) => Some(ChartCounter::Models),
            _ if self.event == EventKind::CommandEnded.as_str() => Some(ChartCounter::Commands),
            _ if self.from == self.to && self.event != EventKind::UsageReported.as_str() => {
                Some(ChartCounter::Calls)
            }
            _ => None,
        }
    }
}

/// The chart or one of its states, as written in JSON.
#[derive(Deserialize)]
struct Node {
    #[serde(default)]
    id: String,
    #[serde(default)]
    description: String,
    initial: Option<String>,
    r#type: Option<String>,
    #[serde(default)]
    on: Map<String, Value>,
    #[serde(default)]
    states: Map<String, Value>,
}

/// The transitions for one event.
#[derive(Deserialize)]
#[serde(untagged)]
enum TransitionNodes {
    One(ChartTransition),
    Several(Vec<ChartTransition>),
}

impl Chart {
    /// Returns the statechart of a run.
    ///
    /// # Errors
    ///
    /// Fails if the embedded file is invalid; a test ensures that it isn't.
    pub fn for_run() -> Result<Self> {
        Self::parse(CHART_JSON)
    }

    /// Parses a statechart.
    ///
    /// # Errors
    ///
    /// Fails if the text isn't JSON, something is missing, or a target doesn't exist.
    pub fn parse(text: &str) -> Result<Self> {
        let root: Node = at_path("", serde_json::from_str(text))?;
        let mut chart = Self {
            id: root.id.clone(),
            description: root.description.clone(),
            initial: expect_initial("", &root)?,
            states: Vec::new(),
            transitions: Vec::new(),
        };
        let mut nodes = vec![(String::new(), root)];
        chart.read_states(0, &mut nodes)?;
        for (path, node) in nodes {
            chart.read_transitions(&path, node.on)?;
        }
        Ok(chart)
    }

    /// Returns the states without children.
    pub fn leaf_states(&self) -> impl Iterator<Item = &ChartState> {
        self.states.iter().filter(|node| node.initial.is_none())
    }

    /// Returns the transitions for an event in a state, in the order of evaluation: those of the state, of its parents, and of
    /// the chart. A final state has none.
    pub fn transitions_for<'a>(
        &'a self,
        leaf: &'a str,
        event: &'a str,
    ) -> impl Iterator<Item = &'a ChartTransition> {
        let is_final = self.states.iter().any(|node| node.path == leaf && node.is_final);
        path_and_ancestors(leaf).filter(move |_| !is_final).flat_map(move |path| {
            self.transitions
                .iter()
                .filter(move |transition| transition.from == path && transition.event == event)
        })
    }

    /// Returns the state of the chart after an event, and the transition that was taken, if any.
    ///
    /// # Errors
    ///
    /// Fails if the code doesn't know a name of the chart.
    pub fn next_state(
        &self,
        state: &State,
        event: &Event,
    ) -> Result<(StateKind, Option<&ChartTransition>)> {
        let kind = state.kind();
        if event.effect_id().is_some() && !state.awaits(event) {
            return Ok((kind, None));
        }
        for transition in self.transitions_for(kind.as_str(), event.kind().as_str()) {
            let passes = match &transition.guard {
                Some(name) => parse_name::<Guard>(name)?.holds(state, event),
                None => true,
            };
            if passes {
                let to = parse_name(self.initial_leaf(&transition.to))?;
                return Ok((to, Some(transition)));
            }
        }
        Ok((kind, None))
    }

    /// Returns the leaf state that is entered with the state at this path.
    pub fn initial_leaf<'a>(&'a self, path: &'a str) -> &'a str {
        match self.states.iter().find(|node| node.path == path) {
            Some(ChartState { initial: Some(initial), .. }) => self.initial_leaf(initial),
            Some(_) | None => path,
        }
    }

    /// Reads the states below the last of these nodes, and adds their nodes.
    fn read_states(&mut self, parent: usize, nodes: &mut Vec<(String, Node)>) -> Result<()> {
        for (name, child) in std::mem::take(&mut nodes[parent].1.states) {
            let path = join_path(&nodes[parent].0, &name);
            let node: Node = at_path(&path, serde_json::from_value(child))?;
            let initial = match node.states.is_empty() {
                true => None,
                false => Some(join_path(&path, &expect_initial(&path, &node)?)),
            };
            self.states.push(ChartState {
                path: path.clone(),
                description: node.description.clone(),
                initial,
                is_final: node.r#type.as_deref() == Some("final"),
            });
            nodes.push((path, node));
            self.read_states(nodes.len() - 1, nodes)?;
        }
        Ok(())
    }

    fn read_transitions(&mut self, path: &str, on: Map<String, Value>) -> Result<()> {
        for (event, written) in on {
            let written = match at_path(path, serde_json::from_value(written))? {
                TransitionNodes::One(one) => vec![one],
                TransitionNodes::Several(several) => several,
            };
            for transition in written {
                if transition.to.is_empty() {
                    self.add_stays(path, &event, &transition);
                    continue;
                }
                let to = self.resolve_target(path, &event, &transition.to)?;
                let (from, event) = (path.to_owned(), event.clone());
                self.transitions.push(ChartTransition { from, event, to, ..transition });
            }
        }
        Ok(())
    }

    /// Adds a transition without a target to each state without children at or below a path.
    fn add_stays(&mut self, path: &str, event: &str, transition: &ChartTransition) {
        let is_below = |leaf: &&ChartState| path_and_ancestors(&leaf.path).any(|it| it == path);
        let stays = self.leaf_states().filter(|leaf| !leaf.is_final).filter(is_below);
        let stays = stays.map(|leaf| ChartTransition {
            from: leaf.path.clone(),
            event: event.to_owned(),
            to: leaf.path.clone(),
            ..transition.clone()
        });
        let stays: Vec<_> = stays.collect();
        self.transitions.extend(stays);
    }

    /// Resolves a target: from the root, a child, or a sibling.
    fn resolve_target(&self, from: &str, event: &str, target: &str) -> Result<String> {
        let path = if let Some(path) = target.strip_prefix(&format!("#{}.", self.id)) {
            path.to_owned()
        } else if let Some(child) = target.strip_prefix('.') {
            join_path(from, child)
        } else {
            join_path(from.rsplit_once('.').map_or("", |(parent, _)| parent), target)
        };
        match self.states.iter().any(|node| node.path == path) {
            true => Ok(path),
            false => Err(ChartError::UnknownTarget {
                from: from.to_owned(),
                event: event.to_owned(),
                target: target.to_owned(),
            }),
        }
    }
}

/// Returns the state or the guard with this name.
fn parse_name<T: WordEnum>(name: &str) -> Result<T> {
    T::from_word(name).ok_or_else(|| ChartError::UnknownName(name.to_owned()))
}

fn at_path<T>(path: &str, read: serde_json::Result<T>) -> Result<T> {
    read.map_err(|error| ChartError::Invalid { path: path.to_owned(), error: error.to_string() })
}

fn expect_initial(path: &str, node: &Node) -> Result<String> {
    node.initial.clone().ok_or_else(|| ChartError::Invalid {
        path: path.to_owned(),
        error: "missing field `initial`".to_owned(),
    })
}

/// Returns the path itself, those of its parents, and the empty path of the chart.
fn path_and_ancestors(path: &str) -> impl Iterator<Item = &str> {
    fn parent<'a>(path: &&'a str) -> Option<&'a str> {
        (!path.is_empty()).then(|| path.rsplit_once('.').map_or("", |(parent, _)| parent))
    }
    std::iter::successors(Some(path), parent)
}

fn join_path(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_siblings_children_or_named_from_the_root() {
        let chart = Chart::parse(
            r##"{ "id": "c", "initial": "A", "on": { "X": { "target": ".B" } }, "states": {
                "A": { "initial": "P", "on": { "X": { "target": "B" } }, "states": {
                    "P": { "on": { "X": [{ "target": "Q", "guard": "g" }, { "target": "#c.B" }] } },
                    "Q": {} } },
                "B": { "type": "final" } } }"##,
        );
        let chart = chart.unwrap();
        let answers = |leaf, event| {
            chart
                .transitions_for(leaf, event)
                .map(|transition| transition.to.as_str())
                .collect::<Vec<_>>()
        };
        assert_eq!(answers("A.P", "X"), ["A.Q", "B", "B", "B"]);
        assert_eq!(answers("A.Q", "X"), ["B", "B"]);
        assert_eq!(answers("B", "X"), [""; 0]);
        assert_eq!(chart.initial_leaf("A"), "A.P");
    }

    #[test]
    fn without_a_target_each_state_stays() {
        let chart = Chart::parse(
            r#"{ "id": "c", "initial": "A", "on": { "X": {} }, "states": {
                "A": { "initial": "P", "on": { "Y": {} }, "states": { "P": {}, "Q": {} } },
                "B": {}, "C": { "type": "final" } } }"#,
        );
        let chart = chart.unwrap();
        let stays = |event| {
            let found = chart.transitions.iter().filter(move |it| it.event == event);
            let mut stays: Vec<_> = found.map(|it| (it.from.as_str(), it.to.as_str())).collect();
            stays.sort_unstable();
            stays
        };
        assert_eq!(stays("X"), [("A.P", "A.P"), ("A.Q", "A.Q"), ("B", "B")]);
        assert_eq!(stays("Y"), [("A.P", "A.P"), ("A.Q", "A.Q")]);
    }

    #[test]
    fn an_invalid_chart_is_reported() {
        let error = |text| Chart::parse(text).unwrap_err().to_string();
        assert!(error("{").starts_with(r#"invalid statechart at "": EOF while parsing"#));
        let no_initial = r#"invalid statechart at "": missing field `initial`"#;
        assert_eq!(error(r#"{ "id": "c" }"#), no_initial);
        let lost = r#"{ "id": "c", "initial": "A", "states": { "A": { "on": { "X": { "target": "Z" } } } } }"#;
        assert_eq!(error(lost), r#""A" on X leads to "Z", which is not a state"#);
    }
}
