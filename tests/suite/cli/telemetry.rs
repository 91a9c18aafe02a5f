//! Spans leave for a collector, and nothing depends on it.

use super::world::{World, finish};
use crate::support::chat;
use crate::support::server::{Reply, Server};

#[test]
fn the_spans_of_a_run_reach_their_collector() {
    let (world, server) = (World::new(), Server::new([chat::text("Fine.")]));
    let collector = Server::repeating([Reply::new(200, "{}")]);
    let mut task = world.task(&server, &[]);
    let ran = finish(task.env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url("")).spawn().unwrap());
    assert_eq!(ran.code, 0, "{}", ran.err);
    let spans: Vec<String> =
        collector.requests().iter().map(|request| request.body.clone()).collect();
    assert_eq!(collector.requests()[0].path, "/v1/traces");
    assert!(spans.concat().contains("gen_ai.request.model"), "{spans:?}");
}

#[test]
fn a_collector_that_is_gone_changes_nothing() {
    let (world, server) = (World::new(), Server::new([chat::text("Fine.")]));
    let mut task = world.task(&server, &[]);
    let task = task.env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1");
    let ran = finish(task.spawn().unwrap());
    assert_eq!((ran.code, ran.out.as_str()), (0, "Fine.\n"), "{}", ran.err);
    assert!(ran.took.as_secs() < 5);
}
