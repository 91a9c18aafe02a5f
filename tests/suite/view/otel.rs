//! Traces and metrics, as a collector gets them.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use architect::types::{Fault, FaultKind};
use architect::view::otel::{ExportRequest, OtelSettings, OtelSink};
use architect::view::{ReportSink, RunResult};
use serde_json::Value;

use super::fixture::{ViewFixture, call_turn, fault_turn, run_info, text_turn};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// Takes one request, and answers it.
fn collector() -> (String, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let taking = thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let request = request(&mut socket);
        socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").unwrap();
        request
    });
    (url, taking)
}

/// Reads a request with a content length.
fn request(socket: &mut TcpStream) -> String {
    let (mut text, mut piece) = (String::new(), vec![0; 1 << 16]);
    loop {
        let read = socket.read(&mut piece).unwrap();
        assert!(read > 0, "the request ended early: {text}");
        text.push_str(std::str::from_utf8(&piece[..read]).unwrap());
        let length = text.lines().find_map(|line| line.strip_prefix("content-length: "));
        if let (Some((_, body)), Some(length)) = (text.split_once("\r\n\r\n"), length)
            && body.len() >= length.parse().unwrap()
        {
            return text;
        }
    }
}

fn settings(url: &str) -> OtelSettings {
    let settings = OtelSettings::from_env(|name| match name {
        "OTEL_EXPORTER_OTLP_ENDPOINT" => Some(url.to_owned()),
        "OTEL_EXPORTER_OTLP_HEADERS" => Some("x-key=secret".to_owned()),
        "TRACEPARENT" => Some(PARENT.to_owned()),
        _ => None,
    });
    settings.unwrap().unwrap()
}

fn send(export: &ExportRequest<'_>) -> Result<(), String> {
    let agent = ureq::Agent::config_builder()
        .timeout_global(Some(export.timeout))
        .proxy(None)
        .build()
        .new_agent();
    let mut request = agent.post(export.url);
    for (name, value) in export.headers {
        request = request.header(name, value);
    }
    request.send(export.body).map(|_| ()).map_err(|error| error.to_string())
}

fn run(url: &str) -> (RunResult, String) {
    run_with(settings(url), send)
}

fn run_with(
    settings: OtelSettings,
    send: impl FnMut(&ExportRequest<'_>) -> Result<(), String> + Send + 'static,
) -> (RunResult, String) {
    let edit = r#"{"path":"secret-name.py","old_str":"a","new_str":"b"}"#;
    let fixture = ViewFixture::new(vec![
        fault_turn("Half", Fault::new(FaultKind::Truncated, "the stream ended early")),
        call_turn("I look.", &[("c1", "edit_file", edit), ("c2", "fail", "{}")]),
        text_turn("Done."),
    ]);
    let telemetry = OtelSink::new(settings, &run_info(), send).unwrap();
    let parent = telemetry.trace_parent().to_string();
    let outputs: Vec<Box<dyn ReportSink>> = vec![Box::new(telemetry)];
    let (result, finished) = fixture.run(outputs);
    finished.unwrap();
    (result, parent)
}

#[test]
fn a_run_is_a_tree_of_spans_with_the_names_of_the_conventions() {
    let (url, taking) = collector();
    let (_, parent) = run(&url);
    let request = taking.join().unwrap();
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    let head = head.to_lowercase();
    assert!(head.starts_with("post /v1/traces http/1.1"), "{head}");
    assert!(head.contains("content-type: application/json") && head.contains("x-key: secret"));
    assert!(!head.contains("transfer-encoding"), "{head}");
    assert!(!body.contains("secret-name") && !body.contains("I look"), "{body}");
    let mut body: Value = serde_json::from_str(body).unwrap();
    let spans = body["resourceSpans"][0]["scopeSpans"][0]["spans"].take();
    let spans = spans.as_array().unwrap();
    let root = spans.iter().find(|span| span["name"] == "invoke_agent build").unwrap();
    assert_eq!(root["parentSpanId"], "b7ad6b7169203331");
    assert_eq!(
        parent,
        format!("00-0af7651916cd43dd8448eb211c80319c-{}-01", root["spanId"].as_str().unwrap())
    );
    for span in spans {
        assert_eq!(span["traceId"], "0af7651916cd43dd8448eb211c80319c");
        assert!(span == root || span["parentSpanId"] == root["spanId"]);
    }
    let printed: Vec<String> = spans.iter().map(describe_spans).collect();
    insta::assert_snapshot!(printed.join("\n"), @r#"
    chat demo, kind 3, 100 ms, status {"code":2,"message":"the stream ended early"}
      gen_ai.operation.name = "chat"
      gen_ai.provider.name = "scripted"
      gen_ai.request.model = "demo"
      architect.attempt = "1"
      architect.purpose = "agent"
      error.type = "truncated"
      gen_ai.response.time_to_first_chunk = 0.1
      architect.cost_usd = 0.0
    chat demo, kind 3, 800 ms, status {"code":0}
      gen_ai.operation.name = "chat"
      gen_ai.provider.name = "scripted"
      gen_ai.request.model = "demo"
      architect.attempt = "2"
      architect.purpose = "agent"
      gen_ai.usage.input_tokens = "100"
      gen_ai.usage.output_tokens = "20"
      gen_ai.response.finish_reasons = {"values":[{"stringValue":"tool_calls"}]}
      gen_ai.response.time_to_first_chunk = 0.8
      architect.cost_usd = 0.00045
    execute_tool edit_file, kind 1, 10 ms, status {"code":0}
      gen_ai.operation.name = "execute_tool"
      gen_ai.tool.name = "edit_file"
      gen_ai.tool.type = "function"
      gen_ai.tool.call.id = "c1"
    execute_tool fail, kind 1, 10 ms, status {"code":2,"message":"failed"}
      gen_ai.operation.name = "execute_tool"
      gen_ai.tool.name = "fail"
      gen_ai.tool.type = "function"
      gen_ai.tool.call.id = "c2"
      error.type = "failed"
    chat demo, kind 3, 400 ms, status {"code":0}
      gen_ai.operation.name = "chat"
      gen_ai.provider.name = "scripted"
      gen_ai.request.model = "demo"
      architect.attempt = "1"
      architect.purpose = "agent"
      gen_ai.usage.input_tokens = "100"
      gen_ai.usage.output_tokens = "20"
      gen_ai.response.finish_reasons = {"values":[{"stringValue":"stop"}]}
      gen_ai.response.time_to_first_chunk = 0.4
      architect.cost_usd = 0.00045
    invoke_agent build, kind 1, 2047 ms, status {"code":0}
      gen_ai.operation.name = "invoke_agent"
      gen_ai.provider.name = "scripted"
      gen_ai.request.model = "demo"
      gen_ai.agent.name = "build"
      gen_ai.agent.version = "0.1.0"
      gen_ai.conversation.id = "s-1"
      gen_ai.usage.input_tokens = "200"
      gen_ai.usage.output_tokens = "40"
      architect.stop_reason = "llm_done"
      architect.exit_code = "0"
      architect.steps = "1"
      architect.llm_calls = "2"
      architect.cost_usd = 0.0009
      * retry
      * hook_complete
    "#);
}

/// Runs with these settings, and returns the URL and the document of each request.
fn exported(settings: OtelSettings) -> Vec<(String, Value)> {
    let requests = Arc::new(Mutex::new(Vec::new()));
    let taken = Arc::clone(&requests);
    run_with(settings, move |export| {
        let body = serde_json::from_slice(export.body).unwrap();
        taken.lock().unwrap().push((export.url.to_owned(), body));
        Ok(())
    });
    std::mem::take(&mut *requests.lock().unwrap())
}

/// A metric of the semantic conventions for generative AI: name, unit, boundaries of its buckets, required attributes, and
/// the others that it may have.
type Convention =
    (&'static str, &'static str, [f64; 14], &'static [&'static str], &'static [&'static str]);

const CONVENTIONS: [Convention; 2] = [
    (
        "gen_ai.client.operation.duration",
        "s",
        [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92],
        &["gen_ai.operation.name", "gen_ai.provider.name"],
        &[
            "error.type",
            "gen_ai.request.model",
            "gen_ai.response.model",
            "server.address",
            "server.port",
        ],
    ),
    (
        "gen_ai.client.token.usage",
        "{token}",
        [
            1.0,
            4.0,
            16.0,
            64.0,
            256.0,
            1024.0,
            4096.0,
            16384.0,
            65536.0,
            262_144.0,
            1_048_576.0,
            4_194_304.0,
            16_777_216.0,
            67_108_864.0,
        ],
        &["gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.token.type"],
        &["gen_ai.request.model", "gen_ai.response.model", "server.address", "server.port"],
    ),
];

#[test]
fn metrics_have_the_names_buckets_and_attributes_of_the_conventions() {
    let requests = exported(settings("http://127.0.0.1:1"));
    let (_, body) = requests.iter().find(|(url, _)| url.ends_with("/v1/metrics")).unwrap();
    let body = &body["resourceMetrics"][0];
    let resource = body["resource"]["attributes"].as_array().unwrap();
    let version = resource.iter().find(|one| one["key"] == "service.version").unwrap();
    assert_eq!(version["value"]["stringValue"], env!("CARGO_PKG_VERSION"));
    let metrics = body["scopeMetrics"][0]["metrics"].as_array().unwrap();
    let mut printed = Vec::new();
    for (metric, (name, unit, bounds, required, optional)) in metrics.iter().zip(CONVENTIONS) {
        assert_eq!((metric["name"].as_str(), metric["unit"].as_str()), (Some(name), Some(unit)));
        assert_eq!(metric["histogram"]["aggregationTemporality"], 2);
        for point in metric["histogram"]["dataPoints"].as_array().unwrap() {
            assert_eq!(point["explicitBounds"], serde_json::json!(bounds));
            let buckets = point["bucketCounts"].as_array().unwrap().iter();
            let buckets: Vec<u64> =
                buckets.map(|count| count.as_str().unwrap().parse().unwrap()).collect();
            assert_eq!(buckets.len(), bounds.len() + 1);
            assert_eq!(point["count"], buckets.iter().sum::<u64>().to_string());
            let attributes = point["attributes"].as_array().unwrap().iter();
            let attributes: Vec<(&str, &str)> = attributes
                .map(|one| {
                    (one["key"].as_str().unwrap(), one["value"]["stringValue"].as_str().unwrap())
                })
                .collect();
            let has = |key: &&str| attributes.iter().any(|(own, _)| own == key);
            assert!(required.iter().all(has), "{name}: {attributes:?}");
            let is_known = |key: &str| required.contains(&key) || optional.contains(&key);
            assert!(attributes.iter().all(|(key, _)| is_known(key)), "{name}: {attributes:?}");
            let values: Vec<&str> = attributes.iter().map(|(_, value)| *value).collect();
            let sum = point["sum"].as_f64().unwrap();
            printed.push(format!("{name} {}: {} of {sum:.1}", values.join(" "), point["count"]));
        }
    }
    insta::assert_snapshot!(printed.join("\n"), @r#"
    gen_ai.client.operation.duration chat scripted demo: "2" of 1.2
    gen_ai.client.operation.duration chat scripted demo truncated: "1" of 0.1
    gen_ai.client.token.usage chat scripted demo input: "2" of 200.0
    gen_ai.client.token.usage chat scripted demo output: "2" of 40.0
    "#);
}

#[test]
fn content_is_sent_only_on_request() {
    let content = ["I look.", "secret-name.py", "Done."];
    for captures_content in [false, true] {
        let settings = OtelSettings { captures_content, ..settings("http://127.0.0.1:1") };
        let sent = exported(settings).into_iter().map(|(_, body)| body.to_string());
        let sent = sent.collect::<String>();
        for text in content {
            assert_eq!(sent.contains(text), captures_content, "{text}");
        }
        for key in [
            "gen_ai.input.messages",
            "gen_ai.output.messages",
            "gen_ai.tool.call.arguments",
            "gen_ai.tool.call.result",
        ] {
            assert_eq!(sent.contains(key), captures_content, "{key}");
        }
    }
}

/// Returns a span in a few lines.
fn describe_spans(span: &Value) -> String {
    let millis = |name: &str| span[name].as_str().unwrap().parse::<u64>().unwrap() / 1_000_000;
    let took = millis("endTimeUnixNano") - millis("startTimeUnixNano");
    let attributes = span["attributes"].as_array().unwrap().iter();
    let attributes = attributes.map(|pair| {
        let value = pair["value"].as_object().unwrap().values().next().unwrap();
        format!("  {} = {value}", pair["key"].as_str().unwrap())
    });
    let events = span["events"].as_array().into_iter().flatten();
    let events = events.map(|event| format!("  * {}", event["name"].as_str().unwrap()));
    let lines: Vec<String> = attributes.chain(events).collect();
    let (name, kind, status) = (span["name"].as_str().unwrap(), &span["kind"], &span["status"]);
    format!("{name}, kind {kind}, {took} ms, status {status}\n{}", lines.join("\n"))
}

#[test]
fn an_absent_collector_does_not_affect_a_run() {
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let begun = Instant::now();
    let (result, _) = run(&format!("http://{gone}"));
    assert_eq!(result.exit_code, 0);
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_silent_collector_delays_the_end_only_briefly() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let begun = Instant::now();
    let (result, _) = run(&format!("http://{}", silent.local_addr().unwrap()));
    assert_eq!(result.exit_code, 0);
    assert!(begun.elapsed() < Duration::from_secs(6));
}
