//! Checks of every call by the registry.

use architect::policy::ConfirmMode;
use architect::port::{AuthorizationOutcome, PreparedCall, Toolbox};
use architect::tools::{ExecutionMode, ToolSettings};
use architect::types::{CallAccess, ToolCall, ToolResult, ToolStatus};
use serde_json::{Value, json};

use super::fixture::{ToolFixture, yolo_settings};
use crate::kit::effect::scope;

/// The schemas are valid JSON Schema, and in the subset that every provider takes.
#[test]
fn schemas_are_valid_and_plain() {
    fn check(schema: &Value) {
        if let Value::Object(fields) = schema {
            for key in ["$ref", "$defs", "definitions", "anyOf", "oneOf", "allOf", "format"] {
                assert!(!fields.contains_key(key), "{key} in {schema}");
            }
            assert!(fields.get("type").is_none_or(Value::is_string), "{schema}");
            fields.values().for_each(check);
        }
    }
    for spec in &*ToolFixture::new().registry.specs() {
        assert!(jsonschema::meta::is_valid(&spec.schema), "{}", spec.name);
        assert_eq!(spec.schema["type"], "object");
        assert_eq!(spec.schema["additionalProperties"], false);
        check(&spec.schema);
    }
}

/// Fault L47.
#[test]
fn an_unknown_tool_is_answered_with_those_there_are() {
    let result = ToolFixture::new().call("grepp", &json!({}));
    assert_eq!(result.status, ToolStatus::Unknown);
    let expected = "Tool 'grepp' not found. Available tools: read_file, write_file, edit_file, ";
    assert!(result.text.starts_with(expected), "{}", result.text);
}

/// Faults L44, L45.
#[test]
fn malformed_arguments_are_answered_with_what_is_wrong() {
    let world = ToolFixture::new();
    let result = world.call("read_file", &json!({"file": "a"}));
    assert_eq!(result.status, ToolStatus::Malformed);
    assert!(
        result.text.contains("unknown field `file`, expected one of `path`"),
        "{}",
        result.text
    );
    let result = world.call("read_file", &json!([1]));
    assert_eq!(result.status, ToolStatus::Malformed);
    assert!(result.text.contains("expected a JSON object, found an array"), "{}", result.text);
}

#[test]
fn only_the_tools_of_the_agent_can_run() {
    let allowed_tools = Some(vec!["read_*".to_owned()]);
    let world = ToolFixture::with(ToolSettings { allowed_tools, ..yolo_settings() }, |_| {});
    let names: Vec<_> = world.registry.specs().iter().map(|spec| spec.name.to_string()).collect();
    assert!(names.iter().all(|name| name.starts_with("read_")), "{names:?}");
    let result = world.call("write_file", &json!({"path": "a", "content": "b"}));
    assert_eq!(result.status, ToolStatus::Denied);
    assert!(result.text.contains("not among the tools of this agent"), "{}", result.text);
}

/// Faults T29, T30: without a terminal the call does not wait for an answer.
#[test]
fn a_confirmation_is_refused_when_no_one_can_give_it() {
    let world = ToolFixture::with(
        ToolSettings { mode: ConfirmMode::ConfirmSensitive, ..yolo_settings() },
        |_| {},
    );
    world.write("a", "text");
    world.ok("read_file", &json!({"path": "a"}));
    let result = world.call("run_command", &json!({"command": "touch x"}));
    assert_eq!(result.status, ToolStatus::Denied);
    assert!(result.text.contains("--allow 'run_command(touch x)'"), "{}", result.text);
    assert!(!world.path.join("x").exists());
}

#[test]
fn an_approved_call_has_a_reason() {
    let world = ToolFixture::new();
    let clear = world.authorize("list_files", &json!({})).unwrap();
    assert_eq!(&*clear.reason, "allowed: mode yolo");
}

#[test]
fn a_dry_run_reads_and_describes_the_rest() {
    let world = ToolFixture::with(
        ToolSettings { execution: ExecutionMode::DryRun, ..yolo_settings() },
        |_| {},
    );
    world.write("a", "text");
    assert_eq!(world.ok("read_file", &json!({"path": "a"})), "text");
    let output = world.ok("write_file", &json!({"path": "b", "content": "x\n"}));
    assert!(output.contains("it would have been: b (1 line)"), "{output}");
    assert_eq!(world.ok("run_command", &json!({"command": "cat a"})), "text\n[exit code 0]");
    world.ok("run_command", &json!({"command": "touch c"}));
    world.ok("run_command", &json!({"command": "cat a > c"}));
    assert!(!world.path.join("b").exists() && !world.path.join("c").exists());
    let planned = world.registry.planned_calls();
    let planned: Vec<_> = planned.iter().map(|p| format!("{} {}", p.tool, p.summary)).collect();
    assert_eq!(planned, ["write_file b (1 line)", "run_command touch c", "run_command cat a > c"]);
}

#[test]
fn calls_that_do_not_touch_the_same_may_run_together() {
    let world = ToolFixture::new();
    let access = |tool: &str, arguments: Value| {
        world.registry.prepare(&ToolCall::new("c".into(), tool, &arguments.to_string())).access()
    };
    assert_eq!(access("read_file", json!({"path": "./d/../a"})), CallAccess::read("a"));
    assert_eq!(access("write_file", json!({"path": "a", "content": ""})), CallAccess::write("a"));
    assert_eq!(access("run_command", json!({"command": "cat a | wc -l"})), CallAccess::read(""));
    assert_eq!(access("run_command", json!({"command": "cat a > b"})), CallAccess::Exclusive);
    assert_eq!(access("run_command", json!({"command": "make"})), CallAccess::Exclusive);
    let world = ToolFixture::with(
        ToolSettings { mode: ConfirmMode::ConfirmAll, ..yolo_settings() },
        |_| {},
    );
    for (tool, arguments) in [("list_files", "{}"), ("run_command", r#"{"command": "ls"}"#)] {
        let call = ToolCall::new("c".into(), tool, arguments);
        assert_eq!(world.registry.prepare(&call).access(), CallAccess::Exclusive, "{tool}");
    }
}

fn prepare(world: &ToolFixture, tool: &str, arguments: &Value) -> Box<dyn PreparedCall> {
    let mut call = world.registry.prepare(&ToolCall::new("c".into(), tool, &arguments.to_string()));
    call.access();
    call
}

fn run(call: Box<dyn PreparedCall>) -> ToolResult {
    match call.authorize(&scope()) {
        AuthorizationOutcome::Approved { call, .. } => call(&scope()),
        AuthorizationOutcome::Rejected(result) => result,
        AuthorizationOutcome::Abort | AuthorizationOutcome::Edited { .. } => panic!("aborted"),
    }
}

/// The calls of a reply are prepared together, and each runs after the ones before it.
#[test]
fn a_patch_finds_the_file_that_an_earlier_call_of_the_reply_makes() {
    let world = ToolFixture::new();
    let write = prepare(&world, "write_file", &json!({"path": "x/f", "content": "a\n"}));
    let patch = "--- x/f\n+++ x/f\n@@ -1 +1 @@\n-a\n+b\n";
    let patch = prepare(&world, "apply_patch", &json!({ "patch": patch }));
    assert!(run(write).is_ok());
    let result = run(patch);
    assert!(result.is_ok(), "{}", result.text);
    assert_eq!(world.read("x/f"), "b\n");
}

#[test]
fn a_command_is_decided_by_the_configuration_that_earlier_calls_leave() {
    let settings = ToolSettings { mode: ConfirmMode::ConfirmSensitive, ..yolo_settings() };
    let world = ToolFixture::with(settings, |_| {});
    world.write(".git/config", "[core]\n\tbare = false\n");
    let status = |world| prepare(world, "run_command", &json!({"command": "git status"}));
    let approved = |call: Box<dyn PreparedCall>| {
        matches!(call.authorize(&scope()), AuthorizationOutcome::Approved { .. })
    };
    assert!(approved(status(&world)));
    let call = status(&world);
    world.write(".git/config", "[core]\n\tfsmonitor = \"touch ran; false #\"\n");
    assert!(!approved(call));
}

#[test]
fn a_result_names_the_file_that_was_read() {
    let world = ToolFixture::new();
    world.write("d/a", "text");
    let result = world.call("read_file", &json!({"path": "./d/../d/a"}));
    assert_eq!(*result.reads, ["d/a".into()]);
    assert!(world.call("read_file", &json!({"path": "none"})).reads.is_empty());
}

#[test]
fn a_long_result_is_shortened_and_kept() {
    let world = ToolFixture::new();
    let lines: Vec<String> = (1..=2_000).map(|n| format!("line {n}\n")).collect();
    world.write("long", lines.concat());
    let output = world.ok("read_file", &json!({"path": "long"}));
    assert!(output.starts_with("line 1\n"), "{output}");
    assert!(output.contains("line 40\n[... 1940 lines omitted ...]\nline 1981\n"), "{output}");
    assert!(
        output.ends_with("[The full result is stored: read_output with call_id \"call-1\".]"),
        "{output}"
    );
}
