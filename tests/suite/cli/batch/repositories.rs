//! Tasks with a repository: a worktree each, a patch, a prediction.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use super::fixture::{Batch, appending};

/// Runs git in a folder of the fixture.
fn git(batch: &Batch, folder: &str, args: &[&str]) -> String {
    let mut git = Command::new("git");
    git.args(["-c", "user.name=User", "-c", "user.email=user@localhost"]).args(args);
    let done =
        git.current_dir(batch.cli.path(folder)).env("HOME", batch.cli.home()).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

/// Returns a batch of two tasks on a repository, with commits tagged `v1` and `v2`.
fn on_repository() -> Batch {
    let batch = Batch::with_tasks(&[], &appending(0));
    batch.cli.write("repo/a.txt", "one\n");
    git(&batch, "repo", &["init", "-q", "-b", "main"]);
    for (tag, content) in [("v1", "one\n"), ("v2", "two\n")] {
        batch.cli.write("repo/a.txt", content);
        git(&batch, "repo", &["add", "."]);
        git(&batch, "repo", &["commit", "-q", "--allow-empty", "-m", tag]);
        git(&batch, "repo", &["tag", tag]);
    }
    let task = |id: &str, tag: &str| {
        json!({
            "id": id, "prompt": "x", "repo": "repo", "ref": tag,
            "setup": ["echo generated > setup.txt"], "checks": ["test -e ran", "grep -q one a.txt"],
        })
    };
    batch.cli.write("tasks.jsonl", &format!("{}\n{}\n", task("fix-1", "v1"), task("fix-2", "v2")));
    batch
}

#[test]
fn each_task_has_a_worktree_of_its_own_and_leaves_a_patch() {
    let batch = on_repository();
    let ran = batch.run(&["--jobs", "2"]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    // Neither commands of the model nor those of the manifest disturb each other.
    assert!(!ran.err.contains("warn: "), "{}", ran.err);
    let listed = batch.cli.run(&["sessions", "list"]);
    assert!(!listed.err.contains("was open to others"), "{}", listed.err);
    let checks = |result: &Value| {
        let checks = result["checks"].as_array().unwrap();
        checks.iter().map(|check| check["passed"].as_bool().unwrap()).collect::<Vec<_>>()
    };
    let results = batch.results();
    assert_eq!(checks(&results[0]), [true, true], "{}", results[0]);
    assert_eq!(checks(&results[1]), [true, false], "{}", results[1]);
    // The patch has the changes of the task, and not those of its setup.
    let patch = fs::read_to_string(results[0]["patch_file"].as_str().unwrap()).unwrap();
    assert!(patch.contains("+++ b/ran\n") && !patch.contains("setup.txt"), "{patch}");
    git(&batch, "repo", &["apply", "--check", results[0]["patch_file"].as_str().unwrap()]);
    assert_eq!(git(&batch, "repo", &["status", "--porcelain"]), "");
    let predictions = batch.lines("predictions.jsonl");
    assert_eq!(predictions[0]["instance_id"], "fix-1");
    assert_eq!(predictions[0]["model_patch"], patch);
    assert!(predictions[0]["model_name_or_path"].as_str().unwrap().starts_with("scripted/"));
    let branch = results[0]["worktree"]["branch"].as_str().unwrap();
    assert!(git(&batch, "repo", &["branch", "--list", branch]).contains(branch));
}

#[test]
fn an_unknown_commit_is_a_mistake() {
    let batch = on_repository();
    let tasks = batch.cli.read("tasks.jsonl").replace("\"v2\"", "\"v3\"");
    batch.cli.write("tasks.jsonl", &tasks);
    let ran = batch.run(&[]);
    assert_eq!(ran.code, 3, "{}", ran.err);
    assert!(ran.err.contains("tasks.jsonl:2: `ref`: ") && ran.err.contains("v3"), "{}", ran.err);
}

#[test]
fn what_a_session_has_done_stays_in_the_result_when_its_patch_can_not_be_made() {
    let batch = on_repository();
    batch.cli.write(
        "script.toml",
        &appending(0).replace("echo ran >> ran", "rm -r $(git rev-parse --git-dir)"),
    );
    batch.run(&["--sandbox", "off"]);
    for result in batch.results() {
        assert_eq!((&result["status"], &result["exit_code"]), (&json!("failed"), &json!(1)));
        assert_eq!((&result["output"], &result["llm_calls"]), (&json!("Done."), &json!(2)));
        assert!(result["error"].as_str().is_some_and(|error| error.contains("git")), "{result}");
    }
}
