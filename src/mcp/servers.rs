//! The servers of a run.

use std::collections::HashSet;
use std::sync::Arc;
use std::thread;

use super::connection::Wait;
use super::describe::{self, Described};
use super::error::{Problem, ServerError};
use super::server::Server;
use super::settings::{Setup, Spec};
use super::tool::Tool;
use crate::port::Cancel;

/// The servers of a run. Dropping them ends them.
#[derive(Default)]
pub struct Servers {
    servers: Vec<Arc<Server>>,
    tools: Vec<Tool>,
}

/// What became of starting a server.
type Started = Result<(Vec<Described>, Vec<String>), ServerError>;

impl Servers {
    /// Starts servers, all at the same time, and lists their tools: in the order of the servers, and of each server's
    /// own list. Takes no longer than the longest of their time limits, and ends soon when it is cancelled; servers that
    /// run already are then given less time to end, too.
    pub fn start(specs: Vec<Spec>, setup: &Setup, cancel: &Cancel) -> (Self, Vec<Problem>) {
        let servers = specs
            .into_iter()
            .map(|spec| Arc::new(Server::new(spec, setup.clone(), cancel.clone())));
        let servers: Vec<Arc<Server>> = servers.collect();
        let started: Vec<Started> = thread::scope(|scope| {
            let start = |server: &Arc<Server>| {
                let server = Arc::clone(server);
                scope.spawn(move || start(&server, cancel))
            };
            let starting: Vec<_> = servers.iter().map(start).collect();
            let broken = |_| Err(ServerError::Start("its start broke down".to_owned()));
            starting.into_iter().map(|started| started.join().unwrap_or_else(broken)).collect()
        });
        let (mut own, mut problems, mut taken) = (Self::default(), Vec::new(), HashSet::new());
        for (server, started) in servers.into_iter().zip(started) {
            let name: Arc<str> = server.spec.name.as_str().into();
            match started {
                Ok((tools, notes)) => {
                    let reduced = |what| Problem::Reduced { server: Arc::clone(&name), what };
                    problems.extend(notes.into_iter().map(reduced));
                    own.tools.extend(tools.into_iter().map(|tool| {
                        let local = describe::name(&name, &tool.remote, &mut taken);
                        Tool::new(&local, tool, Arc::clone(&server))
                    }));
                    own.servers.push(server);
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

    /// Ends the servers, all at the same time, and whatever they have started.
    pub fn stop(&self) {
        thread::scope(|scope| {
            for server in &self.servers {
                scope.spawn(|| server.stop());
            }
        });
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.stop();
    }
}

fn start(server: &Server, cancel: &Cancel) -> Started {
    let wait = Wait::new(server.spec.timeout, cancel, &|_| {});
    let caps = &server.setup.caps;
    let listed = server.start(&wait).and_then(|connection| connection.tools(caps.pages, &wait));
    match listed {
        Ok(listed) => {
            let (tools, mut notes) = describe::described(listed.tools, &server.spec.tools, caps);
            notes.extend(listed.cut);
            Ok((tools, notes))
        }
        Err(error) => {
            server.stop();
            Err(error)
        }
    }
}
