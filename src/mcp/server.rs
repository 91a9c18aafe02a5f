//! One server: its connection, and another one when that has ended.

use std::ffi::OsString;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::connection::{Channel, Connection, Parting, Question, Until, Wait};
use super::era::{Era, WITH_SESSION};
use super::error::ServerError;
use super::http::Http;
use super::settings::{Setup, Spec, Transport};
use super::stdio::Stdio;
use crate::net::{Limits, Options};
use crate::port::Cancel;

/// A server.
pub(super) struct Server {
    pub spec: Spec,
    pub setup: Setup,
    /// Cancelled when the whole program is to end.
    hurry: Cancel,
    /// Known while it is started, and when nobody needs it any more.
    until: Until,
    /// None when nobody needs it any more.
    life: Mutex<Option<Life>>,
}

/// Where a server stands, from its first connection to the last.
#[derive(Default)]
struct Life {
    connection: Option<Arc<Connection>>,
    /// What was agreed on with the first connection; it is a property of the server.
    era: Option<Era>,
    restarted: Option<Instant>,
}

/// Whether a call may be made again that may have been made already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repeat {
    Never,
    /// The server says that it does no harm.
    Harmless,
}

impl Server {
    pub(super) fn new(spec: Spec, setup: Setup, hurry: Cancel) -> Self {
        let life = Mutex::new(Some(Life::default()));
        Self { spec, setup, hurry, until: Until::default(), life }
    }

    /// Starts the server and agrees with it on an era.
    pub(super) fn start(&self, wait: &Wait<'_>) -> Result<Arc<Connection>, ServerError> {
        let mut life = self.life();
        self.connect(life.as_mut().ok_or(ServerError::Cancelled)?, wait)
    }

    /// Makes a call. A server that has ended is started again for it.
    pub(super) fn call(
        &self,
        question: &Question,
        repeat: Repeat,
        wait: &Wait<'_>,
    ) -> Result<Value, ServerError> {
        let call = |connection: Arc<Connection>| connection.request(question.clone(), wait);
        match call(self.connection(wait)?) {
            // It was not even looked at.
            Err(ServerError::SessionOver) => call(self.connection(wait)?),
            // What a call may have done before it was lost must not happen twice.
            Err(error) if error.is_loss() && repeat == Repeat::Harmless => {
                call(self.connection(wait).map_err(|_| error)?)
            }
            answered => answered,
        }
    }

    /// Ends the server for good; the time that it may take for that is shorter when only so much is left.
    pub(super) fn stop(&self, left: Option<Duration>) {
        let life = self.life().take();
        self.until.set(left.and_then(|left| Instant::now().checked_add(left)));
        drop(life);
    }

    /// Returns a connection that has not ended.
    fn connection(&self, wait: &Wait<'_>) -> Result<Arc<Connection>, ServerError> {
        let mut life = self.life();
        let life = life.as_mut().ok_or(ServerError::Cancelled)?;
        let ended = match &life.connection {
            Some(connection) => match connection.ended() {
                None => return Ok(Arc::clone(connection)),
                ended => ended,
            },
            None => None,
        };
        // A session that is over is no sign that something is wrong.
        if ended == Some(ServerError::SessionOver) {
            return self.connect(life, wait);
        }
        let pause = self.setup.restart;
        if life.restarted.is_some_and(|before| before.elapsed() < pause) {
            return Err(ServerError::TooSoon(pause));
        }
        life.restarted = Some(Instant::now());
        self.connect(life, wait)
    }

    fn connect(&self, life: &mut Life, wait: &Wait<'_>) -> Result<Arc<Connection>, ServerError> {
        life.connection = None;
        let open = |era| Connection::open(self.channel()?, era, self.setup.probe, wait);
        // What is too slow to begin gets no more time to end.
        self.until.set(Some(wait.until));
        let opened = match open(life.era) {
            // Some servers end when the first that they hear is not the beginning of a session.
            Err(ServerError::Died { .. }) if life.era.is_none() => {
                open(Some(Era::Session(WITH_SESSION[0])))
            }
            opened => opened,
        };
        self.until.set(None);
        let connection = Arc::new(opened?);
        life.era = Some(connection.era());
        life.connection = Some(Arc::clone(&connection));
        Ok(connection)
    }

    fn channel(&self) -> Result<Box<dyn Channel>, ServerError> {
        let secrets = self.spec.transport.secrets();
        let parting = Parting::new(&self.setup, &self.hurry, &self.until);
        match &self.spec.transport {
            Transport::Stdio { command, args, env } => {
                let argv = [command].into_iter().chain(args).map(OsString::from).collect();
                Ok(Box::new(Stdio::start(argv, env, secrets, &self.setup, parting)?))
            }
            Transport::Http { url, headers, way } => {
                let limits =
                    Limits { first_byte: self.spec.timeout, idle: self.spec.timeout, ..way.limits };
                let way = Options { limits, ..way.clone() };
                Ok(Box::new(Http::new(
                    url,
                    headers,
                    secrets,
                    way,
                    self.setup.caps.message,
                    parting,
                )?))
            }
        }
    }

    /// The lock is held while the server is started again: whoever calls meanwhile needs the same connection.
    fn life(&self) -> MutexGuard<'_, Option<Life>> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
