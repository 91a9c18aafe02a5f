//! The cost of an index of a hundred thousand files, and how long a run waits for it.
//!
//! `cargo bench --bench index` prints how long it takes to index all files, to give up because there was no time for
//! all of them, and to read a stored index again. `INDEX_FILES` sets another number of files.

#![allow(clippy::expect_used, clippy::print_stdout)] // it stops when it cannot measure, and prints what it measured

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use architect::workspace::WorkspaceRoot;
use architect::workspace::index::{IndexResult, IndexSettings, WorkspaceIndex};

const ROUNDS: usize = 9;

fn main() {
    let wanted = std::env::var("INDEX_FILES").ok().and_then(|text| text.parse().ok());
    let files: usize = wanted.unwrap_or(100_000);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (workspace, cache) = (folder.path().join("w"), folder.path().join("c"));
    make(&workspace, files);
    let root = WorkspaceRoot::open(&workspace).expect("a workspace");
    let patient = IndexSettings { max_wait: Duration::from_secs(600), ..IndexSettings::default() };
    let stored = IndexSettings { cache: Some(cache), ..patient.clone() };
    println!("{files} files\n{:<28} {:>9} {:>9}   reach", "", "median", "worst");
    report("all of them", || WorkspaceIndex::build(&root, &patient).expect("an index"));
    report("as far as time allows", || {
        WorkspaceIndex::build(&root, &IndexSettings::default()).expect("an index")
    });
    WorkspaceIndex::build(&root, &stored).expect("an index");
    report("stored a while ago", || WorkspaceIndex::build(&root, &stored).expect("an index"));
}

/// Makes a workspace of packages with folders, as large projects are, and a list of ignored files in each.
fn make(workspace: &Path, files: usize) {
    for package in 0..files.div_ceil(1_000) {
        for module in 0..20 {
            let folder = workspace.join(format!("packages/p{package}/m{module}"));
            fs::create_dir_all(&folder).expect("a folder");
            for file in 0..50.min(files) {
                let ending = ["rs", "py", "md", "json", "txt"][file % 5];
                fs::write(folder.join(format!("f{file}.{ending}")), "x").expect("a file");
            }
        }
        let list = workspace.join(format!("packages/p{package}/.gitignore"));
        fs::write(list, "/target\n*.log\n!keep.log\n").expect("a file");
    }
}

fn report(name: &str, make: impl Fn() -> IndexResult) {
    make();
    let mut taken = Vec::new();
    let mut last = None;
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        let indexed = make();
        taken.push(begun.elapsed());
        last = Some((indexed.coverage, indexed.index.files));
    }
    taken.sort();
    let (median, worst) = (millis(taken[ROUNDS / 2]), millis(taken[ROUNDS - 1]));
    let (reach, files) = last.expect("a round");
    println!("{name:<28} {median:>6.1} ms {worst:>6.1} ms   {reach:?}, {files} files");
}

fn millis(span: Duration) -> f64 {
    span.as_secs_f64() * 1_000.0
}
