//! The servers of a run.

use std::collections::HashSet;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::connection::ReplyDeadline;
use super::error::{Result, ServerError, ServerProblem};
use super::server::McpServer;
use super::settings::{ServerSetup, ServerSpec};
use super::tool::ServerTool;
use super::tool_description::{self, ListedTool};
use crate::port::CancellationToken;
use crate::types::strip_terminal_codes;

/// The servers of a run. Dropping the value ends them.
#[derive(Default)]
pub struct McpServers {
    all: Vec<Arc<McpServer>>,
    tools: Vec<ServerTool>,
    instructions: Vec<ServerInstructions>,
}

/// Usage instructions of a server, which are untrusted like all its output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerInstructions {
    /// The name of the server.
    pub server: Arc<str>,
    /// The instructions, as plain text.
    pub text: String,
}

/// The progress of starting a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerStart {
    /// The start has begun.
    Begun,
    /// The server is running, and its tools are known.
    Done,
    /// The server is not available.
    Failed,
}

/// A started server.
struct StartedServer {
    tools: Vec<ListedTool>,
    /// Notes about omitted tools, and others.
    omissions: Vec<String>,
    instructions: Option<String>,
}

impl McpServers {
    /// Starts servers concurrently, and lists their tools in the order of the servers and of their lists. Takes no
    /// longer than the longest of their time limits, and ends soon when cancelled; running servers then also get less
    /// time to end. `report` receives the progress of each server. Without threads, servers are started one after
    /// another.
    pub fn start(
        specs: Vec<ServerSpec>,
        setup: &ServerSetup,
        cancel: &CancellationToken,
        report: &(dyn Fn(&str, ServerStart) + Sync),
    ) -> (Self, Vec<ServerProblem>) {
        let names: Vec<String> = specs.iter().map(|spec| spec.name.clone()).collect();
        let servers = specs
            .into_iter()
            .map(|spec| Arc::new(McpServer::new(spec, setup.clone(), cancel.clone())));
        let servers: Vec<Arc<McpServer>> = servers.collect();
        let broken = || Err(ServerError::Start("its start failed unexpectedly".to_owned()));
        let started = run_parallel(&servers, |server| {
            report(&server.spec.name, ServerStart::Begun);
            let started = start_server(server, cancel);
            let state = if started.is_ok() { ServerStart::Done } else { ServerStart::Failed };
            report(&server.spec.name, state);
            started
        });
        let started = started.into_iter().map(|started| started.unwrap_or_else(broken));
        let (mut own, mut problems, mut taken) = (Self::default(), Vec::new(), HashSet::new());
        for (server, started) in servers.into_iter().zip(started) {
            let name: Arc<str> = server.spec.name.as_str().into();
            match started {
                Ok(StartedServer { tools, omissions: notes, instructions }) => {
                    let reduced =
                        |what| ServerProblem::Incomplete { server: Arc::clone(&name), what };
                    problems.extend(notes.into_iter().map(reduced));
                    for tool in tools {
                        let local = tool_description::unique_name(&name, &tool.remote, &mut taken);
                        // A user's rule about another server must not match tools of this one.
                        let is_longer = |other: &&String| {
                            other.len() > name.len() && local.starts_with(&format!("mcp_{other}_"))
                        };
                        match names.iter().find(is_longer) {
                            Some(other) => problems.push(reduced(format!(
                                "the tool `{local}` is left out: its name is one for tools of `{other}`"
                            ))),
                            None => {
                                own.tools.push(ServerTool::new(&local, tool, Arc::clone(&server)));
                            }
                        }
                    }
                    if let Some(text) = instructions {
                        own.instructions.push(ServerInstructions { server: name, text });
                    }
                    own.all.push(server);
                }
                Err(error) => {
                    let necessity = server.spec.necessity;
                    problems.push(ServerProblem::Unavailable { server: name, error, necessity });
                }
            }
        }
        (own, problems)
    }

    /// Returns the tools, in a fixed order.
    pub fn tools(&self) -> &[ServerTool] {
        &self.tools
    }

    /// Returns the usage instructions of the servers, in order.
    pub fn instructions(&self) -> &[ServerInstructions] {
        &self.instructions
    }

    /// Stops the servers and their child processes concurrently. If less time is left than their usual limit, they get
    /// only that time, but at least a moment.
    pub fn stop(&self, left: Option<Duration>) {
        run_parallel(&self.all, |server| server.stop(left));
    }
}

/// Calls a function for each server, concurrently if threads are available. Returns the results; `None` for a panic.
fn run_parallel<T: Send>(
    servers: &[Arc<McpServer>],
    act: impl Fn(&McpServer) -> T + Sync,
) -> Vec<Option<T>> {
    let act = &act;
    thread::scope(|scope| {
        let start = |server| thread::Builder::new().spawn_scoped(scope, move || act(server));
        let running: Vec<_> = servers.iter().map(|server| (server, start(server))).collect();
        let done = running.into_iter().map(|(server, running)| match running {
            Ok(thread) => thread.join().ok(),
            Err(_) => Some(act(server)),
        });
        done.collect()
    })
}

impl Drop for McpServers {
    fn drop(&mut self) {
        self.stop(None);
    }
}

fn start_server(server: &McpServer, cancel: &CancellationToken) -> Result<StartedServer> {
    let wait = ReplyDeadline::new(server.spec.timeout, cancel, &|_| {});
    let caps = &server.setup.limits;
    let listed = server.start(&wait).and_then(|connection| {
        let text = connection.instructions.as_deref().map(strip_terminal_codes);
        let text = text.map(|text| tool_description::truncate(text, caps.instruction_bytes));
        Ok((connection.tools(caps.pages, &wait)?, text.filter(|text| !text.trim().is_empty())))
    });
    if listed.is_err() {
        server.stop(Some(wait.remaining()));
    }
    let (listed, instructions) = listed?;
    let (tools, mut omissions) = tool_description::select_tools(listed.tools, &server.spec, caps);
    omissions.extend(listed.truncated);
    Ok(StartedServer { tools, omissions, instructions })
}
