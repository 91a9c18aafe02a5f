//! Servers of a run, from outside.

use std::fs;
use std::time::Duration;

use serde_json::json;

use super::server::ARGUMENTS;
use rustix::process::{Pid, Signal, kill_process};

use super::world::with_variable;
use crate::cli::world::{World, finish};
use crate::support::server::{Reply, Server};
use crate::tools::world::eventually;

/// Returns a world whose user has set this.
fn world(config: &str) -> World {
    let world = World::new();
    configure(&world, config);
    world
}

fn configure(world: &World, config: &str) {
    let folder = world.home().join(".config/architect");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("config.toml"), config).unwrap();
}

/// Returns the entry of a server that is this program.
fn stdio(name: &str, behaviour: &str) -> String {
    logged(name, behaviour, "/dev/null")
}

/// Returns the same for one that writes down what it is told.
fn logged(name: &str, behaviour: &str, log: &str) -> String {
    let program = std::env::current_exe().unwrap();
    let program = program.to_str().unwrap();
    format!(
        "[[mcp.servers]]\nname = {name:?}\ncommand = {program:?}\nargs = {ARGUMENTS:?}\ntimeout = 20\n\
         env = {{ MCP_TEST = {behaviour:?}, MCP_LOG = {log:?} }}\n"
    )
}

fn script(tool: &str) -> String {
    format!(
        "[[turn]]\ncalls = [{{ name = {tool:?}, arguments = {{ text = \"hello\" }} }}]\n\n\
         [[turn]]\ntext = \"Done.\"\n"
    )
}

#[test]
fn a_run_uses_the_tools_of_a_server() {
    let world = world(&stdio("s", "modern"));
    let ran = world.play(&script("mcp_s_echo"), &["--json", "--mode", "yolo"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let used = &ran.json()["tools_used"][0];
    assert_eq!((&used["name"], &used["success"]), (&json!("mcp_s_echo"), &json!(true)));
    // Nobody can be asked, and what a server's tool does is not known.
    let ran = world.play(&script("mcp_s_echo"), &["--json", "--mode", "confirm-sensitive"]);
    assert_eq!(ran.json()["tools_used"][0]["success"], json!(false));
}

#[test]
fn a_run_uses_the_tools_of_a_server_at_an_address() {
    let reply = |id: u64, result: serde_json::Value| {
        Reply::new(200, &json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string())
    };
    let tools = json!([{ "name": "echo", "inputSchema": { "type": "object" } }]);
    let server = Server::new([
        reply(1, json!({ "supportedVersions": ["2026-07-28"] })),
        reply(2, json!({ "tools": tools })),
        reply(3, json!({ "content": [{ "type": "text", "text": "hello" }] })),
    ]);
    let url = server.url("/mcp");
    let entry = format!("[[mcp.servers]]\nname = \"h\"\nurl = {url:?}\ntoken_env = \"H_TOKEN\"\n");
    let world = world(&entry);
    let model = world.script(&script("mcp_h_echo"));
    let mut command =
        world.command(&["run", "Do it.", "--model", &model, "--json", "--mode", "yolo"]);
    let ran = finish(command.env("H_TOKEN", "canary").spawn().unwrap());
    assert_eq!(ran.json()["tools_used"][0]["success"], json!(true), "{}", ran.err);
    assert_eq!(server.requests()[2].header("authorization"), Some("Bearer canary"));
    // Without its token the server is left out, and the run goes on.
    let ran = world.play(&script("read_file"), &["--json"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.err.contains("MCP server `h`: H_TOKEN, its token, is not set"), "{}", ran.err);
}

/// Fault M1.
#[test]
fn a_run_without_a_required_server_does_not_begin() {
    let world = world(&format!("{}required = true\n", stdio("s", "exits")));
    let ran = world.play(&script("read_file"), &["--json"]);
    assert_eq!(ran.code, 3, "{}", ran.err);
    assert!(ran.err.contains("no configuration found"), "{}", ran.err);
}

/// Fault M1.
#[test]
fn a_run_goes_on_without_a_server_that_is_not_required() {
    let world = world(&stdio("s", "exits"));
    let ran = world.play("[[turn]]\ntext = \"Done.\"\n", &[]);
    assert_eq!((ran.code, ran.out.trim()), (0, "Done."));
    assert!(ran.err.contains("the tools of the MCP server `s` are missing"), "{}", ran.err);
}

/// Sends the program a signal when its server was asked for this, and sees that nothing is left.
fn interrupted(behaviour: &str, asked: &str, signal: Signal) {
    let world = World::new();
    let log = world.path("").canonicalize().unwrap().join("server.log");
    let log = log.to_str().unwrap();
    configure(&world, &logged("s", behaviour, log));
    let model = world.script(&script("mcp_s_hang"));
    let child =
        world.command(&["run", "Do it.", "--model", &model, "--mode", "yolo"]).spawn().unwrap();
    eventually("the server was asked", || {
        fs::read_to_string(log).is_ok_and(|told| told.contains(asked))
    });
    assert!(with_variable(log) > 0);
    kill_process(Pid::from_child(&child), signal).unwrap();
    let ran = finish(child);
    assert!(ran.took < Duration::from_secs(10), "{:?}", ran.took);
    eventually("the server is gone", || with_variable(log) == 0);
}

/// Faults M14 and M18.
#[test]
fn nothing_is_left_of_servers_whatever_ends_a_run() {
    interrupted("deaf", "server/discover", Signal::INT);
    interrupted("modern", "tools/call", Signal::INT);
    interrupted("modern", "tools/call", Signal::KILL);
}
