//! All that is shown of a run, or of several that belong together, and its end on every way out of the program.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{RecvTimeoutError, bounded, select};

use super::background_writer::{FinishTimeout, OutputError};
use super::public::EventProjector;
use super::result::{RunResult, RunResultBuilder};
use super::run_info::RunInfo;
use super::sink::ReportSink;
use crate::machine::StopReason;
use crate::model::Signal;
use crate::port::{CancellationToken, Disconnected, EffectNotice, Observer, RunEvent};

/// What is shown. Whoever starts a run keeps it, so that there is a last line also when the run breaks down.
#[derive(Clone)]
pub struct Reporter {
    inner: Arc<Mutex<ReporterState>>,
    /// Never held for long, so that signals don't wait for what is shown.
    signals: Arc<Mutex<SignalState>>,
}

/// What is known for the time after the runs.
#[derive(Default)]
struct SignalState {
    /// How many runs are under way.
    active_runs: usize,
    /// The signal that has come since the last one of them was over.
    signal: Option<Signal>,
    /// Cancelled when such a signal comes.
    stop_waiting: CancellationToken,
}

/// Watches one run of a show.
pub struct RunReporter {
    reporter: Reporter,
    run_index: usize,
}

struct ReporterState {
    sinks: Vec<Box<dyn ReportSink>>,
    runs: Vec<ReportedRun>,
}

struct ReportedRun {
    projector: EventProjector,
    result: RunResultBuilder,
}

/// How long a process that is told to end at once still waits for its readers.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(200);

impl Reporter {
    /// Returns a show with these outputs; what one of them has to write before another goes before it.
    pub fn new(outputs: Vec<Box<dyn ReportSink>>) -> Self {
        let inner = ReporterState { sinks: outputs, runs: Vec::new() };
        Self { inner: Arc::new(Mutex::new(inner)), signals: Arc::default() }
    }

    /// Adds an output, before the first run.
    pub fn add_sink(&self, output: Box<dyn ReportSink>) {
        // What the user reads last is written last.
        self.lock().sinks.insert(0, output);
    }

    /// Returns the observer of the next run. Its events are numbered after those of the runs before it.
    pub fn observe_run(&self, about: RunInfo) -> RunReporter {
        let about = Arc::new(about);
        let mut inner = self.lock();
        let seq = inner.runs.last().map_or(0, |run| run.projector.seq());
        let projector = EventProjector::new(Arc::clone(&about), seq);
        inner.runs.push(ReportedRun { projector, result: RunResultBuilder::new(about) });
        let run = inner.runs.len() - 1;
        drop(inner);
        let mut after = self.signals();
        // What came in between, this run hears of in another way.
        *after = SignalState { active_runs: after.active_runs + 1, ..SignalState::default() };
        drop(after);
        RunReporter { reporter: self.clone(), run_index: run }
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
    pub fn finish(&self, result: &RunResult, patience: FinishTimeout) -> Result<(), OutputError> {
        let outputs = std::mem::take(&mut self.lock().sinks);
        let (hand, handed) = bounded::<(Vec<Box<dyn ReportSink>>, RunResult)>(1);
        let (tell, told) = bounded(1);
        let writing = move || {
            for (outputs, result) in handed {
                let _ = tell.send(finish_sinks(outputs, &result, patience));
            }
        };
        if thread::Builder::new().name("finish".to_owned()).spawn(writing).is_err() {
            return finish_sinks(outputs, result, patience);
        }
        let _ = hand.send((outputs, result.clone()));
        let (stop, stopped) = bounded::<()>(0);
        let hurry = self.signals().stop_waiting.clone();
        let stop = Mutex::new(Some(stop));
        let _guard = hurry.on_cancel(move || drop(stop.lock().map(|mut stop| stop.take())));
        let broken = || OutputError::Failed("writing broke down".into());
        select! {
            recv(told) -> told => told.unwrap_or_else(|_| Err(broken())),
            recv(stopped) -> _ => match told.recv_timeout(SHUTDOWN_TIMEOUT) {
                Ok(told) => told,
                Err(RecvTimeoutError::Timeout) => Err(OutputError::Stalled),
                Err(RecvTimeoutError::Disconnected) => Err(broken()),
            },
        }
    }

    /// Takes notice of a signal, for when no run is under way that it could be meant for.
    pub fn on_signal(&self, signal: Signal) {
        let mut after = self.signals();
        if after.active_runs > 0 {
            return;
        }
        after.signal.get_or_insert(signal);
        let hurry = after.stop_waiting.clone();
        drop(after);
        hurry.cancel();
    }

    /// Returns the signal that has come since the last run was over.
    pub fn signal(&self) -> Option<Signal> {
        self.signals().signal
    }

    /// Tells everybody that the process ends at once, for this reason; called on another thread than the driver's.
    pub fn report_shutdown(&self, reason: StopReason) {
        let until = Instant::now() + SHUTDOWN_TIMEOUT;
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
        let outputs = std::mem::take(&mut inner.sinks);
        drop(inner);
        if let Some(result) = RunResult::join(&results, results.len().saturating_sub(1)) {
            let _ = finish_sinks(outputs, &result, FinishTimeout::AtMost(SHUTDOWN_TIMEOUT));
        }
    }

    /// A panic under the lock leaves everything as told so far; that is still worth an end.
    fn lock(&self) -> MutexGuard<'_, ReporterState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn signals(&self) -> MutexGuard<'_, SignalState> {
        self.signals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReporterState {
    fn results(&self, reason: StopReason, error: &str) -> Vec<RunResult> {
        self.runs.iter().map(|run| run.result.result((reason, error))).collect()
    }

    fn on_event(&mut self, run: usize, seen: &RunEvent<'_>) -> Result<(), Disconnected> {
        let Self { sinks: outputs, runs } = self;
        let Some(run) = runs.get_mut(run) else { return Ok(()) };
        if let RunEvent::Notice { id, notice: EffectNotice::Progress { text }, .. } = seen {
            for output in &mut *outputs {
                output.on_progress(*id, text);
            }
        }
        let mut told = Ok(());
        for event in run.projector.project(seen) {
            run.result.on_event(&event);
            for output in &mut *outputs {
                told = told.and(output.on_event(&event));
            }
        }
        told
    }
}

impl Observer for RunReporter {
    fn on_event(&mut self, seen: &RunEvent<'_>) -> Result<(), Disconnected> {
        self.reporter.lock().on_event(self.run_index, seen)
    }
}

impl Drop for RunReporter {
    fn drop(&mut self) {
        let mut after = self.reporter.signals();
        after.active_runs = after.active_runs.saturating_sub(1);
    }
}

/// One after the other, so that a log is complete before an answer follows it on the same terminal.
fn finish_sinks(
    outputs: Vec<Box<dyn ReportSink>>,
    result: &RunResult,
    patience: FinishTimeout,
) -> Result<(), OutputError> {
    let begun = Instant::now();
    let mut finished = Ok(());
    for mut output in outputs {
        // Whether it was told is seen when it finishes.
        let _ = output.on_result(result);
        finished = finished.and(output.finish(patience.remaining_after(begun.elapsed())));
    }
    finished
}
