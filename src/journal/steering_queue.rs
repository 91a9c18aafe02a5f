//! Messages for a session from other processes: a folder with one file per message.
//!
//! A file appears complete, under a name that sorts by time. It is removed only after the record that contains the
//! message is durable. The record names the file, so that a message is not read twice if the process ends in between.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::Durability;
use super::error::{IoContext, JournalError, Result};
use super::folder;
use super::header::WallTime;
use crate::machine::{CheckResult, Event};
use crate::port::{MessageSource, lock, unique_id};
use crate::types::{Digest, Image, MessageOrigin, UserMessage};
use crate::workspace::replace_file;

/// The messages for one session. Clones share the queue.
#[derive(Clone, Debug)]
pub struct SteeringQueue {
    folder: PathBuf,
    state: Arc<Mutex<QueueState>>,
}

/// The file name of a message. Later names sort after earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MessageId(Uuid);

/// A message and its kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuedMessage {
    /// Its kind.
    pub kind: MessageKind,
    /// The text of the message.
    pub text: Arc<str>,
    /// Its images.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Image>,
}

impl QueuedMessage {
    /// Returns a message without images.
    pub fn new(kind: MessageKind, text: impl Into<Arc<str>>) -> Self {
        Self { kind, text: text.into(), images: Vec::new() }
    }
}

/// The time of delivery and the author of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageKind {
    /// From the user, for the next model call.
    Steering,
    /// From the user, for the moment when the run would end.
    FollowUp,
    /// The prompt with which a session is resumed.
    Task,
    /// From the program, for the next model call.
    #[serde(rename = "notice")]
    SystemNotice,
}

/// The progress of the messages in this process.
#[derive(Debug, Default)]
struct QueueState {
    /// Messages that were returned for the next model call, in this order.
    taken: Vec<MessageId>,
    /// The message that was returned as a follow-up.
    follow_up: Option<MessageId>,
    /// Messages in records that may not be durable yet.
    written: Vec<MessageId>,
    /// Messages in durable records.
    delivered: BTreeSet<MessageId>,
}

/// The maximum length of a message, in bytes.
const MAX_MESSAGE_BYTES: usize = 1 << 20;

/// The extension of a message's file name.
const EXTENSION: &str = ".json";

impl SteeringQueue {
    /// Creates the queue of this folder. These messages are already delivered.
    pub(super) fn new(folder: PathBuf, arrived: BTreeSet<MessageId>) -> Self {
        let queue = QueueState { delivered: arrived, ..QueueState::default() };
        Self { folder, state: Arc::new(Mutex::new(queue)) }
    }

    /// Adds a message. It is durable when this returns.
    pub(super) fn add(&self, message: &QueuedMessage) -> Result<MessageId> {
        let id = MessageId(unique_id());
        self.add_as(id, message)?;
        Ok(id)
    }

    /// Adds a message under this name, unless the name exists.
    pub(super) fn add_as(&self, id: MessageId, message: &QueuedMessage) -> Result<()> {
        let (bytes, limit) = (message.text.len(), MAX_MESSAGE_BYTES);
        if bytes > limit {
            return Err(JournalError::MessageTooLong { bytes, limit });
        }
        folder::create_durable(&self.folder, Durability::Full)?;
        let path = self.path(id);
        let text = serde_json::to_vec(message).io_context("write", &path)?;
        Ok(replace_file(&path, &text, Durability::Full).io_context("write", &path)?)
    }

    /// Returns the undelivered messages, oldest first.
    pub(super) fn pending(&self) -> Vec<(MessageId, QueuedMessage)> {
        let mut ids: Vec<MessageId> = match folder::read_dir(&self.folder) {
            Ok(entries) => entries.filter_map(|entry| message_id(&entry.ok()?)).collect(),
            Err(_) => return Vec::new(),
        };
        ids.sort_unstable();
        let (old, new): (Vec<_>, Vec<_>) = {
            let queue = lock(&self.state);
            ids.retain(|id| !queue.written.contains(id));
            ids.into_iter().partition(|id| queue.delivered.contains(id))
        };
        for id in old {
            self.remove_file(id);
        }
        new.into_iter().filter_map(|id| Some((id, self.read(id)?))).collect()
    }

    /// Returns the number of the user's messages that no record contains.
    #[must_use]
    pub fn unread(&self) -> usize {
        let is_users = |kind| matches!(kind, MessageKind::Steering | MessageKind::FollowUp);
        self.pending().iter().filter(|(_, message)| is_users(message.kind)).count()
    }

    fn read(&self, id: MessageId) -> Option<QueuedMessage> {
        let path = self.path(id);
        let read = fs::read(&path).io_context("read", &path).and_then(|text| {
            serde_json::from_slice(&text).io_context("understand the message", &path)
        });
        read.inspect_err(|error| log::warn!("{error}")).ok()
    }

    /// Returns the messages that an event contains.
    pub(super) fn ids_in(&self, event: &Event) -> Vec<MessageId> {
        match event {
            Event::Prepared { messages, .. } if !messages.is_empty() => {
                lock(&self.state).taken.clone()
            }
            Event::Checked { result: CheckResult::FollowUp { .. }, .. } => {
                lock(&self.state).follow_up.into_iter().collect()
            }
            _ => Vec::new(),
        }
    }

    /// Notes that a record contains these messages.
    pub(super) fn mark_written(&self, ids: &[MessageId]) {
        if !ids.is_empty() {
            lock(&self.state).written.extend_from_slice(ids);
        }
    }

    /// Removes the messages that durable records contain.
    pub(super) fn mark_delivered(&self) {
        let written = std::mem::take(&mut lock(&self.state).written);
        for id in written {
            lock(&self.state).delivered.insert(id);
            self.remove_file(id);
        }
    }

    fn remove_file(&self, id: MessageId) {
        let path = self.path(id);
        if let Err(error) = fs::remove_file(&path) {
            log::warn!("could not take the message {} away: {error}", path.display());
        }
    }

    fn path(&self, id: MessageId) -> PathBuf {
        self.folder.join(format!("{}{EXTENSION}", id.0))
    }
}

impl MessageId {
    /// Returns the name of a message from this program at this time. The same text gets the same name.
    pub(super) fn derive(at: WallTime, rank: u16, text: &str) -> Self {
        let millis = u64::try_from(at.unix_micros() / 1_000).unwrap_or(0);
        Self(Uuid::from_u64_pair(millis << 16 | u64::from(rank), Digest::of(text).0))
    }
}

impl MessageSource for SteeringQueue {
    fn take_messages(&mut self) -> Vec<UserMessage> {
        let mut messages = self.pending();
        messages.retain(|(_, message)| message.kind != MessageKind::FollowUp);
        lock(&self.state).taken = messages.iter().map(|(id, _)| *id).collect();
        messages.into_iter().map(|(_, message)| message.into()).collect()
    }

    /// Returns the same message until a record contains it: the answer that it would have followed may have been
    /// rejected for another reason.
    fn take_follow_up(&mut self) -> Option<Arc<str>> {
        let mut messages = self.pending().into_iter();
        let next = messages.find(|(_, message)| match message.kind {
            // It has come too late for another call, so that this one follows.
            MessageKind::Steering => message.images.is_empty(),
            MessageKind::FollowUp => true,
            MessageKind::Task | MessageKind::SystemNotice => false,
        });
        lock(&self.state).follow_up = next.as_ref().map(|(id, _)| *id);
        next.map(|(_, message)| message.text)
    }
}

impl From<QueuedMessage> for UserMessage {
    fn from(message: QueuedMessage) -> Self {
        let origin = match message.kind {
            MessageKind::Steering => MessageOrigin::Steering,
            MessageKind::FollowUp => MessageOrigin::FollowUp,
            MessageKind::Task => MessageOrigin::Task,
            MessageKind::SystemNotice => MessageOrigin::System,
        };
        Self { origin, text: message.text, images: message.images }
    }
}

/// Returns the id of a file of the queue, if it is a message.
fn message_id(entry: &fs::DirEntry) -> Option<MessageId> {
    let name = entry.file_name();
    Uuid::try_parse(name.to_str()?.strip_suffix(EXTENSION)?).ok().map(MessageId)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::RequestSize;
    use crate::types::EffectId;

    fn empty_queue() -> (tempfile::TempDir, SteeringQueue) {
        let temp = tempfile::tempdir().unwrap();
        let queue = SteeringQueue::new(temp.path().join("mail"), BTreeSet::new());
        (temp, queue)
    }

    fn put(queue: &SteeringQueue, kind: MessageKind, text: &str) -> MessageId {
        queue.add(&QueuedMessage::new(kind, text)).unwrap()
    }

    fn texts(queue: &mut SteeringQueue) -> Vec<String> {
        queue.take_messages().iter().map(|message| message.text.to_string()).collect()
    }

    fn prepared(messages: Vec<UserMessage>) -> Event {
        Event::Prepared { id: EffectId(1), size: RequestSize::default(), messages: messages.into() }
    }

    #[test]
    fn messages_come_in_order_and_stay_until_a_durable_record_contains_them() {
        let (_temp, mut queue) = empty_queue();
        assert_eq!(texts(&mut queue), [""; 0]);
        let first = put(&queue, MessageKind::Steering, "left");
        let second = put(&queue, MessageKind::Task, "right");
        put(&queue, MessageKind::FollowUp, "later");
        assert_eq!(texts(&mut queue), ["left", "right"]);
        let event = prepared(queue.take_messages());
        let within = queue.ids_in(&event);
        assert_eq!(within, [first, second]);
        queue.mark_written(&within);
        assert_eq!(texts(&mut queue), [""; 0]);
        assert_eq!(fs::read_dir(&queue.folder).unwrap().count(), 3);
        queue.mark_delivered();
        assert_eq!(fs::read_dir(&queue.folder).unwrap().count(), 1);
    }

    #[test]
    fn a_message_of_a_durable_record_is_not_read_twice_though_its_file_was_left() {
        let (_temp, queue) = empty_queue();
        let id = put(&queue, MessageKind::Steering, "left");
        put(&queue, MessageKind::Steering, "right");
        let mut again = SteeringQueue::new(queue.folder.clone(), [id].into());
        assert_eq!(texts(&mut again), ["right"]);
        assert_eq!(fs::read_dir(&queue.folder).unwrap().count(), 1);
    }

    #[test]
    fn a_follow_up_is_offered_until_it_is_followed() {
        let (_temp, mut queue) = empty_queue();
        let id = put(&queue, MessageKind::FollowUp, "later");
        assert_eq!(queue.take_follow_up().as_deref(), Some("later"));
        let sent_back = CheckResult::SentBack { message: "no".into() };
        let event = Event::Checked { id: EffectId(1), result: sent_back };
        assert_eq!(queue.ids_in(&event), []);
        assert_eq!(queue.take_follow_up().as_deref(), Some("later"));
        let check = CheckResult::FollowUp { message: "later".into() };
        let event = Event::Checked { id: EffectId(1), result: check };
        assert_eq!(queue.ids_in(&event), [id]);
        queue.mark_written(&[id]);
        assert_eq!(queue.take_follow_up(), None);
    }

    #[test]
    fn a_steering_message_that_no_call_has_read_is_a_follow_up() {
        let (_temp, mut queue) = empty_queue();
        put(&queue, MessageKind::Steering, "left");
        assert_eq!(queue.unread(), 1);
        assert_eq!(queue.take_follow_up().as_deref(), Some("left"));
    }

    #[test]
    fn what_is_no_message_is_left_alone() {
        let (temp, mut queue) = empty_queue();
        put(&queue, MessageKind::Steering, "left");
        let folder = temp.path().join("mail");
        fs::write(folder.join("note.json"), "{}").unwrap();
        fs::write(folder.join(format!("{}.json", Uuid::now_v7())), "{").unwrap();
        assert_eq!(texts(&mut queue), ["left"]);
    }

    #[test]
    fn a_message_that_is_too_long_is_refused() {
        let (_temp, queue) = empty_queue();
        let long = "x".repeat(MAX_MESSAGE_BYTES + 1);
        let message = QueuedMessage::new(MessageKind::Steering, long);
        assert!(matches!(queue.add(&message), Err(JournalError::MessageTooLong { .. })));
    }
}
