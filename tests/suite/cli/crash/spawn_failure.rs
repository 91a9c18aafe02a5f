//! Threads and processes that can't be started.

use std::fs;

use super::strace;
use super::{count_cases, tracing_unavailable};
use crate::kit::cli::{CliFixture, CommandResult, wait_for_exit};

/// Files are written and searched, a command runs, and three servers are to be started.
const SCRIPT: &str = r#"
[[turn]]
calls = [{ name = "write_file", arguments = { path = "a.txt", content = "1\n" } }]
[[turn]]
calls = [
    { name = "grep", arguments = { text = "1" } },
    { name = "find_files", arguments = { pattern = "*" } },
    { name = "run_command", arguments = { command = "cat a.txt" } },
]
[[turn]]
text = "Done."
"#;

/// Runs the script while each thread can start only this number of others.
fn with_threads(most: usize) -> CommandResult {
    let world = CliFixture::new();
    let folder = world.home().join(".config/architect");
    fs::create_dir_all(&folder).unwrap();
    let server =
        |name| format!("[[mcp.servers]]\nname = {name:?}\ncommand = \"cat\"\ntimeout = 1\n");
    fs::write(folder.join("config.toml"), ["a", "b", "c"].map(server).concat()).unwrap();
    let model = world.script_model(SCRIPT);
    let limits = ["--set", "llm.retries=3"];
    let args = ["run", "Do it.", "--model", &model, "--mode", "yolo", "--json"];
    let args = [&args[..], &limits].concat();
    let how = format!("inject=clone,clone3,fork,vfork:error=EAGAIN:when={}+", most + 1);
    let log = world.home().join("strace.log");
    wait_for_exit(
        strace::under_strace(&world.command(&args), &log, &["-f", "-e", &how]).spawn().unwrap(),
    )
}

/// Fault R2: with any number of threads, a run has a result, reports correctly, and does not panic.
#[test]
fn a_run_without_threads_has_a_result() {
    if let Some(why) = tracing_unavailable() {
        return println!("skipped: {why}");
    }
    let succeeded = count_cases(0..=16, |most| {
        let ran = with_threads(most);
        assert!(!ran.err.contains("panicked"), "{most} threads: {}", ran.err);
        let result = ran.json();
        assert!([0, 1].contains(&ran.code), "{most} threads: {} {}", ran.code, ran.err);
        assert_eq!(result["exit_code"], ran.code, "{most} threads: {result}");
        assert_eq!(result["status"] == "success", ran.code == 0, "{most} threads: {result}");
        assert!(ran.took.as_secs() < 20, "{most} threads: {:?}", ran.took);
        ran.code == 0
    });
    assert!((5..=15).contains(&succeeded), "{succeeded} runs succeeded");
}
