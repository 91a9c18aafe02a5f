//! The stored options of a session: resuming never loosens them.

use serde_json::json;

use crate::kit::chat;
use crate::kit::cli::{CliFixture, CommandResult, outcome, wait_for_exit};
use crate::kit::server::{ScriptedReply, Server};

fn resume(world: &CliFixture, args: &[&str]) -> CommandResult {
    let args = [&["resume", "last", "Go on.", "--json"], args].concat();
    wait_for_exit(world.command(&args).env("OPENAI_API_KEY", "sk-test-canary").spawn().unwrap())
}

/// Returns a server whose model wants to write these files, one in each run.
fn writing(paths: &[&str]) -> Server {
    let replies = paths.iter().enumerate().flat_map(|(index, path)| -> [ScriptedReply; 2] {
        let arguments = json!({ "path": path, "content": "" }).to_string();
        let id = format!("c{index}");
        [chat::calls(&[(&id, "write_file", &arguments)]), chat::text("Done.")]
    });
    Server::new(replies.collect::<Vec<_>>())
}

#[test]
fn what_was_denied_stays_denied_whatever_else_is_denied() {
    for first in ["--deny=write_file(a)", "--set=permissions.deny=[\"write_file(a)\"]"] {
        let (world, server) = (CliFixture::new(), writing(&["x", "y", "a", "b"]));
        let begun =
            world.run_with_server(&server, &["--mode", "yolo", first, "--deny", "write_file(x)"]);
        assert_eq!(begun.code, 0, "{}", begun.err);
        resume(&world, &["--deny", "write_file(b)"]);
        for _ in 0..2 {
            let ran = resume(&world, &[]);
            assert_eq!(ran.outcome(), outcome(0, "llm_done", "success"), "{}", ran.err);
            assert_eq!(ran.json()["denied"].as_array().unwrap().len(), 1, "{first}: {}", ran.out);
        }
        let there = ["x", "y", "a", "b"].map(|path| world.path(path).exists());
        assert_eq!(there, [false, true, false, false], "{first}");
    }
}

#[test]
fn a_dry_run_is_resumed_as_a_dry_run_unless_overridden() {
    let (world, server) = (CliFixture::new(), writing(&["a", "b", "c", "d", "e"]));
    world.run_with_server(&server, &["--mode", "yolo", "--dry-run"]);
    let ran = resume(&world, &[]);
    assert!(ran.json()["output"].as_str().unwrap().contains("This was a dry run"), "{}", ran.out);
    let mut fork = world.command(&["fork", "last", "Again."]);
    assert_eq!(wait_for_exit(fork.env("OPENAI_API_KEY", "k").spawn().unwrap()).code, 0);
    assert!(!["a", "b", "c"].iter().any(|path| world.path(path).exists()));
    resume(&world, &["--dry-run=false"]);
    assert!(world.path("d").exists());
    resume(&world, &["--dry-run"]);
    assert!(!world.path("e").exists());
}

#[test]
fn a_session_without_servers_is_resumed_without_them_unless_overridden() {
    let (world, server) = (CliFixture::new(), Server::repeating([chat::text("Fine.")]));
    let file = world.path("servers.toml");
    let config = "[[mcp.servers]]\nname = \"none\"\ncommand = \"false\"\nrequired = true\n";
    world.write("servers.toml", config);
    let begun =
        world.run_with_server(&server, &["--config", file.to_str().unwrap(), "--disable-mcp"]);
    assert_eq!(begun.code, 0, "{}", begun.err);
    assert_eq!(resume(&world, &[]).code, 0);
    let ran = resume(&world, &["--disable-mcp=false"]);
    assert!(ran.code != 0 && ran.err.contains("none"), "{} {}", ran.code, ran.err);
}
