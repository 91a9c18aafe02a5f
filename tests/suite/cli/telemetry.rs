//! Spans are exported to a collector, and no run depends on it.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::kit::chat;
use crate::kit::cli::{CliFixture, wait_for_exit};
use crate::kit::server::{ScriptedReply, Server};

#[test]
fn the_spans_of_a_run_reach_their_collector() {
    let (world, server) = (CliFixture::new(), Server::new([chat::text("Fine.")]));
    let collector = Server::repeating([ScriptedReply::with_length(200, "{}")]);
    let mut task = world.command_with_server(&server, &[]);
    let ran =
        wait_for_exit(task.env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url("")).spawn().unwrap());
    assert_eq!(ran.code, 0, "{}", ran.err);
    let spans: Vec<String> =
        collector.requests().iter().map(|request| request.body.clone()).collect();
    assert_eq!(collector.requests()[0].path, "/v1/traces");
    assert!(spans.concat().contains("gen_ai.request.model"), "{spans:?}");
}

/// The usage of a sub-agent is in the span of its call and in that of the run, as in the result document. The
/// sub-agent's own spans are below that of its call, and its model calls count once in the metrics.
#[test]
fn a_sub_agent_counts_where_it_was_sent_from() {
    let dispatch = r#"{"agent": "review", "task": "Look."}"#;
    let replies = [
        chat::calls(&[("d", "dispatch_subagent", dispatch)]),
        chat::text("It looks good."),
        chat::text("Fine."),
    ];
    let (world, server) = (CliFixture::new(), Server::new(replies));
    let collector = Server::repeating([ScriptedReply::with_length(200, "{}")]);
    let mut task = world.command_with_server(&server, &["--json"]);
    let ran =
        wait_for_exit(task.env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url("")).spawn().unwrap());
    assert_eq!(ran.code, 0, "{}", ran.err);
    let bodies: Vec<Value> =
        collector.requests().into_iter().map(|request| request.json()).collect();
    let spans: Vec<&Value> = bodies
        .iter()
        .filter_map(|body| body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array())
        .flatten()
        .collect();
    let find = |name: &str| *spans.iter().find(|found| found["name"] == name).unwrap();
    let input = |span: &str| {
        let span = find(span);
        let attributes = span["attributes"].as_array().unwrap();
        let usage =
            attributes.iter().find(|one| one["key"] == "gen_ai.usage.input_tokens").unwrap();
        usage["value"]["intValue"].as_str().unwrap().parse::<u64>().unwrap()
    };
    assert_eq!(input("execute_tool dispatch_subagent"), chat::USAGE.0);
    assert_eq!(ran.json()["usage"]["input_tokens"], input("invoke_agent build"));
    let subagent = find("invoke_agent review");
    assert_eq!(subagent["parentSpanId"], find("execute_tool dispatch_subagent")["spanId"]);
    assert_eq!(input("invoke_agent review"), chat::USAGE.0);
    let ids: BTreeSet<&str> = spans.iter().map(|span| span["spanId"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), spans.len());
    let below = |parent: &Value| {
        let is_below = |span: &&&Value| span["parentSpanId"] == parent["spanId"];
        spans.iter().filter(is_below).filter(|span| span["kind"] == 3).count()
    };
    assert_eq!((below(subagent), below(find("invoke_agent build"))), (1, 2));
    let metrics = bodies.iter().find(|body| body.get("resourceMetrics").is_some()).unwrap();
    let metrics = &metrics["resourceMetrics"][0]["scopeMetrics"][0]["metrics"];
    assert_eq!(metrics[0]["name"], "gen_ai.client.operation.duration");
    assert_eq!(metrics[0]["histogram"]["dataPoints"][0]["count"], "3");
}

#[test]
fn a_collector_that_is_gone_changes_nothing() {
    let (world, server) = (CliFixture::new(), Server::new([chat::text("Fine.")]));
    let mut task = world.command_with_server(&server, &[]);
    let task = task.env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1");
    let ran = wait_for_exit(task.spawn().unwrap());
    assert_eq!((ran.code, ran.out.as_str()), (0, "Fine.\n"), "{}", ran.err);
    assert!(ran.took.as_secs() < 5);
}
