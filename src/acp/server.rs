//! The server: reads messages, and answers requests.

use std::cell::RefCell;
use std::collections::HashMap;
use std::convert::Infallible;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use agent_client_protocol_schema::ProtocolVersion;
use agent_client_protocol_schema::v1::{
    AGENT_METHOD_NAMES, AgentCapabilities, AuthMethod, AuthMethodAgent, AuthenticateRequest,
    AuthenticateResponse, AvailableCommand, AvailableCommandsUpdate, CancelNotification,
    ClientCapabilities, CloseSessionRequest, CloseSessionResponse, Error, Implementation,
    InitializeRequest, InitializeResponse, ListSessionsRequest, ListSessionsResponse,
    LoadSessionRequest, LoadSessionResponse, McpCapabilities, McpServer, NewSessionRequest,
    NewSessionResponse, PromptCapabilities, PromptRequest, RequestId, ResumeSessionRequest,
    ResumeSessionResponse, SessionCapabilities, SessionCloseCapabilities,
    SessionId as ClientSessionId, SessionInfo, SessionListCapabilities, SessionModeState,
    SessionResumeCapabilities, SessionUpdate, SetSessionModeRequest, SetSessionModeResponse,
};
use crossbeam_channel::{Sender, bounded, unbounded};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::client_connection::ClientConnection;
use super::client_message::ClientMessage;
use super::client_servers::parse_servers;
use super::history::read_session;
use super::modes::{mode_state, parse_mode};
use super::prompt::{PromptClient, run_prompt};
use super::prompt_commands::available_commands;
use super::prompt_content::prompt_content;
use super::session::{OpenSession, PromptGuard};
use super::session_host::{ConfiguredSession, SessionHost, app_error, with_message};
use crate::app::{RunInterrupts, RunSetup};
use crate::journal::{
    JournalError, ReadRecord, SessionId, SessionIndex, SessionStore, StoredContent,
};
use crate::port::{CancellationToken, lock};
use crate::types::Signal;
use crate::workspace::WorkspaceRoot;

/// Length limit of a line of input, in bytes.
const MAX_LINE: u64 = 64 << 20;

/// Time limit for prompts to end after the client is gone.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(20);

/// Time limit for the client to read the last messages.
const FLUSH_TIMEOUT: Duration = Duration::from_millis(500);

/// Id of the authentication method that uses a key in an environment variable.
const KEY_VARIABLE: &str = "key-variable";

/// Number of sessions in one page of a list.
const PAGE: usize = 100;

/// The reason why the server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServeEnd {
    /// The client closed this program's standard input, or closed the standard output after it had received all
    /// answers.
    InputClosed,
    /// The client closed this program's standard output before it had received all answers.
    OutputClosed,
    /// The program received a signal.
    Interrupted(Signal),
}

/// An input of the server.
enum ServerInput {
    Line(Vec<u8>),
    /// The beginning of a line longer than [`MAX_LINE`].
    LongLine(Vec<u8>),
    End(ServeEnd),
}

/// Serves a client until it is gone, or `interrupts` is interrupted. Prompts that run at that time are interrupted; the
/// function waits up to `SHUTDOWN_TIMEOUT` for them to end.
///
/// # Errors
///
/// Fails if the reader or writer thread can't be started.
pub fn serve(
    host: Arc<dyn SessionHost>,
    input: impl Read + Send + 'static,
    output: impl Write + AsFd + Send + 'static,
    interrupts: &RunInterrupts,
) -> io::Result<ServeEnd> {
    let (inputs, receiver) = unbounded();
    let closed = CancellationToken::new();
    watch_reader(output.as_fd().try_clone_to_owned()?, closed.clone())?;
    let connection = ClientConnection::start(output, closed.clone())?;
    let of_close = inputs.clone();
    let _on_close =
        closed.on_cancel(move || drop(of_close.send(ServerInput::End(ServeEnd::OutputClosed))));
    let of_signals = inputs.clone();
    let _on_signal = interrupts.on_interrupt(move |signal| {
        let _ = of_signals.send(ServerInput::End(ServeEnd::Interrupted(signal)));
    });
    thread::Builder::new().name("acp-read".to_owned()).spawn(move || read_lines(input, &inputs))?;

    let (worker, workers) = bounded::<Infallible>(0);
    let mut server = Server {
        host,
        connection: connection.clone(),
        sessions: Arc::default(),
        client: None,
        worker,
    };
    let mut end = ServeEnd::InputClosed;
    for input in receiver {
        match input {
            ServerInput::Line(line) => server.handle(ClientMessage::parse_line(&line)),
            ServerInput::LongLine(beginning) => {
                server.handle(ClientMessage::of_long_line(&beginning, MAX_LINE));
            }
            ServerInput::End(reason) => {
                end = reason;
                break;
            }
        }
    }
    let signal = match end {
        ServeEnd::Interrupted(signal) => signal,
        ServeEnd::InputClosed | ServeEnd::OutputClosed => Signal::Hangup,
    };
    let mut is_busy = end == ServeEnd::OutputClosed && !connection.flush(FLUSH_TIMEOUT);
    for session in lock(&server.sessions).values() {
        is_busy |= session.close(signal);
    }
    drop(server);
    if end == ServeEnd::OutputClosed && !is_busy {
        // A client that has all answers may close both pipes, in any order.
        end = ServeEnd::InputClosed;
    }
    // The workers' senders are all dropped once this is disconnected.
    if workers.recv_timeout(SHUTDOWN_TIMEOUT) == Err(crossbeam_channel::RecvTimeoutError::Timeout) {
        log::warn!("a prompt has not ended in time");
    }
    // No thread sends an answer from here on.
    connection.flush(FLUSH_TIMEOUT);
    closed.cancel();
    Ok(end)
}

/// Cancels a token as soon as an output has no reader. Writing would notice that only with the next message.
fn watch_reader(output: OwnedFd, closed: CancellationToken) -> io::Result<()> {
    let watch = move || {
        // With no requested events, `poll` returns when the reader is gone. A regular file has no reader.
        let mut waited = [PollFd::new(&output, PollFlags::empty())];
        while poll(&mut waited, None) == Err(Errno::INTR) {}
        let gone = PollFlags::ERR | PollFlags::HUP;
        if waited[0].revents().intersects(gone) {
            closed.cancel();
        }
    };
    thread::Builder::new().name("acp-watch".to_owned()).spawn(watch).map(drop)
}

/// Reads lines up to the end of the input.
fn read_lines(input: impl Read, to: &Sender<ServerInput>) {
    let mut input = BufReader::new(input);
    loop {
        let mut line = Vec::new();
        let input = match (&mut input).take(MAX_LINE + 1).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => ServerInput::End(ServeEnd::InputClosed),
            Ok(_) if line.len() as u64 > MAX_LINE && line.last() != Some(&b'\n') => {
                match skip_line(&mut input) {
                    Ok(()) => ServerInput::LongLine(line),
                    Err(_) => ServerInput::End(ServeEnd::InputClosed),
                }
            }
            Ok(_) if line.iter().all(u8::is_ascii_whitespace) => continue,
            Ok(_) => ServerInput::Line(line),
        };
        let is_end = matches!(input, ServerInput::End(_));
        if to.send(input).is_err() || is_end {
            return;
        }
    }
}

/// Skips the rest of a line.
fn skip_line(input: &mut impl BufRead) -> io::Result<()> {
    loop {
        let buffer = input.fill_buf()?;
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let length = end.map_or(buffer.len(), |end| end + 1);
        input.consume(length);
        if end.is_some() || length == 0 {
            return Ok(());
        }
    }
}

type OpenSessions = Arc<Mutex<HashMap<ClientSessionId, Arc<OpenSession>>>>;

/// Dispatches the messages of one client.
struct Server {
    host: Arc<dyn SessionHost>,
    connection: ClientConnection,
    sessions: OpenSessions,
    /// The client's capabilities; `None` before initialization.
    client: Option<ClientCapabilities>,
    /// Cloned into each thread that works on a request. The other end is disconnected when all of them have ended.
    worker: Sender<Infallible>,
}

impl Server {
    fn handle(&mut self, message: ClientMessage) {
        match message {
            ClientMessage::Request { id, method, params } => self.on_request(id, &method, params),
            ClientMessage::Notification { method, params } => {
                self.on_notification(&method, params);
            }
            ClientMessage::Response { id, result } => self.connection.on_response(&id, result),
            ClientMessage::Invalid { id, error } => self.connection.respond(&id, Err(error)),
        }
    }

    fn on_request(&mut self, id: RequestId, method: &str, params: Value) {
        let names = AGENT_METHOD_NAMES;
        if method == names.initialize {
            let result = parse(params).and_then(|request| to_value(&self.initialize(request)));
            return self.connection.respond(&id, result);
        }
        if self.client.is_none() {
            let why = "the first request has to be `initialize`";
            let error = with_message(Error::invalid_request(), why);
            return self.connection.respond(&id, Err(error));
        }
        match method {
            _ if method == names.authenticate => {
                self.answer(id, params, RequestHandler::authenticate);
            }
            _ if method == names.session_new => {
                self.answer(id, params, RequestHandler::new_session);
            }
            _ if method == names.session_load => {
                self.answer(id, params, RequestHandler::load_session);
            }
            _ if method == names.session_resume => {
                self.answer(id, params, RequestHandler::resume_session);
            }
            _ if method == names.session_list => {
                self.answer(id, params, RequestHandler::list_sessions);
            }
            _ if method == names.session_set_mode => {
                // Not on a thread, so that a prompt right after this request has the new mode.
                let result = parse(params).and_then(|request| self.handler().set_mode(request));
                self.connection.respond(&id, result.and_then(|result| to_value(&result)));
            }
            _ if method == names.session_close => {
                let result = parse(params).and_then(|request| self.close(&request));
                self.connection.respond(&id, result.and_then(|result| to_value(&result)));
            }
            _ if method == names.session_prompt => self.prompt(id, params),
            _ => {
                let error = with_message(Error::method_not_found(), format!("no method {method}"));
                self.connection.respond(&id, Err(error));
            }
        }
    }

    fn on_notification(&self, method: &str, params: Value) {
        if method != AGENT_METHOD_NAMES.session_cancel {
            return log::debug!("an unknown notification is ignored: {method}");
        }
        match parse::<CancelNotification>(params) {
            Ok(cancel) => match lock(&self.sessions).get(&cancel.session_id) {
                Some(session) => {
                    session.interrupt(Signal::Interrupt);
                }
                None => log::warn!("an unknown session can't be cancelled: {}", cancel.session_id),
            },
            Err(error) => log::warn!("invalid {method}: {}", error.message),
        }
    }

    fn initialize(&mut self, request: InitializeRequest) -> InitializeResponse {
        self.client = Some(request.client_capabilities);
        let sessions = SessionCapabilities::new()
            .list(SessionListCapabilities::new())
            .resume(SessionResumeCapabilities::new())
            .close(SessionCloseCapabilities::new());
        let capabilities = AgentCapabilities::new()
            .load_session(true)
            .prompt_capabilities(PromptCapabilities::new().embedded_context(true).image(true))
            .mcp_capabilities(McpCapabilities::new().http(true))
            .session_capabilities(sessions);
        let by_key = AuthMethodAgent::new(KEY_VARIABLE, "Key in an environment variable").description(
            "Set the variable with the key of the model's provider, such as ANTHROPIC_API_KEY, in the \
             environment of the agent (the editor's settings have a place for it), and start the agent again."
                .to_owned(),
        );
        InitializeResponse::new(ProtocolVersion::V1)
            .agent_capabilities(capabilities)
            .auth_methods(vec![AuthMethod::Agent(by_key)])
            .agent_info(
                Implementation::new("architect", env!("CARGO_PKG_VERSION"))
                    .title("architect".to_owned()),
            )
    }

    /// Answers a request on its own thread, so that requests for other sessions can be cancelled meanwhile.
    fn answer<P: DeserializeOwned + Send + 'static, R: Serialize + 'static>(
        &self,
        id: RequestId,
        params: Value,
        action: fn(&RequestHandler, P) -> Result<R, Error>,
    ) {
        match parse::<P>(params) {
            Err(error) => self.connection.respond(&id, Err(error)),
            Ok(request) => self.spawn(id, move |work| action(work, request)),
        }
    }

    fn prompt(&self, id: RequestId, params: Value) {
        let begun = parse::<PromptRequest>(params).and_then(|request| {
            let session = self.handler().find(&request.session_id)?;
            let content = prompt_content(&request.prompt)?;
            let interrupts = session.begin_prompt()?;
            Ok((session, content, interrupts))
        });
        let (session, content, interrupts) = match begun {
            Err(error) => return self.connection.respond(&id, Err(error)),
            Ok(begun) => begun,
        };
        let guard = PromptGuard(Arc::clone(&session));
        self.spawn(id, move |work| {
            let done = run_prompt(&*work.host, &work.client, &session, &interrupts, content);
            // Dropped before the answer, since the client may then send the next prompt at once.
            drop(guard);
            done
        });
    }

    /// Runs an action on a thread and sends its result as the answer, even if the action panics.
    fn spawn<R: Serialize>(
        &self,
        id: RequestId,
        action: impl FnOnce(&RequestHandler) -> Result<R, Error> + Send + 'static,
    ) {
        let (work, worker, failed_id) = (self.handler(), self.worker.clone(), id.clone());
        let spawned = thread::Builder::new().name("acp-request".to_owned()).spawn(move || {
            let _worker = worker;
            let done = catch_unwind(AssertUnwindSafe(|| action(&work)));
            let done = done.unwrap_or_else(|_| {
                Err(with_message(Error::internal_error(), "an error in this program; see its log"))
            });
            work.client.connection.respond(&id, done.and_then(|result| to_value(&result)));
            work.after_answer();
        });
        if let Err(error) = spawned {
            let error = with_message(Error::internal_error(), error.to_string());
            self.connection.respond(&failed_id, Err(error));
        }
    }

    fn close(&self, request: &CloseSessionRequest) -> Result<CloseSessionResponse, Error> {
        let session = lock(&self.sessions).remove(&request.session_id);
        let session =
            session.ok_or_else(|| Error::session_not_found(request.session_id.clone()))?;
        session.close(Signal::Interrupt);
        Ok(CloseSessionResponse::new())
    }

    fn handler(&self) -> RequestHandler {
        let (host, sessions) = (Arc::clone(&self.host), Arc::clone(&self.sessions));
        let files = self.client.as_ref().map(|client| client.fs.clone()).unwrap_or_default();
        let forms =
            self.client.as_ref().and_then(|client| client.elicitation.as_ref()?.form.as_ref());
        let (connection, has_forms) = (self.connection.clone(), forms.is_some());
        let client = PromptClient { connection, files, has_forms };
        RequestHandler { host, client, sessions, opened: RefCell::default() }
    }
}

/// Handles one request.
struct RequestHandler {
    host: Arc<dyn SessionHost>,
    client: PromptClient,
    sessions: OpenSessions,
    /// A session opened by this request and its commands, sent after the answer.
    opened: RefCell<Option<(ClientSessionId, Vec<AvailableCommand>)>>,
}

impl RequestHandler {
    fn find(&self, id: &ClientSessionId) -> Result<Arc<OpenSession>, Error> {
        let session = lock(&self.sessions).get(id).cloned();
        session.ok_or_else(|| {
            let why = format!("no session {id} is open; `session/load` opens a stored one");
            with_text(Error::session_not_found(id.clone()), why)
        })
    }

    /// Checks that the configured model can be reached.
    fn authenticate(&self, request: AuthenticateRequest) -> Result<AuthenticateResponse, Error> {
        let AuthenticateRequest { method_id, .. } = request;
        if &*method_id.0 != KEY_VARIABLE {
            let why = format!("no method '{}' of authentication", method_id.0);
            return Err(with_message(Error::invalid_params(), why));
        }
        let folder = std::env::current_dir().unwrap_or_default();
        let probe = OpenSession::new(SessionId::generate(), folder, Vec::new(), None);
        let ConfiguredSession { setup, .. } = probe.configure(&*self.host)?;
        check_model(&setup)?;
        Ok(AuthenticateResponse::new())
    }

    fn new_session(&self, request: NewSessionRequest) -> Result<NewSessionResponse, Error> {
        let session = open_session(SessionId::generate(), &request.cwd, request.mcp_servers, None)?;
        let modes = self.check(&session)?;
        let id = session.client_id.clone();
        lock(&self.sessions).insert(id.clone(), Arc::new(session));
        Ok(NewSessionResponse::new(id).modes(modes))
    }

    fn load_session(&self, request: LoadSessionRequest) -> Result<LoadSessionResponse, Error> {
        let LoadSessionRequest { session_id, cwd, mcp_servers, .. } = request;
        let modes = self.reopen(&session_id, &cwd, mcp_servers, true)?;
        Ok(LoadSessionResponse::new().modes(modes))
    }

    fn resume_session(
        &self,
        request: ResumeSessionRequest,
    ) -> Result<ResumeSessionResponse, Error> {
        let ResumeSessionRequest { session_id, cwd, mcp_servers, .. } = request;
        let modes = self.reopen(&session_id, &cwd, mcp_servers, false)?;
        Ok(ResumeSessionResponse::new().modes(modes))
    }

    /// Opens a stored session. With `shows_history`, sends its history as updates.
    fn reopen(
        &self,
        id: &ClientSessionId,
        folder: &Path,
        servers: Vec<McpServer>,
        shows_history: bool,
    ) -> Result<SessionModeState, Error> {
        let unknown = || {
            with_text(Error::session_not_found(id.clone()), format!("no session {id} is stored"))
        };
        let session: SessionId = id.0.parse().map_err(|_| unknown())?;
        let folder = check_folder(folder)?;
        let store = self.host.store(&folder)?;
        let root = WorkspaceRoot::open(&folder)
            .map_err(|error| with_message(Error::invalid_params(), error.to_string()))?;
        let is_new = lock(&self.sessions)
            .get(id)
            .is_some_and(|open| !open.is_stored.load(Ordering::Relaxed));
        let stored = match read_session(&store, session, &root) {
            Ok(stored) => Some(stored),
            // A session is not stored before its first prompt.
            Err(JournalError::UnknownSession(_)) if is_new => None,
            Err(JournalError::UnknownSession(_)) => return Err(unknown()),
            Err(error) => return Err(app_error(&error.into())),
        };
        let options = stored.as_ref().map(|it| self.host.stored_options(&folder, &it.history));
        let opened = open_session(session, &folder, servers, options.transpose()?)?;
        let modes = self.check(&opened)?;
        if shows_history {
            for update in stored.into_iter().flat_map(|it| it.updates) {
                // The client is gone, and with it the request.
                self.client
                    .connection
                    .update(id, update)
                    .map_err(|_| Error::request_cancelled())?;
            }
        }
        let mut sessions = lock(&self.sessions);
        if let Some(open) = sessions.insert(id.clone(), Arc::new(opened)) {
            open.close(Signal::Interrupt);
        }
        Ok(modes)
    }

    /// Checks that a session can run, and returns its modes.
    fn check(&self, session: &OpenSession) -> Result<SessionModeState, Error> {
        let ConfiguredSession { setup, .. } = session.configure(&*self.host)?;
        check_model(&setup)?;
        let default_agent = self.host.default_agent();
        let commands = available_commands(&setup.config, default_agent);
        *self.opened.borrow_mut() = Some((session.client_id.clone(), commands));
        Ok(mode_state(&setup.config, default_agent, &setup.agent))
    }

    fn list_sessions(&self, request: ListSessionsRequest) -> Result<ListSessionsResponse, Error> {
        let here = std::env::current_dir().unwrap_or_default();
        let store = self.host.store(request.cwd.as_deref().unwrap_or(&here))?;
        let folder = request.cwd.map(|folder| folder.canonicalize().unwrap_or(folder));
        let first = match request.cursor.as_deref().map(str::parse::<usize>) {
            None => 0,
            Some(Ok(first)) => first,
            Some(Err(_)) => return Err(with_message(Error::invalid_params(), "unknown cursor")),
        };
        let failed = |error: JournalError| app_error(&error.into());
        let rows = SessionIndex::open(&store).and_then(|mut index| index.list()).map_err(failed)?;
        let mut found = rows.into_iter().filter_map(|row| {
            let workspace = PathBuf::from(row.workspace?);
            let is_here = folder.as_ref().is_none_or(|folder| *folder == workspace);
            let is_own = row.parent.is_none() || !is_dispatched(&store, row.session_id);
            (is_here && is_own).then(|| {
                SessionInfo::new(row.session_id.to_string(), workspace)
                    .title(row.prompt)
                    .updated_at(row.modified)
            })
        });
        let page: Vec<SessionInfo> = found.by_ref().skip(first).take(PAGE).collect();
        let next = found.next().map(|_| (first + PAGE).to_string());
        Ok(ListSessionsResponse::new(page).next_cursor(next))
    }

    fn set_mode(&self, request: SetSessionModeRequest) -> Result<SetSessionModeResponse, Error> {
        let SetSessionModeRequest { session_id, mode_id, .. } = request;
        let session = self.find(&session_id)?;
        let ConfiguredSession { setup, .. } = session.configure(&*self.host)?;
        let id = &*mode_id.0;
        let mode = parse_mode(&setup.config, self.host.default_agent(), id)
            .ok_or_else(|| with_message(Error::invalid_params(), format!("no mode '{id}'")))?;
        session.configure_with(&*self.host, &mode)?;
        session.set_mode(mode);
        Ok(SetSessionModeResponse::new())
    }

    /// Sends the commands of an opened session. The client knows the session only after the answer.
    fn after_answer(&self) {
        if let Some((session, commands)) = self.opened.take() {
            let update =
                SessionUpdate::AvailableCommandsUpdate(AvailableCommandsUpdate::new(commands));
            // A client that is gone needs no commands.
            let _ = self.client.connection.update(&session, update);
        }
    }
}

/// Creates a session that works in a folder, with the client's servers.
fn open_session(
    id: SessionId,
    folder: &Path,
    servers: Vec<McpServer>,
    options: Option<Value>,
) -> Result<OpenSession, Error> {
    let folder = check_folder(folder)?;
    Ok(OpenSession::new(id, folder, parse_servers(servers)?, options))
}

/// Returns an error with its data and another message.
fn with_text(mut error: Error, text: String) -> Error {
    error.message = text;
    error
}

/// Returns whether a session belongs to a sub-agent.
fn is_dispatched(store: &SessionStore, session: SessionId) -> bool {
    let first = store.reader(session).and_then(|mut reader| reader.read());
    matches!(
        first,
        Ok(ReadRecord::Record(record))
            if matches!(&record.content, StoredContent::Header(header) if header.dispatched_by.is_some())
    )
}

/// Checks the folder of a session.
fn check_folder(folder: &Path) -> Result<PathBuf, Error> {
    let refused = |why: &str| {
        Err(with_message(Error::invalid_params(), format!("the folder {} {why}", folder.display())))
    };
    if !folder.is_absolute() {
        return refused("is not an absolute path");
    }
    match folder.metadata() {
        Ok(data) if data.is_dir() => Ok(folder.to_owned()),
        Ok(_) => refused("is not a folder"),
        Err(error) => refused(&format!("can't be used: {error}")),
    }
}

fn check_model(setup: &RunSetup) -> Result<(), Error> {
    setup.model.check(&setup.config, &setup.env).map_err(|error| app_error(&error))
}

fn parse<P: DeserializeOwned>(params: Value) -> Result<P, Error> {
    serde_json::from_value(params)
        .map_err(|error| with_message(Error::invalid_params(), error.to_string()))
}

fn to_value(result: &impl Serialize) -> Result<Value, Error> {
    serde_json::to_value(result)
        .map_err(|error| with_message(Error::internal_error(), error.to_string()))
}
