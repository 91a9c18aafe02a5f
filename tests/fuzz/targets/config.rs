//! A configuration is read, or refused with its problems.
#![no_main]

use std::fs;

use architect::config::{ConfigSources, load};

thread_local!(static FOLDER: tempfile::TempDir = architect_fuzz::folder());

libfuzzer_sys::fuzz_target!(|data: &[u8]| FOLDER.with(|folder| {
    let path = folder.path().join("config.toml");
    fs::write(&path, data).unwrap();
    let cwd = folder.path().to_owned();
    if let Err(error) = load(&ConfigSources { cwd, file: Some(path), ..ConfigSources::default() }) {
        assert!(!error.problems.is_empty());
        assert!(error.problems.iter().all(|problem| !problem.to_string().is_empty()));
    }
}));
