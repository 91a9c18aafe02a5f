//! An executor with threads: a reused thread for model calls, and a pool for tools.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};
use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};

use super::executor::{DriverInput, EffectTask, Executor, TaskThread};
use crate::machine::Deadline;
use crate::port::{CancellationToken, Clock, EffectContext, Sleep, panic_message};
use crate::types::TimeSpan;

/// Runs tasks on threads, and receives all inputs through one channel.
pub struct ThreadExecutor {
    clock: Arc<dyn Clock>,
    inbox: Receiver<DriverInput>,
    sender: DriverInputSender,
    /// Sends a task to the newest call thread, if that thread waits for a task. The thread ends when this is dropped.
    call_thread: Option<Sender<ThreadTask>>,
    pool: Option<ThreadPool>,
    pool_size: usize,
    /// Every task holds a sender. Once all are dropped, no task runs.
    running: (Sender<()>, Receiver<()>),
}

/// Sends inputs to the driver.
#[derive(Clone)]
pub struct DriverInputSender(Sender<DriverInput>);

/// The longest single wait. Deadlines count during a suspend and waits don't, so the time is checked again.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// Threads beyond the number of concurrent tools, for tools that never return.
const SPARE_WORKERS: usize = 4;

impl ThreadExecutor {
    /// Creates an executor that runs this number of tools concurrently.
    pub fn new(clock: Arc<dyn Clock>, parallel: u32) -> Self {
        let (sender, inbox) = unbounded();
        Self {
            clock,
            inbox,
            sender: DriverInputSender(sender),
            call_thread: None,
            pool: None,
            pool_size: parallel.clamp(1, 64) as usize + SPARE_WORKERS,
            running: bounded(0),
        }
    }

    /// Returns a sender of inputs.
    pub fn inbox(&self) -> DriverInputSender {
        self.sender.clone()
    }

    /// Runs a task on the call thread, or on a new thread if the call thread is busy.
    fn run_on_call_thread(&mut self, body: ThreadTask) -> Result<(), String> {
        let body = match &self.call_thread {
            Some(waiting) => match waiting.try_send(body) {
                Ok(()) => return Ok(()),
                Err(refused) => refused.into_inner(),
            },
            None => body,
        };
        let (tasks, bodies) = bounded::<ThreadTask>(0);
        let work = move || {
            body();
            bodies.into_iter().for_each(|body| body());
        };
        let started = thread::Builder::new().name("call".to_owned()).spawn(work);
        started.map_err(|error| format!("could not start a thread: {error}"))?;
        self.call_thread = Some(tasks);
        Ok(())
    }

    /// Runs a task on the pool, which is created with the first tool. The pool is smaller if the system has few threads
    /// left. If it has none, the task runs on the call thread.
    fn run_on_pool(&mut self, body: ThreadTask) -> Result<(), String> {
        if self.pool.is_none() {
            let sizes = std::iter::successors(Some(self.pool_size), |size| Some(size / 2));
            self.pool = sizes.take_while(|size| *size > 0).find_map(|size| build_pool(size).ok());
        }
        match &self.pool {
            Some(pool) => {
                pool.spawn(body);
                Ok(())
            }
            None => self.run_on_call_thread(body),
        }
    }
}

fn build_pool(threads: usize) -> Result<ThreadPool, ThreadPoolBuildError> {
    ThreadPoolBuilder::new()
        .num_threads(threads)
        .thread_name(|index| format!("tool-{index}"))
        // Without a handler an uncaught panic would end the process.
        .panic_handler(|panic| log::error!("a tool thread broke down: {}", panic_message(&*panic)))
        .build()
}

type ThreadTask = Box<dyn FnOnce() + Send>;

impl DriverInputSender {
    /// Sends an input. It is ignored once the run is over.
    pub fn send(&self, input: DriverInput) {
        let _ = self.0.send(input);
    }
}

impl Executor for ThreadExecutor {
    fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock)
    }

    fn start(&mut self, work: EffectTask) {
        let EffectTask { id, thread: kind, cancel, run, on_failure: lost } = work;
        let (sender, alive) = (self.sender.clone(), self.running.0.clone());
        let lost = Arc::new(std::sync::Mutex::new(Some(lost)));
        let fail = {
            let (sender, lost) = (sender.clone(), Arc::clone(&lost));
            move |why: &str| {
                if let Some(lost) = lost.lock().ok().and_then(|mut lost| lost.take()) {
                    sender.send(lost(why));
                }
            }
        };
        let on_panic = fail.clone();
        let body = move || {
            let messages = sender.clone();
            let scope = real_time_context(cancel).with_messages(move |message| {
                messages.send(DriverInput::from_message(id, message));
            });
            let deliver = |input| sender.send(input);
            match catch_unwind(AssertUnwindSafe(|| run(&scope, &deliver))) {
                Ok(input) => sender.send(input),
                Err(panic) => on_panic(&format!("internal error: {}", panic_message(&*panic))),
            }
            drop(alive);
        };
        let started = match kind {
            TaskThread::Dedicated => self.run_on_call_thread(Box::new(body)),
            TaskThread::Pool => self.run_on_pool(Box::new(body)),
        };
        if let Err(why) = started {
            fail(&why);
        }
    }

    fn wait_input(&mut self, deadline: Option<Deadline>) -> Option<DriverInput> {
        loop {
            let left = deadline.map(|deadline| deadline.at.since(self.clock.now()));
            if left == Some(TimeSpan::ZERO) {
                return self.try_input();
            }
            let most = left.map_or(MAX_WAIT, |left| Duration::from(left).min(MAX_WAIT));
            match self.inbox.recv_deadline(Instant::now() + most) {
                Ok(input) => return Some(input),
                Err(RecvTimeoutError::Timeout) => {}
                // The driver's own sender is never dropped before the driver.
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    fn try_input(&mut self) -> Option<DriverInput> {
        self.inbox.try_recv().ok()
    }

    fn wait_idle(&mut self, grace: TimeSpan) -> bool {
        let (sender, _) = bounded(0);
        drop(std::mem::replace(&mut self.running.0, sender));
        let gone = self.running.1.recv_timeout(grace.into());
        gone == Err(RecvTimeoutError::Disconnected)
    }
}

/// Returns a context that waits in real time and has no receivers.
pub fn real_time_context(cancel: CancellationToken) -> EffectContext {
    EffectContext::new(cancel, Arc::new(RealTimeSleep))
}

/// Waits in real time.
struct RealTimeSleep;

impl Sleep for RealTimeSleep {
    fn sleep(&self, span: TimeSpan, cancel: &CancellationToken) -> bool {
        cancel.wait_for(span.into())
    }
}
