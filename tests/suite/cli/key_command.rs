//! Runs whose key is printed by a command.

use std::fs;
use std::path::Path;
use std::process::Child;

use rustix::process::{Pid, Signal, kill_process};

use crate::kit::chat;
use crate::kit::cli::{CliFixture, CommandResult, wait_for_exit, wait_until};
use crate::kit::server::Server;
use crate::kit::system::count_sleeping;

const KEY: &str = "canary-printed-0123456789";

/// Begins a task with a key command in the configuration of the user.
fn begin(world: &CliFixture, server: &Server, command: &str, args: &[&str]) -> Child {
    let folder = world.home().join(".config/architect");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("config.toml"), format!("llm.api_key_command = '{command}'\n")).unwrap();
    let mut command = world.command_with_server(server, args);
    command.env("ANTHROPIC_API_KEY", "canary-variable");
    command.spawn().unwrap()
}

fn run(world: &CliFixture, server: &Server, command: &str, args: &[&str]) -> CommandResult {
    wait_for_exit(begin(world, server, command, args))
}

/// Asserts that no file below a folder has a key, except the one that the command prints.
fn assert_no_keys(folder: &Path) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        if kind.is_dir() {
            assert_no_keys(&path);
        } else if kind.is_file() && !path.ends_with("key.txt") {
            let found = memchr::memmem::find(&fs::read(&path).unwrap(), b"canary-").is_some();
            assert!(!found, "{} has a key", path.display());
        }
    }
}

#[test]
fn a_printed_key_is_shown_nowhere() {
    let world = CliFixture::new();
    world.write("key.txt", &format!("{KEY}\n"));
    let server = Server::new([
        chat::calls(&[("a", "run_command", r#"{"command":"cat key.txt; echo listed"}"#)]),
        chat::text(&format!("The key is {KEY}.")),
    ]);
    let args = ["--log-level", "trace", "-vvv", "--record", "run.jsonl", "--mode", "yolo"];
    let ran = run(&world, &server, "env > env.txt; cat key.txt", &args);
    assert_eq!((ran.code, &*ran.out), (0, "The key is ***.\n"), "{}", ran.err);
    let requests = server.requests();
    assert_eq!(requests[0].header("authorization"), Some(&*format!("Bearer {KEY}")));
    assert!(requests[1].body.contains("***\\nlisted"), "{}", requests[1].body);
    assert!(!requests[1].body.contains("canary-"), "{}", requests[1].body);
    assert!(!ran.err.contains("canary-"), "{}", ran.err);
    // The command got no keys of providers.
    assert!(world.read("env.txt").contains("HOME="));
    assert_no_keys(&world.home());
    assert_no_keys(&world.path(""));
}

/// Fault T5: nothing survives the engine, however it ends.
#[test]
fn a_key_command_does_not_outlive_its_run() {
    for signal in [Signal::KILL, Signal::INT] {
        let (world, server) = (CliFixture::new(), Server::new([]));
        let child = begin(&world, &server, "sleep 4736.1; true", &[]);
        wait_until("the command runs", || count_sleeping("4736.1") == 1);
        kill_process(Pid::from_child(&child), signal).unwrap();
        assert_ne!(wait_for_exit(child).code, 0);
        wait_until("nothing is left", || count_sleeping("4736.1") == 0);
    }
}

#[test]
fn a_failed_command_ends_the_run_with_what_to_do() {
    let (world, server) = (CliFixture::new(), Server::new([]));
    let ran = run(&world, &server, "exit 7", &[]);
    assert_eq!(ran.code, 3, "{}", ran.err);
    let expected = "llm.api_key_command failed (exit status: 7); run it by hand to see why";
    assert!(ran.err.contains(expected), "{}", ran.err);
    assert!(ran.err.contains("it has to print only the key, within a minute"), "{}", ran.err);
}

#[test]
fn a_model_of_the_user_has_a_key_command_of_its_own() {
    let (world, server) = (CliFixture::new(), Server::new([chat::text("Done.")]));
    let folder = world.home().join(".config/architect");
    fs::create_dir_all(&folder).unwrap();
    let url = server.url("/v1");
    let config = format!(
        "llm.api_key_command = 'echo canary-common'\n[models.own]\nmodel = 'openai-chat/m'\n\
         api_base = '{url}'\napi_key_command = 'echo {KEY}'\n"
    );
    fs::write(folder.join("config.toml"), &config).unwrap();
    let run = |args: &[&str]| {
        wait_for_exit(
            world.command(&[&["run", "Do it.", "--model", "own"], args].concat()).spawn().unwrap(),
        )
    };
    let ran = run(&[]);
    assert_eq!((ran.code, &*ran.out), (0, "Done.\n"), "{}", ran.err);
    let sent = server.requests()[0].header("authorization").map(str::to_owned);
    assert_eq!(sent, Some(format!("Bearer {KEY}")));
    fs::write(folder.join("config.toml"), config.replace(&format!("echo {KEY}"), "exit 7"))
        .unwrap();
    let ran = run(&[]);
    let expected = "models.own.api_key_command failed (exit status: 7); run it by hand to see why";
    assert!(ran.code == 3 && ran.err.contains(expected), "{}", ran.err);
}
