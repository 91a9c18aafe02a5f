//! The clock of real runs.

use std::time::SystemTime;

use rustix::time::{ClockId, clock_gettime};

use crate::model::Time;
use crate::port::Clock;

/// The time since it was made; it counts on while the machine is suspended, and no change of the time of day moves it.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    began: u64,
}

/// On Linux the monotonic clock stops during a suspend, and this one doesn't.
#[cfg(target_os = "linux")]
const CLOCK: ClockId = ClockId::Boottime;
#[cfg(not(target_os = "linux"))]
const CLOCK: ClockId = ClockId::Monotonic;

impl SystemClock {
    /// Returns a clock that begins now.
    pub fn start() -> Self {
        Self { began: micros() }
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Time {
        Time(micros().saturating_sub(self.began))
    }

    fn wall(&self) -> SystemTime {
        SystemTime::now()
    }
}

fn micros() -> u64 {
    let time = clock_gettime(CLOCK);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(1_000_000).saturating_add(nanos / 1_000)
}
