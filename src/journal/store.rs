//! The folder in which sessions are kept.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use uuid::Uuid;

use super::blobs::{self, Blobs};
use super::claim::{self, Claim};
use super::error::{JournalError, ReadOnly, Tried};
use super::header::{Begin, Header};
use super::id::SessionId;
use super::mail::{Letter, Mail, MailId};
use super::outputs::Outputs;
use super::reader::{Found, Position, Reader};
use super::replay::{End, EndKind, Past, Replayed, replay};
use super::resume::Opened;
use super::writer::{FileJournal, Files, lock};
use super::{Content, Durability, Stored, folder};
use crate::model::LimitBase;
use crate::port::unique;

/// The sessions of a user.
#[derive(Clone, Debug)]
pub struct Store {
    /// The folder of the journals.
    sessions: PathBuf,
    durability: Durability,
}

/// A session in the store, as far as its file tells without being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The session.
    pub session: SessionId,
    /// The length of its journal.
    pub bytes: u64,
    /// When it was written to last.
    pub modified: SystemTime,
}

/// What is done about damage before intact records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// Nothing: the session can only be read.
    Refuse,
    /// The journal is cut off before it; what was behind is saved beside it.
    Cut,
}

/// The ending of a journal's name.
const ENDING: &str = ".jsonl";

/// Returns the folder for sessions that the user's environment names.
///
/// # Errors
///
/// Fails when neither `XDG_STATE_HOME` nor `HOME` is an absolute path.
pub fn default_root(variable: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf, JournalError> {
    let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME");
    let state = state.or_else(|| absolute("HOME").map(|home| home.join(".local/state")));
    state.map(|state| state.join("architect")).ok_or(JournalError::NoHome)
}

/// Returns what the limits of a session count from. What somebody else wrote does not raise them.
fn limits_from(past: &Past) -> LimitBase {
    let run = past.fold.state.run();
    let from = run.rules.from;
    LimitBase { steps: from.steps.min(run.steps), denied: from.denied.min(run.denied) }
}

/// How long a process may take to write one file, at the most; after that it has been killed.
const LONGEST_WRITE: Duration = Duration::from_secs(3_600);

/// Returns whether a file still waits for its name.
fn is_nameless(name: &OsStr) -> bool {
    let name = name.to_str().and_then(|name| name.strip_prefix('.'));
    name.is_some_and(|id| Uuid::try_parse(id).is_ok())
}

/// Returns whether no process has locked a file.
fn is_free(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| file.try_lock().is_ok())
}

/// Returns a session, if its journal has the right name.
fn own(session: SessionId, past: Past) -> Result<Past, JournalError> {
    match past.header.session {
        header if header == session => Ok(past),
        header => Err(JournalError::Misnamed { session, header }),
    }
}

impl Store {
    /// Opens the store in this folder; what is missing is made.
    ///
    /// # Errors
    ///
    /// Fails when the folder can't be made, or can't be trusted.
    pub fn open(root: &Path, durability: Durability) -> Result<Self, JournalError> {
        let sessions = root.join("sessions");
        folder::durable(root, durability)?;
        folder::durable(&sessions, durability)?;
        Ok(Self { sessions, durability })
    }

    /// Begins a session. It is in the store, with its header, once this returns.
    ///
    /// # Errors
    ///
    /// Fails when there is a session with this id, or the system refuses something.
    pub fn create(
        &self,
        session: SessionId,
        begin: Begin,
    ) -> Result<(FileJournal, Header), JournalError> {
        let header = Header::new(session, begin);
        let _claim = self.claim_new(session)?;
        // Under its own name a journal is never seen without its header.
        let temporary = self.temporary();
        let file = blobs::create(&temporary).tried("make the file", &temporary)?;
        let journal = self.begin(session, file, &header).and_then(|journal| {
            self.publish(&temporary, session)?;
            Ok(journal)
        });
        if journal.is_err() {
            let _ = fs::remove_file(&temporary);
            self.forsake(session);
        }
        Ok((journal?, header))
    }

    /// Removes what stands beside a session that could not be begun. What another process has named is not ours.
    pub(super) fn forsake(&self, session: SessionId) {
        if !self.path(session).exists() {
            let _ = fs::remove_dir_all(self.beside(session));
        }
    }

    fn begin(
        &self,
        session: SessionId,
        file: File,
        header: &Header,
    ) -> Result<FileJournal, JournalError> {
        // Nobody else knows the file yet, so its lock is free; from its first moment under its name it is locked.
        lock(&file, &self.path(session))?;
        let files = self.files(session, file, BTreeSet::new());
        let mut journal = FileJournal::new(files, Position::default(), header.created);
        journal.begin(header)?;
        Ok(journal)
    }

    /// Takes the sole right to begin a session with this id.
    ///
    /// # Errors
    ///
    /// Fails when there is one already, and while another process begins it.
    pub(super) fn claim_new(&self, session: SessionId) -> Result<Claim, JournalError> {
        let exists = || match self.path(session).exists() {
            true => Err(JournalError::Exists(session)),
            false => Ok(()),
        };
        exists()?;
        let claim = Claim::take(session, &self.beside(session))?;
        // The process that had it before may have begun the session.
        exists().map(|()| claim)
    }

    /// Gives a journal its name.
    ///
    /// # Errors
    ///
    /// Fails when there is a session with this id: none is ever replaced.
    pub(super) fn publish(&self, from: &Path, session: SessionId) -> Result<(), JournalError> {
        let path = self.path(session);
        match claim::publish(from, &path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(JournalError::Exists(session));
            }
            named => named.tried("make the file", &path)?,
        }
        match self.durability {
            Durability::Full => folder::sync(&self.sessions).tried("make durable", &self.sessions),
            Durability::Os => Ok(()),
        }
    }

    /// Opens a session in order to go on with it.
    ///
    /// What a crash has left half-written at its end is cut off, and saved beside it.
    ///
    /// # Errors
    ///
    /// Fails when another process runs the session, and when it can only be read.
    pub fn reopen(&self, session: SessionId, repair: Repair) -> Result<Opened, JournalError> {
        let path = self.path(session);
        let flags = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
        let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(&path);
        let file = self.found(session, file)?;
        self.claim(session, &file)?;
        if file.metadata().tried("look at", &path)?.nlink() == 0 {
            // It was removed while this process waited for its lock.
            return Err(JournalError::Unknown(session.to_string()));
        }
        let read = file.try_clone().tried("open", &path)?;
        let reader = Reader::new(&path, read, self.blobs(session));
        let (past, End { position, kind }) = replay(reader, session, |_, _, _| {})?;
        let past = own(session, past)?;
        if let Some(why) = past.header.newer() {
            return Err(JournalError::ReadOnly { session, why });
        }
        let torn = match kind {
            EndKind::Whole => None,
            EndKind::Torn(_) => Some(self.cut(session, &file, position)?),
            EndKind::ReadOnly(ReadOnly::Damaged { .. }) if repair == Repair::Cut => {
                Some(self.cut(session, &file, position)?)
            }
            EndKind::ReadOnly(why) => return Err(JournalError::ReadOnly { session, why }),
        };
        let files = self.files(session, file, past.arrived.clone());
        let journal = FileJournal::new(files, position, past.dawn);
        let is_over = |session: &SessionId| self.is_running(*session).is_ok_and(|is| !is);
        let delegated = past.delegated().into_iter().filter(is_over);
        let delegated = delegated.filter_map(|session| self.replay(session, |_, _, _| {}).ok());
        let delegated = delegated.map(|(past, _)| past).collect();
        let from = limits_from(&past);
        self.sweep(session);
        Ok(Opened { journal, past, delegated, torn, from })
    }

    /// Removes files without a name in the folder beside a session, which processes have left there that were killed while
    /// they wrote them. Of this session nobody else writes any but messages, and none of those takes so long.
    fn sweep(&self, session: SessionId) {
        let before = SystemTime::now().checked_sub(LONGEST_WRITE).unwrap_or(SystemTime::UNIX_EPOCH);
        let folders = ["", "blobs", "outputs", "mail"].map(|name| self.beside(session).join(name));
        for entry in folders.iter().flat_map(|folder| folder::list(folder).into_iter().flatten()) {
            let Ok(entry) = entry else { continue };
            let is_old =
                entry.metadata().and_then(|data| data.modified()).is_ok_and(|at| at < before);
            if is_old && is_nameless(&entry.file_name()) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// Cuts a journal off at the end of its valid prefix, after saving what is behind it.
    fn cut(
        &self,
        session: SessionId,
        file: &File,
        position: Position,
    ) -> Result<PathBuf, JournalError> {
        let beside = self.beside(session);
        let saved = beside.join(format!("torn-{}-{}", position.offset, unique()));
        let mut from = file.try_clone().tried("open", &saved)?;
        from.seek(SeekFrom::Start(position.offset)).tried("read", &saved)?;
        let mut to = blobs::create(&saved).tried("make the file", &saved)?;
        io::copy(&mut from, &mut to).tried("write", &saved)?;
        to.sync_all().tried("make durable", &saved)?;
        folder::sync(&beside).tried("make durable", &beside)?;
        let path = self.path(session);
        file.set_len(position.offset).tried("cut off", &path)?;
        file.sync_all().tried("make durable", &path)?;
        Ok(saved)
    }

    /// Takes the lock of a session.
    fn claim(&self, session: SessionId, file: &File) -> Result<(), JournalError> {
        let pid = self.beside(session).join("pid");
        if !lock(file, &self.path(session))? {
            let text = fs::read_to_string(&pid).unwrap_or_default();
            return Err(JournalError::Busy { session, pid: text.trim().parse().ok() });
        }
        folder::durable(&self.beside(session), self.durability)?;
        fs::write(&pid, format!("{}\n", std::process::id())).tried("write", &pid)
    }

    /// Reads a session record by record, and shows each with what became of it. Nobody has to be asked for that.
    ///
    /// # Errors
    ///
    /// Fails when there is no such session, when it can't be read, or when it has no header.
    pub fn replay(
        &self,
        session: SessionId,
        see: impl FnMut(&Past, &Stored, &Replayed),
    ) -> Result<(Past, End), JournalError> {
        let (past, end) = replay(self.reader(session)?, session, see)?;
        Ok((own(session, past)?, end))
    }

    /// Returns what is damaged in a session's journal, if anything is.
    ///
    /// # Errors
    ///
    /// Fails as [`replay`](Self::replay) does.
    pub fn damage(&self, session: SessionId) -> Result<Option<ReadOnly>, JournalError> {
        Ok(self.replay(session, |_, _, _| {})?.1.damage())
    }

    /// Opens a session for reading.
    ///
    /// # Errors
    ///
    /// Fails when there is no such session.
    pub fn reader(&self, session: SessionId) -> Result<Reader, JournalError> {
        let path = self.path(session);
        let file = self.found(session, File::open(&path))?;
        Ok(Reader::new(&path, file, self.blobs(session)))
    }

    /// Returns the sessions, oldest first.
    ///
    /// # Errors
    ///
    /// Fails when the store can't be listed.
    pub fn list(&self) -> Result<Vec<Listed>, JournalError> {
        let mut found = Vec::new();
        for entry in folder::list(&self.sessions).tried("list", &self.sessions)? {
            let entry = entry.tried("list", &self.sessions)?;
            let name = entry.file_name();
            let id = name.to_str().and_then(|name| name.strip_suffix(ENDING)?.parse().ok());
            // A session may be removed meanwhile.
            let (Some(session), Ok(data)) = (id, entry.metadata()) else { continue };
            if data.is_file() {
                let modified = data.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                found.push(Listed { session, bytes: data.len(), modified });
            }
        }
        found.sort_unstable_by_key(|listed| listed.session);
        Ok(found)
    }

    /// Returns the session that a name means: an id, its beginning, or `last` for the one that was written to last, of
    /// those that no other one has sent.
    ///
    /// # Errors
    ///
    /// Fails when the name means no session, or several.
    pub fn resolve(&self, name: &str) -> Result<SessionId, JournalError> {
        let unknown = || JournalError::Unknown(name.chars().take(80).collect());
        let listed = self.list()?;
        if name == "last" {
            let mut listed = listed;
            listed.sort_unstable_by_key(|listed| Reverse((listed.modified, listed.session)));
            let last = listed.iter().find(|listed| !self.is_dispatched(listed.session));
            return last.map(|listed| listed.session).ok_or_else(unknown);
        }
        let is_prefix =
            !name.is_empty() && name.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit());
        let fits = |listed: &&Listed| is_prefix && listed.session.to_string().starts_with(name);
        let found: Vec<_> = listed.iter().filter(fits).map(|listed| listed.session).collect();
        match found.as_slice() {
            [] => Err(unknown()),
            [session] => Ok(*session),
            _ => Err(JournalError::Ambiguous { prefix: name.to_owned(), found }),
        }
    }

    /// Returns the session of a folder that was written to last, of those that no other one has sent. One that was
    /// imported, and has not gone on since, belongs to every folder.
    ///
    /// # Errors
    ///
    /// Fails when the store can't be listed.
    pub fn last_of(&self, folder: &Path) -> Result<Option<SessionId>, JournalError> {
        let mut listed = self.list()?;
        listed.sort_unstable_by_key(|listed| Reverse((listed.modified, listed.session)));
        let found = listed.iter().find(|listed| self.belongs_to(listed.session, folder));
        Ok(found.map(|listed| listed.session))
    }

    fn belongs_to(&self, session: SessionId, folder: &Path) -> bool {
        let first = self.reader(session).and_then(|mut reader| reader.read());
        let Ok(Found::Record(stored)) = first else { return false };
        let Content::Header(header) = stored.content else { return false };
        if header.dispatched_by.is_some() {
            return false;
        }
        if header.imported.is_none() {
            return header.setting.workspace.root == folder;
        }
        let past = self.replay(session, |_, _, _| {}).map(|(past, _)| past);
        past.is_ok_and(|past| past.is_foreign() || past.setting.workspace.root == folder)
    }

    /// Returns whether another session has sent this one. What can't be read was sent by nobody.
    fn is_dispatched(&self, session: SessionId) -> bool {
        let header = self.reader(session).and_then(|mut reader| reader.read());
        let Ok(Found::Record(stored)) = header else { return false };
        matches!(stored.content, Content::Header(header) if header.dispatched_by.is_some())
    }

    /// Returns whether a process runs the session.
    ///
    /// # Errors
    ///
    /// Fails when there is no such session, or its lock can't be looked at.
    pub fn is_running(&self, session: SessionId) -> Result<bool, JournalError> {
        let path = self.path(session);
        let file = self.found(session, File::open(&path))?;
        match file.try_lock_shared() {
            Ok(()) => file.unlock().tried("unlock", &path).map(|()| false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(error)) => Err(error).tried("lock", &path),
        }
    }

    /// Leaves a message for a running session.
    ///
    /// # Errors
    ///
    /// Fails when nobody runs the session, or the message is too long.
    pub fn send(&self, session: SessionId, letter: &Letter) -> Result<MailId, JournalError> {
        if !self.is_running(session)? {
            return Err(JournalError::Idle(session));
        }
        Mail::new(self.beside(session).join("mail"), BTreeSet::new()).put(letter)
    }

    /// Removes a session with all that belongs to it.
    ///
    /// # Errors
    ///
    /// Fails when a process runs the session.
    pub fn remove(&self, session: SessionId) -> Result<(), JournalError> {
        let path = self.path(session);
        let file = self.found(session, File::open(&path))?;
        if !lock(&file, &path)? {
            return Err(JournalError::Busy { session, pid: None });
        }
        // A journal without its texts would be damaged; texts without their journal are nobody's.
        fs::remove_file(&path).tried("remove", &path)?;
        let beside = self.beside(session);
        match fs::remove_dir_all(&beside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).tried("remove", &beside)
            }
            _ => Ok(()),
        }
    }

    /// Removes the sessions that nobody has written to since this time, and returns them. Running ones stay. What is as
    /// old and belongs to no session goes, too.
    ///
    /// # Errors
    ///
    /// Fails when the store can't be listed, or the system refuses to remove something.
    pub fn clean_up(&self, before: SystemTime) -> Result<Vec<SessionId>, JournalError> {
        let mut removed = Vec::new();
        self.remove_strays(before)?;
        for listed in self.list()?.into_iter().filter(|listed| listed.modified < before) {
            match self.remove(listed.session) {
                Ok(()) => removed.push(listed.session),
                Err(JournalError::Busy { .. } | JournalError::Unknown(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(removed)
    }

    /// Removes what processes left that were killed while they began a session, or removed one.
    fn remove_strays(&self, before: SystemTime) -> Result<(), JournalError> {
        for entry in folder::list(&self.sessions).tried("list", &self.sessions)? {
            let entry = entry.tried("list", &self.sessions)?;
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_str().unwrap_or_default();
            let is_beginning = is_nameless(&entry.file_name());
            let session = name.parse().ok().filter(|id| !self.path(*id).exists());
            let Ok(data) = entry.metadata() else { continue };
            if data.modified().is_ok_and(|modified| modified >= before) {
                continue;
            }
            let gone = match (is_beginning, session) {
                // Whoever begins a session has locked both.
                (true, _) if data.is_file() && is_free(&path) => fs::remove_file(&path),
                (_, Some(session)) if data.is_dir() => match self.claim_new(session) {
                    Ok(_claim) => fs::remove_dir_all(&path),
                    Err(_) => Ok(()),
                },
                _ => Ok(()),
            };
            if let Err(error) = gone {
                log::warn!("could not remove {}: {error}", path.display());
            }
        }
        Ok(())
    }

    /// Returns the whole outputs of a session's tools.
    pub fn outputs(&self, session: SessionId) -> Outputs {
        Outputs::new(self.beside(session).join("outputs"), self.durability)
    }

    pub(super) fn blobs(&self, session: SessionId) -> Blobs {
        Blobs::new(self.beside(session).join("blobs"), self.durability)
    }

    pub(super) fn path(&self, session: SessionId) -> PathBuf {
        self.sessions.join(format!("{session}{ENDING}"))
    }

    /// Returns the folder of what belongs to a session beside its journal.
    pub(super) fn beside(&self, session: SessionId) -> PathBuf {
        self.sessions.join(session.to_string())
    }

    /// Returns the file of the index across the sessions.
    pub(super) fn index(&self) -> PathBuf {
        self.sessions.with_file_name("index.db")
    }

    /// Returns a name that no journal has.
    pub(super) fn temporary(&self) -> PathBuf {
        self.sessions.join(format!(".{}", unique()))
    }

    pub(super) fn durability(&self) -> Durability {
        self.durability
    }

    fn files(&self, session: SessionId, file: File, arrived: BTreeSet<MailId>) -> Files {
        Files {
            session,
            path: self.path(session),
            file,
            durability: self.durability,
            blobs: self.blobs(session),
            mail: Mail::new(self.beside(session).join("mail"), arrived),
        }
    }

    fn found<T>(&self, session: SessionId, opened: io::Result<T>) -> Result<T, JournalError> {
        match opened {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(JournalError::Unknown(session.to_string()))
            }
            opened => opened.tried("open", &self.path(session)),
        }
    }
}
