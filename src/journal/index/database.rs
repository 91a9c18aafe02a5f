//! The database of the index: its tables and its access rights.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use rusqlite::Connection;

/// The version of the tables. Tables of another version are dropped.
const SCHEMA_VERSION: u32 = 3;

/// How long to wait for another process that holds the database.
const BUSY_TIMEOUT: Duration = Duration::from_millis(200);

/// The tables. Message texts are stored once; the search has an index of their words.
const TABLES: &str = "
    BEGIN;
    CREATE TABLE sessions (
        key INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        bytes INTEGER NOT NULL,
        modified INTEGER NOT NULL,
        whole INTEGER NOT NULL,
        created TEXT,
        parent TEXT,
        parent_seq INTEGER,
        serves TEXT,
        model TEXT,
        agent TEXT,
        workspace TEXT,
        prompt TEXT,
        status TEXT,
        reason TEXT,
        steps INTEGER NOT NULL DEFAULT 0,
        calls INTEGER NOT NULL DEFAULT 0,
        tokens INTEGER NOT NULL DEFAULT 0,
        cost INTEGER,
        records INTEGER NOT NULL DEFAULT 0,
        problem TEXT,
        damaged INTEGER NOT NULL DEFAULT 0
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
    CREATE TABLE events (
        session INTEGER NOT NULL,
        seq INTEGER NOT NULL,
        at INTEGER NOT NULL,
        ts TEXT NOT NULL,
        state TEXT NOT NULL,
        event TEXT NOT NULL,
        PRIMARY KEY (session, seq)
    ) WITHOUT ROWID;
    CREATE TABLE calls (
        session INTEGER NOT NULL,
        seq INTEGER NOT NULL,
        ts TEXT NOT NULL,
        model TEXT NOT NULL,
        purpose TEXT NOT NULL,
        input INTEGER NOT NULL,
        output INTEGER NOT NULL,
        cached INTEGER NOT NULL,
        cost INTEGER,
        PRIMARY KEY (session, seq)
    ) WITHOUT ROWID;
    CREATE TABLE files (
        session INTEGER NOT NULL,
        path TEXT NOT NULL,
        action TEXT NOT NULL,
        added INTEGER NOT NULL,
        removed INTEGER NOT NULL,
        PRIMARY KEY (session, path)
    ) WITHOUT ROWID;
    COMMIT;
";

/// Opens the database in a file that only the user can read.
pub(super) fn open(path: &Path) -> rusqlite::Result<Connection> {
    // SQLite itself would create it readable for everyone; if this fails, SQLite reports why.
    let _ = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
    let database = configure(Connection::open(path)?)?;
    match schema_version(&database)? {
        Some(SCHEMA_VERSION) => Ok(database),
        None => create_tables(database),
        Some(_) => {
            drop(database);
            remove_files(path);
            open_new(path)
        }
    }
}

fn open_new(path: &Path) -> rusqlite::Result<Connection> {
    let _ = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
    create_tables(configure(Connection::open(path)?)?)
}

/// Opens a database in memory.
pub(super) fn in_memory() -> rusqlite::Result<Connection> {
    create_tables(configure(Connection::open_in_memory()?)?)
}

/// Removes the file and its unfinished changes.
pub(super) fn remove_files(path: &Path) {
    for ending in ["", "-journal", "-wal", "-shm"] {
        let mut name = OsString::from(path);
        name.push(ending);
        let _ = fs::remove_file(name);
    }
}

fn configure(database: Connection) -> rusqlite::Result<Connection> {
    database.busy_timeout(BUSY_TIMEOUT)?;
    // What a crash of the machine loses is built again; shared memory does not work on network file systems.
    database.pragma_update(None, "synchronous", "OFF")?;
    database.pragma_update(None, "journal_mode", "TRUNCATE")?;
    Ok(database)
}

/// Returns the version of the tables; `None` without tables.
fn schema_version(database: &Connection) -> rusqlite::Result<Option<u32>> {
    let tables: u32 =
        database.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    let release = database.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    Ok((tables > 0 || release > 0).then_some(release))
}

fn create_tables(database: Connection) -> rusqlite::Result<Connection> {
    database.execute_batch(TABLES)?;
    database.pragma_update(None, "user_version", SCHEMA_VERSION)?;
    Ok(database)
}
