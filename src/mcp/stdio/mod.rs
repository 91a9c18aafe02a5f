//! A server that is a process: one message for each line of its standard input and output.
//!
//! Three threads serve it, so that none of its pipes is ever full on our account and no caller waits longer than it
//! wants: one writes, one reads and hands each answer to whoever waits for it, one keeps the end of what it complains
//! about. An answer that nobody waits for, because it comes too late, twice, or under a number that was never given, is
//! passed over.

mod line_reader;
mod stdout_reader;

use std::collections::HashMap;
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, SendTimeoutError, Sender, bounded, unbounded};
use serde_json::Value;

use super::connection::{Channel, ReplyDeadline, ServerShutdown};
use super::error::{RpcError, ServerError};
use super::message::{RpcRequest, ServerMessage, cancel_notification, client_answer};
use super::settings::ServerSetup;
use crate::exec::{
    ChildCommand, CommandPipes, CommandSpec, OutputCapture, SandboxPolicy, explain_denial,
};
use crate::port::CancellationToken;
use line_reader::LineReader;
use stdout_reader::StdoutReader;

/// A server that is a process.
pub(super) struct StdioChannel {
    shared: Arc<StdioState>,
    process: Arc<ChildCommand>,
    shutdown: ServerShutdown,
}

struct StdioState {
    /// What is to be written; none when nothing will be any more.
    outbox: Mutex<Option<Sender<Value>>>,
    pending: Mutex<PendingReplies>,
    stderr: Mutex<OutputCapture>,
    /// Cancelled when there are no more of them.
    stderr_closed: CancellationToken,
    /// What must not be quoted.
    secrets: Vec<String>,
    /// How the process is confined, and where it runs.
    policy: SandboxPolicy,
    folder: PathBuf,
}

/// Who waits for which answer.
enum PendingReplies {
    Open(HashMap<u64, Sender<PendingEvent>>),
    /// Nobody any more, and why.
    Ended(ServerError),
}

/// What somebody who waits hears.
enum PendingEvent {
    Reply(Result<Value, RpcError>),
    Progress(String),
    Ended(ServerError),
    Cancelled,
}

/// Messages that wait for a server to read them.
const OUTBOX: usize = 64;

/// What is kept of the complaints, of their beginning and of their end.
const STDERR_BYTES: usize = 32 << 10;

/// How many characters of them are quoted.
const MAX_QUOTED_CHARS: usize = 600;

/// How long a process may take to end after its output has.
const EXIT_TIMEOUT: Duration = Duration::from_millis(500);

impl StdioChannel {
    /// Starts the process.
    pub(super) fn start(
        argv: Vec<std::ffi::OsString>,
        env: &[(String, String)],
        secrets: Vec<String>,
        setup: &ServerSetup,
        parting: ServerShutdown,
    ) -> Result<Self, ServerError> {
        let command = CommandSpec {
            env: env.iter().map(|(name, value)| (name.into(), value.into())).collect(),
            kill_timeout: setup.shutdown_timeout,
            ..CommandSpec::new(argv, &setup.folder)
        };
        let failed = |error: String| ServerError::Start(error);
        let opened = setup.supervisor.open(&command).map_err(|error| failed(error.to_string()));
        let (process, CommandPipes { stdin, stdout, stderr }) = opened?;
        let (outbox, to_write) = bounded(OUTBOX);
        let shared = Arc::new(StdioState {
            outbox: Mutex::new(Some(outbox)),
            pending: Mutex::new(PendingReplies::Open(HashMap::new())),
            stderr: Mutex::new(OutputCapture::new(STDERR_BYTES)),
            stderr_closed: CancellationToken::new(),
            secrets,
            policy: setup.supervisor.policy().clone(),
            folder: setup.folder.clone(),
        });
        let process = Arc::new(process);
        let reader = StdoutReader {
            shared: Arc::clone(&shared),
            process: Arc::clone(&process),
            lines: LineReader::new(stdout, setup.limits.message_bytes),
            max_invalid_lines: setup.limits.invalid_lines,
        };
        let complaints = Arc::clone(&shared);
        let stdio = Self { shared, process, shutdown: parting };
        let spawn = |name: &str, body: Box<dyn FnOnce() + Send>| {
            let started = thread::Builder::new().name(name.to_owned()).spawn(body);
            started.map(drop).map_err(|error| failed(error.to_string()))
        };
        spawn("mcp-write", Box::new(move || write_messages(stdin, &to_write)))?;
        spawn("mcp-stderr", Box::new(move || complaints.capture_stderr(stderr)))?;
        spawn("mcp-read", Box::new(move || reader.run()))?;
        Ok(stdio)
    }

    fn send(&self, message: Value, wait: &ReplyDeadline<'_>) -> Result<(), ServerError> {
        let outbox = self.shared.outbox().clone();
        let outbox = outbox.ok_or_else(|| self.shared.end_reason())?;
        outbox.send_timeout(message, wait.remaining()).map_err(|error| match error {
            SendTimeoutError::Timeout(_) => wait.timed_out(),
            SendTimeoutError::Disconnected(_) => self.shared.end_reason(),
        })
    }

    /// Waits for the answer to a request.
    fn wait_for_reply(
        &self,
        heard: &Receiver<PendingEvent>,
        wait: &ReplyDeadline<'_>,
    ) -> Result<Value, ServerError> {
        loop {
            match heard.recv_deadline(wait.at) {
                Ok(PendingEvent::Reply(outcome)) => return outcome.map_err(ServerError::Refused),
                Ok(PendingEvent::Progress(text)) => (wait.progress)(&text),
                Ok(PendingEvent::Ended(error)) => return Err(error),
                Ok(PendingEvent::Cancelled) => return Err(ServerError::Cancelled),
                Err(RecvTimeoutError::Timeout) => return Err(wait.timed_out()),
                Err(RecvTimeoutError::Disconnected) => return Err(self.shared.end_reason()),
            }
        }
    }
}

impl Channel for StdioChannel {
    fn request(
        &self,
        request: &RpcRequest,
        wait: &ReplyDeadline<'_>,
    ) -> Result<Value, ServerError> {
        let (tell, heard) = unbounded();
        match &mut *self.shared.pending() {
            PendingReplies::Open(waiting) => drop(waiting.insert(request.id, tell.clone())),
            PendingReplies::Ended(error) => return Err(error.clone()),
        }
        let guard = wait.cancel.on_cancel(move || drop(tell.send(PendingEvent::Cancelled)));
        let sent = self.send(request.to_json(), wait);
        let result = sent.and_then(|()| self.wait_for_reply(&heard, wait));
        drop(guard);
        if let PendingReplies::Open(waiting) = &mut *self.shared.pending() {
            waiting.remove(&request.id);
        }
        let is_given_up = matches!(result, Err(ServerError::TimedOut(_) | ServerError::Cancelled));
        // The first request of a session cannot be taken back.
        if is_given_up && request.method != "initialize" {
            self.shared.try_send(cancel_notification(request.id));
        }
        result
    }

    fn notify(
        &self,
        message: Value,
        _: &'static str,
        wait: &ReplyDeadline<'_>,
    ) -> Result<(), ServerError> {
        self.send(message, wait)
    }

    fn end_reason(&self) -> Option<ServerError> {
        match &*self.shared.pending() {
            PendingReplies::Open(_) => None,
            PendingReplies::Ended(error) => Some(error.clone()),
        }
    }
}

impl Drop for StdioChannel {
    /// Ends the server: first its input does, then it is asked to, then it is killed with all that it has started. In a
    /// hurry it is asked at once, and what then still runs is killed when this process ends.
    fn drop(&mut self) {
        self.shared.outbox().take();
        if self.shutdown.idle_timeout().and_then(|most| self.process.wait(most)).is_none() {
            self.process.stop();
            self.process.wait(self.shutdown.exit_timeout() + EXIT_TIMEOUT);
        }
    }
}

impl StdioState {
    fn outbox(&self) -> MutexGuard<'_, Option<Sender<Value>>> {
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pending(&self) -> MutexGuard<'_, PendingReplies> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends something if there is room for it. Nobody waits for a server that does not read.
    fn try_send(&self, message: Value) {
        if let Some(outbox) = &*self.outbox() {
            let _ = outbox.try_send(message);
        }
    }

    /// Hands on what a server said.
    fn dispatch(&self, said: ServerMessage) {
        let (id, heard) = match said {
            ServerMessage::Reply { id: Some(id), outcome } => (id, PendingEvent::Reply(outcome)),
            ServerMessage::Progress { id, text } => (id, PendingEvent::Progress(text)),
            ServerMessage::Request { id, method } => {
                return self.try_send(client_answer(&id, &method));
            }
            ServerMessage::Reply { id: None, .. } | ServerMessage::Notification => return,
        };
        let PendingReplies::Open(waiting) = &mut *self.pending() else { return };
        let listener = match heard {
            // Who has not listened yet to what came before does not miss the rest.
            PendingEvent::Progress(_) => waiting.get(&id).filter(|who| who.is_empty()).cloned(),
            _ => waiting.remove(&id),
        };
        if let Some(listener) = listener {
            let _ = listener.send(heard);
        }
    }

    /// Tells everybody that nothing more will come.
    fn end(&self, error: &ServerError) {
        self.outbox().take();
        let before = std::mem::replace(&mut *self.pending(), PendingReplies::Ended(error.clone()));
        if let PendingReplies::Open(waiting) = before {
            for listener in waiting.into_values() {
                let _ = listener.send(PendingEvent::Ended(error.clone()));
            }
        }
    }

    fn end_reason(&self) -> ServerError {
        match &*self.pending() {
            PendingReplies::Ended(error) => error.clone(),
            PendingReplies::Open(_) => {
                ServerError::Exited { end: None, stderr: self.stderr_tail() }
            }
        }
    }

    fn capture_stderr(&self, mut stderr: PipeReader) {
        let mut buffer = vec![0; 8 << 10];
        while let Ok(count @ 1..) = stderr.read(&mut buffer) {
            let mut complaints = self.stderr.lock().unwrap_or_else(PoisonError::into_inner);
            complaints.write(&buffer[..count]);
        }
        self.stderr_closed.cancel();
    }

    /// Returns the end of what the server complained about.
    fn stderr_tail(&self) -> String {
        let text = self.stderr.lock().unwrap_or_else(PoisonError::into_inner).text();
        let text = self.secrets.iter().fold(text, |text, secret| text.replace(secret, "***"));
        let skipped = text.trim_end().chars().count().saturating_sub(MAX_QUOTED_CHARS);
        let mut quoted: String = text.trim_end().chars().skip(skipped).collect();
        if let Some(why) = explain_denial(&text, &self.policy, &self.folder) {
            quoted.push_str(&format!(" [{why}]"));
        }
        quoted
    }
}

/// Writes messages, until there are no more or nobody reads them.
fn write_messages(mut stdin: PipeWriter, messages: &Receiver<Value>) {
    for message in messages {
        let mut line = message.to_string().into_bytes();
        line.push(b'\n');
        if stdin.write_all(&line).is_err() {
            break;
        }
    }
}
