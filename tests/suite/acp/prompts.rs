//! Prompts: their streamed updates, and their ends.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use serde_json::{Value, json};

use super::client::{AcpClient, command};
use crate::kit::cli::CliFixture;

const EDIT: &str = r#"
[[turn]]
reasoning = "Look first."
text = "I'll read it. "
calls = [{ id = "r", name = "read_file", arguments = { path = "a.txt", offset = 1 } }]
[[turn]]
calls = [{ id = "e", name = "edit_file", arguments = { path = "a.txt", old_str = "one", new_str = "two" } }]
[[turn]]
text = "It says two now."
chunks = 3
"#;

#[test]
fn a_prompt_streams_thoughts_text_and_calls_with_kinds_locations_and_diffs() {
    let world = CliFixture::new();
    world.write("a.txt", "one\nend\n");
    let mut client = AcpClient::start(&world, EDIT, &["--mode", "yolo"]);
    let session = client.new_session(&world);
    assert_eq!(client.prompt(&session, "Change it."), "end_turn");
    assert_eq!(world.read("a.txt"), "two\nend\n");

    let title =
        client.updates.iter().find(|update| update["sessionUpdate"] == "session_info_update");
    assert_eq!(title.unwrap()["title"], "Change it.");
    assert_eq!(client.text("agent_thought_chunk"), "Look first.");
    assert_eq!(client.text("agent_message_chunk"), "I'll read it. It says two now.");
    let path = world.path("a.txt").canonicalize().unwrap();
    let [begun, running, done] = client.call_updates("r")[..] else { panic!() };
    assert_eq!(begun["sessionUpdate"], "tool_call");
    assert_eq!(begun["kind"], "read");
    assert_eq!(begun["locations"], json!([{ "path": path, "line": 1 }]));
    assert_eq!(begun["rawInput"]["path"], "a.txt");
    assert_eq!(running["status"], "in_progress");
    assert_eq!(done["status"], "completed");
    assert!(done["content"][0]["content"]["text"].as_str().unwrap().contains("one"), "{done}");

    let diff =
        json!([{ "type": "diff", "path": path, "oldText": "one\nend\n", "newText": "two\nend\n" }]);
    let [begun, _, done] = client.call_updates("e")[..] else { panic!() };
    assert_eq!((&begun["kind"], &begun["content"]), (&json!("edit"), &diff));
    assert_eq!(done["content"], diff);
    // Parts of one reply are one message.
    let ids: Vec<_> =
        client.updates.iter().rev().filter_map(|update| update["messageId"].as_str()).collect();
    assert_eq!(ids[0], ids[1]);
    assert_ne!(ids.first(), ids.last());
    assert_eq!(client.close(), 0);
}

#[test]
fn a_limit_ends_a_prompt_with_its_reason() {
    let script = r#"
[[turn]]
calls = [{ name = "list_files", arguments = {} }]
[[turn]]
text = "One step was not enough."
"#;
    let world = CliFixture::new();
    let mut client = AcpClient::start(&world, script, &["--max-steps", "1"]);
    let session = client.new_session(&world);
    let done = client.prompt_with(&session, "Go.", |asked| panic!("{asked}")).unwrap();
    assert_eq!(done["stopReason"], "max_turn_requests");
    assert_eq!(done["_meta"]["architect"]["stop_reason"], "max_steps");
    assert_eq!(client.text("agent_message_chunk"), "One step was not enough.");
}

#[test]
fn a_failing_model_is_an_error_and_the_session_goes_on() {
    let script = r#"
[[turn]]
error = { kind = "request", message = "no such model" }
[[turn]]
text = "Back again."
"#;
    let world = CliFixture::new();
    let mut client = AcpClient::start(&world, script, &[]);
    let session = client.new_session(&world);
    let failed = client.prompt_with(&session, "Go.", |asked| panic!("{asked}")).unwrap_err();
    assert!(failed["message"].as_str().unwrap().contains("no such model"), "{failed}");
    assert_eq!(client.prompt(&session, "Again."), "end_turn");
    assert_eq!(client.text("agent_message_chunk"), "Back again.");
}

const SLOW: &str = r#"
[[turn]]
calls = [{ id = "s", name = "run_command", arguments = { command = "sleep 300" } }]
[[turn]]
text = "After it."
"#;

#[test]
fn a_cancelled_prompt_ends_as_cancelled_and_the_next_one_continues() {
    let world = CliFixture::new();
    let mut client = AcpClient::start(&world, SLOW, &["--mode", "yolo"]);
    let session = client.new_session(&world);
    let id = client.send_prompt(&session, "Wait.");
    client.wait_until(|message| message["params"]["update"]["status"] == "in_progress");
    // A second prompt at the same time is refused, and does no harm.
    let second = client.send_prompt(&session, "And this.");
    let refused = client.wait_for(second).unwrap_err();
    assert_eq!(refused["code"], -32600);
    client.notify("session/cancel", &json!({ "sessionId": session }));
    assert_eq!(client.wait_for(id).unwrap()["stopReason"], "cancelled");
    let last = client.call_updates("s").last().unwrap()["status"].clone();
    assert_eq!(last, "failed");
    assert_eq!(client.prompt(&session, "Go on."), "end_turn");
    assert_eq!(client.text("agent_message_chunk"), "After it.");
}

#[test]
fn the_output_of_a_command_is_shown_while_it_runs() {
    let script = SLOW.replace("sleep 300", "echo begun; sleep 300");
    let world = CliFixture::new();
    let mut client = AcpClient::start(&world, &script, &["--mode", "yolo"]);
    let session = client.new_session(&world);
    let id = client.send_prompt(&session, "Wait.");
    client.wait_until(|message| {
        let update = &message["params"]["update"];
        let shown = update["content"][0]["content"]["text"].as_str();
        update["toolCallId"] == "s" && shown.is_some_and(|text| text.contains("begun"))
    });
    client.notify("session/cancel", &json!({ "sessionId": session }));
    assert_eq!(client.wait_for(id).unwrap()["stopReason"], "cancelled");
}

/// Nonsense, a line without end, a second prompt, and more cancellations than prompts, all while a question is open.
#[test]
fn a_prompt_ends_whatever_the_client_sends() {
    let script = r#"
[[turn]]
calls = [{ id = "w", name = "write_file", arguments = { path = "a.txt", content = "new" } }]
[[turn]]
text = "After it."
"#;
    let world = CliFixture::new();
    let mut client = AcpClient::start(&world, script, &[]);
    let session = client.new_session(&world);
    let id = client.send_prompt(&session, "Write.");
    let asked = client.wait_until(|message| message["method"] == "session/request_permission");
    client.send_line("{ nonsense");
    client.wait_until(|message| message["error"]["code"] == -32700);
    client.send_line(&"x".repeat((64 << 20) + 2));
    client.wait_until(|message| message["error"]["code"] == -32600);
    // An answer to a question that was not asked.
    client.send(&json!({ "jsonrpc": "2.0", "id": "other", "result": {} }));
    let second = client.send_prompt(&session, "And this.");
    assert_eq!(client.wait_for(second).unwrap_err()["code"], -32600);
    for _ in 0..3 {
        client.notify("session/cancel", &json!({ "sessionId": session }));
    }
    assert_eq!(client.wait_for(id).unwrap()["stopReason"], "cancelled");
    // It comes too late.
    let outcome = json!({ "outcome": { "outcome": "selected", "optionId": "once" } });
    client.send(&json!({ "jsonrpc": "2.0", "id": asked["id"], "result": outcome }));
    client.notify("session/cancel", &json!({ "sessionId": session }));
    assert!(!world.path("a.txt").exists());
    assert_eq!(client.prompt(&session, "Go on."), "end_turn");
    assert_eq!(client.text("agent_message_chunk"), "After it.");
    assert_eq!(client.close(), 0);
}

#[test]
fn a_prompt_ends_when_the_input_is_closed_and_so_does_the_process() {
    let world = CliFixture::new();
    let mut client = AcpClient::start(&world, SLOW, &["--mode", "yolo"]);
    let session = client.new_session(&world);
    client.send_prompt(&session, "Wait.");
    client.wait_until(|message| message["params"]["update"]["status"] == "in_progress");
    assert_eq!(client.close(), 0);
    // It was stored as interrupted, and is not locked any more.
    let shown = world.run(&["sessions", "show", &session, "--json"]);
    assert!(shown.out.contains("user_interrupt"), "{}", shown.out);
}

#[test]
fn a_signal_ends_the_prompts_and_the_process() {
    let world = CliFixture::new();
    let mut client = AcpClient::start(&world, SLOW, &["--mode", "yolo"]);
    let session = client.new_session(&world);
    let id = client.send_prompt(&session, "Wait.");
    client.wait_until(|message| message["params"]["update"]["status"] == "in_progress");
    let pid = rustix::process::Pid::from_raw(client.pid().cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(client.wait_for(id).unwrap()["stopReason"], "cancelled");
    assert_eq!(client.exit_code(), 143);
}

/// At once: until the next message, a command may run for an hour, or a question wait for ever.
#[test]
fn a_reader_that_is_gone_ends_everything() {
    for (is_busy, code) in [(false, 0), (true, 141)] {
        let world = CliFixture::new();
        let mut command = command(&world, SLOW, &["--mode", "yolo"]);
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let mut send = |id: u32, method: &str, params: Value| {
            let line = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
            input.write_all(format!("{line}\n").as_bytes()).unwrap();
        };
        send(1, "initialize", json!({ "protocolVersion": 1, "clientCapabilities": {} }));
        send(2, "session/new", json!({ "cwd": world.path(""), "mcpServers": [] }));
        let opened = lines.find(|line| line.contains("sessionId")).unwrap();
        lines.find(|line| line.contains("available_commands_update")).unwrap();
        if is_busy {
            let opened: Value = serde_json::from_str(&opened).unwrap();
            let prompt = json!([{ "type": "text", "text": "Wait." }]);
            let session = &opened["result"]["sessionId"];
            send(3, "session/prompt", json!({ "sessionId": session, "prompt": prompt }));
            lines.find(|line| line.contains("in_progress")).unwrap();
        }
        drop(lines);
        let ended = crate::kit::cli::wait_for_exit(child);
        assert_eq!(ended.code, code, "{}", ended.err);
    }
}
