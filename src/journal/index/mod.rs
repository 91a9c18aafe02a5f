//! The index across sessions: lists, searches and sums.
//!
//! It is built from the journals alone, in a database beside them, and brought up to date before each query: journals
//! with a changed length or time are read again. For a session that has ended, a list needs the header and the last
//! record only; the first query that needs more replays the journals. A run neither writes the index nor waits for it.
//! A broken index, or one of another release, is built again; where it cannot be written (another process holds it,
//! the disk is full or read-only), a temporary one in memory answers.

mod contents;
mod database;
mod measures;
mod rows;
mod statistics;
mod update;

use std::time::SystemTime;

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
    is_in_memory: bool,
}

impl SessionIndex {
    /// Opens the index of a store and brings it up to date.
    ///
    /// # Errors
    ///
    /// Fails if the store can't be listed.
    pub fn open(store: &SessionStore) -> Result<Self> {
        match Self::open_at(store, false) {
            Err(JournalError::Index(error)) => Self::open_fallback(store, &error),
            opened => opened,
        }
    }

    /// Builds the index again.
    ///
    /// # Errors
    ///
    /// Fails if the store can't be listed.
    pub fn rebuild(store: &SessionStore) -> Result<Self> {
        database::remove_files(&store.index_path());
        Self::open(store)
    }

    fn open_at(store: &SessionStore, is_in_memory: bool) -> Result<Self> {
        let database = match is_in_memory {
            true => database::in_memory()?,
            false => database::open(&store.index_path())?,
        };
        let mut index = Self { store: store.clone(), database, is_in_memory };
        index.update()?;
        Ok(index)
    }

    /// Replaces a failed index: by a new file if the old one is broken, by memory otherwise.
    fn open_fallback(store: &SessionStore, error: &rusqlite::Error) -> Result<Self> {
        if is_broken(error) {
            log::warn!("the session index is broken ({error}); building it again");
            database::remove_files(&store.index_path());
            match Self::open_at(store, false) {
                Err(JournalError::Index(again)) => {
                    log::warn!("could not build the session index: {again}");
                }
                opened => return opened,
            }
        } else {
            log::warn!("the session index can't be used ({error}); using a temporary one");
        }
        Self::open_at(store, true)
    }

    /// Brings the index up to date with the journals.
    ///
    /// # Errors
    ///
    /// Fails if the store can't be listed, or the database fails.
    pub fn update(&mut self) -> Result<IndexUpdate> {
        update::update(&self.store, &mut self.database, false)
    }

    /// Runs a query; if the database fails, retries once with another one.
    fn query<T>(
        &mut self,
        query: impl Fn(&Connection) -> rusqlite::Result<T>,
        needs_whole: bool,
    ) -> Result<T> {
        let run = |index: &mut Self| {
            if needs_whole && !database::is_whole(&index.database)? {
                update::update(&index.store, &mut index.database, true)?;
            }
            Ok(query(&index.database)?)
        };
        match run(self) {
            Err(JournalError::Index(error)) if !self.is_in_memory => {
                *self = Self::open_fallback(&self.store, &error)?;
                run(self)
            }
            answer => answer,
        }
    }

    /// Returns the sessions, the most recently written first.
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

    /// Returns a table of statistics of the sessions that were created since this time, in RFC 3339.
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

    /// Removes a session with all its files, and those that it has dispatched: of sub-agents and evaluations. Running ones
    /// of those stay. Returns the removed sessions.
    ///
    /// # Errors
    ///
    /// Fails if there is no such session, if a process runs it, and on an I/O error.
    pub fn remove(&mut self, session: SessionId) -> Result<Vec<SessionId>> {
        let removed = self.store.remove_with_dispatched(session)?;
        self.update()?;
        Ok(removed)
    }

    /// Removes the sessions that were last written before this time, and returns them. Running ones stay.
    ///
    /// # Errors
    ///
    /// Fails on an I/O error.
    pub fn clean_up(&mut self, before: SystemTime) -> Result<Vec<SessionId>> {
        let removed = self.store.clean_up(before)?;
        self.update()?;
        Ok(removed)
    }
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

/// Only the system knows whether a process runs a session; it is asked only where that is possible.
fn mark_running(store: &SessionStore, row: &mut SessionRow) {
    let is_open = row.status == SessionStatus::Unfinished;
    if is_open && store.is_running(row.session_id).unwrap_or(false) {
        row.status = SessionStatus::Running;
    }
}

/// Returns whether an error is caused by the content of the file, and not by who holds it.
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
