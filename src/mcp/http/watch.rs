//! Ends an HTTP exchange at its deadline.

use std::io;
use std::thread;

use crate::mcp::connection::ReplyDeadline;
use crate::port::{CancelRegistration, CancellationToken};

/// Limits an exchange to the wait of its caller.
pub(super) struct ExchangeWatch {
    /// Cancelled to end the exchange.
    pub exchange: CancellationToken,
    done: CancellationToken,
    _guard: CancelRegistration,
}

impl ExchangeWatch {
    /// Watches an exchange until the guard is dropped.
    pub(super) fn start(wait: &ReplyDeadline<'_>) -> io::Result<Self> {
        let (exchange, done) = (CancellationToken::new(), CancellationToken::new());
        let cancelled = exchange.clone();
        let guard = wait.cancel.on_cancel(move || cancelled.cancel());
        let (late, over, left) = (exchange.clone(), done.clone(), wait.remaining());
        thread::Builder::new().name("mcp-watch".to_owned()).spawn(move || {
            if !over.wait_for(left) {
                late.cancel();
            }
        })?;
        Ok(Self { exchange, done, _guard: guard })
    }
}

impl Drop for ExchangeWatch {
    fn drop(&mut self) {
        self.done.cancel();
    }
}
