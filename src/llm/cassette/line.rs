//! One line of a recording.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::net::{HeaderMap, NetError};

/// The form of recordings that is written here.
pub(super) const VERSION: u32 = 1;

/// Headers by name, in an order that is always the same.
pub(super) type Headers = BTreeMap<String, String>;

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Line {
    Recording { version: u32 },
    Request(Request),
    Answer { n: usize, status: u16, headers: Headers },
    Piece(Piece),
    End { n: usize },
    Error { n: usize, error: NetError },
}

/// A request, with what its body has in common with the one before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Request {
    pub(super) n: usize,
    /// Who was asked: `provider/name`.
    pub(super) model: String,
    pub(super) method: String,
    pub(super) url: String,
    pub(super) headers: Headers,
    /// How many bytes of the body before this one begins with.
    pub(super) same: usize,
    /// What comes after them.
    pub(super) body: String,
}

/// A piece of an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Piece {
    pub(super) n: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) text: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) hex: Option<String>,
}

/// The types of lines that are known.
const TYPES: [&str; 6] = ["recording", "request", "answer", "piece", "end", "error"];

impl Line {
    /// Reads a line; `None` for one of a type that this release does not know, of which nothing else is decoded.
    pub(super) fn read(text: &str) -> Result<Option<Self>, serde_json::Error> {
        #[derive(Deserialize)]
        struct Typed<'a> {
            #[serde(rename = "type", borrow)]
            kind: Cow<'a, str>,
        }
        match serde_json::from_str::<Typed<'_>>(text) {
            Ok(typed) if !TYPES.contains(&&*typed.kind) => Ok(None),
            Ok(_) | Err(_) => serde_json::from_str(text).map(Some),
        }
    }

    /// Returns the number of the exchange that it belongs to.
    pub(super) fn number(&self) -> usize {
        match self {
            Self::Recording { .. } => 0,
            Self::Request(Request { n, .. })
            | Self::Answer { n, .. }
            | Self::Piece(Piece { n, .. })
            | Self::End { n }
            | Self::Error { n, .. } => *n,
        }
    }
}

impl Piece {
    /// Returns a piece; `mask` takes the keys out of what is text.
    pub(super) fn new(n: usize, bytes: &[u8], mask: impl FnOnce(&str) -> String) -> Self {
        let text = std::str::from_utf8(bytes).ok().map(mask);
        let hex = || bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(digit).collect();
        Self { n, hex: text.is_none().then(hex), text }
    }

    /// Returns its bytes; nothing when it has none, or they cannot be read.
    pub(super) fn bytes(&self) -> Option<Vec<u8>> {
        match (&self.text, &self.hex) {
            (Some(text), None) => Some(text.clone().into_bytes()),
            (None, Some(hex)) if hex.len().is_multiple_of(2) => (0..hex.len())
                .step_by(2)
                .map(|at| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok())
                .collect(),
            _ => None,
        }
    }
}

fn digit(half: u8) -> char {
    char::from_digit(half.into(), 16).unwrap_or('0')
}

/// Returns the headers of a request that are no secret.
pub(super) fn open_headers(headers: &HeaderMap) -> Headers {
    let open = headers.iter().filter(|(_, value)| !value.is_sensitive());
    open.filter_map(|(name, value)| Some((name.to_string(), value.to_str().ok()?.to_owned())))
        .collect()
}

/// The headers of an answer that a reply or a fault depends on.
const TELLING: [&str; 6] =
    ["content-type", "date", "location", "retry-after", "retry-after-ms", "x-should-retry"];

/// Returns the headers of an answer that say something; others name organisations and carry cookies.
pub(super) fn telling_headers(headers: &HeaderMap) -> Headers {
    let mut told = open_headers(headers);
    told.retain(|name, _| TELLING.contains(&name.as_str()));
    told
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::HeaderValue;

    #[test]
    fn a_piece_is_text_where_it_can_be_and_comes_back_as_it_was() {
        for bytes in ["data: ü\n\n".as_bytes(), b"\xff\x00\n", b""] {
            let piece = Piece::new(1, bytes, str::to_owned);
            assert_eq!(piece.bytes().as_deref(), Some(bytes));
        }
        for hex in ["f", "zz", "é0"] {
            let piece = Piece { n: 1, text: None, hex: Some(hex.to_owned()) };
            assert_eq!(piece.bytes(), None, "{hex}");
        }
    }

    #[test]
    fn a_header_with_a_key_is_left_out() {
        let mut headers = HeaderMap::new();
        headers.insert("accept", HeaderValue::from_static("text/event-stream"));
        let mut key = HeaderValue::from_static("canary");
        key.set_sensitive(true);
        headers.insert("x-api-key", key);
        assert_eq!(open_headers(&headers).keys().collect::<Vec<_>>(), ["accept"]);
        assert!(telling_headers(&headers).is_empty());
    }

    #[test]
    fn a_line_is_one_object_with_its_type() {
        let line = Line::Error { n: 3, error: NetError::Cancelled };
        let json = serde_json::to_string(&line).unwrap();
        assert_eq!(json, r#"{"type":"error","n":3,"error":{"kind":"cancelled"}}"#);
        assert_eq!(serde_json::from_str::<Line>(&json).unwrap(), line);
    }
}
