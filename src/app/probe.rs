//! Probes of the configured servers, and of the model with its key.

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

/// The result of probing a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerProbe {
    /// The name of the server.
    pub name: String,
    /// Whether a run fails without the server.
    pub is_required: bool,
    /// The finding.
    pub finding: ServerFinding,
}

/// The finding about a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerFinding {
    /// The server started, with this number of tools.
    Tools(usize),
    /// The server is unavailable, for this reason.
    Unavailable(String),
    /// The server was not probed, because the network must not be used.
    NotProbed,
}

/// Whether servers on the network are probed, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeScope {
    /// Only programs of this machine.
    Local,
    /// All configured servers.
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

/// Masks possible secrets in the names of programs in errors.
fn mask_programs(config: &Config, probed: &mut [ServerProbe]) {
    for (server, probe) in config.settings.mcp.servers.iter().zip(probed) {
        if let (Some(program), ServerFinding::Unavailable(error)) =
            (server.command.as_deref().filter(|program| !program.is_empty()), &mut probe.finding)
        {
            *error = error.replace(program, &mask_command(program));
        }
    }
}

/// Asks a model for one word, and returns the provider's error if it refuses.
///
/// # Errors
///
/// Fails if the model can't be reached with its settings.
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

/// The output limit of the probe; some providers refuse a lower one.
const MAX_REPLY_TOKENS: Tokens = Tokens(16);
