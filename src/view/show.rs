//! All that is shown of a run, or of several that belong together, and its end on every way out of the program.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::about::About;
use super::output::Output;
use super::public::Projector;
use super::result::{RunResult, Tally};
use super::writer::{Lost, Patience};
use crate::machine::StopReason;
use crate::port::{Gone, Notice, Observer, Seen};

/// What is shown. Whoever starts a run keeps it, so that there is a last line also when the run breaks down.
#[derive(Clone)]
pub struct Show(Arc<Mutex<Inner>>);

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
        Self(Arc::new(Mutex::new(Inner { outputs, runs: Vec::new() })))
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
        Watcher { show: self.clone(), run }
    }

    /// Returns the results of the runs so far; one that has not told how it ended has broken down for this reason.
    pub fn results(&self, reason: StopReason, error: &str) -> Vec<RunResult> {
        self.lock().results(reason, error)
    }

    /// Tells everybody the result, and waits for them. What comes after it is not shown.
    ///
    /// # Errors
    ///
    /// Fails when an output could not be written, or not in time.
    pub fn finish(&self, result: &RunResult, patience: Patience) -> Result<(), Lost> {
        let outputs = std::mem::take(&mut self.lock().outputs);
        finish(outputs, result, patience)
    }

    /// Tells everybody that the process ends at once, for this reason; called on another thread than the driver's.
    pub fn farewell(&self, reason: StopReason) {
        let until = Instant::now() + FAREWELL;
        let mut inner = loop {
            match self.0.try_lock() {
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
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
