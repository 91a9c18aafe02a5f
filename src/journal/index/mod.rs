//! The index across sessions: lists, searches and sums.
//!
//! It is built from the journals alone, in a database beside them, and brought up to date before each query: journals
//! with a changed length or time are read again. For a session that has ended, a list needs the header and the last
//! record only; the first query that needs more replays its journal. A run neither writes the index nor waits for it.
//! A broken index, or one of another release, is built again; where it cannot be written (another process holds it,
//! the disk is full or read-only), a temporary one in memory answers.

mod database;
mod queries;
mod row_collector;
mod rows;
mod skim;
mod update;

use std::path::PathBuf;
use std::time::SystemTime;

use rusqlite::{Connection, ErrorCode};

pub use rows::{
    CallRow, CostRow, EventRow, FileRow, MessageRole, MessageRow, SearchHit, SessionDetail,
    SessionRow, SessionStatus,
};
pub use update::IndexUpdate;

use super::error::JournalError;
use super::session_id::SessionId;
use super::session_store::SessionStore;
use update::Needs;

/// The index across the sessions of a store.
#[derive(Debug)]
pub struct SessionIndex {
    store: SessionStore,
    database: Connection,
    location: IndexLocation,
}

/// The location of the database.
#[derive(Clone, Debug, PartialEq, Eq)]
enum IndexLocation {
    File(PathBuf),
    Memory,
}

impl SessionIndex {
    /// Opens the index of a store and brings it up to date.
    ///
    /// # Errors
    ///
    /// Fails if the store can't be listed.
    pub fn open(store: &SessionStore) -> Result<Self, JournalError> {
        let location = IndexLocation::File(store.index_path());
        match Self::open_at(store, location) {
            Err(JournalError::Index(error)) => Self::open_fallback(store, &error),
            opened => opened,
        }
    }

    /// Builds the index again.
    ///
    /// # Errors
    ///
    /// Fails if the store can't be listed.
    pub fn rebuild(store: &SessionStore) -> Result<Self, JournalError> {
        database::remove_files(&store.index_path());
        Self::open(store)
    }

    fn open_at(store: &SessionStore, location: IndexLocation) -> Result<Self, JournalError> {
        let database = match &location {
            IndexLocation::File(path) => database::open(path)?,
            IndexLocation::Memory => database::in_memory()?,
        };
        let mut index = Self { store: store.clone(), database, location };
        index.update()?;
        Ok(index)
    }

    /// Replaces a failed index: by a new file if the old one is broken, by memory otherwise.
    fn open_fallback(store: &SessionStore, error: &rusqlite::Error) -> Result<Self, JournalError> {
        if is_broken(error) {
            log::warn!("the session index is broken ({error}); building it again");
            match Self::open_rebuilt(store) {
                Err(JournalError::Index(again)) => {
                    log::warn!("could not build the session index: {again}");
                }
                opened => return opened,
            }
        } else {
            log::warn!("the session index can't be used ({error}); using a temporary one");
        }
        Self::open_at(store, IndexLocation::Memory)
    }

    fn open_rebuilt(store: &SessionStore) -> Result<Self, JournalError> {
        let path = store.index_path();
        database::remove_files(&path);
        Self::open_at(store, IndexLocation::File(path))
    }

    /// Brings the index up to date with the journals.
    ///
    /// # Errors
    ///
    /// Fails if the store can't be listed, or the database fails.
    pub fn update(&mut self) -> Result<IndexUpdate, JournalError> {
        update::update(&self.store, &mut self.database, Needs::Summaries)
    }

    /// Runs a query; if the database fails, retries once with another one.
    fn query<T>(
        &mut self,
        needs: Needs,
        question: impl Fn(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, JournalError> {
        match self.ask_once(needs, &question) {
            Err(JournalError::Index(error)) if self.location != IndexLocation::Memory => {
                *self = Self::open_fallback(&self.store, &error)?;
                self.ask_once(needs, &question)
            }
            answer => answer,
        }
    }

    fn ask_once<T>(
        &mut self,
        needs: Needs,
        question: &impl Fn(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, JournalError> {
        if !needs.are_met(&self.database)? {
            update::update(&self.store, &mut self.database, needs)?;
        }
        Ok(question(&self.database)?)
    }

    /// Returns the sessions, the most recently written first.
    ///
    /// # Errors
    ///
    /// Fails if the database fails.
    pub fn list(&mut self) -> Result<Vec<SessionRow>, JournalError> {
        let mut rows = self.query(Needs::Summaries, queries::query_sessions)?;
        for row in &mut rows {
            self.mark_running(row);
        }
        Ok(rows)
    }

    /// Returns the details of a session.
    ///
    /// # Errors
    ///
    /// Fails if there is no such session, or the database fails.
    pub fn show(&mut self, session: SessionId) -> Result<SessionDetail, JournalError> {
        let needs = Needs::Session(session);
        let found = self.query(needs, |database| queries::query_session(database, session))?;
        let mut detail = found.ok_or_else(|| JournalError::UnknownSession(session.to_string()))?;
        self.mark_running(&mut detail.session);
        Ok(detail)
    }

    /// Returns the events of a session, oldest first.
    ///
    /// # Errors
    ///
    /// Fails if the database fails.
    pub fn events(&mut self, session: SessionId) -> Result<Vec<EventRow>, JournalError> {
        self.query(Needs::Session(session), |database| queries::query_events(database, session))
    }

    /// Returns up to this many messages that contain all words of a text, newest sessions first.
    ///
    /// Words in quotation marks form a phrase, and `word*` matches a prefix. A text without words matches nothing.
    ///
    /// # Errors
    ///
    /// Fails if the database fails.
    pub fn search(&mut self, text: &str, most: usize) -> Result<Vec<SearchHit>, JournalError> {
        match queries::search_terms(text) {
            Some(words) => {
                let search = |database: &Connection| queries::query_search(database, &words, most);
                self.query(Needs::Everything, search)
            }
            None => Ok(Vec::new()),
        }
    }

    /// Returns the costs by day, model and purpose, newest first.
    ///
    /// # Errors
    ///
    /// Fails if the database fails.
    pub fn costs(&mut self) -> Result<Vec<CostRow>, JournalError> {
        self.query(Needs::Everything, queries::query_costs)
    }

    /// Removes a session with all its files.
    ///
    /// # Errors
    ///
    /// Fails if there is no such session, if a process runs it, and on an I/O error.
    pub fn remove(&mut self, session: SessionId) -> Result<(), JournalError> {
        self.store.remove(session)?;
        self.update()?;
        Ok(())
    }

    /// Removes the sessions that were last written before this time, and returns them. Running ones stay.
    ///
    /// # Errors
    ///
    /// Fails on an I/O error.
    pub fn clean_up(&mut self, before: SystemTime) -> Result<Vec<SessionId>, JournalError> {
        let removed = self.store.clean_up(before)?;
        self.update()?;
        Ok(removed)
    }

    /// Only the system knows whether a process runs a session; it is asked only where that is possible.
    fn mark_running(&self, row: &mut SessionRow) {
        let is_open = row.status == SessionStatus::Unfinished;
        if is_open && self.store.is_running(row.session_id).unwrap_or(false) {
            row.status = SessionStatus::Running;
        }
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
