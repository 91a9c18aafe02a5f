//! A server process with one message per line of its standard input and output.
//!
//! Three threads serve the process, so that its pipes never fill up and no caller waits beyond its limit: a writer, a
//! reader that passes each answer to its caller, and a reader that keeps the start and the end of standard error.
//! Answers without a waiting caller are ignored: late answers, repeated ones, and those with an unknown ID.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, PipeReader, Read, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, SendTimeoutError, Sender, bounded, unbounded};
use serde_json::Value;

use super::connection::{Channel, ReplyDeadline, ServerShutdown};
use super::elicitation::{self, ELICIT};
use super::error::{Result, ServerError};
use super::message::{
    RpcRequest, ServerMessage, cancel_notification, client_answer, client_result,
};
use super::settings::{ServerLimits, ServerSetup};
use crate::exec::{
    ChildCommand, CommandPipes, CommandSpec, OutputCapture, SandboxPolicy, explain_denial,
};
use crate::port::{CancellationToken, lock};

/// A connection to a server process.
pub(super) struct StdioChannel {
    shared: Arc<StdioState>,
    process: Arc<ChildCommand>,
    /// The reader thread, which also holds the process.
    reader: Option<JoinHandle<()>>,
    shutdown: ServerShutdown,
}

struct StdioState {
    /// Messages to write; `None` after the end.
    outbox: Mutex<Option<Sender<Value>>>,
    pending: Mutex<PendingReplies>,
    stderr: Mutex<OutputCapture>,
    /// Cancelled when standard error is closed.
    stderr_closed: CancellationToken,
    /// Secrets to mask in quotes.
    secrets: Vec<String>,
    /// The confinement of the process, and its working directory.
    policy: SandboxPolicy,
    folder: PathBuf,
}

/// The callers that are waiting for answers.
enum PendingReplies {
    Open(HashMap<u64, Sender<PendingEvent>>),
    /// No further answers will arrive, for this reason.
    Ended(ServerError),
}

/// An event for a waiting caller.
enum PendingEvent {
    Reply(Result<Value>),
    Progress(String),
    /// A question for the user: the ID of the request, and its parameters.
    Question(Value, Value),
}

/// The maximum number of queued events of a caller; further questions are declined.
const MAX_QUEUED_EVENTS: usize = 4;

/// The maximum number of queued messages.
const OUTBOX: usize = 64;

/// The number of bytes of standard error that are kept at its start, and at its end.
const STDERR_BYTES: usize = 32 << 10;

/// The number of its characters that are quoted.
const MAX_QUOTED_CHARS: usize = 600;

/// The time limit for a process to end after it has closed its output.
const EXIT_TIMEOUT: Duration = Duration::from_millis(500);

impl StdioChannel {
    /// Starts the process.
    pub(super) fn start(
        argv: Vec<std::ffi::OsString>,
        env: &[(String, String)],
        secrets: Vec<String>,
        setup: &ServerSetup,
        parting: ServerShutdown,
    ) -> Result<Self> {
        let command = CommandSpec {
            env: env.iter().map(|(name, value)| (name.into(), value.into())).collect(),
            kill_timeout: setup.shutdown_timeout,
            ..CommandSpec::new(argv, &setup.folder)
        };
        let failed = |error: String| ServerError::Start(error);
        let opened = setup.supervisor.open(&command).map_err(|error| failed(error.to_string()));
        let (process, CommandPipes { mut stdin, stdout, stderr }) = opened?;
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
        let (complaints, output, child) =
            (Arc::clone(&shared), Arc::clone(&shared), Arc::clone(&process));
        let limits = setup.limits;
        let mut stdio = Self { shared, process, reader: None, shutdown: parting };
        let spawn = |name: &str, body: Box<dyn FnOnce() + Send>| {
            let started = thread::Builder::new().name(name.to_owned()).spawn(body);
            started.map_err(|error| failed(error.to_string()))
        };
        // Writing also ends when the server stops reading.
        let write = move |message: Value| stdin.write_all(format!("{message}\n").as_bytes());
        spawn("mcp-write", Box::new(move || drop(to_write.into_iter().try_for_each(write))))?;
        spawn("mcp-stderr", Box::new(move || complaints.capture_stderr(stderr)))?;
        let read = Box::new(move || output.read_messages(stdout, &limits, &child));
        stdio.reader = Some(spawn("mcp-read", read)?);
        Ok(stdio)
    }

    fn send(&self, message: Value, wait: &ReplyDeadline<'_>) -> Result<()> {
        let outbox = lock(&self.shared.outbox).clone();
        let outbox = outbox.ok_or_else(|| self.shared.end_reason())?;
        outbox.send_timeout(message, wait.remaining()).map_err(|error| match error {
            SendTimeoutError::Timeout(_) => wait.timed_out(),
            SendTimeoutError::Disconnected(_) => self.shared.end_reason(),
        })
    }

    /// Waits for the answer to a request.
    fn wait_for_reply(
        &self,
        events: &Receiver<PendingEvent>,
        wait: &ReplyDeadline<'_>,
    ) -> Result<Value> {
        loop {
            match events.recv_deadline(wait.until()) {
                Ok(PendingEvent::Reply(outcome)) => return outcome,
                Ok(PendingEvent::Question(id, params)) => {
                    let answer = wait.questions.map(|questions| questions.answer(&params));
                    let answer = answer.unwrap_or_else(elicitation::declined);
                    self.send(client_result(&id, &answer), wait)?;
                }
                Ok(PendingEvent::Progress(text)) => (wait.progress)(&text),
                Err(RecvTimeoutError::Timeout) => return Err(wait.timed_out()),
                Err(RecvTimeoutError::Disconnected) => return Err(self.shared.end_reason()),
            }
        }
    }
}

impl Channel for StdioChannel {
    fn request(&self, request: &RpcRequest, wait: &ReplyDeadline<'_>) -> Result<Value> {
        let (sender, events) = unbounded();
        match &mut *lock(&self.shared.pending) {
            PendingReplies::Open(waiting) => drop(waiting.insert(request.id, sender.clone())),
            PendingReplies::Ended(error) => return Err(error.clone()),
        }
        let cancelled = || PendingEvent::Reply(Err(ServerError::Cancelled));
        let guard = wait.cancel.on_cancel(move || drop(sender.send(cancelled())));
        let sent = self.send(request.to_json(), wait);
        let result = sent.and_then(|()| self.wait_for_reply(&events, wait));
        drop(guard);
        if let PendingReplies::Open(waiting) = &mut *lock(&self.shared.pending) {
            waiting.remove(&request.id);
        }
        let is_given_up = matches!(result, Err(ServerError::TimedOut(_) | ServerError::Cancelled));
        // The first request of a session cannot be cancelled.
        if is_given_up && request.method != "initialize" {
            self.shared.try_send(cancel_notification(request.id));
        }
        result
    }

    fn notify(&self, message: Value, _: &str, wait: &ReplyDeadline<'_>) -> Result<()> {
        self.send(message, wait)
    }

    fn end_reason(&self) -> Option<ServerError> {
        match &*lock(&self.shared.pending) {
            PendingReplies::Open(_) => None,
            PendingReplies::Ended(error) => Some(error.clone()),
        }
    }
}

impl Drop for StdioChannel {
    /// Ends the server: its input is closed, then it is terminated, then killed with all its children. In a fast
    /// shutdown, it is terminated at once.
    fn drop(&mut self) {
        lock(&self.shared.outbox).take();
        let most = self.shutdown.idle_timeout();
        let stop = || {
            self.process.stop();
            self.process.wait(self.shutdown.exit_timeout() + EXIT_TIMEOUT)
        };
        let kill = || {
            self.process.kill();
            self.process.wait(EXIT_TIMEOUT)
        };
        let ended = most.and_then(|most| self.process.wait(most)).or_else(stop).or_else(kill);
        // While the thread holds the process, the cleanup after all commands is not complete, and this program must not
        // end.
        if let Some(reader) = self.reader.take().filter(|_| ended.is_some()) {
            let _ = reader.join();
        }
    }
}

impl StdioState {
    /// Queues a message if there is space, so that a server that does not read does not block the caller.
    fn try_send(&self, message: Value) {
        if let Some(outbox) = &*lock(&self.outbox) {
            let _ = outbox.try_send(message);
        }
    }

    /// Passes a message to the waiting caller.
    fn dispatch(&self, message: ServerMessage) {
        let (id, event) = match message {
            ServerMessage::Reply { id: Some(id), outcome } => {
                (id, PendingEvent::Reply(outcome.map_err(ServerError::Refused)))
            }
            ServerMessage::Unreadable { id, why } => {
                let Some(id) = id.or_else(|| self.only_pending()) else { return };
                (id, PendingEvent::Reply(Err(ServerError::Unreadable(why))))
            }
            ServerMessage::Progress { id, text } => (id, PendingEvent::Progress(text)),
            ServerMessage::Request { id, method, params } if method == ELICIT => {
                return self.pass_question(&id, params);
            }
            ServerMessage::Request { id, method, .. } => {
                return self.try_send(client_answer(&id, &method));
            }
            ServerMessage::Reply { id: None, .. } | ServerMessage::Notification => return,
        };
        let PendingReplies::Open(waiting) = &mut *lock(&self.pending) else { return };
        let listener = match event {
            // A slow caller loses progress messages.
            PendingEvent::Progress(_) => waiting.get(&id).filter(|who| who.is_empty()).cloned(),
            PendingEvent::Reply(_) | PendingEvent::Question(..) => waiting.remove(&id),
        };
        if let Some(listener) = listener {
            let _ = listener.send(event);
        }
    }

    /// Returns the ID of the request that is waiting for an answer, if there is exactly one.
    fn only_pending(&self) -> Option<u64> {
        match &*lock(&self.pending) {
            PendingReplies::Open(waiting) if waiting.len() == 1 => waiting.keys().next().copied(),
            PendingReplies::Open(_) | PendingReplies::Ended(_) => None,
        }
    }

    /// Passes a question to the newest waiting call, since the server does not say which call it is about. The question
    /// is declined if there is no call, or too many questions are waiting.
    fn pass_question(&self, id: &Value, params: Value) {
        let asked = match &*lock(&self.pending) {
            PendingReplies::Open(waiting) => {
                let newest =
                    waiting.iter().max_by_key(|(call, _)| **call).map(|(_, caller)| caller);
                newest.filter(|caller| caller.len() < MAX_QUEUED_EVENTS).is_some_and(|caller| {
                    caller.send(PendingEvent::Question(id.clone(), params)).is_ok()
                })
            }
            PendingReplies::Ended(_) => false,
        };
        if !asked {
            self.try_send(client_answer(id, ELICIT));
        }
    }

    /// Ends all waiting calls with an error.
    fn end(&self, error: &ServerError) {
        lock(&self.outbox).take();
        let before =
            std::mem::replace(&mut *lock(&self.pending), PendingReplies::Ended(error.clone()));
        if let PendingReplies::Open(waiting) = before {
            for listener in waiting.into_values() {
                let _ = listener.send(PendingEvent::Reply(Err(error.clone())));
            }
        }
    }

    fn end_reason(&self) -> ServerError {
        match &*lock(&self.pending) {
            PendingReplies::Ended(error) => error.clone(),
            PendingReplies::Open(_) => {
                ServerError::Exited { end: None, stderr: self.stderr_tail() }
            }
        }
    }

    /// Passes messages to their callers until the output of the process ends, or violates a limit.
    fn read_messages(&self, stdout: PipeReader, limits: &ServerLimits, child: &ChildCommand) {
        let error = if let Some(violation) = self.dispatch_lines(stdout, limits) {
            ServerError::Misbehaved(violation)
        } else {
            let end = child.wait(EXIT_TIMEOUT);
            // Standard error may still be in transit, and another process may hold it open.
            self.stderr_closed.wait_for(EXIT_TIMEOUT);
            ServerError::Exited { end, stderr: self.stderr_tail() }
        };
        self.end(&error);
        child.stop();
    }

    /// Returns the violation that requires ending the server; `None` if it ended by itself.
    fn dispatch_lines(&self, stdout: PipeReader, limits: &ServerLimits) -> Option<String> {
        let ServerLimits { message_bytes, invalid_lines, .. } = *limits;
        let (mut lines, mut line) = (BufReader::with_capacity(64 << 10, stdout), Vec::new());
        let mut noise = 0;
        loop {
            match read_line(&mut lines, message_bytes, &mut line) {
                Ok(LineResult::Line) => {}
                Ok(LineResult::TooLong) => {
                    return Some(format!("sent a message of more than {message_bytes} bytes"));
                }
                Ok(LineResult::End) | Err(_) => return None,
            }
            match ServerMessage::parse(&line) {
                Some(messages) => {
                    noise = 0;
                    messages.into_iter().for_each(|message| self.dispatch(message));
                    // Free the memory of a large message.
                    line.shrink_to(64 << 10);
                }
                None if noise == invalid_lines => {
                    noise += 1;
                    return Some(format!("wrote {noise} consecutive lines that are not messages"));
                }
                None => noise += 1,
            }
        }
    }

    fn capture_stderr(&self, mut stderr: PipeReader) {
        let mut buffer = vec![0; 8 << 10];
        while let Ok(count @ 1..) = stderr.read(&mut buffer) {
            lock(&self.stderr).write(&buffer[..count]);
        }
        self.stderr_closed.cancel();
    }

    /// Returns the end of standard error, for messages.
    fn stderr_tail(&self) -> String {
        let text = lock(&self.stderr).text();
        let text = self.secrets.iter().fold(text, |text, secret| text.replace(secret, "***"));
        let skipped = text.trim_end().chars().count().saturating_sub(MAX_QUOTED_CHARS);
        let mut quoted: String = text.trim_end().chars().skip(skipped).collect();
        if let Some(why) = explain_denial(&text, &self.policy, &self.folder) {
            quoted.push_str(&format!(" [{why}]"));
        }
        quoted
    }
}

/// The result of reading a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineResult {
    /// A line, without its end.
    Line,
    /// A line over the limit; its rest follows.
    TooLong,
    /// The end of the input.
    End,
}

/// Reads the next line of at most `most` bytes into `line`. An unterminated line is dropped.
fn read_line(from: &mut impl BufRead, most: usize, line: &mut Vec<u8>) -> io::Result<LineResult> {
    line.clear();
    from.take(most as u64 + 1).read_until(b'\n', line)?;
    Ok(match line.pop_if(|byte| *byte == b'\n') {
        Some(_) => LineResult::Line,
        None if line.len() > most => LineResult::TooLong,
        None => LineResult::End,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8], longest: usize) -> Vec<(LineResult, String)> {
        let (mut text, mut line, mut read) = (text, Vec::new(), Vec::new());
        loop {
            let got = read_line(&mut text, longest, &mut line).unwrap();
            if got != LineResult::Line {
                read.push((got, String::new()));
                return read;
            }
            read.push((got, String::from_utf8(line.clone()).unwrap()));
        }
    }

    /// Fault M6.
    #[test]
    fn lines_are_complete_or_too_long() {
        let line = |text: &str| (LineResult::Line, text.to_owned());
        let end = (LineResult::End, String::new());
        assert_eq!(read(b"a\n\nbc\nd", 2), [line("a"), line(""), line("bc"), end]);
        assert_eq!(read(&vec![b'x'; 1 << 20], 1 << 10), [(LineResult::TooLong, String::new())]);
    }
}
