//! Sub-agents: agents that another one dispatches.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::workflows::PRICES;
use crate::kit::chat;
use crate::kit::cli::{CliFixture, CommandResult, outcome, wait_for_exit, wait_until};
use crate::kit::server::{ScriptedReply, Server};

fn dispatch(id: &'static str, agent: &str) -> (&'static str, &'static str, String) {
    let arguments = json!({"agent": agent, "task": format!("Look into {id}.")});
    (id, "dispatch_subagent", arguments.to_string())
}

fn dispatching(calls: &[(&'static str, &'static str, String)]) -> ScriptedReply {
    let calls: Vec<_> = calls.iter().map(|(id, name, args)| (*id, *name, args.as_str())).collect();
    chat::calls(&calls)
}

fn body(server: &Server, request: usize) -> Value {
    server.requests()[request].json()
}

fn messages_to_model(server: &Server, request: usize) -> String {
    let body = body(server, request);
    let messages = body["messages"].as_array().unwrap();
    messages.last().unwrap()["content"].as_str().unwrap().to_owned()
}

fn tools(server: &Server, request: usize) -> Vec<String> {
    let body = body(server, request);
    let tools = body["tools"].as_array().unwrap();
    tools.iter().map(|tool| tool["function"]["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_sub_agent_works_with_a_fresh_view_and_reports() {
    let world = CliFixture::new();
    world.write("a.txt", "one\n");
    let read = ("r", "read_file", r#"{"path": "a.txt"}"#);
    let server = Server::new([
        dispatching(&[dispatch("d", "review")]),
        chat::calls(&[read]),
        chat::text("It says one."),
        chat::text("The review is good."),
    ]);
    let ran = world.run_with_server(&server, &["--json"]);
    assert_eq!(ran.outcome(), outcome(0, "llm_done", "success"), "{}", ran.err);
    let child = body(&server, 1);
    assert_eq!(child["messages"].as_array().unwrap().len(), 2);
    assert!(
        child["messages"][0]["content"].as_str().unwrap().contains("a coding agent that reviews")
    );
    assert_eq!(messages_to_model(&server, 1), "Look into d.");
    let names = tools(&server, 1);
    assert!(names.contains(&"read_file".to_owned()) && names.contains(&"read_output".to_owned()));
    assert!(!names.iter().any(|name| name == "write_file" || name == "dispatch_subagent"));
    assert_eq!(messages_to_model(&server, 3), "It says one.");
    // The calls of the sub-agent count for its dispatcher, and are listed separately.
    let usage = &ran.json()["usage"];
    assert_eq!(usage["input_tokens"], 4 * chat::USAGE.0);
    assert_eq!((&ran.json()["steps"], &ran.json()["llm_calls"]), (&json!(1), &json!(4)));
    let sessions = world.run(&["sessions", "--json"]).json();
    assert_eq!(sessions.as_array().unwrap().len(), 2);
}

/// An agent that may only read can't have a sub-agent write.
#[test]
fn a_sub_agent_has_no_more_tools_than_its_dispatcher() {
    let world = CliFixture::new();
    let only = "agents.scout.allowed_tools=['read_file', 'dispatch_subagent']";
    let server = Server::new([
        dispatching(&[dispatch("d", "build")]),
        chat::text("I could not."),
        chat::text("Not possible."),
    ]);
    let args = ["--agent", "scout", "--set", only, "--mode", "yolo"];
    assert_eq!(world.run_with_server(&server, &args).code, 0);
    assert_eq!(tools(&server, 0), ["read_file", "dispatch_subagent"]);
    assert_eq!(tools(&server, 1), ["read_file"]);
}

#[test]
fn an_unknown_agent_is_answered_with_the_nearest_one() {
    let world = CliFixture::new();
    let server =
        Server::new([dispatching(&[dispatch("d", "reviw")]), chat::text("So I do it myself.")]);
    assert_eq!(world.run_with_server(&server, &[]).code, 0);
    assert!(messages_to_model(&server, 1).contains("review"), "{}", messages_to_model(&server, 1));
}

/// A sub-agent counts against the limits of the run, and gets at most half of the rest.
#[test]
fn a_sub_agent_spends_what_its_dispatcher_has_left() {
    let world = CliFixture::new();
    let dispatch = r#"[[turn]]
calls = [{ name = "dispatch_subagent", arguments = { agent = "plan", task = "Plan." } }]
usage = { input = 1000, output = 100 }
"#;
    let read = r#"[[turn]]
calls = [{ name = "list_files" }]
usage = { input = 1000, output = 100 }
"#;
    let last = "[[turn]]\ntext = \"That is all.\"\nusage = { input = 1000, output = 10 }\n";
    let price = "price = { input = 100.0, output = 100.0 }\nmax_output = 2000\n";
    let script = format!("{price}{dispatch}{read}{last}{last}");
    let cost = |budget: f64| {
        let json = world.run_script(&script, &["--budget", &budget.to_string(), "--json"]).json();
        let source = |name: &str| json["costs"]["by_source"][name].as_f64().unwrap_or(0.0);
        (json["cost"].as_f64().unwrap(), source("agent"), source("subagent"))
    };
    assert_eq!(cost(2.4), (0.422, 0.211, 0.211));
    // With less, the sub-agent is stopped before its dispatcher is.
    for budget in [0.3, 0.6, 0.9, 1.2] {
        let (all, own, dispatched) = cost(budget);
        assert!(all <= budget && dispatched <= (budget - own).max(0.0), "{budget}: {all}");
    }
}

#[test]
fn sub_agents_that_only_read_work_side_by_side() {
    let world = CliFixture::new();
    let both = [dispatch("d1", "plan"), dispatch("d2", "review")];
    let server = Server::new([
        dispatching(&both),
        chat::text("One."),
        chat::text("Two."),
        chat::text("Both."),
    ]);
    let ran = world.run_with_server(&server, &["--output-format", "stream-json"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let kinds: Vec<String> = ran
        .lines()
        .iter()
        .map(|line| line["type"].as_str().unwrap().to_owned())
        .filter(|kind| kind.starts_with("tool_call") || kind == "subagent_call")
        .collect();
    assert_eq!(&kinds[..2], ["tool_call_start", "tool_call_start"], "{kinds:?}");
    assert_eq!(kinds.iter().filter(|kind| *kind == "subagent_call").count(), 2);
}

/// The limits on changes are shared by all agents of a task.
#[test]
fn a_sub_agent_counts_against_the_same_guardrails() {
    let world = CliFixture::new();
    let write = |name: &str| json!({"path": name, "content": ""}).to_string();
    let (a, b) = (write("a"), write("b"));
    let server = Server::new([
        chat::calls(&[("w", "write_file", &a)]),
        dispatching(&[dispatch("d", "build")]),
        chat::calls(&[("w", "write_file", &b)]),
        chat::text("I may not."),
        chat::text("Then not."),
    ]);
    let limit = ["--mode", "yolo", "--set", "guardrails.max_files_modified=1", "--json"];
    let ran = world.run_with_server(&server, &limit);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(!world.path("b").exists());
    assert!(
        messages_to_model(&server, 3).contains("guardrails.max_files_modified"),
        "{}",
        messages_to_model(&server, 3)
    );
}

#[test]
fn changes_of_a_sub_agent_are_reported_with_the_run() {
    let world = CliFixture::new();
    let write = r#"{"path": "a", "content": ""}"#;
    let server = Server::new([
        dispatching(&[dispatch("d", "build")]),
        chat::calls(&[("w", "write_file", write)]),
        chat::text("Written."),
        chat::text("Done."),
    ]);
    let ran = world.run_with_server(&server, &["--mode", "yolo", "--json"]);
    assert_eq!(ran.json()["files_modified"], json!([{"path": "a", "action": "created"}]));
}

#[test]
fn an_interrupt_ends_the_sub_agent_too() {
    let world = CliFixture::new();
    let server = Server::new([dispatching(&[dispatch("d", "review")]), ScriptedReply::silence()]);
    let child = world.command_with_server(&server, &["--json"]).spawn().unwrap();
    server.wait_for(2);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let ran = wait_for_exit(child);
    assert_eq!(ran.outcome(), outcome(130, "user_interrupt", "partial"), "{}", ran.err);
    let sessions = world.run(&["sessions", "--json"]).json();
    let ended = sessions.as_array().unwrap().iter().filter(|one| one["status"] == "partial");
    assert_eq!(ended.count(), 2, "{sessions}");
}

/// It is unknown whether the sub-agent was done; the result names its session.
#[test]
fn a_sub_agent_cut_off_by_a_crash_is_reported_with_its_session() {
    let world = CliFixture::new();
    let server = Server::new([
        dispatching(&[dispatch("d", "review")]),
        ScriptedReply::silence(),
        chat::text("I look myself."),
    ]);
    let mut child = world.command_with_server(&server, &["--json"]).spawn().unwrap();
    server.wait_for(2);
    child.kill().unwrap();
    child.wait().unwrap();
    let parent = world.run(&["sessions", "--json"]).json();
    let task = |one: &&Value| one["prompt"] == "Do it.";
    let parent = parent.as_array().unwrap().iter().find(task).unwrap()["session_id"].clone();
    wait_until("the session is free", || {
        let base = server.url("/v1");
        let args = ["resume", parent.as_str().unwrap(), "--api-base", &base];
        let mut resume = world.command(&args);
        resume.env("OPENAI_API_KEY", "sk-test-canary");
        wait_for_exit(resume.spawn().unwrap()).code == 0
    });
    assert!(
        messages_to_model(&server, 2).contains("recorded in the session "),
        "{}",
        messages_to_model(&server, 2)
    );
    // The last session is the user's own, not the sub-agent's.
    assert_eq!(world.run(&["sessions", "show", "last", "--json"]).json()["session_id"], parent);
}

#[test]
fn a_resumed_session_reports_its_total_usage() {
    let world = CliFixture::new();
    let texts = ["It says one.", "The review is good.", "Three."].map(chat::text);
    let first = dispatching(&[dispatch("d", "review")]);
    let server = Server::new([first].into_iter().chain(texts));
    let prices = world.write("prices.toml", PRICES).path("prices.toml");
    let prices = format!("costs.prices_file={}", prices.display());
    let ran = world.run_with_server(&server, &["--set", &prices, "--json"]);
    assert_eq!(ran.json()["costs"]["by_source"], json!({"agent": 0.4, "subagent": 0.2}));
    let mut resume = world.command(&["resume", "last", "Go on.", "--json"]);
    let ran = wait_for_exit(resume.env("OPENAI_API_KEY", "k").spawn().unwrap());
    assert_eq!(ran.outcome(), outcome(0, "llm_done", "success"), "{}", ran.err);
    let json = ran.json();
    let by_source = json!({"agent": 0.6, "subagent": 0.2});
    assert_eq!(json["costs"], json!({"total_cost_usd": 0.8, "by_source": by_source}));
    let (input, output) = chat::USAGE;
    let used = (&json["usage"]["input_tokens"], &json["usage"]["output_tokens"]);
    assert_eq!(used, (&json!(4 * input), &json!(4 * output)));
}

/// The usage of a sub-agent counts for its dispatcher, once, also that of a call that an interrupt or `kill -9` cuts
/// off.
#[test]
fn a_sub_agent_that_is_cut_off_is_charged() {
    for is_killed in [false, true] {
        let world = CliFixture::new();
        let piece = chat::delta(&json!({"content": "word "}));
        let stream = ScriptedReply::open_stream().repeat_chunk(&piece, Duration::from_millis(20));
        let server =
            Server::new([dispatching(&[dispatch("d", "review")]), stream, chat::text("Well.")]);
        let prices = "[models.openai]\nfake = { output = 20, price = { input = 10.0, output = 10_000.0 } }\n";
        let prices = world.write("prices.toml", prices).path("prices.toml");
        let args = [
            "--json",
            "--budget",
            "9",
            "--set",
            &format!("costs.prices_file={}", prices.display()),
        ];
        let mut child = world.command_with_server(&server, &args).spawn().unwrap();
        server.wait_for(2);
        let spent =
            |ran: &CommandResult| ran.json()["costs"]["by_source"]["subagent"].as_f64().unwrap();
        let charged = if is_killed {
            child.kill().unwrap();
            child.wait().unwrap();
            0.2
        } else {
            kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
            spent(&wait_for_exit(child))
        };
        let mut resume = world.command(&["resume", "last", "Go on.", "--json"]);
        let resumed = wait_for_exit(resume.env("OPENAI_API_KEY", "k").spawn().unwrap());
        assert_eq!(resumed.code, 0, "{}", resumed.err);
        assert!(charged > 0.0 && spent(&resumed) >= charged, "{charged} {}", resumed.out);
        assert!(is_killed || (spent(&resumed) - charged).abs() < 1e-9, "{charged} {}", resumed.out);
        let session = world.run(&["sessions", "show", "last", "--json"]).json();
        assert_eq!(session["cost"], resumed.json()["cost"], "{session}");
        assert_eq!(world.run(&["replay", "last", "--verify"]).code, 0);
    }
}

/// A sub-agent whose calls are denied can still answer: the dispatching run reports the denied calls.
#[test]
fn denied_calls_of_a_sub_agent_are_reported_with_the_run() {
    let world = CliFixture::new();
    let write = ("w", "write_file", r#"{"path": "a", "content": ""}"#);
    let command = ("c", "run_command", r#"{"command": "touch b"}"#);
    let server = Server::new([
        dispatching(&[dispatch("d", "build")]),
        chat::calls(&[write, command]),
        chat::text("I may not."),
        chat::text("Then not."),
    ]);
    let args = ["--mode", "confirm-sensitive", "--json", "--report-file", "r.md"];
    let ran = world.run_with_server(&server, &args);
    assert_eq!(ran.outcome(), outcome(0, "llm_done", "success"), "{}", ran.err);
    let denied = ran.json()["denied"].as_array().unwrap().clone();
    let calls: Vec<_> = denied.iter().map(|call| (&call["agent"], &call["tool"])).collect();
    let build = json!("build");
    assert_eq!(calls, [(&build, &json!("write_file")), (&build, &json!("run_command"))]);
    assert_eq!(denied[1]["arguments"], json!({"command": "touch b"}));
    assert!(ran.err.contains("2 tool calls were denied: write_file, run_command"), "{}", ran.err);
    assert!(ran.err.contains("⛔ write_file of the sub-agent build: "), "{}", ran.err);
    assert!(world.read("r.md").contains("build: run_command"), "{}", world.read("r.md"));
}
