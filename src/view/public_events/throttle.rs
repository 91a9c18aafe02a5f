//! A rate limit for warnings from outside the run, such as those of MCP servers.

use crate::types::{RunTime, TimeSpan};

/// Lets a burst pass, and then one warning per interval.
pub(super) struct Throttle {
    remaining: u32,
    refilled_at: RunTime,
    suppressed: u32,
}

/// The size of a burst.
const BURST: u32 = 10;

/// The interval between warnings after a burst.
const INTERVAL: TimeSpan = TimeSpan::from_secs(5);

impl Throttle {
    pub(super) fn new() -> Self {
        Self { remaining: BURST, refilled_at: RunTime::START, suppressed: 0 }
    }

    /// Returns the number of suppressed warnings before this one; `None` if this one is suppressed, too.
    pub(super) fn try_pass(&mut self, now: RunTime) -> Option<u32> {
        let intervals = now.since(self.refilled_at).0 / INTERVAL.0;
        if intervals > 0 {
            self.remaining =
                self.remaining.saturating_add(u32::try_from(intervals).unwrap_or(BURST)).min(BURST);
            self.refilled_at = now;
        }
        if let Some(left) = self.remaining.checked_sub(1) {
            self.remaining = left;
            Some(std::mem::take(&mut self.suppressed))
        } else {
            self.suppressed += 1;
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fault M16.
    #[test]
    fn a_burst_passes_and_then_one_per_interval() {
        let mut throttle = Throttle::new();
        let passed = (0..1_000).filter(|_| throttle.try_pass(RunTime(1)).is_some()).count();
        assert_eq!(passed, 10);
        assert_eq!(throttle.try_pass(RunTime::START.after(INTERVAL)), Some(990));
        assert_eq!(throttle.try_pass(RunTime::START.after(INTERVAL)), None);
    }
}
