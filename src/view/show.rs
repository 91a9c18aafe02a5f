//! All that is shown of a run, or of several that belong together, and its end on every way out of the program.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{RecvTimeoutError, bounded, select};

use super::about::About;
use super::output::Output;
use super::public::Projector;
use super::result::{RunResult, Tally};
use super::writer::{Lost, Patience};
use crate::machine::StopReason;
use crate::model::Signal;
use crate::port::{Cancel, Gone, Notice, Observer, Seen};

/// What is shown. Whoever starts a run keeps it, so that there is a last line also when the run breaks down.
#[derive(Clone)]
pub struct Show {
    inner: Arc<Mutex<Inner>>,
    /// Never held for long, so that signals don't wait for what is shown.
    after: Arc<Mutex<After>>,
}

/// What is known for the time after the runs.
#[derive(Default)]
struct After {
    /// How many runs are under way.
    live: usize,
    /// The signal that has come since the last one of them was over.
    signal: Option<Signal>,
    /// Cancelled when such a signal comes.
    hurry: Cancel,
}

/// Watches one run of a show.
pub struct Watcher {
    show: Show,
    run: usize,
}

struct Inner {
    outputs: Vec<Box<dyn Output>>,
    runs: Vec<Run>,
}

struct Run {
    projector: Projector,
    tally: Tally,
}

/// How long a process that is told to end at once still waits for its readers.
const FAREWELL: Duration = Duration::from_millis(200);

impl Show {
    /// Returns a show with these outputs; what one of them has to write before another goes before it.
    pub fn new(outputs: Vec<Box<dyn Output>>) -> Self {
        let inner = Inner { outputs, runs: Vec::new() };
        Self { inner: Arc::new(Mutex::new(inner)), after: Arc::default() }
    }

    /// Adds an output, before the first run.
    pub fn add(&self, output: Box<dyn Output>) {
        // What the user reads last is written last.
        self.lock().outputs.insert(0, output);
    }

    /// Returns the observer of the next run. Its events are numbered after those of the runs before it.
    pub fn watch(&self, about: About) -> Watcher {
        let about = Arc::new(about);
        let mut inner = self.lock();
        let seq = inner.runs.last().map_or(0, |run| run.projector.seq());
        let projector = Projector::new(Arc::clone(&about), seq);
        inner.runs.push(Run { projector, tally: Tally::new(about) });
        let run = inner.runs.len() - 1;
        drop(inner);
        let mut after = self.after();
        // What came in between, this run hears of in another way.
        *after = After { live: after.live + 1, ..After::default() };
        drop(after);
        Watcher { show: self.clone(), run }
    }

    /// Returns the results of the runs so far; one that has not told how it ended has broken down for this reason.
    pub fn results(&self, reason: StopReason, error: &str) -> Vec<RunResult> {
        self.lock().results(reason, error)
    }

    /// Tells everybody the result, and waits for them, but not for long when a signal comes. What comes after it is not
    /// shown.
    ///
    /// # Errors
    ///
    /// Fails when an output could not be written, or not in time.
    pub fn finish(&self, result: &RunResult, patience: Patience) -> Result<(), Lost> {
        let outputs = std::mem::take(&mut self.lock().outputs);
        let (hand, handed) = bounded::<(Vec<Box<dyn Output>>, RunResult)>(1);
        let (tell, told) = bounded(1);
        let writing = move || {
            for (outputs, result) in handed {
                let _ = tell.send(finish(outputs, &result, patience));
            }
        };
        if thread::Builder::new().name("finish".to_owned()).spawn(writing).is_err() {
            return finish(outputs, result, patience);
        }
        let _ = hand.send((outputs, result.clone()));
        let (stop, stopped) = bounded::<()>(0);
        let hurry = self.after().hurry.clone();
        let stop = Mutex::new(Some(stop));
        let _guard = hurry.on_cancel(move || drop(stop.lock().map(|mut stop| stop.take())));
        let broken = || Lost::Failed("writing broke down".into());
        select! {
            recv(told) -> told => told.unwrap_or_else(|_| Err(broken())),
            recv(stopped) -> _ => match told.recv_timeout(FAREWELL) {
                Ok(told) => told,
                Err(RecvTimeoutError::Timeout) => Err(Lost::Stalled),
                Err(RecvTimeoutError::Disconnected) => Err(broken()),
            },
        }
    }

    /// Takes notice of a signal, for when no run is under way that it could be meant for.
    pub fn signalled(&self, signal: Signal) {
        let mut after = self.after();
        if after.live > 0 {
            return;
        }
        after.signal.get_or_insert(signal);
        let hurry = after.hurry.clone();
        drop(after);
        hurry.cancel();
    }

    /// Returns the signal that has come since the last run was over.
    pub fn signal(&self) -> Option<Signal> {
        self.after().signal
    }

    /// Tells everybody that the process ends at once, for this reason; called on another thread than the driver's.
    pub fn farewell(&self, reason: StopReason) {
        let until = Instant::now() + FAREWELL;
        let mut inner = loop {
            match self.inner.try_lock() {
                Ok(inner) => break inner,
                Err(std::sync::TryLockError::Poisoned(poisoned)) => break poisoned.into_inner(),
                Err(std::sync::TryLockError::WouldBlock) if Instant::now() < until => {
                    thread::sleep(Duration::from_millis(5));
                }
                Err(std::sync::TryLockError::WouldBlock) => return,
            }
        };
        let results = inner.results(reason, "the process was told to end at once");
        let outputs = std::mem::take(&mut inner.outputs);
        drop(inner);
        if let Some(result) = RunResult::joined(&results, results.len().saturating_sub(1)) {
            let _ = finish(outputs, &result, Patience::AtMost(FAREWELL));
        }
    }

    /// A panic under the lock leaves everything as told so far; that is still worth an end.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn after(&self) -> MutexGuard<'_, After> {
        self.after.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn results(&self, reason: StopReason, error: &str) -> Vec<RunResult> {
        self.runs.iter().map(|run| run.tally.result((reason, error))).collect()
    }

    fn see(&mut self, run: usize, seen: &Seen<'_>) -> Result<(), Gone> {
        let Self { outputs, runs } = self;
        let Some(run) = runs.get_mut(run) else { return Ok(()) };
        if let Seen::Notice { id, notice: Notice::Progress { text }, .. } = seen {
            for output in &mut *outputs {
                output.progress(*id, text);
            }
        }
        let mut told = Ok(());
        for event in run.projector.see(seen) {
            run.tally.add(&event);
            for output in &mut *outputs {
                told = told.and(output.event(&event));
            }
        }
        told
    }
}

impl Observer for Watcher {
    fn see(&mut self, seen: &Seen<'_>) -> Result<(), Gone> {
        self.show.lock().see(self.run, seen)
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let mut after = self.show.after();
        after.live = after.live.saturating_sub(1);
    }
}

/// One after the other, so that a log is complete before an answer follows it on the same terminal.
fn finish(
    outputs: Vec<Box<dyn Output>>,
    result: &RunResult,
    patience: Patience,
) -> Result<(), Lost> {
    let begun = Instant::now();
    let mut finished = Ok(());
    for mut output in outputs {
        // Whether it was told is seen when it finishes.
        let _ = output.result(result);
        finished = finished.and(output.finish(patience.after(begun.elapsed())));
    }
    finished
}
