//! Interrupts of runs by their caller.

use std::sync::{Arc, OnceLock};

use crate::port::{CancelRegistration, CancellationToken};
use crate::types::Signal;

/// Interrupts runs in place of the signals of the process, which then reach only the caller of the runs. Clones
/// interrupt the same runs.
#[derive(Clone, Default)]
pub struct RunInterrupts {
    signal: Arc<OnceLock<Signal>>,
    token: CancellationToken,
}

impl RunInterrupts {
    /// Interrupts the runs as this signal would. Runs that begin later are interrupted at once. Further calls have no
    /// effect.
    pub fn interrupt(&self, signal: Signal) {
        if self.signal.set(signal).is_ok() {
            self.token.cancel();
        }
    }

    /// Returns the signal that has interrupted the runs.
    pub fn signal(&self) -> Option<Signal> {
        self.signal.get().copied()
    }

    /// Returns a token that an interrupt cancels.
    pub fn token(&self) -> &CancellationToken {
        &self.token
    }

    /// Runs `action` on an interrupt, or at once after it.
    pub fn on_interrupt(&self, action: impl FnOnce(Signal) + Send + 'static) -> CancelRegistration {
        let signal = Arc::clone(&self.signal);
        self.token.on_cancel(move || action(signal.get().copied().unwrap_or(Signal::Interrupt)))
    }
}
