//! Services of the client: unsaved files, MCP servers, commands.

use std::process::Stdio;

use serde_json::{Value, json};

use super::client::{AcpClient, command};
use crate::kit::cli::CliFixture;
use crate::mcp::test_server;

const EDIT: &str = r#"
[[turn]]
calls = [{ id = "r", name = "read_file", arguments = { path = "a.txt" } }]
[[turn]]
calls = [{ id = "e", name = "edit_file", arguments = { path = "a.txt", old_str = "typed", new_str = "changed" } }]
[[turn]]
calls = [{ id = "n", name = "write_file", arguments = { path = "new.txt", content = "new\n" } }]
[[turn]]
text = "Done."
"#;

fn start(world: &CliFixture, script: &str, offers: &Value) -> AcpClient {
    let mut command = command(world, script, &["--mode", "yolo"]);
    let mut client = AcpClient::spawn(command.stderr(Stdio::inherit()));
    client.initialize(&json!({ "fs": offers }));
    client
}

#[test]
fn unsaved_text_is_read_and_edited_and_the_client_is_informed() {
    let world = CliFixture::new();
    world.write("a.txt", "saved\n");
    let mut client = start(&world, EDIT, &json!({ "readTextFile": true, "writeTextFile": true }));
    let session = client.new_session(&world);
    let path = world.path("a.txt").display().to_string();
    let mut buffer = "saved\ntyped\n".to_owned();
    let mut written = Vec::new();
    let done = client.prompt_with(&session, "Go.", |request| {
        let params = &request["params"];
        let is_open = params["path"] == *path;
        match request["method"].as_str().unwrap() {
            "fs/read_text_file" if is_open => json!({ "content": buffer }),
            "fs/read_text_file" => panic!("{request}"),
            "fs/write_text_file" => {
                let content = params["content"].as_str().unwrap().to_owned();
                written
                    .push(params["path"].as_str().unwrap().rsplit('/').next().unwrap().to_owned());
                if is_open {
                    buffer = content;
                }
                json!({})
            }
            method => panic!("{method}"),
        }
    });
    assert_eq!(done.unwrap()["stopReason"], "end_turn");
    let read =
        client.call_updates("r").last().unwrap()["content"][0]["content"]["text"].to_string();
    assert!(read.contains("typed") && read.contains("unsaved changes"), "{read}");
    assert_eq!(buffer, "saved\nchanged\n");
    assert_eq!(world.read("a.txt"), buffer);
    assert_eq!(written, ["a.txt", "new.txt"]);
    assert_eq!(client.close(), 0);
    assert_eq!(world.run(&["replay", &session, "--verify"]).code, 0);
}

#[test]
fn without_an_offer_or_an_answer_the_files_on_disk_count() {
    for offers in [json!({}), json!({ "readTextFile": true })] {
        let world = CliFixture::new();
        world.write("a.txt", "typed\n");
        let mut client = start(&world, EDIT, &offers);
        let session = client.new_session(&world);
        let id = client.send_prompt(&session, "Go.");
        let done = client.wait_until(|message| {
            let is_refusable = message.get("method").is_some() && message.get("id").is_some();
            assert!(!is_refusable || message["method"] == "fs/read_text_file", "{message}");
            message["id"] == id && message.get("method").is_none()
        });
        assert_eq!(done["result"]["stopReason"], "end_turn");
        assert_eq!(world.read("a.txt"), "changed\n");
    }
}

/// The editor may have unsaved changes that it could not report.
#[test]
fn a_file_that_the_client_could_not_show_is_not_replaced_there() {
    for (code, expected) in [
        (-32603, &["fs/read_text_file"][..]),
        (-32002, &["fs/read_text_file", "fs/write_text_file"]),
    ] {
        let world = CliFixture::new();
        world.write("a.txt", "typed\n");
        let edit = EDIT.replacen(
            "[[turn]]\ncalls = [{ id = \"n\"",
            "[[turn]]\ntext = \"Done.\"\n[[turn]]\ncalls = [{ id = \"n\"",
            1,
        );
        let mut client =
            start(&world, &edit, &json!({ "readTextFile": true, "writeTextFile": true }));
        let session = client.new_session(&world);
        let id = client.send_prompt(&session, "Go.");
        let mut asked = Vec::new();
        loop {
            let message = client.receive();
            match message["method"].as_str() {
                None if message["id"] == id => break,
                Some(method) if message.get("id").is_some() => {
                    asked.push(method.to_owned());
                    let error = json!({ "code": code, "message": "no" });
                    client.send(&json!({ "jsonrpc": "2.0", "id": message["id"], "error": error }));
                }
                _ => {}
            }
        }
        asked.dedup();
        assert_eq!(asked, expected, "{code}");
        assert_eq!(world.read("a.txt"), "changed\n");
    }
}

#[test]
fn a_server_of_the_client_has_tools_for_its_session_only() {
    let script = r#"
[[turn]]
calls = [{ id = "m", name = "mcp_my_server_echo", arguments = { text = "hello" } }]
[[turn]]
text = "Done."
"#;
    let world = CliFixture::new();
    let mut client = AcpClient::start(&world, script, &["--mode", "yolo"]);
    let program = std::env::current_exe().unwrap();
    let server = json!({
        "name": "my server", "command": program, "args": test_server::ARGUMENTS,
        "env": [{ "name": "MCP_TEST", "value": "plain" }],
    });
    let new = |servers: Value| json!({ "cwd": world.path(""), "mcpServers": servers });
    let with = client.call("session/new", &new(json!([server]))).unwrap();
    let without = client.call("session/new", &new(json!([]))).unwrap();
    for (opened, status) in [(with, "completed"), (without, "failed")] {
        client.updates.clear();
        let session = opened["sessionId"].as_str().unwrap();
        assert_eq!(client.prompt(session, "Go."), "end_turn");
        let last = client.call_updates("m").last().unwrap()["status"].clone();
        assert_eq!(last, status);
    }
    let mut off = AcpClient::start(&world, script, &["--mode", "yolo", "--disable-mcp"]);
    let opened = off.call("session/new", &new(json!([server]))).unwrap();
    assert_eq!(off.prompt(opened["sessionId"].as_str().unwrap(), "Go."), "end_turn");
    assert_eq!(off.call_updates("m").last().unwrap()["status"], "failed");
    let sse = json!([{ "type": "sse", "name": "s", "url": "http://127.0.0.1:1/", "headers": [] }]);
    assert_eq!(client.call("session/new", &new(sse)).unwrap_err()["code"], -32602);
}

#[test]
fn a_server_of_the_client_gets_no_key_unencrypted_unless_the_user_allows_it() {
    let world = CliFixture::new();
    let script = "[[turn]]\ntext = \"Done.\"\n";
    let headers = json!([{ "name": "Authorization", "value": "Bearer plain" }]);
    let remote = json!([{ "type": "http", "name": "r", "url": "http://remote.example/", "headers": headers }]);
    let new = json!({ "cwd": world.path(""), "mcpServers": remote });
    let mut client = AcpClient::start(&world, script, &[]);
    let refused = client.call("session/new", &new).unwrap_err();
    assert_eq!(refused["code"], -32602);
    assert!(refused["message"].as_str().unwrap().contains("unencrypted"), "{refused}");
    let mut client = AcpClient::start(&world, script, &["--set", "llm.allow_http=true"]);
    assert!(client.call("session/new", &new).is_ok());
}

#[test]
fn commands_choose_an_agent_for_one_prompt_and_show_changes() {
    let script = r#"
[[turn]]
calls = [{ id = "p", name = "write_file", arguments = { path = "a.txt", content = "planned\n" } }]
[[turn]]
text = "The plan:\n1. Write it.\n2. Test it."
[[turn]]
calls = [{ id = "w", name = "write_file", arguments = { path = "a.txt", content = "built\n" } }]
[[turn]]
text = "Built."
"#;
    let world = CliFixture::new();
    let mut client = AcpClient::start(&world, script, &["--mode", "yolo"]);
    let session = client.new_session(&world);
    let offered = client.wait_until(|it| !it["params"]["update"]["availableCommands"].is_null());
    let commands = offered["params"]["update"]["availableCommands"].as_array().unwrap();
    let names: Vec<&str> = commands.iter().map(|it| it["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["plan", "review", "diff"]);
    assert_eq!(client.prompt(&session, "/diff"), "end_turn");
    assert!(client.text("agent_message_chunk").contains("nothing"));
    assert_eq!(client.prompt(&session, "/plan Write a file."), "end_turn");
    assert!(!world.path("a.txt").exists());
    let mut plans = client.updates.iter().filter(|it| it["sessionUpdate"] == "plan");
    let plan = plans.next_back().unwrap();
    let steps: Vec<(&Value, &Value)> = plan["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| (&entry["content"], &entry["status"]))
        .collect();
    let pending = json!("pending");
    assert_eq!(steps, [(&json!("Write it."), &pending), (&json!("Test it."), &pending)]);
    assert_eq!(client.prompt(&session, "Build it."), "end_turn");
    assert_eq!(world.read("a.txt"), "built\n");
    // No step of it is pending any more.
    let plan = client.updates.iter().rfind(|it| it["sessionUpdate"] == "plan").unwrap();
    assert_eq!(plan["entries"], json!([]));
    assert_eq!(client.prompt(&session, "/diff"), "end_turn");
    assert!(client.text("agent_message_chunk").contains("+built"));
}

/// The client is shown the cause of the delay, and can cancel.
#[test]
fn a_server_of_the_client_that_says_nothing_delays_no_cancellation() {
    let world = CliFixture::new();
    let script = "[[turn]]\ntext = \"Done.\"";
    let mut client = AcpClient::start(&world, script, &["--mode", "yolo"]);
    let server = json!({ "name": "mute", "command": "sleep", "args": ["300"], "env": [] });
    let opened = json!({ "cwd": world.path(""), "mcpServers": [server] });
    let opened = client.call("session/new", &opened).unwrap();
    let session = opened["sessionId"].as_str().unwrap();
    let id = client.send_prompt(session, "Go.");
    client.wait_until(|message| {
        let text = &message["params"]["update"]["content"]["text"];
        text == "The MCP server mute is being started."
    });
    client.notify("session/cancel", &json!({ "sessionId": session }));
    assert_eq!(client.wait_for(id).unwrap()["stopReason"], "cancelled");
    assert_eq!(client.close(), 0);
}
