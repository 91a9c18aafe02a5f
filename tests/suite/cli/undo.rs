//! Changes of a session are recorded, shown and undone.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::kit::chat;
use crate::kit::cli::{CliFixture, wait_until};
use crate::kit::server::Server;

/// Three steps: a tool's edit, commands, and tools again.
pub(super) const SCRIPT: &str = r#"
[[turn]]
calls = [{ name = "write_file", arguments = { path = "new.txt", content = "new\n" } }]

[[turn]]
calls = [{ name = "run_command", arguments = { command = "mkdir -p empty/e; ln -sf old.txt link; chmod 755 old.txt; rm gone.txt; printf 'a\\0b' > bin; mv moved.txt d/moved.txt; echo built > ignored.o" } }]

[[turn]]
calls = [{ name = "edit_file", arguments = { path = "old.txt", old_str = "old", new_str = "edited" } }]

[[turn]]
text = "Done."
"#;

/// Everything in a folder: kinds, permissions, contents, targets.
pub(super) type Snapshot = BTreeMap<PathBuf, (char, u32, Vec<u8>)>;

pub(super) fn snapshot(root: &Path) -> Snapshot {
    let (mut found, mut folders) = (Snapshot::new(), vec![root.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            let (kind, content) = if meta.is_symlink() {
                ('l', fs::read_link(&path).unwrap().to_str().unwrap().into())
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

/// Returns a workspace, a snapshot of it, and one after a run.
pub(super) fn changed_workspace() -> (CliFixture, Snapshot, Snapshot) {
    let world = CliFixture::new();
    world.write("old.txt", "one\nold\nthree\n").write("gone.txt", "gone\n");
    world.write("moved.txt", "moved\n").write("d/x", "x").write(".gitignore", "*.o\n");
    world.write("gone/deep/secret", "s");
    fs::set_permissions(world.path("d/x"), Permissions::from_mode(0o600)).unwrap();
    symlink("nowhere", world.path("dangling")).unwrap();
    let before = snapshot(&world.path(""));
    let ran = world.run_script(SCRIPT, &["--mode", "yolo", "--json"]);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    let after = snapshot(&world.path(""));
    assert_ne!(before, after);
    (world, before, after)
}

/// The command writes while nothing else of the run works.
#[test]
fn what_a_command_in_the_background_writes_is_taken_back() {
    let (world, text) = (CliFixture::new(), "delay_ms = 1500\ntext = \"Done.\"\n");
    world.write("log", "zero\n");
    let command = "sleep 0.5; echo one >> log; echo new > n; sleep 0.2";
    let script = format!(
        "[[turn]]\ncalls = [{{ name = \"run_command\", arguments = {{ command = \"{command}\", background = true }} }}]\n\
         [[turn]]\n{text}"
    );
    let ran = world.run_script(&script, &["--mode", "yolo"]);
    assert_eq!((ran.code, &*world.read("log")), (0, "zero\none\n"), "{}", ran.err);
    let undone = world.run(&["undo", "--start", "--yes"]);
    assert_eq!((undone.code, &*world.read("log")), (0, "zero\n"), "{}{}", undone.out, undone.err);
    assert!(!world.path("n").exists());
}

#[test]
fn a_report_shows_what_each_step_changed() {
    let world = CliFixture::new();
    world.write("old.txt", "one\nold\nthree\n");
    for (name, pieces) in [
        ("r.md", ["Step 1: `new.txt` +1 −0", "+new", "Step 3: `old.txt` +1 −1", "-old\n+edited"]),
        ("r.html", ["<code>new.txt</code>", "+new", "-old\n", r#"<span class="ins">+edited"#]),
        ("r.json", [r#""step":1,"path":"new.txt""#, "+new", r#""step":3"#, r"-old\n+edited"]),
    ] {
        world.write("old.txt", "one\nold\nthree\n");
        let report = world.home().join(name);
        let report_option = report.to_str().unwrap();
        let ran = world.run_script(SCRIPT, &["--mode", "yolo", "--report-file", report_option]);
        assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
        let report = fs::read_to_string(report).unwrap();
        for piece in pieces {
            assert!(report.contains(piece), "{name}: {piece} is not in {report}");
        }
        fs::remove_file(world.path("new.txt")).unwrap();
    }
}

#[test]
fn everything_is_taken_back_and_that_too() {
    let (world, before, after) = changed_workspace();
    let undone = world.run(&["undo", "--start", "--yes"]);
    assert_eq!(undone.code, 0, "{}{}", undone.out, undone.err);
    assert_eq!(snapshot(&world.path("")), before);
    for expected in [&after, &before, &after] {
        let undone = world.run(&["undo", "--yes"]);
        assert_eq!(undone.code, 0, "{}{}", undone.out, undone.err);
        assert_eq!(&snapshot(&world.path("")), expected);
    }
    let verified = world.run(&["replay", "last", "--verify"]);
    assert_eq!(verified.code, 0, "{}{}", verified.out, verified.err);
}

#[test]
fn an_undo_goes_to_before_the_last_change_or_any_step() {
    let (world, before, after) = changed_workspace();
    assert_eq!(world.run(&["undo", "--yes"]).code, 0);
    assert_eq!(world.read("old.txt"), "one\nold\nthree\n");
    assert_eq!(world.read("new.txt"), "new\n");
    assert!(world.path("empty/e").is_dir());
    assert_eq!(world.run(&["undo", "last", "--step", "2", "--yes"]).code, 0);
    assert!(world.path("new.txt").exists() && !world.path("empty").exists());
    assert_eq!(world.run(&["undo", "--step", "1", "--yes"]).code, 0);
    assert_eq!(snapshot(&world.path("")), before);
    for only in ["files", "conversation"] {
        let none = world.run(&["undo", "--to", "1000", "--yes", "--only", only]);
        assert!(none.code == 3 && none.err.contains("no record 1000; its last"), "{}", none.err);
    }
    assert_eq!(world.run(&["undo", "--step", "9", "--yes"]).code, 3);
    assert_eq!(world.run(&["undo", "--to", "0", "--yes"]).code, 0);
    assert_eq!(snapshot(&world.path("")), before);
    let _ = after;
}

/// Three steps in one process edit the same files: the first with two calls at once, and with each tool.
#[test]
fn consecutive_edits_of_a_file_are_taken_back() {
    let world = CliFixture::new();
    world.write("a", "over\n").write("b", "over\n");
    let script = r#"
        [[turn]]
        calls = [
            { name = "edit_file", arguments = { path = "a", old_str = "over", new_str = "A" } },
            { name = "write_file", arguments = { path = "b", content = "A\n" } },
        ]
        [[turn]]
        calls = [
            { name = "write_file", arguments = { path = "b", content = "B\n" } },
            { name = "edit_file", arguments = { path = "a", old_str = "A", new_str = "B" } },
        ]
        [[turn]]
        calls = [{ name = "apply_patch", arguments = { patch = "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-B\n+C\n--- a/b\n+++ b/b\n@@ -1 +1 @@\n-B\n+over\n" } }]
        [[turn]]
        text = "Done."
    "#;
    let files = |world: &CliFixture| world.read("a") + &world.read("b");
    for (target, expected) in [
        (&["--start"][..], "over\nover\n"),
        (&["--step", "2"], "A\nA\n"),
        (&["--step", "3"], "B\nB\n"),
        (&[], "B\nB\n"),
    ] {
        world.write("a", "over\n").write("b", "over\n");
        let ran = world.run_script(script, &["--mode", "yolo", "--json"]);
        assert_eq!((ran.code, &*files(&world)), (0, "C\nover\n"), "{}{}", ran.out, ran.err);
        let undone = world.run(&[&["undo", "last", "--yes"], target].concat());
        assert_eq!((undone.code, &*files(&world)), (0, expected), "{target:?}: {}", undone.err);
    }
}

/// Names with characters that change the display, and one that is not UTF-8.
#[test]
fn edits_of_files_with_odd_names_are_shown_and_taken_back() {
    let world = CliFixture::new();
    let names = ["new\nline", "esc\u{1b}[1m", "tab\t", "back\\slash", "bidi\u{202e}", "plain"];
    let raw = OsStr::from_bytes(b"raw\xff");
    let folder = world.path("");
    let paths = || names.iter().map(OsStr::new).chain([raw]).map(|name| folder.join(name));
    paths().for_each(|path| fs::write(path, "old\n").unwrap());
    let before = snapshot(&folder);
    // The model knows a name that is not text by its display.
    let calls = names.iter().copied().chain([r"raw\xff"]).map(|name| {
        let name = serde_json::to_string(name).unwrap();
        format!("{{ name = \"edit_file\", arguments = {{ path = {name}, old_str = \"old\", new_str = \"new\" }} }}")
    });
    let calls = calls.collect::<Vec<_>>().join(", ");
    let script = format!("[[turn]]\ncalls = [{calls}]\n[[turn]]\ntext = \"Done.\"\n");
    let report = world.home().join("r.json");
    let options = ["--mode", "yolo", "--json", "--report-file", report.to_str().unwrap()];
    let ran = world.run_script(&script, &options);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    assert!(paths().all(|path| fs::read(path).unwrap() == b"new\n"), "{}", ran.out);
    let mut expected: Vec<String> = names.map(str::to_owned).into();
    expected.push("\u{0}726177ff".to_owned());
    expected.sort();
    let report: serde_json::Value = serde_json::from_slice(&fs::read(report).unwrap()).unwrap();
    let shown = [
        ran.json()["files_modified"].clone(),
        world.run(&["diff", "last", "--json"]).json(),
        report["changes"].clone(),
    ];
    for value in &shown {
        let files = value.as_array().unwrap().iter();
        let mut paths: Vec<_> = files.map(|file| file["path"].as_str().unwrap()).collect();
        paths.sort_unstable();
        assert_eq!(paths, expected, "{value}");
    }
    let undone = world.run(&["undo", "--start", "--yes"]);
    assert_eq!(undone.code, 0, "{}", undone.err);
    assert_eq!(snapshot(&folder), before, "{}", undone.out);
}

#[test]
fn edits_through_linked_folders_are_taken_back() {
    let world = CliFixture::new();
    world.write("d/a", "old\n");
    symlink("d", world.path("link")).unwrap();
    let before = snapshot(&world.path(""));
    let script = r#"
        [[turn]]
        calls = [
            { name = "edit_file", arguments = { path = "link/a", old_str = "old", new_str = "new" } },
            { name = "write_file", arguments = { path = "link/n/b", content = "new\n" } },
        ]
        [[turn]]
        text = "Done."
    "#;
    let ran = world.run_script(script, &["--mode", "yolo", "--json"]);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    assert_eq!(world.read("d/a") + &world.read("d/n/b"), "new\nnew\n");
    let undone = world.run(&["undo", "--start", "--yes"]);
    assert_eq!(undone.code, 0, "{}", undone.err);
    assert_eq!(snapshot(&world.path("")), before);
}

#[test]
fn a_copy_of_a_file_with_a_long_name_is_kept() {
    let world = CliFixture::new();
    let (name, copy) = ("n".repeat(255), "n".repeat(241) + ".before-undo-1");
    world.write(&name, "old\n");
    let script = format!(
        "[[turn]]\ncalls = [{{ name = \"write_file\", arguments = {{ path = \"{name}\", content = \"new\\n\" }} }}]\n[[turn]]\ntext = \"Done.\"\n"
    );
    assert_eq!(world.run_script(&script, &["--mode", "yolo"]).code, 0);
    world.write(&name, "mine\n");
    let undone = world.run(&["undo", "--yes", "--force"]);
    assert_eq!(undone.code, 0, "{}", undone.err);
    assert_eq!((world.read(&name), world.read(&copy)), ("old\n".into(), "mine\n".into()));
}

#[test]
fn without_a_terminal_the_diff_is_shown_and_nothing_changes() {
    let (world, _, after) = changed_workspace();
    let refused = world.run(&["undo"]);
    assert_eq!(refused.code, 3, "{}", refused.err);
    assert!(refused.out.contains("-edited") && refused.out.contains("+old"), "{}", refused.out);
    assert!(refused.err.contains("--yes"), "{}", refused.err);
    assert_eq!(snapshot(&world.path("")), after);
}

#[test]
fn what_someone_else_changed_is_refused_unless_a_copy_is_kept() {
    let (world, _, _) = changed_workspace();
    world.write("old.txt", "mine\n").write("other.txt", "mine\n");
    let refused = world.run(&["undo", "--yes"]);
    assert_eq!(refused.code, 1, "{}", refused.err);
    assert!(
        refused.err.contains("old.txt") && !refused.err.contains("other.txt"),
        "{}",
        refused.err
    );
    assert_eq!(world.read("old.txt"), "mine\n");
    let forced = world.run(&["undo", "--yes", "--force"]);
    assert_eq!(forced.code, 0, "{}", forced.err);
    assert!(forced.err.contains("old.txt.before-undo-1"), "{}", forced.err);
    assert_eq!(world.read("old.txt.before-undo-1"), "mine\n");
    assert_eq!(
        (world.read("old.txt"), world.read("other.txt")),
        ("one\nold\nthree\n".into(), "mine\n".into())
    );
}

/// Changes of the user between a run and an undo are not the session's.
#[test]
fn an_undo_after_another_one_leaves_the_changes_of_others() {
    let (world, before, _) = changed_workspace();
    world.write("other.txt", "mine\n").write("gone/deep/secret", "mine\n");
    assert_eq!(world.run(&["undo", "--yes"]).code, 0);
    let undone = world.run(&["undo", "--start", "--yes"]);
    assert_eq!(undone.code, 0, "{}", undone.err);
    assert_eq!(world.read("other.txt") + &world.read("gone/deep/secret"), "mine\nmine\n");
    let mut now = snapshot(&world.path(""));
    now.remove(Path::new("other.txt"));
    let secret = PathBuf::from("gone/deep/secret");
    now.insert(secret.clone(), before[&secret].clone());
    assert_eq!(now, before);
}

fn git(folder: &Path, args: &[&str], input: &[u8]) -> bool {
    let mut git = Command::new("git");
    git.args(args).current_dir(folder).env("GIT_CEILING_DIRECTORIES", folder.parent().unwrap());
    let Ok(mut child) = git.stdin(Stdio::piped()).spawn() else { return false };
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), input).unwrap();
    child.wait().unwrap().success()
}

#[test]
fn the_diff_of_a_session_applies_with_git() {
    let (world, before, after) = changed_workspace();
    let output = world.command(&["diff", "last"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    if !git(&world.path(""), &["--version"], b"") {
        return println!("skipped: there is no git");
    }
    assert_eq!(world.run(&["undo", "--start", "--yes"]).code, 0);
    assert_eq!(snapshot(&world.path("")), before);
    let patch = &output.stdout;
    assert!(git(&world.path(""), &["apply"], patch), "{}", String::from_utf8_lossy(patch));
    // Git knows neither empty folders nor all permissions.
    let files = |tree: &Snapshot| -> Vec<(PathBuf, char, bool, Vec<u8>)> {
        let files = tree.iter().filter(|(_, (kind, ..))| *kind != 'd');
        files
            .map(|(path, (kind, mode, text))| {
                (path.clone(), *kind, mode & 0o100 != 0, text.clone())
            })
            .collect()
    };
    assert_eq!(files(&snapshot(&world.path(""))), files(&after));
    assert!(git(&world.path(""), &["apply", "-R"], patch));
    assert_eq!(files(&snapshot(&world.path(""))), files(&before));
}

#[test]
fn a_part_of_a_session_is_shown_between_two_records() {
    let (world, _, _) = changed_workspace();
    let all = world.run(&["diff", "last", "0.."]);
    assert!(all.out.contains("new.txt") && all.out.contains("old.txt"), "{}", all.out);
    let nothing = world.run(&["diff", "last", "0..1"]);
    assert_eq!((nothing.code, &*nothing.out), (0, ""));
    assert_eq!(world.run(&["diff", "last", "x"]).code, 3);
    assert_eq!(world.run(&["diff", "last", "0..1000"]).code, 3);
}

#[test]
fn a_run_that_changes_nothing_stores_nothing() {
    let world = CliFixture::new();
    world.write("a", "a");
    let script = r#"
        [[turn]]
        calls = [{ name = "read_file", arguments = { path = "a" } }]
        [[turn]]
        calls = [{ name = "list_files", arguments = {} }]
        [[turn]]
        calls = [{ name = "run_command", arguments = { command = "cat a | wc -l && ls -la" } }]
        [[turn]]
        text = "Done."
    "#;
    let ran = world.run_script(script, &["--mode", "yolo"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let sessions = world.home().join(".local/state/architect/sessions");
    for entry in fs::read_dir(sessions).unwrap() {
        assert!(!entry.unwrap().path().join("checkpoints").exists());
    }
    let undone = world.run(&["undo", "--yes"]);
    assert!(undone.code == 0 && undone.err.contains("changed no files"), "{}", undone.err);
    let diff = world.run(&["diff", "last", "--json"]);
    assert_eq!((diff.code, diff.out.trim()), (0, "[]"));
}

#[test]
fn what_is_not_recorded_is_listed() {
    let world = CliFixture::new();
    world.write("node_modules/m/i.js", "old").write("big", &"x".repeat(99));
    world.write("old.txt", "old").write("gone.txt", "").write("moved.txt", "").write("d/x", "");
    let set = ["--mode", "yolo", "--set", "checkpoints.max_file_size=9"];
    assert_eq!(world.run_script(SCRIPT, &set).code, 0);
    let undone = world.run(&["undo", "--yes", "--set", "checkpoints.max_file_size=9"]);
    assert_eq!(undone.code, 0, "{}", undone.err);
    for line in ["  big: larger than", "  node_modules: a folder of dependencies"] {
        assert!(undone.err.contains(line), "{}", undone.err);
    }
}

/// A file that is now too large, and one that is now a pipe, block the undo of all others.
#[test]
fn what_cannot_be_restored_is_listed_and_refused() {
    let world = CliFixture::new();
    world.write("large", "old").write("pipe", "old").write("a", "old");
    let write = |name: &str| {
        format!(
            "{{ name = \"write_file\", arguments = {{ path = \"{name}\", content = \"new\" }} }}"
        )
    };
    let calls = ["large", "pipe", "a"].map(write).join(", ");
    let script = format!("[[turn]]\ncalls = [{calls}]\n[[turn]]\ntext = \"Done.\"\n");
    assert_eq!(world.run_script(&script, &["--mode", "yolo"]).code, 0);
    world.write("large", "much larger");
    fs::remove_file(world.path("pipe")).unwrap();
    assert!(Command::new("mkfifo").arg(world.path("pipe")).status().unwrap().success());
    let undo = ["undo", "--start", "--yes", "--set", "checkpoints.max_file_size=9"];
    let refused = world.run(&undo);
    assert!(refused.code == 1 && world.read("a") == "new", "{}", refused.err);
    for part in ["2 paths can't be", "  large: not replaced", "  pipe: not replaced"] {
        assert!(refused.err.contains(part), "{part}: {}", refused.err);
    }
    let forced = world.run(&[&undo[..], &["--force"]].concat());
    assert!(forced.code == 2 && forced.err.contains("  large: not replaced"), "{}", forced.err);
    assert_eq!((world.read("a"), world.read("large")), ("old".into(), "much larger".into()));
}

/// The user saves files while only tools have worked, and during a model call after a command.
#[test]
fn what_the_user_changes_during_a_run_is_not_the_runs() {
    let world = CliFixture::new();
    world.write("old.txt", "old\n");
    let (folder, state) = (world.path(""), world.home().join(".local/state/architect/sessions"));
    let has_ended = move |step: &str| {
        let journals = fs::read_dir(&state).into_iter().flatten().flatten();
        let mut texts = journals.filter_map(|entry| fs::read_to_string(entry.path()).ok());
        texts.any(|text| text.contains(step))
    };
    let server = Server::with_handler(move |request| {
        let body = request.json();
        let sent = body["messages"].as_array().unwrap().iter();
        let save = |name: &str| fs::write(folder.join(name), "mine\n").unwrap();
        match sent.filter(|message| message["role"] == "assistant").count() {
            0 => chat::calls(&[("a", "write_file", r#"{"path":"tool.txt","content":"tool"}"#)]),
            1 => {
                ["old.txt", "first.txt"].into_iter().for_each(save);
                chat::calls(&[("b", "run_command", r#"{"command":"echo made > made.txt"}"#)])
            }
            _ => {
                wait_until("the step is over", || has_ended("step_end"));
                save("second.txt");
                chat::text("Done.")
            }
        }
    });
    let before = snapshot(&world.path(""));
    let ran = world.run_with_server(&server, &["--mode", "yolo"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let diff = world.run(&["diff", "last"]).out;
    assert!(diff.contains("tool.txt") && diff.contains("made.txt"), "{diff}");
    assert!(!diff.contains("mine"), "{diff}");
    let undone = world.run(&["undo", "--start", "--yes"]);
    assert_eq!(undone.code, 0, "{}", undone.err);
    for name in ["old.txt", "first.txt", "second.txt"] {
        assert_eq!(world.read(name), "mine\n");
        fs::remove_file(world.path(name)).unwrap();
    }
    world.write("old.txt", "old\n");
    assert_eq!(snapshot(&world.path("")), before);
}

#[test]
fn checkpoints_can_be_turned_off() {
    let world = CliFixture::new();
    let off = ["--mode", "yolo", "--set", "checkpoints.enabled=false"];
    world.write("old.txt", "old").write("gone.txt", "").write("moved.txt", "").write("d/x", "");
    assert_eq!(world.run_script(SCRIPT, &off).code, 0);
    let undone = world.run(&["undo", "--yes"]);
    assert!(undone.code == 3 && undone.err.contains("no recorded states"), "{}", undone.err);
    assert!(undone.err.contains("checkpoints.enabled"), "{}", undone.err);
}

#[test]
fn the_model_learns_of_an_undo_when_the_session_is_resumed() {
    let (world, _, _) = changed_workspace();
    assert_eq!(world.run(&["undo", "--yes"]).code, 0);
    let script = format!("{SCRIPT}\n[[turn]]\ntext = \"Again.\"\n");
    world.script_model(&script);
    let resumed = world.run(&["resume", "last", "Go on.", "--json"]);
    assert_eq!(resumed.code, 0, "{}{}", resumed.out, resumed.err);
    let shown = world.run(&["sessions", "show", "last"]).out;
    assert!(shown.contains("The user has taken back changes"), "{shown}");
}

#[test]
fn a_conversation_is_rewound_without_its_files() {
    let (world, _, after) = changed_workspace();
    let rewound = world.run(&["undo", "--only", "conversation", "--step", "2"]);
    assert_eq!(rewound.code, 0, "{}", rewound.err);
    let shown = world.run(&["sessions", "show", rewound.out.trim()]).out;
    assert!(shown.contains("write_file") && !shown.contains("run_command"), "{shown}");
    assert_eq!(snapshot(&world.path("")), after);
}

#[test]
fn a_fork_begins_with_the_files_of_its_record() {
    let (world, _, after) = changed_workspace();
    let rewound = world.run(&["undo", "--only", "conversation", "--step", "2"]);
    let note = rewound.err.split("up to record ").nth(1).unwrap();
    let seq = note.split(';').next().unwrap();
    let session = note.split("; ").nth(1).unwrap().split(" stays").next().unwrap();
    let forked = world.run(&["fork", &format!("{session}@{seq}"), "--files", "--only"]);
    assert_eq!(forked.code, 0, "{}", forked.err);
    let folder = forked.err.split(": ").nth(1).unwrap().split(".\n").next().unwrap();
    let folder = Path::new(folder.split(". ").next().unwrap());
    assert_eq!(fs::read_to_string(folder.join("new.txt")).unwrap(), "new\n");
    assert!(!folder.join("empty").exists() && folder.join("gone.txt").exists());
    assert_eq!(fs::metadata(folder.join("d/x")).unwrap().mode() & 0o777, 0o600);
    assert_eq!(snapshot(&world.path("")), after);
    let plain = world.run(&["fork", &format!("{session}@{seq}"), "--json"]);
    assert!(plain.err.contains("The files are the current ones"), "{}", plain.err);
}

/// Pseudo-random numbers, the same for the same seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % most
    }

    fn choose<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }

    /// Returns a call of a tool that changes a file, or tries to.
    fn call(&mut self) -> String {
        let [a, b] = [(); 2].map(|()| self.choose(&["a", "b", "d/x", "d/e/y", "n", "n/m", "l"]));
        let text = self.below(9);
        let command = self.choose(&[
            "mv -f A B",
            "cp -a A B",
            "ln -sfn A B",
            "rm -rf A",
            "chmod 700 A",
            "mkdir -p A/B",
            "echo T >> A",
            "ln -f A B",
            "rm -rf d; echo T > d",
            "mkdir -p d/e; printf 'T\\0' > d/e/z; chmod 755 d/e/z",
        ]);
        let command = command.replace('A', a).replace('B', b).replace('T', &text.to_string());
        match self.below(3) {
            0 => format!(
                "name = \"write_file\", arguments = {{ path = \"{a}\", content = \"{text}\\n\" }}"
            ),
            _ => format!(
                "name = \"run_command\", arguments = {{ command = \"{}\" }}",
                command.replace('\\', "\\\\")
            ),
        }
    }
}

fn cases() -> u64 {
    std::env::var("CHECKPOINT_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(4)
}

/// Runs random steps, undoes to random ones, and undoes the undos.
fn undo_at_random(seed: u64) {
    let (mut numbers, world) = (Numbers(seed), CliFixture::new());
    world.write("a", "a\n").write("d/x", "x\n");
    let (mut script, mut states) = (String::new(), vec![snapshot(&world.path(""))]);
    for step in 0..2 + numbers.below(4) {
        script +=
            &format!("[[turn]]\ncalls = [{{ {} }}]\n[[turn]]\ntext = \"Done.\"\n", numbers.call());
        let ran = if step == 0 {
            world.run_script(&script, &["--mode", "yolo", "--json"])
        } else {
            world.script_model(&script);
            world.run(&["resume", "last", "More.", "--json"])
        };
        assert_eq!(ran.code, 0, "{script}{}{}", ran.out, ran.err);
        states.push(snapshot(&world.path("")));
    }
    let mut changes: Vec<(Snapshot, Snapshot)> =
        states.windows(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
    for _ in 0..6 {
        let now = snapshot(&world.path(""));
        let step = numbers.below(states.len() - 1);
        let (args, target) = match numbers.below(4) {
            0 => (vec!["--start".to_owned()], Some(&states[0])),
            1 => (vec!["--step".to_owned(), (step + 1).to_string()], Some(&states[step])),
            _ => (Vec::new(), changes.iter().rev().find(|(a, b)| a != b).map(|(a, _)| a)),
        };
        let target = target.unwrap_or(&now).clone();
        let args: Vec<&str> =
            ["undo", "--yes"].into_iter().chain(args.iter().map(String::as_str)).collect();
        let undone = world.run(&args);
        assert_eq!(undone.code, 0, "{seed}: {script}{args:?}: {}{}", undone.out, undone.err);
        assert_eq!(snapshot(&world.path("")), target, "{seed}: {script}{args:?}: {}", undone.err);
        changes.push((now, target));
    }
    let verified = world.run(&["replay", "last", "--verify"]);
    assert_eq!(verified.code, 0, "{seed}: {}{}", verified.out, verified.err);
}

/// `CHECKPOINT_CASES` sets the number of sessions.
#[test]
fn every_step_of_a_random_session_is_taken_back_and_that_too() {
    (1..=cases()).for_each(undo_at_random);
}

/// The step changed nothing, but the undo still goes back to the state before it.
#[test]
fn a_step_that_changed_nothing_is_undone_to_the_state_before_it() {
    let world = CliFixture::new();
    world.write("a", "a\n");
    let write = |path: &str| {
        format!(
            "[[turn]]\ncalls = [{{ name = \"write_file\", arguments = {{ path = \"{path}\", content = \"1\" }} }}]\n"
        )
    };
    let script = format!("{}{}[[turn]]\ntext = \"Done.\"\n", write("b"), write("a/x"));
    assert_eq!(world.run_script(&script, &["--mode", "yolo"]).code, 0);
    for (target, is_there) in [(&["--start"][..], false), (&["--step", "2"], true)] {
        let undone = world.run(&[&["undo", "--yes"], target].concat());
        assert_eq!((undone.code, world.path("b").exists()), (0, is_there), "{}", undone.err);
    }
}

/// After a kill in a step, the state before that step is available.
#[test]
fn the_step_of_a_killed_run_is_taken_back() {
    let world = CliFixture::new();
    world.write("a", "old");
    let script = r#"
        [[turn]]
        calls = [{ name = "run_command", arguments = { command = "echo new > a; touch b; sleep 60" } }]
    "#;
    let model = world.script_model(script);
    let run = ["run", "Do it.", "--model", &model, "--mode", "yolo"];
    let mut child = world.command(&run).spawn().unwrap();
    wait_until("the command has changed the file", || world.path("b").exists());
    let refused = world.run(&["undo", "--yes"]);
    assert_eq!(refused.code, 1, "{}", refused.err);
    child.kill().unwrap();
    child.wait().unwrap();
    let undone = world.run(&["undo", "--yes"]);
    assert_eq!(undone.code, 0, "{}", undone.err);
    assert_eq!((world.read("a"), world.path("b").exists()), ("old".to_owned(), false));
    assert_eq!(world.run(&["undo", "--yes"]).code, 0);
    assert_eq!(world.read("a"), "new\n");
}

/// A session whose run was killed in its second command, in a workspace with these files: `once`, `late`, `b`. `rest`
/// is the script for a resume.
fn killed_session(rest: &str) -> CliFixture {
    let world = CliFixture::new();
    let script = format!(
        r#"
        [[turn]]
        calls = [{{ name = "run_command", arguments = {{ command = "echo once > once" }} }}]
        [[turn]]
        calls = [{{ name = "run_command", arguments = {{ command = "echo late > late; touch b; sleep 60" }} }}]
        {rest}
        "#
    );
    let model = world.script_model(&script);
    let run = ["run", "Do it.", "--model", &model, "--mode", "yolo"];
    let mut child = world.command(&run).spawn().unwrap();
    wait_until("the command has changed the file", || world.path("b").exists());
    child.kill().unwrap();
    child.wait().unwrap();
    world
}

/// Changes of the user after the resumed session has ended are not undone, whatever the resumed run did.
#[test]
fn changes_after_a_killed_run_was_resumed_are_the_users() {
    const ANSWER: &str = "\n[[turn]]\ntext = \"Done.\"\n";
    let call = |call: &str| format!("[[turn]]\ncalls = [{{ name = {call} }}]\n{ANSWER}");
    let edit = call("\"write_file\", arguments = { path = \"new\", content = \"n\" }");
    let command = call("\"run_command\", arguments = { command = \"echo > new\" }");
    let (once, twice) =
        (&[&["resume", "last"][..]], &[&["resume", "last"][..], &["resume", "last", "More."]]);
    for (rest, resumes, code) in [
        (ANSWER, &once[..], 0),
        (&edit, once, 0),
        (&command, once, 0),
        (&ANSWER.repeat(2), twice, 0),
        // The model fails.
        ("", once, 1),
    ] {
        let world = killed_session(rest);
        for resume in resumes {
            let resumed = world.run(resume);
            assert_eq!(resumed.code, code, "{rest}: {}", resumed.err);
        }
        world.write("mine", "mine\n");
        let diff = world.run(&["diff", "last"]);
        assert_eq!((diff.code, &*diff.err), (0, ""), "{rest}");
        assert!(diff.out.contains("+late") && !diff.out.contains("mine"), "{rest}: {}", diff.out);
        let undone = world.run(&["undo", "--start", "--yes"]);
        assert_eq!(undone.code, 0, "{rest}: {}", undone.err);
        assert!(!undone.err.contains("without recording"), "{rest}: {}", undone.err);
        let left = snapshot(&world.path(""));
        assert_eq!(left.keys().collect::<Vec<_>>(), [Path::new("mine")], "{rest}");
        let verified = world.run(&["replay", "last", "--verify"]);
        assert_eq!(verified.code, 0, "{rest}: {}", verified.out);
    }
}

/// Changes after the last record of a killed session are not those of its fork, nor are later changes of the user.
#[test]
fn a_fork_of_a_killed_session_has_no_open_change() {
    let world = killed_session("[[turn]]\ntext = \"Done.\"\n");
    let forked = world.run(&["fork", "last", "Go on."]);
    assert_eq!(forked.code, 0, "{}", forked.err);
    world.write("mine", "mine\n");
    let undone = world.run(&["undo", "--start", "--yes"]);
    assert_eq!(undone.code, 0, "{}", undone.err);
    let left = snapshot(&world.path(""));
    let left: Vec<&Path> = left.keys().map(PathBuf::as_path).collect();
    assert_eq!(left, ["b", "late", "mine"].map(Path::new));
}

/// A folder that can't be removed, since another program has put a file into it, is left out; an undo by force reports
/// that.
#[test]
fn an_undo_by_force_that_leaves_something_out_has_another_exit_code() {
    let script = r#"
        [[turn]]
        calls = [
            { name = "write_file", arguments = { path = "f", content = "x" } },
            { name = "write_file", arguments = { path = "d/x", content = "x" } },
        ]
        [[turn]]
        text = "Done."
    "#;
    for (removed, mine) in [("f", "f/mine"), ("d/x", "d/mine")] {
        let world = CliFixture::new();
        assert_eq!(world.run_script(script, &["--mode", "yolo"]).code, 0);
        fs::remove_file(world.path(removed)).unwrap();
        world.write(mine, "mine");
        for _ in 0..2 {
            let undone = world.run(&["undo", "--start", "--yes", "--force"]);
            assert_eq!(undone.code, 2, "{}", undone.err);
            assert!(undone.err.contains("not removed, since 'mine' in it stays"), "{}", undone.err);
        }
        assert_eq!(world.read(mine), "mine");
    }
}

/// Files that architect writes itself are not changes of the run; neither the run nor an undo touches them.
#[test]
fn the_output_files_of_a_run_are_not_its_changes() {
    let world = CliFixture::new();
    let script = r#"
        [[turn]]
        calls = [{ name = "run_command", arguments = { command = "echo a > a" } }]
        [[turn]]
        calls = [{ name = "run_command", arguments = { command = "echo b > b" } }]
        [[turn]]
        text = "Done."
    "#;
    let model = world.script_model(script);
    let files =
        ["--log-file", "log", "--report-file", "report.md", "-o", "answer", "--record", "record"];
    let how = ["--mode", "yolo", "--output-format", "stream-json", "--model", &model];
    let output = |name: &str| fs::File::create(world.path(name)).unwrap();
    let mut run = world.command(&[&["run", "Do it."][..], &how, &files].concat());
    let ran = run.stdout(output("out")).stderr(output("err")).status().unwrap();
    assert!(ran.success(), "{}", world.read("err"));
    let diff = world.run(&["diff", "last", "--json"]);
    let changed = diff.json();
    let changed: Vec<&str> =
        changed.as_array().unwrap().iter().map(|it| it["path"].as_str().unwrap()).collect();
    assert_eq!(changed, ["a", "b"], "{}", diff.err);
    let mut expected = snapshot(&world.path(""));
    expected.retain(|path, _| path != Path::new("a") && path != Path::new("b"));
    let mut undo = world.command(&["undo", "--start", "--yes"]);
    let undone = undo.stdout(output("undo")).stderr(output("undo.err")).status().unwrap();
    assert!(undone.success(), "{}", world.read("undo.err"));
    let mut left = snapshot(&world.path(""));
    left.retain(|path, _| !path.starts_with("undo") && path != Path::new("undo.err"));
    assert_eq!(left, expected);
}

/// The contents of one session are shared with the next one, and stay when the first is removed.
#[test]
fn sessions_of_a_workspace_share_contents() {
    let world = CliFixture::new();
    let large: String = (0..40_000).map(|line| format!("line {line}\n")).collect();
    world.write("large", &large);
    let script = |name: &str| {
        format!(
            "[[turn]]\ncalls = [{{ name = \"write_file\", arguments = {{ path = \"{name}\", content = \"x\" }} }}]\n\
             [[turn]]\ntext = \"Done.\"\n"
        )
    };
    std::thread::sleep(std::time::Duration::from_millis(50));
    let first = world.run_script(&script("a"), &["--mode", "yolo", "--json"]);
    let second = world.run_script(&script("b"), &["--mode", "yolo", "--json"]);
    let sessions = world.home().join(".local/state/architect/sessions");
    let folder = |ran: &crate::kit::cli::CommandResult| {
        sessions.join(ran.json()["session_id"].as_str().unwrap()).join("checkpoints")
    };
    let own = |folder: &Path| {
        let name = folder.parent().unwrap().file_name().unwrap();
        fs::metadata(folder.join(name)).unwrap()
    };
    assert!(own(&folder(&first)).size() > 100_000 && own(&folder(&first)).nlink() == 2);
    assert!(own(&folder(&second)).size() < 10_000);
    let id = first.json()["session_id"].as_str().unwrap().to_owned();
    assert_eq!(world.run(&["sessions", "rm", &id]).code, 0);
    world.write("large", "gone\n");
    let verified = world.run(&["replay", "last", "--verify"]);
    assert_eq!(verified.code, 0, "{}", verified.out);
    assert!(!folder(&first).exists());
}
