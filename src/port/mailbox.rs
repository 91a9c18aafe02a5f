//! Messages for a run that is under way.

use std::sync::Arc;

/// Where the user's messages for a running session arrive.
pub trait Mailbox: Send {
    /// Takes the messages that the model has to read before its next call, in the order in which they came.
    fn steering(&mut self) -> Vec<Arc<str>>;

    /// Takes the next message for when the run would have ended.
    fn follow_up(&mut self) -> Option<Arc<str>>;
}

/// No messages ever.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoMail;

impl Mailbox for NoMail {
    fn steering(&mut self) -> Vec<Arc<str>> {
        Vec::new()
    }

    fn follow_up(&mut self) -> Option<Arc<str>> {
        None
    }
}
