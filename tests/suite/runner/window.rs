//! Nothing larger than the context window is sent, whatever tools return and whatever the call is for.

use std::sync::{Arc, Mutex};

use architect::machine::{Conversation, Fold, Intent, Purpose, State};
use architect::model::{
    Access, CallId, ContextRules, Fault, Finish, Item, Limits, Origin, Part, Reply, Rules, Span,
    Tokens, ToolCall, ToolResult, ToolStatus, Usage,
};
use architect::port::{Ask, Delta, Job, Model, ModelCall, Scope, ToolSpec, Toolbox, Vetted};
use architect::runner::{Brief, Driver, Inline, Ports};
use proptest::prelude::*;

/// Purpose and bytes of each request.
type Sent = Arc<Mutex<Vec<(Purpose, usize)>>>;

/// Calls the tool in each reply; each sum and each closing call is answered with a text.
struct Caller(Sent);

struct Says(Reply);

/// Returns texts of these lengths, one after the other.
struct Texts(Vec<usize>, Mutex<usize>);

struct Text(CallId, usize);

impl Model for Caller {
    fn prepare(&mut self, ask: &Ask<'_>) -> Result<Box<dyn ModelCall>, Fault> {
        let mut sent = self.0.lock().unwrap();
        let bytes = ask.entries.iter().map(|entry| match &entry.item {
            Item::User(message) => message.text.len(),
            Item::Assistant(reply) => reply.text().len(),
            Item::Exchange(exchange) => exchange.results().iter().map(|r| r.text.len()).sum(),
        });
        let bytes = bytes.sum::<usize>() + ask.instruction.map_or(0, str::len) + ask.system.len();
        let id = format!("c{}", sent.len());
        sent.push((ask.purpose, bytes));
        let (part, finish) = match ask.purpose {
            Purpose::Agent => {
                let call = ToolCall::new(id.as_str().into(), "read", "{}");
                (Part::Call(call), Finish::ToolCalls)
            }
            Purpose::Compaction | Purpose::Closing => (Part::Text("so far".into()), Finish::Stop),
        };
        let (parts, usage) = ([part].into(), Usage::default());
        Ok(Box::new(Says(Reply { parts, finish, usage, model: None })))
    }
}

impl ModelCall for Says {
    fn run(self: Box<Self>, _: &Scope, _: &mut dyn FnMut(Delta)) -> Result<Reply, Fault> {
        Ok(self.0)
    }
}

impl Toolbox for Texts {
    fn specs(&self) -> Arc<[ToolSpec]> {
        [].into()
    }

    fn access(&self, _: &ToolCall) -> Access {
        Access::read("a")
    }

    fn vet(&self, call: &ToolCall, _: &Scope) -> Vetted {
        let mut next = self.1.lock().unwrap();
        let length = self.0[*next % self.0.len()];
        *next += 1;
        Vetted::Cleared {
            job: Box::new(Text(call.id.clone(), length)),
            limit: Span::secs(60),
            intent: Intent::Pure,
            grounds: "".into(),
        }
    }
}

impl Job for Text {
    fn run(self: Box<Self>, _: &Scope) -> ToolResult {
        // Not the same text twice: turns that repeat would end the run.
        let text = format!("{}{}", self.0, "x".repeat(self.1));
        ToolResult::new(self.0, ToolStatus::Ok, text)
    }
}

/// Runs twelve steps in a window of this size; returns the end, and what was sent.
fn run(window: u64, lengths: &[usize]) -> (Fold, Vec<(Purpose, usize)>) {
    let context = ContextRules {
        window: Tokens(window),
        summarize_after: 2,
        keep_recent: 1,
        ..ContextRules::default()
    };
    let limits = Limits { max_steps: 12, ..Limits::default() };
    let rules = Rules { context, limits, ..Rules::default() };
    let sent = Sent::default();
    let tools = Arc::new(Texts(lengths.to_vec(), Mutex::new(0)));
    let brief = Brief { system: "system".into(), tools: tools.specs(), schema: None };
    let ports = Ports { tools, ..Ports::new(Box::new(Caller(Arc::clone(&sent)))) };
    let task = Item::user(Origin::Task, "the task");
    let (fold, first) = Fold::start(rules, Conversation::new(brief.bytes()), task);
    let fold = Driver::new(Inline::new(), ports, brief, fold).run(first);
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
    let [(Purpose::Agent, _), (Purpose::Closing, bytes)] = sent[..] else { panic!("{sent:?}") };
    assert!((11_000..=12_000).contains(&tokens(bytes)), "{bytes} bytes");
    let kept = fold.conversation.entries().iter().filter_map(|entry| match &entry.item {
        Item::Exchange(exchange) => Some(exchange.results()[0].text.len()),
        Item::User(_) | Item::Assistant(_) => None,
    });
    assert_eq!(kept.collect::<Vec<_>>(), ["c0".len() + 98_000]);
}

/// What a summary is written of is shortened too.
#[test]
fn a_large_result_is_shortened_for_a_summary() {
    let (_, sent) = run(16_000, &[10, 10, 98_000, 10]);
    let summaries = sent.iter().filter(|(purpose, _)| *purpose == Purpose::Compaction);
    let sizes: Vec<u64> = summaries.map(|(_, bytes)| tokens(*bytes)).collect();
    assert!(sizes.iter().all(|size| *size <= 16_000), "{sizes:?}");
}

/// A task that is larger than the window is not sent at all, not even for the closing call.
#[test]
fn what_cannot_be_shortened_is_not_sent() {
    let (fold, sent) = run(4, &[0]);
    let State::Done(done) = &fold.state else { panic!("not done") };
    assert_eq!((done.outcome.reason.name(), sent.len()), ("context_full", 0));
    assert_eq!(done.run.calls, 0);
}
