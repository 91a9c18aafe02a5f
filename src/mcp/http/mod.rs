//! A server at a URL. Each message is a request, which is answered by a document or a stream of events.
//!
//! A call blocks its own thread. It is cancelled by closing its connection; a watcher does that at the deadline.
//! Redirects are not followed, and header values are never quoted.

mod mirrored_arguments;
mod oauth;
mod reply;

use std::sync::{Arc, Mutex};
use std::time::Instant;
use std::{io, thread};

use serde_json::Value;

use super::connection::{Channel, ReplyDeadline, ServerShutdown};
use super::error::{Result, ServerError};
use super::message::{RpcRequest, ServerMessage, cancel_notification};
use super::protocol_mode::STATELESS_VERSION;
use crate::net::{
    Endpoint, HeaderMap, HeaderName, HeaderValue, HttpClient, HttpOptions, HttpRequest,
    HttpResponse, Method, NetError, RequestBody, Secret, header,
};
use crate::port::{CancelRegistration, CancellationToken, lock};
use crate::types::strip_terminal_codes;

pub(super) use mirrored_arguments::{MirroredArgument, mirrored_arguments};
pub(super) use oauth::TokenSource;
use reply::ReplyProgress;

/// A connection to a server at a URL.
pub(super) struct HttpChannel(Arc<HttpState>);

struct HttpState {
    url: String,
    /// The headers of every request.
    headers: HeaderMap,
    options: HttpOptions,
    /// Idle clients; cancelling a call closes all connections of its client.
    clients: Mutex<Vec<HttpClient>>,
    session: Mutex<HttpSession>,
    secrets: Vec<String>,
    /// The access tokens for requests.
    tokens: Option<Arc<TokenSource>>,
    max_message: usize,
    shutdown: ServerShutdown,
}

/// The result of a request.
enum SendResult<T> {
    Answered(T),
    /// The token was rejected, with this `WWW-Authenticate` header.
    Rejected(String),
}

/// The session, in modes with sessions.
enum HttpSession {
    /// No session.
    None,
    /// The session ID.
    Known(HeaderValue),
    /// The server has dropped the session.
    Expired,
}

/// The reaction to a connection that is lost before an answer.
#[derive(Clone, Copy)]
enum ResendPolicy {
    /// The request fails.
    Never,
    /// The request is sent again if the connection had been used before.
    OnLoss,
}

const SESSION_HEADER: &str = "mcp-session-id";

/// The maximum size of an error body that is read, in bytes.
const MAX_ERROR_BODY: usize = 16 << 10;

/// The number of its characters that are quoted.
const MAX_QUOTED_CHARS: usize = 300;

impl HttpChannel {
    pub(super) fn new(
        url: &str,
        headers: &[(String, String)],
        secrets: Vec<String>,
        options: HttpOptions,
        tokens: Option<Arc<TokenSource>>,
        largest: usize,
        parting: ServerShutdown,
    ) -> Result<Self> {
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
        Ok(Self(Arc::new(HttpState {
            url: url.to_owned(),
            headers: all,
            options,
            clients: Mutex::default(),
            session: Mutex::new(HttpSession::None),
            secrets,
            tokens,
            max_message: largest,
            shutdown: parting,
        })))
    }
}

impl Channel for HttpChannel {
    fn request(&self, request: &RpcRequest, wait: &ReplyDeadline<'_>) -> Result<Value> {
        let result = self.0.request(request, wait);
        let is_given_up = matches!(result, Err(ServerError::TimedOut(_) | ServerError::Cancelled));
        // In the newest mode, closing the connection cancels the request.
        if is_given_up && request.version != STATELESS_VERSION && request.method != "initialize" {
            let (shared, id, version) = (Arc::clone(&self.0), request.id, request.version);
            // The caller does not wait for the notification.
            let _ = thread::Builder::new().name("mcp-cancel".to_owned()).spawn(move || {
                let wait_little = CancellationToken::new();
                let wait =
                    ReplyDeadline::new(shared.shutdown.exit_timeout(), &wait_little, &|_| {});
                let _ = shared.notify(&cancel_notification(id), version, &wait);
            });
        }
        result
    }

    fn notify(&self, message: Value, version: &str, wait: &ReplyDeadline<'_>) -> Result<()> {
        self.0.notify(&message, version, wait)
    }

    fn end_reason(&self) -> Option<ServerError> {
        matches!(*lock(&self.0.session), HttpSession::Expired)
            .then_some(ServerError::SessionExpired)
    }
}

impl Drop for HttpChannel {
    /// Ends the session on the server.
    fn drop(&mut self) {
        let Some(session) = self.0.session() else { return };
        let uncancelled = CancellationToken::new();
        let wait = ReplyDeadline::new(self.0.shutdown.exit_timeout(), &uncancelled, &|_| {});
        let mut headers = self.0.headers.clone();
        headers.insert(SESSION_HEADER, session);
        let token = self.0.tokens.as_ref().and_then(|tokens| tokens.last());
        HttpState::set_token(&mut headers, token.as_ref());
        let (url, body) = (self.0.url.clone(), RequestBody::new());
        let request = HttpRequest { method: Method::DELETE, url, headers, body };
        // Errors are ignored.
        let _ = self.0.exchange(ResendPolicy::OnLoss, &request, &wait, |_| Ok(()));
    }
}

impl HttpState {
    fn request(&self, request: &RpcRequest, wait: &ReplyDeadline<'_>) -> Result<Value> {
        let headers = mirrored_arguments::request_headers(request);
        let body = request.to_json();
        let mut progress = self.send(&body, request.version, &headers, wait, |response| {
            if let (Some(session), "initialize") =
                (response.headers.get(SESSION_HEADER), request.method)
            {
                *lock(&self.session) = HttpSession::Known(session.clone());
            }
            self.read_reply(response, request, wait)
        })?;
        // Each part of the answer is a separate exchange, and does not keep its connection for the next part.
        loop {
            progress = match progress {
                ReplyProgress::Complete(reply) => return Ok(reply),
                ReplyProgress::Interrupted(point) => self.resume_stream(&point, request, wait)?,
            };
        }
    }

    /// Sends a message that has no answer.
    fn notify(&self, message: &Value, version: &str, wait: &ReplyDeadline<'_>) -> Result<()> {
        self.send(message, version, &[], wait, |_| Ok(()))
    }

    fn send<T>(
        &self,
        message: &Value,
        version: &str,
        own: &[(String, String)],
        wait: &ReplyDeadline<'_>,
        read: impl Fn(&mut HttpResponse) -> Result<T>,
    ) -> Result<T> {
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
        // The first request of a session negotiates the version.
        if message["method"] != "initialize" {
            set("mcp-protocol-version", version);
        }
        let session = self.session();
        if let Some(session) = &session {
            headers.insert(SESSION_HEADER, session.clone());
        }
        let body = RequestBody::new().with(message.to_string().into_bytes());
        // A tool call must not be repeated.
        let is_call = message["method"] == "tools/call";
        let sending = if is_call { ResendPolicy::Never } else { ResendPolicy::OnLoss };
        loop {
            let token = self.current_token(wait)?;
            Self::set_token(&mut headers, token.as_ref());
            let (url, headers, body) = (self.url.clone(), headers.clone(), body.clone());
            let request = HttpRequest { method: Method::POST, url, headers, body };
            let sent = self.exchange(sending, &request, wait, |response| {
                if let (401, Some(_)) = (response.status, &self.tokens) {
                    return Ok(SendResult::Rejected(challenge(response)));
                }
                if let Some(tokens) = &self.tokens {
                    tokens.accept(token.as_ref());
                }
                match response.status {
                    200..300 => read(response).map(SendResult::Answered),
                    404 if session.is_some() => {
                        *lock(&self.session) = HttpSession::Expired;
                        Err(ServerError::SessionExpired)
                    }
                    _ => Err(self.status_error(response)),
                }
            })?;
            match (sent, &self.tokens) {
                (SendResult::Answered(answer), _) => return Ok(answer),
                // The server has not processed the request.
                (SendResult::Rejected(challenge), Some(tokens))
                    if tokens.renew(token.as_ref(), &challenge, wait)? => {}
                (SendResult::Rejected(challenge), _) => {
                    let about = oauth::parameter(&challenge, "error_description");
                    let about = about.map(|about| format!(": {}", self.quote(&about)));
                    return Err(ServerError::SignIn(format!(
                        "it rejects the token of its authorization server{}",
                        about.unwrap_or_default()
                    )));
                }
            }
        }
    }

    /// Returns the access token for a request.
    fn current_token(&self, wait: &ReplyDeadline<'_>) -> Result<Option<Secret>> {
        self.tokens.as_ref().map_or(Ok(None), |tokens| tokens.current(wait))
    }

    fn set_token(headers: &mut HeaderMap, token: Option<&Secret>) {
        let value = token.map(|token| HeaderValue::from_str(&format!("Bearer {}", token.expose())));
        if let Some(Ok(mut value)) = value {
            value.set_sensitive(true);
            headers.insert(header::AUTHORIZATION, value);
        }
    }

    fn exchange<T>(
        &self,
        sending: ResendPolicy,
        request: &HttpRequest,
        wait: &ReplyDeadline<'_>,
        read: impl FnOnce(&mut HttpResponse) -> Result<T>,
    ) -> Result<T> {
        let idle = lock(&self.clients).pop();
        let unreachable = |error| self.connection_error(&error, wait);
        let client = match idle {
            Some(client) => client,
            None => HttpClient::new(&self.options).map_err(unreachable)?,
        };
        let watch =
            ExchangeWatch::start(wait).map_err(|error| ServerError::Start(error.to_string()))?;
        let sent = match sending {
            ResendPolicy::Never => client.send_once(request, &watch.exchange),
            ResendPolicy::OnLoss => client.send(request, &watch.exchange),
        };
        let result = sent.map_err(unreachable).and_then(|mut response| {
            let result = read(&mut response)?;
            response.release();
            Ok(result)
        });
        drop(watch);
        lock(&self.clients).push(client);
        result
    }

    /// Returns the error for a status code.
    fn status_error(&self, response: &mut HttpResponse) -> ServerError {
        let status = response.status;
        if (300..400).contains(&status) {
            let place = response.header("location").unwrap_or("somewhere else");
            return ServerError::Redirected(self.quote(place));
        }
        if matches!(status, 401 | 403) {
            let scope = oauth::parameter(&challenge(response), "scope");
            return match (&self.tokens, scope) {
                (Some(_), Some(scope)) => ServerError::SignIn(format!(
                    "it requires the scope \"{}\"; add it to `oauth.scopes`",
                    self.quote(&scope)
                )),
                (Some(_), None) => ServerError::SignIn(format!(
                    "it answers {status}; its operator has to give the client access"
                )),
                (None, _) => ServerError::Unauthorized(status),
            };
        }
        // Read errors are ignored.
        let body = response.read_all(MAX_ERROR_BODY).unwrap_or_default();
        let refusal = |message| match message {
            ServerMessage::Reply { outcome: Err(refusal), .. } => Some(refusal),
            _ => None,
        };
        match ServerMessage::parse(&body).into_iter().flatten().find_map(refusal) {
            Some(refusal) => ServerError::Refused(refusal),
            None => {
                ServerError::Status { status, body: self.quote(&String::from_utf8_lossy(&body)) }
            }
        }
    }

    fn connection_error(&self, error: &NetError, wait: &ReplyDeadline<'_>) -> ServerError {
        match error {
            NetError::Cancelled if wait.cancel.is_cancelled() => ServerError::Cancelled,
            NetError::Cancelled => wait.timed_out(),
            NetError::Timeout { .. } if wait.remaining().is_zero() => wait.timed_out(),
            error => ServerError::Unreachable(self.quote(&error.to_string())),
        }
    }

    fn session(&self) -> Option<HeaderValue> {
        match &*lock(&self.session) {
            HttpSession::Known(session) => Some(session.clone()),
            HttpSession::None | HttpSession::Expired => None,
        }
    }

    fn quote(&self, text: &str) -> String {
        let mask = |text: String, secret: &String| text.replace(secret, "***");
        shorten(self.secrets.iter().fold(strip_terminal_codes(text), mask).trim())
    }
}

/// Returns the server's requirements for authorizing a request.
fn challenge(response: &HttpResponse) -> String {
    let all = response.headers.get_all(header::WWW_AUTHENTICATE).iter();
    let all: Vec<&str> = all.filter_map(|value| value.to_str().ok()).collect();
    all.join(", ")
}

fn shorten(text: &str) -> String {
    text.chars().take(MAX_QUOTED_CHARS).collect()
}

/// Limits an exchange to the wait of its caller.
struct ExchangeWatch {
    /// Cancelled to end the exchange.
    exchange: CancellationToken,
    done: CancellationToken,
    _guard: CancelRegistration,
}

impl ExchangeWatch {
    /// Watches an exchange until the guard is dropped.
    fn start(wait: &ReplyDeadline<'_>) -> io::Result<Self> {
        let (exchange, done) = (CancellationToken::new(), CancellationToken::new());
        let cancelled = exchange.clone();
        let guard = wait.cancel.on_cancel(move || cancelled.cancel());
        let (late, over, at) = (exchange.clone(), done.clone(), wait.at);
        let time = wait.questions.map(|questions| Arc::clone(&questions.time)).unwrap_or_default();
        // The deadline moves while the user is asked.
        let left = move || (at + time.total()).saturating_duration_since(Instant::now());
        thread::Builder::new().name("mcp-watch".to_owned()).spawn(move || {
            while !over.wait_for(left()) {
                if left().is_zero() {
                    return late.cancel();
                }
            }
        })?;
        Ok(Self { exchange, done, _guard: guard })
    }
}

impl Drop for ExchangeWatch {
    fn drop(&mut self) {
        self.done.cancel();
    }
}
