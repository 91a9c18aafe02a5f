//! Signal handling: the first signal stops the run, the second one ends the process.
//!
//! Signals are caught as soon as the process starts. Until there is a run, a signal ends the process immediately.

use std::process;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use thiserror::Error;

use super::executor::DriverInput;
use super::thread_executor::DriverInputSender;
use crate::machine::Event;
use crate::port::lock;
use crate::types::Signal;

/// The reason why signals can't be handled.
#[derive(Debug, Error)]
#[error("could not listen to signals: {0}")]
pub struct SignalError(#[from] std::io::Error);

type SignalAction = Box<dyn Fn(Signal) + Send>;

/// The receivers of signals.
struct SignalListeners {
    /// Whether the handlers are installed.
    is_installed: bool,
    /// The action that runs before a signal ends a process without a run. Without an action, the process ends as if the
    /// signal weren't caught.
    idle_action: Option<SignalAction>,
    /// The function that ends the process with an exit code. If there is none, or if it returns, the process simply
    /// exits.
    ending: Option<fn(u8)>,
    /// The receivers, oldest first.
    receivers: Vec<SignalReceiver>,
}

/// A run, or the caller of several runs, that receives signals.
struct SignalReceiver {
    on_first: SignalAction,
    on_second: SignalAction,
    /// The signal that has interrupted the receiver, and its time.
    interrupted_by: Option<(i32, Instant)>,
}

// The actions of a listener leave nothing half done, so a poisoned lock is still consistent.
static LISTENERS: Mutex<SignalListeners> = Mutex::new(SignalListeners {
    is_installed: false,
    idle_action: None,
    ending: None,
    receivers: Vec::new(),
});

/// The time during which a repetition of a signal is ignored: `timeout` sends its signal to a process and then to the
/// process group.
const REPEAT_WINDOW: Duration = Duration::from_millis(150);

/// Catches SIGINT, SIGTERM and SIGHUP on a separate thread. Until there is a run, the first signal ends the process. A
/// signal that was ignored when the process started stays ignored (`nohup`).
///
/// # Errors
///
/// Fails if the system refuses the handlers or the thread. The signals then keep their default behaviour.
pub fn install_handlers() -> Result<(), SignalError> {
    let mut listeners = lock(&LISTENERS);
    if listeners.is_installed {
        return Ok(());
    }
    let (send, signals) = std::sync::mpsc::channel::<Signals>();
    // The thread comes first: without it no signal may be caught.
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

/// Sets the action that runs before a signal ends a process that has no run yet.
pub fn set_idle_action(action: impl Fn(Signal) + Send + 'static) {
    lock(&LISTENERS).idle_action = Some(Box::new(action));
}

/// Sets the function that ends the process on a signal: `end` gets the exit code, and may wait for a moment. The
/// process exits when it returns.
pub fn set_ending(end: fn(u8)) {
    lock(&LISTENERS).ending = Some(end);
}

/// Sends signals to a run from now on.
///
/// The first signal becomes an input of the run, even before the run has started, and `on_first` is called with it. On
/// the second signal, except for an immediate repetition, `on_second` is called and the process exits with the code of
/// that signal.
///
/// # Errors
///
/// Fails if the signals can't be caught.
pub fn add_run(
    inbox: DriverInputSender,
    on_first: impl Fn(Signal) + Send + 'static,
    on_second: impl Fn(Signal) + Send + 'static,
) -> Result<(), SignalError> {
    let on_first = move |signal| {
        inbox.send(DriverInput::Event(Event::Interrupt { signal }));
        on_first(signal);
    };
    add_receiver(on_first, on_second)
}

/// Sends signals to these functions from now on: `on_first` is called with the first signal. On the second signal,
/// except for an immediate repetition, `on_second` is called and the process exits with the code of that signal.
///
/// # Errors
///
/// Fails if the signals can't be caught.
pub fn add_receiver(
    on_first: impl Fn(Signal) + Send + 'static,
    on_second: impl Fn(Signal) + Send + 'static,
) -> Result<(), SignalError> {
    install_handlers()?;
    let (on_first, on_second) = (Box::new(on_first), Box::new(on_second));
    lock(&LISTENERS).receivers.push(SignalReceiver { on_first, on_second, interrupted_by: None });
    Ok(())
}

fn dispatch(number: i32) {
    let signal = match number {
        SIGTERM => Signal::Terminate,
        SIGHUP => Signal::Hangup,
        _ => Signal::Interrupt,
    };
    let mut listeners = lock(&LISTENERS);
    if listeners.receivers.is_empty() {
        match &listeners.idle_action {
            Some(before) => before(signal),
            // A shell expects to see the signal that ended the process. PID 1 of a container doesn't die of its own
            // signals, so it exits.
            None if process::id() > 1 => drop(emulate_default_handler(number)),
            None => {}
        }
        end_process(listeners.ending, signal);
    }
    let ending = listeners.ending;
    for receiver in &mut listeners.receivers {
        match receiver.interrupted_by {
            Some((before, at)) if before == number && at.elapsed() < REPEAT_WINDOW => continue,
            Some(_) => {
                (receiver.on_second)(signal);
                end_process(ending, signal);
            }
            None => receiver.interrupted_by = Some((number, Instant::now())),
        }
        (receiver.on_first)(signal);
    }
}

fn end_process(ending: Option<fn(u8)>, signal: Signal) -> ! {
    if let Some(end) = ending {
        end(signal.exit_code());
    }
    process::exit(i32::from(signal.exit_code()))
}

/// Returns the signals that this process ignores, as a bit mask; zero if the system doesn't report it.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

fn signal_bit(signal: i32) -> u64 {
    1 << (signal - 1)
}
