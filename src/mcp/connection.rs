//! A connection: requests with numbers and deadlines, in the era that was agreed on.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use super::era::{self, Era, WITH_SESSION};
use super::error::ServerError;
use super::message::{Request, notification};
use super::settings::Setup;
use crate::port::Cancel;

/// The way to a server and back.
pub(super) trait Channel: Send + Sync {
    /// Sends a request and waits for its answer. When nobody waits any more, the server is told.
    fn ask(&self, request: &Request, wait: &Wait<'_>) -> Result<Value, ServerError>;

    /// Sends something that needs no answer.
    fn tell(
        &self,
        message: Value,
        version: &'static str,
        wait: &Wait<'_>,
    ) -> Result<(), ServerError>;

    /// Returns why the channel has ended, if it has.
    fn ended(&self) -> Option<ServerError>;
}

/// How much time a server is given to end.
#[derive(Clone)]
pub(super) struct Parting {
    usual: Duration,
    hurried: Duration,
    hurry: Cancel,
    until: Until,
}

/// Until when a server is to have ended, where that is known.
#[derive(Clone, Default)]
pub(super) struct Until(Arc<Mutex<Option<Instant>>>);

/// How long somebody waits for an answer.
#[derive(Clone, Copy)]
pub(super) struct Wait<'a> {
    /// Until then.
    pub until: Instant,
    /// How long that is, for people.
    pub most: Duration,
    /// Or until this is cancelled.
    pub cancel: &'a Cancel,
    /// Is told how far it has come.
    pub progress: &'a dyn Fn(&str),
}

/// A connection to a server with which an era was agreed on.
pub(super) struct Connection {
    channel: Box<dyn Channel>,
    agreed: Agreed,
    next: AtomicU64,
}

/// What was agreed on with a server, and what it said then.
struct Agreed {
    era: Era,
    /// How it wants to be used.
    instructions: Option<String>,
}

/// What is asked for.
#[derive(Clone, Debug)]
pub(super) struct Question {
    pub method: &'static str,
    pub params: Map<String, Value>,
    /// Headers for its arguments, where there are headers.
    pub mirrored: Vec<(String, String)>,
}

/// The versions that a server offers, and how it wants to be used.
type Discovered = (Vec<String>, Option<String>);

/// A list of tools, as far as it was read.
pub(super) struct Listed {
    pub tools: Vec<Value>,
    /// Why it was not read on.
    pub cut: Option<String>,
}

impl Parting {
    /// Returns how much time a server has, and in a hurry how much. There is a hurry when that is cancelled, and when the
    /// time has come.
    pub(super) fn new(setup: &Setup, hurry: &Cancel, until: &Until) -> Self {
        Self {
            usual: setup.goodbye,
            hurried: setup.hurried,
            hurry: hurry.clone(),
            until: until.clone(),
        }
    }

    /// Returns how long a server may take that has noticed by itself that it is not needed; none where it is to be told.
    pub(super) fn unasked(&self) -> Option<Duration> {
        let most = self.until.left().map_or(self.usual, |left| left.min(self.usual));
        (!self.hurry.is_cancelled() && !most.is_zero()).then_some(most)
    }

    /// Returns how long a server may take that was told.
    pub(super) fn asked(&self) -> Duration {
        self.unasked().unwrap_or_default().max(self.hurried)
    }
}

impl Until {
    pub(super) fn set(&self, until: Option<Instant>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }

    fn left(&self) -> Option<Duration> {
        let until = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        until.map(|until| until.saturating_duration_since(Instant::now()))
    }
}

impl<'a> Wait<'a> {
    /// Returns a wait of so long that starts now.
    pub(super) fn new(most: Duration, cancel: &'a Cancel, progress: &'a dyn Fn(&str)) -> Self {
        Self { until: Instant::now() + most, most, cancel, progress }
    }

    /// Returns the same wait, but of so long at the most from now on.
    fn at_most(&self, most: Duration) -> Self {
        let until = Instant::now() + most;
        if until < self.until { Self { until, most, ..*self } } else { *self }
    }

    /// Returns how long there is still to wait.
    pub(super) fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// Returns that it took too long.
    pub(super) fn over(&self) -> ServerError {
        ServerError::TimedOut(self.most)
    }
}

impl Question {
    pub(super) fn new(method: &'static str, params: Map<String, Value>) -> Self {
        Self { method, params, mirrored: Vec::new() }
    }
}

impl Connection {
    /// Agrees with a server on an era, unless that is known from an earlier connection. A server that may not know the
    /// newest one has so long to say so, and no more than a quarter of the time.
    pub(super) fn open(
        channel: Box<dyn Channel>,
        known: Option<Era>,
        probe: Duration,
        wait: &Wait<'_>,
    ) -> Result<Self, ServerError> {
        let silent = Agreed { era: Era::Stateless, instructions: None };
        let mut connection = Self { channel, agreed: silent, next: AtomicU64::new(1) };
        match known {
            // It was discovered once; there is nothing to begin.
            Some(Era::Stateless) => {}
            Some(Era::Session(version)) => {
                connection.agreed = connection.initialize(version, wait)?;
            }
            None => connection.agreed = connection.agree(probe, wait)?,
        }
        Ok(connection)
    }

    fn agree(&self, probe: Duration, wait: &Wait<'_>) -> Result<Agreed, ServerError> {
        // What is left has to suffice for a server that is silent when it does not know a method.
        match self.discover(&wait.at_most(probe.min(wait.left() / 4))) {
            Ok(discovered) => self.begin(discovered, wait),
            // Any other error than one of the newest era comes from an older server, and so does silence.
            Err(ServerError::Refused(refusal)) => match refusal.offered() {
                Some(offered) => self.begin((offered, None), wait),
                None => self.initialize(WITH_SESSION[0], wait),
            },
            // Some answer what they do not know with nothing.
            Err(ServerError::Status { status: 400..500, .. } | ServerError::Malformed(_)) => {
                self.initialize(WITH_SESSION[0], wait)
            }
            Err(ServerError::TimedOut(_)) => match self.initialize(WITH_SESSION[0], wait) {
                // It was only slow.
                Err(ServerError::Refused(_)) => {
                    let discovered = self.discover(wait)?;
                    self.begin(discovered, wait)
                }
                agreed => agreed,
            },
            Err(error) => Err(error),
        }
    }

    /// Asks a server which versions it speaks, and how it wants to be used; only servers of the newest era can be asked
    /// that.
    fn discover(&self, wait: &Wait<'_>) -> Result<Discovered, ServerError> {
        let question = Question::new("server/discover", Map::new());
        let result = self.request_in(Era::Stateless, question, wait)?;
        let malformed = || ServerError::Malformed("it names no versions".to_owned());
        let versions = era::versions(result.get("supportedVersions")).ok_or_else(malformed)?;
        Ok((versions, instructions(&result)))
    }

    fn begin(
        &self,
        (offered, instructions): Discovered,
        wait: &Wait<'_>,
    ) -> Result<Agreed, ServerError> {
        match Era::best(offered)? {
            Era::Stateless => Ok(Agreed { era: Era::Stateless, instructions }),
            Era::Session(version) => self.initialize(version, wait),
        }
    }

    fn initialize(&self, version: &'static str, wait: &Wait<'_>) -> Result<Agreed, ServerError> {
        let params = [
            ("protocolVersion", version.into()),
            ("capabilities", json!({})),
            ("clientInfo", era::client()),
        ];
        let params = params.map(|(name, value)| (name.to_owned(), value)).into_iter().collect();
        let question = Question::new("initialize", params);
        let result = self.request_in(Era::Session(version), question, wait)?;
        let theirs = result.get("protocolVersion").and_then(Value::as_str).unwrap_or_default();
        let known = WITH_SESSION.into_iter().find(|known| *known == theirs);
        let agreed = known.ok_or_else(|| ServerError::Version(vec![theirs.to_owned()]))?;
        let begun = notification("notifications/initialized", &json!({}));
        self.channel.tell(begun, agreed, wait)?;
        Ok(Agreed { era: Era::Session(agreed), instructions: instructions(&result) })
    }

    /// Lists the tools of the server, page by page.
    pub(super) fn tools(&self, pages: usize, wait: &Wait<'_>) -> Result<Listed, ServerError> {
        let (mut tools, mut cursor, mut seen) = (Vec::new(), None, HashSet::new());
        for _ in 0..pages {
            let cursor_now =
                cursor.take().map(|cursor| ("cursor".to_owned(), Value::String(cursor)));
            let question = Question::new("tools/list", cursor_now.into_iter().collect());
            let mut page = self.request(question, wait)?;
            match page.get_mut("tools").map(Value::take) {
                Some(Value::Array(items)) => tools.extend(items),
                _ => return Err(ServerError::Malformed("a page without tools".to_owned())),
            }
            match page.get("nextCursor").and_then(Value::as_str) {
                None => return Ok(Listed { tools, cut: None }),
                Some(next) if seen.insert(next.to_owned()) => cursor = Some(next.to_owned()),
                Some(_) => {
                    let cut = "the list of tools leads back to where it was".to_owned();
                    return Ok(Listed { tools, cut: Some(cut) });
                }
            }
        }
        let cut = format!("the list of tools has more than {pages} pages");
        Ok(Listed { tools, cut: Some(cut) })
    }

    /// Makes a request and waits for its result.
    pub(super) fn request(
        &self,
        question: Question,
        wait: &Wait<'_>,
    ) -> Result<Value, ServerError> {
        self.request_in(self.era(), question, wait)
    }

    fn request_in(
        &self,
        era: Era,
        question: Question,
        wait: &Wait<'_>,
    ) -> Result<Value, ServerError> {
        let Question { method, mut params, mirrored } = question;
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let mut meta = era.meta();
        if let Some(Value::Object(own)) = params.remove("_meta") {
            meta.extend(own);
        }
        if method == "tools/call" {
            meta.insert("progressToken".to_owned(), id.into());
        }
        if !meta.is_empty() {
            params.insert("_meta".to_owned(), Value::Object(meta));
        }
        self.channel.ask(&Request { id, method, params, version: era.version(), mirrored }, wait)
    }

    /// Returns the era that was agreed on.
    pub(super) fn era(&self) -> Era {
        self.agreed.era
    }

    /// Returns how the server wants to be used, if it said so.
    pub(super) fn instructions(&self) -> Option<&str> {
        self.agreed.instructions.as_deref()
    }

    /// Returns why the connection has ended, if it has.
    pub(super) fn ended(&self) -> Option<ServerError> {
        self.channel.ended()
    }
}

fn instructions(result: &Value) -> Option<String> {
    result.get("instructions").and_then(Value::as_str).map(str::to_owned)
}
