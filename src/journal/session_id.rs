//! Ids of sessions.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use uuid::Uuid;

use crate::port::unique_id;

/// The id of a session: a UUID whose text sorts by creation time.
///
/// File names are built from ids alone, and an id consists of hexadecimal digits and dashes, so that no name from a
/// user or a file leads out of the store.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(try_from = "String")]
#[schemars(with = "String")]
pub struct SessionId(Uuid);

/// The error for a text that is not a session id.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("'{0}' is not a session id")]
pub struct InvalidSessionId(String);

impl SessionId {
    /// Returns a unique id. Later ids sort after earlier ones.
    pub fn generate() -> Self {
        Self(unique_id())
    }
}

impl FromStr for SessionId {
    type Err = InvalidSessionId;

    /// Parses the canonical spelling: 36 characters, lower case.
    fn from_str(text: &str) -> Result<Self, InvalidSessionId> {
        let wrong = || InvalidSessionId(text.chars().take(80).collect());
        let id = Self(Uuid::try_parse(text).map_err(|_| wrong())?);
        if id.to_string() == text { Ok(id) } else { Err(wrong()) }
    }
}

impl TryFrom<String> for SessionId {
    type Error = InvalidSessionId;

    fn try_from(text: String) -> Result<Self, InvalidSessionId> {
        text.parse()
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_hyphenated().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_ids_sort_behind_earlier_ones_also_as_text() {
        let ids: Vec<SessionId> = (0..1_000).map(|_| SessionId::generate()).collect();
        assert!(ids.is_sorted());
        assert!(ids.iter().map(SessionId::to_string).is_sorted());
    }

    #[test]
    fn an_id_has_one_spelling() {
        let id = SessionId::generate();
        assert_eq!(id.to_string().parse::<SessionId>().unwrap(), id);
        let upper = id.to_string().to_uppercase().replace(|c: char| c.is_numeric(), "A");
        let bare = id.to_string().replace('-', "");
        for wrong in
            ["", "last", "..", "../../etc/passwd", "a/b", &upper, &bare, &format!("{{{id}}}")]
        {
            assert!(wrong.parse::<SessionId>().is_err(), "{wrong:?}");
        }
    }
}
