//! The agent with the client library that the authors of the protocol have published.

use std::path::Path;

use super::client::{command, published};
use crate::kit::cli::{CliFixture, wait_for_exit};

const SCRIPT: &str = r#"
[[turn]]
reasoning = "Hm."
text = "I'll write it. "
calls = [{ id = "w", name = "write_file", arguments = { path = "new.txt", content = "hello\n" } }]
[[turn]]
text = "Written."
[[turn]]
text = "Still here."
"#;

/// Requires the library: `ACP_PUBLISHED` is a folder with `node_modules` (`npm install @agentclientprotocol/sdk`).
#[test]
fn a_published_client_prompts_permits_and_loads() {
    let Some(library) = published() else {
        println!("skipped: ACP_PUBLISHED names no folder with @agentclientprotocol/sdk");
        return;
    };
    let world = CliFixture::new();
    let agent = command(&world, SCRIPT, &[]);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite/acp/published_client.mjs");
    let mut node = world.command(&[]);
    node = {
        let mut command = std::process::Command::new("node");
        command.arg(script).arg(library.join("dist/v1/stable/acp.js")).arg(agent.get_program());
        command.args(agent.get_args()).current_dir(world.path("")).env_clear();
        for (name, value) in node.get_envs() {
            if let Some(value) = value {
                command.env(name, value);
            }
        }
        command.stdin(std::process::Stdio::null());
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        command
    };
    let ran = wait_for_exit(node.spawn().unwrap());
    assert_eq!(ran.code, 0, "{}\n{}", ran.out, ran.err);
    assert_eq!(world.read("new.txt"), "hello\n");
    let expected = [
        "protocol 1",
        "permission new.txt: once,session,no,abort",
        "stop end_turn",
        "thought Hm.",
        "text I'll write it. Written.",
        "calls w:pending w:in_progress w:completed",
        "listed 1",
        "loaded user_message_chunk,agent_message_chunk,tool_call,agent_message_chunk",
        "stop end_turn",
        "text Still here.",
    ];
    assert_eq!(ran.out.lines().collect::<Vec<_>>(), expected, "{}", ran.err);
}
