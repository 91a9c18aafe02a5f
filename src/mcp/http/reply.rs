//! Reading the answer to a request: from one document, or from a stream that may break off and go on.

use std::time::Duration;

use serde_json::Value;

use super::{SESSION, Sending, Shared, short};
use crate::mcp::connection::Wait;
use crate::mcp::era::NEWEST;
use crate::mcp::error::ServerError;
use crate::mcp::message::{Request, Said, answer};
use crate::net::{Body, HeaderValue, Method, Response, header, sse};

/// How long a server is left alone before a stream is resumed, if it does not say.
const PAUSE: Duration = Duration::from_secs(1);

/// The least and the most of that.
const LEAST_PAUSE: Duration = Duration::from_millis(100);
const MOST_PAUSE: Duration = Duration::from_secs(30);

impl Shared {
    /// Reads the answer to a request.
    pub(super) fn reply(
        &self,
        response: &mut Response,
        request: &Request,
        wait: &Wait<'_>,
    ) -> Result<Value, ServerError> {
        let kind = response.header("content-type").unwrap_or_default().to_ascii_lowercase();
        let malformed = |what: &str| ServerError::Malformed(what.to_owned());
        if kind.starts_with("text/event-stream") {
            return self.events(response, request, wait);
        }
        if !kind.starts_with("application/json") {
            return Err(ServerError::Malformed(format!("it is of the kind {:?}", short(&kind))));
        }
        let body = response.read_all(self.largest + 1).map_err(|error| self.lost(&error, wait))?;
        if body.len() > self.largest {
            return Err(ServerError::Malformed(format!("it has more than {} bytes", self.largest)));
        }
        let said = Said::parse(&body).ok_or_else(|| malformed("it is no message"))?;
        let reply = said.into_iter().find_map(|said| self.heard(said, request, wait));
        reply.unwrap_or_else(|| Err(malformed("it answers something else")))
    }

    /// Reads events up to the one that is the answer. A stream that ends before can be resumed where its events have
    /// ids, in the eras that have sessions.
    fn events(
        &self,
        response: &mut Response,
        request: &Request,
        wait: &Wait<'_>,
    ) -> Result<Value, ServerError> {
        let (mut parser, mut buffer) = (sse::Parser::new(), vec![0; 16 << 10]);
        let mut reply = None;
        let broken = loop {
            match response.read(&mut buffer) {
                Ok(0) => break ServerError::Cut,
                Ok(count) => {
                    let taken: Result<(), sse::SseError> = parser.push(&buffer[..count], |event| {
                        let said = Said::parse(event.data.as_bytes()).unwrap_or_default();
                        let own = said.into_iter().find_map(|said| self.heard(said, request, wait));
                        reply = reply.take().or(own);
                        Ok(())
                    });
                    taken.map_err(|error| ServerError::Malformed(error.to_string()))?;
                }
                Err(error) => break self.lost(&error, wait),
            }
            if let Some(reply) = reply {
                return reply;
            }
        };
        match parser.last_id() {
            Some(last) if broken.is_loss() && request.version != NEWEST => {
                let pause = parser.retry().unwrap_or(PAUSE).clamp(LEAST_PAUSE, MOST_PAUSE);
                self.resume(last, pause, request, wait)
            }
            _ => Err(broken),
        }
    }

    /// Asks for the rest of a stream.
    fn resume(
        &self,
        last: &str,
        pause: Duration,
        request: &Request,
        wait: &Wait<'_>,
    ) -> Result<Value, ServerError> {
        if wait.cancel.wait(pause.min(wait.left())) {
            return Err(ServerError::Cancelled);
        }
        if wait.left().is_zero() {
            return Err(wait.over());
        }
        let mut headers = self.headers.clone();
        headers.remove(header::CONTENT_TYPE);
        headers.insert(header::ACCEPT, HeaderValue::from_static("text/event-stream"));
        headers.insert("mcp-protocol-version", HeaderValue::from_static(request.version));
        headers.insert("last-event-id", HeaderValue::from_str(last).map_err(|_| ServerError::Cut)?);
        if let Some(session) = self.session() {
            headers.insert(SESSION, session);
        }
        let body = Body::new();
        self.exchange(Sending::Surely, Method::GET, headers, body, wait, |response, wait| {
            // What this stream answers with is not about the call any more.
            if response.status == 200 {
                self.events(response, request, wait)
            } else {
                Err(ServerError::Cut)
            }
        })
    }

    /// Takes what a server says; returns the answer to the request, if it is that.
    fn heard(
        &self,
        said: Said,
        request: &Request,
        wait: &Wait<'_>,
    ) -> Option<Result<Value, ServerError>> {
        match said {
            Said::Reply { id: Some(id), outcome } if id == request.id => {
                return Some(outcome.map_err(ServerError::Refused));
            }
            Said::Progress { id, text } if id == request.id => (wait.progress)(&text),
            Said::Request { id, method } if request.version != NEWEST => {
                // Whether it hears the answer is its own affair.
                let _ = self.post(&answer(&id, &method), request.version, &[], wait);
            }
            Said::Reply { .. }
            | Said::Progress { .. }
            | Said::Request { .. }
            | Said::Notification => {}
        }
        None
    }
}
