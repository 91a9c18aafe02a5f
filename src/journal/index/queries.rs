//! The SQL queries of the index.

use std::error::Error;
use std::io;
use std::time::{Duration, UNIX_EPOCH};

use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::row_collector::action_name;
use super::rows::{
    CallRow, CostRow, EventRow, FileRow, MessageRow, SearchHit, SessionDetail, SessionRow,
};
use crate::journal::{SessionId, WallTime};
use crate::model::{FileAction, MicroUsd, RunTime, Tokens, WordEnum};

/// The columns of a session, in the order that [`read_session`] reads.
const SESSION_COLUMNS: &str = "id, status, reason, created, modified, steps, calls, tokens, cost, model, agent, workspace, \
     prompt, parent, records, bytes, problem, damaged";

pub(super) fn query_sessions(database: &Connection) -> rusqlite::Result<Vec<SessionRow>> {
    let sql = format!(
        "SELECT {SESSION_COLUMNS} FROM sessions WHERE serves IS NOT 'eval' ORDER BY modified DESC, id DESC"
    );
    database.prepare_cached(&sql)?.query_map([], read_session)?.collect()
}

pub(super) fn query_session(
    database: &Connection,
    session: SessionId,
) -> rusqlite::Result<Option<SessionDetail>> {
    let sql = format!("SELECT {SESSION_COLUMNS}, key FROM sessions WHERE id = ?1");
    let found = database.prepare_cached(&sql)?.query_row([session.to_string()], |row| {
        let key: i64 = row.get("key")?;
        Ok((read_session(row)?, key))
    });
    let Some((session, key)) = found.optional()? else { return Ok(None) };
    let messages = database
        .prepare_cached(
            "SELECT seq, ts, role, name, text FROM messages WHERE session = ?1 ORDER BY key",
        )?
        .query_map([key], |row| {
            Ok(MessageRow {
                seq: row.get(0)?,
                ts: row.get(1)?,
                role: read_word(row, 2)?,
                name: row.get(3)?,
                text: row.get(4)?,
            })
        })?
        .collect::<rusqlite::Result<_>>()?;
    let calls = database
        .prepare_cached(
            "SELECT seq, ts, model, purpose, input, output, cached, cost FROM calls WHERE session = ?1 ORDER BY seq",
        )?
        .query_map([key], read_call)?
        .collect::<rusqlite::Result<_>>()?;
    let files = database
        .prepare_cached(
            "SELECT path, action, added, removed FROM files WHERE session = ?1 ORDER BY path",
        )?
        .query_map([key], |row| {
            let (path, action) = (row.get(0)?, read_action(row, 1)?);
            Ok(FileRow { path, action, added: row.get(2)?, removed: row.get(3)? })
        })?
        .collect::<rusqlite::Result<_>>()?;
    Ok(Some(SessionDetail { session, messages, calls, files }))
}

pub(super) fn query_events(
    database: &Connection,
    session: SessionId,
) -> rusqlite::Result<Vec<EventRow>> {
    let sql = "SELECT seq, at, ts, state, event FROM events \
         WHERE session = (SELECT key FROM sessions WHERE id = ?1) ORDER BY seq";
    let mut query = database.prepare_cached(sql)?;
    let rows = query.query_map([session.to_string()], |row| {
        Ok(EventRow {
            seq: row.get(0)?,
            at: RunTime(row.get(1)?),
            ts: row.get(2)?,
            state: row.get(3)?,
            event: row.get(4)?,
        })
    })?;
    rows.collect()
}

pub(super) fn query_search(
    database: &Connection,
    words: &str,
    most: usize,
) -> rusqlite::Result<Vec<SearchHit>> {
    let sql = "SELECT sessions.id, messages.seq, messages.ts, messages.role, messages.name, \
             snippet(words, 0, '', '', '…', 24), sessions.prompt \
         FROM words JOIN messages ON messages.key = words.rowid JOIN sessions ON sessions.key = messages.session \
         WHERE words MATCH ?1 ORDER BY sessions.modified DESC, messages.key LIMIT ?2";
    let mut query = database.prepare_cached(sql)?;
    let rows = query.query_map(params![words, i64::try_from(most).unwrap_or(i64::MAX)], |row| {
        Ok(SearchHit {
            session_id: read_session_id(row, 0)?,
            seq: row.get(1)?,
            ts: row.get(2)?,
            role: read_word(row, 3)?,
            name: row.get(4)?,
            snippet: row.get(5)?,
            prompt: row.get(6)?,
        })
    })?;
    rows.collect()
}

/// Copied calls of a fork were paid for by the original.
pub(super) fn query_costs(database: &Connection) -> rusqlite::Result<Vec<CostRow>> {
    let sql = "SELECT substr(ts, 1, 10) AS day, calls.model, coalesce(serves, purpose) AS what, count(*), sum(input), \
             sum(output), sum(calls.cost) \
         FROM calls JOIN sessions ON sessions.key = calls.session \
         WHERE parent_seq IS NULL OR calls.seq > parent_seq GROUP BY day, calls.model, what ORDER BY day DESC, calls.model, what";
    let mut query = database.prepare_cached(sql)?;
    let rows = query.query_map([], |row| {
        Ok(CostRow {
            day: row.get(0)?,
            model: row.get(1)?,
            purpose: row.get(2)?,
            llm_calls: row.get(3)?,
            input_tokens: Tokens(row.get(4)?),
            output_tokens: Tokens(row.get(5)?),
            cost: row.get::<_, Option<u64>>(6)?.map(MicroUsd),
        })
    })?;
    rows.collect()
}

/// Translates a user's search text into the query language of the database; `None` if it contains no word.
pub(super) fn search_terms(text: &str) -> Option<String> {
    let mut found = Vec::new();
    // The parts at odd positions were in quotation marks.
    for (index, piece) in text.split('"').enumerate() {
        let pieces: Vec<&str> = match index % 2 {
            0 => piece.split_whitespace().collect(),
            _ => vec![piece],
        };
        for piece in pieces.into_iter().filter(|piece| piece.contains(char::is_alphanumeric)) {
            // A zero byte would end the text.
            let (piece, star) = match piece.strip_suffix('*') {
                Some(piece) => (piece, "*"),
                None => (piece, ""),
            };
            found.push(format!("\"{}\"{star}", piece.replace('\0', " ")));
        }
    }
    (!found.is_empty()).then(|| found.join(" "))
}

fn read_session(row: &Row<'_>) -> rusqlite::Result<SessionRow> {
    let modified: u64 = row.get(4)?;
    let parent: Option<String> = row.get(13)?;
    let parent =
        parent.map(|id| id.parse().map_err(|error| conversion_error(13, error))).transpose()?;
    Ok(SessionRow {
        session_id: read_session_id(row, 0)?,
        status: read_word(row, 1)?,
        stop_reason: row.get(2)?,
        created: row.get(3)?,
        modified: WallTime::from(UNIX_EPOCH + Duration::from_nanos(modified)).to_string(),
        steps: row.get(5)?,
        llm_calls: row.get(6)?,
        tokens: Tokens(row.get(7)?),
        cost: row.get::<_, Option<u64>>(8)?.map(MicroUsd),
        model: row.get(9)?,
        agent: row.get(10)?,
        workspace: row.get(11)?,
        prompt: row.get(12)?,
        parent,
        records: row.get(14)?,
        bytes: row.get(15)?,
        problem: row.get(16)?,
        damaged: row.get(17)?,
    })
}

fn read_call(row: &Row<'_>) -> rusqlite::Result<CallRow> {
    Ok(CallRow {
        seq: row.get(0)?,
        ts: row.get(1)?,
        model: row.get(2)?,
        purpose: row.get(3)?,
        input_tokens: Tokens(row.get(4)?),
        output_tokens: Tokens(row.get(5)?),
        cached_input_tokens: Tokens(row.get(6)?),
        cost: row.get::<_, Option<u64>>(7)?.map(MicroUsd),
    })
}

fn read_session_id(row: &Row<'_>, column: usize) -> rusqlite::Result<SessionId> {
    let id: String = row.get(column)?;
    id.parse().map_err(|error| conversion_error(column, error))
}

/// Reads a column with a fixed set of values.
fn read_word<T: WordEnum>(row: &Row<'_>, column: usize) -> rusqlite::Result<T> {
    let word: String = row.get(column)?;
    T::from_word(&word).ok_or_else(|| unknown_word(column, &word))
}

fn read_action(row: &Row<'_>, column: usize) -> rusqlite::Result<FileAction> {
    let name: String = row.get(column)?;
    let all = [FileAction::Created, FileAction::Modified, FileAction::Deleted];
    let known = all.into_iter().find(|action| action_name(*action) == name);
    known.ok_or_else(|| unknown_word(column, &name))
}

fn unknown_word(column: usize, word: &str) -> rusqlite::Error {
    conversion_error(column, io::Error::other(format!("unknown word '{word}'")))
}

fn conversion_error(column: usize, error: impl Error + Send + Sync + 'static) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, Type::Text, Box::new(error))
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
