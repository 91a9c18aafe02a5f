//! What can only be found out by trying it: the servers of a configuration, and its model with its key.

use std::sync::Arc;

use super::error::AppError;
use super::mcp;
use super::model::{Chosen, InSession};
use super::sandbox::Sandbox;
use super::world::World;
use crate::config::Config;
use crate::llm::scripted::ScriptPosition;
use crate::machine::{Change, Conversation, Purpose};
use crate::mcp::{Problem, Servers, Setup, Transport};
use crate::model::{Fault, Item, Origin, Tokens};
use crate::port::{Ask, Cancel};
use crate::runner;

/// What became of starting a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbedServer {
    /// Its name.
    pub name: String,
    /// Whether a run fails without it.
    pub is_required: bool,
    /// What was found.
    pub found: ServerFinding,
}

/// What was found out about a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerFinding {
    /// It has so many tools.
    Tools(usize),
    /// It can't be had.
    Missing(String),
    /// It is reached by the network, which was not to be used.
    NotTried,
}

/// Whether what lies behind the network is tried, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Programs of this machine alone.
    Local,
    /// Whatever the configuration names.
    Network,
}

/// Starts the servers of a configuration, lists their tools and ends them.
pub fn probe_servers(
    config: &Config,
    world: &World,
    sandbox: &Sandbox,
    reach: Reach,
) -> Vec<ProbedServer> {
    let (mut probed, mut specs) = (Vec::new(), Vec::new());
    for server in &config.settings.mcp.servers {
        let found = match mcp::spec(server, config.settings.limits.timeout, world) {
            Err(error) => ServerFinding::Missing(error.to_string()),
            Ok(spec)
                if reach == Reach::Local && matches!(spec.transport, Transport::Http { .. }) =>
            {
                ServerFinding::NotTried
            }
            Ok(spec) => {
                specs.push(spec);
                ServerFinding::Tools(0)
            }
        };
        let name = server.name.as_str().to_owned();
        probed.push(ProbedServer { name, is_required: server.required, found });
    }
    let (servers, problems) =
        Servers::start(specs, &Setup::new(sandbox.model.clone()), &Cancel::new());
    for server in &mut probed {
        if let ServerFinding::Tools(tools) = &mut server.found {
            *tools = servers.tools().iter().filter(|tool| *tool.server() == *server.name).count();
        }
        let missing = problems.iter().find_map(|problem| match problem {
            Problem::Missing { server: name, error, .. } if **name == *server.name => Some(error),
            Problem::Missing { .. } | Problem::Reduced { .. } => None,
        });
        if let Some(error) = missing {
            server.found = ServerFinding::Missing(error.to_string());
        }
    }
    probed
}

/// Asks a model for one word, and returns what the provider says when it refuses.
///
/// # Errors
///
/// Fails when the model can't be reached as it is set up.
pub fn probe_model(
    model: &Chosen,
    config: &Config,
    world: &World,
) -> Result<Result<(), Fault>, AppError> {
    let session = InSession { name: "", position: ScriptPosition::default(), record: &None };
    let mut model = model.connect(config, world, &session)?;
    let mut conversation = Conversation::new(0);
    conversation.apply(Change::Append { item: Item::user(Origin::Task, "Say: ok") });
    let ask = Ask {
        purpose: Purpose::Agent,
        attempt: 1,
        system: &Arc::from("Answer with one word."),
        tools: &Arc::from([]),
        entries: conversation.entries(),
        instruction: None,
        max_output: Some(MOST),
        schema: None,
    };
    let scope = runner::scope(Cancel::new());
    let asked = model.prepare(&ask).and_then(|call| call.run(&scope, &mut |_| {}));
    Ok(asked.map(drop))
}

/// What the reply may have; some providers refuse less.
const MOST: Tokens = Tokens(16);
