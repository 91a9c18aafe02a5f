//! Messages for a running session.

use std::sync::Arc;

use crate::types::UserMessage;

/// The source of the user's messages for a running session.
pub trait MessageSource: Send {
    /// Takes the messages for the next model call, in the order of their arrival.
    fn take_messages(&mut self) -> Vec<UserMessage>;

    /// Takes the next message for the moment when the run would end: a follow-up message, or a message that was too late
    /// for the last model call.
    fn take_follow_up(&mut self) -> Option<Arc<str>>;
}

/// A source without messages.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoMessages;

impl MessageSource for NoMessages {
    fn take_messages(&mut self) -> Vec<UserMessage> {
        Vec::new()
    }

    fn take_follow_up(&mut self) -> Option<Arc<str>> {
        None
    }
}
