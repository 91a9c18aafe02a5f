//! A run of ten thousand steps: it stays small, and its steps stay quick.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use architect::machine::{Conversation, Fold, Intent, Purpose, State};
use architect::model::{
    Access, ContextRules, Fault, Finish, Item, Limits, Origin, Part, Reply, Rules, Span, Tokens,
    ToolCall, ToolResult, ToolStatus, Usage,
};
use architect::port::{Ask, Delta, Job, Model, ModelCall, Scope, ToolSpec, Toolbox, Vetted};
use architect::runner::{Brief, Driver, Inline, Ports};

const STEPS: u32 = 10_000;

/// What was seen of each request.
struct Asked {
    purpose: Purpose,
    at: Instant,
    entries: usize,
    bytes: usize,
    instruction: Option<String>,
}

type Seen = Arc<Mutex<Vec<Asked>>>;

/// Looks at one of five hundred files in each reply, and sums up when it is asked to.
struct Worker(Seen);

struct Says(Reply);

struct Files;

struct File(ToolCall);

impl Model for Worker {
    fn prepare(&mut self, ask: &Ask<'_>) -> Result<Box<dyn ModelCall>, Fault> {
        let mut seen = self.0.lock().unwrap();
        let number = seen.len();
        // What a request is made of, without the cost of writing it down.
        let bytes = ask.entries.iter().map(|entry| match &entry.item {
            Item::User(message) => message.text.len(),
            Item::Assistant(reply) => reply.text().len(),
            Item::Exchange(exchange) => exchange.results().iter().map(|r| r.text.len()).sum(),
        });
        seen.push(Asked {
            purpose: ask.purpose,
            at: Instant::now(),
            entries: ask.entries.len(),
            bytes: bytes.sum(),
            instruction: ask.instruction.map(str::to_owned),
        });
        let (part, finish) = match ask.purpose {
            Purpose::Agent => {
                let arguments = format!(r#"{{"path":"src/file{}.rs"}}"#, number % 500);
                let id = format!("c{number}");
                (
                    Part::Call(ToolCall::new(id.as_str().into(), "read_file", &arguments)),
                    Finish::ToolCalls,
                )
            }
            Purpose::Compaction | Purpose::Closing => {
                (Part::Text("Goal: read.".into()), Finish::Stop)
            }
        };
        let (usage, model) = (Usage::default(), None);
        Ok(Box::new(Says(Reply { parts: [part].into(), finish, usage, model })))
    }
}

impl ModelCall for Says {
    fn run(self: Box<Self>, _: &Scope, _: &mut dyn FnMut(Delta)) -> Result<Reply, Fault> {
        Ok(self.0)
    }
}

impl Toolbox for Files {
    fn specs(&self) -> Arc<[ToolSpec]> {
        [].into()
    }

    fn access(&self, _: &ToolCall) -> Access {
        Access::read("src")
    }

    fn vet(&self, call: &ToolCall, _: &Scope) -> Vetted {
        let (limit, intent, grounds) = (Span::secs(60), Intent::Pure, "".into());
        Vetted::Cleared { job: Box::new(File(call.clone())), limit, intent, grounds }
    }
}

impl Job for File {
    fn run(self: Box<Self>, _: &Scope) -> ToolResult {
        let text = format!("{}\n{}", self.0.arguments.text(), "a line of code\n".repeat(20));
        ToolResult::new(self.0.id, ToolStatus::Ok, text)
    }
}

fn run() -> (Fold, Vec<Asked>) {
    let seen = Seen::default();
    let brief = Brief { system: "Be brief.".into(), tools: [].into(), schema: None };
    let model = Box::new(Worker(Arc::clone(&seen)));
    let ports = Ports { tools: Arc::new(Files), ..Ports::new(model) };
    let rules = Rules {
        limits: Limits { max_steps: STEPS, ..Limits::default() },
        context: ContextRules {
            window: Tokens(20_000),
            max_compactions: 1_000,
            ..ContextRules::default()
        },
        ..Rules::default()
    };
    let task = Item::user(Origin::Task, "Read everything.");
    let (fold, first) = Fold::start(rules, Conversation::new(brief.bytes()), task);
    let fold = Driver::new(Inline::new(), ports, brief, fold).run(first);
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    (fold, seen)
}

/// Fault R17.
#[test]
fn ten_thousand_steps_stay_small_and_quick() {
    let (fold, seen) = run();
    let State::Done(done) = &fold.state else { panic!("not done: {:?}", fold.state.kind()) };
    assert_eq!((done.outcome.reason.name(), done.run.steps), ("max_steps", STEPS));
    // The window is never exceeded, and a summary comes whenever three quarters of it are full, but not before.
    let most = 20_000 * 4;
    assert!(seen.iter().all(|asked| asked.bytes < most && asked.entries < 200));
    let summaries: Vec<usize> =
        (0..seen.len()).filter(|at| seen[*at].purpose == Purpose::Compaction).collect();
    assert!((50..250).contains(&summaries.len()), "{} summaries", summaries.len());
    for at in &summaries {
        let before = &seen[at - 1];
        assert!(before.bytes > 30_000, "summed up at {} bytes", before.bytes);
        assert!(seen[at + 1].bytes < before.bytes / 2);
        let instruction = seen[*at].instruction.as_deref().unwrap();
        assert!(instruction.contains("## Goal") && instruction.contains("Files that were read: "));
    }
    // The task and the records are there at the end.
    let entries = fold.conversation.entries();
    assert!(matches!(&entries[0].item, Item::User(message) if message.origin == Origin::Task));
    assert!(matches!(&entries[1].item, Item::User(message)
        if message.text.contains("Goal: read.") && message.text.contains("read_file ×")));
    // Late steps take as long as early ones; the bound is wide, for the machine may be busy.
    let tenth = seen.len() / 10;
    let took = |from: usize| seen[from + tenth].at - seen[from].at;
    let (early, late) = (took(tenth), took(seen.len() - tenth - 1));
    assert!(late < early * 8 + std::time::Duration::from_millis(200), "{early:?}, then {late:?}");
}
