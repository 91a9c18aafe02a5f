//! Signals become events: the first one asks the run to stop, the second one ends the process.

use std::process;
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use thiserror::Error;

use super::hands::Arrival;
use super::threads::Inbox;
use crate::machine::Event;
use crate::model::Signal;

/// Why signals cannot be listened to.
#[derive(Debug, Error)]
#[error("could not listen to signals: {0}")]
pub struct SignalError(#[from] std::io::Error);

/// How long the same signal once more is still the first one: `timeout` sends it to a process and then to its group, and
/// nobody presses a key twice in that time.
const ECHO: Duration = Duration::from_millis(150);

/// Listens to SIGINT, SIGTERM and SIGHUP from now on, on a thread of its own.
///
/// The first signal is put into the inbox, where a run finds it that is only about to begin; `first` is called with it
/// for whatever comes before and after the run. On the second one, but for an echo of the first, `farewell` is called with
/// it and the process ends at once, with the exit code of that signal. A signal that was ignored when the process began
/// stays ignored (`nohup`).
///
/// # Errors
///
/// Fails when the system refuses the handlers or the thread.
pub fn listen(
    inbox: Inbox,
    first: impl Fn(Signal) + Send + 'static,
    farewell: impl Fn(Signal) + Send + 'static,
) -> Result<(), SignalError> {
    let ignored = ignored();
    let listened =
        [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| ignored & bit(*signal) == 0);
    let mut signals = Signals::new(listened)?;
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        let mut asked: Option<(i32, Instant)> = None;
        for number in signals.forever() {
            let signal = match number {
                SIGTERM => Signal::Terminate,
                SIGHUP => Signal::Hangup,
                _ => Signal::Interrupt,
            };
            if let Some((before, at)) = asked {
                if before == number && at.elapsed() < ECHO {
                    continue;
                }
                farewell(signal);
                process::exit(i32::from(signal.exit_code()));
            }
            asked = Some((number, Instant::now()));
            inbox.post(Arrival::Event(Event::Interrupt { signal }));
            first(signal);
        }
    })?;
    Ok(())
}

/// Returns the signals that this process was told to ignore, as a bit mask; none where the system doesn't tell.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}
