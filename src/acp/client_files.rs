//! The open files of the client.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use agent_client_protocol_schema::v1::{
    CLIENT_METHOD_NAMES, FileSystemCapabilities, ReadTextFileRequest, ReadTextFileResponse,
    SessionId, WriteTextFileRequest, WriteTextFileResponse,
};

use super::client_connection::{ClientConnection, RequestFailure};
use crate::port::CancellationToken;
use crate::workspace::EditorBuffers;

/// How long the client may take to answer; after that it is not asked again in this prompt.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Asks the client for the text of files, and informs it of changes, as far as it offers that.
pub(super) struct ClientFiles {
    connection: ClientConnection,
    session: SessionId,
    offered: FileSystemCapabilities,
    cancel: CancellationToken,
    is_silent: AtomicBool,
}

impl ClientFiles {
    /// Returns the files of a client; `None` if it offers none.
    pub(super) fn new(
        connection: ClientConnection,
        session: SessionId,
        offered: FileSystemCapabilities,
        cancel: CancellationToken,
    ) -> Option<Self> {
        let is_silent = AtomicBool::new(false);
        let is_offered = offered.read_text_file;
        is_offered.then_some(Self { connection, session, offered, cancel, is_silent })
    }

    /// Notes that the client does not answer.
    fn note(&self, failure: &RequestFailure) {
        if *failure == RequestFailure::TimedOut && !self.is_silent.swap(true, Ordering::Relaxed) {
            log::warn!("the client does not answer requests for files; those on disk are used");
        }
    }
}

impl EditorBuffers for ClientFiles {
    fn read(&self, path: &Path) -> Option<String> {
        if self.is_silent.load(Ordering::Relaxed) {
            return None;
        }
        let request = ReadTextFileRequest::new(self.session.clone(), path);
        let method = CLIENT_METHOD_NAMES.fs_read_text_file;
        let answer = self.connection.request(method, &request, &self.cancel, Some(TIMEOUT));
        let read = answer.inspect_err(|failure| self.note(failure));
        read.ok().map(|response: ReadTextFileResponse| response.content)
    }

    fn on_written(&self, path: &Path, text: &str) {
        if !self.offered.write_text_file || self.is_silent.load(Ordering::Relaxed) {
            return;
        }
        let request = WriteTextFileRequest::new(self.session.clone(), path, text);
        let method = CLIENT_METHOD_NAMES.fs_write_text_file;
        let answer = self.connection.request(method, &request, &self.cancel, Some(TIMEOUT));
        if let Err(failure) = answer.map(|_: WriteTextFileResponse| ()) {
            self.note(&failure);
        }
    }
}
