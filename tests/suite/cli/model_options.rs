//! What a request has besides the conversation, as the user sets it, and models that the user defines.

use crate::kit::chat;
use crate::kit::cli::CliFixture;
use crate::kit::server::Server;

#[test]
fn options_and_headers_are_sent_with_each_request() {
    let server = Server::new([chat::text("Done.")]);
    let sets = ["--set", "llm.options.temperature=0.2", "--set", "llm.headers.X-Team=build"];
    let done = CliFixture::new().run_with_server(&server, &sets);
    assert_eq!(done.code, 0, "{}", done.stderr);
    let request = &server.requests()[0];
    assert_eq!(request.json()["temperature"], 0.2);
    assert_eq!(request.header("x-team"), Some("build"));
}

#[test]
fn a_reserved_option_ends_the_run_before_it_begins() {
    let server = Server::new([chat::text("Done.")]);
    for set in ["llm.options.model=other", "llm.headers.authorization=x"] {
        let done = CliFixture::new().run_with_server(&server, &["--set", set]);
        assert_eq!(done.code, 3, "{}", done.stderr);
    }
    assert_eq!(server.requests().len(), 0);
}

#[test]
fn an_effort_is_sent_and_reported() {
    let server = Server::new([chat::text("Done.")]);
    let done = CliFixture::new().run_with_server(&server, &["--effort", "low", "--json"]);
    assert_eq!(done.json()["effort"], "low");
    assert_eq!(server.requests()[0].json()["reasoning_effort"], "low");
}

#[test]
fn an_effort_that_the_model_does_not_have_is_refused() {
    let done = CliFixture::new()
        .command(&["run", "Do it.", "--model", "openai/gpt-4o", "--effort", "high"])
        .env("OPENAI_API_KEY", "sk-test-canary")
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(3), "{error}");
    assert!(error.contains("openai/gpt-4o: the model has no setting for how much it"), "{error}");
}
