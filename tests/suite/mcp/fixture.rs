//! Fixture for servers, and calls to them.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use architect::exec::{SandboxPolicy, Supervisor, VariableFilter as Variables, clean_environment};
use architect::mcp::{
    CallResult, McpServers, Necessity, ServerProblem, ServerSetup, ServerSpec, ServerTool,
    ServerTransport, ToolFilter,
};
use architect::net::HttpOptions;
use architect::policy::NoConfirmer;
use architect::port::{CancellationToken, EffectContext};
use architect::types::ToolStatus;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::test_server::ARGUMENTS;
use crate::kit::effect::scope_with;

/// A folder in which servers run.
pub(crate) struct McpFixture {
    folder: TempDir,
    pub(crate) setup: ServerSetup,
}

/// Servers that were started.
pub(crate) struct StartedServers {
    pub(crate) servers: McpServers,
    pub(crate) problems: Vec<ServerProblem>,
}

impl McpFixture {
    pub(crate) fn new() -> Self {
        Self::with_policy(|_| {})
    }

    /// Returns a world with a policy to be changed.
    pub(crate) fn with_policy(policy: impl FnOnce(&mut SandboxPolicy)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap();
        let (workspace, temp) = (path.join("w"), path.join("tmp"));
        for folder in [&workspace, &temp] {
            fs::create_dir(folder).unwrap();
        }
        let mut wanted = SandboxPolicy { temp: temp.clone(), ..SandboxPolicy::off(&workspace) };
        policy(&mut wanted);
        let env = clean_environment(std::env::vars_os(), &Variables { rule: &|_| None }, &temp);
        let supervisor = Supervisor::with_program(env!("CARGO_BIN_EXE_architect"), wanted, env);
        let setup = ServerSetup {
            restart_interval: Duration::ZERO,
            shutdown_timeout: Duration::from_millis(500),
            ..ServerSetup::new(supervisor)
        };
        Self { folder, setup }
    }

    pub(crate) fn workspace(&self) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join("w")
    }

    /// Returns a server with this behaviour.
    pub(crate) fn test_server(&self, name: &str, behaviour: &str) -> ServerSpec {
        let log = self.log_file(name).to_str().unwrap().to_owned();
        let env = [("MCP_TEST", behaviour), ("MCP_LOG", &log), ("MCP_SECRET", "canary-4711")];
        let program = std::env::current_exe().unwrap().to_str().unwrap().to_owned();
        ServerSpec {
            name: name.to_owned(),
            transport: ServerTransport::Stdio {
                command: program,
                args: ARGUMENTS.map(str::to_owned).into(),
                env: env.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            },
            timeout: Duration::from_secs(10),
            tools: ToolFilter::default(),
            may_defer: false,
            necessity: Necessity::Optional,
        }
    }

    /// Returns a server that runs this program.
    pub(crate) fn real_server(name: &str, command: &str, args: &[&str]) -> ServerSpec {
        ServerSpec {
            name: name.to_owned(),
            transport: ServerTransport::Stdio {
                command: command.to_owned(),
                args: args.iter().map(|arg| (*arg).to_owned()).collect(),
                env: Vec::new(),
            },
            timeout: Duration::from_secs(10),
            tools: ToolFilter::default(),
            may_defer: false,
            necessity: Necessity::Optional,
        }
    }

    /// Returns a server at this URL.
    pub(crate) fn http_server(url: &str, headers: &[(&str, &str)]) -> ServerSpec {
        let headers = headers.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        let (headers, options) = (headers.collect(), HttpOptions::default());
        let (url, credentials) = (url.to_owned(), None);
        let transport = ServerTransport::Http { url, headers, options, credentials };
        ServerSpec { transport, ..Self::real_server("h", "", &[]) }
    }

    fn log_file(&self, server: &str) -> PathBuf {
        self.workspace().join(format!("{server}.log"))
    }

    /// Returns the messages that a server has received.
    pub(crate) fn log(&self, server: &str) -> Vec<String> {
        let text = fs::read_to_string(self.log_file(server)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    pub(crate) fn start(&self, specs: impl IntoIterator<Item = ServerSpec>) -> StartedServers {
        let specs = specs.into_iter().collect();
        let (servers, problems) =
            McpServers::start(specs, &self.setup, &CancellationToken::new(), &|_, _| {});
        StartedServers { servers, problems }
    }

    /// Starts one server with this behaviour, without problems.
    pub(crate) fn start_one(&self, behaviour: &str) -> StartedServers {
        let started = self.start([self.test_server("s", behaviour)]);
        assert_eq!(started.problems, []);
        started
    }
}

impl StartedServers {
    pub(crate) fn names(&self) -> Vec<&str> {
        self.servers.tools().iter().map(|tool| &*tool.spec().name).collect()
    }

    pub(crate) fn tool(&self, name: &str) -> &ServerTool {
        let mut tools = self.servers.tools().iter();
        tools.find(|tool| tool.remote_name() == name).unwrap()
    }

    pub(crate) fn call_in(&self, tool: &str, text: &str, scope: &EffectContext) -> CallResult {
        let tool = self.tool(tool);
        let arguments: Value = json!({ "text": text });
        let arguments = tool.parse_arguments(&arguments.to_string()).unwrap();
        tool.call(arguments, &"call-7".into(), scope, &NoConfirmer)
    }

    pub(crate) fn call(&self, tool: &str, text: &str) -> CallResult {
        self.call_in(tool, text, &scope_with(&CancellationToken::new()))
    }

    /// Makes a call that has to succeed.
    pub(crate) fn ok(&self, tool: &str, text: &str) -> String {
        let answer = self.call(tool, text);
        assert_eq!(answer.status, ToolStatus::Ok, "{}", answer.text);
        answer.text
    }

    /// Makes a call that must not succeed.
    pub(crate) fn err(&self, tool: &str, text: &str) -> String {
        let answer = self.call(tool, text);
        assert_ne!(answer.status, ToolStatus::Ok, "{}", answer.text);
        answer.text
    }

    /// Returns the problems as text.
    pub(crate) fn problems(&self) -> Vec<String> {
        self.problems.iter().map(ToString::to_string).collect()
    }
}
