//! Calls of a run in the log, reports, events and the trace.

use std::fs;

use serde_json::Value;

use crate::kit::cli::{CliFixture, wait_for_exit};

fn script(calls: &str) -> String {
    format!("[[turn]]\ncalls = [{calls}]\n[[turn]]\ntext = \"Done.\"\n")
}

const FAILS: &str = r#"{ name = "run_command", arguments = { command = "echo 1; echo first >&2; echo 'error: last' >&2; exit 3" } }"#;
const DENIED: &str = r#"{ name = "write_file", arguments = { path = "x", content = "" } }"#;

#[test]
fn a_failed_command_is_reported_with_its_code_and_last_error() {
    let world = CliFixture::new();
    let both = format!("{FAILS}, {DENIED}");
    let args = ["--mode", "yolo", "--deny", "write_file(x)", "--report", "markdown"];
    let ran = world.run_script(&script(&both), &args);
    assert!(ran.err.contains("✗ exit code 3: error: last\n"), "{}", ran.err);
    assert!(ran.err.contains("⛔ Denied: rule write_file(x) of permissions.deny"), "{}", ran.err);
    let row = ran.err.lines().find(|line| line.starts_with("| `run_command`")).unwrap();
    assert!(
        row.contains("| `echo 1; echo first") && row.contains("exit code 3: error: last |"),
        "{row}"
    );
    let row = ran.err.lines().find(|line| line.starts_with("| `write_file` | `x`")).unwrap();
    assert!(row.contains("permissions.deny"), "{row}");
}

#[test]
fn a_report_for_the_summary_of_a_step_is_added_to_it() {
    let world = CliFixture::new();
    let summary = world.path("summary");
    fs::write(&summary, "what another step wrote").unwrap();
    let path = summary.to_str().unwrap();
    let model = world.script_model(&script(FAILS));
    let run = |args: &[&str]| {
        let mut command = world
            .command(&[&["run", "Do it.", "--model", &model, "--mode", "yolo"], args].concat());
        let ran = wait_for_exit(command.env("GITHUB_STEP_SUMMARY", path).spawn().unwrap());
        assert_eq!(ran.code, 0, "{}", ran.err);
        ran
    };
    run(&["--report-file", path]);
    let ran = run(&["--report", "github"]);
    assert!(!ran.err.contains("Do it."), "{}", ran.err);
    let text = fs::read_to_string(&summary).unwrap();
    assert!(text.starts_with("what another step wrote\n"), "{text}");
    assert_eq!(text.matches("✅").count(), 2, "{text}");
    // Any other file is the report's own.
    let own = world.path("own.md");
    fs::write(&own, "old").unwrap();
    run(&["--report-file", own.to_str().unwrap()]);
    assert!(!fs::read_to_string(&own).unwrap().contains("old"));
    assert_eq!(fs::read_to_string(&summary).unwrap(), text);
}

#[test]
fn the_decision_on_a_call_is_reported_with_its_rule() {
    let world = CliFixture::new();
    let both = format!("{FAILS}, {DENIED}");
    let args = [
        "--mode",
        "confirm-sensitive",
        "--allow",
        "run_command",
        "--deny",
        "write_file(x)",
        "--output-format",
        "stream-json",
        "--log-file",
        "events.jsonl",
    ];
    let ran = world.run_script(&script(&both), &args);
    let decisions = |lines: &[Value]| -> Vec<(String, String)> {
        let ends = lines.iter().filter(|line| line["type"] == "tool_call_end");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        ends.map(|end| (text(&end["decision"]["verdict"]), text(&end["decision"]["rule"])))
            .collect()
    };
    let reported = decisions(&ran.lines());
    assert_eq!(reported.len(), 2, "{}", ran.out);
    let find =
        |wanted: &str| reported.iter().find(|(decision, _)| decision == wanted).unwrap().1.clone();
    assert!(find("allow").contains("permissions.allow"), "{reported:?}");
    assert!(find("deny").contains("permissions.deny"), "{reported:?}");
    let log = world.read("events.jsonl");
    let log: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(decisions(&log), reported);

    let session = ran.lines().pop().unwrap()["session_id"].as_str().unwrap().to_owned();
    let trace = world.run(&["trace", &session, "--json"]).json();
    let tools = trace["tools"].as_array().unwrap();
    assert!(tools.iter().all(|tool| tool["decision"]["rule"].is_string()), "{trace}");
    let calls: Vec<_> = trace["calls"]
        .as_array()
        .unwrap()
        .iter()
        .map(|call| (call["messages"].as_u64(), call["finish"].as_str()))
        .collect();
    assert_eq!(calls, [(Some(1), Some("tool_calls")), (Some(4), Some("stop"))]);
    let page = world.path("trace.html");
    world.run(&["trace", &session, "--html", page.to_str().unwrap()]);
    let page = fs::read_to_string(page).unwrap();
    assert!(
        page.contains("4 messages")
            && page.contains("finish stop")
            && page.contains("permissions.allow"),
        "{page}"
    );
}

#[test]
fn a_state_change_is_reported_with_its_event_and_guard() {
    let world = CliFixture::new();
    let call = r#"{ name = "list_files" }"#;
    let ran = world.run_script(&script(call), &["--output-format", "stream-json"]);
    let changes: Vec<Value> =
        ran.lines().into_iter().filter(|line| line["type"] == "state_change").collect();
    let acts = changes.iter().find(|change| change["to"] == "Executing").unwrap();
    assert_eq!(
        (acts["event"].as_str(), acts["guard"].as_str()),
        (Some("REPLIED"), Some("hasCalls")),
        "{acts}"
    );
    assert!(changes.iter().all(|change| change["event"].is_string()));
}
