//! Ids of traces and spans, and the header that propagates them.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};
use thiserror::Error;

/// The trace and the span of which the process is a part (W3C Trace Context, `TRACEPARENT`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    pub(super) trace: u128,
    pub(super) span: u64,
    /// Whether the caller records the trace.
    pub is_sampled: bool,
}

/// An invalid `TRACEPARENT`.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the trace parent is not of the form 00-<32 hex digits>-<16 hex digits>-<2 hex digits>")]
pub struct TraceParentError;

/// Generates the ids of one run. They are deterministic for a run, and unique to it.
#[derive(Clone, Debug)]
pub(super) struct TraceIdGenerator {
    seed: Vec<u8>,
    next: u64,
}

impl TraceIdGenerator {
    /// Returns the generator for the run of a session that began at this time.
    pub(super) fn new(session: &str, began: jiff::Timestamp) -> Self {
        let seed = [session.as_bytes(), b"\0", &began.as_nanosecond().to_le_bytes()].concat();
        Self { seed, next: 0 }
    }

    /// Returns the id of a trace. An id of all zeros would be invalid.
    pub(super) fn trace(&mut self) -> u128 {
        u128::from_be_bytes(self.next_bytes()) | 1
    }

    /// Returns the id of the next span.
    pub(super) fn span(&mut self) -> u64 {
        u64::from_be_bytes(self.next_bytes()) | 1
    }

    fn next_bytes<const N: usize>(&mut self) -> [u8; N] {
        let hash = Sha256::new().chain_update(&self.seed).chain_update(self.next.to_le_bytes());
        self.next += 1;
        hash.finalize().first_chunk().copied().unwrap_or([0; N])
    }
}

impl FromStr for TraceParent {
    type Err = TraceParentError;

    /// Parses the header. Of a later version, only the known part is read.
    fn from_str(text: &str) -> Result<Self, TraceParentError> {
        let mut parts = text.trim().split('-');
        let mut number = |digits| {
            let is_digit = |b: u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
            let hex = parts.next().filter(|hex| hex.len() == digits && hex.bytes().all(is_digit));
            hex.and_then(|hex| u128::from_str_radix(hex, 16).ok()).ok_or(TraceParentError)
        };
        let (version, trace, span, flags) = (number(2)?, number(32)?, number(16)?, number(2)?);
        let is_complete = version != 0 || parts.next().is_none();
        if version == 0xff || !is_complete || trace == 0 || span == 0 {
            return Err(TraceParentError);
        }
        let span = u64::try_from(span).map_err(|_| TraceParentError)?;
        Ok(Self { trace, span, is_sampled: flags & 1 == 1 })
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { trace, span, is_sampled } = self;
        write!(f, "00-{trace:032x}-{span:016x}-{:02x}", u8::from(*is_sampled))
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
