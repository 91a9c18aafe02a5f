//! Brings the index up to date: determines which journals have to be read again, and which are gone.

use std::collections::HashMap;
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use crossbeam_channel::bounded;
use rusqlite::{Connection, Transaction, TransactionBehavior, params};

use super::row_collector::{RowCollector, StatementRow, write_rows};
use super::skim::skim;
use crate::journal::{JournalError, ListedSession, SessionId, SessionStore};

/// The result of an update.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexUpdate {
    /// Journals that were read.
    pub read: usize,
    /// How many of them were replayed; for the others, the header and the last record were enough.
    pub replayed: usize,
    /// Unchanged journals.
    pub unchanged: usize,
    /// Removed sessions.
    pub removed: usize,
}

/// What a query needs of the journals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Needs {
    /// The list entries.
    Summaries,
    /// The whole content of one journal.
    Session(SessionId),
    /// The whole content of all journals.
    Everything,
}

impl Needs {
    /// Returns whether the whole journal of a session has to be in the index.
    fn whole(self, session: SessionId) -> bool {
        match self {
            Self::Summaries => false,
            Self::Session(one) => one == session,
            Self::Everything => true,
        }
    }

    /// Returns whether the database contains it.
    pub(super) fn are_met(self, database: &Connection) -> rusqlite::Result<bool> {
        let session = match self {
            Self::Summaries => return Ok(true),
            Self::Session(session) => Some(session.to_string()),
            Self::Everything => None,
        };
        let sql =
            "SELECT NOT EXISTS (SELECT 1 FROM sessions WHERE NOT whole AND id = coalesce(?1, id))";
        database.prepare_cached(sql)?.query_row([session], |row| row.get(0))
    }
}

/// A session in the index.
struct IndexedSession {
    key: i64,
    bytes: u64,
    modified: u64,
    /// Whether the whole journal is in the index.
    is_whole: bool,
}

/// The content of a journal.
struct Rows {
    rows: Vec<StatementRow>,
    is_whole: bool,
}

/// The maximum number of journals that are read and not yet written to the database.
const QUEUE_LENGTH: usize = 64;

/// The approximate duration of a transaction, for which other processes wait.
const MAX_TRANSACTION_TIME: Duration = Duration::from_millis(100);

/// Brings the database up to date with the journals of a store. Several sessions form a transaction, so that an
/// interrupted update keeps all but the newest.
pub(super) fn update(
    store: &SessionStore,
    database: &mut Connection,
    needs: Needs,
) -> Result<IndexUpdate, JournalError> {
    let mut known = indexed_sessions(database)?;
    let mut updated = IndexUpdate::default();
    let mut changed = Vec::new();
    for listed in store.list()? {
        let old = known.remove(&listed.session.to_string());
        let is_same = |old: &IndexedSession| {
            (old.bytes, old.modified) == (listed.bytes, modified_nanos(&listed))
                && (old.is_whole || !needs.whole(listed.session))
        };
        match old {
            Some(old) if is_same(&old) => updated.unchanged += 1,
            old => changed.push((listed, old)),
        }
    }
    updated.read = changed.len();
    thread::scope(|scope| -> rusqlite::Result<()> {
        let (sender, receiver) = bounded(QUEUE_LENGTH);
        let next = AtomicUsize::new(0);
        let (changed, next) = (&changed, &Arc::new(next));
        let threads = thread::available_parallelism().map_or(1, NonZero::get);
        for _ in 0..threads {
            let (sender, next) = (sender.clone(), Arc::clone(next));
            let work = move || {
                while let Some((listed, old)) = changed.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if sender.send((listed, old, read_rows(store, listed, needs))).is_err() {
                        return;
                    }
                }
            };
            let _ = thread::Builder::new().name("journals".to_owned()).spawn_scoped(scope, work);
        }
        drop(sender);
        // Reads here what no thread has read because none could be started.
        let rest = || changed.get(next.fetch_add(1, Ordering::Relaxed));
        let rest = std::iter::from_fn(rest)
            .map(|(listed, old)| (listed, old, read_rows(store, listed, needs)));
        let mut read = receiver.into_iter().chain(rest).peekable();
        while read.peek().is_some() {
            let change = database.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let started = Instant::now();
            for (listed, old, rows) in read.by_ref() {
                if let Some(old) = old {
                    delete_session(&change, old.key)?;
                }
                if let Some(rows) = rows {
                    let Rows { rows, is_whole } = rows;
                    updated.replayed += usize::from(is_whole);
                    write_rows(&change, insert_session(&change, listed, is_whole)?, rows)?;
                }
                if started.elapsed() > MAX_TRANSACTION_TIME {
                    break;
                }
            }
            change.commit()?;
        }
        Ok(())
    })?;
    updated.removed = known.len();
    if !known.is_empty() {
        let change = database.transaction_with_behavior(TransactionBehavior::Immediate)?;
        known.into_values().try_for_each(|old| delete_session(&change, old.key))?;
        change.commit()?;
    }
    Ok(updated)
}

/// The time of change as reported by the file system; a time before 1970 counts as 1970.
fn modified_nanos(listed: &ListedSession) -> u64 {
    let since = listed.modified.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX >> 1).min(u64::MAX >> 1)
}

fn indexed_sessions(database: &Connection) -> rusqlite::Result<HashMap<String, IndexedSession>> {
    let mut query =
        database.prepare_cached("SELECT id, key, bytes, modified, whole FROM sessions")?;
    let rows = query.query_map([], |row| {
        let known = IndexedSession {
            key: row.get(1)?,
            bytes: row.get(2)?,
            modified: row.get(3)?,
            is_whole: row.get(4)?,
        };
        Ok((row.get(0)?, known))
    })?;
    rows.collect()
}

/// Removes a session from every table.
fn delete_session(change: &Transaction<'_>, key: i64) -> rusqlite::Result<()> {
    for sql in [
        "INSERT INTO words (words, rowid, text) SELECT 'delete', key, text FROM messages WHERE session = ?1",
        "DELETE FROM messages WHERE session = ?1",
        "DELETE FROM events WHERE session = ?1",
        "DELETE FROM calls WHERE session = ?1",
        "DELETE FROM files WHERE session = ?1",
        "DELETE FROM sessions WHERE key = ?1",
    ] {
        change.prepare_cached(sql)?.execute([key])?;
    }
    Ok(())
}

/// Reads a journal as rows. A journal that can't be read is listed with its problem; `None` if it was removed
/// meanwhile.
fn read_rows(store: &SessionStore, listed: &ListedSession, needs: Needs) -> Option<Rows> {
    // If skimming fails for any reason, the replay reports that reason.
    let skimmed = match needs.whole(listed.session) {
        true => None,
        false => skim(store, listed.session).ok().flatten(),
    };
    match skimmed {
        Some(row) => Some(Rows { rows: vec![row], is_whole: false }),
        None => Some(Rows { rows: replay(store, listed)?, is_whole: true }),
    }
}

fn replay(store: &SessionStore, listed: &ListedSession) -> Option<Vec<StatementRow>> {
    let mut entry = RowCollector::default();
    let replayed = store.replay(listed.session, |history, stored, replayed| {
        entry.add_record(history, stored, replayed);
    });
    match replayed {
        Ok((history, end)) => Some(entry.finish(&history, &end)),
        Err(JournalError::UnknownSession(_)) => None,
        Err(error) => {
            let sql = "UPDATE sessions SET status = 'unreadable', problem = ?2, damaged = 1 WHERE key = ?1";
            Some(vec![(sql, vec![error.to_string().into()])])
        }
    }
}

fn insert_session(
    change: &Transaction<'_>,
    listed: &ListedSession,
    is_whole: bool,
) -> rusqlite::Result<i64> {
    let ListedSession { session, bytes, .. } = listed;
    let mut row = change.prepare_cached(
        "INSERT INTO sessions (id, bytes, modified, whole) VALUES (?1, ?2, ?3, ?4) RETURNING key",
    )?;
    let values = params![SessionId::to_string(session), bytes, modified_nanos(listed), is_whole];
    row.query_row(values, |row| row.get(0))
}
