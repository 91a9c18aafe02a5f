//! A client of the protocol that checks each message of the agent.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use agent_client_protocol_schema::v1;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use wait_timeout::ChildExt;

use crate::kit::cli::CliFixture;

/// Time limit for a message.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A running agent, and the messages that it has sent.
pub(super) struct AcpClient {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    next_id: u64,
    /// The methods of the requests that are open, by id.
    open: Vec<(u64, String)>,
    /// The updates of all sessions so far.
    pub(super) updates: Vec<Value>,
}

impl AcpClient {
    /// Starts the agent with a model that plays this script, and introduces itself.
    pub(super) fn start(world: &CliFixture, script: &str, args: &[&str]) -> Self {
        let mut client = Self::spawn(&mut command(world, script, args));
        client.initialize(&json!({}));
        client
    }

    pub(super) fn spawn(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        let (sender, lines) = mpsc::channel();
        let output = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let input = child.stdin.take();
        Self { child, input, lines, next_id: 1, open: Vec::new(), updates: Vec::new() }
    }

    pub(super) fn initialize(&mut self, capabilities: &Value) -> Value {
        let params = json!({ "protocolVersion": 1, "clientCapabilities": capabilities });
        self.call("initialize", &params).unwrap()
    }

    /// Opens a session in the workspace, and returns its id.
    pub(super) fn new_session(&mut self, world: &CliFixture) -> String {
        let params = json!({ "cwd": world.path(""), "mcpServers": [] });
        let opened = self.call("session/new", &params).unwrap();
        opened["sessionId"].as_str().unwrap().to_owned()
    }

    /// Sends a prompt, and returns its stop reason. Requests of the agent are answered by this function.
    pub(super) fn prompt_with(
        &mut self,
        session: &str,
        text: &str,
        mut answer: impl FnMut(&Value) -> Value,
    ) -> Result<Value, Value> {
        let id = self.send_prompt(session, text);
        loop {
            let message = self.receive();
            if message["id"] == id && message.get("method").is_none() {
                return outcome(message);
            }
            if message.get("id").is_some() {
                let result = answer(&message);
                self.send(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }));
            }
        }
    }

    /// Sends a prompt, and returns its stop reason; the agent must not ask anything.
    pub(super) fn prompt(&mut self, session: &str, text: &str) -> String {
        let done = self.prompt_with(session, text, |asked| panic!("{asked}"));
        done.unwrap()["stopReason"].as_str().unwrap().to_owned()
    }

    pub(super) fn send_prompt(&mut self, session: &str, text: &str) -> u64 {
        let prompt = json!([{ "type": "text", "text": text }]);
        self.send_request("session/prompt", &json!({ "sessionId": session, "prompt": prompt }))
    }

    /// Sends a request, and returns its result or error.
    pub(super) fn call(&mut self, method: &str, params: &Value) -> Result<Value, Value> {
        let id = self.send_request(method, params);
        self.wait_for(id)
    }

    pub(super) fn send_request(&mut self, method: &str, params: &Value) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.open.push((id, method.to_owned()));
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        id
    }

    pub(super) fn notify(&mut self, method: &str, params: &Value) {
        self.send(&json!({ "jsonrpc": "2.0", "method": method, "params": params }));
    }

    /// Waits for the answer to a request.
    pub(super) fn wait_for(&mut self, id: u64) -> Result<Value, Value> {
        loop {
            let message = self.receive();
            if message["id"] == id && message.get("method").is_none() {
                return outcome(message);
            }
            assert!(message.get("id").is_none(), "unexpected: {message}");
        }
    }

    /// Waits for a request of the agent, or an update of this kind.
    pub(super) fn wait_until(&mut self, is_it: impl Fn(&Value) -> bool) -> Value {
        loop {
            let message = self.receive();
            if is_it(&message) {
                return message;
            }
        }
    }

    pub(super) fn send(&mut self, message: &Value) {
        self.send_line(&message.to_string());
    }

    pub(super) fn send_line(&mut self, line: &str) {
        let input = self.input.as_mut().unwrap();
        input.write_all(format!("{line}\n").as_bytes()).unwrap();
        input.flush().unwrap();
    }

    /// Receives the next message, and checks it.
    pub(super) fn receive(&mut self) -> Value {
        let line = self.lines.recv_timeout(TIMEOUT).expect("the agent says nothing");
        let message: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}"));
        assert_eq!(message["jsonrpc"], "2.0");
        let method = if let Some(method) = message["method"].as_str() {
            method.to_owned()
        } else {
            let at = self.open.iter().position(|(id, _)| message["id"] == *id);
            at.map(|at| self.open.remove(at).1).unwrap_or_default()
        };
        check(&method, &message);
        if method == "session/update" {
            self.updates.push(message["params"]["update"].clone());
        }
        message
    }

    /// Returns the texts of this kind of update, joined.
    pub(super) fn text(&self, kind: &str) -> String {
        let chunks = self.updates.iter().filter(|update| update["sessionUpdate"] == kind);
        chunks.filter_map(|update| update["content"]["text"].as_str()).collect()
    }

    /// Returns the updates of a tool call, in their order.
    pub(super) fn call_updates(&self, call: &str) -> Vec<&Value> {
        self.updates.iter().filter(|update| update["toolCallId"] == call).collect()
    }

    /// Closes the input, and returns the exit code.
    pub(super) fn close(mut self) -> i32 {
        drop(self.input.take());
        self.exit_code()
    }

    pub(super) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn exit_code(&mut self) -> i32 {
        let status = self.child.wait_timeout(TIMEOUT).unwrap();
        status.expect("the agent does not end").code().unwrap_or(-1)
    }
}

impl Drop for AcpClient {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the command of the agent, with a model that plays this script.
pub(super) fn command(world: &CliFixture, script: &str, args: &[&str]) -> Command {
    let model = world.script_model(script);
    let mut command = world.command(&[&["acp", "--model", &model], args].concat());
    command.stderr(Stdio::inherit());
    command
}

fn outcome(mut message: Value) -> Result<Value, Value> {
    match message.get("error") {
        Some(error) => Err(error.clone()),
        None => Ok(message["result"].take()),
    }
}

/// Checks a message by the types of the protocol, and by its published JSON Schema if that is there.
fn check(method: &str, message: &Value) {
    let (part, value) = match (message.get("params"), message.get("result"), message.get("error")) {
        (Some(params), None, None) => ("params", params),
        (None, Some(result), None) => ("result", result),
        (None, None, Some(error)) => {
            has_all_fields::<v1::Error>(error);
            return check_schema("Error", error);
        }
        _ => panic!("{message}"),
    };
    let name = match (method, part) {
        ("session/update", "params") => has_all_fields::<v1::SessionNotification>(value),
        ("session/request_permission", "params") => {
            has_all_fields::<v1::RequestPermissionRequest>(value)
        }
        ("elicitation/create", "params") => has_all_fields::<v1::CreateElicitationRequest>(value),
        ("fs/read_text_file", "params") => has_all_fields::<v1::ReadTextFileRequest>(value),
        ("fs/write_text_file", "params") => has_all_fields::<v1::WriteTextFileRequest>(value),
        ("initialize", "result") => has_all_fields::<v1::InitializeResponse>(value),
        ("authenticate", "result") => has_all_fields::<v1::AuthenticateResponse>(value),
        ("session/new", "result") => has_all_fields::<v1::NewSessionResponse>(value),
        ("session/load", "result") => has_all_fields::<v1::LoadSessionResponse>(value),
        ("session/resume", "result") => has_all_fields::<v1::ResumeSessionResponse>(value),
        ("session/list", "result") => has_all_fields::<v1::ListSessionsResponse>(value),
        ("session/close", "result") => has_all_fields::<v1::CloseSessionResponse>(value),
        ("session/set_mode", "result") => has_all_fields::<v1::SetSessionModeResponse>(value),
        ("session/prompt", "result") => has_all_fields::<v1::PromptResponse>(value),
        _ => panic!("{method} with {part}: {message}"),
    };
    check_schema(name, value);
}

/// Checks that a type of the protocol reads a value without losing any field. Returns the type's name.
fn has_all_fields<T: DeserializeOwned + Serialize>(value: &Value) -> &'static str {
    let read: T = serde_json::from_value(value.clone()).unwrap_or_else(|error| {
        panic!("{error}: {value}");
    });
    assert_eq!(serde_json::to_value(read).unwrap(), *value);
    let name = std::any::type_name::<T>();
    name.rsplit("::").next().unwrap()
}

/// Returns the folder of the published client library, if it is there.
pub(super) fn published() -> Option<PathBuf> {
    let folder = std::env::var_os("ACP_PUBLISHED")?;
    let path = Path::new(&folder).join("node_modules/@agentclientprotocol/sdk");
    path.exists().then(|| path.canonicalize().unwrap())
}

fn check_schema(name: &str, value: &Value) {
    static SCHEMA: OnceLock<Option<Value>> = OnceLock::new();
    let schema = SCHEMA.get_or_init(|| {
        let text = std::fs::read(published()?.join("schema/v1/schema.json")).unwrap();
        Some(serde_json::from_slice(&text).unwrap())
    });
    let Some(schema) = schema else { return };
    let schema = json!({ "$ref": format!("#/$defs/{name}"), "$defs": schema["$defs"] });
    let validator = jsonschema::validator_for(&schema).unwrap();
    if let Err(error) = validator.validate(value) {
        panic!("{name}: {error}\n{value}");
    }
}
