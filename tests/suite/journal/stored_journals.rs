//! The journals in `tests/journals`: each replays to the same end in every later release.
//!
//! `ARCHITECT_TEST_JOURNALS=DIR cargo test --test suite journals_are_made` creates them with this release. It never
//! replaces one: a released journal stays as it is.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use architect::app::{RequestComparison, verify_session};
use architect::journal::{
    ForkOptions, JournalEndKind, ReplacementResult, SessionHistory, SessionId,
};
use architect::machine::{ConversationEntry, CostBreakdown, Fingerprint, State};
use architect::net::Secrets;
use architect::port::Model;
use architect::types::{
    ConversationItem, MessageOrigin, MicroUsd, ReplyPart, RunRules, RunTime, Tokens, ToolStatus,
};

use crate::kit::model::model;
use crate::kit::sealing::resealed;

use super::fixture::{Participants, SessionFixture, immediate, reply, rules};
use super::interrupted_effects::{RequestCounts, narrow, reading_model};
use super::resume::{crash_at, interrupted_session};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/journals")
}

/// Returns the journals, by the folder of their format and their name.
fn stored_journals() -> Vec<PathBuf> {
    let list = |folder: &Path| {
        let mut found: Vec<_> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        found.sort();
        found
    };
    let formats = list(&folder()).into_iter().filter(|path| path.is_dir());
    let files: Vec<PathBuf> = formats.flat_map(|format| list(&format)).collect();
    files.into_iter().filter(|path| path.extension().is_some_and(|e| e == "jsonl")).collect()
}

fn name(path: &Path) -> String {
    path.strip_prefix(folder()).unwrap().display().to_string()
}

/// Copies a journal into a fixture of its own, and replays it without differences.
fn replayed(path: &Path) -> (SessionFixture, SessionId, SessionHistory) {
    let fixture = SessionFixture::new();
    let imported = fixture.store.import(path, Path::new("/"), SystemTime::now()).unwrap();
    let replayed = fixture.store.replay(imported.session, |_, _, replayed| {
        assert_eq!(replayed.divergence, None, "{}", path.display());
    });
    let (past, end) = replayed.unwrap();
    assert_eq!(end.kind, JournalEndKind::Whole, "{}", path.display());
    (fixture, imported.session, past)
}

/// Fault S12. The end of each journal: new journals add a line, and no line ever changes.
#[test]
fn every_stored_journal_replays_to_the_same_end() {
    let mut result = String::new();
    for path in stored_journals() {
        let (_, _, past) = replayed(&path);
        let run = past.machine.state.run();
        let reason = match &past.machine.state {
            State::Done(done) => done.outcome.reason.name(),
            _ => "open",
        };
        let mark = Fingerprint::of(&past.machine, &past.output.effects);
        writeln!(
            result,
            "{}: {} {reason}, {} steps, {} calls, {}, {} entries, {}",
            name(&path),
            mark.state.as_str(),
            run.steps,
            run.model_calls,
            run.used.cost,
            past.machine.conversation.entries().len(),
            mark.digest
        )
        .unwrap();
    }
    insta::assert_snapshot!(result, @r"
    format-1/compaction.jsonl: Done llm_done, 4 steps, 6 calls, $0.008200, 4 entries, 04115a8c5b03db90
    format-1/crashed.jsonl: Executing open, 2 steps, 2 calls, $0.000400, 2 entries, bac2a5903a5d083c
    format-1/fork.jsonl: Done llm_done, 3 steps, 4 calls, $0.000800, 6 entries, 5cbb2a7ec0b6be89
    format-1/interrupted.jsonl: Done user_interrupt, 0 steps, 1 calls, $0.000035, 1 entries, 99b5351d086ade6e
    format-1/resumed.jsonl: Done llm_done, 3 steps, 4 calls, $0.000800, 6 entries, 902da57e75f6db51
    format-1/text.jsonl: Done llm_done, 0 steps, 1 calls, $0.000200, 2 entries, 00b6e7820f2f2c9c
    format-1/tools.jsonl: Done llm_done, 3 steps, 4 calls, $0.000800, 5 entries, 28ff9975454bf0ff
    ");
}

/// The costs and their sources are known for every part of a session's life.
#[test]
fn the_costs_of_every_stored_journal_add_up() {
    for path in stored_journals() {
        let (_, _, past) = replayed(&path);
        let CostBreakdown { agent, closing, compaction, subagents, .. } = past.costs;
        let charges = [agent, closing, compaction, subagents];
        let cost = charges.iter().fold(MicroUsd::ZERO, |sum, charge| sum + charge.cost);
        let tokens = charges.iter().fold(Tokens::ZERO, |sum, charge| sum + charge.usage.total());
        let spent = past.machine.state.run().used;
        assert_eq!((cost, tokens), (spent.cost, spent.tokens), "{}", path.display());
        let is_compacted = path.ends_with("compaction.jsonl");
        assert_eq!(compaction.cost > MicroUsd::ZERO, is_compacted, "{}", path.display());
    }
}

#[test]
fn every_stored_journal_is_exported_byte_for_byte() {
    for path in stored_journals() {
        let (fixture, session, _) = replayed(&path);
        let mut out = Vec::new();
        fixture.store.export(session, &Secrets::default(), &mut out).unwrap();
        assert!(out == fs::read(&path).unwrap(), "{}", path.display());
    }
}

/// The releases that created these journals stored neither hashes nor digests of requests.
#[test]
fn every_stored_journal_verifies() {
    for path in stored_journals() {
        let (fixture, session, _) = replayed(&path);
        let verified = verify_session(&fixture.store, session, None).unwrap();
        let found = (verified.divergence, verified.wrong_hash, verified.requests, verified.files);
        let requests = RequestComparison::default();
        assert_eq!(found, (None, None, requests, Ok(())), "{}", path.display());
    }
}

#[test]
fn every_stored_session_can_be_resumed() {
    for path in stored_journals() {
        let (fixture, session, _) = replayed(&path);
        let machine = fixture.resume(session, Some("and further"));
        let State::Done(done) = &machine.state else { panic!("{}", path.display()) };
        assert_eq!(done.outcome.reason.name(), "llm_done", "{}", path.display());
    }
}

fn greeting_model() -> Box<dyn Model> {
    model(|_| immediate(reply(vec![ReplyPart::Text("Hello.".into())])))
}

fn write_session(fixture: &SessionFixture, rules: RunRules, model: Box<dyn Model>) -> SessionId {
    let (journal, machine, output) = fixture.try_begin_by(rules).unwrap();
    let session = journal.session();
    let participants = Participants { model, ..Participants::new(journal) };
    fixture.drive_with(participants, machine, output, RunTime::START);
    session
}

fn compacted(fixture: &SessionFixture) -> SessionId {
    fs::write(fixture.workspace().join("note"), "n").unwrap();
    let session = write_session(fixture, narrow(), reading_model(&RequestCounts::default()));
    let is_summary = |entry: &ConversationEntry| matches!(&entry.item, ConversationItem::User(message) if message.origin == MessageOrigin::Summary);
    assert!(fixture.history(session).machine.conversation.entries().iter().any(is_summary));
    session
}

fn forked(fixture: &SessionFixture) -> SessionId {
    let (session, _) = fixture.run();
    let mut settled = 0;
    let see = |seq, name: &str| {
        if name == "settled" && settled == 0 {
            settled = seq;
        }
    };
    let mut see = see;
    fixture.store.replay(session, |_, stored, _| see(stored.seq, &stored.content.name())).unwrap();
    let instead =
        Some(ReplacementResult { status: ToolStatus::Failed, text: "disk on fire".into() });
    let fork = ForkOptions {
        after: Some(settled),
        replacement: instead,
        lane: None,
        workspace: None,
        now: SystemTime::now(),
    };
    let child = fixture.store.fork(session, &fork).unwrap();
    fixture.resume(child, Some("otherwise"));
    child
}

type JournalMaker = fn(&SessionFixture) -> SessionId;

/// Creates a journal for each way in which sessions differ.
#[test]
fn journals_are_made() {
    let Some(to) = std::env::var_os("ARCHITECT_TEST_JOURNALS").map(PathBuf::from) else { return };
    let makers: [(&str, JournalMaker); 7] = [
        ("text", |fixture| write_session(fixture, rules(), greeting_model())),
        ("tools", |fixture| fixture.run().0),
        ("interrupted", interrupted_session),
        ("crashed", |fixture| crash_at(fixture, "vetted", 1)),
        ("resumed", |fixture| {
            let session = crash_at(fixture, "vetted", 1);
            fixture.resume(session, Some("go on"));
            session
        }),
        ("compaction", compacted),
        ("fork", forked),
    ];
    fs::create_dir_all(&to).unwrap();
    for (name, make) in makers {
        let path = to.join(name).with_extension("jsonl");
        if path.exists() {
            continue;
        }
        let fixture = SessionFixture::new();
        let session = make(&fixture);
        let mut out = Vec::new();
        fixture.store.export(session, &Secrets::default(), &mut out).unwrap();
        fs::write(path, resealed(&without_paths(&fixture, &String::from_utf8(out).unwrap())))
            .unwrap();
    }
}

/// Removes text that depends on the machine on which a journal was created.
fn without_paths(fixture: &SessionFixture, text: &str) -> String {
    use std::os::unix::fs::MetadataExt;
    let root = fs::canonicalize(fixture.workspace()).unwrap();
    let found = fs::metadata(&root).unwrap();
    let place = format!("\"device\":{},\"inode\":{}", found.dev(), found.ino());
    text.replace(root.to_str().unwrap(), "/workspace").replace(&place, "\"device\":1,\"inode\":1")
}
