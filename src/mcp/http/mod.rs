//! A server at an address: each message is a request of its own, answered by one document or by a stream of events.
//!
//! Whoever makes a call waits on its own thread. Closing the connection takes the call back; a watcher does so at the
//! call's deadline. Redirects are not followed, and what the headers carry is never quoted.

mod mirror;
mod reply;
mod watch;

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use serde_json::Value;

use super::connection::{Channel, Parting, Wait};
use super::era::NEWEST;
use super::error::ServerError;
use super::message::{Request, Said, cancelled};
use crate::model::plain;
use crate::net::{
    Body, Client, Endpoint, HeaderMap, HeaderName, HeaderValue, Method, NetError, Options,
    Request as Post, Response, header,
};
use crate::port::Cancel;
use watch::Watch;

pub(super) use mirror::{Mirror, mirrors};

/// A server at an address.
pub(super) struct Http(Arc<Shared>);

struct Shared {
    url: String,
    /// What goes with every request.
    headers: HeaderMap,
    options: Options,
    /// Those that nobody uses at the moment: cancelling a call closes all connections of its client.
    clients: Mutex<Vec<Client>>,
    session: Mutex<Session>,
    secrets: Vec<String>,
    largest: usize,
    parting: Parting,
}

/// The session of the eras that have one.
enum Session {
    /// There is none.
    None,
    /// The server knows it by this.
    Known(HeaderValue),
    /// The server does not know it any more.
    Over,
}

/// What happens when a connection is lost before an answer.
#[derive(Clone, Copy)]
enum Sending {
    /// The request is lost with it.
    Once,
    /// Another connection takes its place, if the lost one was an old one.
    Surely,
}

const SESSION: &str = "mcp-session-id";

/// What is read of an answer that is none.
const GLIMPSE: usize = 16 << 10;

/// How many characters of it are quoted.
const QUOTED: usize = 300;

impl Http {
    pub(super) fn new(
        url: &str,
        headers: &[(String, String)],
        secrets: Vec<String>,
        options: Options,
        largest: usize,
        parting: Parting,
    ) -> Result<Self, ServerError> {
        let start = ServerError::Start;
        Endpoint::parse(url, true).map_err(|error| start(error.to_string()))?;
        let mut all = HeaderMap::new();
        for (name, value) in headers {
            let bad = || start(format!("its header `{name}` cannot be sent"));
            let key = HeaderName::try_from(name).map_err(|_| bad())?;
            let mut value = HeaderValue::from_str(value).map_err(|_| bad())?;
            value.set_sensitive(true);
            all.insert(key, value);
        }
        let kinds = HeaderValue::from_static("application/json, text/event-stream");
        all.insert(header::ACCEPT, kinds);
        all.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Ok(Self(Arc::new(Shared {
            url: url.to_owned(),
            headers: all,
            options,
            clients: Mutex::default(),
            session: Mutex::new(Session::None),
            secrets,
            largest,
            parting,
        })))
    }
}

impl Channel for Http {
    fn ask(&self, request: &Request, wait: &Wait<'_>) -> Result<Value, ServerError> {
        let result = self.0.ask(request, wait);
        let is_given_up = matches!(result, Err(ServerError::TimedOut(_) | ServerError::Cancelled));
        // In the newest era the end of the connection says it.
        if is_given_up && request.version != NEWEST && request.method != "initialize" {
            let (shared, id, version) = (Arc::clone(&self.0), request.id, request.version);
            // Whoever gave up does not wait for this.
            let _ = thread::Builder::new().name("mcp-cancel".to_owned()).spawn(move || {
                let wait_little = Cancel::new();
                let wait = Wait::new(shared.parting.asked(), &wait_little, &|_| {});
                let _ = shared.post(&cancelled(id), version, &[], &wait);
            });
        }
        result
    }

    fn tell(
        &self,
        message: Value,
        version: &'static str,
        wait: &Wait<'_>,
    ) -> Result<(), ServerError> {
        self.0.post(&message, version, &[], wait).map(drop)
    }

    fn ended(&self) -> Option<ServerError> {
        let session = self.0.session.lock().unwrap_or_else(PoisonError::into_inner);
        matches!(*session, Session::Over).then_some(ServerError::SessionOver)
    }
}

impl Drop for Http {
    /// Tells the server that its session is not needed any more.
    fn drop(&mut self) {
        let Some(session) = self.0.session() else { return };
        let nobody = Cancel::new();
        let wait = Wait::new(self.0.parting.asked(), &nobody, &|_| {});
        let mut headers = self.0.headers.clone();
        headers.insert(SESSION, session);
        // It may not care.
        let _ = self.0.exchange(
            Sending::Surely,
            Method::DELETE,
            headers,
            Body::new(),
            &wait,
            |_, _| Ok(()),
        );
    }
}

impl Shared {
    fn ask(&self, request: &Request, wait: &Wait<'_>) -> Result<Value, ServerError> {
        let headers = mirror::headers(request);
        let body = request.to_json();
        self.send(&body, request.version, &headers, wait, |response, wait| {
            if let (Some(session), "initialize") = (response.headers.get(SESSION), request.method) {
                *self.session.lock().unwrap_or_else(PoisonError::into_inner) =
                    Session::Known(session.clone());
            }
            self.reply(response, request, wait)
        })
    }

    /// Sends a message that needs no answer.
    fn post(
        &self,
        message: &Value,
        version: &'static str,
        headers: &[(String, String)],
        wait: &Wait<'_>,
    ) -> Result<(), ServerError> {
        self.send(message, version, headers, wait, |_, _| Ok(()))
    }

    fn send<T>(
        &self,
        message: &Value,
        version: &'static str,
        own: &[(String, String)],
        wait: &Wait<'_>,
        read: impl FnOnce(&mut Response, &Wait<'_>) -> Result<T, ServerError>,
    ) -> Result<T, ServerError> {
        let mut headers = self.headers.clone();
        let mut set = |name: &str, value: &str| {
            if let (Ok(name), Ok(value)) =
                (HeaderName::try_from(name), HeaderValue::from_str(value))
            {
                headers.insert(name, value);
            }
        };
        for (name, value) in own {
            set(name, value);
        }
        // The first request of a session is about the version itself.
        if message["method"] != "initialize" {
            set("mcp-protocol-version", version);
        }
        let session = self.session();
        if let Some(session) = &session {
            headers.insert(SESSION, session.clone());
        }
        let body = Body::new().and(message.to_string().into_bytes());
        // What a tool does may not be done twice.
        let is_call = message["method"] == "tools/call";
        let sending = if is_call { Sending::Once } else { Sending::Surely };
        self.exchange(sending, Method::POST, headers, body, wait, |response, wait| {
            match response.status {
                200..300 => read(response, wait),
                404 if session.is_some() => {
                    *self.session.lock().unwrap_or_else(PoisonError::into_inner) = Session::Over;
                    Err(ServerError::SessionOver)
                }
                _ => Err(self.refused(response)),
            }
        })
    }

    fn exchange<T>(
        &self,
        sending: Sending,
        method: Method,
        headers: HeaderMap,
        body: Body,
        wait: &Wait<'_>,
        read: impl FnOnce(&mut Response, &Wait<'_>) -> Result<T, ServerError>,
    ) -> Result<T, ServerError> {
        let idle = self.clients.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let client = match idle {
            Some(client) => client,
            None => Client::new(&self.options).map_err(|error| self.lost(&error, wait))?,
        };
        let watch = Watch::over(wait).map_err(|error| ServerError::Start(error.to_string()))?;
        let post = Post { method, url: self.url.clone(), headers, body };
        let sent = match sending {
            Sending::Once => client.send_once(&post, &watch.exchange),
            Sending::Surely => client.send(&post, &watch.exchange),
        };
        let result = match sent {
            Err(error) => Err(self.lost(&error, wait)),
            Ok(mut response) => {
                let result = read(&mut response, wait);
                match result {
                    Ok(_) => response.leave(),
                    Err(_) => drop(response),
                }
                result
            }
        };
        drop(watch);
        self.clients.lock().unwrap_or_else(PoisonError::into_inner).push(client);
        result
    }

    /// Returns the error of an answer whose status says that it is none.
    fn refused(&self, response: &mut Response) -> ServerError {
        let status = response.status;
        if (300..400).contains(&status) {
            let place = response.header("location").unwrap_or("somewhere else");
            return ServerError::Redirected(self.quoted(place));
        }
        if matches!(status, 401 | 403) {
            return ServerError::Unauthorized(status);
        }
        // What cannot be read any more is not needed.
        let body = response.read_all(GLIMPSE).unwrap_or_default();
        let refusal = Said::parse(&body).into_iter().flatten().find_map(|said| match said {
            Said::Reply { outcome: Err(refusal), .. } => Some(ServerError::Refused(refusal)),
            _ => None,
        });
        refusal.unwrap_or_else(|| {
            let said = self.quoted(&String::from_utf8_lossy(&body));
            ServerError::Status { status, said }
        })
    }

    fn lost(&self, error: &NetError, wait: &Wait<'_>) -> ServerError {
        match error {
            NetError::Cancelled if wait.cancel.is_cancelled() => ServerError::Cancelled,
            NetError::Cancelled => wait.over(),
            NetError::Timeout { .. } if wait.left().is_zero() => wait.over(),
            error => ServerError::Unreachable(self.quoted(&error.to_string())),
        }
    }

    fn session(&self) -> Option<HeaderValue> {
        match &*self.session.lock().unwrap_or_else(PoisonError::into_inner) {
            Session::Known(session) => Some(session.clone()),
            Session::None | Session::Over => None,
        }
    }

    fn quoted(&self, text: &str) -> String {
        let text =
            self.secrets.iter().fold(plain(text), |text, secret| text.replace(secret, "***"));
        short(text.trim())
    }
}

fn short(text: &str) -> String {
    text.chars().take(QUOTED).collect()
}
