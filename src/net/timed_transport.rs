//! Time limits for reads: one for the head of an answer, another for each silence in its body, and both exact.
//!
//! The library knows one limit for every read, and it hands each limit to the kernel, whose timers may be late by an
//! eighth. So a wait is made of shorter ones here, each of which ends before the limit even when it is late.

use std::time::{Duration, Instant};

use ureq::unversioned::transport::time::Duration as Limit;
use ureq::unversioned::transport::{Buffers, ConnectionDetails, Connector, NextTimeout, Transport};
use ureq::{Error, Timeout};

/// Makes the reads of each connection keep to their limits.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimedConnector {
    /// The longest silence within a body.
    pub(super) idle: Duration,
}

/// A connection whose reads keep to their limits.
#[derive(Debug)]
struct TimedTransport {
    transport: Box<dyn Transport>,
    idle: Duration,
}

/// Waits of up to this length are left to the kernel, which is late by less than a scheduler tick then.
const SHORT_WAIT: Duration = Duration::from_millis(20);

/// A wait that ends so much later than its limit ended late because the process did not run.
const SUSPENSION_THRESHOLD: Duration = Duration::from_millis(500);

/// How long a process that did not run looks for what has arrived meanwhile.
const RECHECK_TIMEOUT: Duration = Duration::from_millis(1);

impl Connector<Box<dyn Transport>> for TimedConnector {
    type Out = Box<dyn Transport>;

    fn connect(
        &self,
        _: &ConnectionDetails<'_>,
        chained: Option<Box<dyn Transport>>,
    ) -> Result<Option<Self::Out>, Error> {
        let timed = |transport| TimedTransport { transport, idle: self.idle };
        Ok(chained.map(|transport| Box::new(timed(transport)) as Self::Out))
    }
}

impl Transport for TimedTransport {
    fn buffers(&mut self) -> &mut dyn Buffers {
        self.transport.buffers()
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.transport.transmit_output(amount, timeout)
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        // Every phase but the body has a limit of its own.
        let (limit, reason) = match timeout.after {
            Limit::Exact(limit) => (limit, timeout.reason),
            Limit::NotHappening => (self.idle, Timeout::PerRead),
        };
        retry_within(limit, Instant::now, |slice| {
            let timeout = NextTimeout { after: Limit::Exact(slice), reason, ..timeout };
            match self.transport.await_input(timeout) {
                Ok(any) => Some(Ok(any)),
                Err(Error::Timeout(_)) => None,
                Err(error) => Some(Err(error)),
            }
        })
        .unwrap_or(Err(Error::Timeout(reason)))
    }

    fn is_open(&mut self) -> bool {
        self.transport.is_open()
    }

    fn is_tls(&self) -> bool {
        self.transport.is_tls()
    }
}

/// Tries for so long, and returns what a try has come to; `None` if none has come to anything.
///
/// A try gets the time it may take, and may take an eighth more. When this process did not run for a while, one more try
/// follows after the limit.
fn retry_within<T>(
    limit: Duration,
    now: impl Fn() -> Instant,
    mut attempt: impl FnMut(Duration) -> Option<T>,
) -> Option<T> {
    let begun = now();
    let mut left = limit;
    while !left.is_zero() {
        let slice = if left <= SHORT_WAIT { left } else { left.saturating_sub(left / 8) };
        if let Some(outcome) = attempt(slice) {
            return Some(outcome);
        }
        let elapsed = now().saturating_duration_since(begun);
        if elapsed > limit + SUSPENSION_THRESHOLD {
            return attempt(RECHECK_TIMEOUT);
        }
        left = limit.saturating_sub(elapsed);
    }
    None
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Returns how long a wait takes whose kernel is late by an eighth, and of how many tries it is made.
    fn measure(limit: Duration) -> (Duration, usize) {
        let (begun, clock, tries) = (Instant::now(), Cell::new(Duration::ZERO), Cell::new(0));
        let outcome: Option<()> = retry_within(
            limit,
            || begun + clock.get(),
            |slice| {
                tries.set(tries.get() + 1);
                clock.set(clock.get() + slice + slice / 8);
                None
            },
        );
        assert_eq!(outcome, None);
        (clock.get(), tries.get())
    }

    #[test]
    fn a_limit_holds_although_the_timers_of_the_kernel_are_late() {
        for seconds in [1, 3, 60, 120, 86_400] {
            let limit = Duration::from_secs(seconds);
            let (taken, tries) = measure(limit);
            assert!(taken >= limit && taken <= limit + SHORT_WAIT / 8, "{limit:?}: {taken:?}");
            assert!(tries < 10, "{limit:?}: {tries} tries");
        }
        assert_eq!(measure(Duration::from_millis(1)).1, 1);
        assert_eq!(measure(Duration::ZERO), (Duration::ZERO, 0));
    }

    /// What arrived while the process did not run is there.
    #[test]
    fn a_suspended_process_tries_once_more() {
        let (begun, clock) = (Instant::now(), Cell::new(Duration::ZERO));
        let mut slices = Vec::new();
        let outcome = retry_within(
            Duration::from_secs(60),
            || begun + clock.get(),
            |slice| {
                slices.push(slice);
                clock.set(Duration::from_secs(8 * 3_600));
                (slice == RECHECK_TIMEOUT).then_some("arrived")
            },
        );
        assert_eq!((outcome, slices.len()), (Some("arrived"), 2));
    }
}
