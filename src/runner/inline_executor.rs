//! An executor without threads, on a simulated clock, for tests and benchmarks.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::executor::{DriverInput, EffectTask, Executor};
use crate::machine::Deadline;
use crate::port::{CancellationToken, Clock, EffectContext, Sleep, lock};
use crate::types::{RunTime, TimeSpan};

/// Runs each task immediately. The waits of a task delay its inputs; earlier deadlines come first.
#[derive(Default)]
pub struct InlineExecutor {
    clock: Arc<VirtualClock>,
    /// The inputs by time and, for equal times, in the order in which they were scheduled.
    scheduled: BTreeMap<(RunTime, u64), DriverInput>,
    /// Inputs that tasks have sent after their ends, such as the ends of background commands.
    late: Arc<Mutex<Vec<DriverInput>>>,
    next_order: u64,
}

/// A clock that only advances when every task waits.
#[derive(Debug, Default)]
pub struct VirtualClock(AtomicU64);

impl InlineExecutor {
    /// Creates an executor whose clock starts at zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an executor whose clock continues from this time of a stored session.
    pub fn resume(from: RunTime) -> Self {
        let inline = Self::default();
        inline.clock.advance(from);
        inline
    }

    /// Schedules the inputs that tasks have sent after their ends.
    fn schedule_late(&mut self) {
        let late = std::mem::take(&mut *lock(&self.late));
        late.into_iter().for_each(|input| self.schedule(self.clock.now(), input));
    }

    /// Schedules an input for a certain time.
    pub fn schedule(&mut self, at: RunTime, input: DriverInput) {
        self.scheduled.insert((at, self.next_order), input);
        self.next_order += 1;
    }
}

impl Executor for InlineExecutor {
    fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock) as Arc<dyn Clock>
    }

    fn start(&mut self, work: EffectTask) {
        let (started_at, late) = (self.clock.now(), Arc::clone(&self.late));
        let (waited, inputs) = (AtomicU64::default(), Mutex::new(Some(Vec::new())));
        let task = Arc::new(InlineTask { started_at, waited, inputs, late });
        let (sender, id) = (Arc::clone(&task), work.id);
        let scope = EffectContext::new(work.cancel, Arc::clone(&task) as Arc<dyn Sleep>)
            .with_messages(move |message| sender.send(DriverInput::from_message(id, message)));
        let last = (work.run)(&scope, &|input| task.send(input));
        task.send(last);
        let inputs = lock(&task.inputs).take();
        for (at, input) in inputs.into_iter().flatten() {
            self.schedule(at, input);
        }
    }

    fn wait_input(&mut self, deadline: Option<Deadline>) -> Option<DriverInput> {
        self.schedule_late();
        let due = deadline.map(|deadline| deadline.at);
        match self.scheduled.first_entry() {
            Some(next) if due.is_none_or(|due| next.key().0 < due) => {
                self.clock.advance(next.key().0);
                Some(next.remove())
            }
            Some(_) | None => {
                self.clock.advance(due?);
                None
            }
        }
    }

    fn try_input(&mut self) -> Option<DriverInput> {
        self.schedule_late();
        let next = self.scheduled.first_entry()?;
        (next.key().0 <= self.clock.now()).then(|| next.remove())
    }

    fn wait_idle(&mut self, _: TimeSpan) -> bool {
        self.scheduled.clear();
        true
    }
}

impl VirtualClock {
    fn advance(&self, to: RunTime) {
        self.0.fetch_max(to.0, Ordering::Relaxed);
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> RunTime {
        RunTime(self.0.load(Ordering::Relaxed))
    }

    /// Returns the time since a fixed moment, so that two runs write the same records.
    fn wall_time(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_700_000_000) + Duration::from_micros(self.now().0)
    }
}

/// The context of a task: adds up its waits, and collects its inputs.
struct InlineTask {
    started_at: RunTime,
    waited: AtomicU64,
    /// The collected inputs; `None` once the task is over.
    inputs: Mutex<Option<Vec<(RunTime, DriverInput)>>>,
    late: Arc<Mutex<Vec<DriverInput>>>,
}

impl InlineTask {
    fn send(&self, input: DriverInput) {
        let at = self.started_at.after(TimeSpan(self.waited.load(Ordering::Relaxed)));
        match &mut *lock(&self.inputs) {
            Some(inputs) => inputs.push((at, input)),
            None => lock(&self.late).push(input),
        }
    }
}

impl Sleep for InlineTask {
    fn sleep(&self, span: TimeSpan, cancel: &CancellationToken) -> bool {
        self.waited.fetch_add(span.0, Ordering::Relaxed);
        cancel.is_cancelled()
    }
}
