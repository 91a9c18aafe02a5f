//! Updates of the index: finds the journals that have to be read again, and the removed ones.

use std::collections::HashMap;
use std::num::NonZero;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use std::{iter, thread};

use crossbeam_channel::bounded;
use rusqlite::{Connection, TransactionBehavior};

use super::contents::SessionContents;
use super::database::{delete_session, insert_session, modified_nanos};
use crate::journal::error::Result;
use crate::journal::{ListedSession, SessionStore};
use crate::port::lock;

/// The result of an update.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexUpdate {
    /// The number of journals that were read.
    pub read: usize,
    /// The number of these journals that were replayed. For the others, the header and the last record were enough.
    pub replayed: usize,
    /// The number of unchanged journals.
    pub unchanged: usize,
    /// The number of removed sessions.
    pub removed: usize,
}

/// A session in the index.
struct IndexedSession {
    key: i64,
    bytes: u64,
    modified: u64,
    /// Whether the whole journal is in the index.
    is_whole: bool,
}

/// The maximum number of journals that are read and not yet written to the database.
const QUEUE_LENGTH: usize = 64;

/// The approximate duration of a transaction, for which other processes wait.
const MAX_TRANSACTION_TIME: Duration = Duration::from_millis(100);

/// The differences between the database and the journals.
#[derive(Default)]
struct Differences {
    /// New and changed journals, with the database's data about them.
    changed: Vec<(ListedSession, Option<IndexedSession>)>,
    unchanged: usize,
    /// Sessions that are in the database only.
    removed: Vec<IndexedSession>,
}

impl Differences {
    fn find(store: &SessionStore, database: &Connection, needs_whole: bool) -> Result<Self> {
        let mut known = indexed_sessions(database)?;
        let mut found = Self::default();
        for listed in store.list()? {
            let old = known.remove(&listed.session.to_string());
            let is_same = |old: &IndexedSession| {
                (old.bytes, old.modified) == (listed.bytes, modified_nanos(&listed))
                    && (old.is_whole || !needs_whole)
            };
            match old {
                Some(old) if is_same(&old) => found.unchanged += 1,
                old => found.changed.push((listed, old)),
            }
        }
        found.removed = known.into_values().collect();
        Ok(found)
    }
}

/// Returns whether the database has the current list entries of all journals, and no others.
pub(super) fn is_current(store: &SessionStore, database: &Connection) -> Result<bool> {
    let Differences { changed, removed, .. } = Differences::find(store, database, false)?;
    Ok(changed.is_empty() && removed.is_empty())
}

/// Brings the database up to date with the journals of a store: with their list entries, or with their whole content.
/// Several sessions form a transaction, so that an interrupted update loses only the newest. No other process may
/// change the database meanwhile.
pub(super) fn update(
    store: &SessionStore,
    database: &mut Connection,
    needs_whole: bool,
) -> Result<IndexUpdate> {
    let Differences { changed, unchanged, removed } =
        Differences::find(store, database, needs_whole)?;
    let mut updated = IndexUpdate { unchanged, ..IndexUpdate::default() };
    updated.read = changed.len();
    let next = Mutex::new(changed.iter());
    let read_next = || {
        let (listed, old) = lock(&next).next()?;
        let skimmed = if needs_whole { None } else { SessionContents::skim(store, listed) };
        Some((listed, old, skimmed.or_else(|| SessionContents::replay(store, listed))))
    };
    thread::scope(|scope| -> rusqlite::Result<()> {
        let (sender, receiver) = bounded(QUEUE_LENGTH);
        for _ in 0..thread::available_parallelism().map_or(1, NonZero::get) {
            let sender = sender.clone();
            let work = || iter::from_fn(read_next).try_for_each(move |read| sender.send(read).ok());
            let _ = thread::Builder::new().name("journals".to_owned()).spawn_scoped(scope, work);
        }
        drop(sender);
        // Reads the rest on this thread, if no thread could be started.
        let mut read = receiver.into_iter().chain(iter::from_fn(read_next)).peekable();
        while read.peek().is_some() {
            let change = database.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let started = Instant::now();
            for (listed, old, contents) in read.by_ref() {
                if let Some(old) = old {
                    delete_session(&change, old.key)?;
                }
                if let Some(contents) = contents {
                    updated.replayed += usize::from(contents.is_whole);
                    insert_session(&change, listed, &contents)?;
                }
                if started.elapsed() > MAX_TRANSACTION_TIME {
                    break;
                }
            }
            change.commit()?;
        }
        Ok(())
    })?;
    updated.removed = removed.len();
    if !removed.is_empty() {
        let change = database.transaction_with_behavior(TransactionBehavior::Immediate)?;
        removed.into_iter().try_for_each(|old| delete_session(&change, old.key))?;
        change.commit()?;
    }
    Ok(updated)
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
