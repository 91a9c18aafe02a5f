//! The connection to the client: outgoing messages, and requests that wait for an answer.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use agent_client_protocol_schema::v1::{
    CLIENT_METHOD_NAMES, Error, RequestId, SessionId, SessionNotification, SessionUpdate,
};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::port::{CancelRegistration, CancellationToken, Disconnected, lock};

/// Sends messages to the client. Clones share the connection.
#[derive(Clone)]
pub(super) struct ClientConnection {
    inner: Arc<ConnectionState>,
}

struct ConnectionState {
    /// The lines to write. A slow client does not stop a run until [`MAX_UNREAD`] bytes wait.
    lines: Sender<OutputLine>,
    /// The number of bytes in `lines`.
    unread: Arc<AtomicUsize>,
    next_request: AtomicI64,
    /// The requests that wait for an answer of the client, by id.
    open: Mutex<HashMap<i64, Sender<Result<Value, Error>>>>,
    /// Cancelled when the client is gone.
    closed: CancellationToken,
}

/// The number of bytes that may wait for the client. With more waiting, the client counts as gone.
const MAX_UNREAD: usize = 64 << 20;

enum OutputLine {
    Message(Vec<u8>),
    /// Notifies the sender once all earlier lines are written.
    Flush(Sender<()>),
}

/// The reason why a request has no result.
#[derive(Debug, PartialEq)]
pub(super) enum RequestFailure {
    /// The client answered with an error, or with an invalid result.
    Refused(Error),
    /// The caller cancelled the request, or the client is gone.
    Cancelled,
    /// The client did not answer in time.
    TimedOut,
}

impl ClientConnection {
    /// Starts the writer thread. `closed` is cancelled when the client no longer reads.
    ///
    /// # Errors
    ///
    /// Fails if the thread can't be started.
    pub(super) fn start(
        output: impl Write + Send + 'static,
        closed: CancellationToken,
    ) -> io::Result<Self> {
        let (lines, receiver) = unbounded();
        let unread = Arc::<AtomicUsize>::default();
        let (gone, waiting) = (closed.clone(), Arc::clone(&unread));
        thread::Builder::new().name("acp-write".to_owned()).spawn(move || {
            if write_lines(output, &receiver, &waiting).is_err() {
                gone.cancel();
            }
        })?;
        let (next_request, open) = (AtomicI64::new(1), Mutex::default());
        Ok(Self { inner: Arc::new(ConnectionState { lines, unread, next_request, open, closed }) })
    }

    /// Sends an update of a session.
    ///
    /// # Errors
    ///
    /// Fails if the client is gone.
    pub(super) fn update(
        &self,
        session: &SessionId,
        update: SessionUpdate,
    ) -> Result<(), Disconnected> {
        let params = SessionNotification::new(session.clone(), update);
        let method = CLIENT_METHOD_NAMES.session_update;
        self.send(&json!({ "jsonrpc": "2.0", "method": method, "params": params }));
        if self.inner.closed.is_cancelled() { Err(Disconnected) } else { Ok(()) }
    }

    /// Answers a request.
    pub(super) fn respond(&self, id: &RequestId, result: Result<Value, Error>) {
        self.send(&match result {
            Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
            Err(error) => json!({ "jsonrpc": "2.0", "id": id, "error": error }),
        });
    }

    /// Sends a request, and waits for its result until `cancel` is cancelled or the client is gone, or for `timeout`.
    ///
    /// # Errors
    ///
    /// Fails if there is no result, or if the result is invalid.
    pub(super) fn request<R: DeserializeOwned>(
        &self,
        method: &str,
        params: &impl Serialize,
        cancel: &CancellationToken,
        timeout: Option<Duration>,
    ) -> Result<R, RequestFailure> {
        let (sender, receiver) = bounded(1);
        let id = self.inner.next_request.fetch_add(1, Ordering::Relaxed);
        lock(&self.inner.open).insert(id, sender);
        let _on_cancel = self.forget_on(cancel, id);
        let _on_close = self.forget_on(&self.inner.closed, id);
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        // Forgetting the request drops its sender.
        let result = match timeout {
            None => receiver.recv().map_err(|_| RequestFailure::Cancelled)?,
            Some(timeout) => receiver.recv_timeout(timeout).map_err(|error| {
                lock(&self.inner.open).remove(&id);
                match error {
                    RecvTimeoutError::Timeout => RequestFailure::TimedOut,
                    RecvTimeoutError::Disconnected => RequestFailure::Cancelled,
                }
            })?,
        };
        let result = result.map_err(RequestFailure::Refused)?;
        serde_json::from_value(result).map_err(|error| {
            RequestFailure::Refused(Error::invalid_params().data(json!(error.to_string())))
        })
    }

    /// Passes an answer to the request that waits for it. Other answers are ignored.
    pub(super) fn on_response(&self, id: &RequestId, result: Result<Value, Error>) {
        let open = match id {
            RequestId::Number(id) => lock(&self.inner.open).remove(id),
            RequestId::Null | RequestId::Str(_) => None,
        };
        match open {
            Some(sender) => drop(sender.send(result)),
            None => log::debug!("the client has answered a request that is not open: {id}"),
        }
    }

    /// Waits until everything is written, for `timeout` at most. Returns whether everything is written.
    pub(super) fn flush(&self, timeout: Duration) -> bool {
        let (sender, receiver) = bounded(1);
        let is_sent = self.inner.lines.send(OutputLine::Flush(sender)).is_ok();
        is_sent && receiver.recv_timeout(timeout).is_ok()
    }

    fn forget_on(&self, token: &CancellationToken, id: i64) -> CancelRegistration {
        let inner = Arc::clone(&self.inner);
        token.on_cancel(move || drop(lock(&inner.open).remove(&id)))
    }

    fn send(&self, message: &Value) {
        let mut line = message.to_string().into_bytes();
        line.push(b'\n');
        let unread = self.inner.unread.fetch_add(line.len(), Ordering::Relaxed) + line.len();
        if unread > MAX_UNREAD && !self.inner.closed.is_cancelled() {
            log::warn!("the client does not read what is sent to it");
            self.inner.closed.cancel();
        }
        if self.inner.closed.is_cancelled() {
            return;
        }
        // After a failed write no thread receives the line.
        let _ = self.inner.lines.send(OutputLine::Message(line));
    }
}

fn write_lines(
    mut output: impl Write,
    lines: &Receiver<OutputLine>,
    unread: &AtomicUsize,
) -> io::Result<()> {
    for line in lines {
        match line {
            OutputLine::Message(line) => {
                output.write_all(&line)?;
                unread.fetch_sub(line.len(), Ordering::Relaxed);
                if lines.is_empty() {
                    output.flush()?;
                }
            }
            OutputLine::Flush(done) => {
                output.flush()?;
                let _ = done.send(());
            }
        }
    }
    output.flush()
}
