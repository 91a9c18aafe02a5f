//! Computes the digests of requests by hashing only new bytes.

use sha2::{Digest as _, Sha256};

use super::conversation::EncodedPrefix;
use crate::port::RequestDigest;
use crate::types::Sha256Digest;

/// Hashes requests with the same head. It keeps the hash of the latest conversation, which the next one extends.
#[derive(Debug)]
pub(crate) struct RequestHasher {
    hasher: Sha256,
    /// The number of hashed bytes of the conversation; with `rewrites`, it identifies the hashed prefix.
    end: usize,
    rewrites: u64,
    #[cfg(test)]
    hashed_bytes: u64,
}

impl RequestHasher {
    /// Returns the hasher for requests with this head.
    pub(crate) fn new(head: &[u8]) -> Self {
        Self {
            hasher: Sha256::new_with_prefix(head),
            end: 0,
            rewrites: 0,
            #[cfg(test)]
            hashed_bytes: 0,
        }
    }

    /// Returns the digest of a request: its head, conversation and tail.
    pub(crate) fn digest(
        &mut self,
        head: &[u8],
        conversation: &EncodedPrefix,
        tail: &[u8],
    ) -> RequestDigest {
        let EncodedPrefix { bytes, end, rewrites, .. } = conversation;
        if self.rewrites != *rewrites || self.end > *end {
            self.hasher = Sha256::new_with_prefix(head);
            (self.end, self.rewrites) = (0, *rewrites);
        }
        let new = &bytes[self.end..*end];
        self.hasher.update(new);
        self.end = *end;
        #[cfg(test)]
        {
            self.hashed_bytes += (new.len() + tail.len()) as u64;
        }
        RequestDigest {
            sha256: Sha256Digest(self.hasher.clone().chain_update(tail).finalize().into()),
            bytes: (head.len() + end + tail.len()) as u64,
            is_altered: false,
        }
    }

    /// Returns the bytes of conversations and tails hashed so far, for tests of the cost of a step.
    #[cfg(test)]
    pub(crate) fn hashed_bytes(&self) -> u64 {
        self.hashed_bytes
    }
}
