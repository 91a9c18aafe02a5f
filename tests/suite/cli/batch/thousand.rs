//! A thousand cells in one process.

use std::time::Duration;

use super::fixture::{ANSWER, Batch, COMMAND};
use crate::kit::cli::wait_for_exit;
use crate::kit::system::wait_with_peak;

#[test]
fn a_thousand_cells_take_little_memory() {
    let batch = Batch::with_tasks(&[], ANSWER);
    let tasks: String =
        (0..1_000).map(|index| format!("{{\"id\": \"t{index}\", \"prompt\": \"x\"}}\n")).collect();
    batch.cli.write("tasks.jsonl", &tasks);
    let command =
        [&COMMAND[..], &["--quiet", "--jobs", "8", "--set", "sessions.durability=os"]].concat();
    let mut child = batch.cli.command(&command).spawn().unwrap();
    let (_, peak) = wait_with_peak(&mut child, Duration::from_secs(600));
    let ran = wait_for_exit(child);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(batch.results().len(), 1_000);
    let peak = peak >> 10;
    println!("1000 cells: {peak} kB");
    assert!(peak < 400_000, "{peak} kB");
}
