//! Files of a trusted folder that have changed since the user trusted it.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use crate::kit::cli::{CliFixture, CommandResult, wait_for_exit};

const DONE: &str = "[[turn]]\ntext = 'Done.'\n";

/// A hook that leaves a file when it runs.
const HOOK: &str = "[[hooks.stop]]\nname = 'h'\ncommand = 'touch ran'\n";

/// A trusted folder with changes by a later pull.
fn pulled() -> CliFixture {
    let world = CliFixture::new();
    world.write(".architect/config.toml", "[limits]\nmax_steps = 60\n");
    assert_eq!(world.run(&["config", "trust"]).code, 0);
    assert_eq!(world.run_script(DONE, &[]).code, 0);
    world.write(".architect/config.toml", HOOK).write(".mcp.json", "{}");
    world
}

fn with_trust(world: &CliFixture, value: &str) -> CommandResult {
    let model = world.script_model(DONE);
    let mut command = world.command(&["run", "x", "--model", &model]);
    wait_for_exit(command.env("ARCHITECT_TRUST", value).spawn().unwrap())
}

#[test]
fn a_changed_file_ends_a_run_until_it_is_trusted_again() {
    let world = pulled();
    let ran = world.run_script(DONE, &["--json"]);
    assert_eq!((ran.code, ran.json()["exit_code"].as_i64()), (3, Some(3)), "{}", ran.err);
    for expected in
        [".architect/config.toml", ".mcp.json (new)", "architect config trust", "ARCHITECT_TRUST=1"]
    {
        assert!(ran.err.contains(expected), "{expected}: {}", ran.err);
    }
    assert!(!world.path("ran").exists());
    // Commands that run nothing report the change, and continue.
    assert_eq!(world.run(&["sessions", "list"]).code, 0);
    let ran = world.run(&["config", "check"]);
    assert!(ran.code == 0 && ran.err.contains("has changed since"), "{}", ran.err);
    assert!(world.run(&["doctor"]).out.contains("has changed since you trusted it"));
    // Without the project's configuration, and with it for one run: neither choice is remembered.
    assert_eq!((with_trust(&world, "0").code, world.path("ran").exists()), (0, false));
    assert_eq!((with_trust(&world, "1").code, world.path("ran").exists()), (0, true));
    assert_eq!(world.run_script(DONE, &[]).code, 3);
    assert_eq!(world.run(&["config", "trust"]).code, 0);
    assert_eq!(world.run_script(DONE, &[]).code, 0);
}

#[test]
fn a_folder_that_an_older_version_trusted_is_recorded_once() {
    let world = pulled();
    fs::remove_dir_all(world.home().join(".local/state/architect/trusted_files")).unwrap();
    let expected = |ran: &CommandResult| ran.err.contains("this trusted folder is recorded");
    let (first, second) = (world.run_script(DONE, &[]), world.run_script(DONE, &[]));
    assert_eq!((first.code, expected(&first), second.code, expected(&second)), (0, true, 0, false));
    world.write(".architect/config.toml", "");
    assert_eq!(world.run_script(DONE, &[]).code, 3);
}

/// `script` runs another program on a terminal.
#[test]
fn on_a_terminal_the_change_is_shown_and_asked_about() {
    for (answer, code) in [("n", 3), ("y", 0)] {
        let world = pulled();
        world.write(".architect/agents/x.md", "---\ndescription: x\n---\n\u{1b}[2Jx\n");
        let run = format!(
            "{} run x --model {}",
            env!("CARGO_BIN_EXE_architect"),
            world.script_model(DONE)
        );
        let mut command = std::process::Command::new("script");
        command.args(["-qec", &run, "/dev/null"]).current_dir(world.path("")).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap()).env("HOME", world.home());
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let Ok(mut child) = command.spawn() else { return };
        let mut input = child.stdin.take().unwrap();
        writeln!(input, "{answer}").unwrap();
        let ran = wait_for_exit(child);
        drop(input);
        assert_eq!(ran.code, code, "{}", ran.out);
        assert!(
            ran.out.contains("-max_steps = 60") && ran.out.contains("+command = 'touch ran'"),
            "{}",
            ran.out
        );
        assert!(!ran.out.contains("\u{1b}[2J"), "{}", ran.out);
        assert_eq!(world.path("ran").exists(), code == 0);
        assert_eq!(world.run_script(DONE, &[]).code, code);
    }
}
