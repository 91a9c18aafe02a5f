//! Sessions for other tools.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::workflows::PRICES;
use crate::kit::chat;
use crate::kit::cli::{CliFixture, CommandResult};
use crate::kit::server::Server;

/// Prints the reason why a trajectory is invalid by the published models, `harbor` or else `atif`. Exits with 77
/// without them. `ATIF_PYTHON` names the Python that has them.
const VALIDATOR: &str = "\
import sys, json
try:
    from harbor.models.trajectories import Trajectory
except ImportError:
    try:
        from atif import Trajectory
    except ImportError:
        sys.exit(77)
Trajectory.model_validate(json.load(sys.stdin))
";

/// Returns the trajectory of a session, after the published validator has accepted it.
fn trajectory_of(world: &CliFixture, session: &Value) -> Value {
    let ran = world.run(&["export", session.as_str().unwrap(), "--format", "atif"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let python = std::env::var_os("ATIF_PYTHON");
    let mut python = Command::new(python.unwrap_or_else(|| "python3".into()));
    python.args(["-c", VALIDATOR]).stdin(Stdio::piped()).stderr(Stdio::piped());
    match python.spawn() {
        Err(_) => eprintln!("skipped: there is no python3"),
        Ok(mut child) => {
            let _ = child.stdin.take().unwrap().write_all(ran.out.as_bytes());
            let out = child.wait_with_output().unwrap();
            match out.status.code() {
                Some(77) => eprintln!("skipped: neither harbor nor atif is installed for python3"),
                code => assert_eq!(code, Some(0), "{}", String::from_utf8_lossy(&out.stderr)),
            }
        }
    }
    ran.json()
}

fn run_with_prices(world: &CliFixture, server: &Server) -> CommandResult {
    let prices = world.write("prices.toml", PRICES).path("prices.toml");
    let prices = format!("costs.prices_file={}", prices.display());
    world.run_with_server(server, &["--set", &prices, "--json"])
}

fn sources(trajectory: &Value) -> Vec<&str> {
    let steps = trajectory["steps"].as_array().unwrap();
    for (index, step) in steps.iter().enumerate() {
        assert_eq!(step["step_id"], index + 1);
    }
    steps.iter().map(|step| step["source"].as_str().unwrap()).collect()
}

#[test]
fn a_trajectory_has_the_messages_the_calls_and_their_results() {
    let world = CliFixture::new();
    world.write("a.txt", "one\n");
    let server = Server::new([
        chat::calls(&[("r", "read_file", r#"{"path": "a.txt"}"#), ("x", "read_file", "[]")]),
        chat::text("It says one."),
    ]);
    let ran = run_with_prices(&world, &server);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let trajectory = trajectory_of(&world, &ran.json()["session_id"]);
    assert_eq!(trajectory["schema_version"], "ATIF-v1.7");
    assert_eq!(trajectory["session_id"], ran.json()["session_id"]);
    let agent = &trajectory["agent"];
    assert_eq!([&agent["name"], &agent["model_name"]], ["architect", "openai-chat/fake"]);
    let tools = agent["tool_definitions"].as_array().unwrap();
    assert!(tools.iter().any(|tool| tool["function"]["name"] == "read_file"));
    assert_eq!(sources(&trajectory), ["system", "user", "agent", "agent"]);
    let steps = trajectory["steps"].as_array().unwrap();
    assert_eq!(steps[1]["message"], "Do it.");
    assert_eq!(steps[3]["message"], "It says one.");
    let calls = &steps[2]["tool_calls"];
    assert_eq!(calls[0]["arguments"], json!({"path": "a.txt"}));
    // Arguments that are not an object are stored beside the empty arguments.
    assert_eq!(calls[1]["arguments"], json!({}));
    assert_eq!(calls[1]["extra"]["arguments_text"], "[]");
    let results = steps[2]["observation"]["results"].as_array().unwrap();
    assert_eq!((results.len(), &results[0]["source_call_id"]), (2, &calls[0]["tool_call_id"]));
    assert!(results[0]["content"].as_str().unwrap().contains("one"), "{results:?}");
    let totals = &trajectory["final_metrics"];
    assert_eq!(totals["total_prompt_tokens"], ran.json()["usage"]["input_tokens"]);
    assert_eq!(totals["total_steps"], 4);
    let cost = |value: &Value| value.as_f64().unwrap();
    let sum = cost(&steps[2]["metrics"]["cost_usd"]) + cost(&steps[3]["metrics"]["cost_usd"]);
    assert!((sum - cost(&totals["total_cost_usd"])).abs() < 1e-9, "{totals}");
    assert!((sum - cost(&ran.json()["cost"])).abs() < 1e-9, "{totals}");
}

#[test]
fn the_trajectories_of_sub_agents_are_in_that_of_their_dispatcher() {
    let world = CliFixture::new();
    world.write("a.txt", "one\n");
    let dispatch = |id| {
        let arguments = json!({"agent": "review", "task": format!("Look into {id}.")});
        (id, "dispatch_subagent", arguments.to_string())
    };
    let [first, second] = [dispatch("d"), dispatch("e")];
    let server = Server::new([
        chat::calls(&[(first.0, first.1, &first.2)]),
        chat::calls(&[("r", "read_file", r#"{"path": "a.txt"}"#)]),
        chat::text("It says one."),
        chat::calls(&[(second.0, second.1, &second.2)]),
        chat::text("It still does."),
        chat::text("The review is good."),
    ]);
    let ran = run_with_prices(&world, &server);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let trajectory = trajectory_of(&world, &ran.json()["session_id"]);
    let subagents = trajectory["subagent_trajectories"].as_array().unwrap();
    assert_eq!(subagents.len(), 2);
    let finals =
        subagents.iter().map(|one| &one["steps"].as_array().unwrap().last().unwrap()["message"]);
    assert_eq!(finals.collect::<Vec<_>>(), ["It says one.", "It still does."]);
    for (step, subagent) in [(2, &subagents[0]), (3, &subagents[1])] {
        let result = &trajectory["steps"][step]["observation"]["results"][0];
        assert_eq!(
            result["subagent_trajectory_ref"][0]["trajectory_id"],
            subagent["trajectory_id"]
        );
    }
    // The cost of a dispatcher includes that of its sub-agents.
    let total = trajectory["final_metrics"]["total_cost_usd"].as_f64().unwrap();
    assert!((total - ran.json()["cost"].as_f64().unwrap()).abs() < 1e-9, "{total}");
    // Traces of the session and of its trajectory include them too, each at the call that dispatched it.
    world.write("own.json", &trajectory.to_string());
    for name in ["last", "own.json"] {
        let trace = world.run(&["trace", name, "--json"]).json();
        let subagents = trace["subagent_traces"].as_array().unwrap();
        for (index, subagent) in subagents.iter().enumerate() {
            assert_eq!(subagent["call"], trace["tools"][index]["call"], "{name}");
            let begun = |of: &Value| of["begun_ms"].as_f64();
            assert!(begun(subagent) >= begun(&trace["tools"][index]), "{name}");
        }
        assert_eq!((subagents.len(), &trace["cost"]), (2, &ran.json()["cost"]), "{name}");
        assert_eq!(world.run(&["trace", name, "--html", "page.html"]).code, 0);
        assert_eq!(world.read("page.html").matches("sub-agent review").count(), 2, "{name}");
    }
    // A fork includes the sub-agents of the copied part, whose costs are among its own.
    let session = ran.json()["session_id"].as_str().unwrap().to_owned();
    assert_eq!(world.run(&["fork", &session]).code, 0);
    let fork = world.run(&["trace", "last", "--json"]).json();
    assert_ne!(fork["session_id"], session);
    assert_eq!(fork["subagent_traces"].as_array().unwrap().len(), 2);
    assert_eq!(fork["cost"], ran.json()["cost"]);
    // The sub-agents of a removed session are removed with it.
    let removed = world.run(&["sessions", "rm", &session, "--json"]).json();
    assert_eq!(removed["removed"].as_array().unwrap().len(), 3, "{removed}");
    assert_eq!(world.run(&["sessions", "--json"]).json().as_array().unwrap().len(), 1);
}

#[test]
fn a_session_is_exported_as_records_by_default() {
    let world = CliFixture::new();
    let ran = world.run_script("[[turn]]\ntext = \"Done.\"\n", &[]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let [one, other] = [&["export", "last"][..], &["sessions", "export", "last"]];
    let [one, other] = [world.run(one), world.run(other)];
    assert_eq!((one.code, &one.out), (0, &other.out));
    assert!(one.out.starts_with("{\"seq\":0,"), "{}", one.out);
    let ran = world.run(&["export", "nothing", "--format", "atif"]);
    assert_eq!((ran.code, &*ran.out), (3, ""), "{}", ran.err);
}

/// A trajectory by another program, with parts that this one doesn't have.
const FOREIGN: &str = r#"{"schema_version": "ATIF-v1.4", "session_id": "s", "agent": {"name": "other", "version": "2"}, "steps": [
    {"step_id": 1, "timestamp": "2026-01-01T00:00:00Z", "source": "user", "message": [{"type": "text", "text": "Look."}, {"type": "image"}]},
    {"step_id": 2, "timestamp": "2026-01-01T00:00:02.5+00:00", "source": "agent", "message": "", "llm_call_count": 1,
     "tool_calls": [{"tool_call_id": "c", "function_name": "ls", "arguments": {}}],
     "observation": {"results": [{"source_call_id": "c", "content": "a.txt"}]}, "metrics": {"prompt_tokens": 10, "cost_usd": 0.5}}]}"#;

#[test]
fn a_trajectory_is_shown_like_a_session() {
    let world = CliFixture::new();
    let ran = world.run_script("[[turn]]\ntext = \"Done.\"\n", &["--json"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let exported = world.run(&["export", "last", "--format", "atif"]);
    world.write("own.json", &exported.out).write("foreign.json", FOREIGN).write("bad.json", "{}");
    let trace = |name| world.run(&["trace", name, "--json"]).json();
    let (own, session) = (trace("own.json"), trace("last"));
    for key in ["session_id", "llm_calls", "tokens", "model", "agent"] {
        assert_eq!(own[key], session[key], "{key}");
    }
    let foreign = trace("foreign.json");
    assert_eq!((&foreign["duration_ms"], &foreign["cost"]), (&json!(2500.0), &json!(0.5)));
    let texts = foreign["messages"].as_array().unwrap().iter().map(|message| &message["text"]);
    assert_eq!(texts.collect::<Vec<_>>(), ["Look.\n[image]", "{}", "a.txt"]);
    assert_eq!(foreign["tools"][0]["status"], "ok");
    let page = world.run(&["trace", "foreign.json", "--html", "page.html"]);
    assert_eq!(page.code, 0, "{}", page.err);
    assert!(world.read("page.html").contains("a.txt"));
    let bad = world.run(&["trace", "bad.json"]);
    assert_eq!(bad.code, 3, "{}", bad.err);
    assert!(bad.err.contains("bad.json is no trajectory in the ATIF format"), "{}", bad.err);
}
