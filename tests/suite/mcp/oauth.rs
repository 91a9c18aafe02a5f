//! Access tokens by client credentials: a server, its authorization server, and all possible faults between them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use architect::mcp::{ClientCredentials, ServerSpec, ServerTransport};
use architect::net::{HttpOptions, Secret};
use architect::port::CancellationToken;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::cli_runs::world;
use super::fixture::{McpFixture, StartedServers};
use crate::kit::cli::wait_for_exit;
use crate::kit::server::{ReceivedRequest, ScriptedReply, Server};

/// Changes by a test to a server and its authorization server, which are one process here.
#[derive(Clone, Copy)]
struct Behaviour {
    /// The parameters of its challenge.
    challenge: &'static str,
    /// Changes the metadata of the server, and that of its authorization server; `Null` for none.
    resource: fn(&mut Value),
    issuer: fn(&mut Value),
    /// The path of the authorization server.
    issuer_path: &'static str,
    /// The path of its metadata.
    issuer_place: &'static str,
    /// Changes the answer with a token.
    token: fn(&mut Value),
    /// Returns whether a token of this number is still accepted for the request of this number.
    accepts: fn(usize, usize) -> bool,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            challenge: "",
            resource: |_| {},
            issuer: |_| {},
            issuer_path: "",
            issuer_place: "/.well-known/oauth-authorization-server",
            token: |_| {},
            accepts: |_, _| true,
        }
    }
}

/// Returns a server with this behaviour.
fn server(behaviour: Behaviour) -> Server {
    let (tokens, calls) = (AtomicUsize::new(0), AtomicUsize::new(0));
    Server::with_handler(move |request| {
        let origin = format!("http://{}", request.header("host").unwrap());
        let document = |change: fn(&mut Value), mut document: Value| {
            change(&mut document);
            match document {
                Value::Null => ScriptedReply::with_length(404, "{}"),
                document => ScriptedReply::with_length(200, &document.to_string()),
            }
        };
        let issuer = format!("{origin}{}", behaviour.issuer_path);
        match request.path.as_str() {
            "/.well-known/oauth-protected-resource/mcp" => {
                let resource = format!("{origin}/mcp");
                let servers = json!([issuer]);
                document(
                    behaviour.resource,
                    json!({ "resource": resource, "authorization_servers": servers, "scopes_supported": ["read"] }),
                )
            }
            "/token" => {
                let number = tokens.fetch_add(1, Ordering::SeqCst) + 1;
                let token = format!("canary-token-{number}");
                document(
                    behaviour.token,
                    json!({ "access_token": token, "token_type": "Bearer", "expires_in": 3600 }),
                )
            }
            path if path == behaviour.issuer_place => {
                let endpoint = format!("{origin}/token");
                document(behaviour.issuer, json!({ "issuer": issuer, "token_endpoint": endpoint }))
            }
            "/mcp" => {
                let number = calls.fetch_add(1, Ordering::SeqCst) + 1;
                let token = request.header("authorization").unwrap_or_default();
                let token = token.strip_prefix("Bearer canary-token-");
                let token = token.and_then(|token| token.parse().ok());
                if !token.is_some_and(|token| (behaviour.accepts)(token, number)) {
                    let challenge = format!("Bearer realm=\"a, b\"{}", behaviour.challenge);
                    let challenge = challenge.replace("ORIGIN", &origin);
                    return ScriptedReply::with_headers(
                        401,
                        &[("www-authenticate", &challenge)],
                        "",
                    );
                }
                answer(request)
            }
            _ => ScriptedReply::with_length(404, "{}"),
        }
    })
}

fn answer(request: &ReceivedRequest) -> ScriptedReply {
    let message = request.json();
    let result = match message["method"].as_str().unwrap() {
        "server/discover" => json!({ "supportedVersions": ["2026-07-28"] }),
        "tools/list" => {
            json!({ "tools": [{ "name": "do it", "inputSchema": { "type": "object" } }] })
        }
        _ => json!({ "content": [{ "type": "text", "text": "done" }] }),
    };
    let reply = json!({ "jsonrpc": "2.0", "id": message["id"], "result": result });
    ScriptedReply::with_length(200, &reply.to_string())
}

fn credentials() -> ClientCredentials {
    ClientCredentials {
        client_id: "my client".to_owned(),
        secret: Arc::new(|_| Ok(Secret::new("canary-4711/+:").unwrap())),
        scopes: Vec::new(),
        issuer: None,
        token_url: None,
        options: Arc::new(|_| HttpOptions::default()),
    }
}

/// Starts a server at a URL with these credentials.
fn start_at(url: &str, credentials: ClientCredentials) -> StartedServers {
    let spec = McpFixture::http_server(url, &[]);
    let (url, headers, options) = (url.to_owned(), Vec::new(), HttpOptions::default());
    let credentials = Some(Box::new(credentials));
    let transport = ServerTransport::Http { url, headers, options, credentials };
    McpFixture::new().start([ServerSpec { transport, timeout: Duration::from_secs(20), ..spec }])
}

fn start(server: &Server) -> StartedServers {
    start_at(&server.url("/mcp"), credentials())
}

/// Returns the problem of a server with this behaviour, which is not called again.
fn problem(behaviour: Behaviour) -> String {
    let server = server(behaviour);
    problem_of(&start(&server))
}

fn problem_of(started: &StartedServers) -> String {
    let problems = started.problems();
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(!problems[0].contains("canary"), "{problems:?}");
    problems[0].clone()
}

fn paths(server: &Server) -> Vec<String> {
    server.requests().into_iter().map(|request| request.path).collect()
}

/// Returns the requests for a token, as the fields of their forms.
fn forms(server: &Server) -> Vec<String> {
    let requests = server.requests().into_iter().filter(|request| request.path == "/token");
    requests.map(|request| request.body).collect()
}

#[test]
fn a_rejected_request_leads_to_a_token() {
    let server = server(Behaviour::default());
    let started = start(&server);
    assert_eq!(started.problems(), [""; 0]);
    assert_eq!(started.ok("do it", ""), "done");
    let well_known = "/.well-known/oauth-";
    let expected = [
        "/mcp",
        &format!("{well_known}protected-resource/mcp"),
        &format!("{well_known}authorization-server"),
        "/token",
        "/mcp",
        "/mcp",
        "/mcp",
    ];
    assert_eq!(paths(&server), expected);
    let requests = server.requests();
    let resource = server.url("%2Fmcp").replace("://", "%3A%2F%2F").replace("1:", "1%3A");
    let form = format!("grant_type=client_credentials&resource={resource}&scope=read");
    assert_eq!(forms(&server), [form]);
    let pair = BASE64_STANDARD.encode("my%20client:canary-4711%2F%2B%3A");
    assert_eq!(requests[3].header("authorization"), Some(&*format!("Basic {pair}")));
    assert!(requests[..3].iter().all(|request| request.header("authorization").is_none()));
    assert_eq!(requests[6].header("authorization"), Some("Bearer canary-token-1"));
}

#[test]
fn the_metadata_says_where_and_how_the_secret_is_sent() {
    // The metadata is at the place that the challenge names, and the secret is sent in the body.
    let in_body = Behaviour {
        challenge: r#", scope="a b", resource_metadata="ORIGIN/.well-known/oauth-protected-resource/mcp""#,
        issuer: |issuer| {
            issuer["token_endpoint_auth_methods_supported"] = json!(["client_secret_post"]);
        },
        ..Behaviour::default()
    };
    let body_server = server(in_body);
    assert_eq!(start(&body_server).ok("do it", ""), "done");
    let form = &forms(&body_server)[0];
    assert!(
        form.contains("&scope=a%20b&client_id=my%20client&client_secret=canary-4711%2F"),
        "{form}"
    );
    let token =
        body_server.requests().into_iter().find(|request| request.path == "/token").unwrap();
    assert_eq!(token.header("authorization"), None);
    // The possible places for the metadata of an authorization server with a path, the last being that of OpenID
    // Connect.
    for issuer_place in [
        "/.well-known/oauth-authorization-server/tenant",
        "/.well-known/openid-configuration/tenant",
        "/tenant/.well-known/openid-configuration",
    ] {
        let behaviour = Behaviour { issuer_path: "/tenant", issuer_place, ..Behaviour::default() };
        let server = server(behaviour);
        assert_eq!(start(&server).ok("do it", ""), "done", "{issuer_place}");
    }
    // Without metadata of its own, a server is its own authorization server.
    let own = server(Behaviour { resource: |it| *it = Value::Null, ..Behaviour::default() });
    assert_eq!(start(&own).ok("do it", ""), "done");
}

/// The user's settings take precedence.
#[test]
fn a_given_issuer_or_token_endpoint_is_not_looked_up() {
    let elsewhere: fn(&mut Value) =
        |it| it["authorization_servers"] = json!(["https://evil.example"]);
    let behaviour = || Behaviour { resource: elsewhere, ..Behaviour::default() };
    let given = server(behaviour());
    let scopes = vec!["x".to_owned(), "y".to_owned()];
    let issuer = Some(given.url(""));
    let started =
        start_at(&given.url("/mcp"), ClientCredentials { issuer, scopes, ..credentials() });
    assert_eq!(started.ok("do it", ""), "done");
    assert!(forms(&given)[0].ends_with("&scope=x%20y"), "{:?}", forms(&given));
    let given = server(behaviour());
    let token_url = Some(given.url("/token"));
    let started = start_at(&given.url("/mcp"), ClientCredentials { token_url, ..credentials() });
    assert_eq!(started.ok("do it", ""), "done");
    // The first request has a token already.
    assert_eq!(paths(&given), ["/token", "/mcp", "/mcp", "/mcp"]);
}

#[test]
fn an_expired_token_is_replaced_before_a_request() {
    let expiring =
        Behaviour { token: |token| token["expires_in"] = json!(0), ..Behaviour::default() };
    let server = server(expiring);
    assert_eq!(start(&server).ok("do it", ""), "done");
    let used = server.requests().into_iter().filter(|request| request.path == "/mcp");
    let used: Vec<_> =
        used.map(|request| request.header("authorization").map(str::to_owned)).collect();
    let token = |number| Some(format!("Bearer canary-token-{number}"));
    // A token that was requested after a challenge is renewed, too.
    assert_eq!(used, [None, token(2), token(3), token(4)]);
}

#[test]
fn a_token_that_is_rejected_is_renewed_once() {
    // The third request has a token that was accepted before.
    let revoked =
        server(Behaviour { accepts: |token, call| call < 4 || token > 1, ..Behaviour::default() });
    let started = start(&revoked);
    assert_eq!(started.ok("do it", ""), "done");
    assert_eq!(forms(&revoked).len(), 2);
    // A new token that is rejected at once is not renewed.
    let refused = server(Behaviour {
        accepts: |_, _| false,
        challenge: r#", error_description="wrong resource""#,
        ..Behaviour::default()
    });
    let problem = problem_of(&start(&refused));
    assert!(
        problem.ends_with("it rejects the token of its authorization server: wrong resource"),
        "{problem}"
    );
    assert_eq!(forms(&refused).len(), 1);
}

#[test]
fn wrong_metadata_gets_no_secret() {
    let resource = |resource| Behaviour { resource, ..Behaviour::default() };
    let issuer = |issuer| Behaviour { issuer, ..Behaviour::default() };
    for (behaviour, expected) in [
        (
            resource(|it| it["resource"] = json!("https://other.example/mcp")),
            "its metadata is for https://other.example/mcp, not for http://127.0.0.1:",
        ),
        (
            resource(|it| it["authorization_servers"] = json!([])),
            "its metadata names no authorization server",
        ),
        (
            resource(|it| it["authorization_servers"] = json!(["http://login.example"])),
            "http://login.example is not encrypted",
        ),
        (
            issuer(|it| it["issuer"] = json!("https://other.example")),
            "is that of https://other.example",
        ),
        (issuer(|it| *it = Value::Null), "has no metadata; give `oauth.token_url`"),
        (
            issuer(|it| it["token_endpoint"] = json!("http://login.example/token")),
            "http://login.example is not encrypted",
        ),
        (
            issuer(|it| it["token_endpoint_auth_methods_supported"] = json!(["private_key_jwt"])),
            "takes no client secret, only private_key_jwt",
        ),
        (
            issuer(|it| it["more"] = json!("x".repeat(1 << 20))),
            "answers with more than 65536 bytes",
        ),
        (
            Behaviour {
                challenge: r#", resource_metadata="ORIGIN/nothing""#,
                ..Behaviour::default()
            },
            "it names metadata that is not at http://127.0.0.1:",
        ),
    ] {
        let server = server(behaviour);
        let problem = problem_of(&start(&server));
        assert!(problem.contains("sign-in failed: ") && problem.contains(expected), "{problem}");
        assert_eq!(forms(&server), [""; 0], "{problem}");
    }
}

#[test]
fn an_answer_without_a_token_says_who_can_fix_it() {
    let token = |token| Behaviour { token, ..Behaviour::default() };
    for (behaviour, expected) in [
        (token(|it| it["token_type"] = json!("DPoP")), "a token of the type DPoP"),
        (
            token(|it| it["access_token"] = json!("a\nb")),
            "a token that has a character that no key has",
        ),
        (token(|it| *it = json!({})), "gives no token in its answer"),
        (token(|it| *it = json!("x".repeat(1 << 20))), "answers with more than 65536 bytes"),
        (token(|it| *it = Value::Null), "its authorization server answers 404"),
    ] {
        let problem = problem(behaviour);
        assert!(problem.contains(expected), "{problem}");
    }
    let refusing = |status: u16, headers: &'static [(&str, &str)], body: &'static str| {
        let server =
            Server::with_handler(move |_| ScriptedReply::with_headers(status, headers, body));
        let token_url = Some(server.url("/token"));
        let started =
            start_at(&server.url("/mcp"), ClientCredentials { token_url, ..credentials() });
        (problem_of(&started), paths(&server))
    };
    let (problem, _) = refusing(
        401,
        &[],
        r#"{"error":"invalid_client","error_description":"no canary-4711/+: here"}"#,
    );
    assert!(
        problem.contains("answers 401 (invalid_client: no *** here); check `oauth.client_id`"),
        "{problem}"
    );
    let (problem, _) = refusing(400, &[], r#"{"error":"invalid_scope"}"#);
    assert!(problem.ends_with("answers 400 (invalid_scope); check `oauth.scopes`"), "{problem}");
    // The target of the redirect gets no request.
    let (problem, paths) = refusing(307, &[("location", "/elsewhere")], "");
    assert!(problem.contains("redirects, which is not followed"), "{problem}");
    assert_eq!(paths, ["/token"]);
    let secret =
        Arc::new(|_: &CancellationToken| Err::<Secret, _>("the vault is closed".to_owned()));
    let server = server(Behaviour::default());
    let problem =
        problem_of(&start_at(&server.url("/mcp"), ClientCredentials { secret, ..credentials() }));
    assert!(problem.ends_with("sign-in failed: the vault is closed"), "{problem}");
}

/// The secret is that of a variable or a command, and neither it nor a token is shown or stored.
#[test]
fn a_run_signs_in_by_its_configuration() {
    for (secret, is_set) in [
        ("client_secret_env = \"CLIENT\"", true),
        ("client_secret_command = \"echo canary-4711-canary\"", true),
        ("client_secret_env = \"OTHER\"", false),
    ] {
        let server = server(Behaviour::default());
        let url = server.url("/mcp");
        let world = world(&format!(
            "[[mcp.servers]]\nname = \"h\"\nurl = {url:?}\noauth = {{ client_id = \"ci\", {secret} }}\n"
        ));
        let script = "[[turn]]\ncalls = [{ name = \"mcp_h_do_it\", arguments = {} }]\n\n[[turn]]\ntext = \"Done.\"\n";
        let model = world.script_model(script);
        let mut command =
            world.command(&["run", "Do it.", "--model", &model, "--json", "--mode", "yolo"]);
        let ran = wait_for_exit(command.env("CLIENT", "canary-4711-canary").spawn().unwrap());
        assert_eq!(ran.code, 0, "{}", ran.err);
        assert_eq!(ran.json()["tools_used"][0]["success"], json!(is_set), "{}", ran.err);
        assert!(!ran.err.contains("canary"), "{}", ran.err);
        if is_set {
            let pair = BASE64_STANDARD.encode("ci:canary-4711-canary");
            let request =
                server.requests().into_iter().find(|request| request.path == "/token").unwrap();
            assert_eq!(request.header("authorization"), Some(&*format!("Basic {pair}")));
        } else {
            assert!(ran.err.contains("OTHER (its client secret) is not set"), "{}", ran.err);
        }
    }
}
