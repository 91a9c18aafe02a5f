//! Several processes on one folder, and parts of a batch.

use super::fixture::{ANSWER, Batch, COMMAND, appending};
use crate::cli::crash::strace::under_strace;
use crate::kit::cli::wait_for_exit;

#[test]
fn two_processes_share_the_work() {
    let ids: Vec<String> = (0..20).map(|index| format!("t{index}")).collect();
    let names: Vec<&str> = ids.iter().map(String::as_str).collect();
    let batch = Batch::with_tasks(&names, &appending(100));
    let command = [&COMMAND[..], &["--jobs", "2"]].concat();
    let children = [(); 2].map(|()| batch.cli.command(&command).spawn().unwrap());
    let ran = children.map(wait_for_exit);
    assert_eq!([ran[0].code, ran[1].code], [0, 0], "{}\n{}", ran[0].err, ran[1].err);
    for id in names {
        assert_eq!(batch.runs_of(id), 1, "{id}");
    }
    assert_eq!(batch.results().len(), 20);
    let ended = |index: usize| ran[index].err.matches("✓ ").count();
    assert_eq!(ended(0) + ended(1), 20, "{}\n{}", ran[0].err, ran[1].err);
    assert!(ended(0) > 0 && ended(1) > 0, "{}\n{}", ran[0].err, ran[1].err);
}

#[test]
fn the_parts_of_a_batch_are_run_one_by_one() {
    let batch = Batch::with_tasks(&["a", "b", "c", "d", "e"], ANSWER);
    let ran = batch.run(&["--shard", "1/2"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let ids = |batch: &Batch| batch.by_id("id").into_iter().map(|(id, _)| id).collect::<Vec<_>>();
    assert_eq!(ids(&batch), ["a", "c", "e"]);
    assert_eq!(batch.run(&["--shard", "2/2"]).code, 0);
    assert_eq!(ids(&batch), ["a", "b", "c", "d", "e"]);
}

#[test]
fn cells_that_run_at_the_same_time_are_not_taken_for_killed_ones() {
    let ids: Vec<String> = (0..40).map(|index| format!("t{index}")).collect();
    let names: Vec<&str> = ids.iter().map(String::as_str).collect();
    let batch = Batch::with_tasks(&names, &appending(0));
    let command = [&COMMAND[..], &["--jobs", "20"]].concat();
    let children = [(); 2].map(|()| batch.cli.command(&command).spawn().unwrap());
    for ran in children.map(wait_for_exit) {
        assert_eq!(ran.code, 0, "{}", ran.err);
        assert!(!ran.err.contains("was killed"), "{}", ran.err);
    }
}

#[test]
fn without_file_locks_a_batch_is_refused() {
    let batch = Batch::with_tasks(&["a"], ANSWER);
    let log = batch.cli.path("strace");
    let how = ["-f", "-qq", "-e", "inject=flock:error=ENOLCK"];
    let Ok(child) = under_strace(&batch.cli.command(&COMMAND), &log, &how).spawn() else {
        return eprintln!("skipped: there is no strace");
    };
    let ran = wait_for_exit(child);
    assert_eq!(ran.code, 3, "{}", ran.err);
    assert!(ran.err.contains("the file system has no file locks"), "{}", ran.err);
    assert!(ran.err.contains("--out names a folder on another file system"), "{}", ran.err);
}
