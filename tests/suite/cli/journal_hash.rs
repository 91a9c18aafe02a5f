//! The hash of a journal, the digests of its requests, and the results of a verification.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::kit::chat;
use crate::kit::cli::{CliFixture, CommandResult, wait_for_exit};
use crate::kit::sealing::{rehashed, renumbered, resealed, sha256};
use crate::kit::server::{ScriptedReply, Server};

/// A run that writes a file, reads it, prints a lot, and answers.
struct StoredRun {
    world: CliFixture,
    session: String,
    hash: String,
    log: String,
}

fn replies() -> Vec<ScriptedReply> {
    vec![
        chat::calls(&[("c1", "write_file", r#"{"path": "a.txt", "content": "one\n"}"#)]),
        chat::calls(&[("c2", "run_command", r#"{"command": "cat a.txt"}"#)]),
        chat::calls(&[(
            "c3",
            "run_command",
            r#"{"command": "seq 5000; echo quarterdeck-swordfish"}"#,
        )]),
        chat::text("All is well."),
    ]
}

impl StoredRun {
    fn new() -> Self {
        let (world, server) = (CliFixture::new(), Server::new(replies()));
        let ran = world.run_with_server(&server, &["--mode", "yolo", "--json"]);
        assert_eq!(ran.code, 0, "{}", ran.err);
        let text = |name: &str| ran.json()[name].as_str().unwrap().to_owned();
        let (session, hash) = (text("session_id"), text("journal_hash"));
        Self { session, hash, log: ran.err, world }
    }

    /// Returns the folder beside the journal.
    fn folder(&self) -> PathBuf {
        self.world.home().join(".local/state/architect/sessions").join(&self.session)
    }

    fn path(&self) -> PathBuf {
        self.folder().with_extension("jsonl")
    }

    fn journal(&self) -> String {
        fs::read_to_string(self.path()).unwrap()
    }

    /// Verifies another journal in the place of this one.
    fn verify(&self, journal: &str, more: &[&str]) -> CommandResult {
        let original = self.journal();
        fs::write(self.path(), journal).unwrap();
        let verified = self.world.run(&[&["replay", "last", "--verify"][..], more].concat());
        fs::write(self.path(), original).unwrap();
        verified
    }

    /// Verifies it with the hash that the run has printed.
    fn verify_expected(&self, journal: &str) -> CommandResult {
        self.verify(journal, &["--expect-hash", &self.hash])
    }
}

fn only_file(folder: &Path) -> PathBuf {
    fs::read_dir(folder).unwrap().next().unwrap().unwrap().path()
}

/// Returns the number of the record with this content.
fn record_of(journal: &str, content: &str) -> usize {
    let key = format!("\"{content}\":{{");
    journal.lines().position(|line| line.contains(&key)).unwrap()
}

fn run_with_key(world: &CliFixture, args: &[&str]) -> Value {
    let mut command = world.command(&[args, &["--json"]].concat());
    let ran = wait_for_exit(command.env("OPENAI_API_KEY", "k").spawn().unwrap());
    assert_eq!(ran.code, 0, "{}", ran.err);
    ran.json()
}

#[test]
fn the_hash_of_the_journal_ends_the_log_and_is_that_of_the_file() {
    let run = StoredRun::new();
    let journal = run.journal();
    assert_eq!(run.hash, sha256(&journal));
    assert!(run.log.trim_end().ends_with(&run.hash), "{}", run.log);
    let verified = run.verify_expected(&journal);
    assert_eq!(verified.code, 0, "{}", verified.out);
    assert!(verified.out.contains("\n4 requests built again, as sent\n"), "{}", verified.out);
    let end = format!("\njournal: sha256 {}\n", run.hash);
    assert!(verified.out.ends_with(&end), "{}", verified.out);
    let json = run.verify(&journal, &["--json"]).json();
    let found = (&json["journal_hash"], &json["requests"]["same"]);
    assert_eq!(found, (&run.hash.as_str().into(), &4.into()));
    let (world, server) = (CliFixture::new(), Server::new([chat::text("Fine.")]));
    let without = world.run_with_server(&server, &["--ephemeral", "--json"]);
    assert_eq!(without.json().get("journal_hash"), None);
}

#[test]
fn each_forgery_is_found() {
    let run = StoredRun::new();
    let journal = run.journal();
    let lines: Vec<&str> = journal.lines().collect();
    let read = lines.iter().position(|line| line.contains("settled") && line.contains("\"c2\""));
    let read = read.unwrap();
    let text = journal.replacen(lines[read], &lines[read].replace("one", "two"), 1);
    assert_ne!(text, journal);
    let usage = journal.replacen("\"input\":100", "\"input\":90", 1);
    let killed = text.lines().take(read + 1).collect::<Vec<_>>().join("\n") + "\n";
    let end = |from: &str, to: &str| resealed(&journal.replacen(from, to, 1));
    let last: Value = serde_json::from_str(lines[lines.len() - 1]).unwrap();
    let hash = format!("\"chain\":{},", last["chain"]);
    let mut swapped = lines.clone();
    swapped.swap(read - 1, read);
    let changed = "at least one of the records from 0 on was changed";
    for (name, forged, problem) in [
        ("a text", resealed(&text), changed),
        ("a text and the hashes", rehashed(&text), "so what differs comes after it"),
        ("usage", resealed(&usage), "leads to another state in the replay"),
        ("usage and the hashes", rehashed(&usage), "leads to another state in the replay"),
        ("the order", renumbered(&swapped), changed),
        ("the last text of a killed run", resealed(&killed), "another digest than is stored"),
        ("how it ended", end("\"reason\":\"llm_done\"", "\"reason\":\"auth\""), "in another way"),
        (
            "its cost",
            end("\"ended\":{\"status\":\"success\"", "\"ended\":{\"status\":\"partial\""),
            "in another way",
        ),
        ("no hashes", resealed(&journal.replace(&hash, "")), "it has no hash"),
    ] {
        let found = run.verify(&forged, &[]);
        assert!(found.code == 1 && found.out.contains(problem), "{name}: {}", found.out);
        let found = run.verify_expected(&forged);
        assert!(found.out.contains("does not have the expected hash"), "{name}: {}", found.out);
    }
    // Nothing in the rest shows that records after it were removed.
    let short = lines[..lines.len() - 2].join("\n") + "\n";
    assert_eq!(run.verify(&short, &[]).code, 0);
    let found = run.verify_expected(&short);
    let is_missing = found.out.contains("records are missing at its end");
    assert!(found.code == 1 && is_missing, "{}", found.out);
    let longer = run.verify_expected(&format!("{journal}more"));
    assert!(longer.code == 1 && longer.out.contains("the file goes on"), "{}", longer.out);
    // Nothing was sent after the answer.
    let answer = rehashed(&journal.replace("All is well.", "All is lost."));
    assert_eq!(run.verify(&answer, &[]).code, 0);
    assert_eq!(run.verify_expected(&answer).code, 1);
    let wrong = run.verify(&journal, &["--expect-hash", "abc"]);
    assert!(wrong.code == 3 && wrong.err.contains("64 hexadecimal digits"), "{}", wrong.err);
}

#[test]
fn a_changed_output_is_found() {
    let run = StoredRun::new();
    let output = only_file(&run.folder().join("outputs"));
    let whole = fs::read(&output).unwrap();
    // The file also has a name that fits the changed content.
    let call = output.file_stem().unwrap().to_str().unwrap();
    fs::remove_file(&output).unwrap();
    fs::write(output.with_file_name(format!("{call}.{}", sha256("2\n"))), "2\n").unwrap();
    let found = run.verify_expected(&run.journal());
    let is_found = found.out.contains("the whole output of the call in record");
    assert!(found.code == 1 && is_found, "{}", found.out);
    fs::write(&output, whole).unwrap();
    assert_eq!(run.verify_expected(&run.journal()).code, 0);
}

#[test]
fn a_changed_text_beside_the_journal_is_found() {
    let (world, server) = (CliFixture::new(), Server::new([chat::text(&"long".repeat(20_000))]));
    let ran = world.run_with_server(&server, &["--json"]);
    let session = ran.json()["session_id"].as_str().unwrap().to_owned();
    let verified = world.run(&["replay", "last", "--verify"]);
    assert_eq!(verified.code, 0, "{}", verified.out);
    let folder = world.home().join(".local/state/architect/sessions").join(session);
    let text = only_file(&folder.join("blobs"));
    let content = fs::read_to_string(&text).unwrap();
    fs::write(&text, content.replacen("long", "lung", 1)).unwrap();
    let found = world.run(&["replay", "last", "--verify"]);
    assert_eq!(found.code, 1, "{}{}", found.out, found.err);
    fs::write(&text, content).unwrap();
}

#[test]
fn a_resumed_session_has_a_new_hash_and_the_old_one_covers_its_beginning() {
    let run = StoredRun::new();
    let server = Server::new([chat::text("And so it is.")]);
    let base = server.url("/v1");
    let resumed = run_with_key(&run.world, &["resume", "last", "Is it?", "--api-base", &base]);
    let journal = run.journal();
    let old = run.verify_expected(&journal);
    assert!(old.code == 1 && old.out.contains("is that of the records up to "), "{}", old.out);
    let hash = resumed["journal_hash"].as_str().unwrap();
    assert_eq!(hash, sha256(&journal));
    let new = run.verify(&journal, &["--expect-hash", hash]);
    assert_eq!(new.code, 0, "{}", new.out);
    assert!(new.out.contains("5 requests built again, as sent"), "{}", new.out);
    // Each run stores the hash of the records that it found, and of those that it added.
    let first = record_of(&journal, "resumed") + 1;
    for (forged, place) in [("All is well.", 0), ("And so it is.", first)] {
        let forged = resealed(&journal.replace(forged, "It was."));
        let found = run.verify(&forged, &[]);
        let problem = format!("at least one of the records from {place} on was changed");
        assert!(found.code == 1 && found.out.contains(&problem), "{}", found.out);
    }
}

#[test]
fn a_fork_has_a_hash_of_its_own_and_the_requests_of_its_original() {
    let run = StoredRun::new();
    let server = Server::new([chat::text("Otherwise.")]);
    let base = server.url("/v1");
    let forked = run_with_key(&run.world, &["fork", "last", "Otherwise?", "--api-base", &base]);
    let (id, hash) = (forked["session_id"].as_str(), forked["journal_hash"].as_str());
    let (id, hash) = (id.unwrap(), hash.unwrap());
    let verified = run.world.run(&["replay", id, "--verify", "--expect-hash", hash]);
    assert_eq!(verified.code, 0, "{}", verified.out);
    assert!(verified.out.contains("5 requests built again, as sent"), "{}", verified.out);
    let original = ["replay", &run.session, "--verify", "--expect-hash", &run.hash];
    assert_eq!(run.world.run(&original).code, 0);
}

#[test]
fn a_session_that_was_killed_goes_on_with_its_hash() {
    let world = CliFixture::new();
    let call = ("c", "write_file", r#"{"path": "a", "content": "b"}"#);
    let server = Server::new([chat::calls(&[call]), ScriptedReply::silence(), chat::text("Done.")]);
    let child = world.command_with_server(&server, &["--mode", "yolo"]).spawn().unwrap();
    server.wait_for(2);
    kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
    wait_for_exit(child);
    let resumed = run_with_key(&world, &["resume", "last"]);
    let hash = resumed["journal_hash"].as_str().unwrap();
    let verified = world.run(&["replay", "last", "--verify", "--expect-hash", hash]);
    assert_eq!(verified.code, 0, "{}", verified.out);
    // The killed process has not recorded its second request.
    assert!(verified.out.contains("2 requests built again, as sent"), "{}", verified.out);
}

#[test]
fn what_a_hook_changed_in_a_request_is_not_compared() {
    let world = CliFixture::new();
    let config = r#"
[[hooks.pre_llm_call]]
name = "h"
command = "echo '{\"updatedSystemPrompt\": \"Short.\"}'"
"#;
    let config = world.write("hooks.toml", config).path("hooks.toml");
    let server = Server::new([chat::text("Fine.")]);
    let ran = world.run_with_server(&server, &["--config", config.to_str().unwrap()]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let sent = &server.requests()[0].body;
    assert!(sent.contains("Short."), "{sent}{}", ran.err);
    let verified = world.run(&["replay", "last", "--verify"]);
    assert_eq!(verified.code, 0, "{}", verified.out);
    let reason = "requests not compared: 1 (changed by a hook or by the budget of a batch)";
    assert!(verified.out.contains(reason), "{}", verified.out);
}

/// After a masked text, the requests that are built again differ from those that were sent.
#[test]
fn an_export_with_masked_texts_verifies() {
    let (world, server) = (CliFixture::new(), Server::new(replies()));
    assert_eq!(world.run_with_server(&server, &["--mode", "yolo"]).code, 0);
    let mut export = world.command(&["sessions", "export", "last"]);
    let exported =
        wait_for_exit(export.env("OTHER_API_KEY", "quarterdeck-swordfish").spawn().unwrap()).out;
    assert!(exported.contains("All is well.") && !exported.contains("swordfish"), "{exported}");
    world.write("export.jsonl", &exported);
    let imported = world.run(&["sessions", "import", "export.jsonl"]);
    assert_eq!(imported.code, 0, "{}", imported.err);
    let verified = world.run(&["replay", "last", "--verify"]);
    assert_eq!(verified.code, 0, "{}", verified.out);
    assert!(verified.out.contains("2 requests built again, as sent"), "{}", verified.out);
}

/// A key in the settings of requests is stored nowhere.
#[test]
fn an_option_with_a_key_is_not_stored() {
    let (world, server) = (CliFixture::new(), Server::new([chat::text("Fine.")]));
    let config =
        world.write("c.toml", "[llm.options]\nother = \"sk-test-canary\"\n").path("c.toml");
    let ran = world.run_with_server(&server, &["--config", config.to_str().unwrap(), "--json"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let session = ran.json()["session_id"].as_str().unwrap().to_owned();
    let path = world.home().join(format!(".local/state/architect/sessions/{session}.jsonl"));
    assert!(!fs::read_to_string(path).unwrap().contains("sk-test-canary"));
    let verified = world.run(&["replay", "last", "--verify"]);
    assert_eq!(verified.code, 0, "{}", verified.out);
    let reason = "requests not compared: 1 (their settings are not stored)";
    assert!(verified.out.contains(reason), "{}", verified.out);
}
