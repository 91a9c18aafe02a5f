//! What recording and restoring the state of a hundred thousand files costs.
//!
//! `cargo bench --bench checkpoints` prints how long the walk of the index takes, a first record, a record with 10 changed
//! files, one without any change, and a restore of 10 files. `INDEX_FILES` sets another number of files.

#![allow(clippy::expect_used, clippy::print_stdout)] // it stops when it cannot measure, and prints what it measured

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use architect::model::Durability;
use architect::port::CancellationToken;
use architect::workspace::WorkspaceRoot;
use architect::workspace::checkpoint::{
    ContentStore, ForeignChanges, PendingRestore, Restorer, ScanOptions, StatCache,
    WorkspaceScanner,
};
use architect::workspace::index::{IndexSettings, WorkspaceIndex};

const ROUNDS: usize = 9;
const CHANGED: usize = 10;

fn main() {
    let wanted = std::env::var("INDEX_FILES").ok().and_then(|text| text.parse().ok());
    let files: usize = wanted.unwrap_or(100_000);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let workspace = folder.path().join("w");
    make(&workspace, files);
    let root = WorkspaceRoot::open(&workspace).expect("a workspace");
    println!("{files} files, {CHANGED} changed\n{:<34} {:>9} {:>9}", "", "median", "worst");
    let patient = IndexSettings { max_wait: Duration::from_secs(600), ..IndexSettings::default() };
    report("walk of the index", ROUNDS, |_| {
        let begun = Instant::now();
        WorkspaceIndex::build(&root, &patient).expect("an index");
        begun.elapsed()
    });
    let store = |name: &str| {
        let folder = folder.path().join(name);
        ContentStore::open(folder, "own", &BTreeMap::new(), Durability::Full).expect("a store")
    };
    let none = CancellationToken::new();
    report("first record", 3, |round| {
        let mut store = store(&format!("first-{round}"));
        let mut scanner = WorkspaceScanner::new(&root, ScanOptions::default()).expect("a scanner");
        let begun = Instant::now();
        scanner.scan(&store, &none).expect("a state");
        store.commit().expect("a commit");
        begun.elapsed()
    });
    let mut contents = store("checkpoints");
    let mut scanner = WorkspaceScanner::new(&root, ScanOptions::default()).expect("a scanner");
    let first = scanner.scan(&contents, &none).expect("a state").tree;
    let lengths = contents.commit().expect("a commit");
    let options = ScanOptions::default();
    let cache = StatCache::new(folder.path(), &workspace, &options);
    report("storing what is known of the files", ROUNDS, |_| {
        let begun = Instant::now();
        cache.save(&scanner, &contents, &lengths);
        begun.elapsed()
    });
    report("first record of another session", ROUNDS, |round| {
        let mut other = store(&format!("other-{round}"));
        let begun = Instant::now();
        let mut scanner = WorkspaceScanner::new(&root, options.clone()).expect("a scanner");
        cache.load(&mut scanner, &mut other);
        scanner.scan(&other, &none).expect("a state");
        other.commit().expect("a commit");
        begun.elapsed()
    });
    report("record without a change", ROUNDS, |_| {
        let begun = Instant::now();
        scanner.scan(&contents, &none).expect("a state");
        contents.commit().expect("a commit");
        begun.elapsed()
    });
    report("record of the changed files", ROUNDS, |round| {
        change(&workspace, round);
        let begun = Instant::now();
        scanner.scan(&contents, &none).expect("a state");
        contents.commit().expect("a commit");
        begun.elapsed()
    });
    report("restore of the changed files", ROUNDS, |round| {
        change(&workspace, round + ROUNDS);
        let now = scanner.scan(&contents, &none).expect("a state").tree;
        let begun = Instant::now();
        let plan =
            contents.plan_restore(&now, &now, &first, ForeignChanges::Refuse).expect("a plan");
        contents.commit().expect("a commit");
        let name = PendingRestore::staging_name();
        let mut restorer = Restorer::new(&mut scanner, &contents, Durability::Full, &name);
        restorer.restore(&now, &plan.result).expect("a restore");
        begun.elapsed()
    });
}

/// Makes a workspace of packages with folders, as large projects are.
fn make(workspace: &Path, files: usize) {
    for package in 0..files.div_ceil(1_000) {
        for module in 0..20 {
            let folder = workspace.join(format!("packages/p{package}/m{module}"));
            fs::create_dir_all(&folder).expect("a folder");
            for file in 0..50.min(files) {
                let text = format!("{package} {module} {file}\n").repeat(20);
                fs::write(folder.join(format!("f{file}.rs")), text).expect("a file");
            }
        }
    }
}

fn change(workspace: &Path, round: usize) {
    for module in 0..CHANGED {
        let path = workspace.join(format!("packages/p0/m{module}/f0.rs"));
        fs::write(path, format!("round {round}\n")).expect("a file");
    }
}

fn report(name: &str, rounds: usize, measure: impl FnMut(usize) -> Duration) {
    let mut taken: Vec<Duration> = (0..rounds).map(measure).collect();
    taken.sort_unstable();
    let millis = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1_000.0);
    println!(
        "{name:<34} {:>9} {:>9}",
        millis(taken[taken.len() / 2]),
        millis(taken[taken.len() - 1])
    );
}
