//! Messages for a session from other processes: a folder into which each is put as a file.
//!
//! A file appears whole, under a name that sorts by time. It is taken away only after the record that contains the
//! message is durable; the record names the file, so that a message which was taken but not yet taken away when the
//! process ended is not read a second time.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::Durability;
use super::blobs;
use super::error::{JournalError, Tried};
use super::folder;
use super::header::Wall;
use crate::machine::{Check, Event};
use crate::model::{Digest, Origin, UserMessage};
use crate::port::{Mailbox, unique};

/// The messages for one session. Clones are the same mailbox.
#[derive(Clone, Debug)]
pub struct Mail {
    folder: PathBuf,
    desk: Arc<Mutex<Desk>>,
}

/// The name of a message; later ones sort behind earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MailId(Uuid);

/// A message with what it is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Letter {
    /// When it is to be read, and who says it.
    pub kind: LetterKind,
    /// What it says.
    pub text: Arc<str>,
}

/// When a message is to be read, and who says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LetterKind {
    /// By the user, for the next model call.
    Steering,
    /// By the user, for when the run would have ended.
    FollowUp,
    /// The prompt with which a session goes on.
    Task,
    /// By the program, for the next model call.
    Notice,
}

/// What happens to the messages in this process.
#[derive(Debug, Default)]
struct Desk {
    /// Handed out for the next model call, in this order.
    given: Vec<MailId>,
    /// Handed out as a follow-up.
    follow_up: Option<MailId>,
    /// Contained in a record that may not be durable.
    written: Vec<MailId>,
    /// Contained in a durable record.
    arrived: BTreeSet<MailId>,
}

/// The longest message that is taken.
const LONGEST: usize = 1 << 20;

/// The end of a message's file name.
const ENDING: &str = ".json";

impl Mail {
    /// Returns the mailbox in this folder, of which these messages have arrived already.
    pub(super) fn new(folder: PathBuf, arrived: BTreeSet<MailId>) -> Self {
        let desk = Desk { arrived, ..Desk::default() };
        Self { folder, desk: Arc::new(Mutex::new(desk)) }
    }

    /// Puts a message in. It is durable when this returns.
    pub(super) fn put(&self, letter: &Letter) -> Result<MailId, JournalError> {
        let id = MailId(unique());
        self.put_as(id, letter)?;
        Ok(id)
    }

    /// Puts a message in under this name; there is one with a name at the most.
    pub(super) fn put_as(&self, id: MailId, letter: &Letter) -> Result<(), JournalError> {
        if letter.text.len() > LONGEST {
            return Err(JournalError::TooLong { bytes: letter.text.len(), most: LONGEST });
        }
        folder::durable(&self.folder, Durability::Full)?;
        let path = self.path(id);
        let text = serde_json::to_vec(letter).tried("write", &path)?;
        blobs::replace(&path, &text, Durability::Full).tried("write", &path)
    }

    /// Returns the messages that have not arrived yet, in the order in which they came.
    pub(super) fn waiting(&self) -> Vec<(MailId, Letter)> {
        let mut ids: Vec<MailId> = match folder::list(&self.folder) {
            Ok(entries) => entries.filter_map(|entry| name(&entry.ok()?)).collect(),
            Err(_) => return Vec::new(),
        };
        ids.sort_unstable();
        let (old, new): (Vec<_>, Vec<_>) = {
            let desk = self.desk();
            ids.retain(|id| !desk.written.contains(id));
            ids.into_iter().partition(|id| desk.arrived.contains(id))
        };
        for id in old {
            self.take_away(id);
        }
        new.into_iter().filter_map(|id| Some((id, self.read(id)?))).collect()
    }

    fn read(&self, id: MailId) -> Option<Letter> {
        let path = self.path(id);
        let read = fs::read(&path)
            .tried("read", &path)
            .and_then(|text| serde_json::from_slice(&text).tried("understand the message", &path));
        read.inspect_err(|error| log::warn!("{error}")).ok()
    }

    /// Returns the messages that an event contains.
    pub(super) fn within(&self, event: &Event) -> Vec<MailId> {
        match event {
            Event::Prepared { messages, .. } if !messages.is_empty() => self.desk().given.clone(),
            Event::Checked { check: Check::FollowUp { .. }, .. } => {
                self.desk().follow_up.into_iter().collect()
            }
            Event::Prepared { .. }
            | Event::Checked { .. }
            | Event::Tick { .. }
            | Event::Interrupt { .. }
            | Event::StoreFailed { .. }
            | Event::Defect { .. }
            | Event::Replied { .. }
            | Event::Failed { .. }
            | Event::Vetted { .. }
            | Event::Settled { .. }
            | Event::Charged { .. } => Vec::new(),
        }
    }

    /// Notes that a record contains these messages.
    pub(super) fn written(&self, ids: &[MailId]) {
        if !ids.is_empty() {
            self.desk().written.extend_from_slice(ids);
        }
    }

    /// Takes the messages away that durable records contain.
    pub(super) fn arrived(&self) {
        let written = std::mem::take(&mut self.desk().written);
        for id in written {
            self.desk().arrived.insert(id);
            self.take_away(id);
        }
    }

    fn take_away(&self, id: MailId) {
        let path = self.path(id);
        if let Err(error) = fs::remove_file(&path) {
            log::warn!("could not take the message {} away: {error}", path.display());
        }
    }

    fn path(&self, id: MailId) -> PathBuf {
        self.folder.join(format!("{id}{ENDING}"))
    }

    /// Nothing breaks off halfway under the lock, so a poisoned one is as good as new.
    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MailId {
    /// Returns the name of a message that this program makes at this time: the same text gets the same name again.
    pub(super) fn made(at: Wall, rank: u16, text: &str) -> Self {
        let millis = u64::try_from(at.micros() / 1_000).unwrap_or(0);
        Self(Uuid::from_u64_pair(millis << 16 | u64::from(rank), Digest::of(text).0))
    }
}

impl Mailbox for Mail {
    fn messages(&mut self) -> Vec<UserMessage> {
        let mut letters = self.waiting();
        letters.retain(|(_, letter)| letter.kind != LetterKind::FollowUp);
        self.desk().given = letters.iter().map(|(id, _)| *id).collect();
        letters.into_iter().map(|(_, letter)| letter.into()).collect()
    }

    /// The same message is handed out again until a record contains it: the answer that it would have followed may
    /// have been sent back for another reason.
    fn follow_up(&mut self) -> Option<Arc<str>> {
        let mut letters = self.waiting().into_iter();
        let next = letters.find(|(_, letter)| letter.kind == LetterKind::FollowUp);
        self.desk().follow_up = next.as_ref().map(|(id, _)| *id);
        next.map(|(_, letter)| letter.text)
    }
}

impl From<Letter> for UserMessage {
    fn from(letter: Letter) -> Self {
        let origin = match letter.kind {
            LetterKind::Steering => Origin::Steering,
            LetterKind::FollowUp => Origin::FollowUp,
            LetterKind::Task => Origin::Task,
            LetterKind::Notice => Origin::System,
        };
        Self { origin, text: letter.text }
    }
}

/// Returns the message that a file is, if it is one.
fn name(entry: &fs::DirEntry) -> Option<MailId> {
    entry.file_name().to_str()?.strip_suffix(ENDING)?.parse().ok()
}

impl FromStr for MailId {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<Self, uuid::Error> {
        Uuid::try_parse(text).map(Self)
    }
}

impl TryFrom<String> for MailId {
    type Error = uuid::Error;

    fn try_from(text: String) -> Result<Self, uuid::Error> {
        text.parse()
    }
}

impl From<MailId> for String {
    fn from(id: MailId) -> Self {
        id.to_string()
    }
}

impl fmt::Display for MailId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_hyphenated().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Facts;
    use crate::model::EffectId;

    fn mail() -> (tempfile::TempDir, Mail) {
        let temp = tempfile::tempdir().unwrap();
        let mail = Mail::new(temp.path().join("mail"), BTreeSet::new());
        (temp, mail)
    }

    fn put(mail: &Mail, kind: LetterKind, text: &str) -> MailId {
        mail.put(&Letter { kind, text: text.into() }).unwrap()
    }

    fn texts(mail: &mut Mail) -> Vec<String> {
        mail.messages().iter().map(|message| message.text.to_string()).collect()
    }

    fn prepared(messages: Vec<UserMessage>) -> Event {
        Event::Prepared { id: EffectId(1), facts: Facts::default(), messages: messages.into() }
    }

    #[test]
    fn messages_come_in_order_and_stay_until_a_durable_record_contains_them() {
        let (_temp, mut mail) = mail();
        assert_eq!(texts(&mut mail), [""; 0]);
        let first = put(&mail, LetterKind::Steering, "left");
        let second = put(&mail, LetterKind::Task, "right");
        put(&mail, LetterKind::FollowUp, "later");
        assert_eq!(texts(&mut mail), ["left", "right"]);
        let event = prepared(mail.messages());
        let within = mail.within(&event);
        assert_eq!(within, [first, second]);
        mail.written(&within);
        assert_eq!(texts(&mut mail), [""; 0]);
        assert_eq!(fs::read_dir(&mail.folder).unwrap().count(), 3);
        mail.arrived();
        assert_eq!(fs::read_dir(&mail.folder).unwrap().count(), 1);
    }

    #[test]
    fn a_message_of_a_durable_record_is_not_read_twice_though_its_file_was_left() {
        let (_temp, mail) = mail();
        let id = put(&mail, LetterKind::Steering, "left");
        put(&mail, LetterKind::Steering, "right");
        let mut again = Mail::new(mail.folder.clone(), [id].into());
        assert_eq!(texts(&mut again), ["right"]);
        assert_eq!(fs::read_dir(&mail.folder).unwrap().count(), 1);
    }

    #[test]
    fn a_follow_up_is_offered_until_it_is_followed() {
        let (_temp, mut mail) = mail();
        let id = put(&mail, LetterKind::FollowUp, "later");
        assert_eq!(mail.follow_up().as_deref(), Some("later"));
        let sent_back = Check::SentBack { message: "no".into() };
        let event = Event::Checked { id: EffectId(1), check: sent_back };
        assert_eq!(mail.within(&event), []);
        assert_eq!(mail.follow_up().as_deref(), Some("later"));
        let check = Check::FollowUp { message: "later".into() };
        let event = Event::Checked { id: EffectId(1), check };
        assert_eq!(mail.within(&event), [id]);
        mail.written(&[id]);
        assert_eq!(mail.follow_up(), None);
    }

    #[test]
    fn what_is_no_message_is_left_alone() {
        let (temp, mut mail) = mail();
        put(&mail, LetterKind::Steering, "left");
        let folder = temp.path().join("mail");
        fs::write(folder.join("note.json"), "{}").unwrap();
        fs::write(folder.join(format!("{}.json", Uuid::now_v7())), "{").unwrap();
        assert_eq!(texts(&mut mail), ["left"]);
    }

    #[test]
    fn a_message_that_is_too_long_is_refused() {
        let (_temp, mail) = mail();
        let letter = Letter { kind: LetterKind::Steering, text: "x".repeat(LONGEST + 1).into() };
        assert!(matches!(mail.put(&letter), Err(JournalError::TooLong { .. })));
    }
}
