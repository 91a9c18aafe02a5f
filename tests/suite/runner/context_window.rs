//! Nothing larger than the context window is sent, whatever tools return and whatever the call is for.

use std::sync::{Arc, Mutex};

use architect::machine::{CallIntent, CallPurpose, Conversation, Machine, State};
use architect::model::{
    CallAccess, CallId, ContextLimits, ConversationItem, Fault, MessageOrigin, Reply, ReplyFinish,
    ReplyPart, RunLimits, RunRules, TimeSpan, Tokens, ToolCall, ToolResult, ToolStatus, Usage,
};
use architect::port::{
    ApprovedCall, AuthorizationOutcome, EffectContext, Model, ModelCall, ModelRequest,
    PreparedCall, ReplyDelta, ToolSpec, Toolbox,
};
use architect::runner::{Driver, InlineExecutor, Ports, RequestContext};
use proptest::prelude::*;

/// Purpose and bytes of each request.
type SentSizes = Arc<Mutex<Vec<(CallPurpose, usize)>>>;

/// Calls the tool in each reply; each sum and each closing call is answered with a text.
struct CallingModel(SentSizes);

struct ImmediateReply(Reply);

/// Returns texts of these lengths, one after the other.
#[derive(Clone)]
struct SizedTools(Vec<usize>, Arc<Mutex<usize>>);

struct SizedJob(CallId, usize);

impl Model for CallingModel {
    fn prepare(&mut self, ask: &ModelRequest<'_>) -> Result<Box<dyn ModelCall>, Fault> {
        let mut sent = self.0.lock().unwrap();
        let bytes = ask.entries.iter().map(|entry| match &entry.item {
            ConversationItem::User(message) => message.text.len(),
            ConversationItem::Assistant(reply) => reply.text().len(),
            ConversationItem::Exchange(exchange) => {
                exchange.results().iter().map(|r| r.text.len()).sum()
            }
        });
        let bytes = bytes.sum::<usize>() + ask.instruction.map_or(0, str::len) + ask.system.len();
        let id = format!("c{}", sent.len());
        sent.push((ask.purpose, bytes));
        let (part, finish) = match ask.purpose {
            CallPurpose::Agent => {
                let call = ToolCall::new(id.as_str().into(), "read", "{}");
                (ReplyPart::Call(call), ReplyFinish::ToolCalls)
            }
            CallPurpose::Compaction | CallPurpose::Closing => {
                (ReplyPart::Text("so far".into()), ReplyFinish::Stop)
            }
        };
        let (parts, usage) = ([part].into(), Usage::default());
        Ok(Box::new(ImmediateReply(Reply { parts, finish, usage, model: None })))
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

impl Toolbox for SizedTools {
    fn specs(&self) -> Arc<[ToolSpec]> {
        [].into()
    }

    fn prepare(&self, call: &ToolCall) -> Box<dyn PreparedCall> {
        let (tools, call) = (self.clone(), call.clone());
        <dyn PreparedCall>::from_fn(tools.access(&call), move |scope| tools.authorize(&call, scope))
    }
}

impl SizedTools {
    fn access(&self, _: &ToolCall) -> CallAccess {
        CallAccess::read("a")
    }

    fn authorize(&self, call: &ToolCall, _: &EffectContext) -> AuthorizationOutcome {
        let mut next = self.1.lock().unwrap();
        let length = self.0[*next % self.0.len()];
        *next += 1;
        AuthorizationOutcome::Approved {
            call: Box::new(SizedJob(call.id.clone(), length)),
            timeout: TimeSpan::from_secs(60),
            intent: CallIntent::ReadOnly,
            reason: "".into(),
        }
    }
}

impl ApprovedCall for SizedJob {
    fn run(self: Box<Self>, _: &EffectContext) -> ToolResult {
        // Not the same text twice: turns that repeat would end the run.
        let text = format!("{}{}", self.0, "x".repeat(self.1));
        ToolResult::new(self.0, ToolStatus::Ok, text)
    }
}

/// Runs twelve steps in a window of this size; returns the end, and what was sent.
fn run(window: u64, lengths: &[usize]) -> (Machine, Vec<(CallPurpose, usize)>) {
    let context = ContextLimits {
        window: Tokens(window),
        summarize_after: 2,
        keep_recent: 1,
        ..ContextLimits::default()
    };
    let limits = RunLimits { max_steps: 12, ..RunLimits::default() };
    let rules = RunRules { context, limits, ..RunRules::default() };
    let sent = SentSizes::default();
    let tools = Arc::new(SizedTools(lengths.to_vec(), Arc::default()));
    let brief = RequestContext { system: "system".into(), tools: tools.specs(), schema: None };
    let ports = Ports { tools, ..Ports::new(Box::new(CallingModel(Arc::clone(&sent)))) };
    let task = ConversationItem::user(MessageOrigin::Task, "the task");
    let (fold, first) = Machine::start(rules, Conversation::new(brief.request_bytes()), task);
    let fold = Driver::new(InlineExecutor::new(), ports, brief, fold).run(first);
    let sent = sent.lock().unwrap().clone();
    (fold, sent)
}

/// As many bytes as the estimate takes for a token of source code, before a provider has counted any.
fn tokens(bytes: usize) -> u64 {
    (bytes as u64 * 1_000).div_ceil(3_500)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_larger_than_the_window_is_sent(
        window in 700..20_000_u64,
        lengths in prop::collection::vec(prop_oneof![0..2_000_usize, 0..200_000_usize], 1..12),
    ) {
        let (fold, sent) = run(window, &lengths);
        prop_assert!(matches!(fold.state, State::Done(_)));
        for (purpose, bytes) in sent {
            prop_assert!(tokens(bytes) <= window, "{bytes} bytes for {purpose:?} in {window}");
        }
    }
}

/// The newest exchange can't be dropped; its result is shortened for the closing call, and stays whole in the session.
#[test]
fn a_large_result_is_shortened_for_the_closing_call() {
    let (fold, sent) = run(16_000, &[98_000]);
    let State::Done(done) = &fold.state else { panic!("not done") };
    assert_eq!(done.outcome.reason.name(), "context_full");
    assert_eq!(done.outcome.output.as_deref(), Some("so far"));
    let [(CallPurpose::Agent, _), (CallPurpose::Closing, bytes)] = sent[..] else {
        panic!("{sent:?}")
    };
    assert!((11_000..=12_000).contains(&tokens(bytes)), "{bytes} bytes");
    let kept = fold.conversation.entries().iter().filter_map(|entry| match &entry.item {
        ConversationItem::Exchange(exchange) => Some(exchange.results()[0].text.len()),
        ConversationItem::User(_) | ConversationItem::Assistant(_) => None,
    });
    assert_eq!(kept.collect::<Vec<_>>(), ["c0".len() + 98_000]);
}

/// What a summary is written of is shortened too.
#[test]
fn a_large_result_is_shortened_for_a_summary() {
    let (_, sent) = run(16_000, &[10, 10, 98_000, 10]);
    let summaries = sent.iter().filter(|(purpose, _)| *purpose == CallPurpose::Compaction);
    let sizes: Vec<u64> = summaries.map(|(_, bytes)| tokens(*bytes)).collect();
    assert!(sizes.iter().all(|size| *size <= 16_000), "{sizes:?}");
}

/// A task that is larger than the window is not sent at all, not even for the closing call.
#[test]
fn what_cannot_be_shortened_is_not_sent() {
    let (fold, sent) = run(4, &[0]);
    let State::Done(done) = &fold.state else { panic!("not done") };
    assert_eq!((done.outcome.reason.name(), sent.len()), ("context_full", 0));
    assert_eq!(done.run.model_calls, 0);
}
