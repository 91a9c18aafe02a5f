//! The statechart as data: read from `statecharts/run.json`, asked for its arrows, and interpreted.
//!
//! The machine does not run by it; tests hold the two against each other, and `architect machine` prints it.

pub(super) mod guard;

use serde_json::{Map, Value};
use thiserror::Error;

use crate::machine::chart::guard::Guard;
use crate::machine::event::Event;
use crate::machine::state::{State, StateKind};

/// The text of the statechart: an XState v5 configuration.
pub const CHART_JSON: &str = include_str!("../../../statecharts/run.json");

/// A statechart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chart {
    /// Its name.
    pub id: String,
    /// What it is about.
    pub description: String,
    /// The state in which it begins.
    pub initial: String,
    /// The states, those around others first.
    pub states: Vec<ChartState>,
    /// The arrows, in the order in which they are tried.
    pub transitions: Vec<ChartTransition>,
}

/// A state, by the path from the top; its parts are joined with dots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChartState {
    /// The path from the top.
    pub path: String,
    /// What it is about.
    pub description: String,
    /// Where it begins, when it has states of its own.
    pub initial: Option<String>,
    /// Whether nothing leads out of it.
    pub is_final: bool,
}

/// An arrow from a state, or from the chart itself when the path is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChartTransition {
    /// The path of the state that it leaves.
    pub from: String,
    /// The event that it answers.
    pub event: String,
    /// The guard that has to hold.
    pub guard: Option<String>,
    /// The path of the state that it enters.
    pub to: String,
    /// What it is about.
    pub description: String,
}

/// What is wrong with a statechart.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ChartError {
    /// It is not JSON.
    #[error("the statechart is not JSON: {0}")]
    Json(String),
    /// Something is missing or has another form than expected.
    #[error("the statechart has no {what} at {path:?}")]
    Missing {
        /// What is missing.
        what: &'static str,
        /// Where.
        path: String,
    },
    /// A target names no state.
    #[error("{from:?} on {event} leads to {target:?}, which is no state")]
    UnknownTarget {
        /// The path of the state.
        from: String,
        /// The event.
        event: String,
        /// The target.
        target: String,
    },
    /// A name of the chart means nothing to the code.
    #[error("the code knows no {what} with the name {name:?}")]
    UnknownName {
        /// What it would be.
        what: &'static str,
        /// Its name.
        name: String,
    },
}

impl Chart {
    /// Returns the statechart of a run.
    ///
    /// # Errors
    ///
    /// Fails when the file in the repository is damaged; a test sees to it that it isn't.
    pub fn for_run() -> Result<Self, ChartError> {
        Self::parse(CHART_JSON)
    }

    /// Reads a statechart from its text.
    ///
    /// # Errors
    ///
    /// Fails when the text is not JSON, something needed is missing, or a target names no state.
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

    /// Returns the states that have none of their own.
    pub fn leaf_states(&self) -> impl Iterator<Item = &ChartState> {
        self.states.iter().filter(|node| node.initial.is_none())
    }

    /// Returns the arrows that an event finds in a state, in the order in which they are tried: first those of the
    /// state, then those of the states around it, in the end those of the chart. A final state has none.
    pub fn transitions_for<'a>(
        &'a self,
        leaf: &'a str,
        event: &'a str,
    ) -> impl Iterator<Item = &'a ChartTransition> {
        let is_final = self.states.iter().any(|node| node.path == leaf && node.is_final);
        path_and_ancestors(leaf).filter(move |_| !is_final).flat_map(move |path| {
            self.transitions.iter().filter(move |arrow| arrow.from == path && arrow.event == event)
        })
    }

    /// Returns the state in which the chart is after an event, and the arrow that led there, if any did.
    ///
    /// # Errors
    ///
    /// Fails when a name of the chart means nothing to the code.
    pub fn next_state(
        &self,
        state: &State,
        event: &Event,
    ) -> Result<(StateKind, Option<&ChartTransition>), ChartError> {
        let kind = state.kind();
        if event.effect_id().is_some() && !state.awaits(event) {
            return Ok((kind, None));
        }
        for arrow in self.transitions_for(kind.name(), event.kind().name()) {
            let passes = match &arrow.guard {
                Some(name) => parse_guard(name)?.holds(state, event),
                None => true,
            };
            if passes {
                return Ok((parse_state_kind(self.initial_leaf(&arrow.to))?, Some(arrow)));
            }
        }
        Ok((kind, None))
    }

    /// Returns the innermost state in which the chart is when it enters the one with this path.
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
        for (event, arrows) in expect_object(node, "on") {
            let arrows = match arrows {
                Value::Array(arrows) => arrows.as_slice(),
                Value::Null
                | Value::Bool(_)
                | Value::Number(_)
                | Value::String(_)
                | Value::Object(_) => std::slice::from_ref(arrows),
            };
            for arrow in arrows {
                let arrow = arrow
                    .as_object()
                    .ok_or_else(|| ChartError::Missing { what: "arrow", path: path.to_owned() })?;
                let to =
                    self.resolve_target(path, event, &expect_string(arrow, "target", path)?)?;
                self.transitions.push(ChartTransition {
                    from: path.to_owned(),
                    event: event.clone(),
                    guard: arrow.get("guard").and_then(Value::as_str).map(str::to_owned),
                    to,
                    description: expect_string(arrow, "description", path).unwrap_or_default(),
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

    /// Returns the path that a target means: from the top, a child, or a neighbour.
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

/// Returns the path itself, those of the states around it, and in the end the empty one of the chart.
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
    fn targets_are_neighbours_children_or_named_from_the_top() {
        let chart = Chart::parse(
            r##"{ "id": "c", "initial": "A", "on": { "X": { "target": ".B" } }, "states": {
                "A": { "initial": "P", "on": { "X": { "target": "B" } }, "states": {
                    "P": { "on": { "X": [{ "target": "Q", "guard": "g" }, { "target": "#c.B" }] } },
                    "Q": {} } },
                "B": { "type": "final" } } }"##,
        );
        let chart = chart.unwrap();
        let answers = |leaf, event| {
            chart.transitions_for(leaf, event).map(|arrow| arrow.to.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(answers("A.P", "X"), ["A.Q", "B", "B", "B"]);
        assert_eq!(answers("A.Q", "X"), ["B", "B"]);
        assert_eq!(answers("B", "X"), [""; 0]);
        assert_eq!(chart.initial_leaf("A"), "A.P");
    }

    #[test]
    fn a_damaged_chart_says_what_is_wrong() {
        let error = |text| Chart::parse(text).unwrap_err().to_string();
        assert!(error("{").starts_with("the statechart is not JSON"));
        assert_eq!(error(r#"{ "id": "c" }"#), r#"the statechart has no initial at """#);
        let lost = r#"{ "id": "c", "initial": "A", "states": { "A": { "on": { "X": { "target": "Z" } } } } }"#;
        assert_eq!(error(lost), r#""A" on X leads to "Z", which is no state"#);
    }
}
