//! Tries the servers of a configuration, and its model with its key.

use std::sync::Arc;

use super::configured_servers;
use super::error::AppError;
use super::process_env::ProcessEnv;
use super::resolved_model::ResolvedModel;
use super::sandbox::Sandbox;
use crate::config::{Config, mask_command};
use crate::llm::scripted::ScriptPosition;
use crate::machine::{CallPurpose, Conversation, ConversationChange};
use crate::mcp::{McpServers, ServerProblem, ServerSetup};
use crate::port::{CancellationToken, ModelRequest};
use crate::runner;
use crate::types::{ConversationItem, Fault, MessageOrigin, Tokens};

/// What became of starting a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerProbe {
    /// Its name.
    pub name: String,
    /// Whether a run fails without it.
    pub is_required: bool,
    /// What was found.
    pub finding: ServerFinding,
}

/// What was found out about a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerFinding {
    /// It has so many tools.
    Tools(usize),
    /// It can't be had.
    Unavailable(String),
    /// It is reached by the network, which was not to be used.
    NotProbed,
}

/// Whether servers on the network are tried too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeScope {
    /// Programs of this machine alone.
    Local,
    /// Whatever the configuration names.
    Network,
}

/// Starts the servers of a configuration, lists their tools and ends them.
pub fn probe_servers(
    config: &Config,
    world: &ProcessEnv,
    sandbox: &Sandbox,
    reach: ProbeScope,
) -> Vec<ServerProbe> {
    let (mut probed, mut specs) = (Vec::new(), Vec::new());
    for server in &config.settings.mcp.servers {
        let finding =
            match configured_servers::server_spec(server, config.settings.limits.timeout, world) {
                Err(error) => ServerFinding::Unavailable(error.to_string()),
                Ok(_) if reach == ProbeScope::Local && server.url.is_some() => {
                    ServerFinding::NotProbed
                }
                Ok(spec) => {
                    specs.push(spec);
                    ServerFinding::Tools(0)
                }
            };
        let name = server.name.to_string();
        probed.push(ServerProbe { name, is_required: server.required, finding });
    }
    let setup = ServerSetup::new(sandbox.model.clone());
    let (servers, problems) =
        McpServers::start(specs, &setup, &CancellationToken::new(), &|_, _| {});
    for server in &mut probed {
        if let ServerFinding::Tools(tools) = &mut server.finding {
            *tools = servers.tools().iter().filter(|tool| *tool.server() == *server.name).count();
        }
    }
    for problem in problems {
        if let ServerProblem::Unavailable { server: name, error, .. } = problem
            && let Some(server) = probed.iter_mut().find(|server| *server.name == *name)
        {
            server.finding = ServerFinding::Unavailable(error.to_string());
        }
    }
    mask_programs(config, &mut probed);
    probed
}

/// Masks what may be secrets in the names of programs that errors contain.
fn mask_programs(config: &Config, probed: &mut [ServerProbe]) {
    for (server, probe) in config.settings.mcp.servers.iter().zip(probed) {
        if let (Some(program), ServerFinding::Unavailable(error)) =
            (server.command.as_deref().filter(|program| !program.is_empty()), &mut probe.finding)
        {
            *error = error.replace(program, &mask_command(program));
        }
    }
}

/// Asks a model for one word, and returns what the provider says when it refuses.
///
/// # Errors
///
/// Fails when the model can't be reached as it is set up.
pub fn probe_model(
    model: &ResolvedModel,
    config: &Config,
    world: &ProcessEnv,
) -> Result<Result<(), Fault>, AppError> {
    let mut model = model.connect(config, world, "", ScriptPosition::default(), None)?;
    let mut conversation = Conversation::new(0);
    conversation.apply(ConversationChange::Append {
        item: ConversationItem::user(MessageOrigin::Task, "Say: ok"),
    });
    let ask = ModelRequest {
        model: 0,
        purpose: CallPurpose::Agent,
        attempt: 1,
        system: &Arc::from("Answer with one word."),
        tools: &Arc::from([]),
        entries: conversation.entries(),
        input_bound: Tokens::ZERO,
        instruction: None,
        max_output: Some(MAX_REPLY_TOKENS),
        schema: None,
    };
    let scope = runner::real_time_context(CancellationToken::new());
    let asked = model.prepare(&ask).and_then(|call| call.run(&scope, &mut |_| {}));
    Ok(asked.map(drop))
}

/// What the reply may have; some providers refuse less.
const MAX_REPLY_TOKENS: Tokens = Tokens(16);
