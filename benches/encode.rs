//! What it costs to write the next request down, by the length of the conversation.
//!
//! Each turn adds one exchange with a result of two thousand bytes to so many entries that were sent before; what is
//! measured is putting the request together, without sending it.

#![allow(clippy::unwrap_used)] // a benchmark that cannot begin is over

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use architect::llm::models::Table;
use architect::llm::{ModelSpec, WireSettings, connect};
use architect::machine::{Entry, EntryId, Purpose};
use architect::model::{
    Exchange, Finish, Item, Origin, Part, Reply, ToolCall, ToolResult, ToolStatus, Usage,
};
use architect::port::{Ask, Model, ToolSpec};
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};

fn model(name: &str) -> Box<dyn Model> {
    let table = Table::built_in();
    let spec = ModelSpec::parse(name, &table, false).unwrap();
    let env = |name: &str| name.ends_with("_KEY").then(|| "key".to_owned());
    connect(&spec, &WireSettings::default(), &table, &env).unwrap()
}

/// An exchange; ids of calls are never the same twice.
fn exchange(number: u64) -> Entry {
    let id = format!("call_{number}");
    let call = ToolCall::new(id.as_str().into(), "read_file", r#"{"path":"src/lib.rs"}"#);
    let text = "fn main() { println!(\"hello\"); }\n".repeat(60);
    let result = ToolResult::new(call.id.clone(), ToolStatus::Ok, text);
    let reply = Reply {
        parts: [Part::Text("Let me look.".into()), Part::Call(call)].into(),
        finish: Finish::ToolCalls,
        usage: Usage::default(),
        model: None,
    };
    let item = Item::Exchange(Exchange::new(reply, vec![result]).unwrap());
    Entry { id: EntryId(number), item }
}

fn prepare(
    model: &mut dyn Model,
    system: &Arc<str>,
    tools: &Arc<[ToolSpec]>,
    entries: &[Entry],
) -> bool {
    let ask = Ask {
        purpose: Purpose::Agent,
        attempt: 1,
        system,
        tools,
        entries,
        instruction: None,
        max_output: None,
        schema: None,
    };
    model.prepare(&ask).is_ok()
}

fn requests(c: &mut Criterion) {
    let system: Arc<str> = "You are a careful engineer. ".repeat(100).into();
    let tool = |name: &str| ToolSpec {
        name: name.into(),
        description: "does something useful".into(),
        schema: serde_json::json!({"type": "object", "properties": {"path": {"type": "string"}}}),
    };
    let tools: Arc<[ToolSpec]> = ["read_file", "edit_file", "grep", "run_command"].map(tool).into();
    for name in [
        "anthropic/claude-opus-5",
        "openai-chat/gpt-4o",
        "openai/gpt-5.5",
        "gemini/gemini-3.7-flash",
    ] {
        let mut group = c.benchmark_group(name);
        group.sample_size(20).warm_up_time(Duration::from_millis(300));
        group.measurement_time(Duration::from_secs(1));
        for count in [10, 100, 1_000, 10_000] {
            let mut model = model(name);
            let task = Entry { id: EntryId(0), item: Item::user(Origin::Task, "do it") };
            let mut entries: Vec<Entry> =
                std::iter::once(task).chain((1..count).map(exchange)).collect();
            assert!(prepare(&mut *model, &system, &tools, &entries));
            let mut number = count;
            group.bench_function(BenchmarkId::from_parameter(count), |b| {
                b.iter_batched(
                    || {
                        number += 1;
                        exchange(number)
                    },
                    |new| {
                        entries.push(new);
                        black_box(prepare(&mut *model, &system, &tools, &entries));
                        entries.pop()
                    },
                    criterion::BatchSize::SmallInput,
                );
            });
        }
        group.finish();
    }
}

criterion_group!(benches, requests);
criterion_main!(benches);
