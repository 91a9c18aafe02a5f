//! A limit on how often somebody outside the run may speak: servers that spam are heard, but not each time.

use crate::model::{Span, Time};

/// Lets a few things through at once, and then one in each interval.
pub(super) struct Throttle {
    left: u32,
    refilled: Time,
    suppressed: u32,
}

/// What may pass at once.
const BURST: u32 = 10;

/// How long it takes until another one may pass.
const INTERVAL: Span = Span::secs(5);

impl Throttle {
    pub(super) fn new() -> Self {
        Self { left: BURST, refilled: Time::START, suppressed: 0 }
    }

    /// Returns how many were suppressed before this one, when this one may pass; nothing when it may not.
    pub(super) fn pass(&mut self, now: Time) -> Option<u32> {
        let intervals = now.since(self.refilled).0 / INTERVAL.0;
        if intervals > 0 {
            self.left =
                self.left.saturating_add(u32::try_from(intervals).unwrap_or(BURST)).min(BURST);
            self.refilled = now;
        }
        if let Some(left) = self.left.checked_sub(1) {
            self.left = left;
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
    fn who_spams_is_heard_a_few_times_and_later_again() {
        let mut throttle = Throttle::new();
        let heard = (0..1_000).filter(|_| throttle.pass(Time(1)).is_some()).count();
        assert_eq!(heard, 10);
        assert_eq!(throttle.pass(Time::START.after(INTERVAL)), Some(990));
        assert_eq!(throttle.pass(Time::START.after(INTERVAL)), None);
    }
}
