//! The number of times that a run waits for the disk.

use std::fs;

use super::strace;
use super::tracing_unavailable;
use crate::kit::chat;
use crate::kit::cli::{CliFixture, wait_for_exit};
use crate::kit::server::Server;

/// Returns the number of syncs of a run with so many steps, each of which writes a file.
fn syncs(steps: usize) -> usize {
    let world = CliFixture::new();
    let call = |step: usize| format!(r#"{{"path": "{step}.txt", "content": "text\n"}}"#);
    let calls = (0..steps).map(|step| chat::calls(&[("c", "write_file", &call(step))]));
    let server = Server::new(calls.chain([chat::text("Done.")]));
    let log = world.home().join("strace.log");
    let task = world.command_with_server(&server, &["--mode", "yolo", "--json"]);
    let how = ["-f", "-e", "trace=fsync,fdatasync,sync_file_range,syncfs,sync,msync"];
    let ran = wait_for_exit(strace::under_strace(&task, &log, &how).spawn().unwrap());
    assert_eq!(ran.json()["steps"], steps, "{}", ran.err);
    let text = fs::read_to_string(log).unwrap();
    text.lines().filter(|line| line.contains("sync") && !line.contains("resumed>")).count()
}

/// The request, the recorded contents, the call of the tool, and the written file are synced; no other action of a step
/// waits for the disk.
#[test]
fn a_step_makes_four_syncs_at_the_most() {
    if let Some(why) = tracing_unavailable() {
        return println!("skipped: {why}");
    }
    let (few, many) = (syncs(2), syncs(12));
    assert!(many > few && many - few <= 4 * 10, "{few} with two steps, {many} with twelve");
}
