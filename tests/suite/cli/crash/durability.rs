//! Every sync of a run, by file; no sync comes after an effect that depends on it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::strace;
use super::tracing_unavailable;
use crate::kit::cli::{CliFixture, wait_for_exit};

/// A text in a file of its own, an output that is stored in full, and a file that is edited.
const SCRIPT: &str = r#"
[[turn]]
calls = [{ name = "run_command", arguments = { command = "seq 40000; touch b.txt" } }]
[[turn]]
calls = [{ name = "write_file", arguments = { path = "a.txt", content = "1\n" } }]
[[turn]]
text = "LONG"
"#;

/// Returns the calls of a run that `strace` recorded, line by line.
fn watched(world: &CliFixture, durability: &str) -> String {
    let model = world.script_model(&SCRIPT.replace("LONG", &"long ".repeat(20_000)));
    let set = format!("sessions.durability={durability}");
    let args = ["run", "Do it.", "--model", &model, "--mode", "yolo", "--json", "--set", &set];
    let log = world.home().join("strace.log");
    let calls = "trace=fsync,fdatasync,sync_file_range,syncfs,sync,msync,pwrite64,renameat,renameat2,execve";
    let how = ["-f", "-y", "-s", "0", "-e", calls];
    let ran =
        wait_for_exit(strace::under_strace(&world.command(&args), &log, &how).spawn().unwrap());
    assert_eq!(ran.code, 0, "{}", ran.err);
    fs::read_to_string(log).unwrap()
}

/// Returns the file of a call.
fn file(line: &str) -> Option<&str> {
    line.split_once('<')?.1.split_once('>').map(|(file, _)| file)
}

fn is_journal(file: &str) -> bool {
    Path::new(file).extension().is_some_and(|ending| ending == "jsonl")
}

/// Returns the kind of a file, independent of its random names.
fn kind(world: &CliFixture, path: &str) -> String {
    let path = path.strip_suffix("(deleted)").unwrap_or(path);
    let root = world.home().canonicalize().unwrap();
    let work = world.path("").canonicalize().unwrap();
    let (place, path) = match (path.strip_prefix(root.to_str().unwrap()), work.to_str()) {
        (Some(path), _) => ("home", path),
        (None, Some(work)) => {
            ("work", path.strip_prefix(work.trim_end_matches('/')).unwrap_or(path))
        }
        (None, None) => ("", path),
    };
    let word = |part: &str| match part {
        part if part.starts_with(".architect-") => ".staged".to_owned(),
        part if part.starts_with('.') && part.len() == 37 => ".new".to_owned(),
        part if part.len() == 36 && part.contains('-') => "ID".to_owned(),
        part if is_journal(part) => "ID.jsonl".to_owned(),
        part => part.to_owned(),
    };
    place.to_owned() + &path.split('/').map(word).collect::<Vec<_>>().join("/")
}

fn syncs(world: &CliFixture, log: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for line in log.lines().filter(|line| line.contains("sync(") && !line.contains("resumed>")) {
        let name = if line.contains("fdatasync(") { "fdatasync" } else { "fsync" };
        let kind = kind(world, file(line).unwrap_or(line));
        *counts.entry(format!("{name} {kind}")).or_default() += 1;
    }
    counts
}

/// Without any one of these syncs, an acknowledged change can be lost, or half of it.
#[test]
fn each_file_is_made_durable_exactly_so_often() {
    if let Some(why) = tracing_unavailable() {
        return println!("skipped: {why}");
    }
    let world = CliFixture::new();
    let full = syncs(&world, &watched(&world, "full"));
    let found: Vec<String> = full.iter().map(|(what, count)| format!("{count} {what}")).collect();
    let state = "home/.local/state/architect";
    let expected = [
        // Before each of three model calls, the command, the edit, the check of the answer, and the end.
        (7, format!("fdatasync {state}/sessions/ID.jsonl")),
        // The header, before the journal gets its name.
        (1, format!("fdatasync {state}/sessions/.new")),
        // For each new folder, the folder around it.
        (1, "fsync home".to_owned()),
        (1, "fsync home/.local".to_owned()),
        (1, "fsync home/.local/state".to_owned()),
        (1, format!("fsync {state}")),
        (1, format!("fsync {state}/sessions")),
        (3, format!("fsync {state}/sessions/ID")),
        // The states before the command, before the edit, and the last one.
        (3, format!("fdatasync {state}/sessions/ID/checkpoints/ID")),
        (1, format!("fsync {state}/sessions/ID/checkpoints")),
        (1, format!("fsync {state}/sessions/ID/blobs")),
        (1, format!("fsync {state}/sessions/ID/blobs/.new")),
        (1, format!("fsync {state}/sessions/ID/outputs")),
        (1, format!("fsync {state}/sessions/ID/outputs/.new")),
        (1, "fsync work/.staged".to_owned()),
    ];
    let mut expected: Vec<String> =
        expected.iter().map(|(count, what)| format!("{count} {what}")).collect();
    expected.sort_by(|a, b| a.split_once(' ').unwrap().1.cmp(b.split_once(' ').unwrap().1));
    assert_eq!(found, expected);
    // With the other durability, only the user's own files are synced.
    let world = CliFixture::new();
    let os = syncs(&world, &watched(&world, "os"));
    assert_eq!(os.into_iter().collect::<Vec<_>>(), [("fsync work/.staged".to_owned(), 1)]);
}

/// Invariant 27: no effect comes before its reason is durable.
#[test]
fn nothing_is_done_while_the_journal_is_not_durable() {
    if let Some(why) = tracing_unavailable() {
        return println!("skipped: {why}");
    }
    let world = CliFixture::new();
    let log = watched(&world, "full");
    let (mut is_durable, mut effects) = (true, 0);
    for line in log.lines() {
        let is_journal = file(line).is_some_and(is_journal);
        if is_journal && line.contains("pwrite64(") {
            is_durable = false;
        } else if is_journal && line.contains("fdatasync(") {
            is_durable = true;
        } else if line.contains("\"a.txt\"") || line.contains("/bash\"") {
            assert!(is_durable, "{line}\n{log}");
            effects += 1;
        }
    }
    assert!(effects >= 2, "{log}");
}

/// Returns the syncs of a command, by file.
fn synced(world: &CliFixture, args: &[&str], how: &[&str]) -> BTreeMap<String, usize> {
    let log = world.home().join("strace.log");
    let how = [&["-f", "-y", "-s", "0"], how].concat();
    let ran =
        wait_for_exit(strace::under_strace(&world.command(args), &log, &how).spawn().unwrap());
    assert_eq!(ran.code, 0, "{}", ran.err);
    syncs(world, &fs::read_to_string(log).unwrap())
}

/// Returns the number of syncs of files whose name begins so.
fn count(syncs: &BTreeMap<String, usize>, what: &str) -> usize {
    syncs.iter().filter(|(name, _)| name.starts_with(what)).map(|(_, count)| count).sum()
}

const SESSIONS: &str = "fsync home/.local/state/architect/sessions";

/// Returns a world with a session that has stored an output.
fn kept_records() -> (CliFixture, String) {
    let world = CliFixture::new();
    let script = SCRIPT.replace("LONG", "Done.");
    let ran = world.run_script(&script, &["--mode", "yolo", "--json"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let model = world
        .script_model("[[turn]]\ntext = \"Yes.\"\n[[turn]]\ntext = \"Yes.\"\n".repeat(4).as_str());
    (world, model)
}

#[test]
fn a_copy_of_a_session_is_durable_before_it_has_its_name() {
    if let Some(why) = tracing_unavailable() {
        return println!("skipped: {why}");
    }
    let (world, model) = kept_records();
    let fork = ["fork", "last", "More.", "--model", &model, "--json"];
    let forked = synced(&world, &fork, &[]);
    assert_eq!(count(&forked, &format!("{SESSIONS}/.new")), 1, "{forked:?}");
    assert_eq!(count(&forked, &format!("{SESSIONS}/ID/outputs")), 1, "{forked:?}");
    assert_eq!(forked.get(SESSIONS), Some(&1), "{forked:?}");
    // On file systems without hard links, the outputs are copied.
    let forked = synced(&world, &fork, &["-e", "inject=linkat:error=EPERM"]);
    assert_eq!(count(&forked, &format!("{SESSIONS}/ID/outputs/")), 1, "{forked:?}");
    let exported = world.run(&["sessions", "export", "last"]).out;
    world.write("exported.jsonl", &exported);
    let imported = synced(&world, &["sessions", "import", "exported.jsonl"], &[]);
    assert_eq!(count(&imported, &format!("{SESSIONS}/.new")), 1, "{imported:?}");
    assert_eq!(imported.get(SESSIONS), Some(&1), "{imported:?}");
}

#[test]
fn what_is_cut_off_a_journal_is_durable_elsewhere_before() {
    if let Some(why) = tracing_unavailable() {
        return println!("skipped: {why}");
    }
    let (world, _) = kept_records();
    let sessions = world.home().join(".local/state/architect/sessions");
    let is_journal = |path: &std::path::PathBuf| path.extension().is_some_and(|it| it == "jsonl");
    let mut files = fs::read_dir(sessions).unwrap().map(|entry| entry.unwrap().path());
    let journal = files.find(is_journal).unwrap();
    let torn = fs::read_to_string(&journal).unwrap() + "{\"seq\":";
    fs::write(&journal, torn).unwrap();
    let resumed = synced(&world, &["resume", "last", "--json"], &[]);
    assert_eq!(count(&resumed, &format!("{SESSIONS}/ID/torn-")), 1, "{resumed:?}");
    assert_eq!(resumed.get(&format!("{SESSIONS}/ID")), Some(&1), "{resumed:?}");
    assert_eq!(resumed.get(&format!("{SESSIONS}/ID.jsonl")), Some(&1), "{resumed:?}");
}

#[test]
fn a_report_is_durable_before_it_has_its_name() {
    if let Some(why) = tracing_unavailable() {
        return println!("skipped: {why}");
    }
    let (world, model) = kept_records();
    let args = ["run", "Again.", "--model", &model, "--json", "--report-file", "report.html"];
    let reported = synced(&world, &args, &[]);
    assert_eq!(count(&reported, "fsync work/.staged"), 1, "{reported:?}");
}
