//! Paths of the explorer, played through the real driver: model, tools, checks and journal are scripted, so that each effect
//! completes with the event of the path.
//!
//! Only the size of the next request is that of the path instead of the conversation's own.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use architect::machine::{
    Authorization, CallPurpose, CheckResult, Conversation, Deadline, Event, Machine, RequestSize,
    State, deadline, start, step,
};
use architect::port::{
    AnswerChecks, AuthorizationOutcome, CancellationToken, Clock, Disconnected, EffectContext,
    Journal, JournalRecord, Model, ModelCall, ModelRequest, Observer, PreCallHooks, PreparedCall,
    ReplyDelta, RunEvent, Sleep, StoreError, ToolSpec, Toolbox,
};
use architect::runner::{Driver, DriverInput, EffectTask, Executor, Ports, RequestContext};
use architect::types::{
    CallAccess, EffectId, Fault, ModelRules, Price, Reply, RunRules, RunTime, Signal, TimeSpan,
    Tokens, ToolCall, ToolResult, UserMessage,
};

use crate::chart::transition_number;
use crate::explorer::canonical;
use crate::small_model;

/// Plays a path of the explorer through the driver, which must take the transitions that the machine takes. Returns their
/// numbers in the chart.
pub(crate) fn play(rules: &RunRules, path: &[Event]) -> Vec<usize> {
    let (scaled, clock) = (scaled_rules(rules), Arc::new(ScriptedClock::default()));
    let (events, expected) = plan(rules, &scaled, path);
    let (script, taken) = (Script::default(), Arc::new(Mutex::new(Vec::new())));
    let tasks = HashMap::new();
    let executor =
        ScriptedExecutor { events, script: script.clone(), tasks, clock, is_interrupted: false };
    let ports = Ports {
        tools: Arc::new(script.clone()),
        journal: Box::new(script.clone()),
        observer: Box::new(TransitionRecorder { state: None, taken: Arc::clone(&taken) }),
        checks: Arc::new(script.clone()),
        pre_call_hooks: Arc::new(script.clone()),
        ..Ports::new(Box::new(script))
    };
    let context = RequestContext { system: "".into(), tools: [].into(), schema: None };
    let (machine, first) = Machine::start(scaled, Conversation::new(0), small_model::task());
    Driver::new(Box::new(executor), ports, context, machine).run(first);
    assert_eq!(*taken.lock().unwrap(), expected, "{path:#?}");
    expected
}

/// Returns the events of a path as they occur in a run, where ids and times are not canonical, and the numbers of the
/// transitions to which they lead. A path that doesn't end is interrupted.
fn plan(rules: &RunRules, scaled: &RunRules, path: &[Event]) -> (VecDeque<Event>, Vec<usize>) {
    let first = |rules: &RunRules| start(rules.clone(), small_model::task()).state;
    let (mut explored, mut played) = (canonical(first(rules)), first(scaled));
    let (mut events, mut taken) = (VecDeque::new(), Vec::new());
    let mut add = |played: State, event: Event| {
        let state = handle(played, &event, &mut taken);
        events.push_back(event);
        state
    };
    for event in path {
        let Some(scaled) = translate(event, &explored, &played) else { break };
        played = add(played, scaled);
        explored = canonical(step(explored, event.clone()).state);
    }
    if played.outcome().is_none() {
        add(played, Event::Interrupt { signal: Signal::Interrupt });
    }
    (events, taken)
}

/// Handles an event as [`Machine::handle`] does, and adds the transitions that are taken.
fn handle(mut state: State, event: &Event, taken: &mut Vec<usize>) -> State {
    let mut step = |state: State, event: Event| {
        taken.extend(transition_number(&state, &event));
        step(state, event).state
    };
    let now = if let Event::Tick { now } = event { *now } else { state.run().now };
    while state.outcome().is_none()
        && (state.run().now < now || deadline(&state).is_some_and(|due| due.at <= now))
    {
        state = step(state, Event::Tick { now });
    }
    if matches!(event, Event::Tick { .. }) { state } else { step(state, event.clone()) }
}

/// Translates an event to another state of the same kind, with other numbers of effects, another time and more tokens.
/// Returns `None` if the effect is not pending there.
fn translate(event: &Event, from: &State, to: &State) -> Option<Event> {
    let mut event = event.clone();
    match &mut event {
        Event::Tick { now } => *now = to.run().now.after(now.since(from.run().now)),
        Event::Interrupt { .. } | Event::StoreFailed { .. } | Event::InternalError { .. } => {}
        Event::Prepared { id, .. }
        | Event::Replied { id, .. }
        | Event::CallFailed { id, .. }
        | Event::Authorized { id, .. }
        | Event::ToolCompleted { id, .. }
        | Event::UsageReported { id, .. }
        | Event::CommandEnded { id, .. }
        | Event::Checked { id, .. } => {
            let position = from.pending_effects().iter().position(|pending| pending == id)?;
            *id = *to.pending_effects().get(position)?;
        }
    }
    match &mut event {
        Event::Prepared { size, .. } => {
            let RequestSize { estimate, upper_bound, shortened_estimate, .. } = size;
            [estimate, upper_bound, shortened_estimate].into_iter().for_each(scale);
        }
        Event::Replied { reply: Reply { usage, .. }, .. } | Event::UsageReported { usage, .. } => {
            [&mut usage.input, &mut usage.output].into_iter().for_each(scale);
        }
        _ => {}
    }
    Some(event)
}

/// Tokens of a run for each token of a small model. Requests have as many beside the conversation.
const SCALE: u64 = 1_000;

fn scale(tokens: &mut Tokens) {
    tokens.0 *= SCALE;
}

/// Returns the rules of a small model with `SCALE` times as many tokens, at a lower price for each.
fn scaled_rules(rules: &RunRules) -> RunRules {
    let mut rules = rules.clone();
    let cheaper = |price: &mut Option<Price>| {
        if let Some(price) = price {
            (price.input, price.output) = (price.input / SCALE, price.output / SCALE);
        }
    };
    let output = &mut rules.output;
    let amounts = [&mut output.model_limit, &mut output.minimum, &mut output.closing];
    amounts.into_iter().chain(&mut rules.limits.max_tokens).for_each(scale);
    scale(&mut rules.context.window);
    cheaper(&mut rules.price);
    let scaled = |model: &ModelRules| {
        let mut model = model.clone();
        [&mut model.window, &mut model.model_limit].into_iter().for_each(scale);
        cheaper(&mut model.price);
        model
    };
    rules.models = rules.models.iter().map(scaled).collect();
    rules
}

/// The ports of a run, which return the content of the next event.
#[derive(Clone, Default)]
struct Script(Arc<Mutex<ScriptState>>);

#[derive(Default)]
struct ScriptState {
    next: Option<Event>,
    store_error: Option<StoreError>,
}

impl Script {
    fn next(&self) -> Event {
        self.0.lock().unwrap().next.clone().expect("nothing runs yet")
    }
}

impl Model for Script {
    fn prepare(&mut self, _: &ModelRequest<'_>) -> Result<Box<dyn ModelCall>, Fault> {
        Ok(Box::new(self.clone()))
    }
}

impl ModelCall for Script {
    fn run(
        self: Box<Self>,
        _: &EffectContext,
        _: &mut dyn FnMut(ReplyDelta),
    ) -> Result<Reply, Fault> {
        match self.next() {
            Event::Replied { reply, .. } => Ok(reply),
            Event::CallFailed { fault, .. } => Err(fault),
            event => panic!("{event:?} for a model call"),
        }
    }
}

impl Toolbox for Script {
    fn specs(&self) -> Arc<[ToolSpec]> {
        [].into()
    }

    fn prepare(&self, call: &ToolCall) -> Box<dyn PreparedCall> {
        let access = match self.next() {
            Event::Replied { reply, access, .. } => {
                let index = reply.calls().position(|other| other.id == call.id);
                index.and_then(|index| access.get(index).cloned())
            }
            event => panic!("{event:?} for a call of {}", call.name),
        };
        let script = self.clone();
        <dyn PreparedCall>::from_fn(access.unwrap_or(CallAccess::Exclusive), move |_| match script
            .next()
        {
            Event::Authorized { authorization, .. } => script.outcome(authorization),
            event => panic!("{event:?} for an authorization"),
        })
    }
}

impl Script {
    fn outcome(self, authorization: Authorization) -> AuthorizationOutcome {
        match authorization {
            Authorization::Approved { timeout, intent, reason } => {
                let call = Box::new(move |_: &EffectContext| self.result());
                AuthorizationOutcome::Approved { call, timeout, intent, reason }
            }
            Authorization::Rejected { result } => AuthorizationOutcome::Rejected(result),
            Authorization::Abort => AuthorizationOutcome::Abort,
        }
    }

    fn result(&self) -> ToolResult {
        let event = self.next();
        let Event::ToolCompleted { result, .. } = event else { panic!("{event:?} for a tool") };
        result
    }
}

impl AnswerChecks for Script {
    fn check(&self, _: &str, _: &EffectContext) -> CheckResult {
        let event = self.next();
        let Event::Checked { result, .. } = event else { panic!("{event:?} for a check") };
        result
    }
}

/// There are hooks, so that a preparation is a task as any other effect.
impl PreCallHooks for Script {
    fn applies(&self, _: CallPurpose) -> bool {
        true
    }

    fn run(&self, _: CallPurpose, _: &EffectContext) -> Vec<UserMessage> {
        panic!("the size of the request is that of the path");
    }
}

impl Journal for Script {
    fn append(&mut self, _: RunTime, _: JournalRecord<'_>) -> Result<(), StoreError> {
        self.0.lock().unwrap().store_error.clone().map_or(Ok(()), Err)
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// Completes the effects in the order of the events, each when its event is next.
struct ScriptedExecutor {
    events: VecDeque<Event>,
    script: Script,
    tasks: HashMap<EffectId, EffectTask>,
    clock: Arc<ScriptedClock>,
    /// Whether the newest event interrupts the run.
    is_interrupted: bool,
}

impl Executor for ScriptedExecutor {
    fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock) as Arc<dyn Clock>
    }

    fn start(&mut self, work: EffectTask) {
        self.tasks.insert(work.id, work);
    }

    fn wait_input(&mut self, _: Option<Deadline>) -> Option<DriverInput> {
        let Some(event) = self.events.pop_front() else {
            // The run waits for sub-agents, which send nothing here.
            assert!(self.is_interrupted, "the run has ended");
            return None;
        };
        self.is_interrupted = matches!(
            event,
            Event::Interrupt { .. } | Event::Authorized { authorization: Authorization::Abort, .. }
        );
        match &event {
            Event::Tick { now } => {
                self.clock.0.store(now.0, Ordering::Relaxed);
                None
            }
            // The journal fails when the next event is written.
            Event::StoreFailed { error } => {
                self.script.0.lock().unwrap().store_error = Some(StoreError(Arc::clone(error)));
                None
            }
            Event::Interrupt { .. }
            | Event::InternalError { .. }
            | Event::UsageReported { .. }
            | Event::CommandEnded { .. }
            | Event::Prepared { .. } => Some(DriverInput::Event(event)),
            Event::Replied { id, .. }
            | Event::CallFailed { id, .. }
            | Event::Authorized { id, .. }
            | Event::ToolCompleted { id, .. }
            | Event::Checked { id, .. } => {
                let task = self.tasks.remove(id).expect("the effect was started");
                self.script.0.lock().unwrap().next = Some(event);
                let scope = EffectContext::new(task.cancel, Arc::new(NoSleep));
                Some((task.run)(&scope, &|_| {}))
            }
        }
    }

    fn try_input(&mut self) -> Option<DriverInput> {
        None
    }

    fn wait_idle(&mut self, _: TimeSpan) -> bool {
        true
    }
}

#[derive(Default)]
struct ScriptedClock(AtomicU64);

impl Clock for ScriptedClock {
    fn now(&self) -> RunTime {
        RunTime(self.0.load(Ordering::Relaxed))
    }

    fn wall_time(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_micros(self.now().0)
    }
}

struct NoSleep;

impl Sleep for NoSleep {
    fn sleep(&self, _: TimeSpan, _: &CancellationToken) -> bool {
        false
    }
}

/// Records the transitions that the driver's machine takes.
struct TransitionRecorder {
    /// The state before the next event.
    state: Option<State>,
    taken: Arc<Mutex<Vec<usize>>>,
}

impl Observer for TransitionRecorder {
    fn on_event(&mut self, seen: &RunEvent<'_>) -> Result<(), Disconnected> {
        match seen {
            RunEvent::Started { machine, .. } => self.state = Some(machine.state.clone()),
            RunEvent::Handled { event, machine, .. } => {
                let before = self.state.replace(machine.state.clone()).unwrap();
                let after = handle(before, event, &mut self.taken.lock().unwrap());
                assert!(after == machine.state, "{event:?} leads to another state");
            }
            RunEvent::Ended { .. } | RunEvent::ReplyDelta { .. } | RunEvent::Notice { .. } => {}
        }
        Ok(())
    }
}
