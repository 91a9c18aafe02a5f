//! The limits of all tasks together.

use serde_json::json;

use super::fixture::{Batch, COMMAND};
use crate::kit::cli::wait_for_exit;

/// A priced script: each call costs 3 000 micro-dollars.
const PRICED: &str = "price = { input = 1.0, output = 10.0 }\nmax_output = 100\nrepeat = true\n\
    [[turn]]\ntext = \"Done.\"\nusage = { input = 2000, output = 100 }\n";

/// The cost of a run, in dollars.
const RUN_COST: f64 = 0.003;

fn batch() -> Batch {
    let ids: Vec<String> = (0..20).map(|index| format!("t{index}")).collect();
    Batch::with_tasks(&ids.iter().map(String::as_str).collect::<Vec<_>>(), PRICED)
}

#[test]
fn the_budget_of_a_batch_is_never_exceeded_and_with_more_of_it_the_batch_goes_on() {
    let batch = batch();
    let ran = batch.run(&["--budget", "0.03", "--jobs", "4", "--json"]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    let summary = ran.json();
    assert!(summary["spent"].as_f64().unwrap() <= 0.03, "{summary}");
    assert!(summary["succeeded"].as_u64().unwrap() >= 1, "{summary}");
    let costs: f64 = batch.by_id("cost").iter().filter_map(|(_, cost)| cost.as_f64()).sum();
    assert!(costs <= 0.03 + 1e-9, "{costs}");
    let ran = batch.run(&["--budget", "1", "--jobs", "4", "--json"]);
    assert_eq!(ran.code, 0, "{}\n{}", ran.out, ran.err);
    let spent = ran.json()["spent"].as_f64().unwrap();
    assert!((20.0 * RUN_COST - 1e-9..=1.0).contains(&spent), "{spent}");
}

#[test]
fn a_batch_says_that_its_budget_is_used() {
    let batch = batch();
    for _ in 0..2 {
        let ran = batch.run(&["--budget", "0.004", "--jobs", "1"]);
        assert_eq!(ran.code, 2, "{}", ran.err);
        let expected = "cells were cut short or not begun: what is left of the budget";
        assert!(ran.err.contains(expected), "{}", ran.err);
    }
}

#[test]
fn two_processes_share_one_budget() {
    let batch = batch();
    let command = [&COMMAND[..], &["--jobs", "2", "--budget", "0.03", "--json"]].concat();
    let children = [(); 2].map(|()| batch.cli.command(&command).spawn().unwrap());
    let ran = children.map(wait_for_exit);
    assert_eq!([ran[0].code, ran[1].code], [2, 2], "{}\n{}", ran[0].err, ran[1].err);
    let costs: f64 = batch.by_id("cost").iter().filter_map(|(_, cost)| cost.as_f64()).sum();
    assert!(costs > 0.0 && costs <= 0.03 + 1e-9, "{costs}");
}

#[test]
fn a_task_has_limits_of_its_own_besides() {
    let batch = batch();
    let tasks = batch.cli.read("tasks.jsonl");
    let first = tasks.lines().next().unwrap().replace('}', ", \"limits\": {\"max_steps\": 0}}");
    let rest: Vec<&str> = tasks.lines().skip(1).take(2).collect();
    batch.cli.write("tasks.jsonl", &format!("{first}\n{}\n", rest.join("\n")));
    let ran = batch.run(&["--max-tokens", "1000000"]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    let reasons: Vec<_> =
        batch.by_id("stop_reason").into_iter().map(|(_, reason)| reason).collect();
    assert_eq!(reasons, [json!("max_steps"), json!("llm_done"), json!("llm_done")]);
}

#[test]
fn the_tokens_of_a_batch_are_bounded_too() {
    let batch = batch();
    let ran = batch.run(&["--max-tokens", "0", "--json"]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert_eq!(ran.json()["tokens"], 0, "{}", ran.out);
}

/// The first call costs six cents, the second one nothing.
const TWO_TURNS: &str = "price = { input = 1.0, output = 10.0 }\nmax_output = 100\n\
    [[turn]]\ncalls = [{ name = \"run_command\", arguments = { command = \"echo ran >> ran\" } }]\n\
    usage = { input = 60000, output = 0 }\n[[turn]]\ntext = \"Done.\"\n";

#[test]
fn a_call_that_is_not_paid_takes_no_turn_of_the_script() {
    let batch = Batch::with_tasks(&["a"], TWO_TURNS);
    let ran = batch.run(&["--budget", "0.0605"]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert_eq!(batch.by_id("stop_reason")[0].1, json!("budget_exceeded"), "{}", ran.err);
    let ran = batch.run(&["--budget", "1"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(batch.runs_of("a"), 1);
}
