//! The records of a recording.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::net::{HeaderMap, NetError};
use crate::types::hex;

/// The version of the format.
pub(super) const FORMAT_VERSION: u32 = 1;

/// Headers by name, sorted.
pub(super) type RecordedHeaders = BTreeMap<String, String>;

/// A record, which is a line of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum CassetteRecord {
    Recording {
        version: u32,
    },
    Request(RequestRecord),
    #[serde(rename = "answer")]
    Response {
        n: usize,
        status: u16,
        headers: RecordedHeaders,
    },
    #[serde(rename = "piece")]
    Chunk(ChunkRecord),
    End {
        n: usize,
    },
    Error {
        n: usize,
        error: NetError,
    },
    /// A record of a later version.
    #[serde(other, skip_serializing)]
    Unknown,
}

/// The record of a request. Its body shares a prefix with the body of the previous request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RequestRecord {
    pub(super) n: usize,
    /// The model, as `provider/name`.
    pub(super) model: String,
    pub(super) method: String,
    pub(super) url: String,
    pub(super) headers: RecordedHeaders,
    /// The length of the prefix that the body shares with the previous body, in bytes.
    #[serde(rename = "same")]
    pub(super) shared_bytes: usize,
    /// The rest of the body.
    pub(super) body: String,
}

/// A chunk of a response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ChunkRecord {
    pub(super) n: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) text: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) hex: Option<String>,
}

impl CassetteRecord {
    /// Returns the number of the record's exchange.
    pub(super) fn number(&self) -> usize {
        match self {
            Self::Recording { .. } | Self::Unknown => 0,
            Self::Request(RequestRecord { n, .. })
            | Self::Response { n, .. }
            | Self::Chunk(ChunkRecord { n, .. })
            | Self::End { n }
            | Self::Error { n, .. } => *n,
        }
    }
}

impl ChunkRecord {
    /// Returns the record of a chunk.
    pub(super) fn new(n: usize, bytes: Vec<u8>) -> Self {
        match String::from_utf8(bytes) {
            Ok(text) => Self { n, text: Some(text), hex: None },
            Err(error) => Self { n, text: None, hex: Some(hex(error.as_bytes())) },
        }
    }

    /// Returns the bytes of the chunk; `None` if they are missing or invalid.
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

/// Returns the headers of a request, without secret ones.
pub(super) fn public_headers(headers: &HeaderMap) -> RecordedHeaders {
    let open = headers.iter().filter(|(_, value)| !value.is_sensitive());
    open.filter_map(|(name, value)| Some((name.to_string(), value.to_str().ok()?.to_owned())))
        .collect()
}

/// The headers of a response that affect the reply or a fault.
const RELEVANT_HEADERS: [&str; 7] = [
    "content-type",
    "date",
    "location",
    "retry-after",
    "retry-after-ms",
    "x-amzn-errortype",
    "x-should-retry",
];

/// Returns the relevant headers of a response; others may identify organisations or contain cookies.
pub(super) fn relevant_headers(headers: &HeaderMap) -> RecordedHeaders {
    let mut relevant = public_headers(headers);
    relevant.retain(|name, _| RELEVANT_HEADERS.contains(&name.as_str()));
    relevant
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::HeaderValue;

    #[test]
    fn a_chunk_is_text_or_hex_and_round_trips() {
        for bytes in ["data: ü\n\n".as_bytes(), b"\xff\x00\n", b""] {
            let piece = ChunkRecord::new(1, bytes.to_vec());
            assert_eq!(piece.bytes().as_deref(), Some(bytes));
        }
        for hex in ["f", "zz", "é0"] {
            let piece = ChunkRecord { n: 1, text: None, hex: Some(hex.to_owned()) };
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
        assert_eq!(public_headers(&headers).keys().collect::<Vec<_>>(), ["accept"]);
        assert!(relevant_headers(&headers).is_empty());
    }

    #[test]
    fn a_record_is_one_tagged_object() {
        let line = CassetteRecord::Error { n: 3, error: NetError::Cancelled };
        let json = serde_json::to_string(&line).unwrap();
        assert_eq!(json, r#"{"type":"error","n":3,"error":{"kind":"cancelled"}}"#);
        assert_eq!(serde_json::from_str::<CassetteRecord>(&json).unwrap(), line);
    }
}
