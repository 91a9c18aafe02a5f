//! Signals become events: the first one asks the run to stop, the second one ends the process.
//!
//! They are caught from the first moment of the process on. Until there is a run that can be asked, a signal ends the
//! process at once.

use std::process;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use thiserror::Error;

use super::executor::DriverInput;
use super::thread_executor::DriverInputSender;
use crate::machine::Event;
use crate::model::Signal;

/// Why signals cannot be listened to.
#[derive(Debug, Error)]
#[error("could not listen to signals: {0}")]
pub struct SignalError(#[from] std::io::Error);

/// What is done on a signal.
type SignalAction = Box<dyn Fn(Signal) + Send>;

/// Who is told of signals.
struct SignalListeners {
    /// Whether signals are caught.
    is_installed: bool,
    /// What is done before the process ends when there is no run. Without it the process ends as if nothing were caught.
    idle_action: Option<SignalAction>,
    /// The runs, the oldest first.
    runs: Vec<RunSignalListener>,
}

/// A run that is told of signals.
struct RunSignalListener {
    inbox: DriverInputSender,
    on_first: SignalAction,
    on_second: SignalAction,
    /// The signal that has asked it to stop.
    interrupted_by: Option<(i32, Instant)>,
}

static LISTENERS: Mutex<SignalListeners> =
    Mutex::new(SignalListeners { is_installed: false, idle_action: None, runs: Vec::new() });

/// How long the same signal once more is still the first one: `timeout` sends it to a process and then to its group, and
/// nobody presses a key twice in that time.
const REPEAT_WINDOW: Duration = Duration::from_millis(150);

/// Catches SIGINT, SIGTERM and SIGHUP from now on, on a thread of its own. Until there is a run, the process ends on the
/// first one. A signal that was ignored when the process began stays ignored (`nohup`).
///
/// # Errors
///
/// Fails when the system refuses the handlers or the thread. The signals then do what they did before.
pub fn install_handlers() -> Result<(), SignalError> {
    let mut listeners = lock_listeners();
    if listeners.is_installed {
        return Ok(());
    }
    let (send, signals) = std::sync::mpsc::channel::<Signals>();
    // The thread first: without it nothing must be caught.
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        let Ok(mut signals) = signals.recv() else { return };
        signals.forever().for_each(dispatch);
    })?;
    let ignored = ignored_signals();
    let caught =
        [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| ignored & signal_bit(*signal) == 0);
    let _ = send.send(Signals::new(caught)?);
    listeners.is_installed = true;
    Ok(())
}

/// Lets something be done before a signal ends the process that comes before the first run.
pub fn set_idle_action(action: impl Fn(Signal) + Send + 'static) {
    lock_listeners().idle_action = Some(Box::new(action));
}

/// Tells a run of signals from now on.
///
/// The first signal is put into the inbox, where a run finds it that is only about to begin; `first` is called with it
/// for whatever comes before and after the run. On the second one, but for an echo of the first, `farewell` is called with
/// it and the process ends at once, with the exit code of that signal.
///
/// # Errors
///
/// Fails when the signals can't be caught.
pub fn add_run(
    inbox: DriverInputSender,
    first: impl Fn(Signal) + Send + 'static,
    farewell: impl Fn(Signal) + Send + 'static,
) -> Result<(), SignalError> {
    install_handlers()?;
    let (first, farewell) = (Box::new(first), Box::new(farewell));
    lock_listeners().runs.push(RunSignalListener {
        inbox,
        on_first: first,
        on_second: farewell,
        interrupted_by: None,
    });
    Ok(())
}

/// Tells everybody of a signal.
fn dispatch(number: i32) {
    let signal = match number {
        SIGTERM => Signal::Terminate,
        SIGHUP => Signal::Hangup,
        _ => Signal::Interrupt,
    };
    let mut listeners = lock_listeners();
    if listeners.runs.is_empty() {
        match &listeners.idle_action {
            Some(before) => before(signal),
            // A shell wants to see what has ended the process. The first process of a container is not ended so.
            None if process::id() > 1 => drop(emulate_default_handler(number)),
            None => {}
        }
        process::exit(i32::from(signal.exit_code()));
    }
    for run in &mut listeners.runs {
        match run.interrupted_by {
            Some((before, at)) if before == number && at.elapsed() < REPEAT_WINDOW => continue,
            Some(_) => {
                (run.on_second)(signal);
                process::exit(i32::from(signal.exit_code()));
            }
            None => run.interrupted_by = Some((number, Instant::now())),
        }
        run.inbox.send(DriverInput::Event(Event::Interrupt { signal }));
        (run.on_first)(signal);
    }
}

/// What a listener does leaves nothing half done here, so a poisoned lock is as good as new.
fn lock_listeners() -> MutexGuard<'static, SignalListeners> {
    LISTENERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the signals that this process was told to ignore, as a bit mask; none where the system doesn't tell.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

fn signal_bit(signal: i32) -> u64 {
    1 << (signal - 1)
}
