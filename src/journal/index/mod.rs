//! The index across sessions: what lists, searches and sums are asked of.
//!
//! It is made of the journals and of nothing else, in a database beside them. Whoever asks brings it up to date first:
//! journals whose length or time of change is another one are read again. Of a session that has ended, a list needs the
//! header and the last record alone; the first question that needs more of it replays its journal. A run neither writes it nor waits for it. One
//! that is broken, or that another release has made, is thrown away and made anew; where there can be none (another
//! process holds it, the disk is full or may not be written), one in memory answers this one time.

mod answers;
mod database;
mod entry;
mod question;
mod skim;
mod update;

use std::path::PathBuf;
use std::time::SystemTime;

use rusqlite::{Connection, ErrorCode};

pub use answers::{
    CallRow, CostRow, EventRow, FileRow, Hit, MessageRow, Role, SessionDetail, SessionRow,
    SessionStatus,
};
pub use update::Updated;

use super::error::JournalError;
use super::id::SessionId;
use super::store::Store;
use update::Needs;

/// The index across the sessions of a store.
#[derive(Debug)]
pub struct Index {
    store: Store,
    database: Connection,
    place: Place,
}

/// Where the index is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    File(PathBuf),
    Memory,
}

impl Index {
    /// Opens the index of a store, and brings it up to date.
    ///
    /// # Errors
    ///
    /// Fails when the store can't be listed.
    pub fn open(store: &Store) -> Result<Self, JournalError> {
        let place = Place::File(store.index());
        match Self::at(store, place) {
            Err(JournalError::Index(error)) => Self::otherwise(store, &error),
            opened => opened,
        }
    }

    /// Throws the index away and makes it anew.
    ///
    /// # Errors
    ///
    /// Fails when the store can't be listed.
    pub fn rebuild(store: &Store) -> Result<Self, JournalError> {
        database::discard(&store.index());
        Self::open(store)
    }

    fn at(store: &Store, place: Place) -> Result<Self, JournalError> {
        let database = match &place {
            Place::File(path) => database::open(path)?,
            Place::Memory => database::in_memory()?,
        };
        let mut index = Self { store: store.clone(), database, place };
        index.update()?;
        Ok(index)
    }

    /// Opens another index than the one that failed: a new file when that one is broken, and memory otherwise.
    fn otherwise(store: &Store, error: &rusqlite::Error) -> Result<Self, JournalError> {
        if is_broken(error) {
            log::warn!("the index of the sessions is broken ({error}); making it anew");
            match Self::rebuilt(store) {
                Err(JournalError::Index(again)) => {
                    log::warn!("could not make the index of the sessions anew: {again}");
                }
                opened => return opened,
            }
        } else {
            log::warn!("the index of the sessions can't be used ({error}); doing without");
        }
        Self::at(store, Place::Memory)
    }

    fn rebuilt(store: &Store) -> Result<Self, JournalError> {
        let path = store.index();
        database::discard(&path);
        Self::at(store, Place::File(path))
    }

    /// Brings the index up to date with the journals.
    ///
    /// # Errors
    ///
    /// Fails when the store can't be listed, or the database fails.
    pub fn update(&mut self) -> Result<Updated, JournalError> {
        update::update(&self.store, &mut self.database, Needs::Summaries)
    }

    /// Asks the database; when it fails, another one is asked once more.
    fn ask<T>(
        &mut self,
        needs: Needs,
        question: impl Fn(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, JournalError> {
        match self.ask_once(needs, &question) {
            Err(JournalError::Index(error)) if self.place != Place::Memory => {
                *self = Self::otherwise(&self.store, &error)?;
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
        let mut rows = self.ask(Needs::Summaries, question::sessions)?;
        for row in &mut rows {
            self.tell_running(row);
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
        let found = self.ask(needs, |database| question::session(database, session))?;
        let mut detail = found.ok_or_else(|| JournalError::Unknown(session.to_string()))?;
        self.tell_running(&mut detail.session);
        Ok(detail)
    }

    /// Returns the events of a session, oldest first.
    ///
    /// # Errors
    ///
    /// Fails when the database fails.
    pub fn events(&mut self, session: SessionId) -> Result<Vec<EventRow>, JournalError> {
        self.ask(Needs::Session(session), |database| question::events(database, session))
    }

    /// Returns the messages that contain all words of a text, newest sessions first, and no more than this many.
    ///
    /// Words in quotation marks have to stand together, and `word*` stands for every word that begins so. A text
    /// without any word is found nowhere.
    ///
    /// # Errors
    ///
    /// Fails when the database fails.
    pub fn search(&mut self, text: &str, most: usize) -> Result<Vec<Hit>, JournalError> {
        match question::words(text) {
            Some(words) => {
                let search = |database: &Connection| question::search(database, &words, most);
                self.ask(Needs::Everything, search)
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
        self.ask(Needs::Everything, question::costs)
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
    fn tell_running(&self, row: &mut SessionRow) {
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
