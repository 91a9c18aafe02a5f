//! Money and calls are counted the same everywhere: the result, the events, the log, the trace, the stored sessions.

#![allow(clippy::float_cmp)] // whole dollars, whose sums are exact

use serde_json::Value;

use crate::kit::cli::{CliFixture, CommandResult};

/// Each reply costs a dollar: a million tokens of output.
fn turn(what: &str) -> String {
    format!("[[turn]]\n{what}\nusage = {{ input = 0, output = 1000000 }}\n")
}

fn script(turns: &[&str]) -> String {
    let turns: String = turns.iter().map(|what| turn(what)).collect();
    format!("price = {{ input = 1.0, output = 1.0 }}\nwindow = 2000000\n{turns}")
}

const DISPATCH: &str =
    r#"calls = [{ name = "dispatch_subagent", arguments = { agent = "review", task = "Look." } }]"#;
const LIST: &str = r#"calls = [{ name = "list_files" }]"#;
const SAY: &str = r#"text = "So it is.""#;
const SATISFIED: &str = r#"text = '{"completed": true, "confidence": 0.9}'"#;

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap()
}

/// Asserts that all of them report this number of calls, each of which cost a dollar. `traced` is the number in the
/// trace of the session itself, without the sessions beside it.
fn assert_all_agree(world: &CliFixture, ran: &CommandResult, calls: u32, traced: u32) {
    let lines = ran.lines();
    let events = |name: &str| lines.iter().filter(|line| line["type"] == name).collect::<Vec<_>>();
    let result = events("result")[0];
    let cost = f64::from(calls);
    assert_eq!((number(&result["llm_calls"]), number(&result["cost"])), (cost, cost), "{result}");
    assert_eq!(number(&result["costs"]["total_cost_usd"]), cost);
    let sources = result["costs"]["by_source"].as_object().unwrap().values();
    assert_eq!(sources.map(number).sum::<f64>(), cost, "{result}");
    assert_eq!(number(&result["usage"]["output_tokens"]), cost * 1e6);
    let money = |event: &&&Value| number(&event["cost_usd"]);
    let reported = [events("api_call_end"), events("subagent_call")].concat();
    assert_eq!(
        (reported.len(), reported.iter().map(|event| money(&event)).sum::<f64>()),
        (calls as usize, cost)
    );
    // The newest end of a resumed session includes everything before it.
    let mut ends = events("agent_end");
    ends.reverse();
    let mut seen = std::collections::HashSet::new();
    ends.retain(|end| seen.insert(end["session_id"].to_string()));
    assert_eq!(ends.iter().map(|end| number(&end["llm_calls"])).sum::<f64>(), cost);
    assert_eq!(ends.iter().map(|end| number(&end["cost"])).sum::<f64>(), cost);
    let line = format!("${calls}.00");
    assert!(
        ran.err.contains(&line) && ran.err.contains(&format!("{calls},000,000 out")),
        "{}",
        ran.err
    );

    let session = result["session_id"].as_str().unwrap();
    let trace = world.run(&["trace", session, "--json"]).json();
    assert_eq!(
        (number(&trace["llm_calls"]), number(&trace["cost"])),
        (traced.into(), traced.into())
    );
    let spans = |name: &str| {
        trace[name].as_array().unwrap().iter().map(|span| number(&span["cost"])).sum::<f64>()
    };
    assert_eq!(spans("calls") + spans("subagents"), f64::from(traced));

    let costs = world.run(&["sessions", "costs", "--json"]).json();
    let sum =
        |name: &str| costs.as_array().unwrap().iter().map(|row| number(&row[name])).sum::<f64>();
    assert_eq!((sum("llm_calls"), sum("cost")), (cost, cost), "{costs}");
    let total = world.run(&["sessions", "costs", "--total", "--json"]).json();
    assert_eq!(
        (number(&total["llm_calls"]), number(&total["cost"]), number(&total["output_tokens"])),
        (cost, cost, cost * 1e6)
    );
    assert_eq!(number(&total["input_tokens"]), number(&result["usage"]["input_tokens"]));
    let text = world.run(&["sessions", "costs"]).out;
    let total = text.lines().last().unwrap();
    assert!(total.starts_with("total") && total.ends_with(&format!("${calls}.000000")), "{text}");
    assert_eq!(total.split_whitespace().nth(1), Some(&*calls.to_string()), "{text}");
}

#[test]
fn sub_agents_and_the_closing_call_are_counted_once_by_everyone() {
    let world = CliFixture::new();
    let script = script(&[DISPATCH, LIST, SAY, LIST, SAY]);
    let args = ["--output-format", "stream-json", "--show-costs", "--max-steps", "2"];
    let ran = world.run_script(&script, &args);
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert_all_agree(&world, &ran, 5, 5);
    let result = ran.lines().pop().unwrap();
    let source = |name: &str| result["costs"]["by_source"][name].as_f64();
    assert_eq!(
        [source("agent"), source("subagent"), source("closing")],
        [Some(2.0), Some(2.0), Some(1.0)]
    );
    let costs = world.run(&["sessions", "costs", "--json"]).json();
    let purposes: Vec<_> = costs
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["purpose"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(purposes, ["agent", "closing", "subagent"]);
}

/// The evaluation plays the same script from its beginning: it asks for a tool, has none, and gives its decision in the
/// closing call.
#[test]
fn an_evaluation_is_counted_once_by_everyone() {
    let world = CliFixture::new();
    let script = script(&[DISPATCH, SATISFIED, LIST, SAY]);
    let args = ["--output-format", "stream-json", "--show-costs", "--self-eval", "basic"];
    let ran = world.run_script(&script, &args);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_all_agree(&world, &ran, 6, 4);
    let costs = world.run(&["sessions", "costs", "--json"]).json();
    let purposes = costs.as_array().unwrap().iter().map(|row| row["purpose"].clone());
    assert_eq!(purposes.collect::<Vec<_>>(), ["agent", "eval", "subagent"]);
    // The evaluation is a session of its own.
    assert_eq!(world.run(&["sessions", "--json"]).json().as_array().unwrap().len(), 2);
}

/// Everything at once: a sub-agent, a compaction, evaluations with closing calls of their own, and a closing call.
#[test]
fn everything_together_is_counted_once_by_everyone() {
    let world = CliFixture::new();
    let unsatisfied = r#"text = '{"completed": false, "confidence": 0.9, "issues": ["more"]}'"#;
    let near = turn(LIST).replace("input = 0", "input = 1600000");
    let turns = [DISPATCH, unsatisfied].map(turn).concat()
        + &near
        + &[r#"text = "A summary.""#, SAY, SAY, LIST, SAY].map(turn).concat();
    let script = format!("price = {{ input = 0.0, output = 1.0 }}\nwindow = 2000000\n{turns}");
    let sets = ["--set", "context.keep_recent_steps=1", "--set", "context.summarize_after_steps=1"];
    let args = [
        "--output-format",
        "stream-json",
        "--show-costs",
        "--self-eval",
        "full",
        "--max-steps",
        "3",
    ];
    let ran = world.run_script(&script, &[&args[..], &sets].concat());
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert_all_agree(&world, &ran, 12, 8);
    let result = ran.lines().pop().unwrap();
    assert_eq!(number(&result["usage"]["input_tokens"]), 1.6e6);
    let costs = world.run(&["sessions", "costs", "--json"]).json();
    let rows = costs.as_array().unwrap();
    // The result and the stored sessions agree on the purpose of each dollar.
    let purposes: serde_json::Map<String, Value> = rows
        .iter()
        .map(|row| (row["purpose"].as_str().unwrap().to_owned(), row["cost"].clone()))
        .collect();
    assert_eq!(result["costs"]["by_source"], Value::Object(purposes.clone()), "{costs}");
    let source = |name: &str| purposes[name].as_f64().unwrap();
    assert_eq!(
        ["agent", "closing", "compaction", "eval", "subagent"].map(source),
        [5.0, 1.0, 1.0, 4.0, 1.0]
    );
    assert_eq!(rows.iter().map(|row| number(&row["input_tokens"])).sum::<f64>(), 1.6e6);

    // The totals of a session include its sub-agents, and not the evaluations beside it.
    let session = result["session_id"].as_str().unwrap();
    let shown = world.run(&["sessions", "show", session, "--json"]).json();
    assert_eq!((number(&shown["llm_calls"]), number(&shown["cost"])), (8.0, 8.0), "{shown}");
    assert_eq!(number(&shown["tokens"]), 8e6 + 1.6e6);
    let calls = shown["calls"].as_array().unwrap();
    assert_eq!((calls.len(), calls.iter().map(|call| number(&call["cost"])).sum()), (7, 7.0));
    let trace = world.run(&["trace", session, "--json"]).json();
    assert_eq!(trace["tokens"], shown["tokens"]);
}

/// A resumed session includes its earlier usage.
#[test]
fn a_session_that_goes_on_is_counted_from_its_beginning() {
    let world = CliFixture::new();
    let model = script(&[DISPATCH, SAY, SAY, SAY]);
    let first = world.run_script(&model, &["--json"]);
    assert_eq!(
        (first.json()["llm_calls"].as_u64(), number(&first.json()["cost"])),
        (Some(3), 3.0),
        "{}",
        first.err
    );
    let again =
        world.run(&["resume", first.json()["session_id"].as_str().unwrap(), "Go on.", "--json"]);
    let json = again.json();
    assert_eq!(
        (json["llm_calls"].as_u64(), number(&json["cost"])),
        (Some(4), 4.0),
        "{}",
        again.err
    );
    let costs = world.run(&["sessions", "costs", "--json"]).json();
    assert_eq!(costs.as_array().unwrap().iter().map(|row| number(&row["cost"])).sum::<f64>(), 4.0);
}

/// Each attempt is charged, and records its charge. The tokens of all attempts are counted.
#[test]
fn attempts_that_were_cut_off_have_their_own_charges() {
    let world = CliFixture::new();
    let cut = "text = \"It is\"\n\
               error = { kind = \"truncated\", wait_ms = 1, billed = true }";
    let turns = [cut, cut].map(|turn| format!("[[turn]]\n{turn}\n")).concat();
    for price in ["", "price = { input = 1000.0, output = 1000.0 }\n"] {
        let script = format!("{price}max_output = 100\n{turns}{}", turn(SAY));
        let ran = world.run_script(&script, &["--json"]);
        assert_eq!(ran.code, 0, "{}", ran.err);
        let result = ran.json();
        let session = result["session_id"].as_str().unwrap();
        let trace = world.run(&["trace", session, "--json"]).json();
        let calls = trace["calls"].as_array().unwrap();
        let ends: Vec<&str> = calls.iter().map(|call| call["end"].as_str().unwrap()).collect();
        assert_eq!(ends, ["failed", "failed", "replied"]);
        for name in ["input_tokens", "output_tokens"] {
            let sum: f64 = calls.iter().map(|call| number(&call[name])).sum();
            assert_eq!(sum, number(&result["usage"][name]), "{name}: {trace}");
            assert!(number(&calls[0][name]) > 0.0, "{trace}");
        }
        if !price.is_empty() {
            let costs: Vec<f64> = calls.iter().map(|call| number(&call["cost"])).collect();
            assert_eq!((costs[0], costs[2]), (costs[1], 1000.0), "{trace}");
            assert!((costs.iter().sum::<f64>() - number(&result["cost"])).abs() < 1e-6);
        }
        let shown = world.run(&["sessions", "show", session, "--json"]).json();
        let calls = shown["calls"].as_array().unwrap();
        let tokens = |call: &Value| number(&call["input_tokens"]) + number(&call["output_tokens"]);
        assert_eq!(calls.iter().map(tokens).sum::<f64>(), number(&shown["tokens"]), "{shown}");
        assert_eq!(calls.len(), 3);
    }
}
