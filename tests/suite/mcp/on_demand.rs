//! Tools that are left out of requests: the model searches for them and calls them.

use serde_json::{Value, json};

use super::cli_runs::{configure, stdio, world};
use crate::kit::chat;
use crate::kit::cli::{CliFixture, CommandResult, wait_for_exit};
use crate::kit::server::{ReceivedRequest, Server};

/// The call of a deferred tool, as a model writes it.
const ECHO: &str = r#"{"name":"mcp_s_echo","arguments":{"text":"hello"}}"#;

/// Returns a fixture with a server whose tools are deferred.
fn deferred(more: &str) -> CliFixture {
    world(&format!("{}defer = true\n{more}", stdio("s", "modern")))
}

/// Returns the names of the tools of a request.
fn tools(request: &ReceivedRequest) -> Vec<String> {
    let json = request.json();
    let tools = json["tools"].as_array().unwrap();
    tools.iter().map(|tool| tool["function"]["name"].as_str().unwrap().to_owned()).collect()
}

fn has(request: &ReceivedRequest, tool: &str) -> bool {
    tools(request).iter().any(|name| name == tool)
}

/// Returns the text of the last message of a request.
fn last_text(request: &ReceivedRequest) -> String {
    let json = request.json();
    json["messages"].as_array().unwrap().last().unwrap()["content"].as_str().unwrap().to_owned()
}

/// Runs with these calls, one in each reply, and returns the result with the requests.
fn run(
    world: &CliFixture,
    calls: &[(&str, &str)],
    args: &[&str],
) -> (CommandResult, Vec<ReceivedRequest>) {
    let call = |(name, arguments): &(&str, &str)| chat::calls(&[("c1", name, arguments)]);
    let server = Server::new(calls.iter().map(call).chain([chat::text("Done.")]));
    let ran = world.run_with_server(&server, &[&["--json"], args].concat());
    (ran, server.requests())
}

#[test]
fn a_tool_is_found_and_called_while_the_tools_of_a_request_stay_the_same() {
    let world = deferred("");
    let calls = [("search_tools", r#"{"query":"echo"}"#), ("call_tool", ECHO)];
    let (ran, requests) = run(&world, &calls, &["--mode", "yolo"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(has(&requests[0], "search_tools") && has(&requests[0], "call_tool"));
    assert!(!tools(&requests[0]).iter().any(|name| name.starts_with("mcp_")));
    let described = requests[0].json()["tools"].to_string();
    assert!(described.contains("- s: mcp_s_echo, mcp_s_fail"), "{described}");
    let found = last_text(&requests[1]);
    assert!(found.starts_with("mcp_s_echo: echo\n{\"type\":\"object\""), "{found}");
    assert_eq!(last_text(&requests[2]), "hello");
    // The model reads its own call, and everything before it is as it was.
    let [first, second, third] = [0, 1, 2].map(|n| requests[n].json());
    assert_eq!((&first["tools"], &second["tools"]), (&third["tools"], &third["tools"]));
    let written = &third["messages"].as_array().unwrap().iter().rev().nth(1).unwrap()["tool_calls"];
    assert_eq!(written[0]["function"], json!({ "name": "call_tool", "arguments": ECHO }));
    let before = second["messages"].as_array().unwrap();
    assert_eq!(&third["messages"].as_array().unwrap()[..before.len()], &before[..]);
    // Everything but the model sees the real tool.
    let used = &ran.json()["tools_used"];
    assert_eq!(
        (&used[0]["name"], &used[1]["name"]),
        (&json!("search_tools"), &json!("mcp_s_echo"))
    );
    let verified = world.run(&["replay", "last", "--verify"]);
    assert_eq!(verified.code, 0, "{}", verified.err);
}

/// Rules, hooks and confirmations are about the tool that is called.
#[test]
fn policy_and_hooks_see_the_real_tool() {
    let result = |more: &str, args: &[&str]| {
        let (ran, requests) = run(&deferred(more), &[("call_tool", ECHO)], args);
        assert_eq!(ran.code, 0, "{}", ran.err);
        last_text(&requests[1])
    };
    let yolo = ["--mode", "yolo"];
    let rule = "[permissions]\ndeny = [\"mcp_s_echo\"]\n";
    assert!(result(rule, &yolo).contains("rule mcp_s_echo of permissions.deny"));
    let unconfirmed = result("", &["--mode", "confirm-sensitive"]);
    assert!(unconfirmed.contains("mcp_s_echo needs a confirmation"), "{unconfirmed}");
    let hook = "[[hooks.pre_tool_use]]\nname = \"h\"\nmatcher = \"mcp_s_*\"\n\
                command = \"cat >&2; exit 2\"\n";
    let blocked = result(hook, &yolo);
    assert!(blocked.contains("mcp_s_echo") && blocked.contains("hello"), "{blocked}");
    assert!(!blocked.contains("call_tool"), "{blocked}");
}

#[test]
fn a_wrong_call_is_an_error_that_helps() {
    let wrong = r#"{"name":"mcp_s_eko","arguments":{}}"#;
    let invalid = r#"{"name":"mcp_s_echo","arguments":{"text":1}}"#;
    let calls = [("call_tool", wrong), ("call_tool", invalid), ("mcp_s_echo", r#"{"text":"hi"}"#)];
    let (ran, requests) = run(&deferred(""), &calls, &["--mode", "yolo"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(last_text(&requests[1]).contains("the nearest one is 'mcp_s_echo'"));
    let schema = last_text(&requests[2]);
    assert!(schema.starts_with("Invalid arguments for mcp_s_echo: /text: "), "{schema}");
    // A model may also call the tool by its real name, as it has seen it elsewhere.
    assert_eq!(last_text(&requests[3]), "hi");
}

#[test]
fn an_agent_searches_only_what_it_may_use() {
    let agent = "[agents.narrow]\nallowed_tools = [\"read_file\", \"mcp_s_echo\"]\n\
                 [agents.bare]\nallowed_tools = [\"read_file\"]\n";
    let world = deferred(agent);
    let calls = [("search_tools", r#"{"query":"fail"}"#)];
    let (_, requests) = run(&world, &calls, &["--agent", "narrow"]);
    assert!(last_text(&requests[1]).ends_with("\n- s: mcp_s_echo"), "{}", last_text(&requests[1]));
    let (_, requests) = run(&world, &[], &["--agent", "bare"]);
    assert!(!has(&requests[0], "search_tools"));
}

/// By default it depends on the part that the tools of all servers take of the context window.
#[test]
fn many_tools_are_deferred_in_a_small_window() {
    let servers: String = ["s", "t", "u"].map(|name| stdio(name, "modern")).concat();
    let is_deferred = |window: &str| {
        let (ran, requests) = run(&world(&servers), &[], &["--set", window]);
        assert_eq!(ran.code, 0, "{}", ran.err);
        has(&requests[0], "search_tools") && !has(&requests[0], "mcp_s_echo")
    };
    assert!(is_deferred("context.max_context_tokens=10000"));
    assert!(!is_deferred("context.max_context_tokens=200000"));
}

#[test]
fn a_server_with_more_tools_than_a_request_may_have_is_deferred() {
    let window = ["--set", "context.max_context_tokens=1000000"];
    let calls = [("search_tools", r#"{"query":"mcp_s_t299"}"#)];
    let (ran, requests) = run(&world(&stdio("s", "many")), &calls, &window);
    assert!(ran.code == 0 && !ran.err.contains("left out"), "{}", ran.err);
    assert!(has(&requests[0], "search_tools") && !has(&requests[0], "mcp_s_t0"));
    assert!(last_text(&requests[1]).starts_with("mcp_s_t299: "), "{}", last_text(&requests[1]));
    let never = world(&format!("{}defer = false\n", stdio("s", "many")));
    let (ran, requests) = run(&never, &[], &window);
    assert!(has(&requests[0], "mcp_s_t255") && !has(&requests[0], "mcp_s_t256"));
    assert!(ran.err.contains("44 are left out: all of them go into every request"), "{}", ran.err);
}

/// The tools are a part of the prompt that the provider has cached.
#[test]
fn a_resumed_session_has_the_tools_that_it_had() {
    let entry: String = ["t", "u", "s"].map(|name| stdio(name, "modern")).concat();
    let resumed = |before: &str, after: &str| {
        let world = world(&format!("{entry}{before}"));
        let (_, first) = run(&world, &[], &[]);
        configure(&world, &format!("{entry}{after}"));
        let server = Server::new([chat::text("Done.")]);
        let mut command = world.command(&["resume", "last", "More.", "--json"]);
        command.args(["--model", "openai-chat/fake", "--api-base", &server.url("/v1")]);
        let ran = wait_for_exit(command.env("OPENAI_API_KEY", "sk-test-canary").spawn().unwrap());
        assert_eq!(ran.code, 0, "{}", ran.err);
        (first[0].json()["tools"].clone(), server.requests()[0].json()["tools"].clone())
    };
    let small = "[context]\nmax_context_tokens = 10000\n";
    let (before, after): (Value, Value) = resumed("defer = true\n", "");
    assert_eq!(before, after);
    let (before, after) = resumed("", small);
    assert_eq!(before, after);
    let (before, after) = resumed("", "defer = true\n");
    assert_ne!(before, after);
}
