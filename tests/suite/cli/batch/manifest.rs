//! Mistakes in a manifest: all at once, with lines, and nothing is started.

use std::io::Write;
use std::process::Stdio;

use super::fixture::{ANSWER, Batch};
use crate::kit::cli::wait_for_exit;

#[test]
fn every_mistake_is_reported_with_its_line_and_nothing_is_started() {
    let batch = Batch::new();
    let tasks = r#"
[[task]]
id = "a"
promt = "x"

[[task]]
id = "a"
prompt = "x"
workspace = "nowhere"

[[task]]
id = "b"
prompt = "x"
limits = { max_steps = -1 }
"#;
    batch.cli.write("script.toml", ANSWER).write("tasks.toml", tasks);
    let args = ["batch", "tasks.toml", "--out", "out", "--model", "scripted/script.toml"];
    let ran = batch.cli.run(&args);
    assert_eq!(ran.code, 3, "{}", ran.err);
    for expected in [
        "5 mistakes",
        "tasks.toml:2: `prompt` is missing",
        "tasks.toml:4: unknown key `promt`, did you mean `prompt`?",
        "tasks.toml:6: the id `a` is used in line 2 already",
        "tasks.toml:9: `workspace`: there is no folder",
        "tasks.toml:11: `limits.max_steps`",
    ] {
        assert!(ran.err.contains(expected), "{expected}: {}", ran.err);
    }
    assert!(!batch.out("").exists());
}

/// Mistakes that are all alike have the hints that a run would give.
#[test]
fn a_missing_model_is_reported_with_what_helps() {
    let batch = Batch::with_tasks(&["a", "b"], ANSWER);
    let ran = batch.cli.run(&["batch", "tasks.jsonl", "--out", "out"]);
    let expected = "no model is chosen\n  hint: name one: --model PROVIDER/NAME";
    assert!(ran.code == 3 && ran.err.contains(expected), "{}", ran.err);
}

#[test]
fn settings_models_and_agents_are_checked_before_anything_is_started() {
    let batch = Batch::new();
    let lines = r#"{"id": "a", "prompt": "x", "limits": {"max_steps": -1}}
{"id": "b", "prompt": "x", "set": {"llm.modle": "y"}}
{"id": "c", "prompt": "x", "agent": "reviewer"}
{"id": "d", "prompt": "x", "model": "scripted/missing.toml"}
{"id": "e", "prompt": "x", "repo": "."}
{"id": "f", "prompt": "x", "set": {"sandbox": {"network": "maybe"}}}
"#;
    batch.cli.write("script.toml", ANSWER).write("tasks.jsonl", lines);
    let args =
        ["batch", "tasks.jsonl", "--out", "out", "--model", "scripted/script.toml", "--json"];
    let ran = batch.cli.run(&args);
    assert_eq!(ran.code, 3, "{}", ran.err);
    for expected in [
        "tasks.jsonl:1: `limits.max_steps`",
        "tasks.jsonl:2: unknown key `llm.modle`, did you mean `llm.model`?",
        "tasks.jsonl:3: unknown agent `reviewer`",
        "tasks.jsonl:4: ",
        "tasks.jsonl:5: `repo`: ",
        "tasks.jsonl:6: ",
    ] {
        assert!(ran.err.contains(expected), "{expected}: {}", ran.err);
    }
    assert_eq!(ran.json()["exit_code"], 3);
    assert!(!batch.out("").exists());
}

#[test]
fn no_mistake_hides_another_one() {
    let batch = Batch::new();
    let all_wrong = r#"{"id": "a", "workspace": "nowhere", "agent": "reviewer", "model": "scripted/no", "set": {"llm.modle": 1, "limits.max_steps": -1}}"#;
    let rest = "not json\n{\"id\": \"a\", \"promt\": \"x\"}\n";
    let many = "{\"prompt\": \"x\"}\n".repeat(10);
    batch
        .cli
        .write("script.toml", ANSWER)
        .write("tasks.jsonl", &format!("{all_wrong}\n{rest}{many}"));
    let ran = batch.run(&[]);
    assert_eq!(ran.code, 3, "{}", ran.err);
    for expected in [
        "tasks.jsonl:1: `prompt` is missing",
        "tasks.jsonl:1: `workspace`: there is no folder",
        "tasks.jsonl:1: unknown key `llm.modle`",
        "tasks.jsonl:1: `limits.max_steps`",
        "tasks.jsonl:1: unknown agent `reviewer`",
        "tasks.jsonl:1: could not read",
        "tasks.jsonl:2: it is not JSON",
        "tasks.jsonl:3: unknown key `promt`, did you mean `prompt`?",
        "tasks.jsonl:3: the id `a` is used in line 1 already",
        "tasks.jsonl:4: `id` is missing (and so in 9 more lines)",
    ] {
        assert_eq!(ran.err.matches(expected).count(), 1, "{expected}: {}", ran.err);
    }
    assert!(!batch.out("").exists());
}

#[test]
fn a_mistake_in_a_variant_has_the_line_of_the_variant() {
    let batch = Batch::with_tasks(&["a", "b"], ANSWER);
    let variants =
        "[[variant]]\nid = \"v\"\n\n[[variant]]\nid = \"w\"\nlimits = { max_step = 3 }\n";
    batch.cli.write("v.toml", variants);
    let ran = batch.run(&["--variants", "v.toml"]);
    assert_eq!(ran.code, 3, "{}", ran.err);
    let expected = "v.toml:4: unknown key `limits.max_step`, did you mean `limits.max_steps`?";
    assert_eq!(ran.err.matches(expected).count(), 1, "{}", ran.err);
    assert!(!ran.err.contains("v.toml:1"), "{}", ran.err);
}

#[test]
fn options_of_the_command_are_checked_too() {
    let batch = Batch::with_tasks(&["a"], ANSWER);
    for args in [
        &["--shard", "3/2"][..],
        &["--jobs", "0"],
        &["--set", "llm.modle=x"],
        &["--variants", "missing.toml"],
        // The script has no price.
        &["--budget", "1"],
    ] {
        assert_eq!(batch.run(args).code, 3, "{args:?}");
    }
    assert!(!batch.out("").exists());
}

#[test]
fn the_tasks_can_come_from_a_pipe() {
    let batch = Batch::with_tasks(&[], ANSWER);
    let args = ["batch", "-", "--model", "scripted/script.toml"];
    let mut child = batch.cli.command(&args).stdin(Stdio::piped()).spawn().unwrap();
    let mut pipe = child.stdin.take().unwrap();
    pipe.write_all(b"[[task]]\nid = \"a\"\nprompt = \"x\"\n").unwrap();
    drop(pipe);
    let ran = wait_for_exit(child);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(batch.cli.path(".architect/batch/stdin/results.jsonl").exists());
}
