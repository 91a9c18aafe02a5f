//! Open files of the client.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use agent_client_protocol_schema::v1::{
    CLIENT_METHOD_NAMES, ErrorCode, FileSystemCapabilities, ReadTextFileRequest,
    ReadTextFileResponse, SessionId, WriteTextFileRequest, WriteTextFileResponse,
};

use super::client_connection::{ClientConnection, RequestFailure};
use crate::port::{CancellationToken, lock};
use crate::workspace::EditorBuffers;

/// Timeout of a request for a file. After a timeout the client is not asked again in this prompt.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Reads the text of files through the client, and reports changes to it, as far as the client offers that.
pub(super) struct ClientFiles {
    connection: ClientConnection,
    session: SessionId,
    offered: FileSystemCapabilities,
    cancel: CancellationToken,
    is_silent: AtomicBool,
    /// Files whose text the client failed to show. They may have unsaved changes, so no text is written to them.
    unread: Mutex<HashSet<PathBuf>>,
}

impl ClientFiles {
    /// Returns the open files of a client; `None` if the client can't read files.
    pub(super) fn new(
        connection: ClientConnection,
        session: SessionId,
        offered: FileSystemCapabilities,
        cancel: CancellationToken,
    ) -> Option<Self> {
        let (is_silent, unread) = (AtomicBool::new(false), Mutex::default());
        let is_offered = offered.read_text_file;
        is_offered.then_some(Self { connection, session, offered, cancel, is_silent, unread })
    }

    /// Records that the client failed to show or to take the text of a file.
    fn note(&self, path: &Path, failure: &RequestFailure) {
        match failure {
            RequestFailure::Refused(error) if error.code == ErrorCode::ResourceNotFound => {}
            RequestFailure::Refused(error) => {
                if lock(&self.unread).insert(path.to_owned()) {
                    let path = path.display();
                    log::warn!(
                        "the client refuses requests for {path}, that on disk is used: {}",
                        error.message
                    );
                }
            }
            RequestFailure::TimedOut => {
                if !self.is_silent.swap(true, Ordering::Relaxed) {
                    log::warn!(
                        "the client does not answer requests for files; those on disk are used"
                    );
                }
            }
            RequestFailure::Cancelled => {}
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
        let read = answer.inspect_err(|failure| self.note(path, failure));
        read.ok().map(|response: ReadTextFileResponse| response.content)
    }

    fn on_written(&self, path: &Path, text: &str) {
        let is_unknown = || lock(&self.unread).contains(path);
        if !self.offered.write_text_file || self.is_silent.load(Ordering::Relaxed) || is_unknown() {
            return;
        }
        let request = WriteTextFileRequest::new(self.session.clone(), path, text);
        let method = CLIENT_METHOD_NAMES.fs_write_text_file;
        let answer = self.connection.request(method, &request, &self.cancel, Some(TIMEOUT));
        if let Err(failure) = answer.map(|_: WriteTextFileResponse| ()) {
            self.note(path, &failure);
        }
    }
}
