//! The ids of traces and spans, and the header that propagates them.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};
use sha2::{Digest, Sha256};
use thiserror::Error;

/// The id of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TraceId(pub(super) [u8; 16]);

/// The id of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SpanId(pub(super) [u8; 8]);

/// The trace and the span that the process belongs to (W3C Trace Context, `TRACEPARENT`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    pub(super) trace: TraceId,
    pub(super) span: SpanId,
    /// Whether the caller records the trace.
    pub is_sampled: bool,
}

/// An invalid `TRACEPARENT`.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the trace parent is not of the form 00-<32 hex digits>-<16 hex digits>-<2 hex digits>")]
pub struct TraceParentError;

/// Generates the ids of one run: deterministic for a run, and unique to it.
#[derive(Clone, Debug)]
pub(super) struct TraceIdGenerator {
    seed: Vec<u8>,
    next: u64,
}

impl TraceIdGenerator {
    /// Returns the ids of a run of this session that began at this time.
    pub(super) fn new(session: &str, began: jiff::Timestamp) -> Self {
        let seed = [session.as_bytes(), b"\0", &began.as_nanosecond().to_le_bytes()].concat();
        Self { seed, next: 0 }
    }

    pub(super) fn trace(&mut self) -> TraceId {
        TraceId(self.next_bytes())
    }

    pub(super) fn span(&mut self) -> SpanId {
        SpanId(self.next_bytes())
    }

    fn next_bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut hash = Sha256::new();
        hash.update(&self.seed);
        hash.update(self.next.to_le_bytes());
        self.next += 1;
        let hash = hash.finalize();
        let mut id = [0; N];
        for (to, from) in id.iter_mut().zip(hash.iter()) {
            *to = *from;
        }
        // An id of all zeros is invalid.
        if let Some(last) = id.last_mut() {
            *last |= 1;
        }
        id
    }
}

impl FromStr for TraceParent {
    type Err = TraceParentError;

    /// Parses the header; of a later version, the part that is known.
    fn from_str(text: &str) -> Result<Self, TraceParentError> {
        let mut parts = text.trim().split('-');
        let mut part = || parts.next().ok_or(TraceParentError);
        let [version] = parse_hex(part()?)?;
        let (trace, span, [flags]) =
            (parse_hex(part()?)?, parse_hex(part()?)?, parse_hex(part()?)?);
        let is_complete = version != 0 || parts.next().is_none();
        if version == 0xff || !is_complete || trace == [0; 16] || span == [0; 8] {
            return Err(TraceParentError);
        }
        Ok(Self { trace: TraceId(trace), span: SpanId(span), is_sampled: flags & 1 == 1 })
    }
}

fn parse_hex<const N: usize>(hex: &str) -> Result<[u8; N], TraceParentError> {
    let is_hex = hex.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    if hex.len() != 2 * N || !is_hex {
        return Err(TraceParentError);
    }
    let mut bytes = [0; N];
    for (index, byte) in bytes.iter_mut().enumerate() {
        let digits = &hex[2 * index..2 * index + 2];
        *byte = u8::from_str_radix(digits, 16).map_err(|_| TraceParentError)?;
    }
    Ok(bytes)
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{}-{}-{:02x}", self.trace, self.span, u8::from(self.is_sampled))
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Serialize for TraceId {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl Serialize for SpanId {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_parent_is_read_and_written() {
        let parent: TraceParent = PARENT.parse().unwrap();
        assert_eq!((parent.to_string().as_str(), parent.is_sampled), (PARENT, true));
        assert!(!PARENT.replace("-01", "-00").parse::<TraceParent>().unwrap().is_sampled);
        assert!(format!("01{}-more", &PARENT[2..]).parse::<TraceParent>().is_ok());
    }

    #[test]
    fn an_invalid_parent_is_rejected() {
        let upper = PARENT.to_uppercase();
        let long = format!("{PARENT}-more");
        let zero = PARENT.replace("b7ad6b7169203331", "0000000000000000");
        for wrong in ["", "00", "ff-x", &upper, &long, &zero, "00-ü-ü-01"] {
            assert_eq!(wrong.parse::<TraceParent>(), Err(TraceParentError), "{wrong}");
        }
    }

    #[test]
    fn ids_differ_within_a_run_and_between_runs() {
        let ids = |session, second| {
            let began = jiff::Timestamp::from_second(second).unwrap();
            let mut ids = TraceIdGenerator::new(session, began);
            [ids.span(), ids.span()]
        };
        assert_eq!(ids("a", 1), ids("a", 1));
        let all = [ids("a", 1), ids("a", 2), ids("b", 1)].concat();
        for (index, id) in all.iter().enumerate() {
            assert!(!all[index + 1..].contains(id));
        }
    }
}
