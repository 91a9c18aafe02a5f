//! Finished responses are read to their ends, so that their connections can be used again.
//!
//! An event stream is complete with its last event, but the connection is free only after the end of the body, which
//! may come later or never. Nobody who has a reply in hand waits for that; one thread does. Whoever has the next request
//! waits a moment for it, since a new connection would take longer.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Sender, bounded};

use super::Response;

/// Reads responses to their ends on a thread of its own, which starts with the first one and ends with the client.
#[derive(Debug, Default)]
pub(super) struct Drain {
    sender: OnceLock<Option<Sender<Response>>>,
    progress: Arc<Progress>,
}

#[derive(Debug, Default)]
struct Progress {
    now: Mutex<Now>,
    changed: Condvar,
}

/// What the thread does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Now {
    /// It waits for a response.
    #[default]
    Idle,
    /// It reads one.
    Reads,
    /// It reads one whose end did not come while somebody waited; nobody waits for this server any more.
    ReadsInVain,
}

/// What may still come after the last event; a connection with more is not worth keeping.
const MOST: u64 = 64 << 10;

/// How long a request waits for a connection that is nearly free.
const PATIENCE: Duration = Duration::from_millis(10);

impl Drain {
    /// Takes a response that nobody reads on. While another one is being waited for, its connection is closed instead.
    pub(super) fn take(&self, response: Response) {
        let sender = self.sender.get_or_init(|| {
            let (sender, receiver) = bounded::<Response>(1);
            let progress = Arc::clone(&self.progress);
            let read = move || {
                for response in receiver {
                    response.finish(MOST);
                    progress.set(Now::Idle);
                }
            };
            let started = thread::Builder::new().name("drain".to_owned()).spawn(read);
            started.ok().map(|_| sender)
        });
        let Some(sender) = sender else { return };
        let mut now = self.progress.lock();
        if *now == Now::Idle && sender.try_send(response).is_ok() {
            *now = Now::Reads;
        }
    }

    /// Waits a moment for the response that is being read, whose connection is free then.
    pub(super) fn wait(&self) {
        let waits =
            self.progress
                .changed
                .wait_timeout_while(self.progress.lock(), PATIENCE, |now| *now == Now::Reads);
        let (mut now, _) = waits.unwrap_or_else(PoisonError::into_inner);
        if *now == Now::Reads {
            *now = Now::ReadsInVain;
        }
    }
}

impl Progress {
    fn lock(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, now: Now) {
        *self.lock() = now;
        self.changed.notify_all();
    }
}
