//! The servers of a run.

use std::collections::HashSet;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::connection::Wait;
use super::describe::{self, Described};
use super::error::{Problem, ServerError};
use super::server::Server;
use super::settings::{Setup, Spec};
use super::tool::Tool;
use crate::model::plain;
use crate::port::Cancel;

/// The servers of a run. Dropping them ends them.
#[derive(Default)]
pub struct Servers {
    all: Vec<Arc<Server>>,
    tools: Vec<Tool>,
    instructions: Vec<Instructions>,
}

/// How a server wants to be used. Like all that a server says, it is not the user's word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instructions {
    /// The server.
    pub server: Arc<str>,
    /// What it says, as plain text.
    pub text: String,
}

/// What a server has said when it is ready.
struct Ready {
    tools: Vec<Described>,
    /// What was left out.
    notes: Vec<String>,
    instructions: Option<String>,
}

/// What became of starting a server.
type Started = Result<Ready, ServerError>;

impl Servers {
    /// Starts servers, all at the same time, and lists their tools: in the order of the servers, and of each server's
    /// own list. Takes no longer than the longest of their time limits, and ends soon when it is cancelled; servers that
    /// run already are then given less time to end, too. Those for which the system has no thread come one by one.
    pub fn start(specs: Vec<Spec>, setup: &Setup, cancel: &Cancel) -> (Self, Vec<Problem>) {
        let servers = specs
            .into_iter()
            .map(|spec| Arc::new(Server::new(spec, setup.clone(), cancel.clone())));
        let servers: Vec<Arc<Server>> = servers.collect();
        let broken = || Err(ServerError::Start("its start broke down".to_owned()));
        let started = side_by_side(&servers, |server| start(server, cancel));
        let started = started.into_iter().map(|started| started.unwrap_or_else(broken));
        let (mut own, mut problems, mut taken) = (Self::default(), Vec::new(), HashSet::new());
        for (server, started) in servers.into_iter().zip(started) {
            let name: Arc<str> = server.spec.name.as_str().into();
            match started {
                Ok(Ready { tools, notes, instructions }) => {
                    let reduced = |what| Problem::Reduced { server: Arc::clone(&name), what };
                    problems.extend(notes.into_iter().map(reduced));
                    own.tools.extend(tools.into_iter().map(|tool| {
                        let local = describe::name(&name, &tool.remote, &mut taken);
                        Tool::new(&local, tool, Arc::clone(&server))
                    }));
                    if let Some(text) = instructions {
                        own.instructions.push(Instructions { server: name, text });
                    }
                    own.all.push(server);
                }
                Err(error) => {
                    let necessity = server.spec.necessity;
                    problems.push(Problem::Missing { server: name, error, necessity });
                }
            }
        }
        (own, problems)
    }

    /// Returns the tools, in an order that never changes within a run.
    pub fn tools(&self) -> &[Tool] {
        &self.tools
    }

    /// Returns how the servers want to be used, in their order.
    pub fn instructions(&self) -> &[Instructions] {
        &self.instructions
    }

    /// Ends the servers, all at the same time, and whatever they have started. Who has less time left for that than they
    /// usually get gives them no more; a moment it takes all the same.
    pub fn stop(&self, left: Option<Duration>) {
        side_by_side(&self.all, |server| server.stop(left));
    }
}

/// Does something with each server at the same time, as far as the system has threads, and with the rest one by one.
/// Returns what came of each; none where it broke down.
fn side_by_side<T: Send>(
    servers: &[Arc<Server>],
    act: impl Fn(&Server) -> T + Sync,
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

impl Drop for Servers {
    fn drop(&mut self) {
        self.stop(None);
    }
}

fn start(server: &Server, cancel: &Cancel) -> Started {
    let wait = Wait::new(server.spec.timeout, cancel, &|_| {});
    let caps = &server.setup.caps;
    let listed = server.start(&wait).and_then(|connection| {
        let text =
            connection.instructions().map(|text| describe::cut(plain(text), caps.instructions));
        Ok((connection.tools(caps.pages, &wait)?, text.filter(|text| !text.trim().is_empty())))
    });
    match listed {
        Ok((listed, instructions)) => {
            let (tools, mut notes) = describe::described(listed.tools, &server.spec.tools, caps);
            notes.extend(listed.cut);
            Ok(Ready { tools, notes, instructions })
        }
        Err(error) => {
            server.stop(Some(wait.left()));
            Err(error)
        }
    }
}
