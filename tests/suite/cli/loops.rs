//! `architect loop`: a task that is repeated until its checks pass, or to improve a number.

use std::fs;
use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::kit::cli::{CliFixture, CommandResult, wait_for_exit, wait_until};

/// A script that appends a line to `ran`, and answers after that.
const APPEND: &str = "price = { input = 1.0, output = 10.0 }\nmax_output = 100\n\
     [[turn]]\nusage = { input = 1000, output = 100 }\n\
     calls = [{ name = \"run_command\", arguments = { command = \"echo ran >> ran\" } }]\n\
     [[turn]]\ntext = \"I appended a line.\"\ndelay_ms = DELAY\nusage = { input = 1000, output = 100 }\n\
     [[turn]]\ntext = \"I was cut off.\"\n[[turn]]\ntext = \"I was cut off.\"\n";

/// Passes once the script has run three times.
const CHECK: &str = "test $(wc -l < ran) -ge 3";

/// The cost of an iteration, in dollars.
const COST: f64 = 0.004;

/// A delay that exceeds every test, in milliseconds.
const LONG: u64 = 600_000;

const MODEL: [&str; 2] = ["--model", "scripted/script.toml"];

struct Loop {
    cli: CliFixture,
}

impl Loop {
    fn new(script: &str) -> Self {
        let cli = CliFixture::new();
        cli.write("script.toml", script);
        cli.write("ran", "");
        Self { cli }
    }

    fn appending(delay_ms: u64) -> Self {
        Self::new(&APPEND.replace("DELAY", &delay_ms.to_string()))
    }

    fn args<'a>(args: &[&'a str]) -> Vec<&'a str> {
        let common = ["loop", "Append lines.", "--mode", "yolo", "--out", "out"];
        let model = if args.contains(&"--model") { &[][..] } else { &MODEL };
        [&common[..], model, args].concat()
    }

    fn begin(&self, args: &[&str]) -> Child {
        self.cli.command(&Self::args(args)).spawn().unwrap()
    }

    fn run(&self, args: &[&str]) -> CommandResult {
        wait_for_exit(self.begin(args))
    }

    /// Runs the loop with the usual check.
    fn run_checked(&self, args: &[&str]) -> CommandResult {
        self.run(&[&["--check", CHECK, "--json"], args].concat())
    }

    /// Returns how many lines the journal has.
    fn journal_lines(&self) -> usize {
        let text = fs::read_to_string(self.cli.path("out/workflow.jsonl")).unwrap_or_default();
        text.matches('\n').count()
    }

    /// Returns how often the script has run its command.
    fn runs(&self) -> usize {
        self.cli.read("ran").lines().count()
    }

    /// Returns the messages that the sessions began with, in their order.
    fn messages(&self) -> Vec<String> {
        let folder = self.cli.path("out/sessions");
        let mut files: Vec<PathBuf> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.retain(|path| path.extension().is_some_and(|end| end == "jsonl"));
        files.sort();
        let first = |path: &PathBuf| {
            fs::read_to_string(path).unwrap().lines().next().unwrap().replace("\\n", "\n")
        };
        files.iter().map(first).collect()
    }
}

fn stop(child: Child, signal: Signal) -> CommandResult {
    kill_process(Pid::from_child(&child), signal).unwrap();
    wait_for_exit(child)
}

fn iterations(result: &CommandResult) -> Vec<Value> {
    result.json()["workflow"]["iterations"].as_array().unwrap().clone()
}

fn end(result: &CommandResult) -> String {
    result.json()["workflow"]["end"].as_str().unwrap().to_owned()
}

#[test]
fn a_loop_ends_when_its_check_passes() {
    let repeated = Loop::appending(0);
    let ran = repeated.run_checked(&[]);
    assert_eq!(ran.outcome(), (0, "llm_done".to_owned(), "success".to_owned()), "{}", ran.err);
    assert_eq!((repeated.runs(), iterations(&ran).len()), (3, 3));
    assert_eq!(ran.json()["output"], "I appended a line.");
    assert!((ran.json()["cost"].as_f64().unwrap() - 3.0 * COST).abs() < 1e-9, "{}", ran.out);
    // The message has the output of the check, and the answer of the iteration before.
    let messages = repeated.messages();
    assert_eq!(messages.len(), 3);
    assert!(messages.iter().all(|text| text.contains("Append lines.")), "{messages:#?}");
    assert!(messages[0].contains("fails:") && messages[0].contains("exit code 1"));
    assert!(!messages[0].contains("I appended a line."), "{}", messages[0]);
    assert!(messages[2].contains("Iteration 3 of at most 10"), "{}", messages[2]);
    assert!(messages[2].contains("I appended a line."), "{}", messages[2]);
    // The same command finds the loop done, and continues it with a check that fails again.
    let again = repeated.run_checked(&[]);
    assert_eq!((again.code, repeated.runs()), (0, 3), "{}", again.err);
    repeated.cli.write("ran", "ran\nran\n");
    let again = repeated.run_checked(&[]);
    assert_eq!((again.code, iterations(&again).len()), (0, 4), "{}", again.err);
}

#[test]
fn nothing_is_run_if_the_check_passes_already() {
    let repeated = Loop::appending(0);
    let ran = repeated.run(&["--check", "true", "--check", "test -e ran"]);
    assert_eq!((ran.code, repeated.runs()), (0, 0), "{}", ran.err);
    assert_eq!(ran.out, "the checks pass already: there is nothing to do\n");
}

#[test]
fn a_loop_ends_after_its_iterations_and_continues_with_more() {
    let repeated = Loop::appending(0);
    let ran = repeated.run_checked(&["--iterations", "2"]);
    assert_eq!(ran.outcome(), (2, "checks_failed".to_owned(), "partial".to_owned()));
    assert_eq!((repeated.runs(), end(&ran).as_str()), (2, "iterations_used"));
    let again = repeated.run_checked(&["--iterations", "2"]);
    assert_eq!((again.code, repeated.runs()), (2, 2), "{}", again.err);
    let more = repeated.run_checked(&["--iterations", "5"]);
    assert_eq!((more.code, repeated.runs()), (0, 3), "{}", more.err);
    let none = Loop::appending(0).run_checked(&["--iterations", "0"]);
    assert_eq!((none.code, iterations(&none).len()), (2, 0), "{}", none.err);
}

#[test]
fn a_loop_ends_when_two_iterations_change_nothing() {
    let repeated = Loop::new("[[turn]]\ntext = \"I don't know how.\"\n");
    let ran = repeated.run_checked(&[]);
    assert_eq!(ran.outcome(), (2, "checks_failed".to_owned(), "partial".to_owned()));
    assert_eq!((iterations(&ran).len(), end(&ran).as_str()), (2, "nothing_changed"));
    assert_eq!(iterations(&ran)[0]["changed"], false);
    // The same command tries again.
    let again = repeated.run_checked(&[]);
    assert_eq!((again.code, iterations(&again).len()), (2, 4), "{}", again.err);
}

#[test]
fn the_budget_is_that_of_the_whole_loop() {
    let repeated = Loop::appending(0);
    let six = ["--check", "test $(wc -l < ran) -ge 6", "--json", "--budget"];
    let ran = repeated.run(&[&six[..], &["0.02"]].concat());
    assert_eq!(ran.outcome(), (2, "budget_exceeded".to_owned(), "partial".to_owned()));
    let spent = ran.json()["cost"].as_f64().unwrap();
    assert!((COST..=0.02).contains(&spent), "{}", ran.out);
    let again = repeated.run(&[&six[..], &["0.02"]].concat());
    assert_eq!(again.code, 2, "{}", again.err);
    assert!(again.json()["cost"].as_f64().unwrap() <= 0.02, "{}", again.out);
    let more = repeated.run(&[&six[..], &["1"]].concat());
    assert_eq!((more.code, repeated.runs()), (0, 6), "{}", more.err);
    let none = Loop::appending(0);
    let ran = none.run_checked(&["--max-tokens", "0"]);
    assert_eq!((ran.code, none.runs(), iterations(&ran).len()), (2, 0, 0), "{}", ran.err);
}

/// A resume would only pay for a final summary.
#[test]
fn a_loop_without_budget_calls_no_model_again() {
    let repeated = Loop::appending(0);
    let args = ["--check", "false", "--json", "--budget"];
    let first = repeated.run(&[&args[..], &["0.0075"]].concat());
    assert_eq!(end(&first), "budget", "{}", first.err);
    assert_eq!(first.json()["stop_reason"], "budget_exceeded");
    for _ in 0..2 {
        let again = repeated.run(&[&args[..], &["0.0075"]].concat());
        assert_eq!((again.code, end(&again).as_str()), (2, "budget"), "{}", again.err);
        assert_eq!(again.json()["cost"], first.json()["cost"]);
        assert_eq!(again.json()["llm_calls"], first.json()["llm_calls"]);
        assert!(again.err.contains("the budget is used"), "{}", again.err);
    }
    let more = repeated.run(&[&args[..], &["0.02"]].concat());
    assert!(more.json()["llm_calls"].as_u64() > first.json()["llm_calls"].as_u64());
}

#[test]
fn the_time_is_that_of_the_whole_loop() {
    let repeated = Loop::appending(LONG);
    let begun = Instant::now();
    let ran = repeated.run_checked(&["--timeout", "2"]);
    assert_eq!(ran.outcome(), (2, "timeout".to_owned(), "partial".to_owned()), "{}", ran.err);
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    repeated.cli.write("script.toml", &APPEND.replace("DELAY", "0"));
    let again = repeated.run_checked(&[]);
    assert_eq!((again.code, repeated.runs()), (0, 3), "{}", again.err);
    let slow = Loop::appending(0);
    let ran = slow.run(&["--check", "sleep 600", "--timeout", "1", "--json"]);
    assert_eq!(ran.outcome(), (2, "timeout".to_owned(), "partial".to_owned()), "{}", ran.err);
}

#[test]
fn an_interrupted_loop_continues_inside_its_iteration() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let repeated = Loop::appending(LONG);
        let child = repeated.begin(&["--check", CHECK, "--json"]);
        wait_until("an iteration runs", || repeated.runs() > 0);
        let ran = stop(child, signal);
        assert_eq!(ran.outcome(), (code, "user_interrupt".to_owned(), "partial".to_owned()));
        repeated.cli.write("script.toml", &APPEND.replace("DELAY", "0"));
        let again = repeated.run_checked(&[]);
        assert_eq!((again.code, repeated.runs()), (0, 3), "{}", again.err);
        assert_eq!(iterations(&again).len(), 3);
        assert!(again.err.contains("iteration resumed 1 of 10"), "{}", again.err);
    }
}

/// After a kill at any moment, no iteration and no command runs twice.
#[test]
fn a_killed_loop_continues_where_it_was() {
    for lines in 1..=10 {
        let repeated = Loop::appending(40);
        let child = repeated.begin(&["--check", CHECK, "--json"]);
        wait_until("the journal grows", || repeated.journal_lines() >= lines);
        std::thread::sleep(Duration::from_millis(lines as u64 * 7 % 50));
        stop(child, Signal::KILL);
        let again = repeated.run_checked(&[]);
        assert_eq!((again.code, repeated.runs()), (0, 3), "after {lines} lines: {}", again.err);
        let run = iterations(&again);
        // A command that was killed before it did anything is not repeated.
        assert!((3..=4).contains(&run.len()), "after {lines} lines: {run:#?}");
        assert!(again.json()["cost"].as_f64().unwrap() <= 4.0 * COST + 2.0 * COST);
    }
}

#[test]
fn a_loop_that_is_killed_in_a_session_resumes_it() {
    let repeated = Loop::appending(LONG);
    let child = repeated.begin(&["--check", CHECK]);
    wait_until("an iteration runs", || repeated.runs() > 0);
    stop(child, Signal::KILL);
    repeated.cli.write("script.toml", &APPEND.replace("DELAY", "0"));
    let again = repeated.run_checked(&[]);
    assert_eq!((again.code, repeated.runs(), iterations(&again).len()), (0, 3, 3), "{}", again.err);
}

#[test]
fn a_session_that_fails_ends_the_loop_and_is_resumed() {
    let whole = APPEND.replace("DELAY", "0");
    let cut = whole.match_indices("[[turn]]").nth(1).unwrap().0;
    let repeated = Loop::new(&whole[..cut]);
    let ran = repeated.run_checked(&[]);
    assert_eq!((ran.code, end(&ran).as_str()), (1, "session_failed"), "{}", ran.err);
    assert_eq!((repeated.runs(), iterations(&ran).len()), (1, 1));
    repeated.cli.write("script.toml", &whole);
    let again = repeated.run_checked(&[]);
    assert_eq!((again.code, repeated.runs(), iterations(&again).len()), (0, 3, 3), "{}", again.err);
}

/// A script whose iterations write 4, 9 and 3 into `size`. The file `tries` is not undone.
const SIZES: &str = "[[turn]]\ncalls = [{ name = \"run_command\", arguments = { command = \"echo x >> tries; \
     case $(wc -l < tries) in 1) echo 4 > size;; 2) echo 9 > size; echo x > junk;; *) echo 3 > size;; esac\" } }]\n\
     [[turn]]\ntext = \"Tried.\"\n";

const SIZE_ARGS: [&str; 8] = [
    "--metric",
    "cat size",
    "--minimize",
    "--iterations",
    "3",
    "--json",
    "--set",
    "checkpoints.exclude=[\"tries\"]",
];

#[test]
fn an_iteration_stays_only_if_it_improves_the_number() {
    let repeated = Loop::new(SIZES);
    repeated.cli.write("size", "5\n");
    let ran = repeated.run(&SIZE_ARGS);
    assert_eq!(ran.code, 2, "{}", ran.err);
    let facts: Vec<_> =
        iterations(&ran).iter().map(|it| (it["measured"].clone(), it["undone"].clone())).collect();
    let expected = [(4.0, false), (9.0, true), (3.0, false)];
    assert_eq!(facts, expected.map(|(number, undone)| (json!(number), json!(undone))));
    assert_eq!(repeated.cli.read("size"), "3\n");
    assert!(!repeated.cli.path("junk").exists());
    let last = repeated.messages().pop().unwrap();
    assert!(last.contains("9, undone") && last.contains("4, kept"), "{last}");
}

/// Files that architect itself writes are not undone with an iteration.
#[test]
fn the_log_of_a_loop_stays_when_an_iteration_is_undone() {
    let repeated = Loop::new(SIZES);
    repeated.cli.write("size", "5\n");
    let ran = repeated.run(&[&SIZE_ARGS[..], &["--log-file", "log"]].concat());
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert_eq!(iterations(&ran)[1]["undone"], true);
    let log = repeated.cli.read("log");
    assert_eq!(log.matches(r#""type":"agent_start""#).count(), 3, "{log}");
    assert!(!repeated.cli.path("log.before-undo-1").exists());
}

#[test]
fn an_iteration_that_can_not_be_undone_ends_the_loop() {
    for limit in ["checkpoints.max_files=3", "checkpoints.max_file_size=10"] {
        let repeated = Loop::new(
            "[[turn]]\ncalls = [{ name = \"run_command\", arguments = { command = \"echo 9 > size; rm -f large\" } }]\n\
             [[turn]]\ntext = \"Tried.\"\n",
        );
        for (name, text) in [("size", "5\n"), ("large", "too large to be recorded\n"), ("b", "")] {
            repeated.cli.write(name, text);
        }
        let ran = repeated.run(&["--metric", "cat size", "--minimize", "--set", limit]);
        assert_eq!(ran.code, 1, "{limit}: {}", ran.err);
        assert_eq!(repeated.runs(), 0);
        assert_eq!(repeated.cli.read("size"), "9\n", "{limit}");
    }
}

/// The journal is replayed as it was written, also under other limits.
#[test]
fn fewer_iterations_than_are_done_begin_none() {
    let repeated = Loop::appending(0);
    for (iterations_now, runs) in [("3", 3), ("1", 3), ("3", 3), ("1", 3), ("4", 4), ("2", 4)] {
        let ran = repeated.run(&["--check", "false", "--iterations", iterations_now, "--json"]);
        assert_eq!((ran.code, repeated.runs()), (2, runs), "{iterations_now}: {}", ran.err);
        assert_eq!(iterations(&ran).len(), runs, "{iterations_now}");
    }
}

#[test]
fn results_that_come_with_a_repository_are_refused() {
    let repeated = Loop::appending(0);
    assert_eq!(repeated.run(&["--check", CHECK]).code, 0);
    for args in [&["init", "-q", "."][..], &["add", "-f", "out/workflow.jsonl"]] {
        let mut git = std::process::Command::new("git");
        assert!(git.args(args).current_dir(repeated.cli.path("")).status().unwrap().success());
    }
    let again = repeated.run(&["--check", CHECK]);
    assert_eq!(again.code, 3, "{}", again.err);
    assert!(again.err.contains("came with the repository"), "{}", again.err);
}

/// After a kill at any moment, iterations that make the number worse are undone once, and those that improve it stay.
#[test]
fn a_killed_loop_with_a_number_keeps_what_improves_it() {
    for lines in 2..=11 {
        let repeated = Loop::new(SIZES);
        repeated.cli.write("size", "5\n");
        let child = repeated.begin(&SIZE_ARGS);
        wait_until("the journal grows", || repeated.journal_lines() >= lines);
        stop(child, Signal::KILL);
        let again = repeated.run(&SIZE_ARGS);
        assert_eq!(again.code, 2, "after {lines} lines: {}", again.err);
        let run = iterations(&again);
        assert_eq!(run.len(), 3, "after {lines} lines: {run:#?}");
        let best = again.json()["workflow"]["best"].as_f64().unwrap();
        let size: f64 = repeated.cli.read("size").trim().parse().unwrap();
        assert!(size <= 4.0 && (size - best).abs() < 1e-9, "after {lines} lines: {size}, {best}");
        assert!(!repeated.cli.path("junk").exists(), "after {lines} lines");
    }
}

#[test]
fn mistakes_are_refused_before_anything_begins() {
    let repeated = Loop::appending(0);
    for (args, why) in [
        (vec![], "a loop needs --check CMD or --metric CMD"),
        (vec!["--metric", "cat size"], "--metric needs --maximize or --minimize"),
        (vec!["--check", "true", "--maximize"], "need --metric CMD"),
        (vec!["--check", " "], "is empty"),
        (vec!["--metric", "echo much", "--maximize"], "is not a number: much"),
        (vec!["--check", CHECK, "--dry-run"], "a loop can't be a dry run"),
        (vec!["--check", CHECK, "--model", "nobody/x"], "unknown provider 'nobody'"),
    ] {
        let ran = repeated.run(&args);
        assert_eq!(ran.code, 3, "{args:?}: {}", ran.err);
        assert!(ran.err.contains(why), "{args:?}: {}", ran.err);
    }
    assert_eq!(repeated.runs(), 0);
}

#[test]
fn a_folder_has_one_loop_and_one_process() {
    let repeated = Loop::appending(LONG);
    let child = repeated.begin(&["--check", CHECK]);
    wait_until("an iteration runs", || repeated.runs() > 0);
    let second = repeated.run_checked(&[]);
    assert_eq!(second.code, 1, "{}", second.err);
    assert!(second.err.contains("another process runs the workflow"), "{}", second.err);
    stop(child, Signal::TERM);
    let other = repeated.run(&["--check", "false"]);
    assert_eq!(other.code, 3, "{}", other.err);
    assert!(other.err.contains("has another workflow"), "{}", other.err);
}

#[test]
fn the_usual_folder_is_named_by_the_task() {
    let repeated = Loop::appending(0);
    let ran = repeated.cli.run(&[
        "loop",
        "Fix it!",
        "--model",
        "scripted/script.toml",
        "--mode",
        "yolo",
        "--check",
        CHECK,
    ]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let mut names = fs::read_dir(repeated.cli.path(".architect/loop")).unwrap();
    let name = names.next().unwrap().unwrap().file_name().into_string().unwrap();
    assert!(name.starts_with("Fix-it-"), "{name}");
}

#[test]
fn a_loop_in_a_worktree_leaves_the_folder_as_it_is() {
    let repeated = Loop::appending(LONG);
    for args in [
        vec!["init", "-q", "."],
        vec!["add", "ran", "script.toml"],
        vec!["-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-qm", "Begin"],
    ] {
        let mut git = std::process::Command::new("git");
        assert!(git.args(args).current_dir(repeated.cli.path("")).status().unwrap().success());
    }
    let args = ["--check", CHECK, "--worktree", "--json"];
    let child = repeated.begin(&args);
    let worktrees = repeated.cli.home().join(".local/state/architect/worktrees");
    let has_run = || {
        let folders = fs::read_dir(&worktrees).into_iter().flatten().flatten();
        let inner = folders.flat_map(|entry| fs::read_dir(entry.path()).into_iter().flatten());
        inner
            .flatten()
            .any(|it| fs::read_to_string(it.path().join("ran")).is_ok_and(|text| !text.is_empty()))
    };
    wait_until("an iteration runs", has_run);
    stop(child, Signal::KILL);
    repeated.cli.write("script.toml", &APPEND.replace("DELAY", "0"));
    let again = repeated.run(&args);
    assert_eq!(again.code, 0, "{}", again.err);
    assert_eq!((repeated.runs(), iterations(&again).len()), (0, 3), "{}", again.out);
    let worktree = &again.json()["worktree"];
    assert!(worktree["merge_command"].as_str().unwrap().contains("worktrees merge loop-"));
    assert_eq!(worktree["lines_added"], 3, "{worktree}");
}

#[test]
fn the_worktree_of_another_run_is_never_taken_over() {
    let repeated = Loop::appending(0);
    let args = ["run", "x", "--mode", "yolo", "--worktree", "fix"];
    assert_eq!(repeated.cli.run(&[&args[..], &MODEL].concat()).code, 0);
    for _ in 0..2 {
        let ran = repeated.run_checked(&["--worktree", "fix"]);
        assert_eq!(ran.code, 3, "{}", ran.err);
        assert!(ran.err.contains("fix"), "{}", ran.err);
    }
}
