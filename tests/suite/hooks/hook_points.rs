//! The points of a run, and hooks around the model.

use std::sync::Arc;

use architect::hooks::{HookChanges, HookFailurePolicy, HookInput, HookMatcher, HookOutput, Hooks};
use architect::port::{EffectContext, HookOutcome, HookPoint};
use architect::types::{FaultKind, ToolStatus};

use super::fixture::{PointLog, ScriptedReply, always_answer, denial, logging_hooks, run};

const WRITE: ScriptedReply = ScriptedReply::Writes(&[("a.txt", "A")]);

fn at(point: HookPoint, answer: HookOutput) -> Hooks {
    Hooks::new().with(HookMatcher::for_point(point, "guard"), always_answer(answer))
}

#[test]
fn hook_points_are_reached_in_order() {
    let log = PointLog::default();
    let ended = run(&[WRITE, ScriptedReply::Text("done")], logging_hooks(&log));
    assert_eq!(ended.outcome(), ("llm_done", "done".to_owned()));
    let expected = [
        "session_start",
        "pre_llm_call",
        "post_llm_call",
        "pre_tool_use",
        "post_edit",
        "post_tool_use",
        "pre_llm_call",
        "post_llm_call",
        "stop",
    ];
    assert_eq!(*log.lock().unwrap(), expected);
    let reported: Vec<_> = ended.record.hook_runs.iter().map(|run| run.point.as_str()).collect();
    assert_eq!(reported, expected);
}

#[test]
fn a_call_that_failed_is_an_error_and_the_next_attempt_goes_on() {
    let log = PointLog::default();
    let ended = run(
        &[ScriptedReply::Fails(FaultKind::Server), ScriptedReply::Text("done")],
        logging_hooks(&log),
    );
    assert_eq!(ended.outcome().0, "llm_done");
    let expected = ["session_start", "pre_llm_call", "on_error", "post_llm_call", "stop"];
    assert_eq!(*log.lock().unwrap(), expected);
}

#[test]
fn a_hook_before_a_call_changes_prompt_and_tools_of_that_call() {
    let changes = HookChanges {
        system: Some("another system".to_owned()),
        tools: Some(vec!["read_file".to_owned(), "invented".to_owned()]),
        ..HookChanges::default()
    };
    let ended = run(
        &[ScriptedReply::Text("done")],
        at(HookPoint::PreLlmCall, HookOutput::Continue(changes)),
    );
    assert_eq!(ended.record.system, ["another system"]);
    assert_eq!(ended.record.tools, [["read_file"]]);
}

#[test]
fn a_tool_that_a_hook_has_removed_is_not_called() {
    let changes =
        HookChanges { tools: Some(vec!["read_file".to_owned()]), ..HookChanges::default() };
    let hooks = at(HookPoint::PreLlmCall, HookOutput::Continue(changes));
    let ended = run(&[WRITE, ScriptedReply::Text("done")], hooks);
    let (status, text) = &ended.results()[0];
    assert_eq!(*status, ToolStatus::Denied, "{text}");
    assert!(text.contains("removed the tool write_file"), "{text}");
}

#[test]
fn what_hooks_add_reaches_the_model_before_its_next_call() {
    let hooks = Hooks::new()
        .with(
            HookMatcher::for_point(HookPoint::SessionStart, "begin"),
            always_answer(HookOutput::context("first")),
        )
        .with(
            HookMatcher::for_point(HookPoint::PostLlmCall, "after"),
            always_answer(HookOutput::context("second")),
        );
    let ended = run(&[WRITE, ScriptedReply::Text("done")], hooks);
    assert_eq!(ended.messages_to_model(), ["[HOOK begin] first", "[HOOK after] second"]);
}

#[test]
fn a_denial_before_a_model_call_ends_the_run_without_the_call() {
    for (point, what) in [(HookPoint::SessionStart, "run"), (HookPoint::PreLlmCall, "call")] {
        let ended = run(&[ScriptedReply::Text("done")], at(point, denial("not today")));
        // The user's own hook, not the provider.
        assert_eq!(ended.outcome().0, "checks_failed");
        assert_eq!(ended.error(), format!("hook guard refuses the {what}: not today"));
        assert_eq!(ended.record.system.len(), 0);
    }
}

#[test]
fn a_denial_of_a_reply_ends_the_run_before_its_tools() {
    let ended =
        run(&[WRITE, ScriptedReply::Text("done")], at(HookPoint::PostLlmCall, denial("leaks")));
    assert_eq!(ended.error(), "hook guard refuses the reply: leaks");
    assert_eq!(ended.file("a.txt"), None);
}

#[test]
fn a_stop_hook_sends_an_answer_back() {
    let hook = |occasion: &HookInput, _: &EffectContext| match occasion {
        HookInput::Stop { answer, sent_back: 0 } if &**answer == "done" => {
            Ok(denial("run the tests"))
        }
        _ => Ok(HookOutput::default()),
    };
    let hooks = Hooks::new().with(HookMatcher::for_point(HookPoint::Stop, "tests"), hook);
    let ended = run(&[ScriptedReply::Text("done"), ScriptedReply::Text("really done")], hooks);
    assert_eq!(ended.outcome(), ("llm_done", "really done".to_owned()));
    assert_eq!(ended.messages_to_model(), ["[HOOK tests] run the tests"]);
}

/// Fault H10.
#[test]
fn a_stop_hook_that_never_agrees_does_not_hold_the_run_for_ever() {
    let ended = run(&vec![ScriptedReply::Text("done"); 20], at(HookPoint::Stop, denial("again")));
    assert_eq!(ended.outcome(), ("checks_failed", "done".to_owned()));
    assert!(ended.record.system.len() < 10, "{}", ended.record.system.len());
}

#[test]
fn a_panicking_hook_only_causes_a_warning() {
    let broken = |_: &HookInput, _: &EffectContext| panic!("broken");
    let hooks = HookPoint::ALL.into_iter().fold(Hooks::new(), |hooks, point| {
        hooks.with(HookMatcher::for_point(point, "broken"), broken)
    });
    let ended = run(&[WRITE, ScriptedReply::Text("done")], hooks);
    assert_eq!(ended.outcome(), ("llm_done", "done".to_owned()));
    assert_eq!(ended.file("a.txt").as_deref(), Some("A"));
    assert!(ended.record.hook_runs.iter().all(|run| run.outcome == HookOutcome::Failed));
}

#[test]
fn a_panicking_hook_that_must_agree_blocks_the_call() {
    let place = HookMatcher {
        on_failure: HookFailurePolicy::Block,
        tools: Some("write_*".to_owned()),
        ..HookMatcher::for_point(HookPoint::PreToolUse, "guard")
    };
    let hooks = Hooks::new().with(place, |_: &HookInput, _: &EffectContext| panic!("broken"));
    let ended = run(&[WRITE, ScriptedReply::Text("done")], hooks);
    assert_eq!(ended.file("a.txt"), None);
    assert!(
        ended.results()[0].1.contains("it failed unexpectedly: broken"),
        "{:?}",
        ended.results()
    );
}

#[test]
fn a_call_is_reported_with_its_hooks() {
    let log = PointLog::default();
    let ended = run(&[WRITE, ScriptedReply::Text("done")], logging_hooks(&log));
    let of_call = ended.record.hook_runs.iter().filter(|run| run.call.is_some());
    assert_eq!(of_call.count(), 3);
    assert_eq!(Arc::strong_count(&log), 1);
}
