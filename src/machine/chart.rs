//! The statechart as data: read from `statecharts/run.json`, asked for its arrows, and interpreted.
//!
//! The machine does not run by it; tests hold the two against each other, and `architect machine` prints it.

use serde_json::{Map, Value};
use thiserror::Error;

use super::event::Event;
use super::guard::Guard;
use super::state::{State, StateKind};

/// The text of the statechart: an XState v5 configuration.
pub const SOURCE: &str = include_str!("../../statecharts/run.json");

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
    pub nodes: Vec<Node>,
    /// The arrows, in the order in which they are tried.
    pub arrows: Vec<Arrow>,
}

/// A state, by the path from the top; its parts are joined with dots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
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
pub struct Arrow {
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
    Target {
        /// The path of the state.
        from: String,
        /// The event.
        event: String,
        /// The target.
        target: String,
    },
    /// A name of the chart means nothing to the code.
    #[error("the code knows no {what} with the name {name:?}")]
    Unknown {
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
    pub fn of_run() -> Result<Self, ChartError> {
        Self::read(SOURCE)
    }

    /// Reads a statechart from its text.
    ///
    /// # Errors
    ///
    /// Fails when the text is not JSON, something needed is missing, or a target names no state.
    pub fn read(text: &str) -> Result<Self, ChartError> {
        let root: Map<String, Value> =
            serde_json::from_str(text).map_err(|error| ChartError::Json(error.to_string()))?;
        let mut chart = Self {
            id: string(&root, "id", "")?,
            description: string(&root, "description", "").unwrap_or_default(),
            initial: string(&root, "initial", "")?,
            nodes: Vec::new(),
            arrows: Vec::new(),
        };
        chart.nodes_below("", &root)?;
        chart.arrows_below("", &root)?;
        Ok(chart)
    }

    /// Returns the states that have none of their own.
    pub fn leaves(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(|node| node.initial.is_none())
    }

    /// Returns the arrows that an event finds in a state, in the order in which they are tried: first those of the
    /// state, then those of the states around it, in the end those of the chart. A final state has none.
    pub fn answers<'a>(&'a self, leaf: &'a str, event: &'a str) -> impl Iterator<Item = &'a Arrow> {
        let is_final = self.nodes.iter().any(|node| node.path == leaf && node.is_final);
        ancestry(leaf).filter(move |_| !is_final).flat_map(move |path| {
            self.arrows.iter().filter(move |arrow| arrow.from == path && arrow.event == event)
        })
    }

    /// Returns the state in which the chart is after an event, and the arrow that led there, if any did.
    ///
    /// # Errors
    ///
    /// Fails when a name of the chart means nothing to the code.
    pub fn interpret(
        &self,
        state: &State,
        event: &Event,
    ) -> Result<(StateKind, Option<&Arrow>), ChartError> {
        let kind = state.kind();
        if event.about().is_some() && !state.awaits(event) {
            return Ok((kind, None));
        }
        for arrow in self.answers(kind.name(), event.kind().name()) {
            let passes = match &arrow.guard {
                Some(name) => guard(name)?.holds(state, event),
                None => true,
            };
            if passes {
                return Ok((state_kind(self.begin(&arrow.to))?, Some(arrow)));
            }
        }
        Ok((kind, None))
    }

    /// Returns the innermost state in which the chart is when it enters the one with this path.
    pub fn begin<'a>(&'a self, path: &'a str) -> &'a str {
        match self.nodes.iter().find(|node| node.path == path) {
            Some(Node { initial: Some(initial), .. }) => self.begin(initial),
            Some(_) | None => path,
        }
    }

    fn nodes_below(&mut self, path: &str, node: &Map<String, Value>) -> Result<(), ChartError> {
        for (name, child) in states(node) {
            let path = join(path, name);
            let child = child
                .as_object()
                .ok_or_else(|| ChartError::Missing { what: "state", path: path.clone() })?;
            let initial = match states(child).next() {
                Some(_) => Some(join(&path, &string(child, "initial", &path)?)),
                None => None,
            };
            self.nodes.push(Node {
                description: string(child, "description", &path).unwrap_or_default(),
                is_final: child.get("type").and_then(Value::as_str) == Some("final"),
                path: path.clone(),
                initial,
            });
            self.nodes_below(&path, child)?;
        }
        Ok(())
    }

    fn arrows_below(&mut self, path: &str, node: &Map<String, Value>) -> Result<(), ChartError> {
        for (event, arrows) in object(node, "on") {
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
                let to = self.resolve(path, event, &string(arrow, "target", path)?)?;
                self.arrows.push(Arrow {
                    from: path.to_owned(),
                    event: event.clone(),
                    guard: arrow.get("guard").and_then(Value::as_str).map(str::to_owned),
                    to,
                    description: string(arrow, "description", path).unwrap_or_default(),
                });
            }
        }
        for (name, child) in states(node) {
            if let Some(child) = child.as_object() {
                self.arrows_below(&join(path, name), child)?;
            }
        }
        Ok(())
    }

    /// Returns the path that a target means: from the top, a child, or a neighbour.
    fn resolve(&self, from: &str, event: &str, target: &str) -> Result<String, ChartError> {
        let path = if let Some(path) = target.strip_prefix(&format!("#{}.", self.id)) {
            path.to_owned()
        } else if let Some(child) = target.strip_prefix('.') {
            join(from, child)
        } else {
            join(from.rsplit_once('.').map_or("", |(parent, _)| parent), target)
        };
        match self.nodes.iter().any(|node| node.path == path) {
            true => Ok(path),
            false => Err(ChartError::Target {
                from: from.to_owned(),
                event: event.to_owned(),
                target: target.to_owned(),
            }),
        }
    }
}

/// Returns the state with this name.
fn state_kind(name: &str) -> Result<StateKind, ChartError> {
    let unknown = || ChartError::Unknown { what: "state", name: name.to_owned() };
    StateKind::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(unknown)
}

/// Returns the guard with this name.
fn guard(name: &str) -> Result<Guard, ChartError> {
    let unknown = || ChartError::Unknown { what: "guard", name: name.to_owned() };
    Guard::ALL.into_iter().find(|guard| guard.name() == name).ok_or_else(unknown)
}

/// Returns the path itself, those of the states around it, and in the end the empty one of the chart.
fn ancestry(path: &str) -> impl Iterator<Item = &str> {
    fn parent<'a>(path: &&'a str) -> Option<&'a str> {
        (!path.is_empty()).then(|| path.rsplit_once('.').map_or("", |(parent, _)| parent))
    }
    std::iter::successors(Some(path), parent)
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn object<'a>(
    node: &'a Map<String, Value>,
    key: &str,
) -> impl Iterator<Item = (&'a String, &'a Value)> {
    node.get(key).and_then(Value::as_object).into_iter().flatten()
}

fn states(node: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
    object(node, "states")
}

fn string(node: &Map<String, Value>, what: &'static str, path: &str) -> Result<String, ChartError> {
    let missing = || ChartError::Missing { what, path: path.to_owned() };
    node.get(what).and_then(Value::as_str).map(str::to_owned).ok_or_else(missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_neighbours_children_or_named_from_the_top() {
        let chart = Chart::read(
            r##"{ "id": "c", "initial": "A", "on": { "X": { "target": ".B" } }, "states": {
                "A": { "initial": "P", "on": { "X": { "target": "B" } }, "states": {
                    "P": { "on": { "X": [{ "target": "Q", "guard": "g" }, { "target": "#c.B" }] } },
                    "Q": {} } },
                "B": { "type": "final" } } }"##,
        );
        let chart = chart.unwrap();
        let answers = |leaf, event| {
            chart.answers(leaf, event).map(|arrow| arrow.to.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(answers("A.P", "X"), ["A.Q", "B", "B", "B"]);
        assert_eq!(answers("A.Q", "X"), ["B", "B"]);
        assert_eq!(answers("B", "X"), [""; 0]);
        assert_eq!(chart.begin("A"), "A.P");
    }

    #[test]
    fn a_damaged_chart_says_what_is_wrong() {
        let error = |text| Chart::read(text).unwrap_err().to_string();
        assert!(error("{").starts_with("the statechart is not JSON"));
        assert_eq!(error(r#"{ "id": "c" }"#), r#"the statechart has no initial at """#);
        let lost = r#"{ "id": "c", "initial": "A", "states": { "A": { "on": { "X": { "target": "Z" } } } } }"#;
        assert_eq!(error(lost), r#""A" on X leads to "Z", which is no state"#);
    }
}
