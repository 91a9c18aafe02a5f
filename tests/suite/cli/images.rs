//! Images for the model: from the user, and from files that it reads.

use std::fs;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::kit::chat;
use crate::kit::cli::{CliFixture, CommandResult, outcome, wait_for_exit};
use crate::kit::server::{ScriptedReply, Server};

/// A red image of 4x2 pixels.
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAQAAAACCAIAAADwyuo0AAAAEElEQVR4nGM4wcUFRwzIHABfagbhiIfHegAAAABJRU5ErkJggg==";

fn workspace() -> CliFixture {
    let world = CliFixture::new();
    for name in ["shot.png", "other.png"] {
        fs::write(world.path(name), STANDARD.decode(PNG).unwrap()).unwrap();
    }
    world
}

fn run(world: &CliFixture, server: &Server, model: &str, args: &[&str]) -> CommandResult {
    let base = server.url("/v1");
    let mut command =
        world.command(&[args, &["--model", model, "--api-base", &base, "--json"]].concat());
    command.env("OPENAI_API_KEY", "sk-test-canary");
    wait_for_exit(command.spawn().unwrap())
}

fn image() -> Value {
    json!({"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{PNG}")}})
}

#[test]
fn a_key_in_the_name_of_an_image_is_masked() {
    let world = workspace();
    fs::rename(world.path("shot.png"), world.path("sk-test-canary.png")).unwrap();
    let server = Server::new([chat::text("Red.")]);
    let args = ["run", "What is it?", "--image", "sk-test-canary.png"];
    let ran = run(&world, &server, "openai-chat/gpt-5.5", &args);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let messages = server.requests()[0].json()["messages"].clone();
    assert_eq!(messages[1]["content"][0]["text"], "What is it?\n[image ***.png, 4x2]");
}

#[test]
fn images_reach_the_model_and_stay_in_the_session() {
    let world = workspace();
    let read = r#"{"path": "other.png"}"#;
    let server = Server::new([
        chat::calls(&[("c1", "read_file", read)]),
        chat::text("Red."),
        chat::text("Still red."),
    ]);
    let model = "openai-chat/gpt-5.5";
    let ran = run(&world, &server, model, &["run", "What is it?", "--image", "shot.png"]);
    assert_eq!(ran.outcome(), outcome(0, "llm_done", "success"), "{}", ran.err);
    let session = ran.json()["session_id"].as_str().unwrap().to_owned();
    let resume = ["resume", &session, "And this?", "--image", "shot.png"];
    let ran = run(&world, &server, model, &resume);
    assert_eq!(ran.outcome(), outcome(0, "llm_done", "success"), "{}", ran.err);

    let requests = server.requests();
    let messages = requests[2].json()["messages"].as_array().unwrap()[1..].to_vec();
    let text = |text: &str| json!({"type": "text", "text": text});
    let task = "What is it?\n[image shot.png, 4x2]";
    assert_eq!(messages[0]["content"], json!([text(task), image()]));
    assert_eq!(messages[2]["content"], "[image other.png, 4x2]");
    let names = "The images of the tool results: [image other.png, 4x2]";
    assert_eq!(messages[3]["content"], json!([text(names), image()]));
    let next = "And this?\n[image shot.png, 4x2]";
    assert_eq!(messages[5]["content"], json!([text(next), image()]));
    // The first requests had the same.
    assert_eq!(requests[0].json()["messages"][1], messages[0]);

    // The content is stored once.
    let sessions = world.home().join(".local/state/architect/sessions");
    let blobs = find_folders(&sessions, "blobs");
    assert_eq!(blobs.iter().flat_map(|folder| fs::read_dir(folder).unwrap()).count(), 1);
}

/// Returns the folders of this name below a folder.
fn find_folders(below: &std::path::Path, name: &str) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(below).unwrap().map(|entry| entry.unwrap().path());
    let folders = entries.filter(|path| path.is_dir());
    folders
        .flat_map(|folder| match folder.ends_with(name) {
            true => vec![folder],
            false => find_folders(&folder, name),
        })
        .collect()
}

#[test]
fn a_model_that_is_not_known_to_take_images_gets_text() {
    let world = workspace();
    let server = Server::new([chat::text("What image?")]);
    let ran = run(&world, &server, "openai-chat/fake", &["run", "Look.", "--image", "shot.png"]);
    assert_eq!(ran.outcome(), outcome(0, "llm_done", "success"), "{}", ran.err);
    assert!(ran.err.contains("not known to take images"), "{}", ran.err);
    assert_eq!(
        server.requests()[0].json()["messages"][1]["content"],
        "Look.\n[image shot.png, 4x2, not shown: this model takes no images]"
    );
}

#[test]
fn a_file_that_is_no_image_is_refused_before_the_run() {
    let world = workspace();
    world.write("notes.txt", "text");
    fs::write(world.path("cut.png"), &STANDARD.decode(PNG).unwrap()[..30]).unwrap();
    let server = Server::new([]);
    for (file, reason) in [
        ("notes.txt", "it is not an image in PNG, JPEG, GIF or WebP"),
        ("none.png", "No such file"),
        ("cut.png", "it is damaged"),
    ] {
        let args = ["run", "Look.", "--image", file];
        let ran = run(&world, &server, "openai-chat/gpt-5.5", &args);
        assert!(ran.code != 0 && ran.err.contains(file), "{}", ran.err);
        assert!(ran.err.contains(reason), "{}", ran.err);
    }
    let ran =
        run(&world, &server, "openai-chat/gpt-5.5", &["resume", "last", "--image", "shot.png"]);
    assert!(ran.code != 0, "{}", ran.err);
    assert!(server.requests().is_empty());
}

#[test]
fn a_damaged_image_is_a_failed_call_with_its_reason() {
    let world = workspace();
    fs::write(world.path("cut.png"), &STANDARD.decode(PNG).unwrap()[..30]).unwrap();
    let read = r#"{"path": "cut.png"}"#;
    let server = Server::new([chat::calls(&[("c", "read_file", read)]), chat::text("Damaged.")]);
    let ran = run(&world, &server, "openai-chat/gpt-5.5", &["run", "What is it?"]);
    assert_eq!(ran.json()["tools_used"][0]["success"], false, "{}", ran.err);
    let result = server.requests()[1].json()["messages"][3]["content"].clone();
    let reason = "[image cut.png, not shown: it is damaged: ";
    assert!(result.as_str().unwrap().starts_with(reason), "{result}");
}

/// A script can't declare that its model takes images.
#[test]
fn a_script_takes_no_images_and_gets_no_advice_for_models() {
    let world = workspace();
    let ran = world.run_script("[[turn]]\ntext = \"Hm.\"", &["--image", "shot.png"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.err.contains("takes no images"), "{}", ran.err);
    assert!(!ran.err.contains("models.NAME"), "{}", ran.err);
}

#[test]
fn images_stay_in_forks_imports_and_replays_and_are_named_in_trajectories() {
    let world = workspace();
    let server = Server::repeating([chat::text("Red.")]);
    let model = "openai-chat/gpt-5.5";
    let ran = run(&world, &server, model, &["run", "What is it?", "--image", "shot.png"]);
    let session = ran.json()["session_id"].as_str().unwrap().to_owned();
    let verified = world.run(&["replay", &session, "--verify"]);
    assert_eq!(verified.code, 0, "{}", verified.err);
    let trajectory = world.run(&["export", &session, "--format", "atif"]);
    assert!(trajectory.out.contains("[image shot.png, 4x2]"), "{}", trajectory.out);
    assert!(!trajectory.out.contains(PNG));
    let exported = world.run(&["sessions", "export", &session]);
    world.write("session.jsonl", &exported.out);
    let imported = world.run(&["sessions", "import", "session.jsonl", "--json"]);
    let imported = imported.json()["session_id"].as_str().unwrap().to_owned();
    for args in [["fork", &session, "Sure?"], ["resume", &imported, "Sure?"]] {
        let ran = run(&world, &server, model, &args);
        assert_eq!(ran.code, 0, "{}", ran.err);
        let request = server.requests().last().unwrap().json();
        assert_eq!(request["messages"][1]["content"][1], image(), "{args:?}");
    }
}

#[test]
fn an_image_is_still_there_after_a_kill() {
    let world = workspace();
    let server = Server::new([ScriptedReply::silence(), chat::text("Red.")]);
    let (base, model) = (server.url("/v1"), "openai-chat/gpt-5.5");
    let args = ["run", "What is it?", "--image", "shot.png", "--model", model, "--api-base", &base];
    let mut child = world.command(&args).env("OPENAI_API_KEY", "sk-test-canary").spawn().unwrap();
    server.wait_for(1);
    child.kill().unwrap();
    child.wait().unwrap();
    let ran = run(&world, &server, model, &["resume", "last"]);
    assert_eq!(ran.outcome(), outcome(0, "llm_done", "success"), "{}", ran.err);
    assert_eq!(server.requests()[1].json()["messages"][1]["content"][1], image());
}

/// A header of some bytes can claim gigabytes.
#[test]
fn an_image_that_claims_to_be_huge_is_refused_with_a_sentence() {
    let world = workspace();
    let mut bytes = STANDARD.decode(PNG).unwrap();
    bytes[16..24].copy_from_slice(&[0, 0, 0x40, 0, 0, 0, 0x40, 0]);
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&bytes[12..29]);
    bytes[29..33].copy_from_slice(&hasher.finalize().to_be_bytes());
    fs::write(world.path("bomb.png"), bytes).unwrap();
    let args = ["run", "Look.", "--image", "bomb.png"];
    let ran = run(&world, &Server::new([]), "openai-chat/gpt-5.5", &args);
    assert_ne!(ran.code, 0);
    let reason =
        "could not use the image bomb.png: it has 16384x16384 pixels; at most 50 million are read";
    assert!(ran.err.contains(reason), "{}", ran.err);
}
