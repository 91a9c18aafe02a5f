//! The results of a batch.

use std::fs;

use serde_json::{Value, json};

use super::fixture::{ANSWER, Batch, COMMAND, appending};
use crate::cli::crash::strace::under_strace;
use crate::kit::cli::wait_for_exit;

#[test]
fn every_cell_has_a_result_and_a_session() {
    let batch = Batch::with_tasks(&["a", "b", "c"], ANSWER);
    let ran = batch.run(&[]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.starts_with("3 cells: 3 succeeded\n"), "{}", ran.out);
    assert_eq!(ran.err.matches("✓ ").count(), 3, "{}", ran.err);
    for (id, output) in batch.by_id("output") {
        assert_eq!(output, "Done.", "{id}");
    }
    let result = &batch.results()[1];
    let session = result["session_id"].as_str().unwrap();
    assert!(batch.out(&format!("sessions/{session}.jsonl")).exists());
    assert_eq!((&result["id"], &result["variant"]), (&json!("b"), &Value::Null));
    assert_eq!((&result["checks"], &result["patch_file"]), (&json!([]), &Value::Null));
    assert_eq!((&result["status"], &result["exit_code"]), (&json!("success"), &json!(0)));
    let ran = batch.cli.run(&["replay", session, "--verify", "--set", "sessions.dir=out"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
}

/// No user can be asked. A model that continues without the call may still succeed, so the command reports the denied
/// calls.
#[test]
fn denied_calls_are_reported_once() {
    let batch = Batch::with_tasks(&["a", "b"], &appending(0));
    let args = ["batch", "tasks.jsonl", "--out", "out", "--model", "scripted/script.toml"];
    let ran = batch.cli.run(&args);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(
        ran.err.contains("2 calls were denied: a batch can't ask for confirmation"),
        "{}",
        ran.err
    );
    let again = batch.cli.run(&args);
    assert!(again.code == 0 && !again.err.contains("denied"), "{}", again.err);
}

#[test]
fn the_same_command_again_runs_nothing_twice_and_a_changed_task_runs_again() {
    let batch = Batch::with_tasks(&["a", "b"], &appending(0));
    assert_eq!(batch.run(&[]).code, 0);
    let before = batch.by_id("session_id");
    let ran = batch.run(&[]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.err.contains("2 of 2 cells are finished"), "{}", ran.err);
    assert_eq!(batch.by_id("session_id"), before);
    let tasks = batch.cli.read("tasks.jsonl").replace("Do b.", "Do b again.");
    batch.cli.write("tasks.jsonl", &tasks);
    assert_eq!(batch.run(&[]).code, 0);
    assert_eq!((batch.runs_of("a"), batch.runs_of("b")), (1, 2));
    assert_eq!(batch.results().len(), 2);
}

#[test]
fn a_failed_check_or_setup_is_a_result() {
    let batch = Batch::with_tasks(&["a", "b", "c"], ANSWER);
    let lines = [
        json!({"id": "a", "prompt": "x", "workspace": "a", "setup": ["touch made"], "checks": ["test -e made # ghp_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8", "test -e other"]}),
        json!({"id": "b", "prompt": "x", "workspace": "b", "setup": ["echo no; exit 7"]}),
        json!({"id": "c", "prompt": "x", "workspace": "c", "checks": "true"}),
    ];
    batch.cli.write("tasks.jsonl", &lines.map(|line| format!("{line}\n")).concat());
    let ran = batch.run(&[]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    let results = batch.results();
    let outcome = |result: &Value| {
        [&result["status"], &result["stop_reason"], &result["exit_code"]].map(Clone::clone)
    };
    assert_eq!(outcome(&results[0]), [json!("partial"), json!("checks_failed"), json!(2)]);
    let checks = results[0]["checks"].as_array().unwrap();
    let passed: Vec<_> = checks.iter().map(|check| (&check["name"], &check["passed"])).collect();
    assert_eq!(
        passed,
        [
            (&json!("test -e made # ghp_***"), &json!(true)),
            (&json!("test -e other"), &json!(false))
        ]
    );
    assert_eq!(outcome(&results[1]), [json!("failed"), Value::Null, json!(1)]);
    let error = results[1]["error"].as_str().unwrap();
    assert!(error.contains("`echo no; exit 7` failed: exit code 7"), "{error}");
    assert_eq!(outcome(&results[2]), [json!("success"), json!("llm_done"), json!(0)]);
}

#[test]
fn the_report_compares_variants() {
    let batch = Batch::with_tasks(&["a", "b"], ANSWER);
    batch.cli.write("bad.toml", "[[turn]]\nerror = { kind = \"request\", message = \"no\" }\n");
    let variants =
        "[[variant]]\nid = \"good\"\n[[variant]]\nid = \"bad\"\nmodel = \"scripted/bad.toml\"\n";
    batch.cli.write("v.toml", variants);
    let ran = batch.run(&["--variants", "v.toml", "--json"]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    let summary = ran.json();
    assert_eq!([&summary["cells"], &summary["succeeded"], &summary["failed"]], [4, 2, 2]);
    assert_eq!(summary["variants"][1]["success_rate"]["value"], 0.0);
    assert_eq!(summary["differences"][0]["worse"], 2);
    let read = |name: &str| fs::read_to_string(batch.out(name)).unwrap();
    assert_eq!(
        serde_json::from_str::<Value>(&read("report.json")).unwrap()["results"][1]["variant"],
        "bad"
    );
    assert!(read("report.md").contains("## Paired differences"), "{}", read("report.md"));
    assert!(read("report.html").contains("<h2>Variants"), "{}", read("report.html"));
    assert!(
        read("report.xml").contains("tests=\"4\" failures=\"0\" errors=\"2\""),
        "{}",
        read("report.xml")
    );
}

#[test]
fn failures_are_retried_on_request_by_their_exit_codes() {
    let batch = Batch::with_tasks(&["a", "b"], "[[turn]]\nerror = { kind = \"request\" }\n");
    let auth = "[[turn]]\nerror = { kind = \"auth\" }\n";
    batch.cli.write("auth.toml", auth);
    let tasks = batch.cli.read("tasks.jsonl");
    let (first, second) = tasks.split_once('\n').unwrap();
    let second = second.trim().replace('}', ", \"model\": \"scripted/auth.toml\"}");
    batch.cli.write("tasks.jsonl", &format!("{first}\n{second}\n"));
    assert_eq!(batch.run(&[]).code, 2);
    let codes = [("a".to_owned(), json!(1)), ("b".to_owned(), json!(4))];
    assert_eq!(batch.by_id("exit_code"), codes);
    let before = batch.by_id("session_id");
    // The models work again.
    batch.cli.write("script.toml", ANSWER).write("auth.toml", ANSWER);
    assert_eq!(batch.run(&[]).code, 2);
    assert_eq!(batch.by_id("session_id"), before);
    let ran = batch.run(&["--retry-failed"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let codes = [("a".to_owned(), json!(0)), ("b".to_owned(), json!(0))];
    assert_eq!(batch.by_id("exit_code"), codes, "{}", ran.err);
}

/// A scheduler that receives this code starts no further tasks with that key.
#[test]
fn a_batch_whose_key_is_rejected_everywhere_ends_with_the_code_of_that() {
    let batch = Batch::with_tasks(&["a", "b"], "[[turn]]\nerror = { kind = \"auth\" }\n");
    assert_eq!(batch.run(&[]).code, 4);
    // Nothing ran now.
    assert_eq!(batch.run(&[]).code, 2);
    assert_eq!(batch.run(&["--retry-failed"]).code, 4);
    batch.cli.write("script.toml", ANSWER);
    assert_eq!(batch.run(&["--retry-failed"]).code, 0);
}

#[test]
fn events_show_what_happens_and_the_last_one_is_the_result() {
    let batch = Batch::with_tasks(&["a", "b"], ANSWER);
    let ran = batch.run(&["--output-format", "stream-json", "--quiet"]);
    assert_eq!((ran.code, &*ran.err), (0, ""));
    let lines = ran.lines();
    let count = |kind: &str| lines.iter().filter(|line| line["type"] == kind).count();
    assert_eq!(
        [count("batch_start"), count("cell_start"), count("cell_end"), count("result")],
        [1, 2, 2, 1]
    );
    assert_eq!(lines.last().unwrap()["type"], "result");
    assert_eq!(lines.last().unwrap()["succeeded"], 2);
}

#[test]
fn a_dry_run_changes_nothing() {
    let batch = Batch::with_tasks(&["a"], &appending(0));
    let ran = batch.run(&["--dry-run"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(batch.runs_of("a"), 0);
    assert!(batch.results()[0]["output"].as_str().unwrap().contains("run_command"));
}

/// The example of the page about batches.
#[test]
fn the_example_of_the_page_works_as_written() {
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/batches.md")).unwrap();
    let section = page.split("\n## Many tasks\n").nth(1).unwrap();
    let toml = |nth: usize| {
        let block = section.split("```toml file=").nth(nth).unwrap();
        block.split_once('\n').unwrap().1.split("```").next().unwrap().to_owned()
    };
    let batch = Batch::with_tasks(&["parser", "docs"], ANSWER);
    batch.cli.write("tasks.toml", &toml(1)).write("variants.toml", &toml(2));
    let model = toml(2).split("model = \"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let args =
        ["batch", "tasks.toml", "--variants", "variants.toml", "--budget", "5", "--jobs", "2"];
    assert!(section.contains(&format!("architect {}", args.join(" "))), "{section}");
    // Its models are those of providers; without a key nothing is started.
    let ran = batch.cli.run(&args);
    assert_eq!(ran.code, 3, "{}", ran.err);
    assert!(ran.err.contains("variants.toml:"), "{}", ran.err);
    let variants = toml(2).replace(&model, "scripted/script.toml");
    let variants: String = variants
        .lines()
        .map(|line| match line.starts_with("model") {
            true => "model = \"scripted/script.toml\"\n".to_owned(),
            false => format!("{line}\n"),
        })
        .collect();
    batch.cli.write("variants.toml", &variants);
    batch.cli.write("script.toml", &format!("price = {{ input = 1.0, output = 1.0 }}\n{ANSWER}"));
    let ran = batch.cli.run(&args);
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(batch.cli.path(".architect/batch/tasks/report.html").exists());
}

/// A link in the repository, or one that a command made, gives a task no other folder.
#[test]
fn a_workspace_that_is_a_link_out_is_refused() {
    let batch = Batch::with_tasks(&["a"], ANSWER);
    std::os::unix::fs::symlink("..", batch.cli.path("out")).unwrap();
    let line = json!({"id": "a", "prompt": "x", "workspace": "out"});
    batch.cli.write("tasks.jsonl", &format!("{line}\n"));
    let ran = batch.run(&[]);
    assert_eq!(ran.code, 3, "{}", ran.err);
    assert!(ran.err.contains("is a link out of this folder"), "{}", ran.err);
}

/// The first task's command puts a link in the place of the second one's folder.
#[test]
fn a_workspace_that_becomes_a_link_is_not_used() {
    let script = "[[turn]]\ncalls = [{ name = \"run_command\", arguments = { command = \"mv sub old; ln -s .. sub; touch sub/made\" } }]\n[[turn]]\ntext = \"done\"\n";
    let batch = Batch::with_tasks(&["a", "b"], script);
    fs::create_dir(batch.cli.path("sub")).unwrap();
    let lines = [
        json!({"id": "a", "prompt": "x", "workspace": "."}),
        json!({"id": "b", "prompt": "x", "workspace": "sub"}),
    ];
    batch.cli.write("tasks.jsonl", &lines.map(|line| format!("{line}\n")).concat());
    let ran = batch.run(&["--jobs", "1"]);
    let results = batch.results();
    assert_eq!(results[1]["status"], "failed", "{}", ran.err);
    assert!(results[1]["error"].as_str().unwrap().contains("has become a link"), "{results:?}");
}

#[test]
fn a_lost_result_is_made_again_from_its_session() {
    let batch = Batch::with_tasks(&["a", "b", "c"], &appending(0));
    assert_eq!(batch.run(&[]).code, 0);
    let before = batch.by_id("session_id");
    let mut files = fs::read_dir(batch.out("cells")).unwrap().map(|entry| entry.unwrap().path());
    let mut results = files.by_ref().filter(|path| path.extension().unwrap() == "json");
    fs::remove_file(results.next().unwrap()).unwrap();
    let (damaged, other) = (results.next().unwrap(), results.next().unwrap());
    fs::write(&damaged, "{\"schema\": 1, \"sta").unwrap();
    let ran = batch.run(&[]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(ran.err.matches("is lost or damaged; it is restored").count(), 2, "{}", ran.err);
    assert_eq!(batch.by_id("session_id"), before);
    // The result of another cell does not count.
    fs::copy(&other, &damaged).unwrap();
    assert_eq!(batch.run(&[]).code, 0);
    assert_eq!(batch.by_id("session_id"), before);
    assert_eq!(["a", "b", "c"].map(|id| batch.runs_of(id)), [1, 1, 1]);
}

#[test]
fn results_without_the_log_of_their_cells_are_not_made_again() {
    let batch = Batch::with_tasks(&["a"], &appending(0));
    assert_eq!(batch.run(&[]).code, 0);
    fs::write(batch.out("coordination.jsonl"), "").unwrap();
    for error in ["coordination.jsonl: it is empty", "coordination.jsonl: it is missing"] {
        let ran = batch.run(&[]);
        assert_eq!(ran.code, 1, "{}", ran.err);
        assert!(ran.err.contains(error), "{}", ran.err);
        let _ = fs::remove_file(batch.out("coordination.jsonl"));
    }
    assert_eq!(batch.runs_of("a"), 1);
}

#[test]
fn a_full_disk_stops_a_batch_and_with_space_it_goes_on() {
    let batch = Batch::with_tasks(&["a", "b", "c"], &appending(0));
    let log = batch.cli.path("strace");
    // The first file of each thread is still written: for a worker, the record that the setup of its first cell is
    // done.
    let how = ["-f", "-qq", "-e", "trace=renameat", "-e", "inject=renameat:error=ENOSPC:when=2+"];
    let Ok(child) = under_strace(&batch.cli.command(&COMMAND), &log, &how).spawn() else {
        return eprintln!("skipped: there is no strace");
    };
    let ran = wait_for_exit(child);
    assert_eq!(ran.code, 1, "{}", ran.err);
    assert!(ran.err.contains("No space left on device"), "{}", ran.err);
    assert!(ran.err.contains("the same command continues"), "{}", ran.err);
    let ran = batch.run(&[]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.err.contains("(3 of 3)"), "{}", ran.err);
    // The failure may also have hit the supervisor of a command; that command did not run.
    assert!(["a", "b", "c"].iter().all(|id| batch.runs_of(id) <= 1));
}
