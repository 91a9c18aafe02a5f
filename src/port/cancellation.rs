//! Cancellation of work on other threads.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A token for requesting and observing cancellation. Clones are the same token.
#[derive(Clone, Default)]
pub struct CancellationToken(Arc<CancellationState>);

#[derive(Default)]
struct CancellationState {
    inner: Mutex<CancellationInner>,
    cancelled: Condvar,
}

#[derive(Default)]
struct CancellationInner {
    is_cancelled: bool,
    next: u64,
    actions: Vec<(u64, CancelAction)>,
}

type CancelAction = Box<dyn FnOnce() + Send>;

/// A registered action. Dropping it removes the action.
#[must_use = "the action is taken back when this is dropped"]
pub struct CancelRegistration {
    token: CancellationToken,
    id: u64,
}

impl CancellationToken {
    /// Creates a token that isn't cancelled.
    pub fn new() -> Self {
        Self::default()
    }

    /// Cancels: wakes the waiting threads, and runs the registered actions on this thread. Does nothing if the token is
    /// already cancelled.
    pub fn cancel(&self) {
        let actions = {
            let mut inner = self.lock();
            inner.is_cancelled = true;
            std::mem::take(&mut inner.actions)
        };
        self.0.cancelled.notify_all();
        for (_, action) in actions {
            action();
        }
    }

    /// Returns whether the token is cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.lock().is_cancelled
    }

    /// Runs `action` on cancellation, or immediately if the token is already cancelled.
    pub fn on_cancel(&self, action: impl FnOnce() + Send + 'static) -> CancelRegistration {
        let mut inner = self.lock();
        let id = inner.next;
        inner.next += 1;
        if inner.is_cancelled {
            drop(inner);
            action();
        } else {
            inner.actions.push((id, Box::new(action)));
        }
        CancelRegistration { token: self.clone(), id }
    }

    /// Waits for up to `most`. Returns `true` early on cancellation.
    pub fn wait_for(&self, most: Duration) -> bool {
        let until = Instant::now().checked_add(most);
        let mut inner = self.lock();
        while !inner.is_cancelled {
            let left = match until {
                Some(until) => until.saturating_duration_since(Instant::now()),
                None => Duration::from_secs(3_600),
            };
            if left.is_zero() {
                return false;
            }
            let woken = self.0.cancelled.wait_timeout(inner, left);
            inner = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    fn lock(&self) -> MutexGuard<'_, CancellationInner> {
        lock(&self.0.inner)
    }
}

/// Returns the message of a panic.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without a message")
}

/// Locks a mutex. Its value is consistent even after a panic of another thread, because no code that can panic runs
/// while it is locked.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for CancelRegistration {
    fn drop(&mut self) {
        self.token.lock().actions.retain(|(id, _)| *id != self.id);
    }
}

impl fmt::Debug for CancellationToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cancel({})", self.is_cancelled())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::thread;

    use super::*;

    fn counter() -> (Arc<AtomicU32>, impl Fn() + Send + Clone + 'static) {
        let count = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&count);
        (count, move || {
            counted.fetch_add(1, Ordering::SeqCst);
        })
    }

    #[test]
    fn actions_run_once_even_if_registered_late() {
        let token = CancellationToken::new();
        let (count, action) = counter();
        let _early = token.on_cancel(action.clone());
        token.cancel();
        token.cancel();
        let _late = token.on_cancel(action);
        assert_eq!(count.load(Ordering::SeqCst), 2);
    }

    #[test]
    fn a_removed_action_does_not_run() {
        let token = CancellationToken::new();
        let (count, action) = counter();
        drop(token.on_cancel(action));
        token.cancel();
        assert_eq!(count.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn waiting_threads_are_woken() {
        let token = CancellationToken::new();
        let waiter = token.clone();
        let waiting = thread::spawn(move || waiter.wait_for(Duration::from_secs(60)));
        token.cancel();
        assert!(waiting.join().unwrap());
        assert!(!CancellationToken::new().wait_for(Duration::from_millis(1)));
    }
}
