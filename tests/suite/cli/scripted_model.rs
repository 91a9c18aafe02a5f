//! A scripted model depends on the completed calls: a call that was cut off is made again.

use std::process::Child;

use crate::kit::cli::{CliFixture, CommandResult, wait_for_exit, wait_until};

/// The third turn is slow, and the turn after it is never reached.
const SCRIPT: &str = r#"
[[turn]]
error = { kind = "server", wait_ms = 1 }

[[turn]]
calls = [{ name = "read_file", arguments = { path = "a" } }]

[[turn]]
text = "the answer"
delay_ms = 5000

[[turn]]
text = "skipped one"
"#;

/// Starts a run, and returns it when the slow call is running.
fn begun(world: &CliFixture, command: &[&str]) -> Child {
    let before = world.journals().matches("\"prepared\"").count();
    let child = world.command(command).spawn().unwrap();
    let calls = if before == 0 { 2 } else { 1 };
    wait_until("the slow call is under way", || {
        world.journals().matches("\"prepared\"").count() >= before + calls
    });
    child
}

fn killed(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

fn resumed(world: &CliFixture) -> CommandResult {
    world.run(&["resume", "last", "--json"])
}

#[test]
fn a_call_that_a_crash_cut_off_is_made_again() {
    let world = CliFixture::new();
    world.write("a", "one\n");
    let model = world.script_model(SCRIPT);
    killed(begun(&world, &["run", "Do it.", "--model", &model, "--json"]));
    // A resume that crashes skips no turn either.
    killed(begun(&world, &["resume", "last", "--json"]));
    let ran = resumed(&world);
    assert_eq!((ran.code, ran.json()["output"].as_str()), (0, Some("the answer")), "{}", ran.err);
    let ran = world.run(&["resume", "last", "And now?", "--json"]);
    assert_eq!(ran.json()["output"], "skipped one", "{}", ran.err);
}

#[test]
fn a_call_that_an_interrupt_cut_off_is_made_again() {
    let world = CliFixture::new();
    world.write("a", "one\n");
    let model = world.script_model(SCRIPT);
    let child = begun(&world, &["run", "Do it.", "--model", &model, "--json"]);
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(wait_for_exit(child).code, 130);
    let ran = resumed(&world);
    assert_eq!((ran.code, ran.json()["output"].as_str()), (0, Some("the answer")), "{}", ran.err);
}
