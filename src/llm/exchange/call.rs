//! A request on its way, and its answer.

use std::sync::Arc;

use super::carrier::{Carrier, Incoming};
use super::lead::Lead;
use super::model::Target;
use crate::llm::decode::{Draft, Names, Said};
use crate::llm::fault::{self, Answer, ApiError};
use crate::llm::wire::{Decoder, Wire, broken, cut_off};
use crate::model::{Fault, FaultKind, Reply};
use crate::net::Request;
use crate::net::sse::{Parser, SseError};
use crate::port::{Delta, ModelCall, Notice, Scope};

/// A request that is ready to be sent.
pub(super) struct Call {
    pub(super) wire: Arc<dyn Wire>,
    pub(super) carrier: Arc<dyn Carrier>,
    pub(super) target: Arc<Target>,
    pub(super) names: Names,
    pub(super) attempt: u32,
    pub(super) request: Request,
    /// What is wrong with the request although it can be sent.
    pub(super) warning: Option<String>,
}

/// What an answer turns out to be, told by its first visible byte: servers mislabel what they send.
enum Form {
    /// Nothing visible has arrived.
    Unknown(Lead),
    /// An event stream.
    Events(Box<Events>),
    /// One JSON document, also where a stream was asked for.
    Document(Vec<u8>),
    /// A page for people: a captive portal, a proxy's error.
    Page,
}

struct Events {
    parser: Parser,
    decoder: Box<dyn Decoder>,
    /// Whether an event has come.
    any: bool,
}

/// What is read of the socket at a time.
const PIECE: usize = 16 << 10;

/// The most that is read of an answer that is no reply.
const ERROR_BODY: usize = 64 << 10;

/// What is kept of the beginning of an answer, to show it when it is none.
const GLIMPSE: usize = 1 << 10;

impl ModelCall for Call {
    fn run(self: Box<Self>, scope: &Scope, sink: &mut dyn FnMut(Delta)) -> Result<Reply, Fault> {
        if let Some(text) = &self.warning {
            scope.tell(Notice::Warning { text: text.as_str().into() });
        }
        self.exchange(scope, sink).map_err(|fault| {
            let mut message = fault::readable(&self.target.masks.mask(&fault.message));
            if let (FaultKind::Auth, Some(key)) = (fault.kind, &self.target.key) {
                message.push_str(&key.told());
            }
            Fault { message: message.into(), ..fault }
        })
    }
}

impl Call {
    fn exchange(&self, scope: &Scope, sink: &mut dyn FnMut(Delta)) -> Result<Reply, Fault> {
        let sent = self.carrier.send(&self.request, &scope.cancel);
        let mut incoming = sent.map_err(|error| fault::explain(&error, self.attempt))?;
        if !(200..300).contains(&incoming.status()) {
            return Err(self.refused(&mut *incoming));
        }
        // From here on the provider may charge for what it does, whatever becomes of it.
        let mut said = Said::default();
        let draft = self.read(incoming, &mut said, sink);
        let draft = draft.map_err(|fault| Fault { billed: true, heard: said.heard(), ..fault })?;
        let reply = draft.seal(self.wire.name(), &self.names, self.request.body.len());
        if let Some(text) = self.truncation(&reply) {
            scope.tell(Notice::Warning { text: text.into() });
        }
        Ok(reply)
    }

    /// Reads an answer to its terminal event.
    fn read(
        &self,
        mut incoming: Box<dyn Incoming>,
        said: &mut Said,
        sink: &mut dyn FnMut(Delta),
    ) -> Result<Draft, Fault> {
        let (mut form, mut first) = (Form::Unknown(Lead::default()), Vec::new());
        let mut buffer = vec![0; PIECE];
        let mut begun = false;
        loop {
            let read = incoming.read(&mut buffer);
            let count = read.map_err(|error| fault::explain(&error, self.attempt))?;
            let piece = &buffer[..count];
            if count == 0 {
                break;
            }
            if !std::mem::replace(&mut begun, true) {
                sink(Delta::Begun);
            }
            first.extend_from_slice(&piece[..count.min(GLIMPSE - first.len().min(GLIMPSE))]);
            let piece = match &mut form {
                Form::Unknown(lead) => {
                    let Some(visible) = lead.take(piece) else { continue };
                    form = self.form(visible[0]);
                    visible
                }
                Form::Events(_) | Form::Document(_) | Form::Page => piece.into(),
            };
            match &mut form {
                Form::Unknown(_) => {}
                Form::Page => break,
                Form::Document(body) => body.extend_from_slice(&piece),
                Form::Events(events) => {
                    let taken = events.take(&piece, said);
                    // What was said before something went wrong was said all the same.
                    said.tell(sink);
                    taken?;
                    if events.decoder.is_complete() {
                        incoming.leave();
                        return form.into_draft(self, &first);
                    }
                }
            }
        }
        form.into_draft(self, &first)
    }

    fn form(&self, first: u8) -> Form {
        match first {
            b'{' | b'[' => Form::Document(Vec::new()),
            b'<' => Form::Page,
            _ => Form::Events(Box::new(Events {
                parser: Parser::new(),
                decoder: self.wire.decoder(),
                any: false,
            })),
        }
    }

    /// Returns the fault of an answer whose status says that it is no reply.
    fn refused(&self, incoming: &mut dyn Incoming) -> Fault {
        let mut body = Vec::new();
        let mut buffer = vec![0; 16 << 10];
        // What cannot be read any more is not needed: the status has been told.
        while let Ok(count @ 1..) = incoming.read(&mut buffer) {
            body.extend_from_slice(&buffer[..count]);
            if body.len() >= ERROR_BODY {
                break;
            }
        }
        self.judge(incoming.status(), incoming.headers(), &body)
    }

    fn judge(&self, status: u16, headers: &crate::net::HeaderMap, body: &[u8]) -> Fault {
        let answer = Answer { status, headers, body, url: &self.target.url };
        fault::judge(&answer, &self.target.masks, |error| self.wire.kind(error))
    }

    /// Returns a warning when the server counted far fewer tokens than it was sent.
    fn truncation(&self, reply: &Reply) -> Option<String> {
        let (counted, sent) = (reply.usage.input.0, self.request.body.len() as u64);
        let is_cut = self.target.may_truncate && !reply.usage.estimated && counted * 12 < sent;
        is_cut.then(|| {
            format!(
                "the server read {counted} tokens of a request of {sent} bytes: its context window is probably \
                 smaller than the conversation, and it forgets the beginning silently"
            )
        })
    }
}

impl Events {
    fn take(&mut self, piece: &[u8], said: &mut Said) -> Result<(), Fault> {
        let Self { parser, decoder, any } = self;
        let taken: Result<(), Stopped> = parser.push(piece, |event| {
            *any = true;
            // What comes after the terminal event is not for us.
            if decoder.is_complete() { Ok(()) } else { Ok(decoder.event(event, said)?) }
        });
        match taken {
            Err(Stopped::Stream(_)) if decoder.is_complete() => Ok(()),
            Err(Stopped::Stream(error)) => Err(broken(error)),
            Err(Stopped::Reply(fault)) => Err(fault),
            Ok(()) => Ok(()),
        }
    }
}

/// Why an event stream is not read on.
enum Stopped {
    Stream(SseError),
    Reply(Fault),
}

impl From<SseError> for Stopped {
    fn from(error: SseError) -> Self {
        Self::Stream(error)
    }
}

impl From<Fault> for Stopped {
    fn from(fault: Fault) -> Self {
        Self::Reply(fault)
    }
}

impl Form {
    /// Returns the reply, if this is one.
    fn into_draft(self, call: &Call, first: &[u8]) -> Result<Draft, Fault> {
        let no_api = |what: &str| {
            let (url, glimpse) = (&call.target.url, fault::glimpse(first));
            Fault::new(FaultKind::NotAnApi, format!("{url} answered with {what}: {glimpse}"))
        };
        match self {
            Self::Unknown(_) => Err(Fault::new(FaultKind::Truncated, "the answer is empty")),
            Self::Page => Err(no_api("a web page")),
            Self::Events(events) if !events.any && !is_event(first) => {
                Err(no_api("something that is neither JSON nor a stream of events"))
            }
            Self::Events(events) => events.decoder.end(),
            Self::Document(body) => {
                let text = std::str::from_utf8(&body).map_err(|_| broken("it is not UTF-8"))?;
                let json: Result<serde_json::Value, _> = serde_json::from_str(text);
                match json {
                    Err(error) if error.is_eof() => Err(cut_off()),
                    Err(error) => Err(broken(error)),
                    Ok(json) if is_error(&json) => {
                        Err(call.judge(200, &crate::net::HeaderMap::new(), &body))
                    }
                    Ok(_) => call.wire.whole(text),
                }
            }
        }
    }
}

/// Returns whether a document is an error, although its status does not say so.
fn is_error(json: &serde_json::Value) -> bool {
    let is_listed = json.as_array().is_some_and(|items| items.iter().any(is_error));
    let has_error = json.get("error").is_some_and(|error| !fault::is_empty(error));
    is_listed
        || (ApiError::find(json).is_some()
            && (has_error || json.get("object").is_some_and(|kind| *kind == "error")))
}

/// Returns whether the beginning of an answer is that of an event stream that was cut off.
fn is_event(first: &[u8]) -> bool {
    let text = String::from_utf8_lossy(first);
    let text = text.trim_start_matches('\u{feff}').trim_start();
    ["data", "event", "id", "retry", ":"].iter().any(|field| {
        text.starts_with(field) || (!text.is_empty() && field.starts_with(text.trim_end()))
    })
}
