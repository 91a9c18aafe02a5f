//! The end of an exchange for which nobody waits any more.

use std::io;
use std::thread;

use crate::mcp::connection::Wait;
use crate::port::{Cancel, OnCancel};

/// Keeps an exchange within what its caller waits for.
pub(super) struct Watch {
    /// Cancelled when the exchange is to end.
    pub exchange: Cancel,
    done: Cancel,
    _guard: OnCancel,
}

impl Watch {
    /// Ends an exchange when nobody waits for it any more.
    pub(super) fn over(wait: &Wait<'_>) -> io::Result<Self> {
        let (exchange, done) = (Cancel::new(), Cancel::new());
        let cancelled = exchange.clone();
        let guard = wait.cancel.on_cancel(move || cancelled.cancel());
        let (late, over, left) = (exchange.clone(), done.clone(), wait.left());
        thread::Builder::new().name("mcp-watch".to_owned()).spawn(move || {
            if !over.wait(left) {
                late.cancel();
            }
        })?;
        Ok(Self { exchange, done, _guard: guard })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.done.cancel();
    }
}
