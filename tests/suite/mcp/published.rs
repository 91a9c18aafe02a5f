//! Servers that others have published. They have to be there, so nobody is made to run these.
//!
//! `MCP_PUBLISHED` is the folder with `node_modules` and a Python environment `venv` that has them.

#![allow(clippy::print_stdout)] // whoever runs these wants to see something

use architect::exec::Mode;
use architect::mcp::{Answer, Spec};
use architect::model::ToolStatus;
use architect::port::Cancel;
use serde_json::{Value, json};

use super::world::{Started, World};
use crate::tools::world::scope_of;

fn folder() -> String {
    std::env::var("MCP_PUBLISHED").expect("MCP_PUBLISHED names a folder with published servers")
}

fn node(package: &str, args: &[&str]) -> Spec {
    let script = format!("{}/node_modules/@modelcontextprotocol/{package}/dist/index.js", folder());
    let args: Vec<&str> = [script.as_str()].into_iter().chain(args.iter().copied()).collect();
    World::program("p", "node", &args)
}

fn python(program: &str, args: &[&str]) -> Spec {
    World::program("p", &format!("{}/venv/bin/{program}", folder()), args)
}

fn call(started: &Started, tool: &str, arguments: &Value) -> String {
    let tool = started.tool(tool);
    let arguments = tool.arguments(&arguments.to_string()).unwrap();
    let Answer { status, text } = tool.call(arguments, &"c".into(), &scope_of(&Cancel::new()));
    assert_eq!(status, ToolStatus::Ok, "{text}");
    text
}

fn start(world: &World, spec: Spec) -> Started {
    let started = world.start([spec]);
    println!("{:?} {:?}", started.told(), started.names());
    assert_eq!(started.problems, []);
    started
}

#[test]
#[ignore = "needs published servers"]
fn everything() {
    let world = World::new();
    let started = start(&world, node("server-everything", &[]));
    assert_eq!(call(&started, "echo", &json!({ "message": "hello" })), "Echo: hello");
    println!("{}", call(&started, "get-tiny-image", &json!({})));
    let long = json!({ "duration": 2, "steps": 4 });
    println!("{}", call(&started, "trigger-long-running-operation", &long));
}

#[test]
#[ignore = "needs published servers"]
fn filesystem() {
    let world = World::confined(|policy| policy.mode = Mode::WorkspaceWrite);
    let workspace = world.workspace();
    let started = start(&world, node("server-filesystem", &[workspace.to_str().unwrap()]));
    let path = workspace.join("a.txt");
    call(&started, "write_file", &json!({ "path": path, "content": "hello" }));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "hello");
    assert_eq!(call(&started, "read_text_file", &json!({ "path": path })), "hello");
}

#[test]
#[ignore = "needs published servers"]
fn memory() {
    let world = World::new();
    let started = start(&world, node("server-memory", &[]));
    println!("{}", call(&started, "read_graph", &json!({})));
}

#[test]
#[ignore = "needs published servers"]
fn time() {
    let world = World::new();
    let started = start(&world, python("mcp-server-time", &["--local-timezone", "Europe/Zurich"]));
    let now = call(&started, "get_current_time", &json!({ "timezone": "Europe/Zurich" }));
    assert!(now.contains("Europe/Zurich"), "{now}");
}

#[test]
#[ignore = "needs published servers"]
fn git() {
    let world = World::new();
    let path = world.workspace();
    let made = std::process::Command::new("git").arg("init").arg("-q").arg(&path).status();
    assert!(made.unwrap().success());
    let started = start(&world, python("mcp-server-git", &["-r", path.to_str().unwrap()]));
    println!("{}", call(&started, "git_status", &json!({ "repo_path": path })));
}

/// Uses the server whose address is the last argument: its tools are listed, and those of the conformance suite called.
#[test]
#[ignore = "needs an address"]
fn client() {
    let Some(url) = std::env::args().next_back().filter(|url| url.starts_with("http://")) else {
        return;
    };
    let world = World::new();
    let started = start(&world, World::address(&url, &[]));
    for tool in ["add_numbers", "test_reconnection", "echo"] {
        if started.servers.tools().iter().any(|known| known.remote_name() == tool) {
            println!("{}", call(&started, tool, &json!({ "a": 2, "b": 3, "message": "hello" })));
        }
    }
}

/// The published conformance suite, as far as it is about tools.
#[test]
#[ignore = "needs published servers"]
fn conformance() {
    let suite =
        format!("{}/node_modules/@modelcontextprotocol/conformance/dist/index.js", folder());
    let own = std::env::current_exe().unwrap();
    let own =
        format!("{} mcp::published::client --exact --ignored --nocapture", own.to_str().unwrap());
    for scenario in ["initialize", "tools_call", "sse-retry"] {
        let mut command = std::process::Command::new("node");
        command.args([&suite, "client", "--command", &own, "--scenario", scenario]);
        let output = command.output().unwrap();
        let said =
            String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
        println!("{scenario}: {said}");
        assert!(output.status.success(), "{scenario}");
    }
}
