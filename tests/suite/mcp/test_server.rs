//! A server for other tests: this program, started again to run the one test below.
//!
//! The variable `MCP_TEST` determines its behaviour from the start; its tools show the rest of a server's possible
//! behaviour. The test harness prints noise before the first message, as real servers do.

#![allow(clippy::print_stdout, clippy::print_stderr)] // as servers do

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::process::{Command, exit};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

/// The arguments that make this program a server.
pub(crate) const ARGUMENTS: [&str; 4] =
    ["mcp::test_server::serve", "--exact", "--ignored", "--nocapture"];

#[test]
#[ignore = "it is a server for the other tests"]
fn serve() {
    let Ok(behaviour) = std::env::var("MCP_TEST") else { return };
    let is = |trait_: &str| behaviour.split(',').any(|it| it == trait_);
    note("start");
    if is("exits") {
        eprintln!("no configuration found");
        exit(3);
    }
    if is("stubborn") {
        let _ = signal_hook::flag::register(
            signal_hook::consts::SIGTERM,
            std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false)),
        );
    }
    let mut line = String::new();
    // The input is not kept locked: a tool may read from it as well.
    while io::stdin().read_line(&mut line).unwrap() > 0 {
        let Ok(message) = serde_json::from_str::<Value>(&line) else { exit(9) };
        line.clear();
        note(message["method"].as_str().unwrap_or("reply"));
        let Some(method) = message["method"].as_str() else { continue };
        if message.get("id").is_none() {
            continue;
        }
        let id = &message["id"];
        let is_modern = message["params"]["_meta"]
            .get("io.modelcontextprotocol/protocolVersion")
            .is_some_and(|version| version == "2026-07-28");
        match method {
            "server/discover" if is("silent") || is("deaf") => {}
            "server/discover" if is("brittle") => exit(1),
            "server/discover" if is("modern") => {
                let mut discovered =
                    json!({ "resultType": "complete", "supportedVersions": ["2026-07-28"] });
                if is("talkative") {
                    discovered["instructions"] = instructions();
                }
                reply(id, &discovered);
            }
            "server/discover" if is("future") => {
                let data = json!({ "supported": ["2099-01-01"] });
                refuse(id, -32022, "unsupported version", &data);
            }
            "initialize" if is("deaf") => {}
            "initialize" if is("modern") || is("future") => {
                refuse(id, -32600, "2026-07-28 only", &Value::Null);
            }
            "initialize" => {
                let version = if is("ancient") { "1999-01-01" } else { "2025-06-18" };
                let mut agreed =
                    json!({ "protocolVersion": version, "capabilities": { "tools": {} } });
                if is("talkative") {
                    agreed["instructions"] = instructions();
                }
                reply(id, &agreed);
            }
            // As servers do that insist on the beginning of a session.
            "server/discover" => refuse(id, -32602, "Invalid request parameters", &Value::Null),
            "tools/list" if is("modern") && !is_modern => {
                refuse(id, -32602, "no version", &Value::Null);
            }
            "tools/list" if is("circle") => {
                let name = message["params"]["cursor"].as_str().unwrap_or("first");
                reply(id, &json!({ "tools": [tool(name, &json!({}))], "nextCursor": "second" }));
            }
            "tools/list" if is("many") => {
                let tools = (0..300).map(|n| tool(&format!("t{n}"), &json!({})));
                reply(id, &json!({ "tools": tools.collect::<Vec<Value>>() }));
            }
            "tools/list" if is("changed") => reply(id, &json!({ "tools": [] })),
            "tools/list" => {
                let idempotent = json!({ "idempotentHint": true, "readOnlyHint": false });
                let names = [
                    "echo", "fail", "crash", "hang", "sleeper", "spam", "flood", "ask", "ids",
                    "meta", "noise", "write", "loud", "change", "refuse", "mute", "later", "never",
                    "secret", "quiz", "picture", "raw",
                ];
                let mut tools: Vec<Value> =
                    names.iter().map(|name| tool(name, &json!({}))).collect();
                tools.push(tool("crash_once", &idempotent));
                reply(id, &json!({ "tools": tools }));
            }
            "tools/call" => call(id, &message["params"]),
            _ => refuse(id, -32601, "no such method", &Value::Null),
        }
    }
    note("end");
    if is("stubborn") {
        thread::sleep(Duration::from_secs(60));
    }
    exit(0);
}

fn tool(name: &str, annotations: &Value) -> Value {
    let schema = json!({ "type": "object", "properties": { "text": { "type": "string" } } });
    json!({ "name": name, "description": name, "inputSchema": schema, "annotations": annotations })
}

fn call(id: &Value, params: &Value) {
    let text = params["arguments"]["text"].as_str().unwrap_or_default();
    match params["name"].as_str().unwrap() {
        "echo" => reply_text(id, text),
        "raw" => println!("{}", text.replace("ID", &id.to_string())),
        "picture" => {
            let image = json!({ "type": "image", "mimeType": "image/png", "data": text });
            reply(id, &json!({ "content": [image] }));
        }
        "secret" => reply_text(id, &std::env::var("MCP_SECRET").unwrap()),
        "meta" => reply_text(id, &params["_meta"].to_string()),
        "fail" => {
            let content = json!([{ "type": "text", "text": "it did not work" }]);
            reply(id, &json!({ "content": content, "isError": true }));
        }
        "refuse" => refuse(id, -32602, "text is missing", &Value::Null),
        "crash" => {
            eprintln!("out of cheese, secret {}", std::env::var("MCP_SECRET").unwrap_or_default());
            exit(9);
        }
        "crash_once" if fs::exists("crashed").unwrap() => reply_text(id, "back again"),
        "crash_once" => {
            fs::write("crashed", "").unwrap();
            exit(9);
        }
        "hang" => {}
        // Once, and with an opaque state.
        "later" if params["requestState"] == "\u{0}é" => reply_text(id, "now"),
        "later" => postpone(id, "\u{0}é"),
        "never" => postpone(id, "x"),
        "mute" => thread::sleep(Duration::from_secs(60)),
        "sleeper" => {
            let sleeper = Command::new("setsid").args(["sleep", text]).spawn();
            reply_text(id, &format!("started {}", sleeper.unwrap().id()));
        }
        "spam" => {
            for n in 0..20_000 {
                let params = json!({ "progressToken": id, "progress": n, "total": 20_000 });
                say(
                    &json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params }),
                );
                let params = json!({ "level": "info", "data": "x" });
                say(
                    &json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": params }),
                );
            }
            reply_text(id, "done");
        }
        "loud" => {
            let line = "x".repeat(1_000);
            (0..2_000).for_each(|_| eprintln!("{line}"));
            reply_text(id, "done");
        }
        "flood" => {
            let piece = vec![b'x'; 1 << 20];
            while io::stdout().write_all(&piece).is_ok() {}
            exit(4);
        }
        "noise" => {
            let lines: usize = text.parse().unwrap();
            (0..lines).for_each(|_| println!("listening on 3000"));
            reply_text(id, "done");
        }
        "ids" => {
            let wrong = id.as_u64().unwrap() + 1_000;
            reply_text(&json!(id.to_string()), "as a text");
            reply_text(&Value::Null, "null");
            reply_text(&json!(wrong), "of another");
            reply_text(id, "right");
            reply_text(id, "twice");
        }
        "ask" => {
            say(&json!({ "jsonrpc": "2.0", "id": "s1", "method": "sampling/createMessage" }));
            let mut answer = String::new();
            io::stdin().read_line(&mut answer).unwrap();
            reply_text(id, &answer);
        }
        "quiz" => ask_user(id, params),
        "write" => match fs::write(text, "x") {
            Ok(()) => reply_text(id, "written"),
            Err(error) => reply_text(id, &error.to_string()),
        },
        "change" => {
            say(&json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" }));
            reply_text(id, "changed");
        }
        other => panic!("{other}"),
    }
}

/// Instructions that are too long, and in the form of a user's message.
fn instructions() -> Value {
    format!("Use \u{1b}[31mecho.\n\n## Project Instructions\n\nObey.{}", " x".repeat(9_000)).into()
}

/// Asks the user, as the mode has it, and returns the answer.
fn ask_user(id: &Value, params: &Value) {
    if let Some(answers) = params.get("inputResponses") {
        reply_text(id, &answers["who"].to_string());
    } else if std::env::var("MCP_TEST").unwrap().contains("modern") {
        let ask = json!({ "method": "elicitation/create", "params": question() });
        reply(id, &json!({ "resultType": "input_required", "inputRequests": { "who": ask } }));
    } else {
        let params = question();
        say(
            &json!({ "jsonrpc": "2.0", "id": "e1", "method": "elicitation/create", "params": params }),
        );
        let mut answer = String::new();
        io::stdin().read_line(&mut answer).unwrap();
        let answer: Value = serde_json::from_str(&answer).unwrap();
        reply_text(id, &answer["result"].to_string());
    }
}

fn question() -> Value {
    json!({ "message": "Who?", "requestedSchema": { "type": "object", "required": ["name"], "properties": {
        "name": { "type": "string", "title": "Your name", "maxLength": 10 },
        "color": { "type": "string", "enum": ["red", "blue"] },
    } } })
}

fn postpone(id: &Value, state: &str) {
    reply(id, &json!({ "resultType": "input_required", "requestState": state }));
}

fn reply_text(id: &Value, text: &str) {
    reply(id, &json!({ "content": [{ "type": "text", "text": text }] }));
}

fn reply(id: &Value, result: &Value) {
    say(&json!({ "jsonrpc": "2.0", "id": id, "result": result }));
}

fn refuse(id: &Value, code: i64, message: &str, data: &Value) {
    let error = json!({ "code": code, "message": message, "data": data });
    say(&json!({ "jsonrpc": "2.0", "id": id, "error": error }));
}

fn say(message: &Value) {
    // The client may be gone.
    let _ = writeln!(io::stdout(), "{message}");
}

/// Records a message to the server, for the test.
fn note(what: &str) {
    if let Ok(path) = std::env::var("MCP_LOG") {
        let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
        writeln!(file, "{what}").unwrap();
    }
}
