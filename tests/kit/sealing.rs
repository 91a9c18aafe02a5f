//! Journals with other records: their checksums, and the hashes in them.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

/// Returns the SHA-256 of a text, in hexadecimal.
pub(crate) fn sha256(text: &str) -> String {
    architect::types::hex(&Sha256::digest(text))
}

/// Returns a journal with new checksums.
pub(crate) fn resealed(text: &str) -> String {
    sealed(text.lines().map(str::to_owned), false)
}

/// Returns a journal with new checksums, and new hashes of the records before a record.
pub(crate) fn rehashed(text: &str) -> String {
    sealed(text.lines().map(str::to_owned), true)
}

/// Returns a journal of these lines, numbered from zero, with new checksums.
pub(crate) fn renumbered(lines: &[&str]) -> String {
    let number = |(seq, line): (usize, &&str)| {
        let (_, rest) = line.split_once(',').unwrap();
        format!("{{\"seq\":{seq},{rest}")
    };
    sealed(lines.iter().enumerate().map(number), false)
}

fn sealed(lines: impl Iterator<Item = String>, with_hashes: bool) -> String {
    let (mut crc, mut sealed) = (0, String::new());
    for line in lines {
        let (body, _) = line.rsplit_once(",\"crc\":").unwrap();
        let mut body = body.to_owned();
        if let Some((start, rest)) = body.split_once(",\"chain\":\"").filter(|_| with_hashes) {
            body = format!("{start},\"chain\":\"{}{}", sha256(&sealed), &rest[64..]);
        }
        let mut hasher = crc32fast::Hasher::new_with_initial(crc);
        hasher.update(body.as_bytes());
        crc = hasher.finalize();
        writeln!(sealed, "{body},\"crc\":\"{crc:08x}\"}}").unwrap();
    }
    sealed
}
