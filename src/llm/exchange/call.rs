//! Sends a request and reads the response.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::byte_order_mark::BomSkipper;
use super::request_target::RequestTarget;
use super::transport::{IncomingResponse, ResponseBody};
use crate::llm::bedrock;
use crate::llm::decode::{CallIds, DecodedReply, DeltaBuffer, TextField, replace_lone_surrogates};
use crate::llm::fault::{self, ApiError};
use crate::llm::wire::{
    ReplyReader, Result, StreamFraming, parse_json, protocol_fault, push_event,
};
use crate::net::event_stream::{EventStreamError, EventStreamParser};
use crate::net::sse::{SseError, SseParser};
use crate::net::{HeaderMap, HttpRequest, mask_address};
use crate::port::{
    CancellationToken, EffectContext, EffectNotice, ModelCall, ReplyDelta, RequestDigest,
};
use crate::types::{Fault, FaultKind, Reply, RetryAdvice};

/// A request that is ready to be sent.
pub(super) struct PreparedModelCall {
    pub(super) target: Arc<RequestTarget>,
    pub(super) call_ids: CallIds,
    pub(super) attempt: u32,
    pub(super) request: HttpRequest,
    pub(super) digest: RequestDigest,
    /// A problem of the request that does not prevent sending it.
    pub(super) warning: Option<String>,
}

/// The kind of a response, recognized by its first visible byte, since servers send wrong content types.
enum ResponseKind {
    /// No visible byte has been received.
    Unknown(BomSkipper),
    /// An event stream.
    Events(Box<EventStream>),
    /// One JSON document, possibly in place of a stream.
    Document(Vec<u8>),
    /// A web page: a captive portal, or an error of a proxy.
    HtmlPage,
}

struct EventStream {
    parser: StreamParser,
    reader: Box<dyn ReplyReader>,
    /// Whether an event was received.
    has_event: bool,
}

/// The parser for the framing of a stream.
enum StreamParser {
    Sse(SseParser),
    Amazon(EventStreamParser),
}

const READ_BUFFER_SIZE: usize = 16 << 10;

/// The maximum size of an error response that is read, in bytes.
const MAX_ERROR_BODY: usize = 64 << 10;

/// The size of the start of a response that is kept for error messages, in bytes.
const MAX_EXCERPT: usize = 1 << 10;

impl ModelCall for PreparedModelCall {
    fn run(
        self: Box<Self>,
        scope: &EffectContext,
        sink: &mut dyn FnMut(ReplyDelta),
    ) -> Result<Reply> {
        if let Some(text) = &self.warning {
            scope.notify(EffectNotice::Warning { text: text.as_str().into() });
        }
        self.send_and_read(scope, sink).map_err(|fault| self.target.describe(fault))
    }

    fn request_digest(&self) -> Option<RequestDigest> {
        Some(self.digest)
    }
}

impl PreparedModelCall {
    fn send_and_read(
        &self,
        scope: &EffectContext,
        sink: &mut dyn FnMut(ReplyDelta),
    ) -> Result<Reply> {
        let request = self.target.sign(&self.request, &scope.cancel)?;
        let sent = self.target.transport.send(&request, &scope.cancel);
        let mut response = sent.map_err(|error| fault::network_fault(&error, self.attempt))?;
        if !(200..300).contains(&response.status) {
            let fault = self.read_error(&mut response);
            return Err(match fault.kind {
                FaultKind::Auth if self.replace_keys(&scope.cancel) => {
                    Fault { advice: RetryAdvice::Retry, ..fault }
                }
                _ => fault,
            });
        }
        self.target.has_replaced_keys.store(false, Ordering::Relaxed);
        // From here on, the provider may charge for the request.
        let masker = &self.target.secrets();
        let mut deltas = DeltaBuffer::new(masker.clone());
        let reply = self.read_reply(response.body, &mut deltas, sink);
        // Text before an error is reported, too.
        deltas.finish(sink);
        let reply = reply.map_err(|fault| Fault {
            billed: true,
            received: deltas.received_tokens(),
            ..fault
        })?;
        let reply = reply.mask(masker).into_reply(
            &self.target.model,
            &self.call_ids,
            self.request.body.len(),
        );
        if let Some(text) = self.truncation_warning(&reply) {
            scope.notify(EffectNotice::Warning { text: text.into() });
        }
        Ok(reply)
    }

    /// Replaces rejected keys, which may have expired. Returns whether there are other keys. If these are rejected,
    /// too, age is not the reason.
    fn replace_keys(&self, cancel: &CancellationToken) -> bool {
        let RequestTarget { signer, has_replaced_keys, .. } = &*self.target;
        signer.as_ref().is_some_and(|signer| {
            !has_replaced_keys.swap(true, Ordering::Relaxed) && signer.has_new_keys(cancel)
        })
    }

    /// Reads a response until its terminal event.
    fn read_reply(
        &self,
        mut response: Box<dyn ResponseBody>,
        deltas: &mut DeltaBuffer,
        sink: &mut dyn FnMut(ReplyDelta),
    ) -> Result<DecodedReply> {
        let (mut kind, mut first) = (ResponseKind::Unknown(BomSkipper::default()), Vec::new());
        let mut buffer = vec![0; READ_BUFFER_SIZE];
        let mut has_started = false;
        loop {
            let read = response.read(&mut buffer);
            let count = read.map_err(|error| fault::network_fault(&error, self.attempt))?;
            let chunk = &buffer[..count];
            if count == 0 {
                break;
            }
            if !std::mem::replace(&mut has_started, true) {
                sink(ReplyDelta::Started);
            }
            first
                .extend_from_slice(&chunk[..count.min(MAX_EXCERPT - first.len().min(MAX_EXCERPT))]);
            let chunk = match &mut kind {
                ResponseKind::Unknown(lead) => {
                    let Some(visible) = lead.push(chunk) else { continue };
                    kind = self.detect_kind(visible[0]);
                    Cow::from(visible)
                }
                ResponseKind::Events(_) | ResponseKind::Document(_) | ResponseKind::HtmlPage => {
                    chunk.into()
                }
            };
            match &mut kind {
                ResponseKind::Unknown(_) => {}
                ResponseKind::HtmlPage => break,
                ResponseKind::Document(body) => body.extend_from_slice(&chunk),
                ResponseKind::Events(events) => {
                    let result = events.push(&chunk, deltas);
                    // Text before an error is reported, too.
                    deltas.flush(sink);
                    result?;
                    if events.reader.is_complete() {
                        response.release();
                        return kind.into_decoded(self, &first);
                    }
                }
            }
        }
        kind.into_decoded(self, &first)
    }

    fn detect_kind(&self, first: u8) -> ResponseKind {
        let wire = &self.target.wire;
        let events = |parser| {
            let reader = wire.reader();
            ResponseKind::Events(Box::new(EventStream { parser, reader, has_event: false }))
        };
        match first {
            b'{' | b'[' => ResponseKind::Document(Vec::new()),
            b'<' => ResponseKind::HtmlPage,
            // The first byte of a message's length.
            0 if wire.framing() == StreamFraming::Amazon => {
                events(StreamParser::Amazon(EventStreamParser::new()))
            }
            _ => events(StreamParser::Sse(SseParser::with_limit(wire.max_event_bytes()))),
        }
    }

    /// Returns the fault for a response with an error status.
    fn read_error(&self, response: &mut IncomingResponse) -> Fault {
        let mut body = Vec::new();
        let mut buffer = vec![0; 16 << 10];
        // If the body can't be read, the status is enough.
        while let Ok(count @ 1..) = response.body.read(&mut buffer) {
            body.extend_from_slice(&buffer[..count]);
            if body.len() >= MAX_ERROR_BODY {
                break;
            }
        }
        self.classify(response.status, &response.headers, &body)
    }

    fn classify(&self, status: u16, headers: &HeaderMap, body: &[u8]) -> Fault {
        fault::classify_response(status, headers, body, &self.target.url, &self.target.secrets())
    }

    /// Returns a warning if the server counted far fewer tokens than the request must have.
    fn truncation_warning(&self, reply: &Reply) -> Option<String> {
        let (counted, sent) = (reply.usage.input.0, self.request.body.len() as u64);
        let is_cut = self.target.may_truncate && !reply.usage.is_estimated && counted * 12 < sent;
        is_cut.then(|| {
            format!(
                "the server read {counted} tokens of a request of {sent} bytes: its context window is probably \
                 smaller than the conversation, and it drops the beginning silently"
            )
        })
    }
}

impl EventStream {
    fn push(&mut self, chunk: &[u8], deltas: &mut DeltaBuffer) -> Result {
        let Self { parser, reader, has_event } = self;
        // Events after the terminal one are ignored.
        let result = match parser {
            StreamParser::Sse(parser) => parser.push(chunk, |event| {
                *has_event = true;
                match reader.is_complete() {
                    true => Ok(()),
                    false => push_event(&mut **reader, event, deltas),
                }
            }),
            StreamParser::Amazon(parser) => parser.push(chunk, |message| {
                *has_event = true;
                if reader.is_complete() {
                    Ok(())
                } else {
                    bedrock::read_message(message, &mut **reader, deltas)
                }
            }),
        };
        // Errors after the terminal event are ignored, too.
        if reader.is_complete() { Ok(()) } else { result }
    }
}

/// A violation of the stream's format is a violation of the reply's protocol.
impl From<EventStreamError> for Fault {
    fn from(error: EventStreamError) -> Self {
        protocol_fault(error)
    }
}

/// A violation of the stream's format is a violation of the reply's protocol.
impl From<SseError> for Fault {
    fn from(error: SseError) -> Self {
        protocol_fault(error)
    }
}

impl ResponseKind {
    /// Returns the reply, or the fault of a response without a reply.
    fn into_decoded(self, call: &PreparedModelCall, first: &[u8]) -> Result<DecodedReply> {
        let not_an_api = |what: &str| {
            let (url, excerpt) = (mask_address(&call.target.url), fault::excerpt(first));
            Fault::new(FaultKind::NotAnApi, format!("{url} returned {what}: {excerpt}"))
        };
        match self {
            Self::Unknown(_) => Err(Fault::new(FaultKind::Truncated, "the response is empty")),
            Self::HtmlPage => Err(not_an_api("a web page")),
            Self::Events(events)
                if !events.has_event
                    && matches!(events.parser, StreamParser::Sse(_))
                    && !starts_event_stream(first) =>
            {
                Err(not_an_api("something that is neither JSON nor an event stream"))
            }
            Self::Events(events) => events.reader.finish(),
            Self::Document(body) => {
                let text =
                    std::str::from_utf8(&body).map_err(|_| protocol_fault("it is not UTF-8"))?;
                let text = &*replace_lone_surrogates(text);
                if is_error_document(text)? {
                    return Err(call.classify(200, &HeaderMap::new(), &body));
                }
                let mut reader = call.target.wire.reader();
                reader.read_document(text)?;
                reader.finish()
            }
        }
    }
}

/// Returns whether a document with a success status is an error.
fn is_error_document(json: &str) -> Result<bool> {
    /// Only the presence of these fields is checked at first, since a reply is long and should not be parsed into
    /// values.
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct ErrorFields<'a> {
        #[serde(borrow)]
        error: Option<&'a RawValue>,
        object: TextField<'a>,
    }
    if json.trim_start().starts_with('[') {
        let items: Vec<&RawValue> = parse_json(json)?;
        return items.into_iter().try_fold(false, |found, item| {
            Ok(found || item.get().starts_with(['[', '{']) && is_error_document(item.get())?)
        });
    }
    let fields: ErrorFields<'_> = parse_json(json)?;
    let may_be = fields.error.is_some_and(fault::is_error) || fields.object.as_str() == "error";
    Ok(may_be && ApiError::find(&parse_json(json)?).is_some())
}

/// Returns whether the response starts like an event stream.
fn starts_event_stream(first: &[u8]) -> bool {
    let text = String::from_utf8_lossy(first);
    let text = text.trim_start_matches('\u{feff}').trim_start();
    ["data", "event", "id", "retry", ":"].iter().any(|field| {
        text.starts_with(field) || (!text.is_empty() && field.starts_with(text.trim_end()))
    })
}
