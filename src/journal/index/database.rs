//! The database of the index: its tables, its access rights and its queries.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use rusqlite::config::DbConfig;
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension as _, Params, Row, Transaction, ffi, params};
use rustix::fs::OFlags;
use serde::de::DeserializeOwned;

use super::contents::SessionContents;
use super::measures::Measures;
use super::rows::SessionDetail;
use crate::journal::ListedSession;
use crate::workspace::lock_within;

/// The version of the tables. Tables of another version are dropped.
const SCHEMA_VERSION: u32 = 7;

/// The time to wait for a transaction of another process.
const BUSY_TIMEOUT: Duration = Duration::from_millis(500);

/// The time to wait for another process that updates the database. Reading the journals instead takes as long as such
/// an update.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// The tables. Message texts are stored once; the search uses an index of their words.
///
/// The documentation of the laboratory explains them to users, who may query them.
const TABLES: &str = "
    CREATE TABLE sessions (
        key INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        bytes INTEGER NOT NULL,
        modified INTEGER NOT NULL,
        whole INTEGER NOT NULL,
        listed INTEGER NOT NULL,
        kind TEXT NOT NULL,
        entry TEXT NOT NULL
    );
    CREATE TABLE messages (
        key INTEGER PRIMARY KEY,
        session INTEGER NOT NULL,
        seq INTEGER NOT NULL,
        ts TEXT NOT NULL,
        role TEXT NOT NULL,
        name TEXT,
        text TEXT NOT NULL
    );
    CREATE INDEX messages_of ON messages (session);
    CREATE VIRTUAL TABLE words USING fts5 (
        text, content = 'messages', content_rowid = 'key', tokenize = 'unicode61 remove_diacritics 2'
    );
    CREATE TABLE calls (
        session INTEGER NOT NULL,
        seq INTEGER NOT NULL,
        day TEXT NOT NULL,
        model TEXT NOT NULL,
        purpose TEXT NOT NULL,
        input INTEGER NOT NULL,
        cached INTEGER NOT NULL,
        output INTEGER NOT NULL,
        cost INTEGER,
        attempt INTEGER NOT NULL,
        step INTEGER,
        time INTEGER,
        PRIMARY KEY (session, seq)
    ) WITHOUT ROWID;
    CREATE TABLE failures (
        session INTEGER NOT NULL,
        seq INTEGER NOT NULL,
        day TEXT NOT NULL,
        model TEXT NOT NULL,
        kind TEXT NOT NULL,
        attempt INTEGER NOT NULL,
        PRIMARY KEY (session, seq)
    ) WITHOUT ROWID;
    CREATE TABLE tools (
        key INTEGER PRIMARY KEY,
        session INTEGER NOT NULL,
        seq INTEGER NOT NULL,
        day TEXT NOT NULL,
        name TEXT NOT NULL,
        status TEXT NOT NULL,
        time INTEGER
    );
    CREATE INDEX tools_of ON tools (session);
    CREATE TABLE states (
        session INTEGER NOT NULL,
        state TEXT NOT NULL,
        visits INTEGER NOT NULL,
        time INTEGER NOT NULL,
        PRIMARY KEY (session, state)
    ) WITHOUT ROWID;
";

/// The list entries.
pub(super) const LIST: &str =
    "SELECT entry FROM sessions WHERE listed ORDER BY modified DESC, id DESC";

/// The messages that contain the words `?1`, up to `?2` of them.
pub(super) const SEARCH: &str = "SELECT json_object('session_id', id, 'seq', seq, 'ts', ts, 'role', role, 'name', name, \
         'snippet', snippet(words, 0, '', '', '…', 24), 'prompt', entry ->> 'prompt') \
     FROM words JOIN messages ON messages.key = words.rowid JOIN sessions ON sessions.key = messages.session \
     WHERE words MATCH ?1 ORDER BY sessions.modified DESC, messages.key LIMIT ?2";

/// The costs by day, model and purpose.
pub(super) const COSTS: &str = "SELECT json_object('day', day, 'model', model, 'purpose', purpose, 'llm_calls', count(*), \
         'input_tokens', sum(input), 'output_tokens', sum(output), 'cost', sum(cost) / 1e6) \
     FROM calls GROUP BY day, model, purpose ORDER BY day DESC, model, purpose";

/// Takes the exclusive right to change the database. It ends with the returned file.
///
/// The locks of the database itself last for one transaction. An update has several transactions, and depends on the
/// previous content.
pub(super) fn lock(path: &Path) -> rusqlite::Result<File> {
    let mut name = path.as_os_str().to_owned();
    name.push("-lock");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = options.custom_flags(flags).open(name);
    let is_locked = |file: File| Ok(lock_within(&file, LOCK_TIMEOUT)?.then_some(file));
    match file.and_then(is_locked) {
        Ok(Some(file)) => Ok(file),
        Ok(None) => Err(failure(ffi::SQLITE_BUSY, "another process updates it")),
        Err(error) => Err(failure(ffi::SQLITE_CANTOPEN, &format!("could not lock it: {error}"))),
    }
}

/// Opens the database, and creates the tables if it has none of this version. The caller holds the lock.
pub(super) fn open(path: &Path) -> rusqlite::Result<Connection> {
    let database = connect(path)?;
    match generation(&database)? {
        Some(_) => Ok(database),
        None => reset(path),
    }
}

/// Opens a database in memory.
pub(super) fn in_memory() -> rusqlite::Result<Connection> {
    create_tables(Connection::open_in_memory()?)
}

/// Replaces the content of the database by empty tables, whatever the file contains. The caller holds the lock.
///
/// The file itself stays, and its content changes in transactions: other processes that have it open see either the old
/// or the new content.
pub(super) fn reset(path: &Path) -> rusqlite::Result<Connection> {
    let database = open_file(path)?;
    database.set_db_config(DbConfig::SQLITE_DBCONFIG_RESET_DATABASE, true)?;
    configure(&database)?;
    database.execute_batch("VACUUM")?;
    database.set_db_config(DbConfig::SQLITE_DBCONFIG_RESET_DATABASE, false)?;
    create_tables(database)
}

/// Returns the random number that was assigned to the tables at their creation; `None` if they aren't of this version.
pub(super) fn generation(database: &Connection) -> rusqlite::Result<Option<i32>> {
    let sql = "SELECT application_id FROM pragma_application_id, pragma_user_version WHERE user_version = ?";
    database.prepare_cached(sql)?.query_row([SCHEMA_VERSION], |row| row.get(0)).optional()
}

/// Opens the database in a file that only the user can read.
pub(super) fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let database = open_file(path)?;
    configure(&database)?;
    Ok(database)
}

fn open_file(path: &Path) -> rusqlite::Result<Connection> {
    // A named pipe would block, and a link could lead elsewhere.
    if fs::symlink_metadata(path).is_ok_and(|found| !found.is_file()) {
        return Err(failure(ffi::SQLITE_CANTOPEN, "it is not a file"));
    }
    // SQLite itself would create the file readable for everyone. If this fails, SQLite reports the reason. An existing
    // file is not opened, because closing it would end the locks of other connections of this process.
    let _ = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    Connection::open(path)
}

fn configure(database: &Connection) -> rusqlite::Result<()> {
    database.busy_timeout(BUSY_TIMEOUT)?;
    // Data that a crash of the computer loses is built again. Shared memory does not work on network file systems.
    database.pragma_update(None, "synchronous", "OFF")?;
    database.pragma_update(None, "journal_mode", "TRUNCATE")
}

fn failure(code: i32, reason: &str) -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(ffi::Error::new(code), Some(reason.to_owned()))
}

fn create_tables(database: Connection) -> rusqlite::Result<Connection> {
    let generation: i32 =
        database.query_row("SELECT random() & 0x7fffffff", [], |row| row.get(0))?;
    database.execute_batch(&format!(
        "BEGIN IMMEDIATE; {TABLES} PRAGMA application_id = {generation}; \
         PRAGMA user_version = {SCHEMA_VERSION}; COMMIT"
    ))?;
    Ok(database)
}

/// Returns whether the database has the whole content of all sessions, not only their list entries.
pub(super) fn is_whole(database: &Connection) -> rusqlite::Result<bool> {
    let sql = "SELECT NOT EXISTS (SELECT 1 FROM sessions WHERE NOT whole)";
    database.query_row(sql, [], |row| row.get(0))
}

/// Returns the rows of a query whose only column is JSON.
pub(super) fn query_json<T: DeserializeOwned>(
    database: &Connection,
    sql: &str,
    values: impl Params,
) -> rusqlite::Result<Vec<T>> {
    let read = |row: &Row<'_>| {
        serde_json::from_str(&row.get::<_, String>(0)?).map_err(|error| {
            rusqlite::Error::FromSqlConversionFailure(0, Type::Text, Box::new(error))
        })
    };
    database.prepare_cached(sql)?.query_map(values, read)?.collect()
}

/// Translates a user's search text into the query language of the database; `None` if it contains no word.
pub(super) fn search_terms(text: &str) -> Option<String> {
    let mut found = Vec::new();
    // The pieces at odd positions were in quotation marks.
    for (index, piece) in text.split('"').enumerate() {
        let pieces: Vec<&str> = match index % 2 {
            0 => piece.split_whitespace().collect(),
            _ => vec![piece],
        };
        for piece in pieces.into_iter().filter(|piece| piece.contains(char::is_alphanumeric)) {
            let (piece, star) = match piece.strip_suffix('*') {
                Some(piece) => (piece, "*"),
                None => (piece, ""),
            };
            // A zero byte would end the text.
            found.push(format!("\"{}\"{star}", piece.replace('\0', " ")));
        }
    }
    (!found.is_empty()).then(|| found.join(" "))
}

/// Returns the modification time in nanoseconds since 1970, as reported by the file system. A time before 1970 counts
/// as 1970.
pub(super) fn modified_nanos(listed: &ListedSession) -> u64 {
    let since = listed.modified.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX >> 1).min(u64::MAX >> 1)
}

/// Inserts a session that is not in the database.
pub(super) fn insert_session(
    change: &Transaction<'_>,
    listed: &ListedSession,
    contents: &SessionContents,
) -> rusqlite::Result<()> {
    let SessionContents { detail, is_whole, dispatched_by, copied_up_to, measures } = contents;
    let SessionDetail { session, messages, calls, .. } = detail;
    let id = listed.session.to_string();
    let kind = match dispatched_by {
        Some(parent) if parent.is_evaluation() => "eval",
        Some(_) => "subagent",
        None => "session",
    };
    let is_listed = kind != "eval";
    let entry = serde_json::to_string(session)
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))?;
    let values =
        params![id, listed.bytes, modified_nanos(listed), is_whole, is_listed, kind, entry];
    let sql = "INSERT INTO sessions (id, bytes, modified, whole, listed, kind, entry) VALUES (?, ?, ?, ?, ?, ?, ?)";
    change.prepare_cached(sql)?.execute(values)?;
    let key = change.last_insert_rowid();
    let mut insert = change.prepare_cached(
        "INSERT INTO messages (session, seq, ts, role, name, text) VALUES (?, ?, ?, ?, ?, ?)",
    )?;
    let mut index = change.prepare_cached("INSERT INTO words (rowid, text) VALUES (?, ?)")?;
    for message in messages {
        let role = message.role.as_str();
        let values = params![key, message.seq, message.ts, role, message.name, message.text];
        index.execute(params![insert.insert(values)?, message.text])?;
    }
    let mut insert = change.prepare_cached(
        "INSERT INTO calls (session, seq, day, model, purpose, input, cached, output, cost, attempt, step, time) \
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )?;
    for call in calls.iter().filter(|call| Some(call.seq) > *copied_up_to) {
        let purpose = if kind == "session" { &call.purpose } else { kind };
        let day = call.ts.get(..10);
        let (input, output) = (call.input_tokens.0, call.output_tokens.0);
        let (cached, cost) = (call.cached_input_tokens.0, call.cost.map(|cost| cost.0));
        let (attempt, step, time) = (call.attempt, call.step, call.micros);
        insert.execute(params![
            key, call.seq, day, call.model, purpose, input, cached, output, cost, attempt, step,
            time
        ])?;
    }
    insert_measures(change, key, measures)
}

/// Inserts the measures of a session's records.
fn insert_measures(
    change: &Transaction<'_>,
    key: i64,
    measures: &Measures,
) -> rusqlite::Result<()> {
    let mut insert = change.prepare_cached(
        "INSERT INTO failures (session, seq, day, model, kind, attempt) VALUES (?, ?, ?, ?, ?, ?)",
    )?;
    for failed in &measures.failures {
        let (day, kind) = (failed.ts.get(..10), failed.kind.as_str());
        insert.execute(params![key, failed.seq, day, failed.model, kind, failed.attempt])?;
    }
    let mut insert = change.prepare_cached(
        "INSERT INTO tools (session, seq, day, name, status, time) VALUES (?, ?, ?, ?, ?, ?)",
    )?;
    for tool in &measures.tools {
        let (day, status) = (tool.ts.get(..10), tool.status.as_str());
        insert.execute(params![key, tool.seq, day, tool.name, status, tool.micros])?;
    }
    let mut insert = change
        .prepare_cached("INSERT INTO states (session, state, visits, time) VALUES (?, ?, ?, ?)")?;
    for (state, row) in &measures.states {
        insert.execute(params![key, state.as_str(), row.visits, row.micros])?;
    }
    Ok(())
}

/// Removes a session from every table.
pub(super) fn delete_session(change: &Transaction<'_>, key: i64) -> rusqlite::Result<()> {
    for sql in [
        "INSERT INTO words (words, rowid, text) SELECT 'delete', key, text FROM messages WHERE session = ?1",
        "DELETE FROM messages WHERE session = ?1",
        "DELETE FROM calls WHERE session = ?1",
        "DELETE FROM failures WHERE session = ?1",
        "DELETE FROM tools WHERE session = ?1",
        "DELETE FROM states WHERE session = ?1",
        "DELETE FROM sessions WHERE key = ?1",
    ] {
        change.prepare_cached(sql)?.execute([key])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_character_of_what_is_looked_for_is_an_operator() {
        let words = |text: &str| search_terms(text).unwrap();
        assert_eq!(words("two words"), r#""two" "words""#);
        assert_eq!(words(r#"a "whole phrase" b"#), r#""a" "whole phrase" "b""#);
        assert_eq!(words("conf* NEAR(x) -y NOT"), r#""conf"* "NEAR(x)" "-y" "NOT""#);
        assert_eq!(words(r#"open "end"#), r#""open" "end""#);
    }

    #[test]
    fn signs_alone_are_no_words() {
        for nothing in ["", "  ", "\"\"", "* + -", "\" \""] {
            assert_eq!(search_terms(nothing), None, "{nothing}");
        }
    }
}
