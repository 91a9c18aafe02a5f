//! Servers of further tools.

use std::collections::BTreeMap;

use super::run::time_limit;
use crate::config::reader::Reader;
use crate::config::text::{Argument, Hidden, HttpUrl, Name, VariableName};
use crate::model::Span;

/// Servers of further tools.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Mcp {
    /// The servers.
    pub servers: Vec<McpServer>,
}

/// A server of further tools, by the Model Context Protocol.
#[derive(Clone, Debug, PartialEq)]
pub struct McpServer {
    /// Its name; part of the names of its tools.
    pub name: Name,
    /// How it is reached.
    pub transport: McpTransport,
    /// How long its start, and each call, may take.
    pub timeout: Span,
    /// The tools that are used, as patterns; none is all of them.
    pub enabled_tools: Option<Vec<String>>,
    /// The tools that are not used, as patterns.
    pub disabled_tools: Vec<String>,
    /// Whether a run ends that cannot have it.
    pub required: bool,
}

/// How a server is reached.
#[derive(Clone, Debug, PartialEq)]
pub enum McpTransport {
    /// A process, by its standard input and output.
    Stdio {
        /// The program.
        command: String,
        /// Its arguments.
        args: Vec<Argument>,
        /// Variables for it.
        env: BTreeMap<String, Hidden>,
    },
    /// An address.
    Http {
        /// The address.
        url: HttpUrl,
        /// Headers for each request.
        headers: BTreeMap<String, Hidden>,
        /// The variable that holds its bearer token.
        token_env: Option<VariableName>,
    },
}

impl Mcp {
    pub(super) fn read(from: &mut Reader<'_>) -> Self {
        Self { servers: from.list("servers", McpServer::read) }
    }
}

impl McpServer {
    fn read(name: Name, from: &mut Reader<'_>) -> Option<Self> {
        let transport = McpTransport::read(from);
        Some(Self {
            name,
            timeout: time_limit(from, "timeout", Span::secs(60)),
            enabled_tools: from.maybe("enabled_tools"),
            disabled_tools: from.or("disabled_tools", Vec::new()),
            required: from.or("required", false),
            transport: transport?,
        })
    }
}

impl McpTransport {
    fn read(from: &mut Reader<'_>) -> Option<Self> {
        if from.has("url") {
            if from.has("command") {
                from.refuse("command", "left out beside `url`");
            }
            let url = from.need("url");
            let headers = from.pairs("headers");
            let token_env = from.maybe("token_env");
            return Some(Self::Http { url: url?, headers, token_env });
        }
        let command = from.need("command");
        let args = from.or("args", Vec::new());
        let env = from.pairs("env");
        Some(Self::Stdio { command: command?, args, env })
    }
}
