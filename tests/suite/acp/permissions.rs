//! Permissions and modes.

use serde_json::{Value, json};

use super::client::{AcpClient, command};
use crate::kit::cli::CliFixture;
use crate::mcp::cli_runs::{script, stdio, world};

const WRITES: &str = r#"
[[turn]]
calls = [{ id = "w1", name = "write_file", arguments = { path = "a.txt", content = "one\n" } }]
[[turn]]
calls = [{ id = "w2", name = "write_file", arguments = { path = "a.txt", content = "two\n" } }]
[[turn]]
text = "Done."
[[turn]]
calls = [{ id = "w3", name = "write_file", arguments = { path = "a.txt", content = "three\n" } }]
[[turn]]
text = "Done."
"#;

fn chosen(option: &str) -> Value {
    json!({ "outcome": { "outcome": "selected", "optionId": option } })
}

/// Returns the result of these answers: the stop reason, the number of questions, and the file.
fn run(answers: &[&str]) -> (Value, usize, Option<String>) {
    let world = CliFixture::new();
    let mut client = AcpClient::start(&world, WRITES, &[]);
    let session = client.new_session(&world);
    let mut asked = 0;
    let done = client.prompt_with(&session, "Write.", |request| {
        assert_eq!(request["method"], "session/request_permission");
        let params = &request["params"];
        let kinds: Vec<&str> = params["options"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it["kind"].as_str().unwrap())
            .collect();
        assert_eq!(kinds, ["allow_once", "allow_always", "reject_once", "reject_once"]);
        assert_eq!(params["toolCall"]["status"], "pending");
        assert_eq!(params["toolCall"]["content"][0]["type"], "diff");
        asked += 1;
        chosen(answers[asked - 1])
    });
    let file = std::fs::read_to_string(world.path("a.txt")).ok();
    (done.unwrap()["stopReason"].clone(), asked, file)
}

#[test]
fn a_call_runs_once_for_the_session_or_not_at_all() {
    assert_eq!(run(&["once", "no"]), (json!("end_turn"), 2, Some("one\n".into())));
    assert_eq!(run(&["session"]), (json!("end_turn"), 1, Some("two\n".into())));
    assert_eq!(run(&["no", "no"]), (json!("end_turn"), 2, None));
    assert_eq!(run(&["abort"]), (json!("cancelled"), 1, None));
}

#[test]
fn what_is_allowed_for_the_session_holds_for_its_next_prompt_and_for_no_other_session() {
    let world = CliFixture::new();
    let mut client = AcpClient::start(&world, WRITES, &[]);
    let session = client.new_session(&world);
    let done = client.prompt_with(&session, "Write.", |_| chosen("session"));
    assert_eq!(done.unwrap()["stopReason"], "end_turn");
    assert_eq!(client.prompt(&session, "Once more."), "end_turn");
    assert_eq!(world.read("a.txt"), "three\n");
    let other = client.new_session(&world);
    let mut asked = 0;
    let done = client.prompt_with(&other, "Write.", |_| {
        asked += 1;
        chosen("no")
    });
    assert_eq!((done.unwrap()["stopReason"].as_str(), asked), (Some("end_turn"), 2));
}

#[test]
fn a_client_that_never_answers_can_cancel() {
    let world = CliFixture::new();
    let mut client = AcpClient::start(&world, WRITES, &[]);
    let session = client.new_session(&world);
    let id = client.send_prompt(&session, "Write.");
    client.wait_until(|message| message["method"] == "session/request_permission");
    client.notify("session/cancel", &json!({ "sessionId": session }));
    assert_eq!(client.wait_for(id).unwrap()["stopReason"], "cancelled");
    assert!(!world.path("a.txt").exists());
}

#[test]
fn a_client_that_is_gone_while_it_is_asked_has_not_agreed() {
    let world = CliFixture::new();
    let mut client = AcpClient::start(&world, WRITES, &[]);
    let session = client.new_session(&world);
    client.send_prompt(&session, "Write.");
    client.wait_until(|message| message["method"] == "session/request_permission");
    assert_eq!(client.close(), 0);
    assert!(!world.path("a.txt").exists());
}

#[test]
fn modes_are_how_it_asks_and_the_other_agents() {
    let world = CliFixture::new();
    let mut client = AcpClient::start(&world, WRITES, &[]);
    let params = json!({ "cwd": world.path(""), "mcpServers": [] });
    let opened = client.call("session/new", &params).unwrap();
    let session = opened["sessionId"].as_str().unwrap();
    assert_eq!(opened["modes"]["currentModeId"], "confirm-sensitive");
    let modes = opened["modes"]["availableModes"].as_array().unwrap();
    let ids: Vec<&str> = modes.iter().map(|mode| mode["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["confirm-all", "confirm-sensitive", "yolo", "plan", "review"]);

    let set = |client: &mut AcpClient, mode: &str| {
        client.call("session/set_mode", &json!({ "sessionId": session, "modeId": mode }))
    };
    assert_eq!(set(&mut client, "nothing").unwrap_err()["code"], -32602);
    // The plan agent has no tool that writes.
    set(&mut client, "plan").unwrap();
    assert_eq!(client.prompt(session, "Write."), "end_turn");
    assert!(!world.path("a.txt").exists());
    set(&mut client, "yolo").unwrap();
    assert_eq!(client.prompt(session, "Write."), "end_turn");
    assert_eq!(world.read("a.txt"), "three\n");
}

/// A question of an MCP server is passed on to the client, if the client shows forms.
#[test]
fn a_question_of_a_server_is_asked_by_the_client() {
    let answered = |capabilities: &Value| {
        let world = world(&stdio("s", ""));
        let mut client =
            AcpClient::spawn(&mut command(&world, &script("mcp_s_quiz"), &["--mode", "yolo"]));
        client.initialize(capabilities);
        let session = client.new_session(&world);
        let mut asked = Vec::new();
        let done = client.prompt_with(&session, "Ask.", |request| {
            asked.push(request.clone());
            json!({ "action": "accept", "content": { "name": "me" } })
        });
        assert_eq!(done.unwrap()["stopReason"], "end_turn");
        (asked, serde_json::to_string(&client.updates).unwrap())
    };
    let (asked, updates) = answered(&json!({ "elicitation": { "form": {} } }));
    assert_eq!(asked.len(), 1, "{asked:?}");
    let params = &asked[0]["params"];
    assert_eq!(asked[0]["method"], "elicitation/create");
    assert_eq!(params["message"], "Who? (from the MCP server s)");
    assert_eq!(params["requestedSchema"]["properties"]["name"]["title"], "Your name");
    assert!(updates.contains("accept") && !updates.contains("decline"), "{updates}");
    let (asked, updates) = answered(&json!({}));
    assert_eq!(asked, [Value::Null; 0]);
    assert!(updates.contains("decline"), "{updates}");
}

/// The sub-agent's call has the id of the call that has dispatched it.
#[test]
fn a_sub_agent_is_shown_in_the_call_that_has_sent_it_and_asks_for_its_own_calls() {
    let script = r#"
[[turn]]
calls = [{ id = "d", name = "dispatch_subagent", arguments = { agent = "build", task = "Write." } }]
[[turn]]
calls = [{ id = "d", name = "write_file", arguments = { path = "a.txt", content = "one\n" } }]
[[turn]]
text = "It is written."
[[turn]]
text = "Done."
"#;
    let world = CliFixture::new();
    let mut client = AcpClient::start(&world, script, &[]);
    let session = client.new_session(&world);
    let mut asked = Vec::new();
    let done = client.prompt_with(&session, "Go.", |request| {
        asked.push(request["params"]["toolCall"].clone());
        chosen("once")
    });
    assert_eq!(done.unwrap()["stopReason"], "end_turn");
    let question = asked.last().unwrap();
    assert_eq!(question["toolCallId"], "subagent-d");
    assert!(question["title"].as_str().unwrap().starts_with("write_file"), "{question}");
    let diff = question["content"][0]["content"]["text"].as_str().unwrap();
    assert!(diff.contains("+one"), "{diff}");
    let updates = client.call_updates("d");
    let texts: Vec<&str> = updates
        .iter()
        .filter_map(|update| update["content"][0]["content"]["text"].as_str())
        .filter(|text| text.starts_with("- "))
        .collect();
    let [running, .., last] = texts[..] else { panic!("{updates:?}") };
    assert!(running.starts_with("- … write_file → a.txt"), "{running}");
    assert!(last.starts_with("- ✓ write_file → a.txt"), "{last}");
    let end = updates.last().unwrap();
    assert_eq!(end["status"], "completed");
    assert_eq!(end["content"][1]["content"]["text"], "It is written.");
}
