//! Writes recordings.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rustix::fs::OFlags;
use thiserror::Error;

use super::record::{
    CassetteRecord, ChunkRecord, FORMAT_VERSION, RequestRecord, public_headers, relevant_headers,
};
use crate::llm::exchange::{HttpTransport, IncomingResponse, ResponseBody};
use crate::net::{HttpRequest, Result, Secrets, mask_address};
use crate::port::{CancellationToken, lock};
use crate::workspace::{open_anywhere, open_without_links, resolve_inside};

/// Records exchanges with models. Clones write to the same file.
#[derive(Clone, Debug)]
pub struct Recorder(Arc<Mutex<CassetteFile>>);

/// An error while creating a recording.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("could not record to {path}: {cause}")]
pub struct RecordError {
    /// The file.
    pub path: PathBuf,
    /// The error of the system.
    pub cause: String,
}

#[derive(Debug)]
struct CassetteFile {
    path: PathBuf,
    /// The file; `None` after a failed write, so that a recording has no gaps.
    file: Option<File>,
    requests: usize,
    /// The body of the last request.
    body: String,
}

impl Recorder {
    /// Creates a recording, and replaces an existing file. Only the owner can read it.
    ///
    /// # Errors
    ///
    /// Fails if the file can't be written, or if its path has a symbolic link within the workspace.
    pub fn create(workspace: &Path, path: &Path) -> Result<Self, RecordError> {
        let failed =
            |error: io::Error| RecordError { path: path.to_owned(), cause: error.to_string() };
        let file = if let Some(path) = resolve_inside(workspace, path).map_err(failed)? {
            open_without_links(&path, OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC, 0o600)
        } else {
            let mut options = File::options();
            open_anywhere(path, options.write(true).create(true).truncate(true).mode(0o600))
        };
        let file = Some(file.map_err(failed)?);
        let mut file =
            CassetteFile { path: path.to_owned(), file, requests: 0, body: String::new() };
        let head = CassetteRecord::Recording { version: FORMAT_VERSION };
        file.try_write(&head, &Secrets::default()).map_err(failed)?;
        Ok(Self(Arc::new(Mutex::new(file))))
    }

    /// Returns whether no request was recorded.
    pub fn is_empty(&self) -> bool {
        lock(&self.0).requests == 0
    }

    /// Returns a transport that records the exchanges with a model.
    pub(in crate::llm) fn wrap_transport(
        &self,
        inner: Arc<dyn HttpTransport>,
        model: &str,
        masker: Secrets,
    ) -> Arc<dyn HttpTransport> {
        let (recorder, model) = (self.clone(), model.to_owned());
        Arc::new(RecordingTransport { recorder, inner, model, masker })
    }
}

impl CassetteFile {
    /// Records a request, and returns its number.
    fn write_request(&mut self, request: &HttpRequest, model: &str, masker: &Secrets) -> usize {
        self.requests += 1;
        let body = masker.mask_all(&String::from_utf8_lossy(&request.body.to_vec()));
        let same = common_prefix_length(&self.body, &body);
        let record = CassetteRecord::Request(RequestRecord {
            n: self.requests,
            model: model.to_owned(),
            method: request.method.to_string(),
            url: mask_address(&masker.mask_all(&request.url)),
            headers: public_headers(&request.headers),
            shared_bytes: same,
            body: body[same..].to_owned(),
        });
        self.write_or_warn(&record, masker);
        self.body = body;
        self.requests
    }

    /// Writes a record with keys masked, since servers may repeat a key in text or headers. A failed write is reported
    /// once, and does not fail the run.
    fn write_or_warn(&mut self, record: &CassetteRecord, masker: &Secrets) {
        if let Err(error) = self.try_write(record, masker) {
            log::warn!("the recording {} ends here: {error}", self.path.display());
            self.file = None;
        }
    }

    fn try_write(&mut self, record: &CassetteRecord, masker: &Secrets) -> io::Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let mut text = masker.mask_all(&serde_json::to_string(record)?);
        text.push('\n');
        file.write_all(text.as_bytes())
    }
}

/// Returns the length of the common prefix of two texts, in bytes.
fn common_prefix_length(a: &str, b: &str) -> usize {
    let mut same = a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
    while !b.is_char_boundary(same) {
        same -= 1;
    }
    same
}

/// A transport that records its exchanges.
struct RecordingTransport {
    recorder: Recorder,
    inner: Arc<dyn HttpTransport>,
    model: String,
    masker: Secrets,
}

impl HttpTransport for RecordingTransport {
    fn send(&self, request: &HttpRequest, cancel: &CancellationToken) -> Result<IncomingResponse> {
        let number = lock(&self.recorder.0).write_request(request, &self.model, &self.masker);
        match self.inner.send(request, cancel) {
            Ok(IncomingResponse { status, headers, body }) => {
                let recorded = relevant_headers(&headers);
                let record = CassetteRecord::Response { n: number, status, headers: recorded };
                lock(&self.recorder.0).write_or_warn(&record, &self.masker);
                let (recorder, masker) = (self.recorder.clone(), self.masker.clone());
                let recorder = ResponseRecorder { recorder, masker, number, pending: Vec::new() };
                let body = Box::new(RecordingBody { inner: body, recorder });
                Ok(IncomingResponse { status, headers, body })
            }
            Err(error) => {
                let record = CassetteRecord::Error { n: number, error: error.clone() };
                lock(&self.recorder.0).write_or_warn(&record, &self.masker);
                Err(error)
            }
        }
    }
}

/// A response body that is recorded while it is read.
struct RecordingBody {
    inner: Box<dyn ResponseBody>,
    recorder: ResponseRecorder,
}

/// Records one response.
struct ResponseRecorder {
    recorder: Recorder,
    masker: Secrets,
    number: usize,
    /// The incomplete chunk at the end, kept so that a key is not split.
    pending: Vec<u8>,
}

/// The size at which an incomplete chunk is written.
const MAX_CHUNK: usize = 1 << 20;

impl ResponseRecorder {
    /// Adds bytes that were read.
    fn push(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
        while let Some(end) = event_end(&self.pending) {
            self.write_chunk(end);
        }
        if self.pending.len() > MAX_CHUNK {
            self.write_chunk(self.pending.len());
        }
    }

    /// Writes the rest of the response, and its last record.
    fn end(&mut self, record: &CassetteRecord) {
        self.write_rest();
        lock(&self.recorder.0).write_or_warn(record, &self.masker);
    }

    fn write_rest(&mut self) {
        if !self.pending.is_empty() {
            self.write_chunk(self.pending.len());
        }
    }

    fn write_chunk(&mut self, length: usize) {
        let bytes: Vec<u8> = self.pending.drain(..length).collect();
        let bytes = self.masker.mask_bytes(&bytes);
        let chunk = ChunkRecord::new(self.number, bytes);
        lock(&self.recorder.0).write_or_warn(&CassetteRecord::Chunk(chunk), &self.masker);
    }
}

impl Drop for ResponseRecorder {
    /// An error response may be read in part only; the bytes that were read are written.
    fn drop(&mut self) {
        self.write_rest();
    }
}

/// Returns the end of the first event, including its blank line.
fn event_end(bytes: &[u8]) -> Option<usize> {
    let ends = [&b"\n\n"[..], b"\r\n\r\n", b"\r\r"].map(|blank| {
        let at = bytes.windows(blank.len()).position(|window| window == blank)?;
        Some(at + blank.len())
    });
    ends.into_iter().flatten().min()
}

impl ResponseBody for RecordingBody {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let read = self.inner.read(buffer);
        let n = self.recorder.number;
        match &read {
            Ok(count @ 1..) => self.recorder.push(&buffer[..*count]),
            Ok(_) => self.recorder.end(&CassetteRecord::End { n }),
            Err(error) => self.recorder.end(&CassetteRecord::Error { n, error: error.clone() }),
        }
        read
    }

    fn release(self: Box<Self>) {
        let Self { inner, mut recorder } = *self;
        recorder.end(&CassetteRecord::End { n: recorder.number });
        inner.release();
    }
}
