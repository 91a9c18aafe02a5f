//! Hands that work on the spot, for tests and benchmarks: no threads, and time that passes only by waiting.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::hands::{Arrival, Hands, Work};
use crate::machine::Deadline;
use crate::model::{Span, Time};
use crate::port::{Cancel, Clock, Scope, Sleep};

/// Works on the spot. A piece of work that waits arrives so much later; deadlines before that come first.
#[derive(Default)]
pub struct Inline {
    clock: Arc<VirtualClock>,
    arrivals: BinaryHeap<Reverse<Scheduled>>,
    next: u64,
}

/// A clock that goes on only when everybody waits.
#[derive(Debug, Default)]
pub struct VirtualClock(AtomicU64);

struct Scheduled {
    at: Time,
    order: u64,
    arrival: Arrival,
}

impl Inline {
    /// Returns hands whose clock begins at zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns hands whose clock goes on from this time: where a stored session stands.
    pub fn resume(from: Time) -> Self {
        let inline = Self::default();
        inline.clock.go_on(from);
        inline
    }

    /// Puts something into the inbox that arrives at a certain time.
    pub fn post_at(&mut self, at: Time, arrival: Arrival) {
        let order = self.next;
        self.next += 1;
        self.arrivals.push(Reverse(Scheduled { at, order, arrival }));
    }
}

impl Hands for Inline {
    fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock) as Arc<dyn Clock>
    }

    fn start(&mut self, work: Work) {
        let desk = Arc::new(Desk { begun: self.clock.now(), ..Desk::default() });
        let (voice, line, id) = (Arc::clone(&desk), Arc::clone(&desk), work.id);
        let line = move |word| line.post(Arrival::said(id, word));
        let scope = Scope::new(work.cancel, Arc::clone(&desk) as Arc<dyn Sleep>)
            .telling(Arc::new(move |notice| voice.post(Arrival::Notice { id, notice })))
            .connected(Arc::new(line));
        let last = (work.run)(&scope, &|arrival| desk.post(arrival));
        desk.post(last);
        for (at, arrival) in std::mem::take(&mut *desk.arrivals()) {
            self.post_at(at, arrival);
        }
    }

    fn wait(&mut self, deadline: Option<Deadline>) -> Option<Arrival> {
        let arrives = self.arrivals.peek().map(|Reverse(next)| next.at);
        let due = deadline.map(|deadline| deadline.at);
        match (arrives, due) {
            (Some(at), due) if due.is_none_or(|due| at < due) => {
                self.clock.go_on(at);
                self.arrivals.pop().map(|Reverse(next)| next.arrival)
            }
            (_, Some(due)) => {
                self.clock.go_on(due);
                None
            }
            (_, None) => None,
        }
    }

    fn ready(&mut self) -> Option<Arrival> {
        let is_due = self.arrivals.peek().is_some_and(|Reverse(next)| next.at <= self.clock.now());
        if is_due { self.arrivals.pop().map(|Reverse(next)| next.arrival) } else { None }
    }

    fn settle(&mut self, _: Span) -> bool {
        self.arrivals.clear();
        true
    }
}

impl VirtualClock {
    fn go_on(&self, to: Time) {
        self.0.fetch_max(to.0, Ordering::Relaxed);
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Time {
        Time(self.0.load(Ordering::Relaxed))
    }

    /// The time of day counts from a fixed moment, so that two runs write the same.
    fn wall(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_700_000_000) + Duration::from_micros(self.now().0)
    }
}

/// Where a piece of work is done: it counts how long the work has waited, and collects what arrives meanwhile.
#[derive(Default)]
struct Desk {
    begun: Time,
    waited: AtomicU64,
    arrivals: Mutex<Vec<(Time, Arrival)>>,
}

impl Desk {
    fn post(&self, arrival: Arrival) {
        let at = self.begun.after(Span(self.waited.load(Ordering::Relaxed)));
        self.arrivals().push((at, arrival));
    }

    fn arrivals(&self) -> MutexGuard<'_, Vec<(Time, Arrival)>> {
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sleep for Desk {
    fn sleep(&self, span: Span, cancel: &Cancel) -> bool {
        self.waited.fetch_add(span.0, Ordering::Relaxed);
        cancel.is_cancelled()
    }
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}
