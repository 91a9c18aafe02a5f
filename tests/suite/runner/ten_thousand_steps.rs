//! A run of ten thousand steps: its requests stay small, and its steps stay quick.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use architect::machine::{CallPurpose, Machine};
use architect::runner::{InlineExecutor, Ports};
use architect::types::{
    ContextLimits, ConversationItem, MessageOrigin, RunLimits, RunRules, Tokens, ToolResult,
};

use crate::kit::model::{call, model, reply, text, text_bytes};
use crate::kit::run::{self, done};
use crate::kit::tools::{FakeTools, ok};

const STEPS: u32 = 10_000;

/// Measurements of a request.
struct RequestStats {
    purpose: CallPurpose,
    at: Instant,
    entries: usize,
    bytes: usize,
    instruction: Option<String>,
}

/// Runs with a model that reads one of five hundred files in each reply, and writes a summary on request.
fn run() -> (Machine, Vec<RequestStats>) {
    let requests = Arc::new(Mutex::new(Vec::new()));
    let stats = Arc::clone(&requests);
    let model = model(move |request| {
        let mut stats = stats.lock().unwrap();
        let number = stats.len();
        stats.push(RequestStats {
            purpose: request.purpose,
            at: Instant::now(),
            entries: request.entries.len(),
            bytes: text_bytes(request),
            instruction: request.instruction.map(str::to_owned),
        });
        let arguments = format!(r#"{{"path":"src/file{}.rs"}}"#, number % 500);
        match request.purpose {
            CallPurpose::Agent => reply([call(&format!("c{number}"), "read_file", &arguments)]),
            CallPurpose::Compaction | CallPurpose::Closing => text("Goal: read."),
        }
    });
    let tools = FakeTools::new(&[], |call, _| {
        let text = format!("{}\n{}", call.arguments.text(), "a line of code\n".repeat(20));
        ToolResult { reads: ["src/lib.rs".into()].into(), ..ok(call, &text) }
    });
    let ports = Ports { tools: Arc::new(tools), ..Ports::new(model) };
    let rules = RunRules {
        limits: RunLimits { max_steps: STEPS, ..RunLimits::default() },
        context: ContextLimits {
            window: Tokens(20_000),
            max_compactions: 1_000,
            ..ContextLimits::default()
        },
        ..RunRules::default()
    };
    let machine = run::run(InlineExecutor::new(), rules, ports);
    let requests = std::mem::take(&mut *requests.lock().unwrap());
    (machine, requests)
}

/// Fault R17.
#[test]
fn ten_thousand_steps_stay_small_and_quick() {
    let (machine, requests) = run();
    let done = done(&machine);
    assert_eq!((done.outcome.reason.name(), done.run.steps), ("max_steps", STEPS));
    // The window is never exceeded, and a summary comes whenever three quarters of it are full, but not before.
    let most = 20_000 * 4;
    assert!(requests.iter().all(|request| request.bytes < most && request.entries < 200));
    let summaries: Vec<usize> =
        (0..requests.len()).filter(|at| requests[*at].purpose == CallPurpose::Compaction).collect();
    assert!((50..250).contains(&summaries.len()), "{} summaries", summaries.len());
    for at in &summaries {
        let before = &requests[at - 1];
        assert!(before.bytes > 30_000, "summarized at {} bytes", before.bytes);
        assert!(requests[at + 1].bytes < before.bytes / 2);
        let instruction = requests[*at].instruction.as_deref().unwrap();
        assert!(instruction.contains("## Goal") && instruction.contains("Files that were read: "));
    }
    // The task and the records are there at the end.
    let entries = machine.conversation.entries();
    assert!(
        matches!(&entries[0].item, ConversationItem::User(message) if message.origin == MessageOrigin::Task)
    );
    assert!(matches!(&entries[1].item, ConversationItem::User(message)
        if message.text.contains("Goal: read.") && message.text.contains("read_file ×")));
    // Late steps take as long as early ones; the bound is wide, since the machine may be busy.
    let tenth = requests.len() / 10;
    let took = |part: usize| requests[(part + 1) * tenth].at - requests[part * tenth].at;
    let quickest = |parts: std::ops::Range<usize>| parts.map(took).min().unwrap();
    let (early, late) = (quickest(0..3), quickest(6..9));
    assert!(late < early * 8 + std::time::Duration::from_millis(200), "{early:?}, then {late:?}");
}
