//! MCP servers.

use std::collections::BTreeMap;

use super::timeout;
use crate::config::key_declaration::{
    default, given, map, optional, required, section, table_list,
};
use crate::config::key_spec::ValueType;
use crate::config::setting_value::SettingValue;
use crate::config::settings_reader::SettingsReader;
use crate::config::text_types::{ConfigName, HttpUrl, ProcessArgument, SecretText, VariableName};
use crate::config::value_tree::ConfigValue;
use crate::types::TimeSpan;

section! {
    /// MCP servers.
    #[derive(Default)]
    pub struct McpConfig {
        /// The servers.
        servers: Vec<McpServerConfig> = table_list(read_server).example(EXAMPLE),
    }
}

const EXAMPLE: &str = r#"[[mcp.servers]]
name = "memory"
command = "npx"
args = ["-y", "@modelcontextprotocol/server-memory"]
env = { MEMORY_FILE_PATH = "/tmp/memory.json" }
disabled_tools = ["delete_*"]

[[mcp.servers]]
name = "remote"
url = "https://example.com/mcp"
headers = { X-Team = "tools" }
token_env = "REMOTE_MCP_TOKEN"
enabled_tools = ["search", "fetch"]

[[mcp.servers]]
name = "company"
url = "https://mcp.example.com"
oauth = { client_id = "ci", client_secret_env = "COMPANY_CLIENT_SECRET", issuer = "https://login.example.com" }
"#;

section! {
    /// An MCP server: a program of this machine, or an address.
    pub struct McpServerConfig(server: ConfigName, is_remote: bool) {
        /// The name; part of the names of its tools.
        name: ConfigName = given(server),
        /// The program of a local server. Either `command` or `url` is required.
        command: Option<String> = optional().only_if(!is_remote),
        /// The arguments of the program.
        args: Vec<ProcessArgument> = default(Vec::new()).only_if(!is_remote),
        /// Environment variables for the program.
        env: BTreeMap<String, SecretText> = map().only_if(!is_remote),
        /// The URL of a remote server.
        url: Option<HttpUrl> = optional().only_if(is_remote),
        /// Headers for each request.
        headers: BTreeMap<String, SecretText> = map().only_if(is_remote),
        /// The environment variable that holds the bearer token.
        token_env: Option<VariableName> = optional().only_if(is_remote),
        /// OAuth client credentials: access tokens without a user.
        oauth: Option<OauthConfig> = oauth(is_remote),
        /// Seconds for the start of the server, and for each call of a tool.
        timeout: TimeSpan = timeout(60),
        /// The tools to use, as patterns; by default all of them.
        enabled_tools: Option<Vec<String>> = optional(),
        /// The tools not to use, as patterns.
        disabled_tools: Vec<String> = default(Vec::new()),
        /// Whether requests leave out the tools of the server, which the model then finds with `search_tools` and calls
        /// with `call_tool`: true, false, or "auto": once the tools of all servers take more than a tenth of the
        /// context window, or those of this server are too many for a request.
        defer: DeferMode = default(DeferMode::Auto),
        /// Whether a run fails if the server is not available.
        required: bool = default(false),
    }
}

impl McpServerConfig {
    /// Returns whether requests to the server would carry a key, or a possible key, to another machine unencrypted.
    pub(crate) fn sends_key_unencrypted(&self) -> bool {
        let has_key = self.token_env.is_some() || self.oauth.is_some() || !self.headers.is_empty();
        has_key && self.url.as_ref().is_some_and(HttpUrl::is_unencrypted_remote)
    }
}

section! {
    /// Client credentials of OAuth 2.
    pub struct OauthConfig {
        /// The client ID.
        client_id: String = required(),
        /// The environment variable that holds the client secret.
        client_secret_env: Option<VariableName> = optional(),
        /// A shell command that prints the client secret; it runs once. Only the user's own configuration can set it.
        client_secret_command: Option<String> = optional(),
        /// The scopes to request; by default those that the server names.
        scopes: Vec<String> = default(Vec::new()),
        /// The authorization server; by default the one that the server names, which then gets the secret.
        issuer: Option<HttpUrl> = optional(),
        /// The token endpoint; by default the one that the authorization server names.
        token_url: Option<HttpUrl> = optional(),
    }
}

/// Declares the table of client credentials, which only a remote server may have.
fn oauth(
    is_remote: bool,
) -> impl FnOnce(&'static str, &str, &mut SettingsReader<'_>) -> Option<OauthConfig> {
    move |name, doc, from| {
        let is_there = from.knows(is_remote && from.is_set(name));
        is_there.then(|| from.section(name, doc, read_oauth))
    }
}

fn read_oauth(from: &mut SettingsReader<'_>) -> OauthConfig {
    let oauth = OauthConfig::read(from);
    match (&oauth.client_secret_env, &oauth.client_secret_command) {
        (None, None) => from.report_missing("client_secret_env"),
        (Some(_), Some(_)) => {
            from.reject("client_secret_command", "omitted beside `client_secret_env`");
        }
        (Some(_), None) | (None, Some(_)) => {}
    }
    oauth
}

/// Whether requests leave out the tools of a server, so that the model has to search for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeferMode {
    /// Left out once the tools of all servers take too much of the context window.
    #[default]
    Auto,
    /// Always left out.
    Always,
    /// Part of each request.
    Never,
}

/// The word for [`DeferMode::Auto`].
const AUTO: &str = "auto";

impl SettingValue for DeferMode {
    fn from_value(value: &ConfigValue) -> Result<Self, String> {
        match bool::from_value(value) {
            Ok(true) => Ok(Self::Always),
            Ok(false) => Ok(Self::Never),
            Err(_) if value.as_text() == Some(AUTO) => Ok(Self::Auto),
            Err(expected) => Err(format!("{expected} or \"{AUTO}\"")),
        }
    }

    fn to_value(&self) -> ConfigValue {
        match self {
            Self::Auto => ConfigValue::Text(AUTO.to_owned()),
            Self::Always => ConfigValue::Bool(true),
            Self::Never => ConfigValue::Bool(false),
        }
    }

    fn value_type() -> ValueType {
        ValueType::BoolOr(AUTO)
    }
}

/// Reads a server. Reports an unusable entry and returns `None` for it.
fn read_server(name: ConfigName, from: &mut SettingsReader<'_>) -> Option<McpServerConfig> {
    let is_remote = from.is_set("url");
    if is_remote {
        from.reject("command", "omitted beside `url`");
    } else if !from.is_set("command") {
        from.report_missing("command");
    }
    if from.is_set("oauth") {
        from.reject("token_env", "omitted beside `oauth`");
    }
    let server = McpServerConfig::read(name, is_remote, from);
    (server.url.is_some() || server.command.is_some()).then_some(server)
}
