//! Messages for a run that is under way.

use std::sync::Arc;

use crate::model::UserMessage;

/// Where the user's messages for a running session arrive.
pub trait Mailbox: Send {
    /// Takes the messages that the model has to read before its next call, in the order in which they came.
    fn messages(&mut self) -> Vec<UserMessage>;

    /// Takes the next message for when the run would have ended.
    fn follow_up(&mut self) -> Option<Arc<str>>;
}

/// No messages ever.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoMail;

impl Mailbox for NoMail {
    fn messages(&mut self) -> Vec<UserMessage> {
        Vec::new()
    }

    fn follow_up(&mut self) -> Option<Arc<str>> {
        None
    }
}
