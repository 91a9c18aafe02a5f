//! The cost of recording and restoring the state of a hundred thousand files.
//!
//! `cargo bench --bench checkpoints` prints how long the walk of the index takes, a first record, a record with 10
//! changed files, one without any change, and a restore of 10 files, with the time of all processors. Compared
//! measurements take turns, since the machine may be busy. `INDEX_FILES` sets another number of files.

#![allow(clippy::expect_used, clippy::print_stdout)] // it stops when it cannot measure, and prints what it measured

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use architect::port::CancellationToken;
use architect::types::Durability;
use architect::workspace::WorkspaceRoot;
use architect::workspace::checkpoint::{
    ChangeAuthor, ChangeInterval, ContentStore, ForeignChanges, PendingRestore, Restorer,
    ScanOptions, StatCache, WorkspaceScanner,
};
use architect::workspace::index::{IndexSettings, WorkspaceIndex};
use rustix::time::{ClockId, clock_gettime};

const ROUNDS: usize = 9;
const CHANGED: usize = 10;

fn main() {
    let wanted = std::env::var("INDEX_FILES").ok().and_then(|text| text.parse().ok());
    let files: usize = wanted.unwrap_or(100_000);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let workspace = folder.path().join("w");
    make(&workspace, files);
    let root = WorkspaceRoot::open(&workspace).expect("a workspace");
    println!(
        "{files} files, {CHANGED} changed\n{:<36} {:>9} {:>9} {:>9}",
        "", "median", "best", "cpu"
    );
    let patient = IndexSettings { max_wait: Duration::from_secs(600), ..IndexSettings::default() };
    let store = |name: &str| {
        let folder = folder.path().join(name);
        ContentStore::open(folder, name, &BTreeMap::new(), Durability::Full).expect("a store")
    };
    let none = CancellationToken::new();
    report("first record", 3, |round| {
        let mut store = store(&format!("first-{round}"));
        let mut scanner = WorkspaceScanner::new(&root, ScanOptions::default()).expect("a scanner");
        Taken::of(|| {
            scanner.scan(&store, &none).expect("a state");
            store.commit().expect("a commit");
        })
    });
    let mut contents = store("checkpoints");
    let mut scanner = WorkspaceScanner::new(&root, ScanOptions::default()).expect("a scanner");
    let first = scanner.scan(&contents, &none).expect("a state").tree;
    let lengths = contents.commit().expect("a commit");
    let options = ScanOptions::default();
    let cache = StatCache::new(folder.path(), &workspace, &options);
    report("storing what is known of the files", ROUNDS, |_| {
        Taken::of(|| cache.save(&scanner, &contents, &lengths))
    });
    report("first record of another session", ROUNDS, |round| {
        let mut other = store(&format!("other-{round}"));
        Taken::of(|| {
            let mut scanner = WorkspaceScanner::new(&root, options.clone()).expect("a scanner");
            cache.load(&mut scanner, &mut other);
            scanner.scan(&other, &none).expect("a state");
            other.commit().expect("a commit");
        })
    });
    let (mut walks, mut unchanged, mut changed) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        walks.push(Taken::of(|| drop(WorkspaceIndex::build(&root, &patient).expect("an index"))));
        for (taken, is_changed) in [(&mut unchanged, false), (&mut changed, true)] {
            if is_changed {
                change(&workspace, round);
            }
            taken.push(Taken::of(|| {
                scanner.scan(&contents, &none).expect("a state");
                contents.commit().expect("a commit");
            }));
        }
    }
    let walk = print("walk of the index", &mut walks);
    print("record without a change", &mut unchanged);
    let record = print("record of the changed files", &mut changed);
    println!("the record beyond the walk: {:+.1} ms", record - walk);
    report("restore of the changed files", ROUNDS, |round| {
        change(&workspace, round + ROUNDS);
        let now = scanner.scan(&contents, &none).expect("a state").tree;
        Taken::of(|| {
            let author = ChangeAuthor::Session;
            let interval = ChangeInterval { from: first, to: now, author };
            let plan =
                contents.plan_restore(&now, &[interval], ForeignChanges::Refuse).expect("a plan");
            contents.commit().expect("a commit");
            let name = PendingRestore::staging_name();
            let mut restorer = Restorer::new(&mut scanner, &contents, Durability::Full, &name);
            restorer.restore(&now, &plan.result).expect("a restore");
        })
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

/// The duration of a measured operation.
struct Taken {
    time: Duration,
    /// The time of all processors, in this program and in the kernel for it.
    cpu: Duration,
}

impl Taken {
    fn of(work: impl FnOnce()) -> Self {
        let (begun, before) = (Instant::now(), cpu_time());
        work();
        Self { time: begun.elapsed(), cpu: cpu_time().saturating_sub(before) }
    }
}

fn cpu_time() -> Duration {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(spent).unwrap_or_default()
}

fn report(name: &str, rounds: usize, measure: impl FnMut(usize) -> Taken) {
    print(name, &mut (0..rounds).map(measure).collect::<Vec<_>>());
}

/// Prints a row, and returns the median in milliseconds.
fn print(name: &str, taken: &mut [Taken]) -> f64 {
    let millis = |time: Duration| time.as_secs_f64() * 1_000.0;
    taken.sort_unstable_by_key(|taken| taken.cpu);
    let cpu = millis(taken[taken.len() / 2].cpu);
    taken.sort_unstable_by_key(|taken| taken.time);
    let (best, median) = (millis(taken[0].time), millis(taken[taken.len() / 2].time));
    println!("{name:<36} {median:>6.1} ms {best:>6.1} ms {cpu:>6.1} ms");
    median
}
