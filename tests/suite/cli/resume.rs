//! Resuming: the selected session, its folder, and its limits.

use std::fs;

use crate::kit::cli::{CliFixture, outcome, wait_for_exit, wait_until};

fn step(path: &str) -> String {
    let arguments = format!("{{ path = \"{path}\", content = \"\" }}");
    format!("[[turn]]\ncalls = [{{ name = \"write_file\", arguments = {arguments} }}]\n")
}

/// Returns a model that makes this number of steps, with a final summary when a limit requests one.
fn steps(count: usize, limit: usize) -> String {
    let text = "[[turn]]\ntext = \"So far.\"\n";
    let turn = |index: usize| {
        let closing = if (index + 1).is_multiple_of(limit) { text } else { "" };
        format!("{}{closing}", step(&index.to_string()))
    };
    (0..count).map(turn).collect::<String>() + "[[turn]]\ntext = \"Done.\"\n"
}

#[test]
fn another_message_begins_new_limits_of_steps() {
    let world = CliFixture::new();
    let ran = world.run_script(&steps(5, 2), &["--max-steps", "2", "--mode", "yolo", "--json"]);
    assert_eq!(ran.outcome(), outcome(2, "max_steps", "partial"), "{}", ran.err);
    let command = format!("architect resume {}", ran.json()["session_id"].as_str().unwrap());
    assert!(ran.err.contains(&command), "{}", ran.err);
    let ran = world.run(&["resume", "last", "Go on.", "--json"]);
    assert_eq!(ran.outcome(), outcome(2, "max_steps", "partial"), "{}", ran.err);
    assert_eq!((ran.json()["steps"].as_u64(), world.path("3").exists()), (Some(4), true));
    // The printed command continues too: the run isn't closed a second time at once.
    let printed: Vec<&str> = command.split(' ').skip(1).chain(["--json"]).collect();
    let ran = world.run(&printed);
    assert_eq!(ran.outcome(), outcome(0, "llm_done", "success"), "{}", ran.err);
    assert_eq!(
        (ran.json()["steps"].as_u64(), ran.json()["llm_calls"].as_u64()),
        (Some(5), Some(8))
    );
    assert!(!ran.err.contains("architect resume"), "{}", ran.err);
    assert_eq!(world.run(&["replay", "last", "--verify"]).code, 0);
}

/// Without this, a run that is killed again and again would never end.
#[test]
fn a_killed_run_continues_with_the_time_that_is_left() {
    let world = CliFixture::new();
    let turns = (0..20).map(|index| format!("{}delay_ms = 400\n", step(&index.to_string())));
    let model = world.script_model(&turns.collect::<String>());
    let args = ["run", "x", "--model", &model, "--mode", "yolo", "--timeout", "3", "--json"];
    let mut killed = world.command(&args).spawn().unwrap();
    wait_until("three steps are made", || world.path("3").exists());
    killed.kill().unwrap();
    killed.wait().unwrap();
    let ran = world.run(&["resume", "last", "--json"]);
    assert_eq!(ran.json()["stop_reason"], "timeout", "{}", ran.err);
    let seconds = ran.json()["duration_seconds"].as_f64().unwrap();
    assert!(seconds < 2.2, "{seconds}");
    // The session has ended, so its limits start again.
    let again = world.run(&["resume", "last", "--json"]).json();
    assert!(again["duration_seconds"].as_f64().unwrap() > 2.2, "{again}");
}

#[test]
fn a_budget_continues_unless_a_new_one_is_given_and_the_log_shows_it() {
    let world = CliFixture::new();
    // A call costs about a tenth of a dollar.
    let turn = "[[turn]]\ntext = \"Fine.\"\nusage = { input = 10000, output = 100 }\n";
    let price = "price = { input = 10.0, output = 10.0 }\nmax_output = 500\n";
    let script = format!("{price}{}", turn.repeat(9));
    let ran = world.run_script(&script, &["--budget", "0.5", "--json"]);
    assert_eq!(ran.outcome(), outcome(0, "llm_done", "success"), "{}", ran.err);
    let resume =
        |args: &[&str]| world.run(&[&["resume", "last", "More.", "--json"], args].concat());
    let ran = resume(&[]);
    assert!(ran.err.contains("$0.101000 of $0.500000 is spent"), "{}", ran.err);
    let broke = (0..6).map(|_| resume(&[])).find(|ran| ran.code == 2).unwrap();
    assert_eq!(broke.outcome(), outcome(2, "budget_exceeded", "partial"), "{}", broke.err);
    let spent = broke.json()["cost"].as_f64().unwrap();
    assert!(spent <= 0.5, "{spent}");
    // The printed command resumes the session.
    let reported =
        broke.err.lines().find_map(|line| line.split_once("architect resume ")).unwrap().1;
    let reported: Vec<&str> =
        ["resume"].into_iter().chain(reported.split(' ')).chain(["--json"]).collect();
    let ran = world.run(&reported);
    assert_eq!(ran.outcome(), outcome(0, "llm_done", "success"), "{}", ran.err);
    assert_eq!(world.run(&["replay", "last", "--verify"]).code, 0);
}

#[test]
fn last_is_the_last_session_of_this_folder() {
    let world = CliFixture::new();
    let script = "[[turn]]\ntext = \"Fine.\"\n";
    let here =
        world.run_script(script, &["--json"]).json()["session_id"].as_str().unwrap().to_owned();
    fs::create_dir(world.path("other")).unwrap();
    let run = |args: &[&str]| {
        wait_for_exit(world.command(args).current_dir(world.path("other")).spawn().unwrap())
    };
    for args in [
        &["resume", "last", "x"][..],
        &["steer", "last", "x"],
        &["followup", "last", "x"],
        &["fork", "last"],
        &["replay", "last"],
        &["trace", "last"],
        &["sessions", "show", "last"],
        &["sessions", "export", "last"],
        &["test", "--from", "last"],
    ] {
        let ran = run(args);
        assert!(ran.code == 3 && ran.err.contains("no session of this folder"), "{}", ran.err);
        assert!(
            ran.err.contains(&format!("--any-folder takes the last one of any folder: {here}"))
        );
    }
    let there = format!("works in {}", world.path("").canonicalize().unwrap().display());
    let ran = run(&["resume", "last", "More.", "--any-folder"]);
    assert!(ran.err.contains(&there), "{}", ran.err);
    let ran = run(&["replay", &here]);
    assert!(ran.code == 0 && ran.err.contains(&there), "{}", ran.err);
    let steered = run(&["steer", "last", "x", "--any-folder"]);
    assert!(steered.err.contains("is not running"), "{}", steered.err);
    // In the session's own folder, no notice is needed.
    let ran = world.run(&["replay", "last"]);
    assert!(ran.code == 0 && ran.err.is_empty(), "{}", ran.err);
    // `--workspace` names the folder.
    let other = world.path("other");
    let model = world.script_model(script);
    let begun = run(&["run", "x", "--model", &model, "--json"]).json();
    let shown = world.run(&["replay", "last", "-w", other.to_str().unwrap(), "--json"]).json();
    assert_eq!(shown["session_id"], begun["session_id"]);
}

#[test]
fn a_store_that_a_file_names_is_found_by_every_command() {
    let world = CliFixture::new();
    let dir = world.home().join("my sessions");
    let config = world.home().join("ci.toml");
    fs::write(&config, format!("[profiles.p.sessions]\ndir = {dir:?}\n")).unwrap();
    let place = ["-c", config.to_str().unwrap(), "--profile", "p"];
    let script = format!("{}{}", step("a"), "[[turn]]\ntext = \"Fine.\"\n".repeat(2));
    let limit = ["--max-steps", "1", "--mode", "yolo"];
    let ran = world.run_script(&script, &[&place[..], &limit].concat());
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(ran.err.contains(&format!("--set 'sessions.dir={}'", dir.display())), "{}", ran.err);
    assert_eq!(world.run(&["sessions", "--json"]).out.trim(), "[]");
    for args in [
        &["sessions", "show", "last"][..],
        &["trace", "last"],
        &["replay", "last", "--verify"],
        &["fork", "last", "--only"],
        &["test", "--from", "last"],
        &["cleanup", "--older-than", "9"],
    ] {
        let ran = world.run(&[args, &place].concat());
        assert_eq!(ran.code, 0, "{args:?} {}", ran.err);
    }
    let steered = world.run(&[&["steer", "last", "x"], &place[..]].concat());
    assert!(steered.err.contains("is not running"), "{}", steered.err);
    let ran = world.run(&[&["resume", "last", "More.", "--json"], &place[..]].concat());
    assert_eq!(ran.json()["stop_reason"], "llm_done", "{} {}", ran.out, ran.err);
}

#[test]
fn the_printed_command_asks_for_a_limit_where_the_old_one_would_end_the_run_again() {
    let world = CliFixture::new();
    let script = "price = { input = 10.0, output = 10.0 }\n[[turn]]\ntext = \"Fine.\"\n";
    for (args, asked) in [
        (["--budget", "0"], " --budget USD"),
        (["--max-tokens", "100"], " --max-tokens N"),
        (["--max-steps", "0"], " --max-steps N"),
        (["--timeout", "0"], " --timeout SECONDS"),
        (["--step-timeout", "0"], " --step-timeout SECONDS"),
    ] {
        let ran = world.run_script(script, &args);
        assert_eq!(ran.code, 2, "{args:?} {}", ran.err);
        let reported = ran.err.lines().find(|line| line.contains("architect resume ")).unwrap();
        assert!(reported.ends_with(asked), "{args:?} {reported}");
    }
}
