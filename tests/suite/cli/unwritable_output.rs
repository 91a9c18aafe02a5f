//! Results that can't be written to standard output.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::kit::cli::{CliFixture, wait_for_exit, wait_until};
use crate::kit::terminal::TmuxTerminal;

#[test]
fn an_unwritable_result_is_summarized_on_standard_error() {
    for format in [&["--json"][..], &["--output-format", "text"]] {
        let world = CliFixture::new();
        let model = world.script_model(
            "[[turn]]\ncalls = [{ name = \"write_file\", arguments = { path = \"a\", content = \"1\" } }]\n\
             [[turn]]\ntext = \"Done.\"\n",
        );
        let args = ["run", "Do it.", "--model", &model, "--mode", "yolo", "-q"];
        let mut command = world.command(&[&args[..], format].concat());
        command.stdout(OpenOptions::new().write(true).open("/dev/full").unwrap());
        let ran = wait_for_exit(command.spawn().unwrap());
        assert_eq!(ran.code, 1, "{}", ran.err);
        let listed = world.run(&["sessions", "list", "--json"]).json();
        let session = listed[0]["session_id"].as_str().unwrap();
        assert!(ran.err.contains("could not write the output: No space left"), "{}", ran.err);
        assert!(ran.err.contains("ended with llm_done: 1 step, cost"), "{}", ran.err);
        assert!(ran.err.contains(&format!("architect sessions show {session}")), "{}", ran.err);
    }
}

/// A parent may read standard error only after the end.
#[test]
fn the_time_limit_holds_while_standard_error_is_full() {
    for option in [&["--quiet"][..], &["--show-costs"]] {
        let world = CliFixture::new();
        let model = world.script_model(
            "[[turn]]\ncalls = [{ name = \"run_command\", arguments = { command = \"sleep 60\" } }]\n",
        );
        // The configuration causes a warning.
        world.write(".architect/config.toml", "[llm]\napi_base = \"http://other.test\"\n");
        let args = ["run", "x", "--model", &model, "--mode", "yolo", "--timeout", "1", "--json"];
        let (reader, mut writer) = io::pipe().unwrap();
        rustix::io::ioctl_fionbio(&writer, true).unwrap();
        while writer.write(&[b'x'; 4096]).is_ok() {}
        rustix::io::ioctl_fionbio(&writer, false).unwrap();
        let mut command = world.command(&[&args[..], option].concat());
        let ran = wait_for_exit(command.stderr(writer).spawn().unwrap());
        assert_eq!(ran.json()["stop_reason"], "timeout", "{}", ran.out);
        assert!(ran.took < Duration::from_secs(20), "{option:?}: {:?}", ran.took);
        drop(reader);
    }
}

/// The signal comes first, and then the result can't be written.
#[test]
fn every_run_on_a_closed_terminal_has_the_exit_code_of_its_signal() {
    let world = CliFixture::new();
    let wait = "touch begun; sleep 60";
    let call =
        format!("calls = [{{ name = \"run_command\", arguments = {{ command = \"{wait}\" }} }}]");
    let model = world.script_model(&format!("[[turn]]\n{call}\n"));
    world.write("tasks.toml", "[[task]]\nid = \"a\"\nprompt = \"x\"\n");
    for command in ["run x", "batch tasks.toml", "loop x --check false"] {
        let Some(terminal) = TmuxTerminal::start_shell(&world, (80, 24)) else { return };
        let program = env!("CARGO_BIN_EXE_architect");
        let line = format!("{program} {command} --model {model} --mode yolo");
        terminal.type_line(&format!("(trap : HUP; {line}; echo $? > new; mv new code)"));
        terminal.wait_until("the command", |_| world.path("begun").exists());
        drop(terminal);
        wait_until("the end", || world.path("code").exists());
        assert_eq!(world.read("code"), "129\n", "{command}");
        for file in ["begun", "code"] {
            fs::remove_file(world.path(file)).unwrap();
        }
    }
}

#[test]
fn an_export_that_does_not_fit_is_no_failure_of_the_store() {
    let world = CliFixture::new();
    world.run_script("[[turn]]\ntext = \"Done.\"\n", &[]);
    let mut command = world.command(&["export", "last"]);
    command.stdout(OpenOptions::new().write(true).open("/dev/full").unwrap());
    let ran = wait_for_exit(command.spawn().unwrap());
    assert_eq!(ran.code, 1, "{}", ran.err);
    let expected = "error: could not write to standard output: No space left on device";
    assert!(ran.err.starts_with(expected) && !ran.err.contains("hint"), "{}", ran.err);
}

#[test]
fn an_unwritable_report_is_reported_in_the_result_document() {
    let world = CliFixture::new();
    let script = "[[turn]]\ntext = \"Fine.\"\n";
    for format in ["json", "stream-json"] {
        let args = ["--output-format", format, "--report-file", "/proc/none/r.md"];
        let ran = world.run_script(script, &args);
        let (last, before) =
            ran.lines().split_last().map(|(a, b)| (a.clone(), b.to_vec())).unwrap();
        assert_eq!((ran.code, &last["exit_code"]), (1, &1.into()), "{}", ran.err);
        assert_eq!((&last["status"], &last["output"]), (&"failed".into(), &"Fine.".into()));
        let error = last["error"].as_str().unwrap();
        assert!(ran.err.contains(error) && error.contains("/proc/none"), "{}", ran.err);
        assert!(before.iter().all(|event| event["type"] != "result"), "{}", ran.out);
        assert!(format != "json" || before.is_empty(), "{}", ran.out);
    }
}

#[test]
fn a_run_that_can_t_begin_has_its_document() {
    let world = CliFixture::new();
    let gone =
        "mkdir gone && cd gone && rmdir ../gone && exec \"$0\" run x --json --model scripted/s";
    let mut command = Command::new("sh");
    command.args(["-c", gone, env!("CARGO_BIN_EXE_architect")]).current_dir(world.path(""));
    let ran = wait_for_exit(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    assert_eq!((ran.code, &ran.json()["exit_code"]), (3, &3.into()), "{}", ran.err);
    let model = world.script_model("[[turn]]\ntext = \"Fine.\"\n");
    let mut command = world.command(&["run", "x", "--json", "--model", &model]);
    let ran = wait_for_exit(command.env("XDG_STATE_HOME", "/proc/none").spawn().unwrap());
    let document = ran.json();
    assert_eq!((ran.code, &document["stop_reason"]), (1, &"store_error".into()), "{}", ran.err);
}
