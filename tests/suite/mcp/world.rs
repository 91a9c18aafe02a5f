//! Servers of a test, and calls to them.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use architect::exec::{Filter as Variables, Policy, Supervisor, clean};
use architect::mcp::{Answer, Filter, Necessity, Problem, Servers, Setup, Spec, Tool, Transport};
use architect::model::ToolStatus;
use architect::net::{Limits, Options, ProxyChoice, Roots};
use architect::port::{Cancel, Scope};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::server::ARGUMENTS;
use crate::tools::world::scope_of;

/// A folder in which servers run.
pub(crate) struct World {
    folder: TempDir,
    pub(crate) setup: Setup,
}

/// Servers that were started.
pub(crate) struct Started {
    pub(crate) servers: Servers,
    pub(crate) problems: Vec<Problem>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::confined(|_| {})
    }

    /// Returns a world with a policy to be changed.
    pub(crate) fn confined(policy: impl FnOnce(&mut Policy)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap();
        let (workspace, temp) = (path.join("w"), path.join("tmp"));
        for folder in [&workspace, &temp] {
            fs::create_dir(folder).unwrap();
        }
        let mut wanted = Policy { temp: temp.clone(), ..Policy::off(&workspace) };
        policy(&mut wanted);
        let env = clean(std::env::vars_os(), &Variables { rule: &|_| None }, &temp);
        let supervisor = Supervisor::at(env!("CARGO_BIN_EXE_architect"), wanted, env);
        let setup = Setup {
            probe: Duration::from_secs(2),
            restart: Duration::ZERO,
            goodbye: Duration::from_millis(500),
            ..Setup::new(supervisor)
        };
        Self { folder, setup }
    }

    pub(crate) fn workspace(&self) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join("w")
    }

    /// Returns a server that behaves like this.
    pub(crate) fn server(&self, name: &str, behaviour: &str) -> Spec {
        let log = self.log_file(name).to_str().unwrap().to_owned();
        let env = [("MCP_TEST", behaviour), ("MCP_LOG", &log), ("MCP_SECRET", "canary-4711")];
        let program = std::env::current_exe().unwrap().to_str().unwrap().to_owned();
        Spec {
            name: name.to_owned(),
            transport: Transport::Stdio {
                command: program,
                args: ARGUMENTS.map(str::to_owned).into(),
                env: env.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            },
            timeout: Duration::from_secs(10),
            tools: Filter::default(),
            necessity: Necessity::Optional,
        }
    }

    /// Returns a server that is this program.
    pub(crate) fn program(name: &str, command: &str, args: &[&str]) -> Spec {
        Spec {
            name: name.to_owned(),
            transport: Transport::Stdio {
                command: command.to_owned(),
                args: args.iter().map(|arg| (*arg).to_owned()).collect(),
                env: Vec::new(),
            },
            timeout: Duration::from_secs(10),
            tools: Filter::default(),
            necessity: Necessity::Optional,
        }
    }

    /// Returns a server at this address.
    pub(crate) fn address(url: &str, headers: &[(&str, &str)]) -> Spec {
        let headers = headers.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        let way =
            Options { limits: Limits::default(), proxy: ProxyChoice::Direct, roots: Roots::System };
        let transport = Transport::Http { url: url.to_owned(), headers: headers.collect(), way };
        Spec { transport, ..Self::program("h", "", &[]) }
    }

    fn log_file(&self, server: &str) -> PathBuf {
        self.workspace().join(format!("{server}.log"))
    }

    /// Returns what a server was told so far.
    pub(crate) fn log(&self, server: &str) -> Vec<String> {
        let text = fs::read_to_string(self.log_file(server)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    pub(crate) fn start(&self, specs: impl IntoIterator<Item = Spec>) -> Started {
        let specs = specs.into_iter().collect();
        let (servers, problems) = Servers::start(specs, &self.setup, &Cancel::new());
        Started { servers, problems }
    }

    /// Starts one server that behaves like this, and finds nothing wrong with it.
    pub(crate) fn one(&self, behaviour: &str) -> Started {
        let started = self.start([self.server("s", behaviour)]);
        assert_eq!(started.problems, []);
        started
    }
}

impl Started {
    pub(crate) fn names(&self) -> Vec<&str> {
        self.servers.tools().iter().map(|tool| &*tool.spec().name).collect()
    }

    pub(crate) fn tool(&self, name: &str) -> &Tool {
        let mut tools = self.servers.tools().iter();
        tools.find(|tool| tool.remote_name() == name).unwrap()
    }

    pub(crate) fn call_in(&self, tool: &str, text: &str, scope: &Scope) -> Answer {
        let tool = self.tool(tool);
        let arguments: Value = json!({ "text": text });
        let arguments = tool.arguments(&arguments.to_string()).unwrap();
        tool.call(arguments, &"call-7".into(), scope)
    }

    pub(crate) fn call(&self, tool: &str, text: &str) -> Answer {
        self.call_in(tool, text, &scope_of(&Cancel::new()))
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

    /// Returns what is wrong, in words.
    pub(crate) fn told(&self) -> Vec<String> {
        self.problems.iter().map(ToString::to_string).collect()
    }
}

/// Returns how many processes have this in their environment.
pub(crate) fn with_variable(value: &str) -> usize {
    let has = |process: &Path| {
        let environment = fs::read(process.join("environ"));
        environment.is_ok_and(|all| memchr::memmem::find(&all, value.as_bytes()).is_some())
    };
    fs::read_dir("/proc").unwrap().flatten().filter(|process| has(&process.path())).count()
}
