//! The clock of a run.

use std::time::SystemTime;

use crate::model::RunTime;

/// A source of time.
pub trait Clock: Send + Sync {
    /// Returns the time since the run began. It is monotonic and counts while the machine is suspended.
    fn now(&self) -> RunTime;

    /// Returns the time of day, for display.
    fn wall_time(&self) -> SystemTime;
}
