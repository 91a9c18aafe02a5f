//! The command with published servers, and the published conformance suite for clients.
//!
//! They have to be installed: `MCP_PUBLISHED` is a folder with `node_modules` (`npm install
//! @modelcontextprotocol/server-everything @modelcontextprotocol/server-filesystem
//! @modelcontextprotocol/server-memory`) and, for the servers in Python, an environment `venv` (`pip install
//! mcp-server-git mcp-server-time`). Tests of missing servers are skipped, with a message.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use architect::policy::NoConfirmer;
use architect::port::CancellationToken;
use serde_json::{Value, json};

use super::fixture::{McpFixture as Servers, StartedServers};
use crate::kit::cli::CliFixture;
use crate::kit::effect::scope_with;
use crate::kit::system::wait_until;

/// Returns the path of a file below `MCP_PUBLISHED`; `None`, with a message, if it is not there.
fn published(what: &str) -> Option<PathBuf> {
    let Some(folder) = std::env::var_os("MCP_PUBLISHED") else {
        println!("skipped: MCP_PUBLISHED names no folder with published servers");
        return None;
    };
    let path = Path::new(&folder).join(what);
    if !path.exists() {
        println!("skipped: there is no {}", path.display());
        return None;
    }
    Some(path)
}

fn package(name: &str) -> Option<PathBuf> {
    published(&format!("node_modules/@modelcontextprotocol/{name}/dist/index.js"))
}

/// Calls tools of one server in one run; returns the success and the text for the model of each call.
fn run(world: &CliFixture, server: &Value, calls: &[(&str, Value)]) -> Vec<(bool, String)> {
    world.write(".mcp.json", &json!({ "mcpServers": { "p": server } }).to_string());
    let turn = |(name, arguments): &(&str, Value)| json!({ "name": format!("mcp_p_{name}"), "arguments": arguments });
    let calls: Vec<Value> = calls.iter().map(turn).collect();
    let script = json!({ "turn": [{ "calls": calls }, { "text": "Done." }] });
    let script = toml::to_string(&script).unwrap();
    let ran = world.run_script(&script, &["--trust", "--mode", "yolo", "--json"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let used = ran.json()["tools_used"].as_array().unwrap().clone();
    let id = ran.json()["session_id"].as_str().unwrap().to_owned();
    let events = world.run(&["sessions", "export", &id]).out;
    let records = events.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let results = records.filter_map(|record| find(&record, "result").cloned());
    let texts = results.filter_map(|result| result["text"].as_str().map(str::to_owned));
    used.iter().map(|used| used["success"] == true).zip(texts).collect()
}

/// Returns the value of a key, at any depth.
fn find<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    match value {
        Value::Object(fields) => {
            fields.get(key).or_else(|| fields.values().find_map(|value| find(value, key)))
        }
        Value::Array(items) => items.iter().find_map(|value| find(value, key)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

fn node(script: &Path, args: &[&Path]) -> Value {
    let args: Vec<&Path> = [script].into_iter().chain(args.iter().copied()).collect();
    json!({ "command": "node", "args": args })
}

#[test]
fn the_server_of_everything_is_used() {
    let Some(script) = package("server-everything") else { return };
    let results = run(
        &CliFixture::new(),
        &node(&script, &[]),
        &[
            ("echo", json!({ "message": "hello" })),
            ("get-sum", json!({ "a": 2, "b": 3 })),
            ("get-tiny-image", json!({})),
            ("get-structured-content", json!({ "location": "New York" })),
            ("trigger-long-running-operation", json!({ "duration": 1, "steps": 4 })),
            ("get-sum", json!({ "a": "two", "b": 3 })),
        ],
    );
    let texts: Vec<&str> = results.iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!(texts[0], "Echo: hello");
    assert!(texts[1].contains('5'), "{texts:?}");
    assert!(
        texts[2].contains("[image result-1, ") && texts[3].contains("temperature"),
        "{texts:?}"
    );
    let succeeded: Vec<bool> = results.iter().map(|(success, _)| *success).collect();
    assert_eq!(succeeded, [true, true, true, true, true, false], "{texts:?}");
}

#[test]
fn the_server_of_everything_is_used_at_an_address() {
    let Some(script) = package("server-everything") else { return };
    // Another process could take the port meanwhile.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut command = Command::new("node");
    command.arg(script).arg("streamableHttp").env("PORT", port.to_string());
    let _server = KillOnDrop(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    wait_until("it listens", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    let address = json!({ "type": "http", "url": format!("http://127.0.0.1:{port}/mcp") });
    let long = json!({ "duration": 1, "steps": 4 });
    let results = run(
        &CliFixture::new(),
        &address,
        &[("echo", json!({ "message": "hello" })), ("trigger-long-running-operation", long)],
    );
    assert_eq!(results[0], (true, "Echo: hello".to_owned()));
    assert!(results[1].0, "{results:?}");
}

/// A process that ends with its test.
struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_server_of_files_stays_in_its_folder() {
    let Some(script) = package("server-filesystem") else { return };
    let world = CliFixture::new();
    let folder = world.path("").canonicalize().unwrap();
    let path = folder.join("a.txt");
    let results = run(
        &world,
        &node(&script, &[&folder]),
        &[
            ("write_file", json!({ "path": path, "content": "hello" })),
            ("read_text_file", json!({ "path": path })),
            ("read_text_file", json!({ "path": "/etc/passwd" })),
        ],
    );
    assert_eq!(world.read("a.txt"), "hello");
    assert_eq!(results[1], (true, "hello".to_owned()));
    assert!(!results[2].0, "{results:?}");
}

#[test]
fn the_server_of_memory_remembers() {
    let Some(script) = package("server-memory") else { return };
    let world = CliFixture::new();
    let mut server = node(&script, &[]);
    server["env"] = json!({ "MEMORY_FILE_PATH": world.path("").join("memory.json") });
    let entity = json!({ "name": "a", "entityType": "t", "observations": ["blue"] });
    let results = run(
        &world,
        &server,
        &[("create_entities", json!({ "entities": [entity] })), ("read_graph", json!({}))],
    );
    assert!(results[1].0 && results[1].1.contains("blue"), "{results:?}");
}

#[test]
fn the_server_of_time_returns_it() {
    let Some(program) = published("venv/bin/mcp-server-time") else { return };
    let server = json!({ "command": program, "args": ["--local-timezone", "Europe/Zurich"] });
    let zone = json!({ "timezone": "Europe/Zurich" });
    let results = run(&CliFixture::new(), &server, &[("get_current_time", zone)]);
    assert!(results[0].0 && results[0].1.contains("Europe/Zurich"), "{results:?}");
}

#[test]
fn the_server_of_git_commits() {
    let Some(program) = published("venv/bin/mcp-server-git") else { return };
    let world = CliFixture::new();
    let path = world.path("").canonicalize().unwrap();
    let made = Command::new("git").args(["init", "-q"]).current_dir(&path).status();
    assert!(made.unwrap().success());
    world.write("a.txt", "hello");
    let results = run(
        &world,
        &json!({ "command": program, "args": ["-r", path] }),
        &[
            ("git_add", json!({ "repo_path": path, "files": ["a.txt"] })),
            ("git_status", json!({ "repo_path": path })),
            ("git_log", json!({ "repo_path": "/" })),
        ],
    );
    assert!(results[1].0 && results[1].1.contains("new file:   a.txt"), "{results:?}");
    assert!(!results[2].0, "{results:?}");
}

/// A client for the conformance suite, which gives the address of its server as the last argument: the tools are listed,
/// and called as the scenario says.
#[test]
#[ignore = "the conformance suite runs it"]
fn client() {
    let Some(url) = std::env::args().next_back().filter(|url| url.starts_with("http://")) else {
        return;
    };
    let world = Servers::new();
    let started = world.start([Servers::http_server(&url, &[])]);
    println!("{:?} {:?}", started.problems(), started.names());
    let context = std::env::var("MCP_CONFORMANCE_CONTEXT").unwrap_or_default();
    let context: Value = serde_json::from_str(&context).unwrap_or_default();
    for call in context["toolCalls"].as_array().into_iter().flatten() {
        call_tool(&started, call["name"].as_str().unwrap(), &call["arguments"]);
    }
    for tool in ["add_numbers", "test_reconnection", "valid_tool"] {
        call_tool(&started, tool, &json!({ "a": 2, "b": 3, "region": "eu" }));
    }
}

/// Makes a call, if there is such a tool.
fn call_tool(started: &StartedServers, tool: &str, arguments: &Value) {
    let known = started.servers.tools().iter().find(|known| known.remote_name() == tool);
    if let Some(known) = known {
        let arguments = known.parse_arguments(&arguments.to_string()).unwrap();
        println!(
            "{:?}",
            known.call(
                arguments,
                &"c".into(),
                &scope_with(&CancellationToken::new()),
                &NoConfirmer
            )
        );
    }
}

/// The scenarios about tools: those of the era with sessions, and those that the suite has for the newest one.
const SCENARIOS: [&str; 8] = [
    "initialize",
    "tools_call",
    "sse-retry",
    "request-metadata",
    "http-standard-headers",
    "http-custom-headers",
    "http-invalid-tool-headers",
    "json-schema-ref-no-deref",
];

#[test]
fn the_conformance_suite_finds_nothing_wrong() {
    let Some(suite) = package("conformance") else { return };
    let run = |args: &[&str]| {
        let output = Command::new("node").arg(&suite).args(args).output().unwrap();
        let texts =
            String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        (output.status.success(), texts.into_owned())
    };
    let (works, list) = run(&["list"]);
    if !works {
        let why = list.lines().find(|line| line.contains("Error")).unwrap_or_default();
        println!("skipped: the conformance suite does not run here: {why}");
        return;
    }
    let own = std::env::current_exe().unwrap();
    let own =
        format!("{} mcp::published::client --exact --ignored --nocapture", own.to_str().unwrap());
    for scenario in SCENARIOS {
        if !list.contains(&format!("- {scenario} ")) {
            println!("skipped: this suite has no scenario {scenario}");
            continue;
        }
        let (passed, texts) = run(&["client", "--command", &own, "--scenario", scenario]);
        assert!(passed, "{scenario}: {texts}");
    }
}
