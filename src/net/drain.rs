//! Reads the rest of complete responses, so that their connections can be reused.
//!
//! An event stream is complete with its last event, but its connection becomes free only at the end of the body, which
//! may come later or never. A thread waits for that end. The next request briefly waits for the thread, since a new
//! connection would take longer.

use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Sender, bounded};

use super::HttpResponse;
use crate::port::lock;

/// Reads responses to their ends on a thread. The thread starts with the first response, and ends with the client.
#[derive(Debug, Default)]
pub(super) struct ResponseDrain {
    sender: OnceLock<Option<Sender<HttpResponse>>>,
    state: Arc<(Mutex<DrainState>, Condvar)>,
}

/// The state of the thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum DrainState {
    /// Waiting for a response.
    #[default]
    Idle,
    /// Reading a response.
    Reading,
    /// Reading a response whose end has taken too long; requests no longer wait for it.
    Abandoned,
}

/// The maximum length of the rest of a response, in bytes; a connection with more is closed.
const MAX_DRAIN_BYTES: u64 = 64 << 10;

/// The time for which a request waits for the thread.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(10);

impl ResponseDrain {
    /// Adds a complete response. Its connection is closed if the thread is busy.
    pub(super) fn push(&self, response: HttpResponse) {
        let sender = self.sender.get_or_init(|| {
            let (sender, receiver) = bounded::<HttpResponse>(1);
            let progress = Arc::clone(&self.state);
            let read = move || {
                for response in receiver {
                    response.drain(MAX_DRAIN_BYTES);
                    *lock(&progress.0) = DrainState::Idle;
                    progress.1.notify_all();
                }
            };
            let started = thread::Builder::new().name("drain".to_owned()).spawn(read);
            started.ok().map(|_| sender)
        });
        let Some(sender) = sender else { return };
        let mut now = lock(&self.state.0);
        if *now == DrainState::Idle && sender.try_send(response).is_ok() {
            *now = DrainState::Reading;
        }
    }

    /// Waits briefly for the end of the current response.
    pub(super) fn wait(&self) {
        let (state, changed) = &*self.state;
        let is_reading = |now: &mut DrainState| *now == DrainState::Reading;
        let waits = changed.wait_timeout_while(lock(state), DRAIN_TIMEOUT, is_reading);
        let (mut now, _) = waits.unwrap_or_else(PoisonError::into_inner);
        if *now == DrainState::Reading {
            *now = DrainState::Abandoned;
        }
    }
}
