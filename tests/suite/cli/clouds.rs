//! Runs with the models of clouds.

use std::fs;
use std::path::Path;

use serde_json::json;

use crate::kit::bedrock;
use crate::kit::cli::{CliFixture, CommandResult, wait_for_exit};
use crate::kit::server::{ScriptedReply, Server};

const SECRET: &str = "canary-secret-0123456789";
const TOKEN: &str = "canary-token-0123456789";

/// Runs a task on Bedrock, with keys in a profile or in the environment.
fn run(world: &CliFixture, server: &Server, has_profile: bool, args: &[&str]) -> CommandResult {
    let base = server.url("");
    let model = "bedrock/eu.anthropic.claude-sonnet-4-5-20250929-v1:0";
    let common = ["run", "Do it.", "--model", model, "--api-base", &base, "--set", "llm.retries=0"];
    let mut command = world.command(&[&common[..], args].concat());
    if has_profile {
        let folder = world.home().join(".aws");
        fs::create_dir_all(&folder).unwrap();
        let keys = format!(
            "[work]\naws_access_key_id = AKIDEXAMPLE\naws_secret_access_key = {SECRET}\n\
             aws_session_token = {TOKEN}\nregion = eu-west-1\n"
        );
        fs::write(folder.join("credentials"), keys).unwrap();
        command.env("AWS_PROFILE", "work");
    } else {
        command.env("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE").env("AWS_SECRET_ACCESS_KEY", SECRET);
        command.env("AWS_SESSION_TOKEN", TOKEN).env("AWS_REGION", "eu-west-1");
    }
    wait_for_exit(command.spawn().unwrap())
}

/// Asserts that no file below a folder has a key.
fn assert_no_keys(folder: &Path) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        if kind.is_dir() && !path.ends_with(".aws") {
            assert_no_keys(&path);
        } else if kind.is_file() {
            let found = memchr::memmem::find(&fs::read(&path).unwrap(), b"canary-").is_some();
            assert!(!found, "{} has a key", path.display());
        }
    }
}

#[test]
fn a_run_on_bedrock_shows_no_key_anywhere() {
    for has_profile in [true, false] {
        let world = CliFixture::new();
        let echo = bedrock::text(&format!("The key is {SECRET}."));
        let server = Server::new([
            bedrock::call("run_command", &json!({"command": "env | grep AWS; echo listed"})),
            echo,
        ]);
        let args = ["--log-level", "trace", "-vvv", "--record", "run.jsonl", "--mode", "yolo"];
        let ran = run(&world, &server, has_profile, &args);
        assert_eq!((ran.code, &*ran.out), (0, "The key is ***.\n"), "{}", ran.err);
        let requests = server.requests();
        let sent = requests[0].header("authorization").unwrap();
        assert!(sent.contains("/eu-west-1/bedrock/aws4_request, SignedHeaders="), "{sent}");
        assert_eq!(requests[0].header("x-amz-security-token"), Some(TOKEN));
        // The command got none of the variables.
        assert!(requests[1].body.contains("listed") && !requests[1].body.contains("AKIDEXAMPLE"));
        assert!(!ran.err.contains("canary-"), "{}", ran.err);
        assert_no_keys(&world.home());
        assert_no_keys(&world.path(""));
    }
}

#[test]
fn the_command_of_a_profile_gets_no_keys_of_providers() {
    let (world, server) = (CliFixture::new(), Server::new([bedrock::text("Done.")]));
    let path = world.home().join("config");
    let keys = json!({"AccessKeyId": "AKIDEXAMPLE", "SecretAccessKey": SECRET});
    let command = format!("env > {}; echo '{keys}'", world.home().join("seen").display());
    fs::write(&path, format!("[default]\ncredential_process = {command}\n")).unwrap();
    let base = server.url("");
    let args =
        ["run", "Do it.", "--model", "bedrock/anthropic.claude-sonnet-5", "--api-base", &base];
    let mut command = world.command(&args);
    command.env("AWS_REGION", "eu-west-1").env("AWS_CONFIG_FILE", &path);
    for name in ["OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"] {
        command.env(name, "canary-variable");
    }
    let ran = wait_for_exit(command.spawn().unwrap());
    assert_eq!((ran.code, &*ran.out), (0, "Done.\n"), "{}", ran.err);
    let seen = fs::read_to_string(world.home().join("seen")).unwrap();
    assert!(seen.contains("AWS_REGION=eu-west-1") && !seen.contains("canary"), "{seen}");
}

#[test]
fn rejected_keys_end_the_run_with_what_to_set() {
    let (world, headers) =
        (CliFixture::new(), [("x-amzn-errortype", "UnrecognizedClientException")]);
    let body = r#"{"message":"The security token included in the request is invalid."}"#;
    let server = Server::new([ScriptedReply::with_headers(403, &headers, body)]);
    let ran = run(&world, &server, true, &[]);
    assert_eq!(ran.code, 4, "{}", ran.err);
    assert!(
        ran.err.contains("the AWS profile 'work' (AWS_PROFILE names another one)"),
        "{}",
        ran.err
    );
}

#[test]
fn missing_keys_are_reported_with_what_to_set() {
    let world = CliFixture::new();
    let ran = wait_for_exit(
        world
            .command(&["run", "Do it.", "--model", "bedrock/anthropic.claude-sonnet-5"])
            .env("AWS_REGION", "us-east-1")
            .spawn()
            .unwrap(),
    );
    assert_eq!(ran.code, 3);
    assert!(ran.err.contains("none in the profile 'default'"), "{}", ran.err);
    assert!(
        ran.err.contains("set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"),
        "{}",
        ran.err
    );
}
