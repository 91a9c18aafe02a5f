//! Masked keys: in the log, in recordings, and in texts that the user types.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

use crate::kit::chat;
use crate::kit::cli::{CliFixture, wait_for_exit, wait_until};
use crate::kit::server::{ScriptedReply, Server};

/// The key that every task of these tests has.
const KEY: &str = "sk-test-canary";

/// A text in the form of a key.
const TYPED: &str = "ghp_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8";

/// Returns the files below a folder that have this text in them.
fn files_with(text: &str, folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        if kind.is_dir() {
            found.extend(files_with(text, &path));
        } else if kind.is_file()
            && memchr::memmem::find(&fs::read(&path).unwrap(), text.as_bytes()).is_some()
        {
            found.push(path.display().to_string());
        }
    }
    found
}

/// Returns a reply that echoes its request, as a debugging proxy does.
fn echo() -> ScriptedReply {
    let body =
        [chat::delta(&serde_json::json!({"content": "Done."})), chat::finish("stop")].concat();
    let key = format!("Bearer {KEY}");
    let location = format!("http://example.com/?key={KEY}");
    let headers =
        [("content-type", "text/event-stream"), ("x-echo", &key), ("location", &location)];
    ScriptedReply::with_headers(
        200,
        &headers,
        &format!("{body}: {KEY}\n\n: \u{fffd}\n\ndata: [DONE]\n\n"),
    )
}

/// The libraries would log every byte of a connection, also in hexadecimal.
#[test]
fn no_level_of_the_log_shows_the_key() {
    for level in ["debug", "trace"] {
        let (world, server) = (CliFixture::new(), Server::new([echo()]));
        let ran = world.run_with_server(&server, &["--log-level", level, "-vvv"]);
        assert_eq!((ran.code, ran.out.as_str()), (0, "Done.\n"), "{}", ran.err);
        let letters: String = ran.err.split_whitespace().collect();
        let hex: String = KEY.bytes().map(|byte| format!("{byte:02x}")).collect();
        for shown in [KEY, "canary"] {
            assert!(!letters.contains(shown), "{level}: {}", ran.err);
        }
        assert!(!letters.to_lowercase().contains(&hex[..16]), "{level}: {}", ran.err);
        assert!(ran.err.contains("debug: "), "the libraries log too: {}", ran.err);
    }
}

#[test]
fn a_recording_has_no_key_that_a_server_echoes() {
    let (world, server) = (
        CliFixture::new(),
        Server::new([echo(), ScriptedReply::with_length(401, &format!("{{\"error\":\"{KEY}\"}}"))]),
    );
    for code in [0, 4] {
        let ran = world.run_with_server(&server, &["--record", "rec.jsonl"]);
        assert_eq!(ran.code, code, "{}", ran.err);
        let text = world.read("rec.jsonl");
        assert!(text.contains("***") && !text.contains("canary"), "{text}");
    }
}

/// With the default server, the conversation would be sent to the wrong place.
#[test]
fn an_address_that_is_not_stored_has_to_be_given_again() {
    let world = CliFixture::new();
    let server = Server::repeating([chat::text("Done.")]);
    let base = format!("{}?api_key=canary-1234567890", server.url("/v1"));
    let model = ["-m", "openai-chat/x", "--api-base", &base];
    let run = |args: &[&str]| {
        let mut command = world.command(args);
        wait_for_exit(command.env("OPENAI_API_KEY", KEY).spawn().unwrap())
    };
    let first = run(&[&["run", "Go."][..], &model, &["--record", "rec.jsonl"]].concat());
    assert_eq!(first.code, 0, "{}", first.err);
    assert!(!world.read("rec.jsonl").contains("canary"));
    let refused = run(&["resume", "last", "On."]);
    assert_eq!(refused.code, 3, "{}", refused.err);
    assert!(refused.err.contains("llm.api_base is not stored"), "{}", refused.err);
    assert_eq!(run(&["resume", "last", "On.", "--api-base", &base]).code, 0);
    assert_eq!(server.requests().len(), 2);
}

/// A provider, or a proxy in front of it, repeats the key in every part of a reply, whole and in parts.
#[test]
fn a_key_in_a_reply_goes_nowhere() {
    let (world, (first, second)) = (CliFixture::new(), KEY.split_at(5));
    let call = chat::calls(&[(KEY, "read_file", &format!(r#"{{"path": "{KEY}"}}"#))]);
    let unknown = chat::calls(&[("c", KEY, "{}")]);
    let finish =
        json!({"model": KEY, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
    let parts = [
        chat::delta(&json!({"content": format!("It is {first}")})),
        chat::delta(
            &json!({"content": format!("{second} or {KEY}, {first}"), "reasoning_content": KEY}),
        ),
        chat::event(&finish),
        chat::end(),
    ];
    let answer = ScriptedReply::stream(parts);
    let server = Server::new([call, unknown, answer]);
    let collector = Server::repeating([ScriptedReply::with_length(200, "{}")]);
    let outputs = ["--output-format", "stream-json", "-vvv", "--log-file", "log.txt"];
    let files = ["--report-file", "report.html", "-o", "answer.txt"];
    let mut task = world.command_with_server(&server, &[&outputs[..], &files].concat());
    let ran =
        wait_for_exit(task.env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url("")).spawn().unwrap());
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.contains("It is *** or ***, sk-te"), "{}", ran.out);
    assert_eq!(files_with(KEY, world.path("").parent().unwrap()), Vec::<String>::new());
    assert!(!ran.out.contains(KEY) && !ran.err.contains(KEY), "{}{}", ran.out, ran.err);
    for request in server.requests().iter().chain(&collector.requests()) {
        assert!(!request.body.contains(KEY), "{}", request.body);
    }
}

/// The model reads a file unmasked, and can edit it; output for others has no known key.
#[test]
fn a_key_in_a_file_is_in_nothing_that_is_shown() {
    let world = CliFixture::new();
    world.write("keys", &format!("first\n{TYPED}\n"));
    let edit = json!({"path": "keys", "old_str": TYPED, "new_str": "removed"}).to_string();
    let server = Server::new([
        chat::calls(&[("a", "read_file", r#"{"path": "keys"}"#)]),
        chat::calls(&[
            ("b", "edit_file", &edit),
            ("c", "run_command", &format!(r#"{{"command": "echo {TYPED}"}}"#)),
        ]),
        chat::text(&format!("It was {TYPED}.")),
    ]);
    let files =
        ["--log-file", "log.jsonl", "--report-file", "report.md", "--record", "rec.jsonl", "-vvv"];
    let ran = world.run_with_server(&server, &[&files[..], &["--mode", "yolo"]].concat());
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(server.requests()[1].body.contains(TYPED) && world.read("keys").contains("removed"));
    assert!(!ran.err.contains(TYPED), "{}", ran.err);
    assert_eq!(files_with(TYPED, &world.path("")), Vec::<String>::new());
    let report = world.run(&["trace", "last", "--html", "trace.html"]);
    assert_eq!(report.code, 0, "{}", report.err);
    for args in [
        &["sessions", "export", "last"][..],
        &["sessions", "show", "last"],
        &["sessions", "show", "last", "--json"],
        &["export", "last", "--format", "atif"],
        &["sessions", "search", "removed"],
        &["trace", "last"],
    ] {
        let ran = world.run(args);
        assert!(ran.code == 0 && !ran.out.contains(TYPED), "{args:?}: {}{}", ran.out, ran.err);
        if args[1] == "export" {
            world.write("export.jsonl", &ran.out);
        }
    }
    assert_eq!(files_with(TYPED, &world.path("")), Vec::<String>::new());
    // An export is still a session.
    let imported = world.run(&["sessions", "import", "export.jsonl"]);
    assert_eq!(imported.code, 0, "{}", imported.err);
    let checked = world.run(&["replay", "last", "--verify"]);
    assert_eq!(checked.code, 0, "{}{}", checked.out, checked.err);
}

/// Neither the provider's key nor a text in the form of one gets into the journal, to a model, or into a report.
#[test]
fn a_key_that_the_user_types_is_masked_before_it_goes_anywhere() {
    let (world, server) = (CliFixture::new(), Server::repeating([chat::text("Done.")]));
    let base = server.url("/v1");
    let prompt = format!("Use {KEY} and {TYPED} here.");
    let model = ["--model", "openai-chat/fake", "--api-base", &base];
    let outputs = ["--json", "--report-file", "report.html", "--record", "rec.jsonl"];
    let mut task = world.command(&[&["run", &prompt][..], &model, &outputs].concat());
    let ran = wait_for_exit(task.env("OPENAI_API_KEY", KEY).spawn().unwrap());
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.err.contains("the message contains a key"), "{}", ran.err);
    let mut task = world.command(&["resume", "last", &prompt]);
    let resumed = wait_for_exit(task.env("OPENAI_API_KEY", KEY).spawn().unwrap());
    assert_eq!(resumed.code, 0, "{}", resumed.err);
    for key in [KEY, TYPED] {
        assert_eq!(files_with(key, world.path("").parent().unwrap()), Vec::<String>::new());
        assert!(!ran.out.contains(key) && !ran.err.contains(key), "{}{}", ran.out, ran.err);
        for request in server.requests() {
            assert!(!request.body.contains(key), "{}", request.body);
        }
    }
    let sent = &server.requests()[0].body;
    assert!(sent.contains("Use *** and ghp_*** here."), "{sent}");
}

/// A message for a running session is stored in its folder before the session reads it.
#[test]
fn a_key_in_a_message_for_a_running_session_is_masked() {
    let world = CliFixture::new();
    let is_sent = Arc::new(AtomicBool::new(false));
    let awaited = Arc::clone(&is_sent);
    let server = Server::with_handler(move |_| {
        wait_until("the message was sent", || awaited.load(Ordering::SeqCst));
        chat::text("Done.")
    });
    let child = world.command_with_server(&server, &["--json"]).spawn().unwrap();
    server.wait_for(1);
    let message = format!("Use {KEY} and {TYPED} here.");
    let mut reported = world.command(&["followup", "last", &message]);
    let reported = wait_for_exit(reported.env("OPENAI_API_KEY", KEY).spawn().unwrap());
    assert_eq!(reported.code, 0, "{}", reported.err);
    is_sent.store(true, Ordering::SeqCst);
    let ran = wait_for_exit(child);
    assert_eq!((ran.code, server.requests().len()), (0, 2), "{}", ran.err);
    let sent = &server.requests()[1].body;
    assert!(sent.contains("Use *** and ghp_*** here."), "{sent}");
    for key in [KEY, TYPED] {
        assert_eq!(files_with(key, world.path("").parent().unwrap()), Vec::<String>::new());
    }
}

/// The output of a gate is sent to the model and stored, as the output of its calls is.
#[test]
fn a_key_in_the_output_of_a_quality_gate_is_masked() {
    let (world, server) = (CliFixture::new(), Server::repeating([chat::text("Done.")]));
    world.write("copy", KEY);
    let gate = "guardrails.quality_gates=[{ name = 'g', command = 'cat copy; exit 1' }]";
    let ran = world.run_with_server(&server, &["--set", gate]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    let sent = &server.requests()[1].body;
    assert!(sent.contains("***") && !sent.contains(KEY), "{sent}");
    let copy = world.path("copy").display().to_string();
    assert_eq!(files_with(KEY, world.path("").parent().unwrap()), [copy]);
}

/// The user chooses the names of headers and options, and no name says that its value is a key.
#[test]
fn a_key_in_a_header_or_an_option_is_stored_and_shown_nowhere() {
    let (world, key) = (CliFixture::new(), "a1b2c3d4e5f6g7h8-gateway");
    world.write("copy", key);
    let read = json!({"command": "cat copy"}).to_string();
    let server = Server::new([
        chat::calls(&[("a", "run_command", &read)]),
        chat::text("Done."),
        chat::text("Done."),
    ]);
    let (header, option) =
        (format!("llm.headers.X-Gateway={key}"), format!("llm.options.user={key}"));
    let short =
        ["--set", "llm.headers.X-Short=brief", "--set", "llm.headers.X-Quoted=a \"quoted\" word"];
    let sets = [&["--set", &*header, "--set", &*option][..], &short].concat();
    let args = [&sets[..], &["--record", "rec.jsonl", "--log-file", "log.jsonl", "-vvv"]].concat();
    let ran = world.run_with_server(&server, &args);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let first = &server.requests()[0];
    assert_eq!((first.header("x-gateway"), first.json()["user"].as_str()), (Some(key), Some(key)));
    let shown = world.run(&[&["config", "show"], &sets[..]].concat());
    assert!(shown.code == 0 && !shown.out.contains(key), "{}", shown.out);
    let mut resumed = world.command(&["resume", "last", "Again.", "--set", &header]);
    let resumed = wait_for_exit(resumed.env("OPENAI_API_KEY", KEY).spawn().unwrap());
    assert_eq!(resumed.code, 0, "{}", resumed.err);
    assert!(resumed.err.contains("llm.options.user is not stored"), "{}", resumed.err);
    assert!(!resumed.err.contains("llm.headers.X-Gateway is not stored"), "{}", resumed.err);
    let last = server.requests().pop().unwrap();
    assert_eq!((last.header("x-gateway"), last.json().get("user").cloned()), (Some(key), None));
    assert!(!world.run(&["sessions", "export", "last"]).out.contains(key));
    let copy = world.path("copy").display().to_string();
    assert_eq!(files_with(key, world.path("").parent().unwrap()), [copy]);
    assert!(world.path("log.jsonl").exists());
    let recording = world.read("rec.jsonl");
    assert!(!recording.contains("brief") && !recording.contains("quoted"), "{recording}");
}

#[test]
fn the_configuration_is_shown_without_keys_in_addresses_and_commands() {
    let (world, key) = (CliFixture::new(), "a1b2c3d4e5f6g7h8");
    let settings = format!(
        "[llm]\nmodel = \"openai/gpt-5\"\napi_base = \"http://127.0.0.1:9/{key}/v1\"\napi_key_command = \"printf {key}\"\n\
         [[mcp.servers]]\nname = \"x\"\ncommand = \"./{key}\"\n[[hooks.stop]]\nname = \"h\"\ncommand = \"curl -u {key} host\"\n"
    );
    let folder = world.home().join(".config/architect");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("config.toml"), settings).unwrap();
    for args in [&["config", "show"][..], &["doctor"]] {
        let ran = world.run(args);
        assert!(
            !ran.out.contains(key) && !ran.err.contains(key),
            "{args:?}: {}{}",
            ran.out,
            ran.err
        );
        assert!(ran.out.contains("***"), "{args:?}: {}", ran.out);
    }
}

#[test]
fn a_key_in_an_address_is_neither_shown_nor_stored() {
    const IN_ADDRESS: &str = "supersecretvalue99";
    let body = format!(r#"{{"error":{{"message":"no route for api_key {IN_ADDRESS}"}}}}"#);
    let server = Server::new([ScriptedReply::with_length(404, &body)]);
    let world = CliFixture::new();
    let base = format!("{}?api_key={IN_ADDRESS}", server.url("/v1"));
    let args = ["run", "Do it.", "--model", "openai-chat/m", "--api-base", &base, "--json", "-vv"];
    let mut command = world.command(&args);
    let ran = wait_for_exit(command.env("OPENAI_API_KEY", KEY).spawn().unwrap());
    assert!(server.requests()[0].path.ends_with(IN_ADDRESS));
    assert!(ran.err.contains("?api_key=***") && ran.code != 0, "{}", ran.err);
    assert!(
        !ran.err.contains(IN_ADDRESS) && !ran.out.contains(IN_ADDRESS),
        "{} {}",
        ran.out,
        ran.err
    );
    assert_eq!(files_with(IN_ADDRESS, &world.home()), [""; 0]);
    // A password with a slash is not the port of a host.
    let mut command = world.command(&["run", "Do it.", "--model", "openai-chat/m"]);
    command.env("OPENAI_API_KEY", KEY).env("OPENAI_BASE_URL", "https://me:hunter2pass/x@host/v1");
    let ran = wait_for_exit(command.spawn().unwrap());
    assert!(ran.code == 3 && !ran.err.contains("hunter2"), "{}", ran.err);
}
