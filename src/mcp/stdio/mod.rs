//! A server that is a process: one message for each line of its standard input and output.
//!
//! Three threads serve it, so that none of its pipes is ever full on our account and no caller waits longer than it
//! wants: one writes, one reads and hands each answer to whoever waits for it, one keeps the end of what it complains
//! about. An answer that nobody waits for, because it comes too late, twice, or under a number that was never given, is
//! passed over.

mod lines;
mod reader;

use std::collections::HashMap;
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, SendTimeoutError, Sender, bounded, unbounded};
use serde_json::Value;

use super::connection::{Channel, Parting, Wait};
use super::error::{Refusal, ServerError};
use super::message::{Request, Said, answer, cancelled};
use super::settings::Setup;
use crate::exec::{Capture, Command, Pipes, Policy, Process, explained};
use crate::port::Cancel;
use lines::Lines;
use reader::Reader;

/// A server that is a process.
pub(super) struct Stdio {
    shared: Arc<Shared>,
    process: Arc<Process>,
    parting: Parting,
}

struct Shared {
    /// What is to be written; none when nothing will be any more.
    outbox: Mutex<Option<Sender<Value>>>,
    waiting: Mutex<Waiting>,
    complaints: Mutex<Capture>,
    /// Cancelled when there are no more of them.
    complained_all: Cancel,
    /// What must not be quoted.
    secrets: Vec<String>,
    /// How the process is confined, and where it runs.
    policy: Policy,
    folder: PathBuf,
}

/// Who waits for which answer.
enum Waiting {
    For(HashMap<u64, Sender<Heard>>),
    /// Nobody any more, and why.
    Ended(ServerError),
}

/// What somebody who waits hears.
enum Heard {
    Reply(Result<Value, Refusal>),
    Progress(String),
    Ended(ServerError),
    Cancelled,
}

/// Messages that wait for a server to read them.
const OUTBOX: usize = 64;

/// What is kept of the complaints, of their beginning and of their end.
const COMPLAINTS: usize = 32 << 10;

/// How many characters of them are quoted.
const QUOTED: usize = 600;

/// How long a process may take to end after its output has.
const LAST_BREATH: Duration = Duration::from_millis(500);

impl Stdio {
    /// Starts the process.
    pub(super) fn start(
        argv: Vec<std::ffi::OsString>,
        env: &[(String, String)],
        secrets: Vec<String>,
        setup: &Setup,
        parting: Parting,
    ) -> Result<Self, ServerError> {
        let command = Command {
            env: env.iter().map(|(name, value)| (name.into(), value.into())).collect(),
            grace: setup.goodbye,
            ..Command::new(argv, &setup.folder)
        };
        let failed = |error: String| ServerError::Start(error);
        let opened = setup.supervisor.open(&command).map_err(|error| failed(error.to_string()));
        let (process, Pipes { stdin, stdout, stderr }) = opened?;
        let (outbox, to_write) = bounded(OUTBOX);
        let shared = Arc::new(Shared {
            outbox: Mutex::new(Some(outbox)),
            waiting: Mutex::new(Waiting::For(HashMap::new())),
            complaints: Mutex::new(Capture::new(COMPLAINTS)),
            complained_all: Cancel::new(),
            secrets,
            policy: setup.supervisor.policy().clone(),
            folder: setup.folder.clone(),
        });
        let process = Arc::new(process);
        let reader = Reader {
            shared: Arc::clone(&shared),
            process: Arc::clone(&process),
            lines: Lines::new(stdout, setup.caps.message),
            noise: setup.caps.noise,
        };
        let complaints = Arc::clone(&shared);
        let stdio = Self { shared, process, parting };
        let spawn = |name: &str, body: Box<dyn FnOnce() + Send>| {
            let started = thread::Builder::new().name(name.to_owned()).spawn(body);
            started.map(drop).map_err(|error| failed(error.to_string()))
        };
        spawn("mcp-write", Box::new(move || write(stdin, &to_write)))?;
        spawn("mcp-stderr", Box::new(move || complaints.keep_complaints(stderr)))?;
        spawn("mcp-read", Box::new(move || reader.run()))?;
        Ok(stdio)
    }

    fn send(&self, message: Value, wait: &Wait<'_>) -> Result<(), ServerError> {
        let outbox = self.shared.outbox().clone();
        let outbox = outbox.ok_or_else(|| self.shared.why())?;
        outbox.send_timeout(message, wait.left()).map_err(|error| match error {
            SendTimeoutError::Timeout(_) => wait.over(),
            SendTimeoutError::Disconnected(_) => self.shared.why(),
        })
    }

    /// Waits for the answer to a request.
    fn hear(&self, heard: &Receiver<Heard>, wait: &Wait<'_>) -> Result<Value, ServerError> {
        loop {
            match heard.recv_deadline(wait.until) {
                Ok(Heard::Reply(outcome)) => return outcome.map_err(ServerError::Refused),
                Ok(Heard::Progress(text)) => (wait.progress)(&text),
                Ok(Heard::Ended(error)) => return Err(error),
                Ok(Heard::Cancelled) => return Err(ServerError::Cancelled),
                Err(RecvTimeoutError::Timeout) => return Err(wait.over()),
                Err(RecvTimeoutError::Disconnected) => return Err(self.shared.why()),
            }
        }
    }
}

impl Channel for Stdio {
    fn ask(&self, request: &Request, wait: &Wait<'_>) -> Result<Value, ServerError> {
        let (tell, heard) = unbounded();
        match &mut *self.shared.waiting() {
            Waiting::For(waiting) => drop(waiting.insert(request.id, tell.clone())),
            Waiting::Ended(error) => return Err(error.clone()),
        }
        let guard = wait.cancel.on_cancel(move || drop(tell.send(Heard::Cancelled)));
        let sent = self.send(request.to_json(), wait);
        let result = sent.and_then(|()| self.hear(&heard, wait));
        drop(guard);
        if let Waiting::For(waiting) = &mut *self.shared.waiting() {
            waiting.remove(&request.id);
        }
        let is_given_up = matches!(result, Err(ServerError::TimedOut(_) | ServerError::Cancelled));
        // The first request of a session cannot be taken back.
        if is_given_up && request.method != "initialize" {
            self.shared.post(cancelled(request.id));
        }
        result
    }

    fn tell(&self, message: Value, _: &'static str, wait: &Wait<'_>) -> Result<(), ServerError> {
        self.send(message, wait)
    }

    fn ended(&self) -> Option<ServerError> {
        match &*self.shared.waiting() {
            Waiting::For(_) => None,
            Waiting::Ended(error) => Some(error.clone()),
        }
    }
}

impl Drop for Stdio {
    /// Ends the server: first its input does, then it is asked to, then it is killed with all that it has started. In a
    /// hurry it is asked at once, and what then still runs is killed when this process ends.
    fn drop(&mut self) {
        self.shared.outbox().take();
        if self.parting.unasked().and_then(|most| self.process.wait(most)).is_none() {
            self.process.stop();
            self.process.wait(self.parting.asked() + LAST_BREATH);
        }
    }
}

impl Shared {
    fn outbox(&self) -> MutexGuard<'_, Option<Sender<Value>>> {
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends something if there is room for it. Nobody waits for a server that does not read.
    fn post(&self, message: Value) {
        if let Some(outbox) = &*self.outbox() {
            let _ = outbox.try_send(message);
        }
    }

    /// Hands on what a server said.
    fn take(&self, said: Said) {
        let (id, heard) = match said {
            Said::Reply { id: Some(id), outcome } => (id, Heard::Reply(outcome)),
            Said::Progress { id, text } => (id, Heard::Progress(text)),
            Said::Request { id, method } => return self.post(answer(&id, &method)),
            Said::Reply { id: None, .. } | Said::Notification => return,
        };
        let Waiting::For(waiting) = &mut *self.waiting() else { return };
        let listener = match heard {
            // Who has not listened yet to what came before does not miss the rest.
            Heard::Progress(_) => waiting.get(&id).filter(|who| who.is_empty()).cloned(),
            _ => waiting.remove(&id),
        };
        if let Some(listener) = listener {
            let _ = listener.send(heard);
        }
    }

    /// Tells everybody that nothing more will come.
    fn end(&self, error: &ServerError) {
        self.outbox().take();
        let before = std::mem::replace(&mut *self.waiting(), Waiting::Ended(error.clone()));
        if let Waiting::For(waiting) = before {
            for listener in waiting.into_values() {
                let _ = listener.send(Heard::Ended(error.clone()));
            }
        }
    }

    fn why(&self) -> ServerError {
        match &*self.waiting() {
            Waiting::Ended(error) => error.clone(),
            Waiting::For(_) => ServerError::Died { end: None, said: self.complained() },
        }
    }

    fn keep_complaints(&self, mut stderr: PipeReader) {
        let mut buffer = vec![0; 8 << 10];
        while let Ok(count @ 1..) = stderr.read(&mut buffer) {
            let mut complaints = self.complaints.lock().unwrap_or_else(PoisonError::into_inner);
            complaints.push(&buffer[..count]);
        }
        self.complained_all.cancel();
    }

    /// Returns the end of what the server complained about.
    fn complained(&self) -> String {
        let text = self.complaints.lock().unwrap_or_else(PoisonError::into_inner).text();
        let text = self.secrets.iter().fold(text, |text, secret| text.replace(secret, "***"));
        let skipped = text.trim_end().chars().count().saturating_sub(QUOTED);
        let mut quoted: String = text.trim_end().chars().skip(skipped).collect();
        if let Some(why) = explained(&text, &self.policy, &self.folder) {
            quoted.push_str(&format!(" [{why}]"));
        }
        quoted
    }
}

/// Writes messages, until there are no more or nobody reads them.
fn write(mut stdin: PipeWriter, messages: &Receiver<Value>) {
    for message in messages {
        let mut line = message.to_string().into_bytes();
        line.push(b'\n');
        if stdin.write_all(&line).is_err() {
            break;
        }
    }
}
