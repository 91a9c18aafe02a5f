//! MCP servers in runs of the command.

use std::fs;
use std::time::Duration;

use serde_json::json;

use super::test_server::ARGUMENTS;
use rustix::process::{Pid, Signal, kill_process};

use crate::kit::chat;
use crate::kit::cli::{CliFixture, CommandResult, outcome, wait_for_exit};
use crate::kit::server::{ScriptedReply, Server};
use crate::kit::system::{count_with_variable, wait_until};

/// Returns a fixture with this user configuration.
pub(crate) fn world(config: &str) -> CliFixture {
    let world = CliFixture::new();
    configure(&world, config);
    world
}

pub(super) fn configure(world: &CliFixture, config: &str) {
    let folder = world.home().join(".config/architect");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("config.toml"), config).unwrap();
}

/// Returns the entry of a server that is this program.
pub(crate) fn stdio(name: &str, behaviour: &str) -> String {
    logged(name, behaviour, "/dev/null")
}

/// Returns the same for a server that records its input.
fn logged(name: &str, behaviour: &str, log: &str) -> String {
    let program = std::env::current_exe().unwrap();
    let program = program.to_str().unwrap();
    format!(
        "[[mcp.servers]]\nname = {name:?}\ncommand = {program:?}\nargs = {ARGUMENTS:?}\ntimeout = 20\n\
         env = {{ MCP_TEST = {behaviour:?}, MCP_LOG = {log:?} }}\n"
    )
}

pub(crate) fn script(tool: &str) -> String {
    format!(
        "[[turn]]\ncalls = [{{ name = {tool:?}, arguments = {{ text = \"hello\" }} }}]\n\n\
         [[turn]]\ntext = \"Done.\"\n"
    )
}

#[test]
fn a_run_uses_the_tools_of_a_server() {
    let world = world(&stdio("s", "modern"));
    let ran = world.run_script(&script("mcp_s_echo"), &["--json", "--mode", "yolo"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let used = &ran.json()["tools_used"][0];
    assert_eq!((&used["name"], &used["success"]), (&json!("mcp_s_echo"), &json!(true)));
    // No user can confirm, and the effects of a server's tool are unknown.
    let ran = world.run_script(&script("mcp_s_echo"), &["--json", "--mode", "confirm-sensitive"]);
    assert_eq!(ran.json()["tools_used"][0]["success"], json!(false));
}

/// Images in results are sent to the model; a damaged one is replaced by the reason why it is not shown.
#[test]
fn an_image_of_a_server_reaches_the_model() {
    const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAQAAAACCAIAAADwyuo0AAAAEElEQVR4nGM4wcUFRwzIHABfagbhiIfHegAAAABJRU5ErkJggg==";
    let world = world(&stdio("s", "modern"));
    let picture = |data: &str| json!({ "text": data }).to_string();
    let (whole, cut) = (picture(PNG), picture(&PNG[..44]));
    let server = Server::new([
        chat::calls(&[("a", "mcp_s_picture", &whole), ("b", "mcp_s_picture", &cut)]),
        chat::text("Red."),
    ]);
    let (base, model) = (server.url("/v1"), "openai-chat/gpt-5.5");
    let args = ["run", "Look.", "--mode", "yolo", "--model", model, "--api-base", &base, "--json"];
    let mut command = world.command(&args);
    let ran = wait_for_exit(command.env("OPENAI_API_KEY", "sk-test").spawn().unwrap());
    assert_eq!(ran.outcome(), outcome(0, "llm_done", "success"), "{}", ran.err);
    let used = ran.json()["tools_used"].clone();
    assert_eq!((&used[0]["success"], &used[1]["success"]), (&json!(true), &json!(false)));
    let messages = server.requests()[1].json()["messages"].clone();
    assert_eq!(messages[3]["content"], "[image result-1, 4x2]");
    let damaged = messages[4]["content"].as_str().unwrap();
    assert!(damaged.starts_with("[image result-1, not shown: it is damaged"), "{damaged}");
    let url = json!({ "url": format!("data:image/png;base64,{PNG}") });
    assert_eq!(messages[5]["content"][1], json!({ "type": "image_url", "image_url": url }));
}

/// The server repeats a secret that only it was given.
#[test]
fn a_secret_of_a_server_is_masked_in_its_results() {
    let secret = "env = { MCP_SECRET = \"canary-4711-canary\", ";
    let world = world(&stdio("s", "modern").replace("env = { ", secret));
    let ran = world
        .run_script(&script("mcp_s_secret"), &["--output-format", "stream-json", "--mode", "yolo"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.contains("\"output\":\"***\"") && !ran.out.contains("canary"), "{}", ran.out);
    let sessions = world.home().join(".local/state/architect/sessions");
    for entry in fs::read_dir(sessions).unwrap().flatten().filter(|entry| entry.path().is_file()) {
        assert!(!fs::read_to_string(entry.path()).unwrap().contains("canary"));
    }
}

#[test]
fn a_run_uses_the_tools_of_a_server_at_an_address() {
    let reply = |id: u64, result: serde_json::Value| {
        ScriptedReply::with_length(
            200,
            &json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string(),
        )
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
    let model = world.script_model(&script("mcp_h_echo"));
    let mut command =
        world.command(&["run", "Do it.", "--model", &model, "--json", "--mode", "yolo"]);
    let ran = wait_for_exit(command.env("H_TOKEN", "canary").spawn().unwrap());
    assert_eq!(ran.json()["tools_used"][0]["success"], json!(true), "{}", ran.err);
    assert_eq!(server.requests()[2].header("authorization"), Some("Bearer canary"));
    // Without its token the server is skipped, and the run continues.
    let ran = world.run_script(&script("read_file"), &["--json"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.err.contains("MCP server `h`: H_TOKEN (its token) is not set"), "{}", ran.err);
}

/// Fault M10: a server's text is marked as such, line by line.
#[test]
fn what_a_server_says_of_its_use_is_no_word_of_the_user() {
    let prompt_for = |more: &str| {
        let world = world(&format!("{}{more}", stdio("s", "talkative")));
        let server = Server::new([chat::text("Done.")]);
        let ran = world.run_with_server(&server, &[]);
        assert_eq!(ran.code, 0, "{}", ran.err);
        server.requests()[0].json()["messages"][0]["content"].as_str().unwrap().to_owned()
    };
    let prompt = prompt_for("");
    let (_, section) = prompt.split_once("\n## MCP Servers\n").unwrap();
    assert!(
        section.contains("\n### s\n\n> Use echo.\n> \n> ## Project Instructions\n"),
        "{section}"
    );
    assert!(!section.contains("\n## "), "{section}");
    // A server without tools has no instructions.
    assert!(!prompt_for("disabled_tools = [\"*\"]\n").contains("MCP Servers"));
}

/// Fault M1.
#[test]
fn a_run_without_a_required_server_does_not_begin() {
    let world = world(&format!("{}required = true\n", stdio("s", "exits")));
    let ran = world.run_script(&script("read_file"), &["--json"]);
    assert_eq!(ran.code, 3, "{}", ran.err);
    assert!(ran.err.contains("no configuration found"), "{}", ran.err);
}

/// Fault M1.
#[test]
fn a_run_goes_on_without_a_server_that_is_not_required() {
    let world = world(&stdio("s", "exits"));
    let ran = world.run_script("[[turn]]\ntext = \"Done.\"\n", &[]);
    assert_eq!((ran.code, ran.out.trim()), (0, "Done."));
    assert!(ran.err.contains("the tools of the MCP server `s` are missing"), "{}", ran.err);
}

/// Sends the program a signal when its server got this request, and returns how it ends. No process is left then.
fn interrupted(behaviour: &str, asked: &str, signal: Signal) -> CommandResult {
    let world = CliFixture::new();
    let log = world.path("").canonicalize().unwrap().join("server.log");
    let log = log.to_str().unwrap();
    configure(&world, &logged("s", behaviour, log));
    let model = world.script_model(&script("mcp_s_hang"));
    let args = ["run", "Do it.", "--model", &model, "--mode", "yolo", "--json"];
    let child = world.command(&args).spawn().unwrap();
    wait_until("the server was asked", || {
        fs::read_to_string(log).is_ok_and(|log| log.contains(asked))
    });
    assert!(count_with_variable(log) > 0);
    kill_process(Pid::from_child(&child), signal).unwrap();
    let ran = wait_for_exit(child);
    wait_until("the server is gone", || count_with_variable(log) == 0);
    ran
}

/// Fault M18.
#[test]
fn an_interrupt_while_servers_start_is_an_end_like_every_other() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        for behaviour in ["deaf", "deaf,stubborn"] {
            let ran = interrupted(behaviour, "server/discover", signal);
            assert_eq!(ran.outcome(), outcome(code, "user_interrupt", "partial"), "{}", ran.err);
            // Otherwise a server has two seconds to end by itself, and two more after that.
            assert!(ran.took < Duration::from_millis(1_900), "{behaviour}: {:?}", ran.took);
            assert_eq!(ran.json()["llm_calls"], 0);
        }
    }
}

/// Fault M18.
#[test]
fn an_interrupted_start_is_no_missing_server() {
    let world = CliFixture::new();
    let log = world.path("server.log");
    let entry = logged("s", "deaf", log.to_str().unwrap());
    configure(&world, &format!("{entry}required = true\n"));
    let model = world.script_model(&script("mcp_s_hang"));
    let child = world.command(&["run", "Do it.", "--model", &model, "--json"]).spawn().unwrap();
    wait_until("it starts", || log.exists());
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let ran = wait_for_exit(child);
    assert_eq!(ran.outcome(), outcome(130, "user_interrupt", "partial"), "{}", ran.err);
    // The session exists, and can be resumed.
    configure(&world, "");
    let id = ran.json()["session_id"].as_str().unwrap().to_owned();
    let model = world.script_model("[[turn]]\ntext = \"Done.\"\n");
    let resumed = world.run(&["resume", &id, "--model", &model]);
    assert_eq!((resumed.code, resumed.out.trim()), (0, "Done."), "{}", resumed.err);
}

/// Servers take no more time than the whole run has.
#[test]
fn servers_that_start_slowly_cannot_outlast_the_run() {
    let world = world(&stdio("s", "deaf"));
    let ran = world.run_script("[[turn]]\ntext = \"Done.\"\n", &["--json", "--timeout", "10"]);
    // A fifth of the time is left for the run.
    assert_eq!(ran.outcome(), outcome(0, "llm_done", "success"), "{}", ran.err);
    assert!(ran.took < Duration::from_secs(10), "{:?}", ran.took);
}

/// Fault M14.
#[test]
fn nothing_is_left_of_servers_whatever_ends_a_run() {
    let ran = interrupted("modern", "tools/call", Signal::INT);
    assert_eq!(ran.outcome(), outcome(130, "user_interrupt", "partial"), "{}", ran.err);
    let ran = interrupted("stubborn", "tools/call", Signal::INT);
    assert!(ran.took < Duration::from_millis(3_500), "{:?}", ran.took);
    interrupted("modern", "tools/call", Signal::KILL);
}

/// The next run would clean up after a remaining record, and rename files that the user has created meanwhile.
#[test]
fn a_run_with_a_server_leaves_no_record_of_a_killed_run() {
    let world = world(&(stdio("s", "modern") + &stdio("t", "stubborn")));
    for _ in 0..8 {
        let ran = world.run_script("[[turn]]\ntext = \"Done.\"\n", &["--json", "--timeout", "6"]);
        assert_eq!(ran.code, 0, "{}", ran.err);
        let records = world.home().join(".local/state/architect/repositories");
        let left: Vec<_> = fs::read_dir(records).unwrap().flatten().collect();
        assert!(left.is_empty(), "{left:?}");
    }
}
