//! Hooks of a run, from outside.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};

use crate::kit::cli::{CliFixture, wait_for_exit};
use crate::kit::system::wait_until;

const WRITES: &str = "[[turn]]\ncalls = [{ name = \"write_file\", arguments = { path = \"a.txt\", content = \"A\" } }]\n\n\
                      [[turn]]\ntext = \"Done.\"\n";

/// Returns a world whose user has this hook.
fn world(point: &str, command: &str) -> CliFixture {
    let world = CliFixture::new();
    let folder = world.home().join(".config/architect");
    fs::create_dir_all(&folder).unwrap();
    let hook =
        format!("[[hooks.{point}]]\nname = \"h\"\ntimeout = 60\ncommand = '''{command}'''\n");
    fs::write(folder.join("config.toml"), hook).unwrap();
    world
}

fn lines(world: &CliFixture, name: &str) -> usize {
    fs::read_to_string(world.path(name)).unwrap_or_default().lines().count()
}

/// Fault H11.
#[test]
fn a_hook_of_an_untrusted_folder_does_not_run() {
    let world = CliFixture::new();
    let hook = "[[hooks.session_start]]\nname = \"h\"\ncommand = \"touch hooked\"\n";
    world.write(".architect/config.toml", hook);
    let ran = world.run_script(WRITES, &["--mode", "yolo"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(!world.path("hooked").exists());
    assert!(ran.err.contains("`hooks.session_start` is ignored"), "{}", ran.err);
}

#[test]
fn a_hook_that_blocks_a_run_is_no_failure_of_the_model() {
    let ran = world("session_start", "echo not today >&2; exit 2").run_script(WRITES, &[]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    let refused = "LLM call not made: hook h refuses the run: not today";
    assert!(ran.err.contains(refused) && !ran.err.contains("LLM call failed"), "{}", ran.err);
}

/// Fault H12.
#[test]
fn a_hook_stays_what_it_was_when_the_run_began() {
    let command = "echo ran >> ran; : > $HOME/.config/architect/config.toml";
    let world = world("pre_llm_call", command);
    // Confined, it could not write there.
    let file = world.home().join(".config/architect/config.toml");
    let settings = fs::read_to_string(&file).unwrap() + "sandbox = \"off\"\n";
    fs::write(&file, settings).unwrap();
    let ran = world.run_script(WRITES, &["--mode", "yolo"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(lines(&world, "ran"), 2);
    let settings = fs::read_to_string(world.home().join(".config/architect/config.toml"));
    assert_eq!(settings.unwrap(), "");
}

/// Fault H13: the answer of a hook that a crash interrupted is unknown, and a call does not run without it.
#[test]
fn a_hook_that_a_crash_cut_off_is_asked_again() {
    let world = world("pre_tool_use", "echo ran >> ran; [ -e go ] || sleep 30");
    let model = world.script_model(WRITES);
    let run = ["run", "Do it.", "--model", &model, "--mode", "yolo"];
    let child = world.command(&run).spawn().unwrap();
    wait_until("the hook runs", || lines(&world, "ran") == 1);
    kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
    wait_for_exit(child);
    assert!(!world.path("a.txt").exists());
    world.write("go", "");
    let listed = world.run(&["sessions", "list", "--json"]);
    let session = listed.out.split('"').find(|word| word.len() == 36).unwrap().to_owned();
    let ran = world.run(&["resume", &session, "--json"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!((lines(&world, "ran"), world.read("a.txt").as_str()), (2, "A"));
}
