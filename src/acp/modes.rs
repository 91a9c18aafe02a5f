//! Modes of a session: the confirmation modes of the default agent, and the other agents.

use agent_client_protocol_schema::v1::{SessionMode, SessionModeState};

use crate::config::{AgentDefinition, Config};
use crate::types::ConfirmMode;

/// The agent that continues interrupted work. It is not a mode: a session continues without it.
const RESUME_AGENT: &str = "resume";

/// The agent and the confirmation mode of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ChosenMode {
    pub(super) agent: Option<String>,
    pub(super) mode: Option<ConfirmMode>,
}

/// Returns the available modes of a session, and its present mode.
pub(super) fn mode_state(
    config: &Config,
    default_agent: &str,
    agent: &AgentDefinition,
) -> SessionModeState {
    let is_default = agent.name.as_str() == default_agent;
    let current = if is_default { agent.confirm_mode.as_str() } else { agent.name.as_str() };
    let confirming = ConfirmMode::ALL.into_iter().map(|mode| {
        let (name, description) = match mode {
            ConfirmMode::ConfirmAll => ("Ask always", "Asks before every call of a tool"),
            ConfirmMode::ConfirmSensitive => {
                ("Ask before changes", "Asks before calls that change something")
            }
            ConfirmMode::Yolo => ("Don't ask", "Never asks; rules and limits still apply"),
        };
        SessionMode::new(mode.as_str(), name).description(description.to_owned())
    });
    let others = other_agents(config, default_agent).map(|other| {
        SessionMode::new(other.name.to_string(), capitalized(other.name.as_str()))
            .description(other.description)
    });
    SessionModeState::new(current.to_owned(), confirming.chain(others).collect())
}

/// Returns the agents except the default one and [`RESUME_AGENT`].
pub(super) fn other_agents(
    config: &Config,
    default_agent: &str,
) -> impl Iterator<Item = AgentDefinition> {
    let is_other = move |name: &str| name != default_agent && name != RESUME_AGENT;
    config.agents().filter(move |agent| is_other(agent.name.as_str()))
}

/// Returns the agent and confirmation mode for a mode's id; `None` if the id is unknown.
pub(super) fn parse_mode(config: &Config, default_agent: &str, id: &str) -> Option<ChosenMode> {
    if let Some(mode) = ConfirmMode::ALL.into_iter().find(|mode| mode.as_str() == id) {
        return Some(ChosenMode { agent: Some(default_agent.to_owned()), mode: Some(mode) });
    }
    let is_known = config.agents().any(|agent| agent.name.as_str() == id);
    is_known.then(|| ChosenMode { agent: Some(id.to_owned()), mode: None })
}

fn capitalized(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
