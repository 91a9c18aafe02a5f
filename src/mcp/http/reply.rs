//! Reads the answer to a request: a document, or a stream of events that may be interrupted and resumed.

use std::time::Duration;

use serde_json::Value;

use super::{HttpState, ResendPolicy, SESSION_HEADER, shorten};
use crate::mcp::connection::ReplyDeadline;
use crate::mcp::elicitation::ELICIT;
use crate::mcp::error::{Result, ServerError};
use crate::mcp::message::{RpcRequest, ServerMessage, client_answer, client_result};
use crate::mcp::protocol_mode::STATELESS_VERSION;
use crate::net::{HeaderValue, HttpRequest, HttpResponse, Method, RequestBody, header, sse};

/// The pause before a stream is resumed, unless the server sets it.
const DEFAULT_PAUSE: Duration = Duration::from_secs(1);

/// The limits of the pause set by a server.
const MIN_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// The result of an exchange.
pub(super) enum ReplyProgress {
    /// The answer.
    Complete(Value),
    /// The stream has ended before the answer.
    Interrupted(ResumePoint),
}

/// The position at which an interrupted stream can be resumed, and the pause before.
pub(super) struct ResumePoint {
    /// The ID of the last event.
    last_id: String,
    /// The pause requested by the server.
    retry: Option<Duration>,
}

impl HttpState {
    /// Reads the answer to a request.
    pub(super) fn read_reply(
        &self,
        response: &mut HttpResponse,
        request: &RpcRequest,
        wait: &ReplyDeadline<'_>,
    ) -> Result<ReplyProgress> {
        let kind = response.header("content-type").unwrap_or_default().to_ascii_lowercase();
        let malformed = |what: &str| ServerError::Malformed(what.to_owned());
        if kind.starts_with("text/event-stream") {
            return self.read_events(response, None, request, wait);
        }
        if !kind.starts_with("application/json") {
            return Err(malformed(&format!("it is of the kind {:?}", shorten(&kind))));
        }
        let body = response
            .read_all(self.max_message + 1)
            .map_err(|error| self.connection_error(&error, wait))?;
        if body.len() > self.max_message {
            return Err(malformed(&format!("it has more than {} bytes", self.max_message)));
        }
        let messages =
            ServerMessage::parse(&body).ok_or_else(|| malformed("it is not a message"))?;
        let reply =
            messages.into_iter().find_map(|message| self.handle_message(message, request, wait));
        let reply = reply.unwrap_or_else(|| Err(malformed("it answers something else")));
        reply.map(ReplyProgress::Complete)
    }

    /// Reads events up to the answer. In modes with sessions, a stream that ends earlier can be resumed if its events
    /// have IDs. If a resumed stream has no newer ID, it is resumed at the same point again.
    fn read_events(
        &self,
        response: &mut HttpResponse,
        resumed_at: Option<&ResumePoint>,
        request: &RpcRequest,
        wait: &ReplyDeadline<'_>,
    ) -> Result<ReplyProgress> {
        let (mut parser, mut buffer) = (sse::SseParser::new(), vec![0; 16 << 10]);
        let mut reply = None;
        let broken = loop {
            match response.read(&mut buffer) {
                Ok(0) => break ServerError::Truncated,
                Ok(count) => {
                    let taken: Result<(), sse::SseError> = parser.push(&buffer[..count], |event| {
                        let messages =
                            ServerMessage::parse(event.data.as_bytes()).unwrap_or_default();
                        let own = messages
                            .into_iter()
                            .find_map(|message| self.handle_message(message, request, wait));
                        reply = reply.take().or(own);
                        Ok(())
                    });
                    taken.map_err(|error| ServerError::Malformed(error.to_string()))?;
                }
                Err(error) => break self.connection_error(&error, wait),
            }
            if let Some(reply) = reply {
                return reply.map(ReplyProgress::Complete);
            }
        };
        let last_id = parser.last_id().or(resumed_at.map(|point| &*point.last_id));
        match last_id {
            Some(last) if broken.is_connection_loss() && request.version != STATELESS_VERSION => {
                let retry = parser.retry().or(resumed_at.and_then(|point| point.retry));
                let last_id = last.to_owned();
                Ok(ReplyProgress::Interrupted(ResumePoint { last_id, retry }))
            }
            _ => Err(broken),
        }
    }

    /// Requests the rest of a stream.
    pub(super) fn resume_stream(
        &self,
        point: &ResumePoint,
        request: &RpcRequest,
        wait: &ReplyDeadline<'_>,
    ) -> Result<ReplyProgress> {
        let pause = point.retry.unwrap_or(DEFAULT_PAUSE).clamp(MIN_PAUSE, MAX_PAUSE);
        if wait.cancel.wait_for(pause.min(wait.remaining())) {
            return Err(ServerError::Cancelled);
        }
        if wait.remaining().is_zero() {
            return Err(wait.timed_out());
        }
        let mut headers = self.headers.clone();
        headers.remove(header::CONTENT_TYPE);
        headers.insert(header::ACCEPT, HeaderValue::from_static("text/event-stream"));
        headers.insert("mcp-protocol-version", HeaderValue::from_static(request.version));
        headers.insert(
            "last-event-id",
            HeaderValue::from_str(&point.last_id).map_err(|_| ServerError::Truncated)?,
        );
        if let Some(session) = self.session() {
            headers.insert(SESSION_HEADER, session);
        }
        Self::set_token(&mut headers, self.current_token(wait)?.as_ref());
        let (url, body) = (self.url.clone(), RequestBody::new());
        let get = HttpRequest { method: Method::GET, url, headers, body };
        self.exchange(ResendPolicy::OnLoss, &get, wait, |response| {
            // Error bodies of this stream are not about the call.
            if response.status == 200 {
                self.read_events(response, Some(point), request, wait)
            } else {
                Err(ServerError::Truncated)
            }
        })
    }

    /// Handles a message, and returns the answer if the message is one.
    fn handle_message(
        &self,
        message: ServerMessage,
        request: &RpcRequest,
        wait: &ReplyDeadline<'_>,
    ) -> Option<Result<Value>> {
        match message {
            ServerMessage::Reply { id: Some(id), outcome } if id == request.id => {
                return Some(outcome.map_err(ServerError::Refused));
            }
            ServerMessage::Unreadable { id, why } if id.is_none_or(|id| id == request.id) => {
                return Some(Err(ServerError::Unreadable(why)));
            }
            ServerMessage::Progress { id, text } if id == request.id => (wait.progress)(&text),
            ServerMessage::Request { id, method, params }
                if request.version != STATELESS_VERSION =>
            {
                let questions = wait.questions.filter(|_| method == ELICIT);
                let answer = match questions.map(|questions| questions.answer(&params)) {
                    Some(answer) => client_result(&id, &answer),
                    None => client_answer(&id, &method),
                };
                // Errors while sending are ignored.
                let _ = self.notify(&answer, request.version, wait);
            }
            ServerMessage::Reply { .. }
            | ServerMessage::Unreadable { .. }
            | ServerMessage::Progress { .. }
            | ServerMessage::Request { .. }
            | ServerMessage::Notification => {}
        }
        None
    }
}
