//! Shared code of the targets: a temporary folder, and a workspace with its tools.
//!
//! A target reads bytes as the product does, through its public interface, and asserts what holds for any of them.
//! `tests/fuzz/run` builds all targets with the stable compiler and gives each some seconds; `cargo run --bin NAME --
//! corpus/NAME`, here, runs for ever. A crashing input is written to the current folder, and becomes a test case of its
//! own.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use architect::exec::{SandboxPolicy, Supervisor};
use architect::llm::model_table::ModelTable;
use architect::llm::{ModelConnectionSettings, ModelSpec, connect};
use architect::machine::{CallPurpose, ConversationEntry, EntryId};
use architect::policy::ConfirmMode;
use architect::port::{
    AuthorizationOutcome, CancellationToken, EffectContext, ModelRequest, Sleep, Toolbox,
};
use architect::tools::{FileDeletion, ToolRegistry, ToolSettings, standard_tools};
use architect::types::{ConversationItem, Fault, MessageOrigin, Reply, TimeSpan, ToolCall};
use architect::workspace::WorkspaceRoot;
use serde_json::json;
use tempfile::TempDir;

/// Returns a temporary folder, in memory if possible.
pub fn folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    let made = if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() };
    made.expect("a folder")
}

/// Returns a context in which sleeping takes no time.
pub fn scope() -> EffectContext {
    struct NoSleep;
    impl Sleep for NoSleep {
        fn sleep(&self, _: TimeSpan, cancel: &CancellationToken) -> bool {
            cancel.is_cancelled()
        }
    }
    EffectContext::new(CancellationToken::new(), Arc::new(NoSleep))
}

/// A workspace with its tools, which need no confirmation.
pub struct ToolFixture {
    pub path: PathBuf,
    pub registry: ToolRegistry,
    _folder: TempDir,
}

impl ToolFixture {
    pub fn new() -> Self {
        let folder = folder();
        let path = folder.path().join("w");
        fs::create_dir(&path).expect("a workspace");
        let supervisor = Supervisor::in_process(SandboxPolicy::off(&path), Vec::new());
        let root = WorkspaceRoot::open(&path).expect("a workspace");
        let settings = ToolSettings {
            mode: ConfirmMode::Yolo,
            delete: FileDeletion::Allowed,
            ..ToolSettings::default()
        };
        let registry = ToolRegistry::new(standard_tools(&root, &supervisor, &settings), settings);
        Self { path, registry, _folder: folder }
    }

    /// Makes a call; returns whether it succeeded, and the text of its result.
    pub fn call(&self, call: &ToolCall) -> (bool, String) {
        let result = match self.registry.prepare(call).authorize(&scope()) {
            AuthorizationOutcome::Approved { call, .. } => call(&scope()),
            AuthorizationOutcome::Rejected(result) => result,
            AuthorizationOutcome::Abort | AuthorizationOutcome::Edited { .. } => {
                panic!("no user is asked")
            }
        };
        (result.is_ok(), result.text.to_string())
    }
}

impl Default for ToolFixture {
    fn default() -> Self {
        Self::new()
    }
}

/// Reads a response with this body as a model's wire does: in pieces, whose size is the first byte, and in one piece.
/// The results are the same.
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

/// Reads a response by way of a recording, which needs no socket.
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
    thread_local!(static PLACE: (TempDir, ModelTable) = (folder(), ModelTable::built_in()));
    let connected = PLACE.with(|(folder, table)| {
        let path = folder.path().join("recording.jsonl");
        fs::write(&path, text).expect("a recording");
        connect(&ModelSpec::Replay(path), &ModelConnectionSettings::default(), table, &|_: &str| {
            None
        })
    });
    let mut model = connected.expect("a recording");
    let task = ConversationEntry {
        id: EntryId(0),
        item: ConversationItem::user(MessageOrigin::Task, "task"),
    };
    let request = ModelRequest {
        model: 0,
        purpose: CallPurpose::Agent,
        attempt: 1,
        system: &"".into(),
        tools: &[].into(),
        entries: &[task],
        input_bound: architect::types::Tokens::ZERO,
        instruction: None,
        max_output: None,
        schema: None,
    };
    model.prepare(&request)?.run(&scope(), &mut |_| {})
}
