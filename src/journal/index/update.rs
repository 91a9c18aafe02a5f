//! Bringing the index up to date: which journals are read again, and which are gone.

use std::collections::HashMap;
use std::time::{Duration, Instant, SystemTime};

use rusqlite::{Connection, Transaction, TransactionBehavior, params};

use super::entry::Entry;
use crate::journal::{JournalError, Listed, SessionId, Store};

/// What an update has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Updated {
    /// Journals that were read.
    pub read: usize,
    /// Journals that are as they were.
    pub unchanged: usize,
    /// Sessions that are gone.
    pub gone: usize,
}

/// A session as the index knows it.
struct Known {
    key: i64,
    bytes: u64,
    modified: u64,
}

/// How long a transaction takes, about; another process that wants the database waits for that.
const LONGEST: Duration = Duration::from_millis(100);

/// Brings the database up to date with the journals of a store. Some sessions together are one transaction: what was read
/// stays read, whatever happens to this process, but for the newest.
pub(super) fn update(store: &Store, database: &mut Connection) -> Result<Updated, JournalError> {
    let mut known = known(database)?;
    let mut updated = Updated::default();
    let mut change = database.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut begun = Instant::now();
    for listed in store.list()? {
        let old = known.remove(&listed.session.to_string());
        let is_same = |old: &Known| (old.bytes, old.modified) == (listed.bytes, nanos(&listed));
        if old.as_ref().is_some_and(is_same) {
            updated.unchanged += 1;
            continue;
        }
        if let Some(old) = old {
            forget(&change, old.key)?;
        }
        read(store, &change, &listed)?;
        updated.read += 1;
        if begun.elapsed() > LONGEST {
            change.commit()?;
            change = database.transaction_with_behavior(TransactionBehavior::Immediate)?;
            begun = Instant::now();
        }
    }
    updated.gone = known.len();
    for old in known.into_values() {
        forget(&change, old.key)?;
    }
    change.commit()?;
    Ok(updated)
}

/// The time of change as the file system tells it; a clock that stood before 1970 is no reason to fail.
fn nanos(listed: &Listed) -> u64 {
    let since = listed.modified.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX >> 1).min(u64::MAX >> 1)
}

fn known(database: &Connection) -> rusqlite::Result<HashMap<String, Known>> {
    let mut query = database.prepare_cached("SELECT id, key, bytes, modified FROM sessions")?;
    let rows = query.query_map([], |row| {
        let known = Known { key: row.get(1)?, bytes: row.get(2)?, modified: row.get(3)? };
        Ok((row.get(0)?, known))
    })?;
    rows.collect()
}

/// Takes a session out of every table.
fn forget(change: &Transaction<'_>, key: i64) -> rusqlite::Result<()> {
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

/// Reads a journal into the tables. One that can't be read is listed with its problem.
fn read(store: &Store, change: &Transaction<'_>, listed: &Listed) -> Result<(), JournalError> {
    let key = insert(change, listed)?;
    let mut entry = Entry::new(change, key);
    let replayed = store.replay(listed.session, |past, stored, replayed| {
        entry.record(past, stored, replayed);
    });
    match replayed {
        Ok((past, end)) => entry.finish(&past, &end)?,
        // It was removed meanwhile.
        Err(JournalError::Unknown(_)) => forget(change, key)?,
        Err(error) => problem(change, key, &error.to_string())?,
    }
    Ok(())
}

fn insert(change: &Transaction<'_>, listed: &Listed) -> rusqlite::Result<i64> {
    let Listed { session, bytes, .. } = listed;
    let mut row = change.prepare_cached(
        "INSERT INTO sessions (id, bytes, modified) VALUES (?1, ?2, ?3) RETURNING key",
    )?;
    row.query_row(params![SessionId::to_string(session), bytes, nanos(listed)], |row| row.get(0))
}

fn problem(change: &Transaction<'_>, key: i64, problem: &str) -> rusqlite::Result<()> {
    let sql = "UPDATE sessions SET status = 'unreadable', problem = ?2, damaged = 1 WHERE key = ?1";
    change.prepare_cached(sql)?.execute(params![key, problem]).map(|_| ())
}
