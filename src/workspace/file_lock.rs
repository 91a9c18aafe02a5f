//! File locks between processes.

use std::fs::{File, TryLockError};
use std::io;
use std::thread;
use std::time::{Duration, Instant};

/// The first pause between two attempts to take a lock, and the longest one.
const FIRST_PAUSE: Duration = Duration::from_micros(200);
const LONGEST_PAUSE: Duration = Duration::from_millis(10);

/// Locks a file. Returns `false` if another process holds the lock for all this time.
///
/// The lock belongs to the open file, so it ends with the process that holds it. A child that a thread, or a killed
/// process, has forked shares the lock until it executes its program.
///
/// # Errors
///
/// Fails on an error of the system, for example if the file system does not support locks.
pub fn lock_within(file: &File, timeout: Duration) -> io::Result<bool> {
    let (started, mut pause) = (Instant::now(), FIRST_PAUSE);
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(true),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) if started.elapsed() >= timeout => return Ok(false),
            Err(TryLockError::WouldBlock) => {
                thread::sleep(pause);
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}
