//! Hooks around tool calls.

use std::fs;

use architect::hooks::{HookChanges, HookInput, HookMatcher, HookOutput, Hooks};
use architect::port::{EffectContext, HookPoint};
use architect::types::ToolStatus;
use serde_json::json;

use super::fixture::{PointLog, ScriptedReply, always_answer, denial, logging_hooks, run};

const WRITE: ScriptedReply = ScriptedReply::Writes(&[("a.txt", "A")]);
const DONE: ScriptedReply = ScriptedReply::Text("done");

fn at(point: HookPoint, answer: HookOutput) -> Hooks {
    Hooks::new().with(HookMatcher::for_point(point, "guard"), always_answer(answer))
}

#[allow(clippy::needless_pass_by_value)] // reads better where it is called
fn input(input: serde_json::Value) -> HookOutput {
    let input = input.as_object().cloned();
    HookOutput::Continue(HookChanges { input, ..HookChanges::default() })
}

#[test]
fn a_denial_by_a_hook_is_the_result_and_the_run_continues() {
    let ended = run(&[WRITE, DONE], at(HookPoint::PreToolUse, denial("not on Fridays")));
    let text = "Denied by hook guard: not on Fridays".to_owned();
    assert_eq!(ended.results(), [(ToolStatus::Denied, text)]);
    assert_eq!((ended.file("a.txt"), ended.outcome().0), (None, "llm_done"));
}

#[test]
fn a_changed_input_is_what_runs_and_is_shown_to_the_model() {
    let answer = input(json!({ "path": "b.txt", "content": "B" }));
    let ended = run(&[WRITE, DONE], at(HookPoint::PreToolUse, answer));
    assert_eq!((ended.file("a.txt"), ended.file("b.txt").as_deref()), (None, Some("B")));
    let text = "written\n[HOOK guard] changed the input to {\"path\":\"b.txt\",\"content\":\"B\"}";
    assert_eq!(ended.results(), [(ToolStatus::Ok, text.to_owned())]);
}

/// Fault H7: the rules apply to the call that runs, not to the one of the model.
#[test]
fn a_changed_input_is_checked_by_schema_and_rules_again() {
    let ended = run(&[WRITE, DONE], at(HookPoint::PreToolUse, input(json!({ "file": "b.txt" }))));
    assert_eq!(ended.results()[0].0, ToolStatus::Malformed);
    let secret = input(json!({ "path": "secret.txt", "content": "" }));
    let ended = run(&[WRITE, DONE], at(HookPoint::PreToolUse, secret));
    assert_eq!(ended.results()[0].0, ToolStatus::Denied);
    assert_eq!(ended.file("secret.txt"), None);
}

/// A hook's consent loosens nothing, and the hook is not even asked about calls that cannot run.
#[test]
fn a_call_that_the_rules_refuse_is_refused_before_any_hook_is_asked() {
    let log = PointLog::default();
    let says = [ScriptedReply::Writes(&[("secret.txt", "A")]), DONE];
    let ended = run(&says, logging_hooks(&log));
    assert_eq!(ended.results(), [(ToolStatus::Denied, "by the rules".to_owned())]);
    assert!(!log.lock().unwrap().contains(&"pre_tool_use"));
}

#[test]
fn a_hook_behind_a_call_changes_the_result_for_the_model() {
    let changes = HookChanges {
        output: Some("\u{1b}[32mshort\u{1b}[0m".to_owned()),
        context: Some("and mind the style".to_owned()),
        ..HookChanges::default()
    };
    let ended = run(&[WRITE, DONE], at(HookPoint::PostToolUse, HookOutput::Continue(changes)));
    let text = "short\n[HOOK guard] and mind the style".to_owned();
    assert_eq!(ended.results(), [(ToolStatus::Ok, text)]);
}

#[test]
fn a_denial_after_a_call_makes_it_a_failure() {
    let ended = run(&[WRITE, DONE], at(HookPoint::PostToolUse, denial("bad style")));
    let text = "written\nRefused by hook guard: bad style".to_owned();
    assert_eq!(ended.results(), [(ToolStatus::Failed, text)]);
    assert_eq!(ended.file("a.txt").as_deref(), Some("A"));
}

#[test]
fn only_hooks_for_that_tool_and_that_file_are_asked() {
    let tools = |tools: &str| HookMatcher {
        tools: Some(tools.to_owned()),
        ..HookMatcher::for_point(HookPoint::PreToolUse, "guard")
    };
    let hooks = Hooks::new().with(tools("read_*|grep"), always_answer(denial("never")));
    assert_eq!(run(&[WRITE, DONE], hooks).results()[0].0, ToolStatus::Ok);
    let place =
        HookMatcher::for_point(HookPoint::PostEdit, "rustfmt").with_files(["*.rs"]).unwrap();
    let says =
        [ScriptedReply::Writes(&[("a.txt", "A")]), ScriptedReply::Writes(&[("b.rs", "B")]), DONE];
    let ended = run(&says, Hooks::new().with(place, always_answer(HookOutput::default())));
    let texts: Vec<String> = ended.results().into_iter().map(|(_, text)| text).collect();
    assert_eq!(texts, ["written", "written\nHook rustfmt: ✓"]);
}

#[test]
fn a_message_of_an_edit_hook_is_added_to_the_result() {
    let check = |occasion: &HookInput, _: &EffectContext| match occasion {
        HookInput::PostEdit { file, .. } if *file == "a.txt" => {
            Ok(HookOutput::context("1 file left"))
        }
        _ => Ok(denial("line too long")),
    };
    let hooks = || Hooks::new().with(HookMatcher::for_point(HookPoint::PostEdit, "ruff"), check);
    let ended = run(&[WRITE, DONE], hooks());
    assert_eq!(ended.results()[0].1, "written\nHook ruff: ✓\n1 file left");
    let ended = run(&[ScriptedReply::Writes(&[("b.txt", "B")]), DONE], hooks());
    let text = "written\nHook ruff: ✗\nline too long".to_owned();
    assert_eq!(ended.results(), [(ToolStatus::Failed, text)]);
}

/// Fault H6: a change of the file by a hook before the call is there when the call is authorized.
#[test]
fn a_hook_before_a_call_ends_before_the_call_is_authorized() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.txt");
    let seen = path.clone();
    let writes = move |_: &HookInput, _: &EffectContext| {
        fs::write(&seen, "by the hook").unwrap();
        Ok(HookOutput::default())
    };
    let hooks = Hooks::new().with(HookMatcher::for_point(HookPoint::PreToolUse, "writes"), writes);
    let ended = super::fixture::run_in(folder, &[WRITE, DONE], hooks);
    assert_eq!(ended.file("a.txt").as_deref(), Some("A"));
}
