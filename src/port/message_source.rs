//! Messages for a run that is under way.

use std::sync::Arc;

use crate::model::UserMessage;

/// Where the user's messages for a running session arrive.
pub trait MessageSource: Send {
    /// Takes the messages that the model has to read before its next call, in the order in which they came.
    fn take_messages(&mut self) -> Vec<UserMessage>;

    /// Takes the next message for when the run would have ended.
    fn take_follow_up(&mut self) -> Option<Arc<str>>;
}

/// No messages ever.
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
