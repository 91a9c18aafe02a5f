//! The store of the sessions.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek, SeekFrom, Write as _};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use memchr::memmem;
use rustix::fs::OFlags;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::blobs::{self, BlobStore};
use super::error::{IoContext, JournalError, ReadOnlyReason, RecordDamage, Result};
use super::file_journal::{FileJournal, WriterHealth, lock};
use super::header::{SessionHeader, WallTime};
use super::journal_reader::{JournalPosition, JournalReader};
use super::record_line::ReadRecord;
use super::replay::{JournalEnd, JournalEndKind, ReplayedRecord, SessionHistory, replay};
use super::resume::OpenedSession;
use super::session_id::SessionId;
use super::session_outputs::SessionOutputs;
use super::space_reservation::SpaceReservation;
use super::steering_queue::{MessageId, QueuedMessage, SteeringQueue};
use super::{Durability, StoredContent, StoredRecord, folder, subagent_usage};
use crate::port::unique_id;
use crate::types::{LimitBaseline, TimeSpan};
use crate::workspace::sync_folder;

/// The sessions of a user.
#[derive(Clone, Debug)]
pub struct SessionStore {
    /// The folder of the journals.
    sessions: PathBuf,
    durability: Durability,
}

/// A session in the store, with the data that is known without reading its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedSession {
    /// The session.
    pub session: SessionId,
    /// The length of its journal in bytes.
    pub bytes: u64,
    /// The time of the last write.
    pub modified: SystemTime,
}

/// The treatment of damage before intact records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DamagePolicy {
    /// The session is read-only.
    Refuse,
    /// The journal is cut off before the damage; the rest is saved beside it.
    Truncate,
}

/// The length of a journal's beginning that contains the names in its header, in bytes.
const HEADER_START: usize = 2_048;

/// The extension of a journal's file name.
const EXTENSION: &str = ".jsonl";

/// Returns the folder for sessions from the user's environment.
///
/// # Errors
///
/// Fails if neither `XDG_STATE_HOME` nor `HOME` is an absolute path.
pub fn default_root(variable: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf> {
    let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME");
    let state = state.or_else(|| absolute("HOME").map(|home| home.join(".local/state")));
    state.map(|state| state.join("architect")).ok_or(JournalError::NoStateFolder)
}

/// Returns the baseline of a session's limits. An import can state a baseline, but not above the use of its records.
fn limit_baseline(history: &SessionHistory) -> LimitBaseline {
    let run = history.machine.state.run();
    let from = run.rules.limit_baseline;
    LimitBaseline {
        steps: from.steps.min(run.steps),
        denied_calls: from.denied_calls.min(run.denied_calls),
        time: from.time.min(history.at),
    }
}

/// The maximum time that a process needs to write one file. A temporary file that is older was left by a killed
/// process.
const MAX_WRITE_TIME: Duration = Duration::from_secs(3_600);

/// Returns whether a file has a temporary name.
fn is_temporary(name: &OsStr) -> bool {
    let name = name.to_str().and_then(|name| name.strip_prefix('.'));
    name.is_some_and(|id| Uuid::try_parse(id).is_ok())
}

/// Returns whether no process has locked a file.
fn is_unlocked(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| file.try_lock().is_ok())
}

/// Returns a session, if its journal has the right name.
fn check_session(session: SessionId, history: SessionHistory) -> Result<SessionHistory> {
    match history.header.session {
        header if header == session => Ok(history),
        header => Err(JournalError::Misnamed { session, header }),
    }
}

impl SessionStore {
    /// Opens the store in this folder, which is created if it is missing.
    ///
    /// # Errors
    ///
    /// Fails if the folder can't be created, or is unsafe to use.
    pub fn open(root: &Path, durability: Durability) -> Result<Self> {
        let sessions = root.join("sessions");
        folder::refuse_shared(root)?;
        folder::create_durable(root, durability)?;
        folder::create_durable(&sessions, durability)?;
        Ok(Self { sessions, durability })
    }

    /// Creates a session. Its header is durable once this returns.
    ///
    /// # Errors
    ///
    /// Fails if there is a session with this id, and on an I/O error.
    pub fn create(&self, header: &SessionHeader) -> Result<FileJournal> {
        let session = header.session;
        let _claim = self.claim_id(session)?;
        // A journal never has its final name without its header.
        let temporary = self.temporary_path();
        let file =
            blobs::create_private_file(&temporary).io_context("create the file", &temporary)?;
        let write = || {
            // No other process knows the file yet, so its lock is free. It is locked before it gets its name.
            lock(&file, &temporary)?;
            let (start, arrived) = (JournalPosition::default(), BTreeSet::new());
            let begun = (start, Sha256::new());
            let mut journal = self.journal(session, file, begun, header.created, arrived);
            journal.write_header(header)?;
            self.publish(&temporary, session).map(|()| journal)
        };
        write().inspect_err(|_| self.remove_unstarted(&temporary, session))
    }

    /// Removes the files of a session that could not be created, unless another process has created the session.
    pub(super) fn remove_unstarted(&self, temporary: &Path, session: SessionId) {
        let _ = fs::remove_file(temporary);
        self.remove_unpublished(session);
    }

    /// Removes the folder of a session that could not be created, unless another process has created the session.
    pub(super) fn remove_unpublished(&self, session: SessionId) {
        if !self.journal_path(session).exists() {
            let _ = fs::remove_dir_all(self.session_folder(session));
        }
    }

    /// Claims the exclusive right to create or import a session with this id.
    ///
    /// The claim is a lock of the pid file in the folder beside the journal, so it ends with the returned file. It
    /// keeps two processes from writing into that folder at the same time. [`publish`](Self::publish) decides which
    /// journal gets the name.
    ///
    /// # Errors
    ///
    /// Fails if the session already exists, or another process is creating it.
    pub(super) fn claim_id(&self, session: SessionId) -> Result<File> {
        let exists = || match self.journal_path(session).exists() {
            true => Err(JournalError::SessionExists(session)),
            false => Ok(()),
        };
        exists()?;
        let folder = self.session_folder(session);
        folder::create_durable(&folder, Durability::Os)?;
        let path = folder.join("pid");
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed()).open(&path);
        let mut file = file.io_context("open", &path)?;
        self.lock(session, &file, &path)?;
        let pid = format!("{}\n", std::process::id());
        file.set_len(0).and_then(|()| file.write_all(pid.as_bytes())).io_context("write", &path)?;
        // The previous owner of the claim may have created the session.
        exists().map(|()| file)
    }

    /// Gives a journal its final name.
    ///
    /// # Errors
    ///
    /// Fails if there is a session with this id; an existing session is never replaced.
    pub(super) fn publish(&self, from: &Path, session: SessionId) -> Result<()> {
        let path = self.journal_path(session);
        match blobs::publish_file(from, &path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(JournalError::SessionExists(session));
            }
            named => named.io_context("create the file", &path)?,
        }
        Ok(sync_folder(&self.sessions, self.durability)?)
    }

    /// Opens a session in order to resume it.
    ///
    /// A torn end of the journal is cut off, and saved beside it.
    ///
    /// # Errors
    ///
    /// Fails if another process runs the session, or if it can only be read.
    pub fn reopen(&self, session: SessionId, repair: DamagePolicy) -> Result<OpenedSession> {
        let flags = OFlags::NOFOLLOW.bits().cast_signed();
        let (path, file) = self
            .open_journal(session, OpenOptions::new().read(true).write(true).custom_flags(flags))?;
        self.lock(session, &file, &path)?;
        let (folder, pid) = (self.session_folder(session), format!("{}\n", std::process::id()));
        folder::create_durable(&folder, self.durability)?;
        fs::write(folder.join("pid"), pid).io_context("write", &folder.join("pid"))?;
        if file.metadata().io_context("inspect", &path)?.nlink() == 0 {
            // The session was removed while this process waited for its lock.
            return Err(JournalError::UnknownSession(session.to_string()));
        }
        let read = file.try_clone().io_context("open", &path)?;
        let mut reader = JournalReader::new(&path, read, self.blobs(session)).with_hash();
        let (history, end) = replay(&mut reader, session, &mut |_, _, _| {})?;
        let JournalEnd { position, kind, .. } = end;
        let begun = (position, reader.into_hasher().unwrap_or_default());
        let history = check_session(session, history)?;
        if let Some(reason) = history.header.newer_format() {
            return Err(JournalError::ReadOnly { session, reason });
        }
        let torn = match kind {
            JournalEndKind::Whole => None,
            JournalEndKind::Torn(_) => Some(self.truncate_damaged(session, &file, position)?),
            JournalEndKind::ReadOnly(ReadOnlyReason::Damaged { .. })
                if repair == DamagePolicy::Truncate =>
            {
                Some(self.truncate_damaged(session, &file, position)?)
            }
            JournalEndKind::ReadOnly(reason) => {
                return Err(JournalError::ReadOnly { session, reason });
            }
        };
        let arrived = history.delivered_messages.clone();
        let mut journal = self.journal(session, file, begun, history.epoch, arrived);
        let is_over = |session: &SessionId| self.is_running(*session).is_ok_and(|is| !is);
        let delegated = history.delegated_sessions().into_iter().filter(is_over);
        let delegated = delegated.filter_map(|session| self.load(session).ok());
        let delegated: Vec<_> = delegated.map(|(history, _)| history).collect();
        let history = subagent_usage::record_unreported(&mut journal, history, &delegated)?;
        let from = limit_baseline(&history);
        self.remove_temporary_files(session);
        Ok(OpenedSession { journal, history, delegated, saved_tail: torn, limit_baseline: from })
    }

    /// Removes old temporary files in the folder of a session, which killed processes have left. Other processes write
    /// only messages there, which never takes that long.
    fn remove_temporary_files(&self, session: SessionId) {
        let before =
            SystemTime::now().checked_sub(MAX_WRITE_TIME).unwrap_or(SystemTime::UNIX_EPOCH);
        let folders =
            ["", "blobs", "outputs", "mail"].map(|name| self.session_folder(session).join(name));
        for entry in
            folders.iter().flat_map(|folder| folder::read_dir(folder).into_iter().flatten())
        {
            let Ok(entry) = entry else { continue };
            let is_old =
                entry.metadata().and_then(|data| data.modified()).is_ok_and(|at| at < before);
            if is_old && is_temporary(&entry.file_name()) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// Cuts a journal off at the end of its valid prefix, after saving the rest.
    fn truncate_damaged(
        &self,
        session: SessionId,
        file: &File,
        position: JournalPosition,
    ) -> Result<PathBuf> {
        let beside = self.session_folder(session);
        let saved = beside.join(format!("torn-{}-{}", position.offset, unique_id()));
        let mut from = file.try_clone().io_context("open", &saved)?;
        from.seek(SeekFrom::Start(position.offset)).io_context("read", &saved)?;
        let mut to = blobs::create_private_file(&saved).io_context("create the file", &saved)?;
        io::copy(&mut from, &mut to).io_context("write", &saved)?;
        to.sync_all().io_context("make durable", &saved)?;
        sync_folder(&beside, Durability::Full)?;
        let path = self.journal_path(session);
        file.set_len(position.offset).io_context("cut off", &path)?;
        file.sync_all().io_context("make durable", &path)?;
        Ok(saved)
    }

    /// Takes the lock of a file of a session.
    fn lock(&self, session: SessionId, file: &File, path: &Path) -> Result<()> {
        if lock(file, path)? {
            return Ok(());
        }
        let pid = fs::read_to_string(self.session_folder(session).join("pid")).unwrap_or_default();
        Err(JournalError::Busy { session, pid: pid.trim().parse().ok() })
    }

    /// Replays a session. No lock is needed.
    ///
    /// # Errors
    ///
    /// Fails as [`replay`](Self::replay) does.
    pub fn load(&self, session: SessionId) -> Result<(SessionHistory, JournalEnd)> {
        self.replay(session, |_, _, _| {})
    }

    /// Replays a session record by record, and calls `see` with each record and its result. No lock is needed.
    ///
    /// # Errors
    ///
    /// Fails if there is no such session, if it can't be read, or if it has no header.
    pub fn replay(
        &self,
        session: SessionId,
        mut see: impl FnMut(&SessionHistory, &StoredRecord, &ReplayedRecord),
    ) -> Result<(SessionHistory, JournalEnd)> {
        let (history, end) = replay(&mut self.reader(session)?, session, &mut see)?;
        Ok((check_session(session, history)?, end))
    }

    /// Replays a session like [`replay`](Self::replay), and computes the hashes of the records.
    ///
    /// # Errors
    ///
    /// Fails as [`replay`](Self::replay) does.
    pub fn replay_with_hashes(
        &self,
        session: SessionId,
        mut see: impl FnMut(&SessionHistory, &StoredRecord, &ReplayedRecord),
    ) -> Result<(SessionHistory, JournalEnd)> {
        let (history, end) = replay(&mut self.reader(session)?.with_hash(), session, &mut see)?;
        Ok((check_session(session, history)?, end))
    }

    /// Returns the damage of a session's journal, if any.
    ///
    /// # Errors
    ///
    /// Fails as [`replay`](Self::replay) does.
    pub fn damage(&self, session: SessionId) -> Result<Option<ReadOnlyReason>> {
        Ok(self.load(session)?.1.damage())
    }

    /// Opens a session for reading.
    ///
    /// # Errors
    ///
    /// Fails if there is no such session.
    pub fn reader(&self, session: SessionId) -> Result<JournalReader> {
        let (path, file) = self.open_journal(session, OpenOptions::new().read(true))?;
        Ok(JournalReader::new(&path, file, self.blobs(session)))
    }

    /// Returns the sessions, oldest first.
    ///
    /// # Errors
    ///
    /// Fails if the store can't be listed.
    pub fn list(&self) -> Result<Vec<ListedSession>> {
        let mut found = Vec::new();
        for entry in folder::read_dir(&self.sessions).io_context("list", &self.sessions)? {
            let entry = entry.io_context("list", &self.sessions)?;
            let name = entry.file_name();
            let id = name.to_str().and_then(|name| name.strip_suffix(EXTENSION)?.parse().ok());
            // A session may be removed meanwhile.
            let (Some(session), Ok(data)) = (id, entry.metadata()) else { continue };
            if data.is_file() {
                let modified = data.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                found.push(ListedSession { session, bytes: data.len(), modified });
            }
        }
        found.sort_unstable_by_key(|listed| listed.session);
        Ok(found)
    }

    /// Resolves a session name: an id, a prefix of an id, or `last` for the most recently written session that was not
    /// dispatched by another session and is not a lane of a comparison.
    ///
    /// # Errors
    ///
    /// Fails if the name matches no session, or several.
    pub fn resolve(&self, name: &str) -> Result<SessionId> {
        let unknown = || JournalError::UnknownSession(name.chars().take(80).collect());
        if name == "last" {
            let mut newest = self.newest_first()?.into_iter();
            let is_own = |session: &SessionId| {
                self.header(*session).is_none_or(|header| is_of_user(&header))
            };
            return newest.find(is_own).ok_or_else(unknown);
        }
        let listed = self.list()?;
        let is_prefix =
            !name.is_empty() && name.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit());
        let fits =
            |listed: &&ListedSession| is_prefix && listed.session.to_string().starts_with(name);
        let found: Vec<_> = listed.iter().filter(fits).map(|listed| listed.session).collect();
        match found.as_slice() {
            [] => Err(unknown()),
            [session] => Ok(*session),
            _ => Err(JournalError::Ambiguous { prefix: name.to_owned(), matches: found }),
        }
    }

    /// Returns the most recently written session of a folder that was not dispatched by another session. An imported
    /// session that was not resumed since belongs to the folder in which it was imported.
    ///
    /// # Errors
    ///
    /// Fails if the store can't be listed, or if the header of a newer session that names the folder is damaged: an
    /// older session would not be the one that the user means.
    pub fn last_in_folder(&self, folder: &Path) -> Result<Option<SessionId>> {
        let quoted = serde_json::Value::from(folder.to_string_lossy()).to_string();
        for session in self.newest_first()? {
            match self.header(session) {
                Some(header) if self.belongs_to(session, &header, folder) => {
                    return Ok(Some(session));
                }
                None if self.header_has(session, &quoted) => match self.load(session) {
                    // A crash during the creation has left an incomplete header.
                    Err(JournalError::ReadOnly {
                        reason: ReadOnlyReason::Damaged { damage: RecordDamage::Unterminated, .. },
                        ..
                    })
                    | Ok(_) => {}
                    Err(error) => return Err(error),
                },
                Some(_) | None => {}
            }
        }
        Ok(None)
    }

    /// Returns the sessions, most recently written first.
    fn newest_first(&self) -> Result<Vec<SessionId>> {
        let mut listed = self.list()?;
        listed.sort_unstable_by_key(|listed| Reverse((listed.modified, listed.session)));
        Ok(listed.into_iter().map(|listed| listed.session).collect())
    }

    /// Returns the header of a session, if it can be read.
    pub(crate) fn header(&self, session: SessionId) -> Option<Box<SessionHeader>> {
        let ReadRecord::Record(stored) = self.reader(session).ok()?.read().ok()? else {
            return None;
        };
        match stored.content {
            StoredContent::Header(header) => Some(header),
            _ => None,
        }
    }

    /// Returns whether another session may have dispatched this one, which is the case if the beginning of the header
    /// names it. This takes a fraction of the time for the whole header.
    pub(crate) fn may_be_dispatched_by(&self, session: SessionId, other: SessionId) -> bool {
        self.header_has(session, &other.to_string())
    }

    /// Returns whether the beginning of a session's header, which may be damaged, contains a text.
    fn header_has(&self, session: SessionId, text: &str) -> bool {
        let mut start = [0; HEADER_START];
        let file = File::open(self.journal_path(session));
        let length = file.and_then(|mut file| file.read(&mut start)).unwrap_or(0);
        memmem::find(&start[..length], text.as_bytes()).is_some()
    }

    fn belongs_to(&self, session: SessionId, header: &SessionHeader, folder: &Path) -> bool {
        if !is_of_user(header) {
            return false;
        }
        if header.imported_up_to.is_none() {
            return header.setup.workspace.belongs_to(folder);
        }
        self.load(session).is_ok_and(|(history, _)| {
            let is_here = |into: &String| **into == *folder.to_string_lossy();
            match history.is_imported_setup() {
                true => header.imported_into.as_ref().is_none_or(is_here),
                false => history.setup.workspace.belongs_to(folder),
            }
        })
    }

    /// Returns whether a process runs the session.
    ///
    /// # Errors
    ///
    /// Fails if there is no such session, or its lock can't be examined.
    pub fn is_running(&self, session: SessionId) -> Result<bool> {
        let (path, file) = self.open_journal(session, OpenOptions::new().read(true))?;
        match file.try_lock_shared() {
            Ok(()) => file.unlock().io_context("unlock", &path)?,
            Err(TryLockError::WouldBlock) => return Ok(true),
            Err(TryLockError::Error(error)) => Err(error).io_context("lock", &path)?,
        }
        Ok(false)
    }

    /// Queues a message for a running session.
    ///
    /// # Errors
    ///
    /// Fails if no process runs the session, or the message is too long.
    pub fn send(&self, session: SessionId, message: &QueuedMessage) -> Result<MessageId> {
        if !self.is_running(session)? {
            return Err(JournalError::NotRunning(session));
        }
        SteeringQueue::new(self.session_folder(session).join("mail"), BTreeSet::new()).add(message)
    }

    /// Removes a session with all its files.
    ///
    /// # Errors
    ///
    /// Fails if a process runs the session.
    pub fn remove(&self, session: SessionId) -> Result<()> {
        let (path, file) = self.open_journal(session, OpenOptions::new().read(true))?;
        self.lock(session, &file, &path)?;
        // The journal is removed first: without its texts it would be damaged, and texts without their journal are just
        // leftovers.
        fs::remove_file(&path).io_context("remove", &path)?;
        let beside = self.session_folder(session);
        match fs::remove_dir_all(&beside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Ok(Err(error).io_context("remove", &beside)?)
            }
            _ => Ok(()),
        }
    }

    /// Removes a session, and all sessions that it has dispatched, directly or indirectly. Dispatched sessions that are
    /// running stay. Returns the removed sessions.
    ///
    /// # Errors
    ///
    /// Fails if a process runs the session, the store can't be listed, or something can't be removed.
    pub fn remove_with_dispatched(&self, session: SessionId) -> Result<Vec<SessionId>> {
        self.remove(session)?;
        let dispatcher = |child| Some((self.header(child)?.dispatched_by?.session, child));
        let listed = self.list()?.into_iter();
        let dispatched: Vec<_> = listed.filter_map(|it| dispatcher(it.session)).collect();
        let mut removed = vec![session];
        let mut next = 0;
        while let Some(&parent) = removed.get(next) {
            for &(_, child) in dispatched.iter().filter(|(dispatcher, _)| *dispatcher == parent) {
                match self.remove(child) {
                    Ok(()) => removed.push(child),
                    Err(JournalError::Busy { .. } | JournalError::UnknownSession(_)) => {}
                    Err(error) => return Err(error),
                }
            }
            next += 1;
        }
        Ok(removed)
    }

    /// Removes the sessions that were last written before this time, and returns them. Running sessions stay. Leftovers
    /// of the same age are removed, too.
    ///
    /// # Errors
    ///
    /// Fails if the store can't be listed, or something can't be removed.
    pub fn clean_up(&self, before: SystemTime) -> Result<Vec<SessionId>> {
        let mut removed = Vec::new();
        self.remove_leftovers(before)?;
        for listed in self.list()?.into_iter().filter(|listed| listed.modified < before) {
            match self.remove(listed.session) {
                Ok(()) => removed.push(listed.session),
                Err(JournalError::Busy { .. } | JournalError::UnknownSession(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(removed)
    }

    /// Removes the leftovers of processes that were killed during the creation or the removal of a session.
    fn remove_leftovers(&self, before: SystemTime) -> Result<()> {
        for entry in folder::read_dir(&self.sessions).io_context("list", &self.sessions)? {
            let entry = entry.io_context("list", &self.sessions)?;
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_str().unwrap_or_default();
            let is_beginning = is_temporary(&entry.file_name());
            let session = name.parse().ok().filter(|id| !self.journal_path(*id).exists());
            let Ok(data) = entry.metadata() else { continue };
            if data.modified().is_ok_and(|modified| modified >= before) {
                continue;
            }
            let gone = match (is_beginning, session) {
                // A process that creates a session holds the locks of both.
                (true, _) if data.is_file() && is_unlocked(&path) => fs::remove_file(&path),
                (_, Some(session)) if data.is_dir() => match self.claim_id(session) {
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

    /// Returns the complete outputs of a session's tools.
    pub fn outputs(&self, session: SessionId) -> SessionOutputs {
        SessionOutputs::new(self.session_folder(session).join("outputs"), self.durability)
    }

    /// Returns the folder of the contents of a session's checkpoints.
    pub fn checkpoint_folder(&self, session: SessionId) -> PathBuf {
        self.session_folder(session).join("checkpoints")
    }

    /// Returns the root folder of the store, which contains the sessions and the data about workspaces.
    pub fn root(&self) -> &Path {
        self.sessions.parent().unwrap_or(&self.sessions)
    }

    pub(super) fn blobs(&self, session: SessionId) -> BlobStore {
        BlobStore::new(self.session_folder(session).join("blobs"), self.durability)
    }

    pub(super) fn journal_path(&self, session: SessionId) -> PathBuf {
        self.sessions.join(format!("{session}{EXTENSION}"))
    }

    /// Returns the folder of a session, beside its journal.
    pub(super) fn session_folder(&self, session: SessionId) -> PathBuf {
        self.sessions.join(session.to_string())
    }

    /// Returns the file of the index across the sessions.
    pub(super) fn index_path(&self) -> PathBuf {
        self.sessions.with_file_name("index.db")
    }

    /// Returns a unique temporary name.
    pub(super) fn temporary_path(&self) -> PathBuf {
        self.sessions.join(format!(".{}", unique_id()))
    }

    /// Returns the durability of stored records.
    pub fn durability(&self) -> Durability {
        self.durability
    }

    /// Returns the journal of a session. This process has locked its file.
    fn journal(
        &self,
        session: SessionId,
        file: File,
        (position, hasher): (JournalPosition, Sha256),
        epoch: WallTime,
        arrived: BTreeSet<MessageId>,
    ) -> FileJournal {
        FileJournal {
            session,
            path: self.journal_path(session),
            file,
            durability: self.durability,
            blobs: self.blobs(session),
            queue: SteeringQueue::new(self.session_folder(session).join("mail"), arrived),
            position,
            hasher,
            reservation: SpaceReservation::default(),
            health: WriterHealth::default(),
            epoch,
            sync_time: TimeSpan::ZERO,
            buffer: Vec::new(),
        }
    }

    /// Opens the file of a journal.
    fn open_journal(&self, session: SessionId, options: &OpenOptions) -> Result<(PathBuf, File)> {
        let path = self.journal_path(session);
        match options.open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(JournalError::UnknownSession(session.to_string()))
            }
            opened => {
                let file = opened.io_context("open", &path)?;
                Ok((path, file))
            }
        }
    }
}

/// Returns whether the user began a session: it is neither a sub-agent's nor a lane of a comparison.
fn is_of_user(header: &SessionHeader) -> bool {
    header.dispatched_by.is_none() && !header.ancestry.is_some_and(|ancestry| ancestry.is_lane)
}
