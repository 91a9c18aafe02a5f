//! The index across sessions: lists, searches and totals.
//!
//! The index is a database that is built from the journals alone and brought up to date before each query: journals
//! with a changed length or modification time are read again. For a session that has ended, a list needs only the
//! header and the last record. The first query that needs more replays the journals. A run neither writes the index nor
//! waits for it.
//!
//! A process that finds the index up to date only reads it. Otherwise, the process first takes the exclusive right to
//! change it, and then checks again. The file is never removed, because other processes have it open. A broken index,
//! or one of another release, is emptied and built again. If it can't be written (another process holds it, the disk is
//! full or read-only), a temporary index in memory answers.

mod contents;
mod database;
mod measures;
mod rows;
mod statistics;
mod update;

use std::time::SystemTime;

use log::Level;
use rusqlite::{Connection, ErrorCode, params};
use serde::de::DeserializeOwned;

pub use rows::{
    CallRow, CostRow, FileRow, MessageRole, MessageRow, SearchHit, SessionDetail, SessionRow,
    SessionStatus,
};
pub use statistics::StatisticsTable;
pub use update::IndexUpdate;

use super::error::{JournalError, Result};
use super::session_id::SessionId;
use super::session_store::SessionStore;
use contents::SessionContents;

/// The index across the sessions of a store.
#[derive(Debug)]
pub struct SessionIndex {
    store: SessionStore,
    database: Connection,
    /// The generation of the tables that were brought up to date. Another process may have built others since.
    generation: Option<i32>,
    is_in_memory: bool,
}

impl SessionIndex {
    /// Opens the index of a store and brings it up to date.
    ///
    /// # Errors
    ///
    /// Fails if the store can't be listed.
    pub fn open(store: &SessionStore) -> Result<Self> {
        match Self::open_current(store) {
            Ok(Some(index)) => Ok(index),
            Ok(None) | Err(JournalError::Index(_)) => {
                Ok(Self::open_changed(store, false, |_| Ok(()))?.index)
            }
            Err(error) => Err(error),
        }
    }

    /// Builds the index again.
    ///
    /// # Errors
    ///
    /// Fails if the store can't be listed.
    pub fn rebuild(store: &SessionStore) -> Result<Self> {
        let path = store.index_path();
        if let Err(error) = database::lock(&path).and_then(|_lock| database::reset(&path)) {
            log::warn!("could not empty the session index: {error}");
        }
        Self::open(store)
    }

    /// Opens the index if it is up to date, which needs no lock.
    fn open_current(store: &SessionStore) -> Result<Option<Self>> {
        let database = database::connect(&store.index_path())?;
        let generation = database::generation(&database)?;
        let is_current = generation.is_some() && update::is_current(store, &database)?;
        let index = || Self { store: store.clone(), database, generation, is_in_memory: false };
        Ok(is_current.then(index))
    }

    /// Opens the index as the only process that changes it, brings it up to date, and runs a query. A broken index is
    /// built again; an unusable one is replaced by one in memory.
    fn open_changed<T>(
        store: &SessionStore,
        needs_whole: bool,
        query: impl Fn(&Connection) -> rusqlite::Result<T>,
    ) -> Result<UpdatedIndex<T>> {
        let change = |database: rusqlite::Result<Connection>, is_in_memory| {
            let mut database = database?;
            let update = update::update(store, &mut database, needs_whole)?;
            let answer = query(&database)?;
            let generation = database::generation(&database)?;
            let index = Self { store: store.clone(), database, generation, is_in_memory };
            Ok(UpdatedIndex { index, update, answer })
        };
        let path = store.index_path();
        let change_file = || {
            let _lock = database::lock(&path)?;
            match change(database::open(&path), false) {
                Err(JournalError::Index(error)) if is_broken(&error) => {
                    log::warn!("the session index is broken ({error}); building it again");
                    change(database::reset(&path), false)
                }
                changed => changed,
            }
        };
        match change_file() {
            Err(JournalError::Index(error)) => {
                // Another process that holds it for a long time is not a problem: the answer is the same.
                let level = if is_busy(&error) { Level::Info } else { Level::Warn };
                log::log!(
                    level,
                    "the session index can't be used ({error}); using a temporary one"
                );
                change(database::in_memory(), true)
            }
            changed => changed,
        }
    }

    /// Brings the index up to date with the journals.
    ///
    /// # Errors
    ///
    /// Fails if the store can't be listed.
    pub fn update(&mut self) -> Result<IndexUpdate> {
        if self.is_in_memory {
            return update::update(&self.store, &mut self.database, false);
        }
        let UpdatedIndex { index, update, .. } =
            Self::open_changed(&self.store, false, |_| Ok(()))?;
        *self = index;
        Ok(update)
    }

    /// Runs a query. If the database lacks the required data, or fails, it is changed first.
    fn query<T>(
        &mut self,
        query: impl Fn(&Connection) -> rusqlite::Result<T>,
        needs_whole: bool,
    ) -> Result<T> {
        if self.is_in_memory {
            if needs_whole && !database::is_whole(&self.database)? {
                update::update(&self.store, &mut self.database, true)?;
            }
            return Ok(query(&self.database)?);
        }
        // One transaction, so that the answer and its preconditions are of the same moment.
        let read = || {
            let database = self.database.unchecked_transaction()?;
            let is_same = database::generation(&database)? == self.generation;
            let is_ready = is_same && (!needs_whole || database::is_whole(&database)?);
            is_ready.then(|| query(&database)).transpose()
        };
        if let Ok(Some(answer)) = read() {
            return Ok(answer);
        }
        let changed = Self::open_changed(&self.store, needs_whole, query)?;
        *self = changed.index;
        Ok(changed.answer)
    }

    /// Returns the sessions, most recently written first.
    ///
    /// # Errors
    ///
    /// Fails if the database fails.
    pub fn list(&mut self) -> Result<Vec<SessionRow>> {
        let list = |database: &Connection| database::query_json(database, database::LIST, []);
        let mut rows = self.query(list, false)?;
        rows.iter_mut().for_each(|row| mark_running(&self.store, row));
        Ok(rows)
    }

    /// Returns up to this many messages that contain all words of a text, newest sessions first.
    ///
    /// Words in quotation marks form a phrase, and `word*` matches a prefix. A text without words matches nothing.
    ///
    /// # Errors
    ///
    /// Fails if the database fails.
    pub fn search(&mut self, text: &str, most: usize) -> Result<Vec<SearchHit>> {
        let Some(words) = database::search_terms(text) else { return Ok(Vec::new()) };
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let search = |database: &Connection| {
            database::query_json(database, database::SEARCH, params![words, most])
        };
        self.query(search, true)
    }

    /// Returns the costs by day, model and purpose, newest first.
    ///
    /// # Errors
    ///
    /// Fails if the database fails.
    pub fn costs(&mut self) -> Result<Vec<CostRow>> {
        let costs = |database: &Connection| database::query_json(database, database::COSTS, []);
        self.query(costs, true)
    }

    /// Returns a table of statistics of the sessions that were created since this time, which is in RFC 3339.
    ///
    /// `T` has the columns of [the table](StatisticsTable).
    ///
    /// # Errors
    ///
    /// Fails if the database fails, or a column doesn't fit `T`.
    pub fn statistics<T: DeserializeOwned>(
        &mut self,
        table: StatisticsTable,
        since: &str,
    ) -> Result<Vec<T>> {
        let sql = table.sql();
        self.query(|database| database::query_json(database, &sql, [since]), true)
    }

    /// Removes a session with all its files, and the sessions of sub-agents and evaluations that it has dispatched.
    /// Dispatched sessions that are running stay. Returns the removed sessions.
    ///
    /// # Errors
    ///
    /// Fails if there is no such session, if a process runs it, and on an I/O error.
    pub fn remove(&mut self, session: SessionId) -> Result<Vec<SessionId>> {
        let removed = self.store.remove_with_dispatched(session)?;
        self.forget_removed();
        Ok(removed)
    }

    /// Removes the sessions that were last written before this time, and returns them. Running sessions stay.
    ///
    /// # Errors
    ///
    /// Fails on an I/O error.
    pub fn clean_up(&mut self, before: SystemTime) -> Result<Vec<SessionId>> {
        let removed = self.store.clean_up(before)?;
        self.forget_removed();
        Ok(removed)
    }

    /// Brings the index up to date after sessions were removed. The sessions stay removed even if this fails.
    fn forget_removed(&mut self) {
        if let Err(error) = self.update() {
            log::warn!("the session index still has the removed sessions: {error}");
        }
    }
}

/// An index that was brought up to date.
struct UpdatedIndex<T> {
    index: SessionIndex,
    update: IndexUpdate,
    answer: T,
}

impl SessionDetail {
    /// Replays a session, and returns its details.
    ///
    /// # Errors
    ///
    /// Fails if there is no such session, or the store can't be listed.
    pub fn load(store: &SessionStore, session: SessionId) -> Result<Self> {
        let listed = store.list()?.into_iter().find(|listed| listed.session == session);
        let contents = listed.and_then(|listed| SessionContents::replay(store, &listed));
        let contents = contents.ok_or_else(|| JournalError::UnknownSession(session.to_string()))?;
        let mut detail = contents.detail;
        mark_running(store, &mut detail.session);
        Ok(detail)
    }
}

/// Marks a session as running if a process runs it. Only the system knows this, so it is asked only for unfinished
/// sessions.
fn mark_running(store: &SessionStore, row: &mut SessionRow) {
    let is_open = row.status == SessionStatus::Unfinished;
    if is_open && store.is_running(row.session_id).unwrap_or(false) {
        row.status = SessionStatus::Running;
    }
}

/// Returns whether another process holds the database.
fn is_busy(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error_code();
    matches!(code, Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// Returns whether an error is caused by the content of the file, and not by another process that holds it.
fn is_broken(error: &rusqlite::Error) -> bool {
    !matches!(
        error.sqlite_error_code(),
        Some(
            ErrorCode::PermissionDenied
                | ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::OutOfMemory
                | ErrorCode::ReadOnly
                | ErrorCode::SystemIoFailure
                | ErrorCode::DiskFull
                | ErrorCode::CannotOpen
                | ErrorCode::FileLockingProtocolFailed
        )
    )
}
