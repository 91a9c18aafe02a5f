//! Commands at the beginning of a prompt: `/plan`, `/review`, other agents, `/diff`.

use agent_client_protocol_schema::v1::{
    AvailableCommand, AvailableCommandInput, UnstructuredCommandInput,
};

use super::modes::other_agents;
use crate::config::Config;

/// Name of the command that shows the changes of the session.
const DIFF: &str = "diff";

/// A parsed prompt.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PromptCommand<'a> {
    /// A task for the agent of the session.
    Task(&'a str),
    /// A task for another agent.
    TaskFor(String, &'a str),
    /// A request for the changes of the session.
    Diff,
}

/// Returns the commands available in a session.
pub(super) fn available_commands(config: &Config, default_agent: &str) -> Vec<AvailableCommand> {
    let input =
        || AvailableCommandInput::Unstructured(UnstructuredCommandInput::new("what to work on"));
    let agents = other_agents(config, default_agent).map(|agent| {
        AvailableCommand::new(agent.name.to_string(), agent.description).input(input())
    });
    let diff = AvailableCommand::new(DIFF, "Show what this session has changed");
    agents.chain([diff]).collect()
}

/// Parses a prompt. A text that begins like a command, but names none, is a task.
pub(super) fn parse_command<'a>(
    config: &Config,
    default_agent: &str,
    text: &'a str,
) -> PromptCommand<'a> {
    let Some(command) = text.trim_start().strip_prefix('/') else {
        return PromptCommand::Task(text);
    };
    let (name, rest) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
    let rest = rest.trim();
    if name == DIFF && rest.is_empty() {
        return PromptCommand::Diff;
    }
    let mut agents = other_agents(config, default_agent);
    match agents.find(|agent| agent.name.as_str() == name) {
        Some(agent) if !rest.is_empty() => PromptCommand::TaskFor(agent.name.to_string(), rest),
        _ => PromptCommand::Task(text),
    }
}
