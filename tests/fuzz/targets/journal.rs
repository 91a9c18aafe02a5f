//! A journal: as it is, and with valid checksums for its lines, so that the code behind the checksums is reached, too.
//! The sound part is read, and is the same in each reading.
#![no_main]

use std::fs;

use architect::journal::{Durability, SessionId, SessionStore};

/// The session of the journals in the corpus.
const SESSION: &str = "01a20158-f8a4-771c-bc58-ac563a9aea05";

/// The length of a line's seal: `,"crc":"00000000"}`.
const SEAL: usize = 18;

/// Puts a checksum at the end of each line that follows from the line before.
fn sealed(text: &[u8]) -> Vec<u8> {
    let (mut out, mut crc) = (Vec::new(), 0);
    for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let body = line.get(..line.len().saturating_sub(SEAL)).unwrap_or(line);
        let mut hasher = crc32fast::Hasher::new_with_initial(crc);
        hasher.update(body);
        crc = hasher.finalize();
        out.extend_from_slice(body);
        out.extend_from_slice(format!(",\"crc\":\"{crc:08x}\"}}\n").as_bytes());
    }
    out
}

thread_local!(static FOLDER: tempfile::TempDir = architect_fuzz::folder());

libfuzzer_sys::fuzz_target!(|data: &[u8]| FOLDER.with(|folder| {
    let store = SessionStore::open(folder.path(), Durability::Os).unwrap();
    let session: SessionId = SESSION.parse().unwrap();
    let path = folder.path().join(format!("sessions/{SESSION}.jsonl"));
    for bytes in [data.to_vec(), sealed(data)] {
        fs::write(&path, &bytes).unwrap();
        let read = || {
            let mut records = 0_u64;
            let read = store.replay(session, |_, _, _| records += 1);
            read.map(|(past, end)| (past.machine, end, records)).map_err(|error| error.to_string())
        };
        let first = read();
        if let Ok((_, end, records)) = &first {
            // The header is not counted as a record.
            assert!(end.position.offset <= bytes.len() as u64 && *records <= end.position.seq);
        }
        assert!(first == read(), "it reads differently the second time");
    }
}));
