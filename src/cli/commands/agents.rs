//! `architect agents`: the agents that there are.

use architect::app::World;
use architect::model::count;
use serde_json::json;

use crate::cli::args::ListArgs;
use crate::cli::error::Failure;
use crate::cli::output;
use crate::cli::settings::{self, Remembered};

pub(crate) fn run(args: &ListArgs, world: &World) -> Result<u8, Failure> {
    let (config, _) = settings::read(&args.settings, None, world, &Remembered::default())?;
    let text = if args.json {
        let agent = |agent: architect::config::Agent| {
            json!({
                "name": agent.name.as_str(),
                "description": agent.description,
                "allowed_tools": agent.allowed_tools,
                "confirm_mode": agent.confirm_mode.word(),
                "max_steps": agent.max_steps,
            })
        };
        let agents: Vec<_> = config.agents().map(agent).collect();
        json!(agents).to_string()
    } else {
        let line = |agent: architect::config::Agent| {
            format!(
                "{:<12} {}\n{:12} tools: {}; {}; at most {}\n",
                agent.name.as_str(),
                agent.description,
                "",
                agent.allowed_tools.join(", "),
                agent.confirm_mode.word(),
                count(agent.max_steps, "step", "steps")
            )
        };
        config.agents().map(line).collect()
    };
    output::print(&text)?;
    Ok(0)
}
