//! Tools of MCP servers, among the others and under the same rules.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::error::AppError;
use super::sandbox::Sandbox;
use super::world::World;
use crate::config::{Config, Hidden, McpServer, McpTransport};
use crate::mcp::{self, Answer, Filter, Instructions, Necessity, Servers, Spec, Transport};
use crate::model::{Access, Span};
use crate::net::{Endpoint, Limits, Options};
use crate::port::{Cancel, ToolSpec};
use crate::tools::{Context, Kind, Output, Prepared, Tool};

/// Starts the servers of a configuration, within the time that the whole run has. When that is cancelled, there are none,
/// and the run is to end before it needs them.
///
/// # Errors
///
/// Fails when one that is required can't be had.
pub(super) fn start(
    config: &Config,
    world: &World,
    sandbox: &Sandbox,
    cancel: &Cancel,
) -> Result<Servers, AppError> {
    let mut specs = Vec::new();
    for server in &config.settings.mcp.servers {
        match spec(server, config.settings.limits.timeout, world) {
            Ok(spec) => specs.push(spec),
            Err(error) if server.required => return Err(error),
            Err(error) => log::warn!("{error}"),
        }
    }
    if specs.is_empty() {
        return Ok(Servers::default());
    }
    let setup = mcp::Setup::new(sandbox.model.clone());
    let (servers, problems) = Servers::start(specs, &setup, cancel);
    if cancel.is_cancelled() {
        return Ok(servers);
    }
    for problem in problems {
        if problem.is_fatal() {
            return Err(AppError::Server(problem.to_string()));
        }
        log::warn!("{problem}");
    }
    Ok(servers)
}

/// Returns a system prompt with how the servers want to be used of which there are tools. Each line is marked, since it
/// is not the user who says it.
pub(super) fn instructed(prompt: Arc<str>, servers: &Servers, tools: &[ToolSpec]) -> Arc<str> {
    let is_used = |server: &str| {
        let mut own = servers.tools().iter().filter(|tool| tool.server() == server);
        own.any(|own| tools.iter().any(|tool| tool.name == own.spec().name))
    };
    let told: Vec<_> = servers.instructions().iter().filter(|told| is_used(&told.server)).collect();
    if told.is_empty() {
        return prompt;
    }
    let mut text = format!("{prompt}\n## MCP Servers\n\n{HEARSAY}\n");
    for Instructions { server, text: said } in told {
        text.push_str(&format!("\n### {server}\n\n"));
        said.trim().lines().for_each(|line| text.push_str(&format!("> {line}\n")));
    }
    text.into()
}

const HEARSAY: &str =
    "What servers say of the use of their tools. The user has not said or checked it.";

/// Returns the tools of servers, as tools like all others.
pub(super) fn tools(servers: &Servers) -> impl Iterator<Item = Box<dyn Tool>> + '_ {
    servers.tools().iter().map(|tool| Box::new(Remote(tool.clone())) as Box<dyn Tool>)
}

pub(super) fn spec(
    server: &McpServer,
    most: Option<Span>,
    world: &World,
) -> Result<Spec, AppError> {
    let pairs = |map: &BTreeMap<String, Hidden>| -> Vec<(String, String)> {
        map.iter().map(|(name, value)| (name.clone(), value.reveal().to_owned())).collect()
    };
    let wrong = |what: String| AppError::Server(format!("MCP server `{}`: {what}", server.name));
    let transport = match &server.transport {
        McpTransport::Stdio { command, args, env } => Transport::Stdio {
            command: command.clone(),
            args: args.iter().map(|arg| arg.as_str().to_owned()).collect(),
            env: pairs(env),
        },
        McpTransport::Http { url, headers, token_env } => {
            let mut headers = pairs(headers);
            if let Some(name) = token_env {
                let token = world.variable(name.as_str()).map(str::trim);
                let token = token.filter(|token| !token.is_empty());
                let token = token.ok_or_else(|| wrong(format!("{name}, its token, is not set")))?;
                headers.push(("Authorization".to_owned(), format!("Bearer {token}")));
            }
            // Whether it may be unencrypted was asked when the configuration was read.
            let endpoint = Endpoint::parse(url.as_str(), true);
            let endpoint = endpoint.map_err(|error| wrong(error.to_string()))?;
            let env = |name: &str| world.variable(name).map(str::to_owned);
            let way = Options::of_environment(&endpoint, Limits::default(), &env);
            Transport::Http { url: url.as_str().to_owned(), headers, way }
        }
    };
    Ok(Spec {
        name: server.name.as_str().to_owned(),
        transport,
        // A server that hangs leaves a fifth of the run's time to the run.
        timeout: most.map_or(server.timeout, |most| server.timeout.min(most.share(4, 5))).into(),
        tools: Filter {
            enabled: server.enabled_tools.clone(),
            disabled: server.disabled_tools.clone(),
        },
        necessity: if server.required { Necessity::Required } else { Necessity::Optional },
    })
}

/// A tool of a server.
struct Remote(mcp::Tool);

/// A call of it.
struct Call {
    tool: mcp::Tool,
    arguments: serde_json::Map<String, serde_json::Value>,
}

impl Tool for Remote {
    fn spec(&self) -> &ToolSpec {
        self.0.spec()
    }

    fn prepare(&self, arguments: &str) -> Result<Box<dyn Prepared>, String> {
        let arguments = self.0.arguments(arguments)?;
        Ok(Box::new(Call { tool: self.0.clone(), arguments }))
    }
}

impl Prepared for Call {
    /// What a server says of its tools is not relied on.
    fn kind(&self) -> Kind {
        Kind::Foreign
    }

    fn access(&self) -> Access {
        Access::Exclusive
    }

    fn summary(&self) -> String {
        serde_json::Value::Object(self.arguments.clone()).to_string()
    }

    fn limit(&self) -> Span {
        self.tool.limit()
    }

    fn run(self: Box<Self>, context: &Context<'_>) -> Output {
        let Answer { status, text } = self.tool.call(self.arguments, context.call, context.scope);
        Output::new(status, text)
    }
}
