//! Servers of further tools.

use std::collections::BTreeMap;

use super::run::time_limit;
use crate::config::settings_reader::SettingsReader;
use crate::config::text_types::{ConfigName, HttpUrl, ProcessArgument, SecretText, VariableName};
use crate::model::TimeSpan;

/// Servers of further tools.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct McpConfig {
    /// The servers.
    pub servers: Vec<McpServerConfig>,
}

/// A server of further tools, by the Model Context Protocol.
#[derive(Clone, Debug, PartialEq)]
pub struct McpServerConfig {
    /// Its name; part of the names of its tools.
    pub name: ConfigName,
    /// How it is reached.
    pub transport: McpTransportConfig,
    /// How long its start, and each call, may take.
    pub timeout: TimeSpan,
    /// The tools that are used, as patterns; none is all of them.
    pub enabled_tools: Option<Vec<String>>,
    /// The tools that are not used, as patterns.
    pub disabled_tools: Vec<String>,
    /// Whether a run ends that cannot have it.
    pub required: bool,
}

/// How a server is reached.
#[derive(Clone, Debug, PartialEq)]
pub enum McpTransportConfig {
    /// A process, by its standard input and output.
    Stdio {
        /// The program.
        command: String,
        /// Its arguments.
        args: Vec<ProcessArgument>,
        /// Variables for it.
        env: BTreeMap<String, SecretText>,
    },
    /// An address.
    Http {
        /// The address.
        url: HttpUrl,
        /// Headers for each request.
        headers: BTreeMap<String, SecretText>,
        /// The variable that holds its bearer token.
        token_env: Option<VariableName>,
    },
}

impl McpConfig {
    pub(super) fn read(from: &mut SettingsReader<'_>) -> Self {
        Self { servers: from.table_list("servers", McpServerConfig::read) }
    }
}

impl McpServerConfig {
    fn read(name: ConfigName, from: &mut SettingsReader<'_>) -> Option<Self> {
        let transport = McpTransportConfig::read(from);
        Some(Self {
            name,
            timeout: time_limit(from, "timeout", TimeSpan::from_secs(60)),
            enabled_tools: from.optional("enabled_tools"),
            disabled_tools: from.value_or("disabled_tools", Vec::new()),
            required: from.value_or("required", false),
            transport: transport?,
        })
    }
}

impl McpTransportConfig {
    fn read(from: &mut SettingsReader<'_>) -> Option<Self> {
        if from.is_set("url") {
            if from.is_set("command") {
                from.reject("command", "left out beside `url`");
            }
            let url = from.required("url");
            let headers = from.string_map("headers");
            let token_env = from.optional("token_env");
            return Some(Self::Http { url: url?, headers, token_env });
        }
        let command = from.required("command");
        let args = from.value_or("args", Vec::new());
        let env = from.string_map("env");
        Some(Self::Stdio { command: command?, args, env })
    }
}
