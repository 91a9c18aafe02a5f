//! The index across sessions: what lists, searches and sums are asked of.
//!
//! It is made of the journals and of nothing else, in a database beside them. Whoever asks brings it up to date first:
//! journals whose length or time of change is another one are read again. Of a session that has ended, a list needs the
//! header and the last record alone; the first question that needs more of it replays its journal. A run neither writes it nor waits for it. One
//! that is broken, or that another release has made, is thrown away and made anew; where there can be none (another
//! process holds it, the disk is full or may not be written), one in memory answers this one time.

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

/// Where the index is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
enum IndexLocation {
    File(PathBuf),
    Memory,
}

impl SessionIndex {
    /// Opens the index of a store, and brings it up to date.
    ///
    /// # Errors
    ///
    /// Fails when the store can't be listed.
    pub fn open(store: &SessionStore) -> Result<Self, JournalError> {
        let place = IndexLocation::File(store.index_path());
        match Self::open_at(store, place) {
            Err(JournalError::Index(error)) => Self::open_fallback(store, &error),
            opened => opened,
        }
    }

    /// Throws the index away and makes it anew.
    ///
    /// # Errors
    ///
    /// Fails when the store can't be listed.
    pub fn rebuild(store: &SessionStore) -> Result<Self, JournalError> {
        database::remove_files(&store.index_path());
        Self::open(store)
    }

    fn open_at(store: &SessionStore, place: IndexLocation) -> Result<Self, JournalError> {
        let database = match &place {
            IndexLocation::File(path) => database::open(path)?,
            IndexLocation::Memory => database::in_memory()?,
        };
        let mut index = Self { store: store.clone(), database, location: place };
        index.update()?;
        Ok(index)
    }

    /// Opens another index than the one that failed: a new file when that one is broken, and memory otherwise.
    fn open_fallback(store: &SessionStore, error: &rusqlite::Error) -> Result<Self, JournalError> {
        if is_broken(error) {
            log::warn!("the index of the sessions is broken ({error}); making it anew");
            match Self::open_rebuilt(store) {
                Err(JournalError::Index(again)) => {
                    log::warn!("could not make the index of the sessions anew: {again}");
                }
                opened => return opened,
            }
        } else {
            log::warn!("the index of the sessions can't be used ({error}); doing without");
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
    /// Fails when the store can't be listed, or the database fails.
    pub fn update(&mut self) -> Result<IndexUpdate, JournalError> {
        update::update(&self.store, &mut self.database, Needs::Summaries)
    }

    /// Asks the database; when it fails, another one is asked once more.
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

    /// Returns the sessions, the one that was written to last first.
    ///
    /// # Errors
    ///
    /// Fails when the database fails.
    pub fn list(&mut self) -> Result<Vec<SessionRow>, JournalError> {
        let mut rows = self.query(Needs::Summaries, queries::query_sessions)?;
        for row in &mut rows {
            self.mark_running(row);
        }
        Ok(rows)
    }

    /// Returns all that the index knows of a session.
    ///
    /// # Errors
    ///
    /// Fails when there is no such session, or the database fails.
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
    /// Fails when the database fails.
    pub fn events(&mut self, session: SessionId) -> Result<Vec<EventRow>, JournalError> {
        self.query(Needs::Session(session), |database| queries::query_events(database, session))
    }

    /// Returns the messages that contain all words of a text, newest sessions first, and no more than this many.
    ///
    /// Words in quotation marks have to stand together, and `word*` stands for every word that begins so. A text
    /// without any word is found nowhere.
    ///
    /// # Errors
    ///
    /// Fails when the database fails.
    pub fn search(&mut self, text: &str, most: usize) -> Result<Vec<SearchHit>, JournalError> {
        match queries::search_terms(text) {
            Some(words) => {
                let search = |database: &Connection| queries::query_search(database, &words, most);
                self.query(Needs::Everything, search)
            }
            None => Ok(Vec::new()),
        }
    }

    /// Returns what was spent, by day, model and purpose, newest first.
    ///
    /// # Errors
    ///
    /// Fails when the database fails.
    pub fn costs(&mut self) -> Result<Vec<CostRow>, JournalError> {
        self.query(Needs::Everything, queries::query_costs)
    }

    /// Removes a session with all that belongs to it.
    ///
    /// # Errors
    ///
    /// Fails when there is no such session, when a process runs it, or the system refuses something.
    pub fn remove(&mut self, session: SessionId) -> Result<(), JournalError> {
        self.store.remove(session)?;
        self.update()?;
        Ok(())
    }

    /// Removes the sessions that nobody has written to since this time, and returns them. Running ones stay.
    ///
    /// # Errors
    ///
    /// Fails when the system refuses something.
    pub fn clean_up(&mut self, before: SystemTime) -> Result<Vec<SessionId>, JournalError> {
        let removed = self.store.clean_up(before)?;
        self.update()?;
        Ok(removed)
    }

    /// Whether a process runs a session is known to the system alone, and asked only where it may be so.
    fn mark_running(&self, row: &mut SessionRow) {
        let is_open = row.status == SessionStatus::Unfinished;
        if is_open && self.store.is_running(row.session_id).unwrap_or(false) {
            row.status = SessionStatus::Running;
        }
    }
}

/// Returns whether an error is the fault of what the file contains, and not of who may use it now.
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
