//! The statechart as data: parsed from `statecharts/run.json`, queried, and interpreted.
//!
//! The machine doesn't execute it; tests compare the two, and `architect machine` prints it.

pub(super) mod transition_guards;

use serde_json::{Map, Value};
use thiserror::Error;

use crate::machine::chart::transition_guards::Guard;
use crate::machine::event::Event;
use crate::machine::state::{State, StateKind};

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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChartTransition {
    /// The path of the source state.
    pub from: String,
    /// The event.
    pub event: String,
    /// The guard.
    pub guard: Option<String>,
    /// The path of the target state.
    pub to: String,
    /// The description.
    pub description: String,
}

/// Why a statechart is invalid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ChartError {
    /// It is not JSON.
    #[error("the statechart is not JSON: {0}")]
    Json(String),
    /// Something is missing or has an unexpected type.
    #[error("the statechart has no {what} at {path:?}")]
    Missing {
        /// What is missing.
        what: &'static str,
        /// The path.
        path: String,
    },
    /// A target doesn't exist.
    #[error("{from:?} on {event} leads to {target:?}, which is no state")]
    UnknownTarget {
        /// The path of the state.
        from: String,
        /// The event.
        event: String,
        /// The target.
        target: String,
    },
    /// The code doesn't know a name of the chart.
    #[error("the code knows no {what} with the name {name:?}")]
    UnknownName {
        /// What the name stands for.
        what: &'static str,
        /// The name.
        name: String,
    },
}

impl Chart {
    /// Returns the statechart of a run.
    ///
    /// # Errors
    ///
    /// Fails if the embedded file is invalid; a test ensures that it isn't.
    pub fn for_run() -> Result<Self, ChartError> {
        Self::parse(CHART_JSON)
    }

    /// Parses a statechart.
    ///
    /// # Errors
    ///
    /// Fails if the text isn't JSON, something is missing, or a target doesn't exist.
    pub fn parse(text: &str) -> Result<Self, ChartError> {
        let root: Map<String, Value> =
            serde_json::from_str(text).map_err(|error| ChartError::Json(error.to_string()))?;
        let mut chart = Self {
            id: expect_string(&root, "id", "")?,
            description: expect_string(&root, "description", "").unwrap_or_default(),
            initial: expect_string(&root, "initial", "")?,
            states: Vec::new(),
            transitions: Vec::new(),
        };
        chart.read_states("", &root)?;
        chart.read_transitions("", &root)?;
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
    ) -> Result<(StateKind, Option<&ChartTransition>), ChartError> {
        let kind = state.kind();
        if event.effect_id().is_some() && !state.awaits(event) {
            return Ok((kind, None));
        }
        for transition in self.transitions_for(kind.name(), event.kind().name()) {
            let passes = match &transition.guard {
                Some(name) => parse_guard(name)?.holds(state, event),
                None => true,
            };
            if passes {
                return Ok((
                    parse_state_kind(self.initial_leaf(&transition.to))?,
                    Some(transition),
                ));
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

    fn read_states(&mut self, path: &str, node: &Map<String, Value>) -> Result<(), ChartError> {
        for (name, child) in child_states(node) {
            let path = join_path(path, name);
            let child = child
                .as_object()
                .ok_or_else(|| ChartError::Missing { what: "state", path: path.clone() })?;
            let initial = match child_states(child).next() {
                Some(_) => Some(join_path(&path, &expect_string(child, "initial", &path)?)),
                None => None,
            };
            self.states.push(ChartState {
                description: expect_string(child, "description", &path).unwrap_or_default(),
                is_final: child.get("type").and_then(Value::as_str) == Some("final"),
                path: path.clone(),
                initial,
            });
            self.read_states(&path, child)?;
        }
        Ok(())
    }

    fn read_transitions(
        &mut self,
        path: &str,
        node: &Map<String, Value>,
    ) -> Result<(), ChartError> {
        for (event, transitions) in expect_object(node, "on") {
            let transitions = match transitions {
                Value::Array(transitions) => transitions.as_slice(),
                Value::Null
                | Value::Bool(_)
                | Value::Number(_)
                | Value::String(_)
                | Value::Object(_) => std::slice::from_ref(transitions),
            };
            for transition in transitions {
                let transition = transition.as_object().ok_or_else(|| ChartError::Missing {
                    what: "transition",
                    path: path.to_owned(),
                })?;
                let to =
                    self.resolve_target(path, event, &expect_string(transition, "target", path)?)?;
                self.transitions.push(ChartTransition {
                    from: path.to_owned(),
                    event: event.clone(),
                    guard: transition.get("guard").and_then(Value::as_str).map(str::to_owned),
                    to,
                    description: expect_string(transition, "description", path).unwrap_or_default(),
                });
            }
        }
        for (name, child) in child_states(node) {
            if let Some(child) = child.as_object() {
                self.read_transitions(&join_path(path, name), child)?;
            }
        }
        Ok(())
    }

    /// Resolves a target: from the root, a child, or a sibling.
    fn resolve_target(&self, from: &str, event: &str, target: &str) -> Result<String, ChartError> {
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

/// Returns the state with this name.
fn parse_state_kind(name: &str) -> Result<StateKind, ChartError> {
    let unknown = || ChartError::UnknownName { what: "state", name: name.to_owned() };
    StateKind::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(unknown)
}

/// Returns the guard with this name.
fn parse_guard(name: &str) -> Result<Guard, ChartError> {
    let unknown = || ChartError::UnknownName { what: "guard", name: name.to_owned() };
    Guard::ALL.into_iter().find(|guard| guard.name() == name).ok_or_else(unknown)
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

fn expect_object<'a>(
    node: &'a Map<String, Value>,
    key: &str,
) -> impl Iterator<Item = (&'a String, &'a Value)> {
    node.get(key).and_then(Value::as_object).into_iter().flatten()
}

fn child_states(node: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
    expect_object(node, "states")
}

fn expect_string(
    node: &Map<String, Value>,
    what: &'static str,
    path: &str,
) -> Result<String, ChartError> {
    let missing = || ChartError::Missing { what, path: path.to_owned() };
    node.get(what).and_then(Value::as_str).map(str::to_owned).ok_or_else(missing)
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
    fn an_invalid_chart_is_reported() {
        let error = |text| Chart::parse(text).unwrap_err().to_string();
        assert!(error("{").starts_with("the statechart is not JSON"));
        assert_eq!(error(r#"{ "id": "c" }"#), r#"the statechart has no initial at """#);
        let lost = r#"{ "id": "c", "initial": "A", "states": { "A": { "on": { "X": { "target": "Z" } } } } }"#;
        assert_eq!(error(lost), r#""A" on X leads to "Z", which is no state"#);
    }
}
