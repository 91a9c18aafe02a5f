//! What the targets share: a place for files, and a workspace with its tools.
//!
//! A target reads bytes as the product does, through its public interface, and says what has to be true whatever they
//! are. `tests/fuzz/run` builds all of them with the stable compiler and gives each some seconds; `cargo run --bin NAME --
//! corpus/NAME`, here, goes on for ever. What is found lies in the current folder, and is a case for a test of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use architect::exec::{Policy, Supervisor};
use architect::llm::models::Table;
use architect::llm::{ModelSpec, WireSettings, connect};
use architect::machine::{Entry, EntryId, Purpose};
use architect::model::{Fault, Item, Origin, Reply, Span, ToolCall};
use architect::port::{Ask, Cancel, Scope, Sleep, Toolbox, Vetted};
use architect::policy::ConfirmMode;
use architect::tools::{Delete, Registry, Settings, standard};
use architect::workspace::Root;
use serde_json::json;
use tempfile::TempDir;

/// Returns a folder in memory, where there is one.
pub fn folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    let made = if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() };
    made.expect("a folder")
}

/// Returns a scope in which nobody waits.
pub fn scope() -> Scope {
    struct NoSleep;
    impl Sleep for NoSleep {
        fn sleep(&self, _: Span, cancel: &Cancel) -> bool {
            cancel.is_cancelled()
        }
    }
    Scope::new(Cancel::new(), Arc::new(NoSleep))
}

/// A workspace with the tools on it, which ask nobody.
pub struct Bench {
    pub path: PathBuf,
    pub registry: Registry,
    _folder: TempDir,
}

impl Bench {
    pub fn new() -> Self {
        let folder = folder();
        let path = folder.path().join("w");
        fs::create_dir(&path).expect("a workspace");
        let supervisor = Supervisor::in_process(Policy::off(&path), Vec::new());
        let root = Root::open(&path).expect("a workspace");
        let settings =
            Settings { mode: ConfirmMode::Yolo, delete: Delete::Allowed, ..Settings::default() };
        let registry = Registry::new(standard(&root, &supervisor, &settings), settings);
        Self { path, registry, _folder: folder }
    }

    /// Makes a call; returns whether it succeeded, and what the model is told.
    pub fn call(&self, call: &ToolCall) -> (bool, String) {
        let result = match self.registry.vet(call, &scope()) {
            Vetted::Cleared { job, .. } => job.run(&scope()),
            Vetted::Refused(result) => result,
            Vetted::Abort => panic!("nobody was asked"),
        };
        (result.is_ok(), result.text.to_string())
    }
}

impl Default for Bench {
    fn default() -> Self {
        Self::new()
    }
}

/// Has an answer with this body read by the wire of a model, in pieces of a size that the first byte says and in one
/// piece: they have to say the same.
pub fn reply(model: &str, url: &str, data: &[u8]) {
    let Some((&size, body)) = data.split_first() else { return };
    let (pieces, whole) =
        (read(model, url, body, size.max(1).into()), read(model, url, body, usize::MAX));
    match (pieces, whole) {
        (Ok(one), Ok(other)) => {
            assert_eq!(one, other);
            let ids: Vec<_> = one.calls().map(|call| call.id.as_str()).collect();
            let all: std::collections::HashSet<_> = ids.iter().collect();
            assert!(all.len() == ids.len() && !ids.contains(&""), "{ids:?}");
        }
        (Err(one), Err(other)) => {
            assert!(!one.message.is_empty() && !other.message.is_empty());
            assert_eq!(one.kind, other.kind, "{} / {}", one.message, other.message);
        }
        (one, other) => panic!("in pieces {one:?}, in one piece {other:?}"),
    }
}

/// The recording is the public way to a wire without a socket.
fn read(model: &str, url: &str, body: &[u8], size: usize) -> Result<Reply, Fault> {
    let hex = |piece: &[u8]| piece.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let mut lines = vec![
        json!({"type": "recording", "version": 1}),
        json!({"type": "request", "n": 1, "model": model, "method": "POST", "url": url,
            "headers": {"accept": "text/event-stream"}, "same": 0, "body": "{}"}),
        json!({"type": "answer", "n": 1, "status": 200, "headers": {}}),
    ];
    let pieces = body.chunks(size.min(body.len().max(1)));
    lines.extend(pieces.map(|piece| json!({"type": "piece", "n": 1, "hex": hex(piece)})));
    lines.push(json!({"type": "end", "n": 1}));
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    thread_local!(static PLACE: (TempDir, Table) = (folder(), Table::built_in()));
    let connected = PLACE.with(|(folder, table)| {
        let path = folder.path().join("recording.jsonl");
        fs::write(&path, text).expect("a recording");
        connect(&ModelSpec::Replay(path), &WireSettings::default(), table, &|_: &str| None)
    });
    let mut model = connected.expect("a recording");
    let task = Entry { id: EntryId(0), item: Item::user(Origin::Task, "task") };
    let ask = Ask {
        purpose: Purpose::Agent,
        attempt: 1,
        system: &"".into(),
        tools: &[].into(),
        entries: &[task],
        instruction: None,
        max_output: None,
        schema: None,
    };
    model.prepare(&ask)?.run(&scope(), &mut |_| {})
}
