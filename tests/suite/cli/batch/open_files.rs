//! Many cells at once, with the limit of open files that systems have.

use std::process::Command;

use super::fixture::{Batch, COMMAND};
use crate::kit::cli::{CommandResult, wait_for_exit};

/// A script with a long command, so that all cells have their files open at the same time.
const LASTING: &str = "[[turn]]\ncalls = [{ name = \"run_command\", arguments = { command = \"echo ran >> ran; sleep 0.5\" } }]\n[[turn]]\ntext = \"Done.\"\n";

/// Runs sixteen tasks at once with a limit that is too low for them; `option` determines whether the limit can be
/// raised.
fn run(batch: &Batch, option: &str) -> CommandResult {
    let mut command = Command::new("sh");
    let line = format!("ulimit {option} 128; exec \"$0\" \"$@\"");
    let usual = batch.cli.command(&[]);
    command.args(["-c", &line, env!("CARGO_BIN_EXE_architect")]).args(COMMAND);
    command.args(["--jobs", "16", "--sandbox", "off"]).current_dir(batch.cli.path("")).env_clear();
    for (name, value) in usual.get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    wait_for_exit(command.spawn().unwrap())
}

#[test]
fn cells_find_the_files_that_they_need_or_are_fewer() {
    let ids: Vec<String> = (0..16).map(|number| format!("task-{number}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    for (option, warning) in [("-Sn", None), ("-n", Some("2 cells run at the same time instead"))] {
        let count = if warning.is_none() { 16 } else { 3 };
        let batch = Batch::with_tasks(&ids[..count], LASTING);
        let ran = run(&batch, option);
        assert_eq!(ran.code, 0, "{option}: {}", ran.err);
        assert!(!ran.err.contains("Too many open files"), "{option}: {}", ran.err);
        assert_eq!(ran.err.contains("warn: "), warning.is_some(), "{option}: {}", ran.err);
        assert!(warning.is_none_or(|warning| ran.err.contains(warning)), "{}", ran.err);
        assert!(ids[..count].iter().all(|id| batch.runs_of(id) == 1), "{option}");
    }
}
