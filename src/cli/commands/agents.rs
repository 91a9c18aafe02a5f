//! `architect agents`: lists the agents.

use architect::app::ProcessEnv;
use architect::config::AgentDefinition;
use architect::model::pluralize;
use serde_json::json;

use crate::cli::args::AgentsArgs;
use crate::cli::error::CliError;
use crate::cli::{config_options, output};

pub(crate) fn run(args: &AgentsArgs, world: &ProcessEnv) -> Result<u8, CliError> {
    let config = config_options::load_settings(&args.settings, world)?;
    let text = if args.json {
        let agent = |agent: AgentDefinition| {
            json!({
                "name": agent.name.as_str(),
                "description": agent.description,
                "allowed_tools": agent.allowed_tools,
                "confirm_mode": agent.confirm_mode.as_str(),
                "max_steps": agent.max_steps,
            })
        };
        let agents: Vec<_> = config.agents().map(agent).collect();
        json!(agents).to_string()
    } else {
        let line = |agent: AgentDefinition| {
            format!(
                "{:<12} {}\n{:12} tools: {}; {}; at most {}\n",
                agent.name.as_str(),
                agent.description,
                "",
                agent.allowed_tools.join(", "),
                agent.confirm_mode.as_str(),
                pluralize(agent.max_steps, "step", "steps")
            )
        };
        config.agents().map(line).collect()
    };
    output::print(&text)
}
