//! Answering from a recording.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::difference::Difference;
use super::recording::{Answer, End, Exchange, Recording};
use crate::llm::exchange::{Carrier, Incoming};
use crate::llm::fault::Masks;
use crate::llm::scripted::ScriptPosition;
use crate::net::{HeaderMap, HeaderName, HeaderValue, NetError, Request};
use crate::port::Cancel;

/// What is done where a request differs from the recorded one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDifference {
    /// The first difference is told as a warning, and the recorded answer is given: paths and versions of another machine
    /// need not change what a model said.
    #[default]
    Tell,
    /// The call fails with it.
    Fail,
}

/// Answers requests in the order in which they were recorded. Clones play the same recording together.
#[derive(Clone)]
pub(in crate::llm) struct Player(Arc<Playing>);

struct Playing {
    recording: Recording,
    position: ScriptPosition,
    on_difference: OnDifference,
    has_told: AtomicBool,
}

impl Player {
    /// Returns a player that begins at a position.
    pub(in crate::llm) fn new(
        recording: Recording,
        position: ScriptPosition,
        on_difference: OnDifference,
    ) -> Self {
        let has_told = AtomicBool::new(false);
        Self(Arc::new(Playing { recording, position, on_difference, has_told }))
    }

    /// Returns who was asked next; at the end, who was asked last.
    pub(super) fn next_model(&self) -> &str {
        let exchanges = &self.0.recording.exchanges;
        &exchanges[self.0.position.calls().min(exchanges.len() - 1)].model
    }

    /// Returns who was asked, each with the address of its first request and whether it was to stream its reply.
    pub(in crate::llm) fn models(&self) -> Vec<(&str, &str, bool)> {
        let mut models: Vec<(&str, &str, bool)> = Vec::new();
        for Exchange { model, url, headers, .. } in &self.0.recording.exchanges {
            if !models.iter().any(|(known, ..)| known == model) {
                let streams =
                    headers.get("accept").is_some_and(|kind| kind.contains("event-stream"));
                models.push((model, url, streams));
            }
        }
        models
    }

    /// Compares a request with what was recorded.
    fn compare(
        &self,
        number: usize,
        recorded: &Exchange,
        request: &Request,
    ) -> Result<(), NetError> {
        // What was masked in the recording is masked in what is compared with it.
        let asked = Masks::default().mask(&String::from_utf8_lossy(&request.body.to_vec()));
        let Some(difference) = Difference::find(&recorded.body, &asked) else { return Ok(()) };
        let cause = format!("request {number} differs from the recorded one {difference}");
        match self.0.on_difference {
            OnDifference::Fail => Err(NetError::Request { cause }),
            OnDifference::Tell => {
                if !self.0.has_told.swap(true, Ordering::Relaxed) {
                    log::warn!("{cause}; the recorded answers are given all the same");
                }
                Ok(())
            }
        }
    }
}

impl Carrier for Player {
    fn send(&self, request: &Request, cancel: &Cancel) -> Result<Box<dyn Incoming>, NetError> {
        if cancel.is_cancelled() {
            return Err(NetError::Cancelled);
        }
        let exchanges = &self.0.recording.exchanges;
        let number = self.0.position.take() + 1;
        let Some(recorded) = exchanges.get(number - 1) else {
            let count = exchanges.len();
            let cause =
                format!("the recording ends after {count} requests, and this is number {number}");
            return Err(NetError::Request { cause });
        };
        self.compare(number, recorded, request)?;
        let ends_early = || NetError::Broken {
            host: "the recording".to_owned(),
            cause: "nothing more was recorded of it".to_owned(),
        };
        let end = match &recorded.end {
            End::Whole => Ok(()),
            End::Open => Err(ends_early()),
            End::Failed(error) => Err(error.clone()),
        };
        match (&recorded.answer, end) {
            (Some(answer), end) => Ok(Box::new(Played::new(answer, end))),
            (None, end) => Err(end.err().unwrap_or_else(ends_early)),
        }
    }
}

impl fmt::Debug for Player {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Player").finish_non_exhaustive()
    }
}

/// An answer as it was recorded.
struct Played {
    status: u16,
    headers: HeaderMap,
    pieces: VecDeque<Vec<u8>>,
    end: Result<(), NetError>,
}

impl Played {
    fn new(answer: &Answer, end: Result<(), NetError>) -> Self {
        let header = |(name, value): (&String, &String)| {
            Some((name.parse::<HeaderName>().ok()?, HeaderValue::from_str(value).ok()?))
        };
        Self {
            status: answer.status,
            headers: answer.headers.iter().filter_map(header).collect(),
            pieces: answer.pieces.iter().cloned().collect(),
            end,
        }
    }
}

impl Incoming for Played {
    fn status(&self) -> u16 {
        self.status
    }

    fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, NetError> {
        let Some(mut piece) = self.pieces.pop_front() else { return self.end.clone().map(|()| 0) };
        let count = piece.len().min(buffer.len());
        buffer[..count].copy_from_slice(&piece[..count]);
        if count < piece.len() {
            self.pieces.push_front(piece.split_off(count));
        }
        Ok(count)
    }

    fn leave(self: Box<Self>) {}
}
