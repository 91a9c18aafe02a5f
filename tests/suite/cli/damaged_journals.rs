//! Journals that other programs changed: every reader reports a changed byte, and a run ends when its journal is lost.

use std::fs;
use std::path::PathBuf;

use crate::kit::cli::{CliFixture, CommandResult};

const SCRIPT: &str = r#"
[[turn]]
calls = [{ name = "write_file", arguments = { path = "a", content = "1\n" } }]
[[turn]]
text = "Done."
"#;

/// Returns the journal of the one session.
fn journal(world: &CliFixture) -> PathBuf {
    let sessions = world.home().join(".local/state/architect/sessions");
    let files = fs::read_dir(sessions).unwrap().map(|entry| entry.unwrap().path());
    // Copies are newer.
    files.filter(|path| path.extension().is_some_and(|ending| ending == "jsonl")).min().unwrap()
}

/// Changes a byte in the middle of a line, counted from the end of the file.
fn damage(world: &CliFixture, line: usize) {
    let path = journal(world);
    let mut bytes = fs::read(&path).unwrap();
    let ends: Vec<usize> =
        bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at).collect();
    let end = ends[ends.len() - 1 - line];
    let begin = ends[ends.len() - 2 - line];
    bytes[usize::midpoint(begin, end)] ^= 1;
    fs::write(path, bytes).unwrap();
}

fn commands(world: &CliFixture) -> Vec<Vec<String>> {
    let page = world.path("page.html");
    let path = journal(world);
    let id = path.file_stem().unwrap().to_str().unwrap();
    let all = format!(
        "sessions show {id}|sessions export {id}|sessions list|sessions costs|sessions search Done|trace {id}|\
         trace {id} --html {}|test --from {id}|fork {id} --only|stats",
        page.display()
    );
    all.split('|').map(|line| line.split(' ').map(str::to_owned).collect()).collect()
}

fn run(world: &CliFixture, command: &[String], more: &[&str]) -> CommandResult {
    let words: Vec<&str> = command.iter().map(String::as_str).chain(more.iter().copied()).collect();
    world.run(&words)
}

#[test]
fn every_reader_of_a_damaged_journal_reports_the_damage() {
    // The last record, and one with records behind it.
    for line in [0, 3] {
        let world = CliFixture::new();
        assert_eq!(world.run_script(SCRIPT, &["--mode", "yolo"]).code, 0);
        let whole = world.run(&["sessions", "export", "last"]);
        assert_eq!((whole.code, whole.err.as_str()), (0, ""));
        damage(&world, line);
        for command in commands(&world) {
            let case = format!("{command:?}, line {line}");
            let ran = run(&world, &command, &[]);
            assert_eq!(ran.code, 1, "{case}: {}", ran.err);
            assert!(ran.err.contains("is damaged"), "{case}: {}", ran.err);
            assert!(!command.contains(&"export".to_owned()) || ran.out.is_empty(), "{case}");
            let ran = run(&world, &command, &["--partial"]);
            assert_eq!(ran.code, 0, "{case}: {}", ran.err);
            assert!(ran.err.contains("is damaged"), "{case}: {}", ran.err);
        }
        let path = journal(&world);
        let id = path.file_stem().unwrap().to_str().unwrap();
        let advises_partial = |args: &[&str]| {
            let ran = world.run(args);
            assert_eq!(ran.code, 1, "{args:?}: {}", ran.err);
            assert!(ran.err.contains("hint: `architect fork"), "{args:?}: {}", ran.err);
            ran.err.contains("--partial")
        };
        assert!(advises_partial(&["trace", id]) && advises_partial(&["fork", id, "--only"]));
        // These commands don't have the option.
        let model = world.script_model(SCRIPT);
        for change in [["--set", "limits.max_steps=1"], ["--model", &model]] {
            assert!(!advises_partial(&[&["what-if", id][..], &change].concat()));
        }
        assert!(!advises_partial(&["diff", id]));
        let changes = world.run(&["diff", id]);
        assert_eq!((changes.code, changes.out.as_str()), (1, ""), "{}", changes.err);
        assert!(changes.err.contains("is damaged"), "{}", changes.err);
        for options in [&["--verify"][..], &[], &["--json"]] {
            let replayed = world.run(&[&["replay", id], options].concat());
            assert_eq!(replayed.code, 1, "{options:?}: {}", replayed.out);
        }
        let part = world.run(&["sessions", "export", "--partial", id]);
        let (part, whole) = (part.out.lines().count(), whole.out.lines().count());
        assert_eq!(part, whole - 1 - line);
    }
}

/// An incomplete last line, as a crash leaves it, is no damage.
#[test]
fn half_a_line_at_the_end_of_a_journal_is_no_damage() {
    let world = CliFixture::new();
    assert_eq!(world.run_script(SCRIPT, &["--mode", "yolo"]).code, 0);
    let path = journal(&world);
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 10]).unwrap();
    for command in commands(&world) {
        let ran = run(&world, &command, &[]);
        assert_eq!(ran.code, 0, "{command:?}: {}", ran.err);
    }
}

#[test]
fn a_journal_under_the_name_of_another_session_is_refused() {
    let world = CliFixture::new();
    assert_eq!(world.run_script(SCRIPT, &["--mode", "yolo"]).code, 0);
    let (path, name) = (journal(&world), "019f0000-0000-7000-8000-000000000001");
    fs::rename(&path, path.with_file_name(format!("{name}.jsonl"))).unwrap();
    for args in [vec!["resume", "last", "go on"], vec!["replay", "last"], vec!["trace", "last"]] {
        let ran = world.run(&args);
        assert_eq!(ran.code, 1, "{args:?}: {}", ran.err);
        assert!(ran.err.contains("has the header of session"), "{args:?}: {}", ran.err);
        assert!(ran.err.contains("hint: rename"), "{args:?}: {}", ran.err);
    }
    fs::remove_file(path.with_file_name(format!("{name}.jsonl"))).unwrap();
}

/// A repair is not advised if it wouldn't help.
#[test]
fn a_repair_does_not_advise_itself() {
    let world = CliFixture::new();
    assert_eq!(world.run_script(SCRIPT, &["--mode", "yolo"]).code, 0);
    let path = journal(&world);
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replacen("\"seq\":0", "\"seq\":7", 1)).unwrap();
    let session = path.file_stem().unwrap().to_str().unwrap();
    let ran = world.run(&["resume", session, "--repair", "go on"]);
    assert_eq!(ran.code, 3, "{}", ran.err);
    assert!(ran.err.contains("record 0") && !ran.err.contains("--repair"), "{}", ran.err);
    fs::remove_file(path).unwrap();
}

/// A run whose journal was truncated or deleted ends with an error, and is not offered for a resume that would fail.
#[test]
fn a_run_ends_when_its_journal_is_truncated_or_deleted() {
    let changes = [
        ("truncate -s 0", 1, "truncated", false),
        ("truncate -s 500", 1, "truncated", false),
        ("truncate -s -100", 1, "truncated", true),
        ("rm", 1, "deleted", false),
        ("echo more | tee -a", 0, "", false),
    ];
    for (change, code, why, can_resume) in changes {
        let world = CliFixture::new();
        let sessions = world.home().join(".local/state/architect/sessions");
        let command = format!("{change} {}/*.jsonl", sessions.display());
        let script = format!(
            "[[turn]]\ncalls = [{{ name = 'run_command', arguments = {{ command = '{command}' }} }}]\n\
             [[turn]]\ntext = 'Done.'\n"
        );
        let ran = world.run_script(&script, &["--mode", "yolo", "--sandbox", "off", "--json"]);
        let document = ran.json();
        assert_eq!(ran.code, code, "{change}: {}", ran.err);
        assert_eq!(document["journal_hash"].is_null(), code == 1, "{change}");
        let offer = ran.err.contains("Continue with: architect resume");
        assert_eq!(offer, can_resume, "{change}: {}", ran.err);
        if code == 1 {
            assert_eq!(document["stop_reason"], "store_error", "{change}");
            assert!(document["error"].as_str().unwrap().contains(why), "{document}");
        } else {
            assert_eq!(world.run(&["replay", "last", "--verify"]).code, 0);
        }
        if can_resume {
            assert_eq!(world.run(&["resume", "last"]).code, 0, "{change}");
        } else {
            // No other journal may be damaged when a test ends.
            fs::remove_dir_all(sessions).unwrap();
        }
    }
}

/// A command about the last session must not be about the one before it.
#[test]
fn a_damaged_header_is_reported_where_the_last_session_is_meant() {
    let world = CliFixture::new();
    for _ in 0..2 {
        assert_eq!(world.run_script(SCRIPT, &["--mode", "yolo"]).code, 0);
    }
    let sessions = world.home().join(".local/state/architect/sessions");
    let files = fs::read_dir(sessions).unwrap().map(|entry| entry.unwrap().path());
    let newest = files.filter(|path| path.extension().is_some_and(|it| it == "jsonl")).max();
    let newest = newest.unwrap();
    let whole = fs::read_to_string(&newest).unwrap();
    fs::write(&newest, whole.replacen("\"build\"", "\"guild\"", 1)).unwrap();
    for command in
        [&["replay", "last", "--verify"][..], &["undo", "--yes"], &["resume", "last", "x"]]
    {
        let ran = world.run(command);
        assert!(
            ran.code != 0 && ran.err.contains("record 0"),
            "{command:?}: {} {}",
            ran.code,
            ran.err
        );
    }
    fs::write(newest, whole).unwrap();
}
