//! Finished responses are read to their ends, so that their connections can be used again.
//!
//! An event stream is complete with its last event, but the connection is free only after the end of the body, which
//! may come later or never. Nobody who has a reply in hand waits for that; one thread does.

use std::sync::OnceLock;
use std::thread;

use crossbeam_channel::{Sender, bounded};

use super::Response;

/// Reads responses to their ends on a thread of its own, which starts with the first one and ends with the client.
#[derive(Debug, Default)]
pub(super) struct Drain(OnceLock<Option<Sender<Response>>>);

/// What may still come after the last event; a connection with more is not worth keeping.
const MOST: u64 = 64 << 10;

impl Drain {
    /// Takes a response that nobody reads on. While another one is being waited for, its connection is closed instead.
    pub(super) fn take(&self, response: Response) {
        let sender = self.0.get_or_init(|| {
            let (sender, receiver) = bounded::<Response>(1);
            let read = move || receiver.into_iter().for_each(|response| response.finish(MOST));
            let started = thread::Builder::new().name("drain".to_owned()).spawn(read);
            started.ok().map(|_| sender)
        });
        if let Some(sender) = sender {
            let _ = sender.try_send(response);
        }
    }
}
