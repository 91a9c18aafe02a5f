//! Replays a recording.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use super::mismatch::RequestMismatch;
use super::record::RequestRecord;
use super::recording::{ExchangeEnd, RecordedExchange, Recording};
use crate::llm::exchange::{HttpTransport, IncomingResponse, ResponseBody};
use crate::llm::scripted::ScriptPosition;
use crate::net::{HeaderMap, HeaderName, HeaderValue, HttpRequest, NetError, Result, Secrets};
use crate::port::{CancellationToken, Model, ModelCall, ModelRequest};
use crate::types::{Fault, FaultKind};

/// The action on a request that differs from the recorded one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnMismatch {
    /// Warn about the first difference, and replay the recorded response: paths and versions of another machine need
    /// not change the replies.
    #[default]
    Warn,
    /// Fail the call.
    Fail,
}

/// Replays the responses in order. Clones share the position.
#[derive(Clone)]
pub(in crate::llm) struct Player(Arc<PlayerState>);

struct PlayerState {
    recording: Recording,
    position: ScriptPosition,
    on_mismatch: OnMismatch,
    has_warned: AtomicBool,
}

impl Player {
    /// Returns a player that starts at a position.
    pub(in crate::llm) fn new(
        recording: Recording,
        position: ScriptPosition,
        on_mismatch: OnMismatch,
    ) -> Self {
        let has_warned = AtomicBool::new(false);
        Self(Arc::new(PlayerState { recording, position, on_mismatch, has_warned }))
    }

    /// Returns the model of the next request; at the end, the model of the last one.
    pub(super) fn next_model(&self) -> &str {
        let exchanges = &self.0.recording.exchanges;
        &exchanges[self.0.position.calls().min(exchanges.len() - 1)].request.model
    }

    /// Returns the recorded models, each with the URL of its first request, and whether that request streamed its
    /// reply.
    pub(in crate::llm) fn models(&self) -> Vec<(&str, &str, bool)> {
        let mut models: Vec<(&str, &str, bool)> = Vec::new();
        for RecordedExchange { request, .. } in &self.0.recording.exchanges {
            let RequestRecord { model, url, headers, .. } = request;
            if !models.iter().any(|(known, ..)| known == model) {
                let streams =
                    headers.get("accept").is_some_and(|kind| kind.contains("event-stream"));
                models.push((model, url, streams));
            }
        }
        models
    }

    /// Compares a request with the recorded one.
    fn compare(
        &self,
        number: usize,
        recorded: &RecordedExchange,
        request: &HttpRequest,
    ) -> Result<()> {
        // The recording is masked, so the sent body has to be masked, too.
        let sent = Secrets::default().mask_all(&String::from_utf8_lossy(&request.body.to_vec()));
        let Some(mismatch) = RequestMismatch::find(&recorded.request.body, &sent) else {
            return Ok(());
        };
        let cause = format!("request {number} differs from the recorded one {mismatch}");
        match self.0.on_mismatch {
            OnMismatch::Fail => Err(NetError::InvalidRequest { cause }),
            OnMismatch::Warn => {
                if !self.0.has_warned.swap(true, Ordering::Relaxed) {
                    log::warn!("{cause}; the recorded responses are replayed anyway");
                }
                Ok(())
            }
        }
    }
}

impl HttpTransport for Player {
    fn send(&self, request: &HttpRequest, cancel: &CancellationToken) -> Result<IncomingResponse> {
        if cancel.is_cancelled() {
            return Err(NetError::Cancelled);
        }
        let exchanges = &self.0.recording.exchanges;
        let number = self.0.position.advance() + 1;
        let Some(recorded) = exchanges.get(number - 1) else {
            let count = exchanges.len();
            let cause =
                format!("the recording ends after {count} requests, and this is number {number}");
            return Err(NetError::InvalidRequest { cause });
        };
        self.compare(number, recorded, request)?;
        let ends_early = || NetError::BrokenResponse {
            host: "the recording".to_owned(),
            cause: "nothing more was recorded of it".to_owned(),
        };
        let end = match &recorded.end {
            ExchangeEnd::Complete => Ok(()),
            ExchangeEnd::Unrecorded => Err(ends_early()),
            ExchangeEnd::Failed(error) => Err(error.clone()),
        };
        let Some(response) = &recorded.response else {
            return Err(end.err().unwrap_or_else(ends_early));
        };
        let header = |(name, value): (&String, &String)| {
            Some((name.parse::<HeaderName>().ok()?, HeaderValue::from_str(value).ok()?))
        };
        let headers: HeaderMap = response.headers.iter().filter_map(header).collect();
        let chunks = response.chunks.iter().cloned().collect();
        let body = Box::new(ReplayBody { chunks, end });
        Ok(IncomingResponse { status: response.status, headers, body })
    }
}

/// The body of a recorded response.
struct ReplayBody {
    chunks: VecDeque<Vec<u8>>,
    end: Result<()>,
}

impl ResponseBody for ReplayBody {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let Some(mut chunk) = self.chunks.pop_front() else { return self.end.clone().map(|()| 0) };
        let count = chunk.len().min(buffer.len());
        buffer[..count].copy_from_slice(&chunk[..count]);
        if count < chunk.len() {
            self.chunks.push_front(chunk.split_off(count));
        }
        Ok(count)
    }

    fn release(self: Box<Self>) {}
}

/// A model that replays a recording, possibly of several models.
pub(in crate::llm) struct ReplayModel {
    pub(in crate::llm) player: Player,
    /// The models of the recording by name, each with its own wire.
    pub(in crate::llm) models: Vec<(String, Box<dyn Model>)>,
}

impl Model for ReplayModel {
    fn prepare(&mut self, request: &ModelRequest<'_>) -> Result<Box<dyn ModelCall>, Fault> {
        let name = self.player.next_model();
        match self.models.iter_mut().find(|(known, _)| known == name) {
            Some((_, model)) => model.prepare(request),
            None => Err(Fault::new(FaultKind::Request, "the recording has no model")),
        }
    }

    /// The settings of several models are not stored: the recording determines which one is called.
    fn request_settings(&self) -> Value {
        match self.models.as_slice() {
            [(_, model)] => model.request_settings(),
            _ => Value::Null,
        }
    }
}
