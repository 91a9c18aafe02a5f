//! The clock of real runs.

use std::time::SystemTime;

use rustix::time::{ClockId, clock_gettime};

use crate::model::{Span, Time};
use crate::port::Clock;

/// The time of a run; it counts on while the machine is suspended, and no change of the time of day moves it.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    begins: u64,
    from: Time,
}

/// On Linux the monotonic clock stops during a suspend, and this one doesn't.
#[cfg(target_os = "linux")]
const CLOCK: ClockId = ClockId::Boottime;
#[cfg(not(target_os = "linux"))]
const CLOCK: ClockId = ClockId::Monotonic;

impl SystemClock {
    /// Returns a clock that begins now.
    pub fn start() -> Self {
        Self::resume(Time::START)
    }

    /// Returns a clock that goes on from this time: where a stored session stands.
    pub fn resume(from: Time) -> Self {
        Self { begins: micros(), from }
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Time {
        self.from.after(Span(micros().saturating_sub(self.begins)))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resumed_clock_goes_on_from_where_the_session_stood() {
        let clock = SystemClock::resume(Time(5_000_000));
        let (first, second) = (clock.now(), clock.now());
        assert!(Time(5_000_000) <= first && first <= second);
        assert!(second < Time(15_000_000));
    }
}
