//! Power cuts: any part of the unsynced changes is lost, the session continues with the rest, and no reported result is
//! lost. As in the ALICE and `CrashMonkey` papers, the operations of a real run are recorded, and the session is
//! resumed from each disk that a prefix of them may leave.

mod disk_model;
mod disk_operations;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use architect::journal::{
    DamagePolicy, Durability, JournalEndKind, ResumeOptions, SessionSetup, SessionStore,
    WorkspaceIdentity,
};
use architect::workspace::leftover_path;

use self::disk_model::{DiskModel, FileTree, PowerCut, SeededRng};
use self::disk_operations::{DiskOperation, OutsideEffect};
use super::{count_cases, strace, tracing_unavailable};
use crate::kit::cli::{CliFixture, outcome, wait_for_exit};

/// Long and short outputs, a message from another process, a new file, an edit, a command, a patch of several files, a
/// long answer.
const SCRIPT: &str = r#"
[[turn]]
calls = [{ id = "c0", name = "run_command", arguments = { command = "seq 20000; ARCHITECT steer last 'Mind the gap.'" } }]
[[turn]]
calls = [
    { id = "c1", name = "write_file", arguments = { path = "new/deep/a", content = "first\n" } },
    { id = "c2", name = "edit_file", arguments = { path = "b", old_str = "old", new_str = "new" } },
]
[[turn]]
calls = [{ id = "c3", name = "run_command", arguments = { command = "echo ran >> COUNTER" } }]
[[turn]]
[[turn.calls]]
id = "c4"
name = "apply_patch"
[turn.calls.arguments]
patch = """
--- a/b
+++ b/b
@@ -1 +1 @@
-new
+newer
--- a/sub/c
+++ b/sub/c
@@ -1 +1 @@
-old
+new
--- a/sub/d
+++ /dev/null
@@ -1 +0,0 @@
-old
"""
[[turn]]
text = "LONG"
"#;

const STATE: &str = "home/.local/state/architect";

/// A run with all of its operations.
struct RecordedRun {
    world: CliFixture,
    /// A folder outside of the disk, which no power cut affects: it has the command's count of its runs, and the log.
    beside: tempfile::TempDir,
    durability: &'static str,
    before: FileTree,
    ops: Vec<DiskOperation>,
    /// The journal at the end of the whole run.
    journal: Vec<u8>,
    /// All contents that a file in the workspace, or an output, had at some time.
    versions: BTreeMap<PathBuf, BTreeSet<Vec<u8>>>,
    /// The number of earlier runs of the command.
    ran: usize,
}

/// The disk at one point of the run, and the effects that may not be lost by then.
struct CutPoint {
    disk: DiskModel,
    at: usize,
    /// The length of the journal at the newest effect that depends on it.
    durable: usize,
    ran: usize,
    is_steered: bool,
}

/// A point, and a possible disk after a power cut there.
struct CutCase {
    tree: FileTree,
    name: String,
    durable: usize,
    ran: usize,
    is_steered: bool,
}

/// Returns whether a path is left out: broken indexes of the sessions and of the files are built again.
fn is_left_out(path: &Path) -> bool {
    let Ok(path) = path.strip_prefix(STATE) else { return false };
    let top = path.iter().next().and_then(|name| name.to_str()).unwrap_or_default();
    top.starts_with("index.db") || top == "workspaces"
}

fn is_journal(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "jsonl")
}

fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_str().unwrap().starts_with('.'))
}

fn is_output(path: &Path) -> bool {
    path.parent().is_some_and(|folder| folder.ends_with("outputs"))
}

/// Returns the temporary files of the edits that are recorded in a journal.
fn staged_paths(journal: &[u8]) -> HashSet<PathBuf> {
    fn add(value: &serde_json::Value, found: &mut HashSet<PathBuf>) {
        if let Some(path) = value["path"].as_str() {
            let digests = ["before", "after"].iter().filter_map(|key| value[key].as_str());
            found.extend(
                digests
                    .map(|digest| Path::new("work").join(leftover_path(Path::new(path), digest))),
            );
        }
        let inner = value.as_object().into_iter().flat_map(|fields| fields.values());
        inner.chain(value.as_array().into_iter().flatten()).for_each(|value| add(value, found));
    }
    let mut found = HashSet::new();
    for line in journal.split(|byte| *byte == b'\n') {
        if let Ok(record) = serde_json::from_slice(line) {
            add(&record, &mut found);
        }
    }
    found
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|part| part == text.as_bytes())
}

impl RecordedRun {
    /// Records the run.
    fn run(durability: &'static str) -> Self {
        let (world, beside) = (CliFixture::new(), tempfile::tempdir().unwrap());
        for name in ["b", "sub/c", "sub/d"] {
            world.write(name, "old\n");
        }
        let script = SCRIPT
            .replace("LONG", &"long ".repeat(3_000))
            .replace("ARCHITECT", env!("CARGO_BIN_EXE_architect"))
            .replace("COUNTER", beside.path().join("ran").to_str().unwrap());
        let model = world.script_model(&script);
        let args = ["run", "Do it.", "--model", &model, "--mode", "yolo", "--sandbox", "off"];
        let recorded = Self::record(world, beside, durability, &args);
        let staged = staged_paths(&recorded.journal);
        let is_staged =
            |op: &DiskOperation| matches!(op, DiskOperation::Create(path) if staged.contains(path));
        assert!(recorded.ops.iter().any(is_staged), "no temporary file has a record: {staged:?}");
        recorded
    }

    fn record(
        world: CliFixture,
        beside: tempfile::TempDir,
        durability: &'static str,
        args: &[&str],
    ) -> Self {
        let set = format!("sessions.durability={durability}");
        let args = [args, &["--json", "--set", &set]].concat();
        let root = world.home().parent().unwrap().to_owned();
        assert_eq!(root, root.canonicalize().unwrap(), "strace sees real paths");
        let before = disk_model::read(&root);
        let count = fs::read_to_string(beside.path().join("ran")).unwrap_or_default();
        let log = beside.path().join("log");
        let how = ["-f", "-y", "-xx", "-s", "100000000", "-e", disk_operations::TRACED_SYSCALLS];
        let ran =
            wait_for_exit(strace::under_strace(&world.command(&args), &log, &how).spawn().unwrap());
        assert_eq!(ran.outcome(), outcome(0, "llm_done", "success"), "{}", ran.err);
        let ops = disk_operations::parse_log(&fs::read_to_string(log).unwrap(), &root, is_left_out);
        let (journal, versions) = (Vec::new(), BTreeMap::new());
        let ran = count.lines().count();
        let mut recorded = Self { world, beside, durability, before, ops, journal, versions, ran };
        recorded.check();
        recorded
    }

    fn root(&self) -> PathBuf {
        self.world.home().parent().unwrap().to_owned()
    }

    /// Checks that the model of the disk ends in the real state of the disk, and records all complete contents.
    fn check(&mut self) {
        let mut disk = DiskModel::from_tree(&self.before);
        for (path, content) in &self.before {
            if let Some(content) = content {
                self.versions.entry(path.clone()).or_default().insert(content.clone());
            }
        }
        for op in &self.ops {
            disk.apply(op);
            if let DiskOperation::Rename(_, path) = op {
                let content = disk.content(path).unwrap();
                self.versions.entry(path.clone()).or_default().insert(content);
            }
        }
        let all =
            |tree: FileTree| tree.into_iter().filter(|(path, _)| !is_left_out(path)).collect();
        let is: FileTree = all(disk_model::read(&self.root()));
        let modelled: FileTree = all(disk.after_cut(PowerCut::Everything));
        assert_eq!(modelled.keys().collect::<Vec<_>>(), is.keys().collect::<Vec<_>>());
        for (path, content) in &is {
            assert!(modelled[path] == *content, "{} is not as recorded", path.display());
        }
        let journal = is.into_iter().find(|(path, _)| is_journal(path));
        self.journal = journal.unwrap().1.unwrap();
    }

    /// Visits the points of the run, operation by operation.
    fn points(&self, mut see: impl FnMut(&CutPoint)) {
        let disk = DiskModel::from_tree(&self.before);
        let mut point = CutPoint { disk, at: 0, durable: 0, ran: self.ran, is_steered: false };
        let mut journal = self.before.keys().find(|path| is_journal(path)).cloned();
        // Nothing that was there before may get lost.
        for (path, content) in &self.before {
            point.is_steered |= content.as_ref().is_some_and(|it| contains(it, "Mind the gap."))
                && path.starts_with(STATE);
        }
        for (at, op) in self.ops.iter().enumerate() {
            let length = journal.as_ref().and_then(|path| point.disk.content(path));
            let length = length.map_or(0, |content| content.len());
            point.durable = point.durable.max(match op {
                DiskOperation::Effect(OutsideEffect::Ran) => {
                    self.durable_count(length, "\"intent\":\"opaque\"")
                }
                DiskOperation::Effect(OutsideEffect::Answered) => length,
                DiskOperation::Rename(_, path) | DiskOperation::Remove(path)
                    if !is_hidden(path) =>
                {
                    let path = path.strip_prefix("work").ok().map(|path| path.to_str().unwrap());
                    path.map_or(0, |path| {
                        self.durable_count(length, &format!("\"path\":\"{path}\""))
                    })
                }
                _ => 0,
            });
            point.is_steered |= matches!(op, DiskOperation::Effect(OutsideEffect::Steered));
            point.disk.apply(op);
            match op {
                DiskOperation::Rename(_, to) if is_journal(to) => journal = Some(to.clone()),
                DiskOperation::Write { path, .. } if is_journal(path) => {
                    journal = Some(path.clone());
                }
                _ => {}
            }
            point.ran = self.ran.max(fs_count(&self.ops[..=at]));
            point.at = at;
            see(&point);
        }
    }

    /// Returns the end of the newest record that approves a call of this kind.
    fn durable_count(&self, length: usize, what: &str) -> usize {
        let (mut end, mut found) = (0, 0);
        for line in self.journal[..length].split_inclusive(|byte| *byte == b'\n') {
            end += line.len();
            if contains(line, "\"vetted\"") && contains(line, what) {
                found = end;
            }
        }
        found
    }

    /// Returns disks that a power cut may leave, all different: so many of each prefix of the run, and the extremes.
    fn cases(&self, some: usize, every: usize) -> Vec<CutCase> {
        let (mut cases, mut seen) = (Vec::new(), HashSet::new());
        self.points(|point| {
            if point.at % every != 0 && point.at + 1 != self.ops.len() {
                return;
            }
            let seeds = (0..some).map(|seed| (point.at * 1_000 + seed) as u64);
            let cuts = [PowerCut::Nothing, PowerCut::Everything, PowerCut::Lengths].into_iter();
            for (nth, cut) in
                cuts.chain(seeds.map(|seed| PowerCut::Some(SeededRng(seed)))).enumerate()
            {
                let tree = point.disk.after_cut(cut);
                let mut hasher = DefaultHasher::new();
                (&tree, point.durable, point.is_steered, point.ran).hash(&mut hasher);
                if seen.insert(hasher.finish()) {
                    let op = format!("{:?}", self.ops[point.at]);
                    let op: String = op.chars().take(160).collect();
                    let name = format!("{}, cut {nth} after {} {op}", self.durability, point.at);
                    let CutPoint { durable, ran, is_steered, .. } = *point;
                    cases.push(CutCase { tree, name, durable, ran, is_steered });
                }
            }
        });
        cases
    }

    /// Asserts that each file of the workspace, and each stored output, has a content that it had at some time.
    fn assert_intact(&self, tree: &FileTree, case: &str) {
        for (path, content) in tree {
            let Some(content) = content else { continue };
            let is_kept = is_output(path) && self.durability == "full";
            if (path.starts_with("work") || is_kept) && !is_hidden(path) {
                let is_known = self.versions.get(path).is_some_and(|them| them.contains(content));
                assert!(is_known, "{case}: {} is torn", path.display());
            }
        }
        for path in ["work/b", "work/sub/c"] {
            assert!(tree.contains_key(Path::new(path)), "{case}: {path} is gone");
        }
    }

    /// Resumes the session from a disk within this process, up to the first decision.
    fn resume_and_check(&self, case: &CutCase) {
        let folder = tempfile::tempdir().unwrap();
        let CutCase { tree, name, .. } = case;
        self.assert_intact(tree, name);
        disk_model::write(folder.path(), tree);
        let root = folder.path().join(STATE);
        let store = SessionStore::open(&root, Durability::Os).unwrap();
        let is_full = self.durability == "full";
        let Some(listed) = store.list().unwrap().into_iter().next() else {
            assert!(!is_full || (case.durable == 0 && !case.is_steered), "{name}: it is gone");
            return;
        };
        let session = listed.session;
        let replayed = store.replay(session, |_, stored, replayed| {
            assert_eq!(replayed.divergence, None, "{name}: record {}", stored.seq);
        });
        let (past, end) = match replayed {
            Err(_) if !is_full => return,
            replayed => replayed.unwrap_or_else(|error| panic!("{name}: {error}")),
        };
        let valid = usize::try_from(end.position.offset).unwrap();
        let journal = fs::read(root.join(format!("sessions/{session}.jsonl"))).unwrap();
        assert!(journal[..valid] == self.journal[..valid], "{name}: it has other records");
        let is_torn = !matches!(end.kind, JournalEndKind::Whole);
        if is_full {
            assert!(valid >= case.durable, "{name}: {valid} of {} are left", case.durable);
            let is_read_only = matches!(end.kind, JournalEndKind::ReadOnly(_));
            assert!(!is_read_only, "{name}: {:?}", end.kind);
            let messages = tree.iter().filter(|(path, _)| path.parent().unwrap().ends_with("mail"));
            let mut messages = messages.filter_map(|(_, content)| content.as_ref());
            let is_there = contains(&journal[..valid], "Mind the gap.")
                || messages.any(|message| contains(message, "Mind the gap."));
            assert!(is_there || !case.is_steered, "{name}: the message is lost");
        }
        let outputs = tree.keys().filter(|path| is_output(path) && !is_hidden(path));
        if outputs.count() > 0 {
            let page = store.outputs(session).page(&"c0".into(), 1, u64::MAX);
            let is_there = page.as_ref().is_ok_and(|page| page.as_ref().unwrap().lines > 20_000);
            assert!(is_there || (!is_full && page.is_err()), "{name}: {page:?}");
        }
        let repair = if is_full { DamagePolicy::Refuse } else { DamagePolicy::Truncate };
        let opened = store.reopen(session, repair).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(opened.saved_tail.is_some(), is_torn, "{name}: {:?}", end.kind);
        if let Some(torn) = &opened.saved_tail {
            assert!(fs::read(torn).unwrap() == journal[valid..], "{name}: it is not saved");
        }
        let workspace = folder.path().join("work");
        let workspace = WorkspaceIdentity { root: workspace, ..past.setup.workspace.clone() };
        let setting = SessionSetup { workspace, ..past.setup.clone() };
        let rules = architect::types::RunRules::clone(&past.machine.state.run().rules);
        let how = ResumeOptions {
            now: SystemTime::now(),
            setup: setting,
            rules,
            prompt: None,
            images: Vec::new(),
        };
        let going = opened.resume(how).unwrap_or_else(|e| panic!("{name}: {e}"));
        drop(going);
        let again = store.replay(session, |_, stored, replayed| {
            assert_eq!(replayed.divergence, None, "{name}: record {}, again", stored.seq);
        });
        assert_eq!(again.unwrap().1.kind, JournalEndKind::Whole, "{name}");
        let after = disk_model::read(folder.path());
        self.assert_intact(&after, name);
        // The temporary files of a call without a record, as with less durability, are unknown.
        let known = staged_paths(&journal[..valid]);
        let mut left = after.keys().filter(|path| path.starts_with("work") && is_hidden(path));
        let unexpected = left.find(|path| is_full || known.contains(*path));
        assert_eq!(unexpected, None, "{name}: left beside");
    }

    /// Resumes the session from a disk with the program itself, to the end.
    fn assert_completes(&self, case: &CutCase) {
        let CutCase { tree, name, .. } = case;
        let root = self.root();
        disk_model::write(&root, tree);
        let counter = self.beside.path().join("ran");
        fs::write(&counter, "ran\n".repeat(case.ran)).unwrap();
        let has_session = tree.keys().any(|path| is_journal(path));
        let mut ran = self.world.run(&["resume", "last", "--json"]);
        if !has_session {
            assert_eq!(ran.code, 3, "{name}: {}", ran.err);
            return;
        }
        if self.durability == "os" && ran.code == 3 {
            assert!(
                ran.err.contains("--repair") || ran.err.contains("header"),
                "{name}: {}",
                ran.err
            );
            ran = self.world.run(&["resume", "last", "--json", "--repair"]);
            if ran.code == 3 {
                return;
            }
        }
        assert_eq!(ran.outcome(), outcome(0, "llm_done", "success"), "{name}: {}", ran.err);
        assert_eq!(ran.json()["output"].as_str().map(str::len), Some(15_000), "{name}");
        let count = fs::read_to_string(&counter).unwrap_or_default().lines().count();
        let is_full = self.durability == "full";
        assert!(count <= 1 || !is_full, "{name}: the command ran {count} times");
        let after = disk_model::read(&root);
        self.assert_intact(&after, name);
        let journal = after.iter().find(|(path, _)| is_journal(path)).unwrap().1.as_ref().unwrap();
        let is_there = contains(journal, "Mind the gap.");
        assert!(is_there || !case.is_steered || !is_full, "{name}: the message is lost");
        let verified = self.world.run(&["replay", "last", "--verify"]);
        assert_eq!(verified.code, 0, "{name}: {}", verified.err);
    }
}

/// Returns how often the command that counts its runs has begun: it is the second one.
fn fs_count(ops: &[DiskOperation]) -> usize {
    let commands =
        ops.iter().filter(|op| matches!(op, DiskOperation::Effect(OutsideEffect::Ran))).count();
    commands.saturating_sub(1).min(1)
}

/// Returns the number of disks of each prefix from which the session is resumed: few, or `ARCHITECT_POWER_CUTS`.
fn cut_count() -> usize {
    let wanted = std::env::var("ARCHITECT_POWER_CUTS").ok();
    wanted.map_or(3, |count| count.parse().expect("ARCHITECT_POWER_CUTS is a number"))
}

fn cut_everywhere(durability: &'static str) {
    if let Some(why) = tracing_unavailable() {
        return println!("skipped: {why}");
    }
    let recorded = RecordedRun::run(durability);
    let cases = recorded.cases(cut_count(), 1);
    let (all, prefixes) = (cases.len(), recorded.ops.len());
    count_cases(cases, |case| {
        recorded.resume_and_check(&case);
        true
    });
    println!("{all} disks of {prefixes} prefixes");
    assert!(all > 2 * prefixes / 3, "{all} disks of {prefixes} prefixes");
}

/// No effect, message or answer is forgotten, and nothing is half there.
#[test]
fn a_session_goes_on_from_whatever_disk_a_power_cut_leaves() {
    cut_everywhere("full");
}

/// Records may be missing then, but the remaining ones are complete, or reported as damaged.
#[test]
fn with_less_durability_records_may_be_missing_but_none_is_half_there() {
    cut_everywhere("os");
}

/// The same with the program itself, which runs to the end: no command runs twice.
#[test]
fn a_run_is_completed_after_a_power_cut() {
    if let Some(why) = tracing_unavailable() {
        return println!("skipped: {why}");
    }
    let recorded = RecordedRun::run("full");
    let every = if cut_count() > 3 { 1 } else { 9 };
    let cases = recorded.cases(1, every);
    println!("{} disks", cases.len());
    cases.iter().for_each(|case| recorded.assert_completes(case));
}

/// The power is cut again while the program resumes from the disk after the first cut.
#[test]
fn a_second_power_cut_loses_no_more_than_the_first() {
    if let Some(why) = tracing_unavailable() {
        return println!("skipped: {why}");
    }
    let mut recorded = RecordedRun::run("full");
    let has_session = |case: &CutCase| case.tree.keys().any(|path| is_journal(path));
    let first: Vec<CutCase> = recorded.cases(1, 19).into_iter().filter(has_session).collect();
    let many = cut_count() > 3;
    let (mut disks, mut resumed) = (0, 0);
    for case in first.iter().step_by(if many { 1 } else { 4 }) {
        let RecordedRun { world, beside, .. } = recorded;
        disk_model::write(&world.home().parent().unwrap().canonicalize().unwrap(), &case.tree);
        fs::write(beside.path().join("ran"), "ran\n".repeat(case.ran)).unwrap();
        recorded = RecordedRun::record(world, beside, "full", &["resume", "last"]);
        let mut second = recorded.cases(1, if many { 3 } else { 9 });
        for after in &mut second {
            after.name = format!("{}; then {}", case.name, after.name);
            after.is_steered |= case.is_steered;
        }
        disks += second.len();
        resumed += 1;
        count_cases(second, |case| {
            recorded.resume_and_check(&case);
            true
        });
    }
    println!("{disks} disks of {resumed} runs that went on");
    assert!(disks > 5 * resumed && resumed > 2, "{disks} disks of {resumed} runs");
}
