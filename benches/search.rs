//! What a search costs beside ripgrep's own program.
//!
//! `cargo bench --bench search` makes a workspace of a hundred thousand files and prints, for each pattern, the median
//! time of the tool and of `rg` with the same options, where that is on the `PATH`. Both take turns.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)] // a program for developers

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use architect::exec::{Policy, Supervisor};
use architect::model::{Span, ToolCall};
use architect::port::{Cancel, Scope, Sleep, Toolbox, Vetted};
use architect::tools::permission::ConfirmMode;
use architect::tools::{Registry, Settings, standard};
use architect::workspace::Root;

const FILES: usize = 100_000;
const ROUNDS: usize = 9;

struct NoSleep;

impl Sleep for NoSleep {
    fn sleep(&self, _: Span, cancel: &Cancel) -> bool {
        cancel.is_cancelled()
    }
}

fn main() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let workspace = folder.path();
    fill(workspace);
    let settings = Settings { mode: ConfirmMode::Yolo, ..Settings::default() };
    let root = Root::open(workspace).expect("a workspace");
    let supervisor = Supervisor::in_process(Policy::off(workspace), Vec::new());
    let tools = Registry::new(standard(&root, &supervisor, &settings), settings);
    println!("{FILES} files\n{:<28} {:>10} {:>10} {:>8}", "pattern", "tool", "rg", "ratio");
    for pattern in ["nowhere", "needle_[0-9]+", "value"] {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            ours.push(time(|| search(&tools, pattern)));
            theirs.extend(timed_rg(workspace, pattern));
        }
        let (ours, theirs) = (median(&mut ours), median(&mut theirs));
        let ratio = match (ours, theirs) {
            (Some(ours), Some(theirs)) => {
                format!("{:.2}", ours.as_secs_f64() / theirs.as_secs_f64())
            }
            _ => "-".to_owned(),
        };
        println!("{pattern:<28} {:>10} {:>10} {ratio:>8}", millis(ours), millis(theirs));
    }
}

/// Makes files of about a kilobyte; one in a thousand has a needle.
fn fill(workspace: &Path) {
    for number in 0..FILES {
        let folder = workspace.join(format!("d{}/e{}", number / 2_000, number / 100 % 20));
        if number % 100 == 0 {
            std::fs::create_dir_all(&folder).expect("a folder");
        }
        let mut text = String::new();
        for line in 0..20 {
            text += &format!("let name_{line} = call({number}, \"some more text in it\");\n");
        }
        if number % 1_000 == 0 {
            text += &format!("needle_{number}\nvalue\n");
        }
        std::fs::write(folder.join(format!("f{number}.rs")), text).expect("a file");
    }
}

fn search(tools: &Registry, pattern: &str) {
    let arguments = format!("{{\"pattern\": \"{pattern}\"}}");
    let call = ToolCall::new("1".into(), "search_code", &arguments);
    let scope = Scope::new(Cancel::new(), Arc::new(NoSleep));
    let Vetted::Cleared { job, .. } = tools.vet(&call, &scope) else { panic!("not cleared") };
    assert!(job.run(&scope).is_ok());
}

/// Returns how long `rg` takes; none where there is none.
fn timed_rg(workspace: &Path, pattern: &str) -> Option<Duration> {
    let mut rg = Command::new("rg");
    rg.args(["--hidden", "--no-require-git", "--no-ignore-global", "--no-config", "--no-mmap"]);
    rg.args(["-n", "-C", "2", "-g", "!.git", "-e", pattern, "."]);
    rg.current_dir(workspace).stdin(Stdio::null()).stdout(Stdio::null());
    let begun = Instant::now();
    rg.status().ok()?;
    Some(begun.elapsed())
}

fn time(act: impl FnOnce()) -> Duration {
    let begun = Instant::now();
    act();
    begun.elapsed()
}

fn median(taken: &mut [Duration]) -> Option<Duration> {
    taken.sort();
    taken.get(taken.len() / 2).copied()
}

fn millis(duration: Option<Duration>) -> String {
    duration.map_or("-".to_owned(), |taken| format!("{:.1} ms", taken.as_secs_f64() * 1_000.0))
}
