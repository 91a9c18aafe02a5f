//! A run of ten thousand steps: it stays small, and its steps stay quick.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use architect::machine::{CallIntent, CallPurpose, Conversation, Machine, State};
use architect::model::{
    CallAccess, ContextLimits, ConversationItem, Fault, MessageOrigin, Reply, ReplyFinish,
    ReplyPart, RunLimits, RunRules, TimeSpan, Tokens, ToolCall, ToolResult, ToolStatus, Usage,
};
use architect::port::{
    ApprovedCall, AuthorizationOutcome, EffectContext, Model, ModelCall, ModelRequest,
    PreparedCall, ReplyDelta, ToolSpec, Toolbox,
};
use architect::runner::{Driver, InlineExecutor, Ports, RequestContext};

const STEPS: u32 = 10_000;

/// What was seen of each request.
struct RequestStats {
    purpose: CallPurpose,
    at: Instant,
    entries: usize,
    bytes: usize,
    instruction: Option<String>,
}

type SharedStats = Arc<Mutex<Vec<RequestStats>>>;

/// Looks at one of five hundred files in each reply, and sums up when it is asked to.
struct ReadingModel(SharedStats);

struct ImmediateReply(Reply);

#[derive(Clone)]
struct ReadTools;

struct ReadJob(ToolCall);

impl Model for ReadingModel {
    fn prepare(&mut self, ask: &ModelRequest<'_>) -> Result<Box<dyn ModelCall>, Fault> {
        let mut seen = self.0.lock().unwrap();
        let number = seen.len();
        // What a request is made of, without the cost of writing it down.
        let bytes = ask.entries.iter().map(|entry| match &entry.item {
            ConversationItem::User(message) => message.text.len(),
            ConversationItem::Assistant(reply) => reply.text().len(),
            ConversationItem::Exchange(exchange) => {
                exchange.results().iter().map(|r| r.text.len()).sum()
            }
        });
        seen.push(RequestStats {
            purpose: ask.purpose,
            at: Instant::now(),
            entries: ask.entries.len(),
            bytes: bytes.sum(),
            instruction: ask.instruction.map(str::to_owned),
        });
        let (part, finish) = match ask.purpose {
            CallPurpose::Agent => {
                let arguments = format!(r#"{{"path":"src/file{}.rs"}}"#, number % 500);
                let id = format!("c{number}");
                (
                    ReplyPart::Call(ToolCall::new(id.as_str().into(), "read_file", &arguments)),
                    ReplyFinish::ToolCalls,
                )
            }
            CallPurpose::Compaction | CallPurpose::Closing => {
                (ReplyPart::Text("Goal: read.".into()), ReplyFinish::Stop)
            }
        };
        let (usage, model) = (Usage::default(), None);
        Ok(Box::new(ImmediateReply(Reply { parts: [part].into(), finish, usage, model })))
    }
}

impl ModelCall for ImmediateReply {
    fn run(
        self: Box<Self>,
        _: &EffectContext,
        _: &mut dyn FnMut(ReplyDelta),
    ) -> Result<Reply, Fault> {
        Ok(self.0)
    }
}

impl Toolbox for ReadTools {
    fn specs(&self) -> Arc<[ToolSpec]> {
        [].into()
    }

    fn prepare(&self, call: &ToolCall) -> Box<dyn PreparedCall> {
        let (tools, call) = (self.clone(), call.clone());
        <dyn PreparedCall>::from_fn(tools.access(&call), move |scope| tools.authorize(&call, scope))
    }
}

impl ReadTools {
    fn access(&self, _: &ToolCall) -> CallAccess {
        CallAccess::read("src")
    }

    fn authorize(&self, call: &ToolCall, _: &EffectContext) -> AuthorizationOutcome {
        let (limit, intent, grounds) = (TimeSpan::from_secs(60), CallIntent::ReadOnly, "".into());
        AuthorizationOutcome::Approved {
            call: Box::new(ReadJob(call.clone())),
            timeout: limit,
            intent,
            reason: grounds,
        }
    }
}

impl ApprovedCall for ReadJob {
    fn run(self: Box<Self>, _: &EffectContext) -> ToolResult {
        let text = format!("{}\n{}", self.0.arguments.text(), "a line of code\n".repeat(20));
        ToolResult::new(self.0.id, ToolStatus::Ok, text)
    }
}

fn run() -> (Machine, Vec<RequestStats>) {
    let seen = SharedStats::default();
    let brief = RequestContext { system: "Be brief.".into(), tools: [].into(), schema: None };
    let model = Box::new(ReadingModel(Arc::clone(&seen)));
    let ports = Ports { tools: Arc::new(ReadTools), ..Ports::new(model) };
    let rules = RunRules {
        limits: RunLimits { max_steps: STEPS, ..RunLimits::default() },
        context: ContextLimits {
            window: Tokens(20_000),
            max_compactions: 1_000,
            ..ContextLimits::default()
        },
        ..RunRules::default()
    };
    let task = ConversationItem::user(MessageOrigin::Task, "Read everything.");
    let (fold, first) = Machine::start(rules, Conversation::new(brief.request_bytes()), task);
    let fold = Driver::new(InlineExecutor::new(), ports, brief, fold).run(first);
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
        (0..seen.len()).filter(|at| seen[*at].purpose == CallPurpose::Compaction).collect();
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
    assert!(
        matches!(&entries[0].item, ConversationItem::User(message) if message.origin == MessageOrigin::Task)
    );
    assert!(matches!(&entries[1].item, ConversationItem::User(message)
        if message.text.contains("Goal: read.") && message.text.contains("read_file ×")));
    // Late steps take as long as early ones; the bound is wide, for the machine may be busy.
    let tenth = seen.len() / 10;
    let took = |from: usize| seen[from + tenth].at - seen[from].at;
    let (early, late) = (took(tenth), took(seen.len() - tenth - 1));
    assert!(late < early * 8 + std::time::Duration::from_millis(200), "{early:?}, then {late:?}");
}
