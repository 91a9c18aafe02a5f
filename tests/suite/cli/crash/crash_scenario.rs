//! A session that is killed, and assertions about its remains.
//!
//! A file is read, one is written, a command runs, and both kinds of change are made in one step. The model's reply depends
//! on the number of its replies alone, so that it is the same in every process.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex};

use architect::journal::{Durability, JournalEndKind, SessionId, SessionStore};
use architect::types::{ConversationItem, ToolStatus};
use serde_json::Value;

use crate::kit::chat;
use crate::kit::cli::{CliFixture, CommandResult, wait_for_exit, wait_until};
use crate::kit::server::{MAX_WAIT, ReceivedRequest, ScriptedReply, Server};

/// The number of the model's replies.
pub(super) const TURNS: usize = 5;

/// The workspace, the home, and the model.
pub(super) struct CrashScenario {
    pub(super) fixture: CliFixture,
    server: Server,
    gate: ReplyGate,
}

/// Holds the model's replies until the test releases them.
#[derive(Clone)]
struct ReplyGate(Arc<(Mutex<usize>, Condvar)>);

impl ReplyGate {
    /// Returns a gate that lets the first replies pass.
    fn new(open: usize) -> Self {
        Self(Arc::new((Mutex::new(open), Condvar::new())))
    }

    fn open(&self, until: usize) {
        *self.0.0.lock().unwrap() = until;
        self.0.1.notify_all();
    }

    fn wait(&self, turn: usize) {
        let open = self.0.0.lock().unwrap();
        let _ = self.0.1.wait_timeout_while(open, MAX_WAIT, |open| *open <= turn).unwrap();
    }
}

fn reply(turn: usize) -> ScriptedReply {
    let call =
        |id: &'static str, name: &'static str, arguments: &'static str| (id, name, arguments);
    let calls = match turn {
        0 => vec![call("c0", "read_file", r#"{"path": "note"}"#)],
        1 => vec![call("c1", "write_file", r#"{"path": "a.txt", "content": "first\n"}"#)],
        2 => vec![call("c2", "run_command", r#"{"command": "echo ran >> log"}"#)],
        3 => vec![
            call(
                "c3",
                "edit_file",
                r#"{"path": "a.txt", "old_str": "first", "new_str": "second"}"#,
            ),
            call("c4", "write_file", r#"{"path": "d/b.txt", "content": "new\n"}"#),
        ],
        _ => return chat::text("Done."),
    };
    chat::calls(&calls)
}

fn turn(request: &ReceivedRequest) -> usize {
    let body = request.json();
    let messages = body["messages"].as_array().unwrap();
    messages.iter().filter(|message| message["role"] == "assistant").count()
}

impl CrashScenario {
    /// Returns the scenario; the model sends the first replies, and then waits for [`go_on`](Self::go_on).
    pub(super) fn with_replies(open: usize) -> Self {
        let (world, gate) = (CliFixture::new(), ReplyGate::new(open));
        world.write("note", "n\n");
        fs::create_dir(world.temp()).unwrap();
        let at = gate.clone();
        let server = Server::with_handler(move |request| {
            let turn = turn(request);
            at.wait(turn);
            reply(turn)
        });
        Self { fixture: world, server, gate }
    }

    pub(super) fn new() -> Self {
        Self::with_replies(TURNS)
    }

    /// Releases the model's replies up to this one.
    pub(super) fn allow_replies(&self, until: usize) {
        self.gate.open(until);
    }

    /// Waits until this number of replies was requested from the model.
    pub(super) fn wait_for(&self, requests: usize) {
        self.server.wait_for(requests);
    }

    /// Returns the run as a command.
    pub(super) fn command(&self) -> Command {
        let args = ["--mode", "yolo", "--output-format", "stream-json"];
        let mut command = self.fixture.command_with_server(&self.server, &args);
        command.env("TMPDIR", self.fixture.temp());
        command
    }

    /// Returns the command that resumes the run.
    pub(super) fn resume_command(&self, format: &str) -> Command {
        let mut command = self.fixture.command(&["resume", "last", "--output-format", format]);
        command.env("OPENAI_API_KEY", "k").env("TMPDIR", self.fixture.temp());
        command
    }

    fn resume(&self) -> CommandResult {
        wait_for_exit(self.resume_command("json").spawn().unwrap())
    }

    fn store(&self) -> SessionStore {
        SessionStore::open(&self.fixture.home().join(".local/state/architect"), Durability::Os)
            .unwrap()
    }

    /// Returns the one session; `None` if the run ended before it was created.
    pub(super) fn session(&self) -> Option<SessionId> {
        let listed = self.store().list().unwrap();
        assert!(listed.len() <= 1);
        listed.first().map(|listed| listed.session)
    }

    fn journal(&self, session: SessionId) -> PathBuf {
        self.fixture.home().join(format!(".local/state/architect/sessions/{session}.jsonl"))
    }

    /// Returns the names of the records, and the transitions between states.
    fn records(&self, session: SessionId) -> (Vec<String>, Vec<Value>) {
        let (mut records, mut moves) = (Vec::new(), Vec::new());
        let replayed = self.store().replay(session, |past, stored, replayed| {
            assert_eq!(replayed.divergence, None, "record {}", stored.seq);
            records.push(stored.content.name());
            if replayed.is_advanced {
                let ways = past.output.transitions.iter();
                moves.extend(ways.map(|way| {
                    serde_json::json!([way.from.as_str(), way.event.as_str(), way.to.as_str()])
                }));
            }
        });
        replayed.unwrap();
        (records, moves)
    }

    /// Returns how often the command ran.
    fn command_runs(&self) -> usize {
        fs::read_to_string(self.fixture.path("log")).unwrap_or_default().lines().count()
    }

    /// Returns the files of the workspace.
    fn files(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut folders = vec![self.fixture.path("")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                match path.is_dir() {
                    true => folders.push(path),
                    false => found.push(
                        path.strip_prefix(self.fixture.path("")).unwrap().display().to_string(),
                    ),
                }
            }
        }
        found.sort();
        found
    }

    /// Asserts that all reported events of the run are stored.
    pub(super) fn assert_reported_is_stored(&self, reported: &str, case: &str) {
        let reported = reported.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let reported: Vec<Value> = reported.collect();
        let Some(session) = self.session() else {
            let is_start = |event: &Value| event["type"] == "result";
            assert!(reported.iter().all(is_start), "{case}: {reported:?}");
            return;
        };
        let (records, moves) = self.records(session);
        // The journal can't store its own failure.
        let changes = reported
            .iter()
            .filter(|event| event["type"] == "state_change" && event["event"] != "STORE_FAILED");
        let changes: Vec<Value> = changes
            .map(|event| serde_json::json!([event["from"], event["event"], event["to"]]))
            .collect();
        assert!(moves.starts_with(&changes), "{case}: {changes:?} is not how {moves:?} begins");
        let count = |key: &str, value: Value| reported.iter().filter(|e| e[key] == value).count();
        let kept = |name: &str| records.iter().filter(|record| **record == name).count();
        assert!(count("success", true.into()) <= kept("settled"), "{case}: {records:?}");
        assert!(count("outcome", "replied".into()) <= kept("replied"), "{case}: {records:?}");
    }

    /// Returns the statuses of the calls as the model received them.
    fn tool_statuses(&self, session: SessionId) -> HashMap<String, ToolStatus> {
        let (past, end) = self.store().load(session).unwrap();
        assert_eq!(end.kind, JournalEndKind::Whole);
        let exchanges = past.machine.conversation.entries().iter().filter_map(|entry| {
            if let ConversationItem::Exchange(exchange) = &entry.item {
                Some(exchange.results())
            } else {
                None
            }
        });
        let results = exchanges.flatten();
        results.map(|result| (result.call.to_string(), result.status)).collect()
    }

    /// Asserts that the files agree with the statuses of the calls: each is whole, and there are no others.
    pub(super) fn assert_files_match_results(&self, case: &str) {
        let reported =
            self.session().map(|session| self.tool_statuses(session)).unwrap_or_default();
        let effect = |call: &str| CallEffect::of(reported.get(call));
        let file = |name: &str| fs::read_to_string(self.fixture.path(name)).ok();
        let (first, second, new) = (Some("first\n"), Some("second\n"), Some("new\n"));
        let a = effect("c3")
            .possible_contents(effect("c1").possible_contents(vec![None], first), second);
        assert!(a.contains(&file("a.txt").as_deref()), "{case}: {reported:?}");
        let b = effect("c4").possible_contents(vec![None], new);
        assert!(b.contains(&file("d/b.txt").as_deref()), "{case}: {reported:?}");
        // The effect of a command is unknown if the run did not wait for it.
        let log = match effect("c2") {
            CallEffect::Complete => vec![1],
            CallEffect::None if !reported.contains_key("c2") => vec![0],
            CallEffect::None | CallEffect::Unknown => vec![0, 1],
        };
        assert!(log.contains(&self.command_runs()), "{case}: {reported:?}");
        let known = |name: &String| ["a.txt", "d/b.txt", "log", "note"].contains(&&**name);
        assert!(self.files().iter().all(known), "{case}: {:?}", self.files());
    }

    /// Asserts that every call succeeded; only the command's effect may be unknown.
    pub(super) fn assert_complete(&self, case: &str) {
        self.assert_files_match_results(case);
        let reported = self.tool_statuses(self.session().unwrap());
        for (call, status) in &reported {
            let is_unknown = call == "c2" && *status == ToolStatus::InDoubt;
            assert!(*status == ToolStatus::Ok || is_unknown, "{case}: {reported:?}");
        }
        assert_eq!(reported.len(), 5, "{case}: {reported:?}");
    }

    /// Resumes the session, and checks its remains. Returns whether there was a session.
    pub(super) fn resume_and_check(&self, case: &str) -> bool {
        assert!(self.command_runs() <= 1, "{case}: the command ran twice");
        let Some(session) = self.session() else {
            assert_eq!(self.files(), ["note"], "{case}");
            return false;
        };
        let before = fs::read(self.journal(session)).unwrap();
        let ran = self.resume();
        let end = crate::kit::cli::outcome(0, "llm_done", "success");
        assert_eq!(ran.outcome(), end, "{case}: {}", ran.err);
        assert_eq!(ran.json()["output"], "Done.", "{case}");
        let after = fs::read(self.journal(session)).unwrap();
        assert!(
            after.starts_with(&before[..complete_lines_len(&before)]),
            "{case}: a record is gone"
        );
        self.assert_files_match_results(case);
        // It has ended, so there is nothing to resume.
        let again = self.resume();
        assert_eq!((again.code, again.json()["output"].as_str()), (0, Some("Done.")), "{case}");
        assert!(fs::read(self.journal(session)).unwrap() == after, "{case}: it changed again");
        true
    }

    /// Asserts that no process or temporary file of the run is left.
    pub(super) fn assert_cleaned_up(&self, case: &str) {
        wait_until(&format!("{case}: the temporary files are gone"), || {
            fs::read_dir(self.fixture.temp()).unwrap().count() == 0
        });
    }
}

/// The effect of a call, according to its result.
#[derive(Clone, Copy)]
enum CallEffect {
    /// The call had its effect.
    Complete,
    /// The call had no effect.
    None,
    /// The effect is unknown.
    Unknown,
}

impl CallEffect {
    fn of(status: Option<&ToolStatus>) -> Self {
        match status {
            Some(ToolStatus::Ok) => Self::Complete,
            Some(ToolStatus::Interrupted | ToolStatus::InDoubt | ToolStatus::Abandoned) => {
                Self::Unknown
            }
            _ => Self::None,
        }
    }

    /// Returns the possible contents of a file after the call, from those before it.
    fn possible_contents<'a>(
        self,
        before: Vec<Option<&'a str>>,
        after: Option<&'a str>,
    ) -> Vec<Option<&'a str>> {
        match self {
            Self::Complete => vec![after],
            Self::None => before,
            Self::Unknown => [before, vec![after]].concat(),
        }
    }
}

/// Returns the length of the complete lines.
fn complete_lines_len(journal: &[u8]) -> usize {
    journal.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1)
}
