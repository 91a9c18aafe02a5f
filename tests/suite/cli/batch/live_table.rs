//! The table of a batch on a real terminal.

use std::time::Duration;

use super::fixture::{ANSWER, Batch, COMMAND};
use crate::kit::cli::wait_until;
use crate::kit::terminal::TmuxTerminal;

/// A script with a command that lasts.
const LASTING: &str = "[[turn]]\ncalls = [{ name = \"run_command\", arguments = { command = \"echo ran >> ran; sleep 600\" } }]\nusage = { input = 40000, output = 1000 }\n[[turn]]\ntext = \"Done.\"\n";

/// The price of all scripts.
const PRICE: &str = "price = { input = 1.0, output = 10.0 }\n";

/// Runs two tasks that last and one that ends at once, and returns the terminal when all rows are there.
fn start(
    batch: &Batch,
    size: (u16, u16),
    env: &[(&str, &str)],
    more: &[&str],
) -> Option<TmuxTerminal> {
    let usage = "usage = { input = 1000, output = 10 }\n";
    batch.cli.write("quick.toml", &format!("{PRICE}{ANSWER}{usage}"));
    let quick = "{\"id\": \"quick\", \"prompt\": \"Do it.\", \"model\": \"scripted/quick.toml\"}\n";
    let tasks = std::fs::read_to_string(batch.cli.path("tasks.jsonl")).unwrap();
    batch.cli.write("tasks.jsonl", &format!("{quick}{tasks}"));
    let options = ["--jobs", "2", "--budget", "2", "--sandbox", "off"];
    TmuxTerminal::start(&batch.cli, size, env, &[&COMMAND[..], &options, more].concat())
}

#[test]
fn each_running_task_and_the_totals_are_shown_until_the_batch_ends() {
    for (columns, rows) in [(100, 24), (40, 24)] {
        let batch = Batch::with_tasks(&["slow-a", "slow-b"], &format!("{PRICE}{LASTING}"));
        let Some(terminal) = start(&batch, (columns, rows), &[("NO_COLOR", "1")], &[]) else {
            return;
        };
        terminal.wait_until("both commands", |shown| shown.matches(" run_command → ").count() == 2);
        // The totals are computed once a second.
        let parts = ["$0.10/$2.00", "slow-a ", "slow-b ", "1/3 done · 2 running", " left"];
        let shown =
            terminal.wait_until("the table", |shown| parts.iter().all(|part| shown.contains(part)));
        // The line of the log stays above.
        let (log, table) = (shown.find("✓ quick"), shown.find("slow-a"));
        assert!(log.is_some() && log < table, "{shown}");
        assert!(!terminal.visible_with_colors().contains("\u{1b}["), "no colour");
        for line in terminal.visible().lines() {
            assert!(line.chars().count() <= usize::from(columns), "{line}");
        }
        terminal.press("C-c");
        let shown = terminal.wait_for("exit 130");
        assert!(shown.contains("‖ slow-a stopped") && shown.contains("‖ slow-b"), "{shown}");
        assert!(!shown.contains("run_command") && !shown.contains(" running ·"), "{shown}");
        // The total includes the costs of the stopped tasks.
        assert!(shown.contains("\n$0.101100; the results"), "{shown}");
        assert_eq!(terminal.cursor_is_visible(), "1", "{shown}");
    }
}

#[test]
fn a_second_interrupt_leaves_no_table() {
    let script = format!("{PRICE}{LASTING}").replace(
        "sleep 600",
        "trap 'echo TERM >> ended' TERM; touch ready; while :; do sleep 1; done",
    );
    let batch = Batch::with_tasks(&["slow-a"], &script);
    let Some(terminal) = start(&batch, (80, 24), &[], &[]) else { return };
    terminal.wait_for(" run_command → ");
    wait_until("the command ignores the signal", || batch.cli.path("slow-a/ready").exists());
    terminal.press("C-c");
    wait_until("the command is to end", || batch.cli.path("slow-a/ended").exists());
    // An immediate repetition would be ignored.
    std::thread::sleep(Duration::from_millis(200));
    terminal.press("C-c");
    let shown = terminal.wait_for("exit 130");
    assert!(!shown.contains("run_command") && !shown.contains(" running ·"), "{shown}");
}

#[test]
fn no_table_is_drawn_where_it_is_not_wanted() {
    for (env, more) in [
        (("TERM", "dumb"), &[][..]),
        (("X", "1"), &["--quiet"]),
        (("X", "1"), &["--output-format", "stream-json"]),
    ] {
        let batch = Batch::with_tasks(&[], &format!("{PRICE}{ANSWER}"));
        let Some(terminal) = start(&batch, (80, 24), &[env], more) else { return };
        let shown = terminal.wait_for("exit 0");
        assert!(!shown.contains(" running ·"), "{shown}");
    }
}
