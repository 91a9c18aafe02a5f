//! The trajectory of a stored session.

use std::collections::HashSet;

use serde_json::{Map, json};

use super::error::AppError;
use super::trace::{dispatched_session, is_dispatcher};
use crate::journal::{SessionHistory, SessionId, SessionStore, StoredContent};
use crate::view::atif::{Trajectory, TrajectoryAgent, TrajectoryBuilder, TrajectoryRecord};

/// Returns the trajectory of a stored session, with those of its stored sub-agents.
///
/// # Errors
///
/// Fails if there is no such session, or it can't be read.
pub fn session_trajectory(
    store: &SessionStore,
    session: SessionId,
) -> Result<Trajectory, AppError> {
    let mut seen = HashSet::from([session]);
    Ok(trajectory(store, session, &mut seen)?.0)
}

/// Returns a trajectory, and the history of its session.
fn trajectory(
    store: &SessionStore,
    session: SessionId,
    seen: &mut HashSet<SessionId>,
) -> Result<(Trajectory, SessionHistory), AppError> {
    let (mut builder, mut dispatched) = (None, Vec::new());
    let (history, _) = store.replay(session, |history, stored, _| {
        let event = match &stored.content {
            StoredContent::Event(event) => Some(event),
            _ => None,
        };
        dispatched.extend(event.and_then(dispatched_session));
        let at = history.epoch.plus(stored.at).to_string();
        let (machine, output) = (&history.machine, &history.output);
        builder.get_or_insert_with(|| begin(history)).add(&TrajectoryRecord {
            at: &at,
            event,
            machine,
            output,
        });
    })?;
    let at = history.epoch.plus(history.at).to_string();
    let (machine, output) = (&history.machine, &history.output);
    let last = TrajectoryRecord { at: &at, event: None, machine, output };
    let builder = builder.unwrap_or_else(|| begin(&history));
    let mut trajectory_of = builder.finish(session.to_string(), &last, history.stop_reason());
    for child in dispatched {
        if !seen.insert(child) {
            continue;
        }
        // A removed session is left out.
        let Ok((found, child)) = trajectory(store, child, seen) else { continue };
        let parent = child.header.dispatched_by;
        if let Some(parent) = parent.filter(|parent| is_dispatcher(parent, &history)) {
            trajectory_of.add_subagent(&parent.call.to_string(), found);
        }
    }
    Ok((trajectory_of, history))
}

fn begin(history: &SessionHistory) -> TrajectoryBuilder {
    let (header, setup) = (&history.header, &history.setup);
    let (name, version) = header.program.split_once(' ').unwrap_or((&header.program, "unknown"));
    let tools = setup.tools.iter().map(|tool| {
        json!({"type": "function", "function": {
            "name": tool.name, "description": tool.description, "parameters": tool.schema,
        }})
    });
    let extra = [
        ("agent", json!(setup.agent)),
        ("workspace", json!(setup.workspace.root.display().to_string())),
    ];
    let agent = TrajectoryAgent {
        name: name.to_owned(),
        version: version.to_owned(),
        model_name: Some(setup.model.to_string()),
        tool_definitions: tools.collect(),
        extra: Map::from_iter(extra.map(|(key, value)| (key.to_owned(), value))),
    };
    let (machine, output) = header.start_machine();
    let at = header.created.to_string();
    let start = TrajectoryRecord { at: &at, event: None, machine: &machine, output: &output };
    TrajectoryBuilder::begin(agent, &setup.system, &start)
}
