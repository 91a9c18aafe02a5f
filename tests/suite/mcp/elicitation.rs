//! Questions of a server to the user.

use architect::mcp::ServerSpec;
use architect::policy::{
    ConfirmationAnswer, ConfirmationRequest, Confirmer, Elicitation, ElicitationAnswer,
};
use architect::port::{CancellationToken, EffectContext};
use architect::types::CallId;
use serde_json::{Map, Value, json};

use super::cli_runs::{script, stdio, world};
use super::fixture::{McpFixture, StartedServers};
use crate::kit::effect::scope_with;
use crate::kit::server::{ScriptedReply, Server};
use crate::kit::terminal::TmuxTerminal;

/// A user who gives this name.
struct User(&'static str);

impl Confirmer for User {
    fn confirm(&self, _: &ConfirmationRequest<'_>, _: &EffectContext) -> ConfirmationAnswer {
        ConfirmationAnswer::Yes
    }

    fn can_answer(&self) -> bool {
        true
    }

    fn answer(&self, question: &Elicitation, _: &CallId, _: &EffectContext) -> ElicitationAnswer {
        assert_eq!((&*question.server, &*question.message), ("s", "Who?"));
        assert_eq!(question.fields[0].name, "name");
        let name = ("name".to_owned(), Value::from(self.0));
        ElicitationAnswer::Accept(Map::from_iter([name]))
    }
}

/// Returns the answer that a server gets in a call.
fn answered(started: &StartedServers, user: &User) -> String {
    let tool = started.tool("quiz");
    let arguments = tool.parse_arguments("{}").unwrap();
    tool.call(arguments, &"call-7".into(), &scope_with(&CancellationToken::new()), user).text
}

const ACCEPTED: &str = r#"{"action":"accept","content":{"name":"me"}}"#;

/// Both modes of the protocol: a request of the server, and a call that is repeated with the answer.
#[test]
fn a_server_gets_the_answer_of_the_user() {
    for behaviour in ["", "modern"] {
        let mut world = McpFixture::new();
        world.setup.has_user = true;
        let started = world.start([world.test_server("s", behaviour)]);
        let answer = answered(&started, &User("me"));
        assert!(answer.contains(ACCEPTED), "{behaviour}: {answer}");
        let long = answered(&started, &User("too long for the schema"));
        assert!(long.contains(r#"{"action":"decline"}"#), "{behaviour}: {long}");
    }
}

#[test]
fn a_question_without_a_user_is_declined() {
    let world = McpFixture::new();
    let started = world.start([world.test_server("s", "")]);
    let answer = answered(&started, &User("me"));
    assert!(answer.contains(r#"{"action":"decline"}"#), "{answer}");
}

#[test]
fn a_server_at_an_address_asks_in_its_stream() {
    let reply = |id: u64, result: Value| {
        ScriptedReply::with_length(
            200,
            &json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string(),
        )
    };
    let event = |message: Value| format!("data: {message}\n\n");
    let schema = json!({ "type": "object", "properties": { "name": { "type": "string" } } });
    let question = json!({ "jsonrpc": "2.0", "id": "e1", "method": "elicitation/create",
        "params": { "message": "Who?", "requestedSchema": schema } });
    let result = json!({ "content": [{ "type": "text", "text": "done" }] });
    let done = json!({ "jsonrpc": "2.0", "id": 4, "result": result });
    let server = Server::new([
        ScriptedReply::with_length(400, "no session"),
        reply(2, json!({ "protocolVersion": "2025-11-25", "capabilities": {} })),
        ScriptedReply::with_length(202, ""),
        reply(3, json!({ "tools": [{ "name": "quiz", "inputSchema": { "type": "object" } }] })),
        ScriptedReply::stream([event(question), event(done)]),
        ScriptedReply::with_length(202, ""),
    ]);
    let mut world = McpFixture::new();
    world.setup.has_user = true;
    let spec = McpFixture::http_server(&server.url("/mcp"), &[]);
    let started = world.start([ServerSpec { name: "s".to_owned(), ..spec }]);
    assert_eq!(answered(&started, &User("me")), "done");
    let requests = server.requests();
    let offered = &requests[1].json()["params"]["capabilities"];
    assert_eq!(*offered, json!({ "elicitation": { "form": {} } }));
    let answer = requests[5].json();
    assert_eq!(answer["id"], "e1");
    assert_eq!(answer["result"].to_string(), ACCEPTED);
}

/// There is no user in a pipe.
#[test]
fn a_run_in_a_pipe_declines() {
    let world = world(&stdio("s", ""));
    let ran = world
        .run_script(&script("mcp_s_quiz"), &["--output-format", "stream-json", "--mode", "yolo"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.contains(r#"{\"action\":\"decline\"}"#), "{}", ran.out);
}

#[test]
fn the_user_answers_on_the_terminal() {
    let world = world(&stdio("s", ""));
    let model = world.script_model(&script("mcp_s_quiz"));
    let args = ["run", "Do it.", "--model", &model, "--mode", "yolo", "--sandbox", "off"];
    let Some(terminal) = TmuxTerminal::start(&world, (120, 50), &[], &args) else { return };
    let shown = terminal.wait_for("answer it?");
    assert!(shown.contains("the MCP server s asks:") && shown.contains("> Who?"), "{shown}");
    terminal.type_line("y");
    terminal.wait_for("name: Your name (text):");
    // A required field has a value.
    terminal.type_line("");
    terminal.type_line("me");
    terminal.wait_for("color (1 red, 2 blue; may be empty):");
    terminal.type_line("2");
    let shown = terminal.wait_for("exit 0");
    assert!(shown.contains("Done."), "{shown}");
    let exported = world.run(&["sessions", "export", "last"]);
    let answer = r#"{\"action\":\"accept\",\"content\":{\"name\":\"me\",\"color\":\"blue\"}}"#;
    let stored = exported.out.replace(r#"\\\""#, r#"\""#);
    assert!(stored.contains(answer), "{}", exported.out);
}
