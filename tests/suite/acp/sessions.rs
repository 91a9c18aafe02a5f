//! Sessions: stored, listed, loaded, several at a time.

use serde_json::{Value, json};

use super::client::AcpClient;
use crate::kit::cli::CliFixture;

const TALK: &str = r#"
[[turn]]
text = "Reading. "
calls = [{ id = "r", name = "read_file", arguments = { path = "a.txt" } }]
[[turn]]
text = "First."
[[turn]]
text = "Second."
[[turn]]
text = "Third."
"#;

fn world() -> CliFixture {
    let world = CliFixture::new();
    world.write("a.txt", "content\n");
    world
}

fn load(world: &CliFixture, session: &str) -> Value {
    json!({ "sessionId": session, "cwd": world.path(""), "mcpServers": [] })
}

/// Returns the kind and text of each update.
fn shown(client: &AcpClient) -> Vec<(String, String)> {
    let text = |update: &Value, key: &str| update[key].as_str().unwrap_or_default().to_owned();
    let others = ["usage_update", "available_commands_update"];
    let is_shown = |update: &&Value| others.iter().all(|other| update["sessionUpdate"] != *other);
    let updates = client.updates.iter().filter(is_shown);
    let shown = updates.map(|update| {
        let text_or_none = update["content"]["text"].as_str().map(str::to_owned);
        (text(update, "sessionUpdate"), text_or_none.unwrap_or_else(|| text(update, "status")))
    });
    shown.collect()
}

#[test]
fn a_second_prompt_continues_the_session_and_a_loaded_one_shows_both() {
    let world = world();
    let mut client = AcpClient::start(&world, TALK, &[]);
    let session = client.new_session(&world);
    assert_eq!(client.prompt(&session, "Read."), "end_turn");
    assert_eq!(client.prompt(&session, "And then?"), "end_turn");
    assert_eq!(client.text("agent_message_chunk"), "Reading. First.Second.");
    assert_eq!(client.close(), 0);

    let mut client = AcpClient::start(&world, TALK, &[]);
    let listed = client.call("session/list", &json!({ "cwd": world.path("") })).unwrap();
    assert_eq!(listed["sessions"][0]["sessionId"], *session);
    assert_eq!(listed["sessions"][0]["title"], "Read.");
    assert_eq!(client.call("session/list", &json!({ "cwd": "/" })).unwrap()["sessions"], json!([]));
    client.call("session/load", &load(&world, &session)).unwrap();
    let expected = [
        ("user_message_chunk", "Read."),
        ("agent_message_chunk", "Reading. "),
        ("tool_call", "completed"),
        ("agent_message_chunk", "First."),
        ("user_message_chunk", "And then?"),
        ("agent_message_chunk", "Second."),
    ];
    let expected = expected.map(|(kind, text)| (kind.to_owned(), text.to_owned()));
    assert_eq!(shown(&client), expected);
    client.updates.clear();
    assert_eq!(client.prompt(&session, "Once more."), "end_turn");
    assert_eq!(client.text("agent_message_chunk"), "Third.");
    assert_eq!(client.close(), 0);
    // It is a session like all others.
    assert!(world.run(&["replay", &session, "--verify"]).code == 0);
}

#[test]
fn a_session_is_resumed_without_its_history_and_closed() {
    let world = world();
    let mut client = AcpClient::start(&world, TALK, &[]);
    let session = client.new_session(&world);
    client.prompt(&session, "Read.");
    client.call("session/close", &json!({ "sessionId": session })).unwrap();
    let id = client.send_prompt(&session, "Closed?");
    assert_eq!(client.wait_for(id).unwrap_err()["code"], -32002);
    client.updates.clear();
    client.call("session/resume", &load(&world, &session)).unwrap();
    assert_eq!(shown(&client), []);
    assert_eq!(client.prompt(&session, "Go on."), "end_turn");
}

/// A removed session would continue without its history.
#[test]
fn a_session_that_was_removed_takes_no_prompt() {
    let world = world();
    let mut client = AcpClient::start(&world, TALK, &[]);
    let session = client.new_session(&world);
    assert_eq!(client.prompt(&session, "Read."), "end_turn");
    assert_eq!(world.run(&["sessions", "rm", &session]).code, 0);
    let id = client.send_prompt(&session, "And then?");
    let error = client.wait_for(id).unwrap_err();
    assert!(error["message"].as_str().unwrap().contains("there is no session"), "{error}");
    assert!(client.call("session/load", &load(&world, &session)).is_err());
}

#[test]
fn a_session_is_loaded_before_its_first_prompt() {
    let world = world();
    let mut client = AcpClient::start(&world, TALK, &[]);
    let session = client.new_session(&world);
    client.call("session/load", &load(&world, &session)).unwrap();
    assert_eq!(client.prompt(&session, "Read."), "end_turn");
}

#[test]
fn a_killed_agent_leaves_a_session_that_goes_on() {
    let script = r#"
[[turn]]
text = "Waiting. "
calls = [{ id = "s", name = "run_command", arguments = { command = "sleep 300" } }]
[[turn]]
text = "I see."
"#;
    let world = world();
    let mut client = AcpClient::start(&world, script, &["--mode", "yolo"]);
    let session = client.new_session(&world);
    client.send_prompt(&session, "Wait.");
    client.wait_until(|message| message["params"]["update"]["status"] == "in_progress");
    client.kill();

    let mut client = AcpClient::start(&world, script, &["--mode", "yolo"]);
    client.call("session/load", &load(&world, &session)).unwrap();
    assert_eq!(client.call_updates("s")[0]["status"], "failed");
    assert_eq!(client.prompt(&session, "What was it?"), "end_turn");
    assert!(client.text("agent_message_chunk").ends_with("I see."));
}

#[test]
fn several_sessions_run_at_the_same_time() {
    let script = r#"
[[turn]]
calls = [{ id = "s", name = "run_command", arguments = { command = "while ! test -e go; do sleep 0.05; done" } }]
[[turn]]
text = "Done."
"#;
    let world = world();
    let mut client = AcpClient::start(&world, script, &["--mode", "yolo"]);
    let sessions = [client.new_session(&world), client.new_session(&world)];
    let ids: Vec<u64> = sessions.iter().map(|session| client.send_prompt(session, "Go.")).collect();
    for _ in &sessions {
        client.wait_until(|message| message["params"]["update"]["status"] == "in_progress");
    }
    world.write("go", "");
    let mut ended = Vec::new();
    while ended.len() < ids.len() {
        let message = client.receive();
        if message["result"]["stopReason"] == "end_turn" {
            ended.push(message["id"].as_u64().unwrap());
        }
    }
    ended.sort_unstable();
    assert_eq!(ended, ids);
}

/// The client is not trusted more than the command line.
#[test]
fn a_folder_has_to_be_absolute_and_to_exist() {
    let world = world();
    let mut client = AcpClient::start(&world, TALK, &[]);
    for folder in ["work", ".", "/no/such/folder", &world.path("a.txt").display().to_string()] {
        let refused = client.call("session/new", &json!({ "cwd": folder, "mcpServers": [] }));
        assert_eq!(refused.unwrap_err()["code"], -32602, "{folder}");
    }
    for session in ["", "../x", "019a0000-0000-7000-8000-000000000000"] {
        let refused = client.call("session/load", &load(&world, session)).unwrap_err();
        assert_eq!(refused["code"], -32002, "{refused}");
    }
}

#[test]
fn a_model_without_a_key_is_a_matter_of_authentication() {
    let world = world();
    let mut command = world.command(&["acp", "--model", "openai/gpt-4o"]);
    let mut client = AcpClient::spawn(command.stderr(std::process::Stdio::inherit()));
    let methods = client.initialize(&json!({}))["authMethods"].clone();
    assert_eq!(methods[0]["id"], "key-variable");
    let new = json!({ "cwd": world.path(""), "mcpServers": [] });
    let refused = client.call("session/new", &new).unwrap_err();
    assert_eq!(refused["code"], -32000);
    assert!(refused["message"].as_str().unwrap().contains("OPENAI_API_KEY"), "{refused}");
    let by = |id: &str| json!({ "methodId": id });
    assert_eq!(client.call("authenticate", &by("key-variable")).unwrap_err()["code"], -32000);
    assert_eq!(client.call("authenticate", &by("other")).unwrap_err()["code"], -32602);
}
