//! The output of one run, or of several related ones, completed on every way out of the program.

use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{RecvTimeoutError, bounded, select};

use super::background_writer::OutputError;
use super::public_events::{EventProjector, PublicEvent};
use super::result::{RunResult, RunResultBuilder, UnappliedWork};
use super::run_info::RunInfo;
use super::sink::{LiveEvent, ReportSink};
use crate::machine::{Effect, StopReason};
use crate::port::{
    CancellationToken, Disconnected, EffectNotice, Observer, ReplyDelta, RunEvent, lock,
};
use crate::tools::ShownDiffs;
use crate::types::{CallId, Signal};

/// The output of the program. It is kept by the caller that starts a run, so that it is completed even if the run
/// breaks down.
#[derive(Clone)]
pub struct Reporter {
    inner: Arc<Mutex<ReporterState>>,
    /// Held only for short times, so that signals don't wait for the output.
    signals: Arc<Mutex<SignalState>>,
}

/// The state of signals between runs.
#[derive(Default)]
struct SignalState {
    /// The number of active runs.
    active_runs: usize,
    /// The signal received since the last run ended.
    signal: Option<Signal>,
    /// Cancelled when that signal is received.
    stop_waiting: CancellationToken,
}

/// Observes one run.
pub struct RunReporter {
    reporter: Reporter,
    run_index: usize,
}

/// Forwards the events of a parallel run.
struct ParallelSink(Reporter);

impl ReportSink for ParallelSink {
    fn on_event(&mut self, event: &PublicEvent) -> Result<(), Disconnected> {
        self.0.lock().sinks.iter_mut().try_for_each(|sink| sink.on_parallel_event(event))
    }
}

struct ReporterState {
    sinks: Vec<Box<dyn ReportSink>>,
    runs: Vec<ReportedRun>,
}

struct ReportedRun {
    projector: EventProjector,
    result: RunResultBuilder,
}

/// Timeout for the readers of the output when the process ends at once.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(200);

/// The minimum time that a reader gets.
const WRITE_TIMEOUT: Duration = Duration::from_millis(50);

impl Reporter {
    /// Returns a reporter with these sinks. They complete their output in this order.
    pub fn new(sinks: Vec<Box<dyn ReportSink>>) -> Self {
        let inner = ReporterState { sinks, runs: Vec::new() };
        Self { inner: Arc::new(Mutex::new(inner)), signals: Arc::default() }
    }

    /// Adds a sink, before the first run.
    pub fn add_sink(&self, sink: Box<dyn ReportSink>) {
        // Inserted first, since the output of the existing sinks is read last, and so has to be written last.
        self.lock().sinks.insert(0, sink);
    }

    /// Returns the observer of the next run. Its events are numbered after those of the previous runs.
    pub fn observe_run(&self, info: RunInfo) -> RunReporter {
        let info = Arc::new(info);
        let mut inner = self.lock();
        let seq = inner.runs.last().map_or(0, |run| run.projector.seq());
        let projector = EventProjector::new(Arc::clone(&info), seq);
        inner.runs.push(ReportedRun { projector, result: RunResultBuilder::new(info) });
        let run = inner.runs.len() - 1;
        drop(inner);
        let mut after = self.signals();
        // The run handles signals that come during it.
        *after = SignalState { active_runs: after.active_runs + 1, ..SignalState::default() };
        drop(after);
        RunReporter { reporter: self.clone(), run_index: run }
    }

    /// Shows an activity before a run has begun.
    pub fn show_live(&self, live: &LiveEvent<'_>) {
        self.lock().sinks.iter_mut().for_each(|sink| sink.on_live(live));
    }

    /// Returns a sink for a run in parallel with those of this reporter. Its events are only sent to streams of events.
    pub fn parallel_sink(&self) -> impl ReportSink + use<> {
        ParallelSink(self.clone())
    }

    /// Returns the changes of files that the sinks show as diffs.
    pub fn shown_diffs(&self) -> ShownDiffs {
        let all = self.lock().sinks.iter().any(|sink| sink.shown_diffs() == ShownDiffs::All);
        if all { ShownDiffs::All } else { ShownDiffs::DryRun }
    }

    /// Adds unapplied work of sub-agents to the result of the newest run.
    pub fn add_unapplied_work(&self, work: Vec<UnappliedWork>) {
        if let Some(run) = self.lock().runs.last_mut() {
            run.result.add_unapplied_work(work);
        }
    }

    /// Returns the results of the runs so far. A run without an end is reported as broken down for this reason.
    pub fn results(&self, reason: StopReason, error: &str) -> Vec<RunResult> {
        self.lock().results(reason, error)
    }

    /// Returns the result of the newest run.
    pub fn last_result(&self) -> RunResult {
        let broken = "the run left no result";
        let newest = self.results(StopReason::InternalError, broken).pop();
        newest.unwrap_or_else(|| RunResult::not_started(broken))
    }

    /// Passes the result to all sinks and waits for them, up to `timeout` if there is one, and only briefly once a
    /// signal is received. Later events are dropped.
    ///
    /// # Errors
    ///
    /// Fails if an output could not be written, or not in time.
    pub fn finish(&self, result: &RunResult, timeout: Option<Duration>) -> Result<(), OutputError> {
        let sinks = Arc::new(Mutex::new(std::mem::take(&mut self.lock().sinks)));
        let (shared, own_result) = (Arc::clone(&sinks), result.clone());
        let (done_sender, done) = bounded(1);
        let writing = move || {
            let sinks = std::mem::take(&mut *lock(&shared));
            let _ = done_sender.send(finish_sinks(sinks, &own_result, timeout));
        };
        if thread::Builder::new().name("finish".to_owned()).spawn(writing).is_err() {
            return finish_sinks(std::mem::take(&mut *lock(&sinks)), result, timeout);
        }
        let (stop, stopped) = bounded::<()>(0);
        let stop_waiting = self.signals().stop_waiting.clone();
        let stop = Mutex::new(Some(stop));
        let _guard = stop_waiting.on_cancel(move || drop(stop.lock().map(|mut stop| stop.take())));
        let broken = || OutputError::Failed("the writer failed".into());
        select! {
            recv(done) -> done => done.unwrap_or_else(|_| Err(broken())),
            recv(stopped) -> _ => match done.recv_timeout(SHUTDOWN_TIMEOUT) {
                Ok(done) => done,
                Err(RecvTimeoutError::Timeout) => Err(OutputError::Stalled),
                Err(RecvTimeoutError::Disconnected) => Err(broken()),
            },
        }
    }

    /// Returns the sinks for the run of a sub-agent dispatched by a call.
    pub fn subagent_sinks(&self, call: &CallId) -> Vec<Box<dyn ReportSink>> {
        self.lock().sinks.iter().filter_map(|sink| sink.subagent_sink(call)).collect()
    }

    /// Records a signal received while no run is active.
    pub fn on_signal(&self, signal: Signal) {
        let mut after = self.signals();
        if after.active_runs > 0 {
            return;
        }
        after.signal.get_or_insert(signal);
        let stop_waiting = after.stop_waiting.clone();
        drop(after);
        stop_waiting.cancel();
    }

    /// Returns the signal received since the last run ended.
    pub fn signal(&self) -> Option<Signal> {
        self.signals().signal
    }

    /// Completes the output when the process ends at once, with this stop reason. Called on another thread than the
    /// driver's.
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
        let results = inner.results(reason, "the process was terminated");
        let sinks = std::mem::take(&mut inner.sinks);
        drop(inner);
        if let Some(result) = RunResult::join(&results, results.len().saturating_sub(1)) {
            let _ = finish_sinks(sinks, &result, Some(SHUTDOWN_TIMEOUT));
        }
    }

    /// Locks the state, even after a panic under the lock: the output is still worth completing.
    fn lock(&self) -> MutexGuard<'_, ReporterState> {
        lock(&self.inner)
    }

    fn signals(&self) -> MutexGuard<'_, SignalState> {
        lock(&self.signals)
    }
}

impl ReporterState {
    fn results(&self, reason: StopReason, error: &str) -> Vec<RunResult> {
        self.runs.iter().map(|run| run.result.result((reason, error))).collect()
    }

    fn on_event(&mut self, run: usize, event: &RunEvent<'_>) -> Result<(), Disconnected> {
        let Self { sinks, runs } = self;
        let Some(run) = runs.get_mut(run) else { return Ok(()) };
        for live in live_events(event) {
            sinks.iter_mut().for_each(|sink| sink.on_live(&live));
        }
        for sink in &mut *sinks {
            sink.on_run_event(event);
        }
        let mut done = Ok(());
        for event in run.projector.project(event) {
            run.result.on_event(&event);
            for sink in &mut *sinks {
                done = done.and(sink.on_event(&event));
            }
        }
        done
    }
}

/// Returns the live events for an event of a run, besides its public events.
fn live_events<'a>(event: &RunEvent<'a>) -> Vec<LiveEvent<'a>> {
    match *event {
        RunEvent::Notice { id, notice, .. } => match notice {
            EffectNotice::Progress { text } => vec![LiveEvent::Progress { effect: id, text }],
            EffectNotice::Output { call, text } => vec![LiveEvent::Output { call, text }],
            EffectNotice::Diff { call, diff } => vec![LiveEvent::Diff { call, diff }],
            EffectNotice::Hook(_)
            | EffectNotice::SubagentDenied(_)
            | EffectNotice::Warning { .. } => Vec::new(),
        },
        RunEvent::ReplyDelta { delta: ReplyDelta::Reasoning(text), .. } => {
            vec![LiveEvent::Reasoning(text)]
        }
        RunEvent::Handled { output, machine, .. } => {
            let runs = output.effects.iter().filter_map(|effect| match effect {
                Effect::RunTool { id, call, .. } => {
                    Some(LiveEvent::CallRuns { effect: *id, call: &call.id })
                }
                _ => None,
            });
            let run = machine.state.run();
            let cost = run.rules.price.map(|_| run.used.cost);
            let used = LiveEvent::Used { cost, window: run.rules.context.window };
            runs.chain([used]).collect()
        }
        RunEvent::Started { .. } | RunEvent::ReplyDelta { .. } | RunEvent::Ended { .. } => {
            Vec::new()
        }
    }
}

impl Observer for RunReporter {
    fn on_event(&mut self, event: &RunEvent<'_>) -> Result<(), Disconnected> {
        self.reporter.lock().on_event(self.run_index, event)
    }
}

impl Drop for RunReporter {
    fn drop(&mut self) {
        let mut after = self.reporter.signals();
        after.active_runs = after.active_runs.saturating_sub(1);
    }
}

/// Finishes the sinks one after the other, so that a log is complete before an answer follows it on the same terminal.
fn finish_sinks(
    sinks: Vec<Box<dyn ReportSink>>,
    result: &RunResult,
    timeout: Option<Duration>,
) -> Result<(), OutputError> {
    let started = Instant::now();
    let mut finished = Ok(());
    for mut sink in sinks {
        // `finish` reports a failure.
        let _ = sink.on_result(result);
        let left = timeout.map(|most| most.saturating_sub(started.elapsed()).max(WRITE_TIMEOUT));
        finished = finished.and(sink.finish(left));
    }
    finished
}
