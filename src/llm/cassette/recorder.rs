//! Writing a recording.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::OFlags;
use thiserror::Error;

use super::line::{Line, Piece, Request as RequestLine, VERSION, open_headers, telling_headers};
use crate::llm::exchange::{Carrier, Incoming};
use crate::llm::fault::Masks;
use crate::net::{HeaderMap, NetError, Request};
use crate::port::Cancel;
use crate::workspace::{open_without_links, target_inside};

/// Writes exchanges with models down. Clones write to the same file.
#[derive(Clone, Debug)]
pub struct Recorder(Arc<Mutex<Tape>>);

/// Why nothing can be recorded.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("could not record to {path}: {cause}")]
pub struct RecordError {
    /// The file.
    pub path: PathBuf,
    /// What the system says.
    pub cause: String,
}

#[derive(Debug)]
struct Tape {
    path: PathBuf,
    /// Nothing after the file could not be written, so that a gap in the middle cannot arise.
    file: Option<File>,
    requests: usize,
    /// The body of the newest request.
    body: String,
}

impl Recorder {
    /// Creates a recording, in the place of the file that may be there. Only its owner can read it.
    ///
    /// # Errors
    ///
    /// Fails when the file cannot be written, or a link inside the workspace leads to it.
    pub fn create(workspace: &Path, path: &Path) -> Result<Self, RecordError> {
        let failed =
            |error: io::Error| RecordError { path: path.to_owned(), cause: error.to_string() };
        let file = if let Some(path) = target_inside(workspace, path).map_err(failed)? {
            open_without_links(&path, OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC, 0o600)
        } else {
            let mut options = File::options();
            options.write(true).create(true).truncate(true).mode(0o600).open(path)
        };
        let file = Some(file.map_err(failed)?);
        let mut tape = Tape { path: path.to_owned(), file, requests: 0, body: String::new() };
        tape.try_write(&Line::Recording { version: VERSION }, &Masks::default()).map_err(failed)?;
        Ok(Self(Arc::new(Mutex::new(tape))))
    }

    /// Returns whether no request was recorded.
    pub fn is_empty(&self) -> bool {
        self.tape().requests == 0
    }

    /// Returns a carrier that writes down what this one carries to a model.
    pub(in crate::llm) fn wrap(
        &self,
        carrier: Arc<dyn Carrier>,
        model: &str,
        masks: Masks,
    ) -> Arc<dyn Carrier> {
        Arc::new(Recorded { recorder: self.clone(), carrier, model: model.to_owned(), masks })
    }

    fn tape(&self) -> MutexGuard<'_, Tape> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tape {
    /// Writes a request down, and returns its number.
    fn request(&mut self, request: &Request, model: &str, masks: &Masks) -> usize {
        self.requests += 1;
        let body = masks.mask(&String::from_utf8_lossy(&request.body.to_vec()));
        let same = common(&self.body, &body);
        self.write(
            &Line::Request(RequestLine {
                n: self.requests,
                model: model.to_owned(),
                method: request.method.to_string(),
                url: masks.mask(&request.url),
                headers: open_headers(&request.headers),
                same,
                body: body[same..].to_owned(),
            }),
            masks,
        );
        self.body = body;
        self.requests
    }

    /// Writes a line, without any key that is in it: servers like to say back what they were sent, in headers too. A run
    /// does not fail for its recording, but it says so, once.
    fn write(&mut self, line: &Line, masks: &Masks) {
        if let Err(error) = self.try_write(line, masks) {
            log::warn!("the recording {} ends here: {error}", self.path.display());
            self.file = None;
        }
    }

    fn try_write(&mut self, line: &Line, masks: &Masks) -> io::Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let mut text = masks.mask(&serde_json::to_string(line)?);
        text.push('\n');
        file.write_all(text.as_bytes())
    }
}

/// Returns how many bytes two texts have in common at their beginning.
fn common(a: &str, b: &str) -> usize {
    let mut same = a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
    while !b.is_char_boundary(same) {
        same -= 1;
    }
    same
}

/// A carrier whose exchanges are written down.
struct Recorded {
    recorder: Recorder,
    carrier: Arc<dyn Carrier>,
    model: String,
    masks: Masks,
}

impl Carrier for Recorded {
    fn send(&self, request: &Request, cancel: &Cancel) -> Result<Box<dyn Incoming>, NetError> {
        let number = self.recorder.tape().request(request, &self.model, &self.masks);
        match self.carrier.send(request, cancel) {
            Ok(incoming) => {
                let (status, headers) = (incoming.status(), telling_headers(incoming.headers()));
                let line = Line::Answer { n: number, status, headers };
                self.recorder.tape().write(&line, &self.masks);
                let (recorder, masks) = (self.recorder.clone(), self.masks.clone());
                let notes = Notes { recorder, masks, number, pending: Vec::new() };
                Ok(Box::new(Listening { incoming, notes }))
            }
            Err(error) => {
                let line = Line::Error { n: number, error: error.clone() };
                self.recorder.tape().write(&line, &self.masks);
                Err(error)
            }
        }
    }
}

/// An answer that is written down while it is read.
struct Listening {
    incoming: Box<dyn Incoming>,
    notes: Notes,
}

/// What is written down of one answer.
struct Notes {
    recorder: Recorder,
    masks: Masks,
    number: usize,
    /// What is not yet a whole piece: a key must not be cut in two.
    pending: Vec<u8>,
}

/// What a piece may have before it is written down although it goes on.
const LONG: usize = 1 << 20;

impl Notes {
    /// Takes in what was read.
    fn take(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
        while let Some(end) = end_of_piece(&self.pending) {
            self.piece(end);
        }
        if self.pending.len() > LONG {
            self.piece(self.pending.len());
        }
    }

    /// Writes what is left of the answer, and how it ended.
    fn end(&mut self, line: &Line) {
        self.rest();
        self.recorder.tape().write(line, &self.masks);
    }

    fn rest(&mut self) {
        if !self.pending.is_empty() {
            self.piece(self.pending.len());
        }
    }

    fn piece(&mut self, length: usize) {
        let bytes: Vec<u8> = self.pending.drain(..length).collect();
        let bytes = self.masks.mask_bytes(&bytes);
        let piece = Piece::new(self.number, &bytes, |text| self.masks.mask(text));
        self.recorder.tape().write(&Line::Piece(piece), &self.masks);
    }
}

impl Drop for Notes {
    /// An answer that is no reply is not read to its end; what was read of it is kept.
    fn drop(&mut self) {
        self.rest();
    }
}

/// Returns where the first event ends, its blank line included.
fn end_of_piece(bytes: &[u8]) -> Option<usize> {
    let ends = [&b"\n\n"[..], b"\r\n\r\n", b"\r\r"].map(|blank| {
        let at = bytes.windows(blank.len()).position(|window| window == blank)?;
        Some(at + blank.len())
    });
    ends.into_iter().flatten().min()
}

impl Incoming for Listening {
    fn status(&self) -> u16 {
        self.incoming.status()
    }

    fn headers(&self) -> &HeaderMap {
        self.incoming.headers()
    }

    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, NetError> {
        let read = self.incoming.read(buffer);
        let n = self.notes.number;
        match &read {
            Ok(count @ 1..) => self.notes.take(&buffer[..*count]),
            Ok(_) => self.notes.end(&Line::End { n }),
            Err(error) => self.notes.end(&Line::Error { n, error: error.clone() }),
        }
        read
    }

    fn leave(self: Box<Self>) {
        let Self { incoming, mut notes } = *self;
        let n = notes.number;
        notes.end(&Line::End { n });
        incoming.leave();
    }
}
