//! MCP servers that a client adds to a session.

use std::collections::{BTreeMap, BTreeSet};

use agent_client_protocol_schema::v1::{Error, McpServer};

use super::session_host::with_message;
use crate::config::{
    Config, ConfigName, DeferMode, HttpUrl, McpServerConfig, ProcessArgument, SecretText,
    UNENCRYPTED_KEY,
};
use crate::types::TimeSpan;

/// Timeout of starting a server, and of a call.
const TIMEOUT: TimeSpan = TimeSpan::from_secs(60);

/// Length limit of a server's name.
const MAX_NAME: usize = 64;

/// Converts the servers of a client to the form of the configuration.
///
/// # Errors
///
/// Fails if a server can't be used as described.
pub(super) fn parse_servers(servers: Vec<McpServer>) -> Result<Vec<McpServerConfig>, Error> {
    let mut names = BTreeSet::new();
    servers.into_iter().map(|server| parse_server(server, &mut names)).collect()
}

/// Adds servers to a configuration. Each replaces a configured server of the same name.
///
/// # Errors
///
/// Fails if a server would get a key unencrypted and the configuration does not allow that.
pub(super) fn add_servers(config: &mut Config, servers: &[McpServerConfig]) -> Result<(), Error> {
    let settings = &mut config.settings;
    let unencrypted = servers.iter().find(|server| server.sends_key_unencrypted());
    if let Some(server) = unencrypted.filter(|_| !settings.llm.allow_http) {
        let message = format!("MCP server '{}': {UNENCRYPTED_KEY}", server.name);
        return Err(with_message(Error::invalid_params(), message));
    }
    let own = &mut settings.mcp.servers;
    own.retain(|server| servers.iter().all(|given| given.name != server.name));
    own.extend(servers.iter().cloned());
    Ok(())
}

fn parse_server(server: McpServer, names: &mut BTreeSet<String>) -> Result<McpServerConfig, Error> {
    let invalid = |name: &str, why: &str| {
        with_message(Error::invalid_params(), format!("MCP server '{name}': {why}"))
    };
    let secret = |name: &str, value: &str| {
        let text = SecretText::parse(value);
        let text = text.ok_or_else(|| {
            with_message(Error::invalid_params(), format!("the value of '{name}' is not one line"))
        });
        text.map(|text| (name.to_owned(), text))
    };
    match server {
        McpServer::Stdio(server) => {
            let name = unique_name(&server.name, names)?;
            let Some(command) = server.command.to_str().filter(|command| !command.is_empty())
            else {
                return Err(invalid(&server.name, "the command is empty"));
            };
            let argument = |text: &String| {
                ProcessArgument::parse(text)
                    .ok_or_else(|| invalid(&server.name, "an argument has a zero byte"))
            };
            let env = server.env.iter().map(|one| secret(&one.name, &one.value));
            Ok(McpServerConfig {
                command: Some(command.to_owned()),
                args: server.args.iter().map(argument).collect::<Result<_, _>>()?,
                env: env.collect::<Result<_, Error>>()?,
                ..empty_server(name)
            })
        }
        McpServer::Http(server) => {
            let name = unique_name(&server.name, names)?;
            let url = HttpUrl::parse(&server.url)
                .ok_or_else(|| invalid(&server.name, "the address is not one of HTTP"))?;
            let headers = server.headers.iter().map(|one| secret(&one.name, &one.value));
            Ok(McpServerConfig {
                url: Some(url),
                headers: headers.collect::<Result<_, Error>>()?,
                ..empty_server(name)
            })
        }
        McpServer::Sse(server) => {
            Err(invalid(&server.name, "HTTP with SSE is outdated and not supported, use `http`"))
        }
        _ => Err(invalid("?", "a transport of this kind is not supported")),
    }
}

fn empty_server(name: ConfigName) -> McpServerConfig {
    McpServerConfig {
        name,
        command: None,
        args: Vec::new(),
        env: BTreeMap::new(),
        url: None,
        headers: BTreeMap::new(),
        token_env: None,
        oauth: None,
        timeout: TIMEOUT,
        enabled_tools: None,
        disabled_tools: Vec::new(),
        defer: DeferMode::Auto,
        required: false,
    }
}

/// Returns a unique name for the configuration, derived from the name that the client gave the server.
fn unique_name(given: &str, names: &mut BTreeSet<String>) -> Result<ConfigName, Error> {
    let allowed = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    let base: String = given.chars().map(allowed).take(MAX_NAME / 2).collect();
    let base = if base.is_empty() { "server".to_owned() } else { base };
    let numbered = (2..).map(|number| format!("{base}-{number}"));
    let free = std::iter::once(base.clone()).chain(numbered).find_map(|name| {
        let parsed = ConfigName::parse(&name)?;
        names.insert(name).then_some(parsed)
    });
    free.ok_or_else(Error::internal_error)
}
