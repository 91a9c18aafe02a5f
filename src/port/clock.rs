//! What time it is.

use std::time::SystemTime;

use crate::model::RunTime;

/// A clock.
pub trait Clock: Send + Sync {
    /// Returns the time since the run began; it never goes back, and it counts while the machine is suspended.
    fn now(&self) -> RunTime;

    /// Returns the time of day, for records that people read.
    fn wall_time(&self) -> SystemTime;
}
