//! The cost of a search, compared with ripgrep's own program.
//!
//! `cargo bench --bench search` makes a workspace of a hundred thousand files of about a kilobyte. For each question it
//! prints the median time of the tool and of `rg` with the same options, if `rg` is on the `PATH` (`cargo install
//! ripgrep --root DIR`). Both take turns, nine times, on a warm page cache, and use as many threads as there are
//! processors. They differ in their output: the tool returns a text of at most `max_results` matches in the order of
//! the files' names, and counts the rest; `rg` prints everything to a pipe that is read to its end.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)] // a program for developers

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use architect::exec::{SandboxPolicy, Supervisor};
use architect::policy::ConfirmMode;
use architect::port::{AuthorizationOutcome, Toolbox};
use architect::tools::{ToolRegistry, ToolSettings, standard_tools};
use architect::types::ToolCall;
use architect::workspace::WorkspaceRoot;

const FILES: usize = 100_000;
const ROUNDS: usize = 9;

/// One question, in the forms of the tool and of `rg`.
struct SearchQuery {
    name: &'static str,
    tool: &'static str,
    arguments: &'static str,
    rg: &'static [&'static str],
}

const QUERIES: [SearchQuery; 8] = [
    SearchQuery {
        name: "a word that is nowhere",
        tool: "search_code",
        arguments: r#"{"pattern": "nowhere"}"#,
        rg: &["-n", "-C2", "-e", "nowhere"],
    },
    SearchQuery {
        name: "a rare word",
        tool: "search_code",
        arguments: r#"{"pattern": "needle_"}"#,
        rg: &["-n", "-C2", "-e", "needle_"],
    },
    SearchQuery {
        name: "a word in every line",
        tool: "search_code",
        arguments: r#"{"pattern": "call"}"#,
        rg: &["-n", "-C2", "-e", "call"],
    },
    SearchQuery {
        name: "an expression",
        tool: "search_code",
        arguments: r#"{"pattern": "needle_[0-9]+$"}"#,
        rg: &["-n", "-C2", "-e", "needle_[0-9]+$"],
    },
    SearchQuery {
        name: "no literal in it",
        tool: "search_code",
        arguments: r#"{"pattern": "[a-f]{4}_[0-9]+"}"#,
        rg: &["-n", "-C2", "-e", "[a-f]{4}_[0-9]+"],
    },
    SearchQuery {
        name: "in either case",
        tool: "search_code",
        arguments: r#"{"pattern": "NEEDLE_7", "case_sensitive": false}"#,
        rg: &["-n", "-C2", "-i", "-e", "NEEDLE_7"],
    },
    SearchQuery {
        name: "in some files alone",
        tool: "search_code",
        arguments: r#"{"pattern": "needle", "file_pattern": "d1*/**/f*00.rs"}"#,
        rg: &["-n", "-C2", "-g", "d1*/**/f*00.rs", "-e", "needle"],
    },
    SearchQuery {
        name: "byte by byte",
        tool: "grep",
        arguments: r#"{"text": "needle_5"}"#,
        rg: &["-n", "-F", "-e", "needle_5"],
    },
];

#[allow(dead_code)] // tests use more of it
#[path = "../tests/kit/effect.rs"]
mod effect;

fn main() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let workspace = folder.path();
    fill(workspace);
    let settings = ToolSettings { mode: ConfirmMode::Yolo, ..ToolSettings::default() };
    let root = WorkspaceRoot::open(workspace).expect("a workspace");
    let supervisor = Supervisor::in_process(SandboxPolicy::off(workspace), Vec::new());
    let tools = ToolRegistry::new(standard_tools(&root, &supervisor, &settings), settings);
    println!("{FILES} files\n{:<28} {:>10} {:>10} {:>8}", "question", "tool", "rg", "ratio");
    for question in &QUERIES {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            ours.push(time(|| search(&tools, question)));
            theirs.extend(timed_rg(workspace, question));
        }
        let (ours, theirs) = (median(&mut ours), median(&mut theirs));
        let ratio = match (ours, theirs) {
            (Some(ours), Some(theirs)) => {
                format!("{:.2}", ours.as_secs_f64() / theirs.as_secs_f64())
            }
            _ => "-".to_owned(),
        };
        println!("{:<28} {:>10} {:>10} {ratio:>8}", question.name, millis(ours), millis(theirs));
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

fn search(tools: &ToolRegistry, question: &SearchQuery) {
    let call = ToolCall::new("1".into(), question.tool, question.arguments);
    let scope = effect::scope();
    let AuthorizationOutcome::Approved { call: job, .. } = tools.prepare(&call).authorize(&scope)
    else {
        panic!("not cleared")
    };
    assert!(job(&scope).is_ok());
}

/// Returns how long `rg` takes; `None` if it isn't installed.
fn timed_rg(workspace: &Path, question: &SearchQuery) -> Option<Duration> {
    let mut rg = Command::new("rg");
    rg.args(["--hidden", "--no-require-git", "--no-ignore-global", "--no-config", "--no-mmap"]);
    rg.args(["-g", "!.git"]).args(question.rg).arg(".");
    rg.current_dir(workspace).stdin(Stdio::null()).stdout(Stdio::piped());
    let begun = Instant::now();
    let mut running = rg.spawn().ok()?;
    // Its output is read, as the output of the tool is.
    std::io::copy(running.stdout.as_mut()?, &mut std::io::sink()).ok()?;
    running.wait().ok()?;
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
