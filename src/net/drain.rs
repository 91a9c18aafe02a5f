//! Finished responses are read to their ends, so that their connections can be used again.
//!
//! An event stream is complete with its last event, but the connection is free only after the end of the body, which
//! may come later or never. Nobody who has a reply in hand waits for that; one thread does. Whoever has the next request
//! waits a moment for it, since a new connection would take longer.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Sender, bounded};

use super::HttpResponse;

/// Reads responses to their ends on a thread of its own, which starts with the first one and ends with the client.
#[derive(Debug, Default)]
pub(super) struct ResponseDrain {
    sender: OnceLock<Option<Sender<HttpResponse>>>,
    state: Arc<SharedDrainState>,
}

#[derive(Debug, Default)]
struct SharedDrainState {
    current: Mutex<DrainState>,
    changed: Condvar,
}

/// What the thread does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum DrainState {
    /// It waits for a response.
    #[default]
    Idle,
    /// It reads one.
    Reading,
    /// It reads one whose end did not come while somebody waited; nobody waits for this server any more.
    Abandoned,
}

/// What may still come after the last event; a connection with more is not worth keeping.
const MAX_DRAIN_BYTES: u64 = 64 << 10;

/// How long a request waits for a connection that is nearly free.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(10);

impl ResponseDrain {
    /// Takes a response that nobody reads on. While another one is being waited for, its connection is closed instead.
    pub(super) fn push(&self, response: HttpResponse) {
        let sender = self.sender.get_or_init(|| {
            let (sender, receiver) = bounded::<HttpResponse>(1);
            let progress = Arc::clone(&self.state);
            let read = move || {
                for response in receiver {
                    response.drain(MAX_DRAIN_BYTES);
                    progress.set(DrainState::Idle);
                }
            };
            let started = thread::Builder::new().name("drain".to_owned()).spawn(read);
            started.ok().map(|_| sender)
        });
        let Some(sender) = sender else { return };
        let mut now = self.state.lock();
        if *now == DrainState::Idle && sender.try_send(response).is_ok() {
            *now = DrainState::Reading;
        }
    }

    /// Waits a moment for the response that is being read, whose connection is free then.
    pub(super) fn wait(&self) {
        let waits =
            self.state.changed.wait_timeout_while(self.state.lock(), DRAIN_TIMEOUT, |now| {
                *now == DrainState::Reading
            });
        let (mut now, _) = waits.unwrap_or_else(PoisonError::into_inner);
        if *now == DrainState::Reading {
            *now = DrainState::Abandoned;
        }
    }
}

impl SharedDrainState {
    fn lock(&self) -> MutexGuard<'_, DrainState> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, now: DrainState) {
        *self.lock() = now;
        self.changed.notify_all();
    }
}
