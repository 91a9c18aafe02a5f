//! Lines that are not messages of the protocol.

use serde_json::json;

use super::client::{AcpClient, command};
use crate::kit::cli::CliFixture;

const HELLO: &str = "[[turn]]\ntext = \"Hello.\"\n";

#[test]
fn bad_lines_are_answered_and_nothing_is_lost() {
    let world = CliFixture::new();
    let mut client = AcpClient::spawn(&mut command(&world, HELLO, &[]));
    let early = client.call("session/list", &json!({})).unwrap_err();
    assert_eq!(early["code"], -32600);
    client.initialize(&json!({}));
    client.send_line("");
    for (line, code) in [
        ("{ nonsense", -32700),
        ("\u{0}\u{1}", -32700),
        ("[]", -32600),
        ("\"text\"", -32600),
        ("{\"jsonrpc\":\"1.0\",\"id\":null,\"method\":\"initialize\"}", -32600),
    ] {
        client.send_line(line);
        let answer = client.receive();
        assert_eq!(
            (&answer["id"], &answer["error"]["code"]),
            (&json!(null), &json!(code)),
            "{line}"
        );
    }
    assert_eq!(client.call("session/unknown", &json!({})).unwrap_err()["code"], -32601);
    assert_eq!(client.call("session/new", &json!({ "cwd": 3 })).unwrap_err()["code"], -32602);
    // Notifications have no answer, and a response to nothing is ignored.
    client.notify("session/cancel", &json!({ "sessionId": "none" }));
    client.notify("session/cancel", &json!(7));
    client.notify("$/unknown", &json!({}));
    client.send(&json!({ "jsonrpc": "2.0", "id": 99, "result": {} }));
    let session = client.new_session(&world);
    let empty = json!({ "sessionId": session, "prompt": [] });
    assert_eq!(client.call("session/prompt", &empty).unwrap_err()["code"], -32602);
    assert_eq!(client.prompt(&session, "Hello?"), "end_turn");
    assert_eq!(client.text("agent_message_chunk"), "Hello.");
    assert_eq!(client.close(), 0);
}

#[test]
fn a_client_of_another_version_gets_ours() {
    let world = CliFixture::new();
    let mut client = AcpClient::spawn(&mut command(&world, HELLO, &[]));
    let answer = client.call("initialize", &json!({ "protocolVersion": 7 })).unwrap();
    assert_eq!(answer["protocolVersion"], 1);
}

/// Standard output has messages only, and a broken configuration is an error of the session.
#[test]
fn wrong_options_end_the_command_before_it_speaks() {
    let world = CliFixture::new();
    let ran = world.run(&["acp", "--set", "limits.max_stepz=1"]);
    assert_eq!((ran.code, ran.out.as_str()), (3, ""));
}
