//! Random trees, changed at random, recorded and restored.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::port::CancellationToken;
use crate::types::{Durability, Sha256Digest};
use crate::workspace::{BatchedChange, RelPath, WorkspaceRoot, apply_changes, sha256};

/// A change of a tree by a command or a tool.
#[derive(Clone, Debug)]
enum TreeChange {
    Write(PathBuf, Vec<u8>),
    Append(PathBuf, Vec<u8>),
    Folder(PathBuf),
    Link(PathBuf, PathBuf),
    Remove(PathBuf),
    Rename(PathBuf, PathBuf),
    Mode(PathBuf, u32),
    /// By a tool: a new content, or none if the file is deleted.
    Edit(PathBuf, Option<Vec<u8>>),
    /// By a shell, with two paths.
    Command(&'static str, PathBuf, PathBuf),
}

/// Commands that change files, with the paths `$1` and `$2`.
const COMMANDS: [&str; 9] = [
    "mv -f \"$1\" \"$2\"",
    "cp -a \"$1\" \"$2\"",
    "ln -f \"$1\" \"$2\"",
    "ln -sfn \"$1\" \"$2\"",
    "rm -rf \"$1\"; mkdir -p \"$1/$2\"",
    "chmod -R u+w,o-r \"$1\"",
    "printf x >> \"$1\"; truncate -s 3 \"$1\"",
    "touch -d @1 \"$1\"",
    // Another content of the same size and with the same modification time.
    "touch -r \"$1\" time && tr a-y b-z < \"$1\" > new && cat new > \"$1\"; touch -r time \"$1\"; rm -f time new",
];

impl TreeChange {
    /// Returns the paths that must be in the tree: a change follows the links that earlier ones have made.
    fn followed_paths(&self) -> Vec<&Path> {
        fn parent(path: &Path) -> &Path {
            path.parent().unwrap()
        }
        match self {
            Self::Write(path, _)
            | Self::Append(path, _)
            | Self::Folder(path)
            | Self::Link(path, _)
            | Self::Remove(path)
            | Self::Mode(path, _)
            | Self::Edit(path, _) => vec![parent(path)],
            Self::Rename(from, to) => vec![parent(from), parent(to)],
            Self::Command(_, a, b) => vec![a, b],
        }
    }

    /// Applies the change, if it is possible and changes nothing outside of the tree.
    fn apply(&self, root: &Path) {
        let at = |path: &Path| root.join(path);
        let real_root = root.canonicalize().unwrap();
        let is_inside = |path: &&Path| {
            let existing = at(path).ancestors().find_map(|path| path.canonicalize().ok());
            existing.is_some_and(|path| path.starts_with(&real_root))
        };
        if !self.followed_paths().iter().all(is_inside) {
            return;
        }
        let parents = |path: &Path| drop(fs::create_dir_all(at(path).parent().unwrap()));
        let is_link = |path: &Path| at(path).is_symlink();
        match self {
            Self::Write(path, content) => {
                parents(path);
                if !is_link(path) {
                    let _ = fs::write(at(path), content);
                }
            }
            Self::Append(path, content) => {
                if let (false, Ok(old)) = (is_link(path), fs::read(at(path))) {
                    let _ = fs::write(at(path), [old, content.clone()].concat());
                }
            }
            Self::Folder(path) => drop(fs::create_dir_all(at(path))),
            Self::Link(path, target) => {
                parents(path);
                let _ = symlink(target, at(path));
            }
            Self::Remove(path) => {
                let _ = fs::remove_file(at(path)).or_else(|_| fs::remove_dir_all(at(path)));
            }
            Self::Rename(from, to) => {
                parents(to);
                let _ = fs::rename(at(from), at(to));
            }
            Self::Mode(path, mode) => {
                if !is_link(path) {
                    let _ = fs::set_permissions(at(path), Permissions::from_mode(*mode));
                }
            }
            Self::Edit(path, content) => {
                let before = fs::read(at(path)).ok().map(|old| sha256(&old));
                let after = content.clone().map(Into::into);
                let path = RelPath::new(path).unwrap();
                let change = BatchedChange { path, before, after, mode: None };
                let _ = apply_changes(&WorkspaceRoot::open(root).unwrap(), &[change]);
            }
            Self::Command(line, a, b) => {
                let mut shell = Command::new("sh");
                let path = |path: &Path| Path::new(".").join(path);
                shell.args(["-c", line, "sh"]).args([path(a), path(b)]).current_dir(root);
                let _ = shell.stderr(Stdio::null()).status();
            }
        }
    }
}

fn any_path() -> impl Strategy<Value = PathBuf> {
    let names = select(vec![&b"a"[..], b"b", b"c", b"odd\xff", b"e f\n", b"-x"]);
    prop::collection::vec(names, 1..4)
        .prop_map(|names| names.into_iter().map(OsStr::from_bytes).collect())
}

fn any_change() -> impl Strategy<Value = TreeChange> {
    let content = || prop::collection::vec(any::<u8>(), 0..40);
    let outside = ["/nonexistent/x", ".."].map(PathBuf::from);
    let target = prop_oneof![1 => any_path(), 2 => select(outside.to_vec())];
    prop_oneof![
        4 => (any_path(), content()).prop_map(|(path, content)| TreeChange::Write(path, content)),
        2 => (any_path(), content()).prop_map(|(path, content)| TreeChange::Append(path, content)),
        2 => any_path().prop_map(TreeChange::Folder),
        2 => (any_path(), target).prop_map(|(path, target)| TreeChange::Link(path, target)),
        2 => any_path().prop_map(TreeChange::Remove),
        2 => (any_path(), any_path()).prop_map(|(from, to)| TreeChange::Rename(from, to)),
        2 => (any_path(), select(vec![0o644, 0o600, 0o755, 0o4755, 0o500, 0o700, 0o777]))
            .prop_map(|(path, mode)| TreeChange::Mode(path, mode)),
        3 => (any_path(), prop::option::of(content()))
            .prop_map(|(path, content)| TreeChange::Edit(path, content)),
        3 => (select(&COMMANDS[..]), any_path(), any_path())
            .prop_map(|(line, a, b)| TreeChange::Command(line, a, b)),
    ]
}

/// The whole content of a folder: kinds, permissions, contents, targets.
type Snapshot = BTreeMap<PathBuf, (char, u32, Vec<u8>)>;

fn snapshot(root: &Path) -> Snapshot {
    let (mut found, mut folders) = (Snapshot::new(), vec![root.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            let (kind, content) = if meta.is_symlink() {
                ('l', fs::read_link(&path).unwrap().into_os_string().into_vec())
            } else if meta.is_dir() {
                folders.push(path.clone());
                ('d', Vec::new())
            } else {
                ('f', fs::read(&path).unwrap())
            };
            let mode = if kind == 'l' { 0 } else { meta.mode() & 0o7777 };
            found.insert(path.strip_prefix(root).unwrap().to_owned(), (kind, mode, content));
        }
    }
    found
}

fn options() -> ScanOptions {
    ScanOptions {
        max_file_size: 1 << 20,
        max_total: 1 << 30,
        max_files: 10_000,
        exclude: Vec::new(),
        generated: false,
        own_folders: Vec::new(),
    }
}

/// A workspace whose states are recorded.
struct RecordedWorkspace {
    temp: tempfile::TempDir,
    scanner: WorkspaceScanner,
    store: ContentStore,
    lengths: BTreeMap<Arc<str>, u64>,
}

impl RecordedWorkspace {
    fn new(options: ScanOptions) -> Self {
        let temp = tempfile::tempdir().unwrap();
        fs::create_dir(temp.path().join("work")).unwrap();
        let root = WorkspaceRoot::open(temp.path().join("work")).unwrap();
        let scanner = WorkspaceScanner::new(&root, options).unwrap();
        let folder = temp.path().join("checkpoints");
        let store = ContentStore::open(folder, "own", &BTreeMap::new(), Durability::Os).unwrap();
        Self { temp, scanner, store, lengths: BTreeMap::new() }
    }

    fn path(&self) -> PathBuf {
        self.temp.path().join("work")
    }

    fn record(&mut self) -> ScannedState {
        let state = self.scanner.scan(&self.store, &CancellationToken::new()).unwrap();
        self.lengths = self.store.commit().unwrap();
        state
    }

    fn restore(&mut self, target: &Sha256Digest) -> RestorePlan {
        let now = self.record().tree;
        let own = ChangeInterval { from: *target, to: now, author: ChangeAuthor::Session };
        let plan = self.store.plan_restore(&now, &[own], ForeignChanges::Refuse).unwrap();
        self.store.commit().unwrap();
        let staging = PendingRestore::staging_name();
        let mut restorer = Restorer::new(&mut self.scanner, &self.store, Durability::Os, &staging);
        restorer.restore(&now, &plan.result).unwrap();
        plan
    }
}

fn cases() -> u32 {
    std::env::var("CHECKPOINT_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(48)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    /// Any recorded state is restored exactly, from any other one.
    #[test]
    fn every_recorded_state_is_restored(
        steps in prop::collection::vec(prop::collection::vec(any_change(), 1..8), 1..6),
        jumps in prop::collection::vec(any::<prop::sample::Index>(), 1..6),
    ) {
        let mut world = RecordedWorkspace::new(options());
        let mut states = vec![(world.record().tree, snapshot(&world.path()))];
        for step in &steps {
            step.iter().for_each(|change| change.apply(&world.path()));
            states.push((world.record().tree, snapshot(&world.path())));
        }
        for jump in jumps {
            let (tree, expected) = jump.get(&states);
            let plan = world.restore(tree);
            prop_assert_eq!(&snapshot(&world.path()), expected);
            prop_assert_eq!(plan.result, *tree);
            prop_assert_eq!(world.record().tree, *tree);
        }
    }

    /// A scan with an earlier state finds the same as a scan without one.
    #[test]
    fn a_scan_with_a_cache_finds_the_same(
        before in prop::collection::vec(any_change(), 1..12),
        after in prop::collection::vec(any_change(), 0..6),
    ) {
        let mut world = RecordedWorkspace::new(options());
        before.iter().for_each(|change| change.apply(&world.path()));
        world.record();
        let cache = StatCache::new(world.temp.path(), &world.path(), &options());
        cache.save(&world.scanner, &world.store, &world.lengths);
        after.iter().for_each(|change| change.apply(&world.path()));
        let root = world.scanner.root().clone();
        let folder = world.temp.path().join("other");
        let mut store = ContentStore::open(folder, "other", &BTreeMap::new(), Durability::Os).unwrap();
        let mut scanner = WorkspaceScanner::new(&root, options()).unwrap();
        cache.load(&mut scanner, &mut store);
        let known = scanner.scan(&store, &CancellationToken::new()).unwrap();
        let fresh = world.record();
        prop_assert_eq!(known, fresh);
        store.walk_tree(&known.tree, &mut |_, state| {
            if let PathState::File { hash, .. } = state {
                assert!(store.get(hash).is_ok());
            }
        }).unwrap();
    }
}

#[test]
fn what_is_left_out_is_named_and_stays() {
    let mut world = RecordedWorkspace::new(ScanOptions {
        max_file_size: 10,
        exclude: vec!["*.log".to_owned()],
        ..options()
    });
    let path = world.path();
    for folder in [".git", "node_modules", "d"] {
        fs::create_dir(path.join(folder)).unwrap();
        fs::write(path.join(folder).join("a"), "a").unwrap();
    }
    fs::write(path.join("big"), "more than ten").unwrap();
    fs::write(path.join("x.log"), "log").unwrap();
    assert!(Command::new("mkfifo").arg(path.join("pipe")).status().unwrap().success());
    let state = world.record();
    let mut left_out = Vec::new();
    world
        .store
        .walk_tree(&state.tree, &mut |path, state| {
            if let PathState::LeftOut(skipped) = state {
                left_out.push((path.display().to_string(), skipped.reason));
            }
        })
        .unwrap();
    left_out.sort_by(|a, b| a.0.cmp(&b.0));
    let expected = [
        (".git", SkipReason::Repository),
        ("big", SkipReason::TooLarge),
        ("node_modules", SkipReason::Generated),
        ("pipe", SkipReason::Special),
        ("x.log", SkipReason::Excluded),
    ];
    assert_eq!(left_out, expected.map(|(path, reason)| (path.to_owned(), reason)));
    assert_eq!((state.totals.files, state.totals.left_out), (1, 5));
    for name in ["node_modules/a", "big", "x.log", "d/a"] {
        fs::write(path.join(name), "changed, and long").unwrap();
    }
    let plan = world.restore(&state.tree);
    assert_eq!(fs::read_to_string(path.join("node_modules/a")).unwrap(), "changed, and long");
    assert_eq!(fs::read_to_string(path.join("d/a")).unwrap(), "changed, and long");
    let paths: Vec<_> = plan.unrestorable.iter().map(|it| it.path.to_str().unwrap()).collect();
    assert_eq!(paths, ["big", "d/a", "x.log"]);
}

#[test]
fn what_killed_edits_have_left_is_removed() {
    let mut world = RecordedWorkspace::new(options());
    let name = format!(".architect-{}.tmp", "0a".repeat(16));
    let paths = [name.as_str(), ".architect-other.tmp"].map(|name| world.path().join(name));
    paths.iter().for_each(|path| fs::write(path, "x").unwrap());
    world.record();
    assert!(paths[0].exists());
    std::thread::sleep(std::time::Duration::from_millis(20));
    world.scanner.leftover_age = std::time::Duration::ZERO;
    world.record();
    assert_eq!(paths.map(|path| path.exists()), [false, true]);
}

#[test]
fn a_session_stores_no_more_than_it_may() {
    let mut world = RecordedWorkspace::new(ScanOptions { max_total: 500, ..options() });
    fs::write(world.path().join("small"), "small").unwrap();
    fs::write(world.path().join("large"), [7; 600]).unwrap();
    let tree = world.record().tree;
    let state = world.store.state_of(&tree, Path::new("large")).unwrap();
    let is_over =
        |it: &PathState| matches!(it, PathState::LeftOut(it) if it.reason == SkipReason::OverTotal);
    assert!(state.as_ref().is_some_and(is_over), "{state:?}");
    let state = world.store.state_of(&tree, Path::new("small")).unwrap().unwrap();
    assert!(!matches!(state, PathState::LeftOut(_)), "{state:?}");
}

#[test]
fn a_second_scan_reads_nothing_and_stores_nothing() {
    let mut world = RecordedWorkspace::new(options());
    for name in 0..100 {
        fs::write(world.path().join(name.to_string()), name.to_string()).unwrap();
    }
    let first = world.record();
    let lengths = world.lengths.clone();
    std::thread::sleep(std::time::Duration::from_millis(60));
    assert_eq!((world.record(), &world.lengths), (first, &lengths));
}

/// A restore that fails at any point leaves the files as they were.
#[test]
fn a_restore_that_fails_changes_nothing() {
    let mut world = RecordedWorkspace::new(options());
    fs::write(world.path().join("a"), "old").unwrap();
    fs::create_dir(world.path().join("d")).unwrap();
    let old = world.record().tree;
    fs::write(world.path().join("a"), "new").unwrap();
    fs::remove_dir(world.path().join("d")).unwrap();
    fs::write(world.path().join("z"), "new").unwrap();
    let new = world.record().tree;
    // Someone puts a folder in the place of a file that the restore removes.
    fs::remove_file(world.path().join("z")).unwrap();
    fs::create_dir(world.path().join("z")).unwrap();
    let before = snapshot(&world.path());
    let staging = PendingRestore::staging_name();
    let mut restorer = Restorer::new(&mut world.scanner, &world.store, Durability::Os, &staging);
    assert!(restorer.restore(&new, &old).is_err());
    assert_eq!(snapshot(&world.path()), before);
}

#[test]
fn a_file_that_is_saved_during_a_restore_is_kept() {
    let mut world = RecordedWorkspace::new(options());
    let write = |path: &Path, text: &str| fs::write(path, text).unwrap();
    let [a, b, c] = ["a", "b", "c"].map(|name| world.path().join(name));
    write(&a, "old");
    let old = world.record().tree;
    [&a, &b, &c].into_iter().for_each(|path| write(path, "new"));
    let new = world.record().tree;
    [&a, &b].into_iter().for_each(|path| write(path, "mine"));
    let staging = PendingRestore::staging_name();
    let mut restorer = Restorer::new(&mut world.scanner, &world.store, Durability::Os, &staging);
    restorer.restore(&new, &old).unwrap();
    assert_eq!(restorer.kept(), ["a.before-undo-1", "b.before-undo-1"].map(Path::new));
    for name in ["a.before-undo-1", "b.before-undo-1"] {
        assert_eq!(fs::read(world.path().join(name)).unwrap(), b"mine");
    }
    assert_eq!(fs::read(&a).unwrap(), b"old");
    assert!(!b.exists() && !c.exists());
    // A killed restore has left a file.
    let folder = world.path().join(&staging);
    fs::create_dir(&folder).unwrap();
    write(&folder.join(Sha256Digest::of(b"a").to_string()), "mine too");
    let mut restorer = Restorer::new(&mut world.scanner, &world.store, Durability::Os, &staging);
    assert!(restorer.complete(&new, &old).unwrap().is_empty());
    assert_eq!(fs::read(world.path().join("a.before-undo-2")).unwrap(), b"mine too");
    assert!(!folder.exists());
}

#[test]
fn a_restore_is_completed_between_a_removed_link_and_a_folder() {
    let mut world = RecordedWorkspace::new(options());
    let at = world.path();
    fs::create_dir_all(at.join("sub")).unwrap();
    fs::write(at.join("sub/f"), "f").unwrap();
    let old = world.record().tree;
    let before = snapshot(&at);
    fs::rename(at.join("sub"), at.join("sub2")).unwrap();
    symlink("sub2", at.join("sub")).unwrap();
    let new = world.record().tree;
    fs::remove_file(at.join("sub")).unwrap();
    let staging = PendingRestore::staging_name();
    let mut restorer = Restorer::new(&mut world.scanner, &world.store, Durability::Os, &staging);
    assert!(restorer.complete(&new, &old).unwrap().is_empty());
    assert_eq!(snapshot(&at), before);
}

/// Entries that others put in the way of an interrupted restore don't block the rest of it.
#[test]
fn a_restore_is_completed_around_the_files_of_others() {
    let mut world = RecordedWorkspace::new(options());
    let at = world.path();
    fs::create_dir_all(at.join("d")).unwrap();
    fs::write(at.join("d/x"), "x").unwrap();
    fs::write(at.join("a"), "old").unwrap();
    let old = world.record().tree;
    fs::remove_dir_all(at.join("d")).unwrap();
    fs::create_dir_all(at.join("e")).unwrap();
    fs::write(at.join("a"), "new").unwrap();
    let new = world.record().tree;
    fs::write(at.join("d"), "theirs").unwrap();
    fs::write(at.join("e/theirs"), "theirs").unwrap();
    let staging = PendingRestore::staging_name();
    let mut restorer = Restorer::new(&mut world.scanner, &world.store, Durability::Os, &staging);
    let mut left = restorer.complete(&new, &old).unwrap();
    left.sort();
    assert_eq!(left, ["d", "d/x", "e"].map(PathBuf::from));
    assert_eq!(fs::read(at.join("a")).unwrap(), b"old");
}

#[test]
fn too_many_files_are_an_error() {
    let mut world = RecordedWorkspace::new(ScanOptions { max_files: 3, ..options() });
    for name in ["a", "b", "c", "d"] {
        fs::write(world.path().join(name), name).unwrap();
    }
    let scanned = world.scanner.scan(&world.store, &CancellationToken::new());
    assert!(matches!(scanned, Err(CheckpointError::TooManyFiles(3))));
}

/// A file that is gone, and that could not be read before, has a note instead of a patch.
#[test]
fn the_patch_of_a_removed_file_that_could_not_be_read_is_empty() {
    let mut world = RecordedWorkspace::new(options());
    let path = world.path().join("secret");
    fs::write(&path, "secret\n").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o000)).unwrap();
    let can_read = fs::read(&path).is_ok();
    let before = world.record().tree;
    fs::remove_file(&path).unwrap();
    let after = world.record().tree;
    let mut changes = world.store.changes(&before, &after).unwrap();
    let [change] = &mut changes[..] else { panic!("{changes:?}") };
    if can_read {
        // As root, use the result of a scan as another user:
        let unreadable = SkippedEntry { reason: SkipReason::Unreadable, size: 7, modified: 1 };
        change.before = Some(PathState::LeftOut(unreadable));
    }
    let patch = world.store.patch(change).unwrap();
    assert_eq!((patch.text, patch.added, patch.removed), (Vec::new(), 0, 0));
    assert_eq!(patch.note.as_deref(), Some("not recorded: it can't be read"));
}
