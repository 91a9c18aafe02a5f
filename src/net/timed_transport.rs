//! Exact timeouts for reads: for the head of a response, and for each pause in its body.
//!
//! The library has a single timeout for all reads, and the kernel's timers may be late by an eighth. So a wait consists
//! of shorter waits, each of which ends before the timeout even if it is late.

use std::time::{Duration, Instant};

use ureq::unversioned::transport::time::Duration as Limit;
use ureq::unversioned::transport::{Buffers, ConnectionDetails, Connector, NextTimeout, Transport};
use ureq::{Error, Timeout};

/// Adds exact timeouts to the reads of connections.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimedConnector {
    /// The timeout for pauses in a body.
    pub(super) idle: Duration,
}

/// A connection with exact timeouts for reads.
#[derive(Debug)]
struct TimedTransport {
    transport: Box<dyn Transport>,
    idle: Duration,
}

/// The maximum length of waits that are left to the kernel; these are late by less than a scheduler tick.
const SHORT_WAIT: Duration = Duration::from_millis(20);

/// The delay of a wait that shows that the process was suspended.
const SUSPENSION_THRESHOLD: Duration = Duration::from_millis(500);

/// The timeout for data that was received while the process was suspended.
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
        let buffers = self.transport.buffers();
        if buffers.input_append_buf().is_empty() {
            // The library reads nothing into a full buffer, and takes that for the end of the connection.
            let size = buffers.input().len();
            return Err(Error::LargeResponseHeader(size, size));
        }
        // All phases except the body have their own timeout.
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

/// Repeats an attempt until it succeeds. Returns `None` after the time limit.
///
/// Each attempt is given a duration, and may exceed it by an eighth. If the process was suspended, one more attempt
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

    /// Returns the duration of a wait with timers that are late by an eighth, and the number of attempts.
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

    /// Data that was received during a suspension is read.
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
