//! Images in prompts.

use std::process::Stdio;

use serde_json::{Value, json};

use super::client::AcpClient;
use crate::kit::chat;
use crate::kit::cli::CliFixture;
use crate::kit::server::Server;

/// A red image of 4x2 pixels.
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAQAAAACCAIAAADwyuo0AAAAEElEQVR4nGM4wcUFRwzIHABfagbhiIfHegAAAABJRU5ErkJggg==";

/// Starts the agent with a model that takes images.
fn start(world: &CliFixture, server: &Server) -> AcpClient {
    let base = server.url("/v1");
    let mut command =
        world.command(&["acp", "--model", "openai-chat/gpt-5.5", "--api-base", &base]);
    let mut client =
        AcpClient::spawn(command.env("OPENAI_API_KEY", "sk-test").stderr(Stdio::inherit()));
    let begun = client.initialize(&json!({}));
    assert_eq!(begun["agentCapabilities"]["promptCapabilities"]["image"], true);
    client
}

fn prompt(client: &mut AcpClient, session: &str, data: &str) -> Result<Value, Value> {
    let text = json!({ "type": "text", "text": "What is it?" });
    let image = json!({ "type": "image", "mimeType": "image/png", "data": data });
    client.call("session/prompt", &json!({ "sessionId": session, "prompt": [text, image] }))
}

#[test]
fn an_image_of_a_prompt_reaches_the_model_and_is_still_there_after_a_kill() {
    let world = CliFixture::new();
    let server = Server::new([chat::text("Red."), chat::text("Still red.")]);
    let mut client = start(&world, &server);
    let session = client.new_session(&world);
    // This is not an image, and not even Base64; the session continues.
    for wrong in ["AAAA", "?"] {
        let refused = prompt(&mut client, &session, wrong).unwrap_err();
        assert_eq!(refused["code"], -32602, "{refused}");
    }
    assert_eq!(prompt(&mut client, &session, PNG).unwrap()["stopReason"], "end_turn");
    client.kill();

    let mut client = start(&world, &server);
    let load = json!({ "sessionId": session, "cwd": world.path(""), "mcpServers": [] });
    client.call("session/load", &load).unwrap();
    assert!(client.text("user_message_chunk").contains("[image prompt-1, 4x2]"));
    assert_eq!(client.prompt(&session, "Sure?"), "end_turn");
    let task = json!([
        { "type": "text", "text": "What is it?\n[image prompt-1, 4x2]" },
        { "type": "image_url", "image_url": { "url": format!("data:image/png;base64,{PNG}") } },
    ]);
    let requests = server.requests();
    assert_eq!(requests.len(), 2);
    for request in requests {
        assert_eq!(request.json()["messages"][1]["content"], task);
    }
}
