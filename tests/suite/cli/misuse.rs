//! Misuse, and first encounters: named pipes as input files, empty messages, old sessions.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

use crate::kit::chat;
use crate::kit::cli::{CliFixture, CommandResult, wait_for_exit};
use crate::kit::server::Server;

const DONE: &str = "[[turn]]\ntext = \"Done.\"\n";

/// Imports a journal of the first release, and returns the world with the session.
fn with_old_journal(name: &str) -> CliFixture {
    let world = CliFixture::new();
    let path = format!("{}/tests/journals/format-1/{name}.jsonl", env!("CARGO_MANIFEST_DIR"));
    assert_eq!(world.run(&["sessions", "import", &path]).code, 0);
    world
}

/// Fault K6: a pipe without a writer must not block.
#[test]
fn a_named_pipe_is_no_input_file() {
    let world = CliFixture::new();
    assert!(Command::new("mkfifo").arg(world.path("pipe")).status().unwrap().success());
    let script = world.script_model(DONE);
    let run = ["run", "x", "--model", &script];
    let with = |args: &[&'static str]| world.run(&[&run[..], args].concat());
    let refused: [CommandResult; 7] = [
        world.run(&["run", "x", "--model", "scripted/pipe"]),
        world.run(&["run", "x", "--model", "replay/pipe"]),
        with(&["--output-schema", "pipe"]),
        with(&["--set", "costs.prices_file=pipe"]),
        with(&["--mcp-config", "pipe"]),
        world.run(&["test", "pipe"]),
        world.run(&["sessions", "import", "pipe"]),
    ];
    for ran in refused {
        assert_eq!(ran.code, 3, "{}", ran.err);
        assert!(ran.err.contains("pipe") && ran.err.contains("not a regular file"), "{}", ran.err);
    }
}

#[test]
fn a_missing_folder_of_scenarios_is_named_once() {
    let ran = CliFixture::new().run(&["test", "missing"]);
    assert_eq!((ran.code, ran.err.matches("missing").count()), (3, 1), "{}", ran.err);
    assert!(ran.err.contains("No such file or directory"), "{}", ran.err);
}

/// Fault K6: a pipe without a reader must not block either.
#[test]
fn a_named_pipe_without_a_reader_is_no_output_file() {
    let world = CliFixture::new();
    let (script, pipe) = (world.script_model(DONE), world.home().join("pipe"));
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for option in ["--log-file", "--record"] {
        let ran = world.run(&["run", "x", "--model", &script, option, pipe.to_str().unwrap()]);
        assert_eq!(ran.code, 3, "{option}: {}", ran.err);
        assert!(ran.err.contains("No such device or address"), "{option}: {}", ran.err);
    }
    assert_eq!(world.run(&["sessions", "--json"]).out.trim(), "[]");
}

#[test]
fn a_setting_that_is_no_text_is_not_passed_over() {
    let world = CliFixture::new();
    let script = world.script_model(DONE);
    let mut run = world.command(&["run", "x", "--model", &script]);
    run.env("ARCHITECT_LIMITS_MAX_STEPS", OsStr::from_bytes(b"1\xff"));
    let ran = wait_for_exit(run.spawn().unwrap());
    assert_eq!(ran.code, 3, "{}", ran.err);
    assert!(ran.err.contains("ARCHITECT_LIMITS_MAX_STEPS is not UTF-8"), "{}", ran.err);
}

/// Options that only look similar are not suggested.
#[test]
fn for_an_option_of_another_agent_ours_is_named() {
    let world = CliFixture::new();
    for (foreign, own) in [("--yolo", "--mode yolo"), ("--max-turns", "--max-steps")] {
        let ran = world.run(&["run", "x", foreign]);
        let expected = format!(
            "error: unexpected argument '{foreign}' found\n\nFor more information, try '--help'.\n  hint: use {own}\n"
        );
        assert_eq!((ran.code, ran.err), (3, expected));
    }
}

#[test]
fn a_message_that_is_empty_is_called_a_message() {
    let world = CliFixture::new();
    assert_eq!(world.run_script(DONE, &[]).code, 0);
    for command in ["steer", "followup"] {
        let ran = world.run(&[command, "last", " "]);
        assert_eq!(ran.code, 3);
        assert!(ran.err.contains("the message is empty"), "{}", ran.err);
    }
}

#[test]
fn an_invalid_number_is_answered_with_what_is_expected() {
    let world = CliFixture::new();
    for args in [
        ["cleanup", "--older-than", "week"],
        ["cleanup", "--older-than", "-1"],
        ["demo", "--exit-code-on-partial", "-1"],
        ["demo", "--exit-code-on-partial", "256"],
    ] {
        let ran = world.run(&args);
        assert_eq!(ran.code, 3);
        assert!(ran.err.contains("expected a whole number"), "{}", ran.err);
    }
}

#[test]
fn a_key_that_is_out_of_place_is_reported_once_and_without_passwords() {
    let world = CliFixture::new();
    let reports = |config: &str| {
        let file = world.write("c.toml", config).path("c.toml");
        world.run(&["config", "check", "--config", file.to_str().unwrap()]).err
    };
    let both = reports("[[mcp.servers]]\nname = 's'\ncommand = 'x'\nurl = 'https://x.example'\n");
    assert!(both.contains("omitted beside `url`") && !both.contains("unknown key"), "{both}");
    let address = reports("[llm]\napi_base = 'https://me:canary@x.example/v1'\n");
    assert!(address.contains("without user, password") && !address.contains("canary"), "{address}");
    let name = reports("[agents.'a b']\nsystem_prompt = 'x'\n");
    assert!(name.contains("must be named with letters") && !name.contains("a table"), "{name}");
}

#[test]
fn a_hook_after_the_run_that_does_not_pass_is_a_warning() {
    let world = CliFixture::new();
    let ends = [("echo no >&2; exit 2", "no"), ("exit 7", "exit code 7"), ("cat >/dev/null", "")];
    for (command, why) in ends {
        let hook = format!("hooks.session_end=[{{name='h', command='{command}'}}]");
        let ran = world.run_script(DONE, &["--set", &hook]);
        assert_eq!((ran.code, ran.out.as_str()), (0, "Done.\n"));
        let warning = ran.err.lines().find(|line| line.contains("`h` at session_end"));
        assert_eq!(warning.is_some(), !why.is_empty(), "{}", ran.err);
        assert!(warning.is_none_or(|warning| warning.contains(why)), "{}", ran.err);
    }
}

#[test]
fn arguments_of_a_wrong_type_are_explained_without_types_of_this_program() {
    let world = CliFixture::new();
    let server = Server::new([
        chat::calls(&[("c", "read_file", r#"{"path": "a", "offset": -1}"#)]),
        chat::text("Done."),
    ]);
    assert_eq!(world.run_with_server(&server, &[]).code, 0);
    let result = server.requests()[1].json().to_string();
    assert!(result.contains("expected a whole number") && !result.contains("u64"), "{result}");
}

#[test]
fn a_denied_call_is_reported_in_one_language() {
    let world = CliFixture::new();
    let script = format!(
        "[[turn]]\ncalls = [{{ name = 'write_file', arguments = {{ path = 'a', content = 'b' }} }}]\n{DONE}"
    );
    let ran = world.run_script(&script, &["--lang", "es"]);
    assert!(ran.err.contains("⛔ Denegado: write_file needs"), "{}", ran.err);
}

#[test]
fn a_session_without_options_is_imported_without_a_word_about_them() {
    let world = with_old_journal("text");
    let script = world.script_model(&DONE.repeat(2));
    let ran = world.run(&["resume", "last", "Go on.", "--any-folder", "--model", &script]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.err.contains("was imported") && !ran.err.contains("()"), "{}", ran.err);
}

#[test]
fn a_session_that_did_not_end_has_no_empty_reason() {
    let world = with_old_journal("crashed");
    let shown = world.run(&["sessions", "show", "last", "--any-folder"]).out;
    assert!(shown.contains("status     unfinished\n"), "{shown}");
    let refused = world.run(&["test", "--from", "last", "--any-folder"]);
    assert!(refused.code == 3 && refused.err.contains("has not ended"), "{}", refused.err);
}

/// It was interrupted before its first reply.
#[test]
fn a_session_without_a_reply_becomes_a_scenario_that_passes() {
    let world = with_old_journal("interrupted");
    let scenario = world.run(&["test", "--from", "last", "--any-folder"]).out;
    let tested = world.write("s.toml", &scenario).run(&["test", "s.toml"]);
    assert_eq!(tested.code, 0, "{scenario}\n{}{}", tested.out, tested.err);
}
