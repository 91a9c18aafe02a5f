//! The clock of a run.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use crate::types::RunTime;

/// A source of time.
pub trait Clock: Send + Sync {
    /// Returns the time since the run began. It is monotonic and counts while the computer is suspended.
    fn now(&self) -> RunTime;

    /// Returns the time of day, for display.
    fn wall_time(&self) -> SystemTime;
}

/// The time of day, for signatures of requests.
#[derive(Clone)]
pub struct WallClock(Arc<dyn Clock>);

impl WallClock {
    /// Creates a wall clock that reads this clock.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self(clock)
    }

    /// Returns the time of day.
    pub fn now(&self) -> SystemTime {
        self.0.wall_time()
    }
}

impl fmt::Debug for WallClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WallClock")
    }
}
