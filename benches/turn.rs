//! What a turn costs: one model call that asks for two tools, and their answers.
//!
//! The model plays a script and the tools read two small files, so that what is left is the loop itself: the machine, the
//! driver, the conversation, the tools' own checks. `inline` does everything on the spot; `threads` is the real runner,
//! with a thread for each call and a pool for the tools. The run is a hundred turns long; the time is that of one turn.
#![allow(clippy::unwrap_used)] // a benchmark may fail
#![allow(clippy::cast_precision_loss)] // it counts no more than billions

use std::sync::Arc;
use std::time::{Duration, Instant};

use architect::exec::{Policy, Supervisor};
use architect::llm::scripted::{Script, ScriptPosition, ScriptedModel};
use architect::machine::{Conversation, Fold, State};
use architect::model::{Item, Limits, LoopRules, Origin, Rules};
use architect::port::Toolbox;
use architect::runner::{Brief, Driver, Hands, Inline, Ports, SystemClock, Threads};
use architect::tools::{Registry, Settings, standard};
use architect::workspace::Root;
use criterion::{Criterion, criterion_group, criterion_main};

const TURNS: u32 = 100;

fn script() -> Script {
    let call = |path: &str| format!("{{ name = 'read_file', arguments = {{ path = '{path}' }} }}");
    let turn = format!("[[turn]]\ncalls = [{}, {}]\n", call("a.txt"), call("b.txt"));
    let text = turn.repeat(TURNS as usize) + "[[turn]]\ntext = 'Done.'\n";
    Script::from_toml("bench", &text).unwrap()
}

fn run<H: Hands>(hands: H, tools: &Arc<Registry>, script: &Script) {
    let loops = LoopRules { warn: u32::MAX, end: u32::MAX };
    let limits = Limits { max_steps: u32::MAX, ..Limits::default() };
    let rules = Rules { loops, limits, ..Rules::default() };
    let model = ScriptedModel::new(script.clone(), ScriptPosition::default());
    let tools: Arc<dyn Toolbox> = tools.clone();
    let brief = Brief { system: "Be brief.".into(), tools: tools.specs(), schema: None };
    let ports = Ports { tools, ..Ports::new(Box::new(model)) };
    let task = Item::user(Origin::Task, "Read.");
    let (fold, first) = Fold::start(rules, Conversation::new(brief.bytes()), task);
    let fold = Driver::new(hands, ports, brief, fold).run(first);
    let State::Done(done) = &fold.state else { panic!("not done") };
    assert_eq!(done.run.steps, TURNS);
}

fn turns(c: &mut Criterion) {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a.txt", "b.txt"] {
        std::fs::write(folder.path().join(name), "some text\n".repeat(20)).unwrap();
    }
    let root = Root::open(folder.path()).unwrap();
    let supervisor = Supervisor::in_process(Policy::off(folder.path()), Vec::new());
    let settings = Settings::default();
    let tools = Arc::new(Registry::new(standard(&root, &supervisor, &settings), settings));
    let script = script();
    let each = |iterations: u64, once: &dyn Fn()| {
        let begun = Instant::now();
        (0..iterations.div_ceil(TURNS.into())).for_each(|_| once());
        let runs = iterations.div_ceil(TURNS.into());
        let per_turn = begun.elapsed().as_secs_f64() / (runs * u64::from(TURNS)) as f64;
        Duration::from_secs_f64(per_turn * iterations as f64)
    };
    c.bench_function("a turn with two tools, inline", |b| {
        b.iter_custom(|n| each(n, &|| run(Inline::new(), &tools, &script)));
    });
    c.bench_function("a turn with two tools, threads", |b| {
        let hands = || Threads::new(Arc::new(SystemClock::start()), 4);
        b.iter_custom(|n| each(n, &|| run(hands(), &tools, &script)));
    });
}

criterion_group!(benches, turns);
criterion_main!(benches);
