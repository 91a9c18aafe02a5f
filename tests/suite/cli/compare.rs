//! `architect compare`: one task in several variants.

use std::fs;
use std::path::Path;

use architect::journal::SessionStore;
use architect::types::{Durability, MicroUsd, Tokens};
use architect::workflow::batch::coordination::{Charge, SessionProbe};
use architect::workflow::batch::{BatchFolder, StoredSessions};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::cli::worktrees::fixture::Project;
use crate::kit::chat;
use crate::kit::cli::{CommandResult, wait_for_exit, wait_until};
use crate::kit::server::{ScriptedReply, Server};

/// A delay that exceeds every test, in milliseconds.
const LONG: u64 = 600_000;

/// Returns a script that runs a command line for a number of micro-dollars, and answers after a delay.
fn script(line: &str, cost: u64, delay_ms: u64) -> String {
    let line = serde_json::to_string(line).unwrap();
    format!(
        "price = {{ input = 1.0, output = 1.0 }}\nmax_output = 10\n[[turn]]\nusage = {{ input = {cost}, output = 0 }}\n\
         calls = [{{ name = \"run_command\", arguments = {{ command = {line} }} }}]\n\
         [[turn]]\ntext = \"Done.\"\nusage = {{ input = 0, output = 0 }}\ndelay_ms = {delay_ms}\n"
    )
}

impl Project {
    /// Writes a script outside of the project, and returns the model that plays it.
    fn model(&self, name: &str, script: &str) -> String {
        let path = self.cli.home().join(format!("{name}.toml"));
        fs::write(&path, script).unwrap();
        format!("scripted/{}", path.display())
    }

    /// Writes a file of variants, each of which runs a command line for a number of micro-dollars.
    fn variants(&self, variants: &[(&str, &str, u64)]) -> String {
        let mut text = String::new();
        for (id, line, cost) in variants {
            let model = self.model(id, &script(line, *cost, 0));
            text.push_str(&format!("{}\n", json!({"id": id, "model": model})));
        }
        let path = self.cli.home().join("variants.jsonl");
        fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    /// Compares variants of a task.
    fn compare(&self, variants: &[(&str, &str, u64)], args: &[&str]) -> CommandResult {
        let file = self.variants(variants);
        self.compare_with(&[&["--variants", &file], args].concat())
    }

    fn compare_with(&self, args: &[&str]) -> CommandResult {
        let mode: &[&str] = if args.contains(&"--mode") { &[] } else { &["--mode", "yolo"] };
        self.cli.run(&[&["compare", "Do it."], mode, args].concat())
    }

    /// Returns the branches of worktrees.
    fn branches(&self) -> Vec<String> {
        let listed = self.git("branch --list architect/* --format=%(refname:short)");
        listed.lines().map(str::to_owned).collect()
    }
}

fn values(document: &Value, key: &str) -> Vec<Value> {
    document["results"].as_array().unwrap().iter().map(|row| row[key].clone()).collect()
}

/// A variant that fails a check does not win, however cheap it is. If a variant did not succeed, the exit code is 2.
/// The user's tree, index, stash and branches stay unchanged; the variants have branches of their own.
#[test]
fn the_checks_decide_first_and_nothing_of_the_user_changes() {
    let project = Project::new();
    project.cli.write("a.txt", "stashed\n");
    project.git("stash");
    let before = project.user_state();
    let variants = [("cheap", "echo bad > b.txt", 10), ("good", "echo good > b.txt", 20)];
    let ran = project.compare(&variants, &["--check", "grep -q good b.txt", "--json"]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    let document = ran.json();
    assert_eq!(document["winner"], "good", "{document}");
    assert_eq!((&document["winner_by"], &document["applied"]), (&json!("success"), &Value::Null));
    assert_eq!(values(&document, "exit_code"), [2, 0]);
    assert_eq!(values(&document, "lines_added"), [1, 1]);
    assert_eq!(document["exit_code"], 2);
    assert_eq!(project.user_state(), before);
    let branches: Vec<Value> = project.branches().into_iter().map(Value::from).collect();
    assert_eq!(values(&document, "branch"), branches);
    assert!(branches[0].as_str().unwrap().starts_with("architect/compare-cheap-"), "{branches:?}");
    let folder = Path::new(document["folder"].as_str().unwrap());
    let report = fs::read_to_string(folder.join("report.md")).unwrap();
    assert!(report.contains("good (the only one that succeeded)"), "{report}");
}

#[test]
fn then_the_cost_and_the_size_decide_and_the_order_of_the_variants() {
    let (small, large) = ("echo x > b.txt", "seq 9 > b.txt");
    let cases = [
        ([("one", small, 20), ("two", large, 10), ("three", "true", 5)], "two", "cost"),
        ([("one", large, 10), ("two", small, 10), ("three", "true", 5)], "two", "size"),
        ([("one", small, 10), ("two", small, 10), ("three", "true", 5)], "one", "order"),
    ];
    for (variants, winner, by) in cases {
        let project = Project::new();
        let ran = project.compare(&variants, &["--json"]);
        assert_eq!(ran.code, 0, "{}", ran.err);
        let document = ran.json();
        assert_eq!((&document["winner"], &document["winner_by"]), (&json!(winner), &json!(by)));
        // The third variant changed nothing, so it left no branch.
        assert_eq!(values(&document, "branch")[2], Value::Null);
        assert_eq!(project.branches().len(), 2);
    }
}

/// For people, a table on standard output, the winner, and how to merge it.
#[test]
fn the_table_has_a_line_for_each_variant() {
    let project = Project::new();
    let variants = [("one", "echo x > b.txt", 10), ("second", "exit 0", 20)];
    let ran = project.compare(&variants, &["--check", "test -e b.txt"]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    let lines: Vec<Vec<&str>> =
        ran.out.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["variant", "status", "checks", "changes", "cost", "time", "branch"]);
    assert_eq!(lines[1][..8], ["one", "success", "1/1", "1", "file", "+1", "-0", "$0.000010"]);
    assert_eq!(lines[2][..6], ["second", "partial", "(checks_failed)", "0/1", "none", "$0.000020"]);
    assert_eq!(ran.out.lines().nth(3), Some("winner: one (the only one that succeeded)"));
    let name = project.branches()[0].replace("architect/", "");
    let hint = format!("`architect worktrees merge {name}` merges it");
    assert_eq!(ran.out.lines().nth(4), Some(&*hint), "{}", ran.out);
    assert_eq!(project.worktrees(&["merge", &name]).code, 0);
    assert_eq!(project.cli.read("b.txt"), "x\n");
}

/// The winner is merged as `worktrees merge` does it. The exit code is then 0, whatever the results of the other
/// variants. All branches stay. The same command again runs nothing.
#[test]
fn the_winner_is_applied_once() {
    let project = Project::new();
    let variants = [("one", "exit 0", 10), ("two", "echo two >> a.txt", 20)];
    let args = ["--check", "grep -q two a.txt", "--apply", "winner", "--json"];
    let ran = project.compare(&variants, &args);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let first = ran.json();
    assert_eq!((&first["winner"], &first["status"]), (&json!("two"), &json!("success")));
    assert_eq!(first["applied"]["files"], json!(["a.txt"]), "{first}");
    assert_eq!(project.cli.read("a.txt"), "one\ntwo\nthree\ntwo\n");
    let branches = project.branches();
    let ran = project.compare(&variants, &args);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(ran.json(), first);
    assert_eq!(project.cli.read("a.txt"), "one\ntwo\nthree\ntwo\n");
    assert_eq!(project.branches(), branches);
}

/// A winner that has committed is a fast-forward. Although another commit is checked out after it, the same command is
/// the same comparison; after a commit of the user it is a new one.
#[test]
fn a_winner_with_commits_moves_the_branch_and_the_comparison_stays_the_same() {
    let project = Project::new();
    let commit = "echo b > b.txt; git add .; git -c user.name=n -c user.email=e commit -q -m work";
    let args = ["--apply", "winner", "--json"];
    let ran = project.compare(&[("one", commit, 10)], &args);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let first = ran.json();
    assert_eq!(first["applied"]["merged"], "fast-forward", "{first}");
    assert_eq!(project.git("log --format=%s -1 main"), "work\n");
    let again = project.compare(&[("one", commit, 10)], &args).json();
    assert_eq!(values(&again, "session_id"), values(&first, "session_id"));
    assert_eq!(again["commit"], first["commit"]);
    project.git("commit -q --allow-empty -m mine");
    let later = project.compare(&[("one", "echo c > c.txt", 10)], &["--json"]).json();
    assert_ne!(later["commit"], first["commit"]);
    assert_ne!(later["folder"], first["folder"]);
}

/// Changes of the user since the start are not overwritten: the merge is refused, with its reason, and nothing changes.
#[test]
fn a_merge_with_conflicts_is_refused() {
    let project = Project::new();
    project.cli.write("a.txt", "mine\n");
    let before = project.user_state();
    let variants = [("one", "echo theirs > a.txt", 10)];
    let ran = project.compare(&variants, &["--apply", "winner", "--json"]);
    assert_eq!(ran.code, 1, "{}", ran.err);
    assert!(ran.err.contains("without your uncommitted changes (1 file)"), "{}", ran.err);
    assert!(ran.err.contains("can't be merged; nothing was changed"), "{}", ran.err);
    let document = ran.json();
    assert_eq!((&document["winner"], &document["applied"]), (&json!("one"), &Value::Null));
    assert!(document["error"].as_str().unwrap().contains("can't be merged"), "{document}");
    assert_eq!(document["exit_code"], 1);
    assert_eq!(project.cli.read("a.txt"), "mine\n");
    assert_eq!(project.user_state(), before);
    // Without these changes, the same command merges it.
    project.git("checkout -q a.txt");
    assert_eq!(project.compare(&variants, &["--apply", "winner"]).code, 0);
    assert_eq!(project.cli.read("a.txt"), "theirs\n");
}

#[test]
fn without_a_winner_nothing_is_applied() {
    let project = Project::new();
    let before = project.user_state();
    let model = project.model("m", &script("echo x > b.txt", 10, 0));
    let ran = project.compare_with(&["--model", &model, "--check", "false", "--apply", "winner"]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(ran.out.contains("\nwinner: none, no variant succeeded\n"), "{}", ran.out);
    assert_eq!(project.user_state(), before);
    assert_eq!(project.branches().len(), 2);
}

/// The model of `--judge` sees the task, the change and the answer, and no tools; its evaluation decides before the cost.
/// The same command again asks it nothing, also if the results are lost.
#[test]
fn an_evaluation_of_the_changes_decides_before_the_cost() {
    let project = Project::new();
    let [bad, good] = [(false, "It is empty."), (true, "")].map(|(completed, issue)| {
        let issues: Vec<&str> = Some(issue).filter(|issue| !issue.is_empty()).into_iter().collect();
        json!({"completed": completed, "confidence": 0.9, "issues": issues}).to_string()
    });
    let server = Server::new([chat::text(&bad), chat::text(&good)]);
    let config = project.cli.home().join("models.toml");
    let model = format!(
        "model = 'openrouter/m'\napi_base = '{}'\napi_key_env = 'MY_KEY'",
        server.url("/v1")
    );
    fs::write(&config, format!("[models.second]\n{model}\n")).unwrap();
    let variants =
        [("cheap", "echo > b.txt", 10), ("good", "echo useful > b.txt", 20), ("failed", "true", 5)];
    let file = project.variants(&variants);
    let args = ["compare", "Do it.", "--mode", "yolo", "--jobs", "1", "--variants", &file];
    let args = [&args[..], &["--config", config.to_str().unwrap(), "--judge", "second"]].concat();
    let log = project.cli.home().join("events.jsonl");
    let args = [&args[..], &["--log-file", log.to_str().unwrap()]].concat();
    let args = [&args[..], &["--check", "test -e b.txt"]].concat();
    let collector = Server::repeating([ScriptedReply::with_length(200, "{}")]);
    let compare = |more: &[&str]| {
        let mut command = project.cli.command(&[&args[..], more].concat());
        command.env("MY_KEY", "k").env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url(""));
        wait_for_exit(command.spawn().unwrap())
    };
    let ran = compare(&["--json"]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(
        ran.err.contains("\n    evaluation: not completed (0.90): It is empty."),
        "{}",
        ran.err
    );
    let spans: String = collector.requests().into_iter().map(|request| request.body).collect();
    assert_eq!(spans.matches("\"invoke_agent eval\"").count(), 2, "{spans}");
    let events = fs::read_to_string(&log).unwrap();
    assert_eq!(events.matches("\"agent\":\"eval\"").count(), 2, "{events}");
    let document = ran.json();
    assert_eq!(
        (&document["winner"], &document["winner_by"]),
        (&json!("good"), &json!("evaluation"))
    );
    let evaluations = values(&document, "change_evaluation");
    assert_eq!(evaluations[0]["issues"], json!(["It is empty."]), "{document}");
    assert_eq!((&evaluations[1]["completed"], &evaluations[2]), (&json!(true), &Value::Null));
    let requests = server.requests();
    assert_eq!(requests.len(), 2);
    let request = requests[1].json();
    assert!(request["tools"].as_array().is_none_or(Vec::is_empty), "{request}");
    let text = request["messages"].to_string();
    assert!(["Do it.", "+useful", "Done."].iter().all(|part| text.contains(part)), "{text}");

    let folder = Path::new(document["folder"].as_str().unwrap());
    let report = fs::read_to_string(folder.join("report.md")).unwrap();
    assert!(report.contains("not completed (0.90): It is empty."), "{report}");
    for entry in fs::read_dir(folder.join("cells")).unwrap().flatten() {
        if entry.path().extension().is_some_and(|end| end == "json") {
            fs::remove_file(entry.path()).unwrap();
        }
    }
    let ran = compare(&[]);
    assert!(ran.err.contains("is lost or damaged"), "{}", ran.err);
    assert_eq!(server.requests().len(), 2, "{}", ran.err);
    let table: Vec<&str> = ran.out.lines().collect();
    assert!(table[0].contains("checks  evaluation            changes"), "{}", ran.out);
    assert!(table[1].contains("1/1     not completed (0.90)  1 file"), "{}", ran.out);
    assert_eq!(table[4], "winner: good (the best evaluation)");
}

/// Interrupted in the middle of an evaluation: the variant does not run again, the budget holds, and the evaluation is resumed.
#[test]
fn an_interrupted_evaluation_is_resumed() {
    let project = Project::new();
    let model = project.model("m", &script("echo ran >> ran", 10, 0));
    let answer = |delay: u64| {
        let text = json!({"completed": true, "confidence": 0.5}).to_string();
        format!(
            "price = {{ input = 1.0, output = 1.0 }}\nmax_output = 10\n[[turn]]\ntext = '{text}'\n\
                 usage = {{ input = 30, output = 0 }}\ndelay_ms = {delay}\n"
        )
    };
    let evaluator = project.model("judge", &answer(LONG));
    let out = project.cli.home().join("out");
    let args = ["compare", "Do it.", "--mode", "yolo", "--model", &model, "--judge", &evaluator];
    let args = [&args[..], &["--attempts", "1", "--budget", "1", "--out"]].concat();
    let args = [&args[..], &[out.to_str().unwrap(), "--json"]].concat();
    let child = project.cli.command(&args).spawn().unwrap();
    let journal = || {
        let files = fs::read_dir(out.join("cells")).ok()?.flatten().map(|entry| entry.path());
        let mut files =
            files.filter(|path| path.extension().is_some_and(|end| end == "evaluation"));
        let session = fs::read_to_string(files.next()?).ok()?;
        fs::read_to_string(out.join("sessions").join(format!("{session}.jsonl"))).ok()
    };
    wait_until("the evaluator is asked", || {
        journal().is_some_and(|text| text.contains("\"prepared\""))
    });
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(wait_for_exit(child).code, 130);
    let before = journal().unwrap();
    // The cost of an evaluation is known once it is stored: if its worker is killed after that, no more counts as
    // spent.
    let last_charge = || {
        let store = SessionStore::open(&out, Durability::Os).unwrap();
        let folder = BatchFolder::create(&out).unwrap();
        let mut cells = fs::read_dir(out.join("cells")).unwrap().flatten().map(|it| it.path());
        let result = cells.find(|path| path.extension().is_some_and(|end| end == "json")).unwrap();
        let session = result.file_stem().unwrap().to_str().unwrap().parse().unwrap();
        StoredSessions { store, folder }.last_charge(session)
    };
    assert_eq!(last_charge(), None);
    project.model("judge", &answer(0));
    let ran = project.cli.run(&args);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(!ran.err.contains("killed run"), "{}", ran.err);
    assert_eq!(last_charge(), Some(Charge { money: MicroUsd(30), tokens: Tokens(30) }));
    let document = ran.json();
    assert!(journal().unwrap().starts_with(&before), "another session");
    assert_eq!(values(&document, "change_evaluation")[0]["completed"], true, "{document}");
    assert_eq!(values(&document, "lines_added"), [1]);
    assert!(document["spent"].as_f64().unwrap() <= 1.0, "{document}");
}

/// Attempts are variants that are all alike. With more of them, only the new ones run.
#[test]
fn each_attempt_has_a_branch_and_more_attempts_continue() {
    let project = Project::new();
    let model = project.model("m", &script("test -e prepared && echo x > b.txt", 10, 0));
    let args =
        ["--model", &model, "--setup", "echo > ignored; echo > prepared", "--json", "--attempts"];
    let ran = project.compare_with(&[&args[..], &["2"]].concat());
    assert_eq!(ran.code, 0, "{}", ran.err);
    let first = ran.json();
    assert_eq!(values(&first, "variant"), ["attempt-1", "attempt-2"]);
    assert_eq!((&first["winner"], &first["winner_by"]), (&json!("attempt-1"), &json!("order")));
    let ran = project.compare_with(&[&args[..], &["3"]].concat());
    assert_eq!(ran.code, 0, "{}", ran.err);
    let sessions = values(&ran.json(), "session_id");
    assert_eq!(sessions[..2], values(&first, "session_id"));
    let branches = project.branches();
    let names: Vec<&str> = branches.iter().filter_map(|it| it.strip_prefix("architect/")).collect();
    assert_eq!(names.len(), 3);
    let removed = project.worktrees(&[&["rm", "--force"], &names[..]].concat());
    assert_eq!((removed.code, removed.out.lines().count()), (0, 3), "{}", removed.err);
    project.assert_nothing_left("removed");
}

#[test]
fn a_failed_setup_leaves_no_worktree() {
    let project = Project::new();
    let model = project.model("m", &script("true", 10, 0));
    let ran = project.compare_with(&["--model", &model, "--setup", "echo x > x; exit 7"]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(ran.err.contains("failed: exit code 7"), "{}", ran.err);
    project.assert_nothing_left("after a failed setup");
}

/// No user can be asked: denied calls are reported, with the options that allow them.
#[test]
fn denied_calls_are_reported() {
    let project = Project::new();
    let model = project.model("m", &script("echo x > b.txt", 10, 0));
    let ran = project.compare_with(&["--model", &model, "--mode", "confirm-all"]);
    assert!(
        ran.err.contains("2 calls were denied: a batch can't ask for confirmation; --mode yolo"),
        "{}",
        ran.err
    );
}

/// Killed in the middle and repeated: finished variants do not run again, and the comparison has the same result.
#[test]
fn a_killed_comparison_goes_on_where_it_was() {
    for (signal, code) in [(Signal::KILL, -1), (Signal::INT, 130)] {
        let project = Project::new();
        let before = project.user_state();
        let model = project.model("m", &script("echo ran >> ran", 10, LONG));
        let args = ["compare", "Do it.", "--mode", "yolo", "--model", &model, "--jobs", "2"];
        let args = [&args[..], &["--attempts", "3", "--apply", "winner"]].concat();
        let child = project.cli.command(&args).spawn().unwrap();
        let folders = project.worktree_folder();
        let is_ran = |folder: &Path| folder.join("ran").exists();
        wait_until("two attempts run", || {
            let projects = fs::read_dir(&folders).into_iter().flatten().flatten();
            let worktrees =
                projects.flat_map(|it| fs::read_dir(it.path()).into_iter().flatten().flatten());
            worktrees.filter(|it| is_ran(&it.path())).count() == 2
        });
        kill_process(Pid::from_child(&child), signal).unwrap();
        let ran = wait_for_exit(child);
        assert_eq!(ran.code, code, "{}", ran.err);
        if signal == Signal::INT {
            assert!(
                ran.out.contains("\nwinner: none yet, the same command continues\n"),
                "{}",
                ran.out
            );
        }
        assert_eq!(project.user_state(), before);
        project.model("m", &script("echo ran >> ran", 10, 0));
        let ran = project.cli.run(&[&args[..], &["--json"]].concat());
        assert_eq!(ran.code, 0, "{}", ran.err);
        assert!(!ran.err.contains("killed run"), "the worktrees are its own: {}", ran.err);
        let document = ran.json();
        assert_eq!(values(&document, "lines_added"), [1, 1, 1], "{document}");
        assert_eq!(project.branches().len(), 3);
        assert_eq!(project.cli.read("ran"), "ran\n");
    }
}

/// The limits hold for all variants together; the best of the variants that could run wins.
#[test]
fn the_budget_is_that_of_all_variants() {
    let project = Project::new();
    let model = project.model("m", &script("echo x > b.txt", 100, 0));
    let args = ["--model", &model, "--attempts", "3", "--jobs", "1", "--json", "--budget"];
    let ran = project.compare_with(&[&args[..], &["0.0002"]].concat());
    assert_eq!(ran.code, 2, "{}\n{}", ran.out, ran.err);
    let document = ran.json();
    assert!(document["spent"].as_f64().unwrap() <= 0.0002, "{document}");
    let ran = project.compare_with(&[&args[..], &["1"]].concat());
    assert_eq!(ran.code, 0, "{}\n{}", ran.out, ran.err);
}

#[test]
fn without_a_repository_or_a_commit_nothing_starts() {
    let project = Project::without_git();
    let model = project.model("m", &script("true", 10, 0));
    let ran = project.compare_with(&["--model", &model]);
    assert_eq!(ran.code, 3, "{}", ran.out);
    assert!(
        ran.err.contains("is not in a git repository\n  hint: create one: git init"),
        "{}",
        ran.err
    );
    project.git("init -q");
    let ran = project.compare_with(&["--model", &model]);
    assert_eq!(ran.code, 3, "{}", ran.out);
    assert!(ran.err.contains("the repository has no commit yet"), "{}", ran.err);
    assert!(!project.cli.path(".architect").exists());
}

/// Mistakes are reported as in a batch, and start nothing.
#[test]
fn mistakes_start_nothing() {
    let project = Project::new();
    let file = project.variants(&[("one", "true", 1)]);
    let wrong = project.cli.home().join("wrong.toml");
    fs::write(&wrong, "[[variant]]\nid = \"a\"\nmodle = \"x\"\n\n[[variant]]\nid = \"a\"\n")
        .unwrap();
    let wrong = wrong.to_str().unwrap();
    let refused = |args: &[&str], reasons: &[&str]| {
        let ran = project.compare_with(args);
        assert_eq!(ran.code, 3, "{args:?} {}", ran.out);
        reasons.iter().for_each(|reason| assert!(ran.err.contains(reason), "{}", ran.err));
        assert!(!project.cli.path(".architect").exists(), "{args:?}");
    };
    refused(&["--variants", wrong], &["wrong.toml:3: unknown key `modle`", "the id `a` is used"]);
    refused(&["--variants", &file, "--attempts", "2"], &["cannot be used with"]);
    refused(&["--variants", &file, "--agent", "x"], &["unknown agent `x`", "known agents: build"]);
    refused(&[], &["hint: name one: --model PROVIDER/NAME"]);
    fs::create_dir(project.cli.path("new")).unwrap();
    refused(&["-w", "new", "--variants", &file], &["the folder 'new' is not in the commit"]);
    refused(&["--attempts", "0"], &["--attempts"]);
    refused(&["--variants", &file, "--check", ""], &["--check"]);
    assert_eq!(project.branches(), [""; 0]);
}
