//! The programs in `examples/`: each runs without a key or a network, and prints its subject.

use std::process::Command;

/// Runs the current version of an example, and returns its output.
fn run(name: &str) -> String {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["run", "--quiet", "--offline", "--locked", "--example", name]);
    let home = tempfile::tempdir().unwrap();
    cargo.env("XDG_STATE_HOME", home.path()).env("XDG_CONFIG_HOME", home.path());
    let done = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    assert!(done.status.success(), "{name}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

#[test]
fn a_function_is_a_tool() {
    assert_eq!(run("custom_tool"), "count_words: ok\nThe text has 3 words.\n");
}

#[test]
fn a_model_can_be_custom() {
    assert_eq!(run("custom_model"), "CAN YOU HEAR ME?\n");
}

#[test]
fn an_observer_sees_the_states_of_a_run() {
    let printed = run("observer");
    assert!(printed.starts_with("Preparing -> CallingSending\n"), "{printed}");
    assert!(printed.contains("CallingSending -> Executing\n"), "{printed}");
    assert!(printed.ends_with("ended\nThe notes say: buy milk.\n"), "{printed}");
}

#[test]
fn a_stored_session_is_resumed() {
    let answers = "What should the function be called?\nThen it is called parse_date.\n";
    assert_eq!(run("resume"), answers);
}

#[test]
fn the_machine_runs_without_a_driver() {
    let printed = run("manual_machine");
    assert!(printed.contains("CallingSending -> Executing\n"), "{printed}");
    assert!(printed.ends_with("llm_done: 2 and 3 are 5.\n"), "{printed}");
}

/// A test runs each of them.
#[test]
fn no_example_is_left_out() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");
    let mut names: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    names.sort();
    let known = ["custom_model", "custom_tool", "manual_machine", "observer", "resume"];
    assert_eq!(names, known);
}
