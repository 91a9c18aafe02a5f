//! The driver: the one loop that everything goes through.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use serde_json::Value;

use super::hands::{Arrival, Hands};
use crate::machine::{Effect, Event, Fold, Intent, Mark, Outcomes, State, Verdict};
use crate::model::{CallId, EffectId, Signal, Span, Time, UserMessage};
use crate::port::{
    CallTimes, Cancel, Checks, Clock, Delta, Gone, Job, Journal, Mailbox, Model, NoChecks,
    NoJournal, NoMail, NoPrelude, NoTools, Nobody, Observer, Prelude, Record, Seen, StoreError,
    ToolSpec, Toolbox, Vetted,
};

/// Drives one run from its first effects to its end.
pub struct Driver<H> {
    pub(super) hands: H,
    pub(super) ports: Ports,
    pub(super) brief: Brief,
    pub(super) fold: Fold,
    pub(super) clock: Arc<dyn Clock>,
    /// What is under way, with what ends it.
    pub(super) tokens: HashMap<EffectId, Cancel>,
    /// Calls that were cleared and wait for their turn to start.
    pub(super) jobs: HashMap<CallId, Cleared>,
    /// Completions that needed nobody's help.
    pub(super) done: VecDeque<Event>,
    /// What the call that is under way has said so far.
    pub(super) heard: String,
    /// Where the time of the call that is under way went so far.
    pub(super) timing: Option<Timing>,
    /// What is to be done, once what justifies it is durable.
    pending: Vec<Effect>,
    /// Where the run stands, for the record of what comes next.
    mark: Mark,
    store: Store,
    reader: Reader,
}

/// What a run needs of the world.
pub struct Ports {
    /// The model.
    pub model: Box<dyn Model>,
    /// The tools.
    pub tools: Arc<dyn Toolbox>,
    /// Where the run is written down.
    pub journal: Box<dyn Journal>,
    /// Who watches.
    pub observer: Box<dyn Observer>,
    /// Where messages for the run arrive.
    pub mailbox: Box<dyn Mailbox>,
    /// What a final answer has to pass.
    pub checks: Arc<dyn Checks>,
    /// What is done before the model is called.
    pub prelude: Arc<dyn Prelude>,
}

impl Ports {
    /// Returns a model alone: no tools, nothing written down, nobody who watches.
    pub fn new(model: Box<dyn Model>) -> Self {
        Self {
            model,
            tools: Arc::new(NoTools),
            journal: Box::new(NoJournal),
            observer: Box::new(Nobody),
            mailbox: Box::new(NoMail),
            checks: Arc::new(NoChecks),
            prelude: Arc::new(NoPrelude),
        }
    }
}

/// What goes along with every request of a run.
#[derive(Clone, Debug)]
pub struct Brief {
    /// The system prompt.
    pub system: Arc<str>,
    /// The tools.
    pub tools: Arc<[ToolSpec]>,
    /// The JSON Schema of the final answer.
    pub schema: Option<Arc<Value>>,
}

/// A call that was cleared.
pub(super) struct Cleared {
    pub(super) job: Box<dyn Job>,
    pub(super) intent: Intent,
}

/// Where the time of a model call goes while it is under way.
#[derive(Clone, Copy)]
pub(super) struct Timing {
    pub(super) id: EffectId,
    /// When the request was written down.
    pub(super) ready: Time,
    pub(super) times: CallTimes,
}

/// Whether the journal can be relied on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Store {
    Sound,
    Failed,
}

/// Whether somebody reads what is shown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reader {
    Present,
    Gone,
}

/// How long the driver waits at the end for what it has cancelled.
const GRACE: Span = Span::secs(3);

impl Brief {
    /// Returns the bytes of the system prompt, which goes along with calls without tools too.
    pub(super) fn system_bytes(&self) -> u64 {
        self.system.len() as u64
    }

    /// Returns how many bytes go along with every request, for the estimate of its size.
    pub fn bytes(&self) -> u64 {
        let tool = |tool: &ToolSpec| {
            tool.name.len() + tool.description.len() + tool.schema.to_string().len()
        };
        (self.system.len() + self.tools.iter().map(tool).sum::<usize>()) as u64
    }
}

impl<H: Hands> Driver<H> {
    /// Returns a driver for a run that stands here.
    pub fn new(hands: H, ports: Ports, brief: Brief, fold: Fold) -> Self {
        Self {
            clock: hands.clock(),
            hands,
            ports,
            brief,
            tokens: HashMap::new(),
            jobs: HashMap::new(),
            done: VecDeque::new(),
            heard: String::new(),
            timing: None,
            pending: Vec::new(),
            mark: Mark::of(&fold, &[]),
            fold,
            store: Store::Sound,
            reader: Reader::Present,
        }
    }

    /// Drives the run to its end, and returns where it then stands.
    pub fn run(mut self, first: Outcomes) -> Fold {
        let begun = Seen::Begun { at: self.clock.now(), fold: &self.fold, outcomes: &first };
        let seen = self.ports.observer.see(&begun);
        self.noticed(seen);
        self.mark = Mark::of(&self.fold, &first.effects);
        self.pending = first.effects;
        loop {
            // What has arrived meanwhile is written down together, and made durable once.
            while let Some(arrival) = self.hands.ready() {
                self = self.take(arrival);
            }
            self = self.perform();
            if self.is_over() {
                break;
            }
            self = match self.done.pop_front() {
                Some(event) => self.accept(&event),
                None => match self.hands.wait(self.fold.deadline()) {
                    Some(arrival) => self.take(arrival),
                    None => self.accept_tick(),
                },
            };
        }
        if !self.hands.settle(self.grace()) {
            log::warn!("something that was cancelled is still running");
        }
        let ended = Seen::Ended { at: self.clock.now(), fold: &self.fold };
        let seen = self.ports.observer.see(&ended);
        self.noticed(seen);
        self.fold
    }

    /// Returns how long to wait for what was cancelled; never longer than the run may take.
    fn grace(&self) -> Span {
        let run = self.fold.state.run();
        let ends = run.rules.limits.timeout.map(|timeout| run.began.after(timeout));
        ends.map_or(GRACE, |ends| ends.since(self.clock.now()).min(GRACE))
    }

    fn is_over(&self) -> bool {
        matches!(self.fold.state, State::Done(_)) && self.pending.is_empty()
    }

    /// Takes in what arrived.
    fn take(mut self, arrival: Arrival) -> Self {
        match arrival {
            Arrival::Event(event) => self.accept(&event),
            Arrival::Vetted { id, call, vetted } => {
                let verdict = match vetted {
                    Vetted::Cleared { job, limit, intent, grounds } => {
                        self.jobs.insert(call, Cleared { job, intent: intent.clone() });
                        Verdict::Cleared { limit, intent, grounds }
                    }
                    Vetted::Refused(result) => Verdict::Refused { result },
                    Vetted::Abort => Verdict::Abort,
                };
                self.accept(&Event::Vetted { id, verdict })
            }
            Arrival::Prelude { id, messages } => self.accept_prepared(id, messages),
            Arrival::Delta { id, delta } => {
                if self.tokens.contains_key(&id) {
                    let at = self.clock.now();
                    match &delta {
                        Delta::Begun => self.begun(id, at),
                        Delta::Text(text) => self.heard.push_str(text),
                        Delta::Reasoning(_) => {}
                    }
                    let seen = self.ports.observer.see(&Seen::Delta { at, id, delta: &delta });
                    self.noticed(seen);
                }
                self
            }
            Arrival::Notice { id, notice } => {
                if self.tokens.contains_key(&id) {
                    let at = self.clock.now();
                    let seen = self.ports.observer.see(&Seen::Notice { at, id, notice: &notice });
                    self.noticed(seen);
                }
                self
            }
        }
    }

    fn accept_prepared(self, id: EffectId, messages: Vec<UserMessage>) -> Self {
        let facts = self.fold.facts(&messages, self.brief.system_bytes());
        self.accept(&Event::Prepared { id, facts, messages: messages.into() })
    }

    fn accept_tick(self) -> Self {
        let now = self.clock.now();
        self.accept(&Event::Tick { now })
    }

    /// Writes an event down, folds it, and keeps what follows from it for when it is durable.
    fn accept(mut self, event: &Event) -> Self {
        if let Some(id) = event.completes() {
            self.tokens.remove(&id);
        }
        if event.about().is_some() && !self.fold.state.awaits(event) {
            return self;
        }
        let at = self.clock.now();
        let call = event.completes().and_then(|id| self.times(id));
        match self.write(at, Record::Event { event, met: self.mark, call }) {
            Ok(()) => self.fold(at, event),
            Err(error) => self.store_failed(&error),
        }
    }

    fn fold(self, at: Time, event: &Event) -> Self {
        let (fold, outcomes) = self.fold.accept(at, event.clone());
        let mut driver = Self { fold, ..self };
        let seen = Seen::Event { at, event, fold: &driver.fold, outcomes: &outcomes };
        let seen = driver.ports.observer.see(&seen);
        driver.noticed(seen);
        driver.mark = Mark::of(&driver.fold, &outcomes.effects);
        driver.pending.extend(outcomes.effects);
        driver
    }

    /// Notes when the first byte of a reply came.
    fn begun(&mut self, id: EffectId, at: Time) {
        if let Some(timing) = self.timing.as_mut().filter(|timing| timing.id == id) {
            timing.times.first_byte.get_or_insert(at.since(timing.ready));
        }
    }

    /// Returns where the time of a call went that is over now; none when this is no model call.
    pub(super) fn times(&mut self, id: EffectId) -> Option<CallTimes> {
        self.timing.take_if(|timing| timing.id == id).map(|timing| timing.times)
    }

    /// Does what is pending, after making durable what justifies it.
    fn perform(mut self) -> Self {
        if self.pending.contains(&Effect::End) {
            self.write_end();
        }
        if self.pending.iter().any(|effect| self.has_to_be_durable(effect))
            && let Err(error) = self.sync()
        {
            self = self.store_failed(&error);
        }
        for effect in std::mem::take(&mut self.pending) {
            self.perform_one(effect);
        }
        self
    }

    /// Writes a record. Once the journal has failed, nobody relies on it any more, but the end of the run may still fit
    /// into what it has kept free.
    pub(super) fn write(&mut self, at: Time, record: Record<'_>) -> Result<(), StoreError> {
        let written = self.ports.journal.append(at, record);
        if self.store == Store::Failed { Ok(()) } else { written }
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        let synced = self.ports.journal.sync();
        if self.store == Store::Failed { Ok(()) } else { synced }
    }

    /// Writes how the run ended. That tells what the events before it say already, so it may be missing.
    fn write_end(&mut self) {
        let State::Done(done) = &self.fold.state else { return };
        let record = Record::Ended { done, met: self.mark };
        if let Err(error) = self.ports.journal.append(self.clock.now(), record) {
            log::warn!("the end of the run is not in its journal: {error}");
        }
    }

    /// The journal cannot be kept any more. That is the last event of the run.
    fn store_failed(mut self, error: &StoreError) -> Self {
        self.store = Store::Failed;
        if matches!(self.fold.state, State::Done(_)) {
            log::error!("the run is over, but its end may get lost: {error}");
        }
        let (at, met) = (self.clock.now(), self.mark);
        let event = Event::StoreFailed { error: Arc::clone(&error.0) };
        let _ = self.write(at, Record::Event { event: &event, met, call: None });
        self.fold(at, &event)
    }

    /// Ends the run when nobody reads any more what it shows.
    fn noticed(&mut self, seen: Result<(), Gone>) {
        if seen == Err(Gone) && self.reader == Reader::Present {
            self.reader = Reader::Gone;
            self.done.push_back(Event::Interrupt { signal: Signal::Pipe });
        }
    }
}
