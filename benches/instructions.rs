//! Counts of instructions. Times are noise on a shared machine; instructions hardly differ from run to run.
//!
//! `cargo bench --bench instructions` counts under `valgrind`, prints a table, and fails if a count is out of bounds:
//!
//! * Each count is compared with `benches/instructions.toml`, with a tolerance of a fifth to both sides. Other releases
//!   of the compiler, the C library and the crates move counts by some percents; a regression worth a failure moves
//!   them by more. `UPDATE=1` writes the file again.
//! * A step late in a session is compared with an early one in the same run, where no compiler can make a difference. A
//!   copy of the conversation, or work for each of its entries, shows there.
//!
//! A case is run twice in a process of its own, with some iterations and with twice as many. The difference has neither
//! start-up nor set-up in it.
#![allow(clippy::unwrap_used, clippy::print_stdout)] // a benchmark may fail, and prints

use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::thread;

use architect::journal::{Durability, SessionStore};
use architect::machine::{Event, Fingerprint};
use architect::net::sse::{SseError, SseParser};
use architect::port::{Journal as _, JournalRecord};
use architect::runner::InlineExecutor;
use architect::types::{EffectId, RunTime, ToolResult, ToolStatus};

#[path = "subjects/encode.rs"]
mod encode;
#[path = "subjects/journal.rs"]
mod journal;
#[path = "subjects/step.rs"]
mod step;
#[path = "subjects/turn.rs"]
mod turn;

/// A measured case.
struct Case {
    name: String,
    /// The number of iterations in the shorter of two runs.
    times: u32,
    /// Runs the case this many times.
    run: Box<dyn Fn(u32) + Sync>,
}

/// The fraction by which a count may differ from the stored one.
const TOLERANCE: f64 = 0.2;

/// The factor by which a late step may take more than an early one.
const GROWTH: f64 = 1.3;

/// Numbers of entries in a conversation, early and late.
const EARLY: u32 = 100;
const LATE: u32 = 1_000;

fn cases() -> Vec<Case> {
    let case =
        |name: &str, times, run: Box<dyn Fn(u32) + Sync>| Case { name: name.into(), times, run };
    let mut cases = vec![
        case("machine: a turn of four steps", 200, Box::new(steps)),
        case("journal: a record of 300 bytes", 200, Box::new(records)),
        case("events: a kilobyte of a stream", 200, Box::new(stream)),
    ];
    for history in [EARLY, LATE] {
        // The run is longer by this number of turns.
        let name = format!("loop: a turn with two tools after {history}");
        cases.push(case(&name, 50, Box::new(move |times| turns(history + times))));
        for model in encode::MODELS {
            let wire = model.split('/').next().unwrap();
            let name = format!("{wire}: a request with one more step after {history}");
            cases.push(case(&name, 50, Box::new(move |times| requests(model, history, times))));
        }
    }
    cases
}

fn steps(times: u32) {
    let turn = step::TurnEvents::new();
    let mut stand = step::fresh_state();
    for _ in 0..times {
        stand = black_box(turn.advance(stand));
    }
}

fn turns(times: u32) {
    turn::TurnFixture::new().run(times, InlineExecutor::new());
}

fn requests(model: &str, history: u32, times: u32) {
    let mut talk = encode::SentConversation::new(model, history.into());
    for number in 0..times {
        talk.append(encode::exchange((history + number).into()));
    }
}

fn records(times: u32) {
    let temp = tempfile::tempdir().unwrap();
    let store = SessionStore::open(&temp.path().join("state"), Durability::Os).unwrap();
    let (mut journal, fold, outcomes) = journal::begin(&store, temp.path());
    let met = Fingerprint::of(&fold, &outcomes.effects);
    let result = ToolResult::new("call_1".into(), ToolStatus::Ok, "x".repeat(100));
    let event = Event::ToolCompleted { id: EffectId(1), result };
    for _ in 0..times {
        journal
            .append(
                RunTime(1),
                JournalRecord::Event { event: &event, fingerprint: met, timing: None },
            )
            .unwrap();
    }
}

fn stream(times: u32) {
    let event = "event: delta\ndata: {\"type\":\"delta\",\"index\":0,\"text\":\" some words of a reply\"}\n\n";
    let kilobyte: String = event.chars().cycle().take(1_024 / event.len() * event.len()).collect();
    let mut parser = SseParser::new();
    for _ in 0..times {
        let read = parser.push(black_box(kilobyte.as_bytes()), |event| -> Result<(), SseError> {
            black_box(event);
            Ok(())
        });
        read.unwrap();
    }
}

fn main() -> ExitCode {
    // The counted process is this program again; its argument names the case and the number of iterations.
    if let Some(asked) =
        std::env::args().nth(1).and_then(|arg| arg.strip_prefix("case=").map(str::to_owned))
    {
        let (index, times) = asked.split_once('x').unwrap();
        (cases()[index.parse::<usize>().unwrap()].run)(times.parse().unwrap());
        return ExitCode::SUCCESS;
    }
    let cases = cases();
    let counts = counts(&cases);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/instructions.toml");
    let wrong = compare(&counts, &path);
    for wrong in &wrong {
        println!("{wrong}");
    }
    if wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Counts all cases, on as many processors as there are.
fn counts(cases: &[Case]) -> BTreeMap<&str, u64> {
    let next = std::sync::atomic::AtomicUsize::new(0);
    let counted = std::sync::Mutex::new(BTreeMap::new());
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().unwrap().get() {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    let Some(case) = cases.get(index) else { break };
                    let (once, twice) = (count(index, case.times), count(index, 2 * case.times));
                    let each = twice.saturating_sub(once) / u64::from(case.times);
                    counted.lock().unwrap().insert(&*case.name, each);
                }
            });
        }
    });
    counted.into_inner().unwrap()
}

/// Returns the number of instructions of a process that runs a case this many times.
fn count(index: usize, times: u32) -> u64 {
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]);
    let program: PathBuf = std::env::current_exe().unwrap();
    let output = valgrind.arg(program).arg(format!("case={index}x{times}")).output();
    let output = output.unwrap_or_else(|error| panic!("valgrind is needed: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    // The first of its counts, `==1== I refs: 1,234`, has more or fewer spaces in it from release to release.
    let line = errors.lines().find_map(|line| line.split_once("refs:")).map(|(_, count)| count);
    let count = line.unwrap_or_else(|| panic!("valgrind prints no count: {errors}"));
    count.trim().replace(',', "").parse().unwrap()
}

/// Prints the counts, and returns the problems with them.
fn compare(counts: &BTreeMap<&str, u64>, path: &Path) -> Vec<String> {
    let mut wrong = Vec::new();
    let stored: BTreeMap<String, u64> =
        toml::from_str(&std::fs::read_to_string(path).unwrap_or_default()).unwrap();
    let is_renewed = std::env::var_os("UPDATE").is_some();
    println!("{:<64} {:>10} {:>10} {:>8}", "instructions", "now", "before", "change");
    for (name, &now) in counts {
        let before = stored.get(*name).copied();
        let change = before.map_or(f64::NAN, |before| ratio(now, before) - 1.0);
        println!("{name:<64} {now:>10} {:>10} {:>+7.1}%", before.unwrap_or(0), change * 100.0);
        if !is_renewed && !(-TOLERANCE..=TOLERANCE).contains(&change) {
            wrong.push(format!("{name}: {change:+.2} is too much; UPDATE=1 if it is wanted"));
        }
    }
    if is_renewed {
        std::fs::write(path, toml::to_string(counts).unwrap()).unwrap();
    } else {
        let gone = stored.keys().filter(|name| !counts.contains_key(name.as_str()));
        wrong.extend(gone.map(|name| format!("{name}: no longer counted")));
    }
    println!("\n{:<64} {:>10}", "late beside early", "ratio");
    for (name, &early) in counts {
        let Some(what) = name.strip_suffix(&format!(" after {EARLY}")) else { continue };
        let growth = ratio(counts[&*format!("{what} after {LATE}")], early);
        println!("{what:<64} {growth:>10.2}");
        if growth > GROWTH {
            wrong.push(format!("{what}: it grows with the conversation, {growth:.2} times"));
        }
    }
    wrong
}

#[allow(clippy::cast_precision_loss)] // nothing here takes that many instructions
fn ratio(a: u64, b: u64) -> f64 {
    a as f64 / b as f64
}
