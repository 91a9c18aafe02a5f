//! Long random runs with their conversation: properties of a whole run, not only of a step.

use std::collections::{BTreeSet, HashSet};

use architect::machine::{
    Authorization, CallPurpose, CallState, Conversation, Effect, EntryId, Event, Machine,
    MachineOutput, RecoveredCall, ResumePrompt, Resumption, RunBounds, State, StateKind,
    StopReason, rank,
};
use architect::types::{
    CallAccess, CallId, ConversationItem, EffectId, Fault, FaultKind, FileAction, FileChange,
    MessageOrigin, MicroUsd, Price, ReplyFinish, RunLimits, RunRules, Signal, TimeSpan, Tokens,
    ToolResult, ToolStatus,
};
use proptest::prelude::*;

use crate::small_model::{self, EventSet};
use crate::{invariants, liveness};

/// The bytes that are part of every request.
const FIXED_BYTES: u64 = 40;

/// One run, driven by numbers: each chooses one of the events that are possible in its state.
struct RandomRun {
    fold: Machine,
    sent: Vec<(CallPurpose, u32)>,
    issued: HashSet<EffectId>,
    ended: u32,
    /// The user's messages so far.
    pinned: BTreeSet<EntryId>,
    /// The files that changed so far.
    files: BTreeSet<String>,
    /// The lengths of the tools' results, in order. Short when there is nothing left here.
    lengths: Vec<usize>,
}

impl RandomRun {
    fn begin(rules: RunRules) -> Self {
        let (fold, output) =
            Machine::start(rules, Conversation::new(FIXED_BYTES), small_model::task());
        let mut life = Self {
            fold,
            sent: Vec::new(),
            issued: HashSet::new(),
            ended: 0,
            pinned: BTreeSet::new(),
            files: BTreeSet::new(),
            lengths: Vec::new(),
        };
        life.note(&output);
        life
    }

    fn is_over(&self) -> bool {
        matches!(self.fold.state, State::Done(_))
    }

    fn drive(mut self, choices: &[u16], allowed: impl Fn(&State, &Event) -> bool) -> Self {
        for choice in choices {
            let mut events = small_model::events(&self.fold.state, EventSet::All);
            // Interrupted runs are frequent enough; most continue.
            events.retain(|event| {
                allowed(&self.fold.state, event) && (choice % 64 == 0 || !cuts_off(event))
            });
            if events.is_empty() {
                break;
            }
            let event = events.swap_remove(usize::from(*choice) % events.len());
            self = self.apply(event);
        }
        self
    }

    fn apply(mut self, event: Event) -> Self {
        let event = self.consistent(event);
        let at = match event {
            Event::Tick { now } => now,
            _ => self.fold.state.run().now,
        };
        let (before, clock) = (rank(&self.fold.state), matches!(event, Event::Tick { .. }));
        let (fold, output) = self.fold.handle(at, event);
        self.fold = fold;
        let after = rank(&self.fold.state);
        assert!(after <= before && (after < before || clock || output.effects.is_empty()));
        self.note(&output);
        self.check_conversation();
        self.check_pinned();
        self.check_window(&output);
        self
    }

    /// A preparation reports the size of the conversation, as the runner does.
    fn consistent(&self, event: Event) -> Event {
        match event {
            Event::Prepared { id, messages, .. } => Event::Prepared {
                id,
                size: self.fold.request_size(&messages, FIXED_BYTES),
                messages,
            },
            // Each tool changes a file of its own.
            Event::ToolCompleted { id, mut result } => {
                let number = self.fold.state.run().next_effect.0;
                let turn = usize::try_from(number).unwrap();
                if let Some(length) = self.lengths.iter().cycle().nth(turn) {
                    result.text = "x".repeat(*length).into();
                }
                let path = format!("f{number}.x").into();
                let action = FileAction::Modified;
                result.changes.push(FileChange { path, action, added: 1, removed: 1 });
                Event::ToolCompleted { id, result }
            }
            event => event,
        }
    }

    /// The process ends and the session is resumed: half of the calls that ran have a recovered result.
    fn crash(mut self, opening: ResumePrompt) -> Self {
        let running: Vec<CallId> = match &self.fold.state {
            State::Executing(state) => state
                .calls
                .iter()
                .filter(|call| matches!(call.state, CallState::Running { .. }))
                .map(|call| call.call.id.clone())
                .collect(),
            _ => Vec::new(),
        };
        let found = running.into_iter().step_by(2).map(|call| RecoveredCall {
            result: ToolResult::new(call.clone(), ToolStatus::InDoubt, "unknown"),
            call,
        });
        let run = self.fold.state.run();
        let (now, mut rules) = (run.now.after(TimeSpan(1)), (*run.rules).clone());
        rules.seed = rules.seed.wrapping_add(1);
        let resumption = Resumption {
            rules: rules.clone(),
            recovered: found.collect(),
            prompt: opening,
            received: Tokens::MAX,
        };
        let (fold, output) = self.fold.resume(now, resumption);
        self.fold = fold;
        let run = self.fold.state.run();
        assert_eq!((run.now, run.started_at, &*run.rules), (now, now, &rules));
        self.note(&output);
        self.check_conversation();
        self.check_pinned();
        self
    }

    fn note(&mut self, output: &MachineOutput) {
        for effect in &output.effects {
            match effect {
                Effect::CallModel { purpose, attempt, id, .. } => {
                    self.sent.push((*purpose, *attempt));
                    assert!(self.issued.insert(*id));
                }
                Effect::End => self.ended += 1,
                _ => {}
            }
        }
    }

    /// Checks the rules for a history that every API format has.
    fn check_conversation(&self) {
        let entries = self.fold.conversation.entries();
        let first = entries.first().map(|entry| &entry.item);
        assert!(
            matches!(first, Some(ConversationItem::User(message)) if message.origin == MessageOrigin::Task)
        );
        for entry in entries {
            match &entry.item {
                ConversationItem::User(message) => assert!(!message.text.trim().is_empty()),
                ConversationItem::Assistant(reply) => {
                    assert!(!reply.has_calls() && !reply.parts.is_empty());
                }
                ConversationItem::Exchange(exchange) => {
                    assert_eq!(exchange.reply().calls().count(), exchange.results().len());
                }
            }
        }
        let ids: HashSet<_> = entries.iter().map(|entry| entry.id).collect();
        assert_eq!(ids.len(), entries.len());
    }

    /// No compaction, interrupt or resume loses the user's messages, or a file that changed.
    fn check_pinned(&mut self) {
        let entries = self.fold.conversation.entries();
        let mut pinned = BTreeSet::new();
        let mut recorded = String::new();
        for entry in entries {
            match &entry.item {
                ConversationItem::User(message) if message.origin.is_pinned() => {
                    pinned.insert(entry.id);
                }
                ConversationItem::User(message) if message.origin == MessageOrigin::Summary => {
                    recorded.push_str(&message.text);
                }
                ConversationItem::Exchange(exchange) => {
                    for change in exchange.results().iter().flat_map(|result| &result.changes) {
                        recorded.push_str(&change.path.to_string());
                        self.files.insert(change.path.to_string());
                    }
                }
                ConversationItem::User(_) | ConversationItem::Assistant(_) => {}
            }
        }
        assert!(pinned.is_superset(&self.pinned), "the user's messages are lost");
        let forgotten: Vec<_> =
            self.files.iter().filter(|file| !recorded.contains(*file)).collect();
        assert!(forgotten.is_empty(), "{forgotten:?} of {recorded}");
        self.pinned = pinned;
    }

    /// No call of the agent has a context that is too full, and nothing larger than the window is sent. The runner itself
    /// refuses a summary whose instruction alone is larger.
    fn check_window(&self, output: &MachineOutput) {
        let window = self.fold.state.run().rules.context.window;
        for effect in &output.effects {
            if let Effect::CallModel {
                purpose: purpose @ (CallPurpose::Agent | CallPurpose::Closing),
                ..
            } = effect
            {
                let request = self.fold.request_content(*purpose, FIXED_BYTES);
                assert!(request.size <= window, "{:?} of {window:?} for {purpose:?}", request.size);
            }
        }
        let (State::Calling(state), true) = (&self.fold.state, calls_agent(output)) else {
            return;
        };
        let context = &state.run.rules.context;
        assert!(state.size.estimate <= context.window.percent(context.full_at));
    }

    fn sent(&self, purpose: CallPurpose) -> usize {
        self.sent.iter().filter(|(sent, _)| *sent == purpose).count()
    }
}

fn calls_agent(output: &MachineOutput) -> bool {
    let is_call =
        |effect: &Effect| matches!(effect, Effect::CallModel { purpose: CallPurpose::Agent, .. });
    output.effects.iter().any(is_call)
}

fn rules() -> impl Strategy<Value = RunRules> {
    let limits = (
        0..8_u32,
        prop::option::of(0..3_000_u64),
        prop::option::of(0..3_000_u64),
        prop::option::of(0..2_000_u64),
        prop::option::of(0..200_u64),
    );
    let retries = (0..3_u32, prop::option::of(0..300_u64));
    (limits, any::<bool>(), 60..2_000_u64, retries, any::<u64>()).prop_map(
        |(
            (max_steps, budget, max_tokens, timeout, step_timeout),
            checked,
            window,
            (retries, retry_for),
            seed,
        )| {
            let mut rules = small_model::rules();
            rules.limits = RunLimits {
                max_steps,
                budget: budget.map(MicroUsd),
                max_tokens: max_tokens.map(Tokens),
                timeout: timeout.map(TimeSpan),
                step_timeout: step_timeout.map(TimeSpan),
                warn_at: Some(MicroUsd(50)),
            };
            rules.price = Some(Price {
                input: 1_000_000,
                output: 3_000_000,
                cached_input: 0,
                cache_write: 0,
                long_input: None,
            });
            // Another model may write the summaries, at a higher price.
            rules.summary_price = (seed % 2 == 0).then_some(Price {
                input: 9_000_000,
                output: 12_000_000,
                ..Price::default()
            });
            rules.has_checks = checked;
            rules.context.window = Tokens(window);
            (rules.backoff.retries, rules.backoff.retry_for) = (retries, retry_for.map(TimeSpan));
            rules.seed = seed;
            rules
        },
    )
}

fn choices(most: usize) -> impl Strategy<Value = Vec<u16>> {
    prop::collection::vec(any::<u16>(), 0..most)
}

fn cuts_off(event: &Event) -> bool {
    matches!(
        event,
        Event::Interrupt { .. }
            | Event::StoreFailed { .. }
            | Event::InternalError { .. }
            | Event::Authorized { authorization: Authorization::Abort, .. }
            | Event::CallFailed { fault: Fault { kind: FaultKind::Auth, .. }, .. }
    )
}

/// Only answers to the machine: the run isn't ended from outside, no event is stale, and time passes only while a retry
/// waits for it.
fn is_answer(state: &State, event: &Event) -> bool {
    let waits = matches!(state.kind(), StateKind::CallingWaiting | StateKind::CompactingWaiting);
    match event {
        Event::Tick { .. } => waits,
        Event::Interrupt { .. }
        | Event::StoreFailed { .. }
        | Event::InternalError { .. }
        | Event::UsageReported { .. } => false,
        event => state.awaits(event),
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 512,
        failure_persistence: Some(Box::new(prop::test_runner::FileFailurePersistence::Direct("tests/regressions/machine.txt"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_life_keeps_its_limits(rules in rules(), choices in choices(400)) {
        let life = RandomRun::begin(rules.clone()).drive(&choices, |_, _| true);
        let run = life.fold.state.run();
        let wait = rules.backoff.base_wait.0;
        let retries = match rules.backoff.retry_for {
            Some(time) => time.0.div_ceil(wait),
            None => u64::from(rules.backoff.retries),
        };
        let attempts = usize::try_from(retries).unwrap() + 1;
        let compactions = rules.context.max_compactions as usize;
        let bounds = RunBounds::new(&rules);
        prop_assert!(u64::from(run.model_calls) <= bounds.calls);
        prop_assert!(bounds.requests.is_none_or(|most| life.sent.len() as u64 <= most));
        prop_assert!(run.steps <= rules.limits.max_steps);
        prop_assert!(life.sent(CallPurpose::Compaction) <= compactions * attempts);
        prop_assert!(life.sent(CallPurpose::Closing) <= 1);
        prop_assert!(life.ended <= 1);
        prop_assert_eq!(life.ended == 1, life.is_over());
    }

    /// For any results and any window size.
    #[test]
    fn nothing_larger_than_the_window_is_sent(
        rules in rules(),
        choices in choices(400),
        lengths in prop::collection::vec(0..20_000_usize, 1..20),
    ) {
        let limits = RunLimits { max_steps: 8, ..RunLimits::default() };
        let mut life = RandomRun::begin(RunRules { limits, ..rules });
        life.lengths = lengths;
        life.drive(&choices, is_answer);
    }

    /// A provider that uses no more than the reserved amounts never exceeds the budget. (The replies of the small model
    /// use less than any conversation here reserves.)
    #[test]
    fn nothing_is_overspent(rules in rules(), choices in choices(400)) {
        let limits = rules.limits.clone();
        let life = RandomRun::begin(rules).drive(&choices, |_, _| true);
        let used = life.fold.state.run().used;
        prop_assert!(limits.budget.is_none_or(|budget| used.cost <= budget));
        prop_assert!(limits.max_tokens.is_none_or(|most| used.tokens <= most));
    }

    /// A run with crashes has the same limits, except for one more request after each.
    #[test]
    fn a_life_with_crashes_keeps_its_limits(rules in rules(), lives in prop::collection::vec(choices(30), 1..8)) {
        let crashes = lives.len();
        let mut life = RandomRun::begin(rules.clone());
        let mut endings = 0;
        for choices in lives {
            endings += u32::from(life.is_over());
            life = life.crash(ResumePrompt::Continue).drive(&choices, |_, _| true);
        }
        let run = life.fold.state.run();
        prop_assert!(run.steps <= rules.limits.max_steps);
        prop_assert!(rules.limits.budget.is_none_or(|budget| run.used.cost <= budget));
        prop_assert!(life.sent(CallPurpose::Closing) <= crashes + 1);
        prop_assert!(life.ended <= endings + 1);
    }

    /// Resuming twice changes nothing but the ids of effects.
    #[test]
    fn resuming_twice_is_resuming_once(rules in rules(), choices in choices(60)) {
        let life = RandomRun::begin(rules).drive(&choices, |_, _| true);
        let redone = matches!(life.fold.state, State::Done(_) | State::Compacting(_) | State::Calling(_));
        if redone {
            return Ok(());
        }
        let once = life.crash(ResumePrompt::FromUser);
        // A closing call that was sent is the end of the run; resuming that begins another.
        if once.is_over() {
            return Ok(());
        }
        let kind = once.fold.state.kind();
        let conversation = once.fold.conversation.clone();
        let twice = once.crash(ResumePrompt::FromUser);
        prop_assert_eq!(twice.fold.state.kind(), kind);
        prop_assert_eq!(twice.fold.conversation, conversation);
    }

    #[test]
    fn timers_alone_end_every_run(rules in rules(), choices in choices(100)) {
        let mut life = RandomRun::begin(rules).drive(&choices, |_, _| true);
        for _ in 0..200 {
            let Some(deadline) = life.fold.deadline() else { break };
            life = life.apply(Event::Tick { now: deadline.at });
        }
        prop_assert!(life.is_over(), "still in {:?}", life.fold.state.kind());
    }

    /// Whatever model, tools and checks answer, the run ends.
    #[test]
    fn every_life_that_is_answered_ends(rules in rules(), choices in prop::collection::vec(any::<u16>(), 1_500)) {
        let life = RandomRun::begin(rules).drive(&choices, is_answer);
        prop_assert!(life.is_over(), "still in {:?}", life.fold.state.kind());
    }

    #[test]
    fn after_an_interrupt_nothing_is_sent(rules in rules(), before in choices(100), after in choices(50)) {
        let life = RandomRun::begin(rules).drive(&before, |_, _| true);
        // The deadlines of this moment come first, and may end the run.
        let now = life.fold.state.run().now;
        let life = life.apply(Event::Tick { now });
        let was_over = life.is_over();
        let life = life.apply(Event::Interrupt { signal: Signal::Terminate });
        let sent = life.sent.len();
        let life = life.drive(&after, |_, _| true);
        prop_assert_eq!(life.sent.len(), sent);
        let State::Done(done) = &life.fold.state else { panic!("not done") };
        prop_assert!(was_over || done.outcome.reason.exit_code() == 143);
    }

    #[test]
    fn the_same_life_twice_is_the_same(rules in rules(), choices in choices(200)) {
        let once = RandomRun::begin(rules.clone()).drive(&choices, |_, _| true);
        let twice = RandomRun::begin(rules).drive(&choices, |_, _| true);
        prop_assert_eq!(once.fold, twice.fold);
        prop_assert_eq!(once.sent, twice.sent);
    }

    /// Every state survives serialization.
    #[test]
    fn a_state_that_is_stored_comes_back(rules in rules(), choices in choices(60)) {
        let life = RandomRun::begin(rules).drive(&choices, |_, _| true);
        let json = serde_json::to_string(&life.fold.state).unwrap();
        prop_assert_eq!(&serde_json::from_str::<State>(&json).unwrap(), &life.fold.state);
        let json = serde_json::to_string(&life.fold.conversation).unwrap();
        prop_assert_eq!(&serde_json::from_str::<Conversation>(&json).unwrap(), &life.fold.conversation);
    }

    /// The invariants of a step, far from the start, under rules that the explorer doesn't have.
    #[test]
    fn the_invariants_of_a_step_hold_everywhere(rules in rules(), choices in choices(150)) {
        let mut state = architect::machine::start(rules, small_model::task()).state;
        for choice in choices {
            let mut events = small_model::events(&state, EventSet::All);
            let event = events.swap_remove(usize::from(choice) % events.len());
            let next = architect::machine::step(state.clone(), event.clone());
            let mut broken = invariants::violations(&state, &event, &next);
            broken.extend(liveness::violations(&state, &event, &next));
            prop_assert!(broken.is_empty(), "{:?}", broken);
            state = next.state;
        }
    }
}

#[test]
fn a_run_that_repeats_itself_ends_as_a_loop() {
    let rules = RunRules::default();
    let mut life = RandomRun::begin(rules);
    let reply = small_model::reply(vec![small_model::call("c", "{}")], ReplyFinish::ToolCalls);
    while !life.is_over() {
        let events = small_model::events(&life.fold.state, EventSet::All);
        let mut awaited = events.into_iter().filter(|event| life.fold.state.awaits(event));
        let event = match awaited.next().expect("an effect is pending") {
            Event::Replied { id, .. } => {
                Event::Replied { id, reply: reply.clone(), access: [CallAccess::read("a")].into() }
            }
            event => event,
        };
        drop(awaited);
        life = life.apply(event);
    }
    let State::Done(done) = &life.fold.state else { panic!() };
    assert_eq!(done.outcome.reason.name(), "loop_detected");
    assert_eq!(done.run.steps, 5);
    assert!(matches!(done.outcome.reason, StopReason::Closed(_)));
    let warned = life.fold.conversation.entries().iter().filter(|entry| {
        matches!(&entry.item, ConversationItem::User(message) if message.text.starts_with("[STEERING] You have made"))
    });
    assert_eq!(warned.count(), 1);
}
