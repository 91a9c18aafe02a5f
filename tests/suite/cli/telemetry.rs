//! Spans are exported to a collector, and no run depends on it.

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

/// The usage of a sub-agent is in the span of its call and of the run, as in the result document.
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
    let input = |span: &str| {
        let bodies = collector.requests().into_iter().map(|request| request.json());
        let spans = bodies.flat_map(|body| {
            body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().clone()
        });
        let span = spans.into_iter().find(|found| found["name"] == span).unwrap();
        let attributes = span["attributes"].as_array().unwrap();
        let usage =
            attributes.iter().find(|one| one["key"] == "gen_ai.usage.input_tokens").unwrap();
        usage["value"]["intValue"].as_str().unwrap().parse::<u64>().unwrap()
    };
    assert_eq!(input("execute_tool dispatch_subagent"), chat::USAGE.0);
    assert_eq!(ran.json()["usage"]["input_tokens"], input("invoke_agent build"));
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
