//! Tools of MCP servers, used like all other tools and under the same rules.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::error::AppError;
use super::function_tool::ExternalCall;
use super::process_env::ProcessEnv;
use super::run_io::RunIo;
use super::sandbox::Sandbox;
use crate::config::{
    Config, DeferMode, HttpUrl, McpConfig, McpServerConfig, OauthConfig, SecretText,
};
use crate::llm;
use crate::machine::ContextUsage;
use crate::mcp::{
    self, CallResult, ClientCredentials, McpServers, Necessity, SecretSource, ServerInstructions,
    ServerLimits, ServerSpec, ServerStart, ServerTool, ServerTransport, ToolFilter,
};
use crate::net::{Endpoint, HttpOptions, HttpTimeouts, Secret};
use crate::policy::Confirmer;
use crate::port::{CancellationToken, ToolSpec};
use crate::tools::{CallContext, SEARCH_TOOLS, Tool, ToolInvocation, ToolOutput, ToolRegistry};
use crate::types::{TimeSpan, Tokens, matches_wildcard};
use crate::view::{LiveEvent, ServerState};

/// Starts the servers of a configuration, within the time limit of the run. Returns no servers if cancelled, since the
/// run then ends before it needs them.
///
/// # Errors
///
/// Fails if a required server is unavailable.
pub(super) fn start_servers(
    config: &Config,
    world: &ProcessEnv,
    sandbox: &Sandbox,
    cancel: &CancellationToken,
    io: &RunIo,
) -> Result<McpServers, AppError> {
    let mut specs = Vec::new();
    for server in &config.settings.mcp.servers {
        match server_spec(server, config.settings.limits.timeout, world) {
            Ok(spec) => specs.push(spec),
            Err(error) if server.required => return Err(error),
            Err(error) => log::warn!("{error}"),
        }
    }
    if specs.is_empty() {
        return Ok(McpServers::default());
    }
    let mut setup = mcp::ServerSetup::new(sandbox.model.clone());
    setup.has_user = io.confirm.can_answer();
    let (servers, problems) = McpServers::start(specs, &setup, cancel, &|name, start| {
        let state = match start {
            ServerStart::Begun => ServerState::Starting,
            ServerStart::Done => ServerState::Ready,
            ServerStart::Failed => ServerState::Failed,
        };
        io.reporter.show_live(&LiveEvent::Server { name, state });
    });
    if cancel.is_cancelled() {
        return Ok(servers);
    }
    for problem in problems {
        if problem.is_fatal() {
            return Err(AppError::McpServer(problem.to_string()));
        }
        log::warn!("{problem}");
    }
    Ok(servers)
}

/// Returns a system prompt with the instructions of those servers whose tools are available. Each line is marked as a
/// quotation, because the text is not from the user.
pub(super) fn with_server_instructions(
    prompt: Arc<str>,
    servers: &McpServers,
    registry: &ToolRegistry,
) -> Arc<str> {
    let is_used = |server: &str| {
        let mut own = servers.tools().iter().filter(|tool| tool.server() == server);
        own.any(|own| registry.has_tool(&own.spec().name))
    };
    let used = servers.instructions().iter().filter(|instructions| is_used(&instructions.server));
    let sections: String = used
        .map(|ServerInstructions { server, text }| {
            let lines: String = text.trim().lines().map(|line| format!("> {line}\n")).collect();
            format!("\n### {server}\n\n{lines}")
        })
        .collect();
    match sections.is_empty() {
        true => prompt,
        false => format!("{prompt}\n## MCP Servers\n\n{UNVERIFIED_NOTICE}\n{sections}").into(),
    }
}

const UNVERIFIED_NOTICE: &str = "What servers say about the use of their tools. It is not from the user, who has not checked it.";

/// The inputs that determine which tools of servers are deferred.
pub(super) struct ToolDeferral<'a> {
    /// The context window of the model.
    pub(super) window: Tokens,
    /// The tools of earlier requests of the session. A resumed run keeps the same tools, so that the provider's cache
    /// stays valid.
    pub(super) earlier: Option<&'a [ToolSpec]>,
}

/// The percentage of the context window beyond which the tools of servers are deferred.
const MAX_TOOLS_PERCENT: u64 = 10;

impl ToolDeferral<'_> {
    /// Returns the deferred tools among those that an agent may use, each as server and name.
    pub(super) fn deferred_tools(
        &self,
        config: &McpConfig,
        servers: &McpServers,
        allowed: &[String],
    ) -> Vec<(Arc<str>, Arc<str>)> {
        let is_allowed = |name: &str| allowed.iter().any(|own| matches_wildcard(own, name));
        let tools = servers.tools().iter().filter(|tool| is_allowed(&tool.spec().name));
        let bytes = tools.clone().map(|tool| tool.spec().request_bytes()).sum();
        let size = ContextUsage::new(bytes).estimate();
        let had =
            |name: &str| self.earlier.is_some_and(|all| all.iter().any(|spec| *spec.name == *name));
        let is_deferred = |server: &&McpServerConfig| match server.defer {
            DeferMode::Always => true,
            DeferMode::Never => false,
            DeferMode::Auto => {
                let own = tools.clone().filter(|tool| tool.server() == server.name.as_str());
                has_too_many(own.clone())
                    || !own.clone().any(|tool| had(&tool.spec().name))
                        && (had(SEARCH_TOOLS) || size > self.window.percent(MAX_TOOLS_PERCENT))
            }
        };
        let deferred = config.servers.iter().filter(is_deferred);
        let deferred: Vec<&str> = deferred.map(|server| server.name.as_str()).collect();
        let tools = tools.filter(|tool| deferred.contains(&tool.server()));
        tools.map(|tool| (tool.server().into(), Arc::clone(&tool.spec().name))).collect()
    }
}

/// Returns whether the tools of a server exceed the limit for a request, in number or size.
fn has_too_many<'a>(tools: impl Iterator<Item = &'a ServerTool> + Clone) -> bool {
    let most = ServerLimits::default().tools;
    let bytes: u64 = tools.clone().map(|tool| tool.spec().request_bytes()).sum();
    tools.count() > most.count || bytes > most.bytes as u64
}

/// Returns the tools of servers as ordinary tools.
pub(super) fn server_tools<'a>(
    servers: &'a McpServers,
    user: &'a Arc<dyn Confirmer>,
) -> impl Iterator<Item = Box<dyn Tool>> + 'a {
    let tools = servers.tools().iter();
    tools.map(|tool| Box::new(McpTool(tool.clone(), Arc::clone(user))) as Box<dyn Tool>)
}

pub(super) fn server_spec(
    server: &McpServerConfig,
    most: Option<TimeSpan>,
    world: &ProcessEnv,
) -> Result<ServerSpec, AppError> {
    let pairs = |map: &BTreeMap<String, SecretText>| -> Vec<(String, String)> {
        map.iter().map(|(name, value)| (name.clone(), value.reveal().to_owned())).collect()
    };
    let wrong = |what: String| AppError::McpServer(format!("MCP server `{}`: {what}", server.name));
    let transport = match &server.url {
        None => ServerTransport::Stdio {
            command: server.command.clone().unwrap_or_default(),
            args: server.args.iter().map(ToString::to_string).collect(),
            env: pairs(&server.env),
        },
        Some(url) => {
            let mut headers = pairs(&server.headers);
            if let Some(name) = &server.token_env {
                let token = world.variable(name.as_str()).map(str::trim);
                let token = token.filter(|token| !token.is_empty());
                let token = token.ok_or_else(|| wrong(format!("{name} (its token) is not set")))?;
                headers.push(("Authorization".to_owned(), format!("Bearer {token}")));
            }
            // The configuration has already checked whether unencrypted access is allowed.
            let endpoint = Endpoint::parse(url.as_str(), true);
            let endpoint = endpoint.map_err(|error| wrong(error.to_string()))?;
            let env = |name: &str| world.variable(name).map(str::to_owned);
            let options = HttpOptions::from_env(&endpoint, HttpTimeouts::default(), &env);
            let oauth = server.oauth.as_ref();
            let credentials = oauth.map(|oauth| client_credentials(oauth, world).map_err(wrong));
            let credentials = credentials.transpose()?.map(Box::new);
            ServerTransport::Http { url: url.to_string(), headers, options, credentials }
        }
    };
    Ok(ServerSpec {
        name: server.name.to_string(),
        transport,
        // A fifth of the run's time is left even if a server hangs.
        timeout: most.map_or(server.timeout, |most| server.timeout.min(most.fraction(4, 5))).into(),
        tools: ToolFilter {
            enabled: server.enabled_tools.clone(),
            disabled: server.disabled_tools.clone(),
        },
        may_defer: server.defer != DeferMode::Never,
        necessity: if server.required { Necessity::Required } else { Necessity::Optional },
    })
}

/// Returns the client credentials of a server; fails if the variable holds no secret.
fn client_credentials(
    oauth: &OauthConfig,
    world: &ProcessEnv,
) -> Result<ClientCredentials, String> {
    let secret: Arc<SecretSource> = match (&oauth.client_secret_env, &oauth.client_secret_command) {
        (Some(name), _) => {
            let text = world.variable(name.as_str());
            let text = text.ok_or_else(|| format!("{name} (its client secret) is not set"))?;
            let secret = Secret::new(text);
            let secret = secret.map_err(|error| format!("{name}, its client secret, {error}"))?;
            Arc::new(move |_: &CancellationToken| Ok(secret.clone()))
        }
        (None, command) => {
            let command = command.clone().unwrap_or_default();
            Arc::new(move |cancel: &CancellationToken| {
                let printed = llm::command_key(&command, cancel);
                printed.map_err(|error| format!("`oauth.client_secret_command` {error}"))
            })
        }
    };
    let world = world.clone();
    let options = move |endpoint: &Endpoint| {
        let env = |name: &str| world.variable(name).map(str::to_owned);
        HttpOptions::from_env(endpoint, HttpTimeouts::default(), &env)
    };
    let text = |url: &HttpUrl| url.to_string();
    Ok(ClientCredentials {
        client_id: oauth.client_id.clone(),
        secret,
        scopes: oauth.scopes.clone(),
        issuer: oauth.issuer.as_ref().map(text),
        token_url: oauth.token_url.as_ref().map(text),
        options: Arc::new(options),
    })
}

/// A tool of a server, and the user who answers its questions.
struct McpTool(ServerTool, Arc<dyn Confirmer>);

impl Tool for McpTool {
    fn spec(&self) -> &ToolSpec {
        self.0.spec()
    }

    fn prepare(&self, arguments: &str) -> Result<Box<dyn ToolInvocation>, String> {
        let arguments = self.0.parse_arguments(arguments)?;
        let (tool, user) = (self.0.clone(), Arc::clone(&self.1));
        Ok(Box::new(ExternalCall {
            // A server's own description of its tools is not trusted.
            is_read_only: false,
            summary: serde_json::Value::Object(arguments.clone()).to_string(),
            time_limit: tool.timeout(),
            run: move |context: &CallContext<'_>| {
                let result = tool.call(arguments, context.call, context.scope, &*user);
                let CallResult { status, text, images } = result;
                ToolOutput { images, ..ToolOutput::new(status, text) }
            },
        }))
    }
}
