//! MCP servers.

use std::collections::BTreeMap;

use super::timeout;
use crate::config::key_declaration::{default, map, optional, section, table_list};
use crate::config::settings_reader::SettingsReader;
use crate::config::text_types::{ConfigName, HttpUrl, ProcessArgument, SecretText, VariableName};
use crate::model::TimeSpan;

section! {
    /// MCP servers.
    #[derive(Default)]
    pub struct McpConfig {
        /// The servers.
        servers: Vec<McpServerConfig> = table_list(McpServerConfig::read).example(EXAMPLE),
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
"#;

/// An MCP server.
#[derive(Clone, Debug, PartialEq)]
pub struct McpServerConfig {
    /// The name; part of the names of its tools.
    pub name: ConfigName,
    /// How the server is reached.
    pub transport: McpTransportConfig,
    /// How long its start, and each call, may take.
    pub timeout: TimeSpan,
    /// The tools that are used, as patterns; `None` is all of them.
    pub enabled_tools: Option<Vec<String>>,
    /// The tools that are not used, as patterns.
    pub disabled_tools: Vec<String>,
    /// Whether a run ends that can't have the server.
    pub required: bool,
}

/// How an MCP server is reached.
#[derive(Clone, Debug, PartialEq)]
pub enum McpTransportConfig {
    /// A process, by its standard input and output.
    Stdio {
        /// The program.
        command: String,
        /// Its arguments.
        args: Vec<ProcessArgument>,
        /// Environment variables for it.
        env: BTreeMap<String, SecretText>,
    },
    /// An address.
    Http {
        /// The address.
        url: HttpUrl,
        /// Headers for each request.
        headers: BTreeMap<String, SecretText>,
        /// The environment variable that holds its bearer token.
        token_env: Option<VariableName>,
    },
}

section! {
    /// The keys of a server, as they are written.
    struct McpServerKeys(is_remote: bool) {
        /// The program of a local server.
        command: Option<String> = optional().only_if(!is_remote),
        /// Its arguments.
        args: Vec<ProcessArgument> = default(Vec::new()).only_if(!is_remote),
        /// Environment variables for it.
        env: BTreeMap<String, SecretText> = map().only_if(!is_remote),
        /// The address of a remote server.
        url: Option<HttpUrl> = optional().only_if(is_remote),
        /// Headers for each request.
        headers: BTreeMap<String, SecretText> = map().only_if(is_remote),
        /// The environment variable that holds its bearer token.
        token_env: Option<VariableName> = optional().only_if(is_remote),
        /// Seconds for its start, and for each call.
        timeout: TimeSpan = timeout(60),
        /// The tools to use, as patterns; by default all of them.
        enabled_tools: Option<Vec<String>> = optional(),
        /// The tools not to use, as patterns.
        disabled_tools: Vec<String> = default(Vec::new()),
        /// Whether a run ends that can't have the server.
        required: bool = default(false),
    }
}

impl McpServerConfig {
    /// Returns `None` for a server that can't be reached as it is written, after reporting why.
    fn read(name: ConfigName, from: &mut SettingsReader<'_>) -> Option<Self> {
        let is_remote = from.is_set("url");
        if is_remote {
            from.reject("command", "omitted beside `url`");
        } else if !from.is_set("command") {
            from.report_missing("command");
        }
        let McpServerKeys {
            command,
            args,
            env,
            url,
            headers,
            token_env,
            timeout,
            enabled_tools,
            disabled_tools,
            required,
        } = McpServerKeys::read(is_remote, from);
        let transport = match (url, command) {
            (Some(url), _) => McpTransportConfig::Http { url, headers, token_env },
            (None, Some(command)) => McpTransportConfig::Stdio { command, args, env },
            (None, None) => return None,
        };
        Some(Self { name, transport, timeout, enabled_tools, disabled_tools, required })
    }
}
