//! A file system that hangs.

use super::strace;
use super::tracing_unavailable;
use crate::kit::cli::{CliFixture, wait_for_exit};

/// Fault R15: a file that can't be read for a long time affects only its own result, and the limits still hold.
#[test]
fn a_file_system_that_hangs_does_not_hold_the_run() {
    if let Some(why) = tracing_unavailable() {
        return println!("skipped: {why}");
    }
    let world = CliFixture::new();
    world.write("stuck", "text").write("well", "text");
    let script = r#"
        [[turn]]
        calls = [
            { name = "read_file", arguments = { path = "stuck" } },
            { name = "read_file", arguments = { path = "well" } },
        ]
        [[turn]]
        text = "One could not be read."
    "#;
    let model = world.script_model(script);
    let args = ["run", "Do it.", "--model", &model, "--timeout", "2", "--json"];
    let (log, stuck) = (world.home().join("strace.log"), world.path("stuck"));
    // Of the system calls that concern this file, the reads take six seconds.
    let how =
        ["-f", "-P", stuck.to_str().unwrap(), "-e", "inject=read,pread64:delay_enter=6000000"];
    let ran =
        wait_for_exit(strace::under_strace(&world.command(&args), &log, &how).spawn().unwrap());
    let result = ran.json();
    assert_eq!((ran.code, &result["stop_reason"]), (2, &"timeout".into()), "{}", ran.err);
    let tools = result["tools_used"].as_array().unwrap();
    let read = |tool: &serde_json::Value| tool["success"].as_bool().unwrap();
    assert_eq!(tools.iter().map(read).collect::<Vec<_>>(), [false, true], "{result}");
    assert!(result["duration_seconds"].as_f64().unwrap() < 5.5, "{result}");
}
