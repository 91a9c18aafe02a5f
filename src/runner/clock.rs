//! The clock of real runs.

use std::time::SystemTime;

use rustix::time::{ClockId, clock_gettime};

use crate::port::Clock;
use crate::types::{RunTime, TimeSpan};

/// The clock of a run. It counts while the computer is suspended, and changes of the time of day don't affect it.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    boot_offset: u64,
    started_at: RunTime,
}

/// On Linux, the monotonic clock stops during a suspend; this clock doesn't.
#[cfg(target_os = "linux")]
const CLOCK_ID: ClockId = ClockId::Boottime;
#[cfg(not(target_os = "linux"))]
const CLOCK_ID: ClockId = ClockId::Monotonic;

impl SystemClock {
    /// Returns a clock that starts at zero.
    pub fn start() -> Self {
        Self::resume(RunTime::START)
    }

    /// Returns a clock that continues from this time of a stored session.
    pub fn resume(from: RunTime) -> Self {
        Self { boot_offset: monotonic_micros(), started_at: from }
    }
}

impl Clock for SystemClock {
    fn now(&self) -> RunTime {
        self.started_at.after(TimeSpan(monotonic_micros().saturating_sub(self.boot_offset)))
    }

    fn wall_time(&self) -> SystemTime {
        SystemTime::now()
    }
}

fn monotonic_micros() -> u64 {
    let time = clock_gettime(CLOCK_ID);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(1_000_000).saturating_add(nanos / 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resumed_clock_continues_from_the_stored_time() {
        let clock = SystemClock::resume(RunTime(5_000_000));
        let (first, second) = (clock.now(), clock.now());
        assert!(RunTime(5_000_000) <= first && first <= second);
        assert!(second < RunTime(15_000_000));
    }
}
