//! `apply_patch`, compared with git's result for the same patch.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use architect::tools::{FileDeletion, ToolSettings};
use architect::types::{FileAction, ToolStatus};
use serde_json::json;

use super::fixture::{ToolFixture, yolo_settings};

fn world() -> ToolFixture {
    ToolFixture::with(ToolSettings { delete: FileDeletion::Allowed, ..yolo_settings() }, |_| {})
}

fn git(folder: &Path, args: &[&str]) -> Vec<u8> {
    let plain = [
        "-c",
        "core.quotePath=true",
        "-c",
        "core.fsmonitor=false",
        "-c",
        "core.hooksPath=/dev/null",
        // The checkout may belong to another user than the one who runs its tests.
        "-c",
        "safe.directory=*",
    ];
    let mut git = Command::new("git");
    git.args(plain).args(args).current_dir(folder).env("GIT_CONFIG_GLOBAL", "/dev/null");
    let done = git.output().unwrap();
    assert!(done.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&done.stderr));
    done.stdout
}

/// Returns the files of a folder with their content, besides git's own.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && path.file_name().unwrap() != ".git" {
                folders.push(path);
            } else if path.is_file() {
                let name = path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
                found.push((name, fs::read(&path).unwrap()));
            }
        }
    }
    found.sort();
    found
}

#[test]
fn files_are_changed_created_deleted_and_renamed_together() {
    let world = world();
    world.write("a", "1\n2\n3\n");
    world.write("old", "x\n");
    world.write("from", "r\n");
    let patch = "diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1,3 +1,3 @@\n 1\n-2\n+two\n 3\n\
                 diff --git a/new b/d/new\nnew file mode 100755\n--- /dev/null\n+++ b/d/new\n@@ -0,0 +1 @@\n+n\n\
                 diff --git a/old b/old\ndeleted file mode 100644\n--- a/old\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n\
                 diff --git a/from b/to\nsimilarity index 50%\nrename from from\nrename to to\n";
    let result = world.call("apply_patch", &json!({"patch": patch}));
    assert_eq!(result.status, ToolStatus::Ok, "{}", result.text);
    let changes: Vec<_> =
        result.changes.iter().map(|change| (change.path.to_text(), change.action)).collect();
    let (created, modified, deleted) =
        (FileAction::Created, FileAction::Modified, FileAction::Deleted);
    assert_eq!(
        changes,
        [("a", modified), ("d/new", created), ("from", deleted), ("old", deleted), ("to", created)]
            .map(|(path, action)| (path.to_owned(), action))
    );
    let files: Vec<_> = files(&world.path);
    let named: Vec<_> =
        files.iter().map(|(name, content)| (name.as_str(), content.as_slice())).collect();
    assert_eq!(named, [("a", &b"1\ntwo\n3\n"[..]), ("d/new", b"n\n"), ("to", b"r\n")]);
    assert_eq!(world.mode("d/new"), 0o755);
}

/// Fault T24: a patch that cannot be applied as a whole leaves every file as it was.
#[test]
fn a_patch_is_applied_as_a_whole_or_not_at_all() {
    let world = world();
    world.write("a", "1\n2\n");
    world.write("b", "x\n");
    fs::create_dir(world.path.join("folder")).unwrap();
    let good = "--- a/a\n+++ b/a\n@@ -1,2 +1,2 @@\n 1\n-2\n+two\n";
    let before = files(&world.path);
    let long = format!(
        "--- a/b\n+++ b/b\n@@ -1 +1,200000 @@\n-y\n{}",
        "+line of a long hunk\n".repeat(200_000)
    );
    for (bad, why) in [
        (
            "--- a/b\n+++ b/b\n@@ -1 +1 @@\n-y\n+z\n",
            "Hunk 1 for 'b' (line 9 of the patch) does not fit",
        ),
        ("--- a/none\n+++ b/none\n@@ -1 +1 @@\n-y\n+z\n", "'none' does not exist"),
        ("--- a/../out\n+++ b/../out\n@@ -1 +1 @@\n-y\n+z\n", "outside the workspace"),
        ("--- /etc/hostname\n+++ /etc/hostname\n@@ -1 +1 @@\n-y\n+z\n", "outside the workspace"),
        ("--- /dev/null\n+++ b/b\n@@ -0,0 +1 @@\n+z\n", "'b' exists already"),
        ("--- a/b\n+++ /dev/null\n@@ -1 +0,0 @@\n-y\n", "does not fit"),
        ("--- a/folder\n+++ b/folder\n@@ -1 +1 @@\n-y\n+z\n", "is a directory"),
        ("diff --git a/b b/folder\nrename from b\nrename to folder\n", "is a directory"),
        ("--- a/b\n+++ b/b\n@@ -1 +1 @@\n-x\n+x\n", "changes nothing in 'b'"),
        ("--- a/b\n+++ b/b\n@@\n-x\n+y\n", "should be like '@@ -10,6 +10,8 @@'"),
        (long.as_str(), "does not fit"),
    ] {
        let result = world.call("apply_patch", &json!({"patch": format!("{good}{bad}")}));
        assert_ne!(result.status, ToolStatus::Ok, "{bad}");
        assert!(result.text.contains(why), "{}", result.text);
        assert_eq!(files(&world.path), before, "{why}");
    }
}

/// The lines are in the file as in the patch, but at the wrong position.
#[test]
fn a_hunk_that_has_to_be_at_the_end_of_the_file_says_so() {
    let world = world();
    world.write("a", "1\n2\n3\n4\n");
    for (patch, why) in [
        (
            "--- a/a\n+++ b/a\n@@ -1,3 +1,4 @@\n 1\n 2\n 3\n+x\n",
            "it has no lines after its change, so it has to be at the end of the file, but what it changes is in \
             lines 1-3. Add the lines of the file that are after the change as context.",
        ),
        (
            "--- a/a\n+++ b/a\n@@ -1,3 +1,4 @@\n+x\n 2\n 3\n 4\n",
            "it has no lines before its change, so it has to be at the start of the file, but what it changes is in \
             lines 2-4. Add",
        ),
        (
            "*** Begin Patch\n*** Update File: a\n@@\n-2\n+x\n*** End of File\n*** End Patch\n",
            "is at the end of the file, but what it changes is in line 2. Leave out '*** End of File'.",
        ),
    ] {
        let output = world.err("apply_patch", &json!({"patch": patch}));
        assert!(output.contains(why), "{output}");
    }
}

/// A name is free for another file if no file has it, or if the patch renames that file without changing it.
#[test]
fn no_renamed_file_takes_the_place_of_what_the_patch_has_made() {
    let change = "diff --git a/c b/c\n--- a/c\n+++ b/c\n@@ -1 +1 @@\n-c\n+changed\n";
    let rename = |from: &str, to: &str| {
        format!("diff --git a/{from} b/{to}\nrename from {from}\nrename to {to}\n")
    };
    let copy = "diff --git a/b b/c\ncopy from b\ncopy to c\n";
    let new = "diff --git a/new b/new\nnew file mode 100644\n--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+n\n";
    for patch in [
        [change, &rename("b", "c")].concat(),
        [change, copy].concat(),
        [&rename("b", "c"), change].concat(),
        [new, &rename("b", "new")].concat(),
        [rename("a", "d"), rename("b", "d")].concat(),
        [rename("c", "d"), rename("a", "c"), rename("b", "c")].concat(),
        [change, &rename("b", "c"), &rename("c", "d")].concat(),
        [change, &rename("c", "c")].concat(),
    ] {
        let world = world();
        for name in ["a", "b", "c"] {
            world.write(name, format!("{name}\n"));
        }
        let before = files(&world.path);
        let output = world.err("apply_patch", &json!({"patch": patch}));
        assert!(output.contains("exists already"), "{patch}\n{output}");
        assert_eq!(files(&world.path), before, "{patch}");
    }
}

#[test]
fn files_change_places_as_git_says_it() {
    for (moves, changes) in [
        ("mv a t; mv b a; mv t b", ""),
        ("mv a t; mv b a; mv t b", "s/line 3 /x/"),
        ("mv a t; mv b a; mv c b; mv t c", ""),
    ] {
        let world = world();
        git(&world.path, &["init", "-q", "."]);
        for name in ["a", "b", "c"] {
            // Git detects a rename if the file is not too short.
            let lines = (0..99).map(|n| format!("{name} line {n} {}\n", n * 7));
            world.write(name, lines.collect::<String>());
        }
        fs::set_permissions(world.path.join("a"), Permissions::from_mode(0o755)).unwrap();
        git(&world.path, &["add", "-A"]);
        let script = format!("{moves}; sed -i '{changes}' a");
        let moved = Command::new("sh").args(["-c", &script]).current_dir(&world.path).status();
        assert!(moved.unwrap().success());
        git(&world.path, &["add", "-A", "-N"]);
        let patch = git(&world.path, &["diff", "-M", "-C", "-B", "--no-ext-diff"]);
        let patch = String::from_utf8(patch).unwrap();
        assert!(patch.contains("rename from a\n") && patch.contains("rename to a\n"), "{patch}");
        restore(&world, &patch, &files(&world.path));
        let is_program = |name: &str| world.mode(name) & 0o111 != 0;
        assert!(!is_program("a") && is_program(&moves[moves.len() - 1..]), "{patch}");
    }
}

#[test]
fn a_patch_keeps_the_permissions_that_it_does_not_set() {
    let world = world();
    let set =
        |mode| fs::set_permissions(world.path.join("a"), Permissions::from_mode(mode)).unwrap();
    world.write("a", "1\n");
    set(0o2755);
    world.ok("apply_patch", &json!({"patch": "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-1\n+2\n"}));
    assert_eq!(world.mode("a"), 0o2755);
    set(0o2644);
    let mode = "diff --git a/a b/a\nold mode 100644\nnew mode 100755\n";
    world.ok("apply_patch", &json!({"patch": mode}));
    assert_eq!(world.mode("a"), 0o2755);
    assert!(world.err("apply_patch", &json!({"patch": mode})).contains("Nothing would change"));
    let rename = "diff --git a/a b/b\nrename from a\nrename to b\n";
    world.ok("apply_patch", &json!({"patch": rename}));
    assert_eq!(world.mode("b"), 0o2755);
}

/// Two files with the same content change places without one of them getting lost.
#[test]
fn equal_files_change_places() {
    let world = world();
    for name in ["a", "b"] {
        world.write(name, "same\n");
    }
    let patch = "diff --git a/b b/a\nrename from b\nrename to a\n\
                 diff --git a/a b/b\nrename from a\nrename to b\n";
    world.ok("apply_patch", &json!({"patch": patch}));
    assert_eq!((world.read("a"), world.read("b")), ("same\n".to_owned(), "same\n".to_owned()));
}

#[test]
fn a_patch_without_names_is_for_the_path() {
    let world = world();
    world.write("a", "1\n");
    let patch = "@@ -1 +1 @@\n-1\n+2\n";
    assert!(world.err("apply_patch", &json!({"patch": patch})).contains("names no file"));
    world.ok("apply_patch", &json!({"patch": patch, "path": "a"}));
    assert_eq!(world.read("a"), "2\n");
}

#[test]
fn deletions_need_to_be_allowed() {
    let world = ToolFixture::new();
    world.write("a", "1\n");
    let patch = "--- a/a\n+++ /dev/null\n@@ -1 +0,0 @@\n-1\n";
    assert!(world.err("apply_patch", &json!({"patch": patch})).contains("workspace.allow_delete"));
    assert!(world.err("delete_file", &json!({"path": "a"})).contains("not found"));
    let world = self::world();
    world.write("a", "1\n");
    world.ok("delete_file", &json!({"path": "a"}));
    assert!(!world.path.join("a").exists());
    assert!(world.err("delete_file", &json!({"path": "a"})).contains("does not exist"));
}

/// Patches that git writes for random changes give the result of git, also if the file has changed meanwhile.
#[test]
fn patches_of_random_changes_give_what_git_gives() {
    let mut seed = 7_u64;
    let mut random = move |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    };
    let mut applied = 0;
    for round in 0..60 {
        let world = world();
        git(&world.path, &["init", "-q", "."]);
        let end = if round % 5 == 0 { "\r\n" } else { "\n" };
        let mut lines: Vec<String> =
            (0..40).map(|n| format!("line {}{end}", n * random(5))).collect();
        if round % 7 == 0 {
            lines.push("last".to_owned());
        }
        for name in ["a", "b é", "c"] {
            world.write(name, lines.concat());
        }
        git(&world.path, &["add", "-A"]);
        for _ in 0..=random(4) {
            let at = random(lines.len());
            match random(3) {
                0 => lines.insert(at, format!("new {}{end}", random(9))),
                1 => drop(lines.remove(at)),
                _ => lines[at] = format!("changed {}{end}", random(9)),
            }
        }
        for name in ["a", "b é"] {
            world.write(name, lines.concat());
        }
        match random(3) {
            0 => fs::rename(world.path.join("c"), world.path.join("renamed")).unwrap(),
            1 => fs::remove_file(world.path.join("c")).unwrap(),
            _ => world.write("new", lines.concat()),
        }
        git(&world.path, &["add", "-A", "-N"]);
        let patch = String::from_utf8(git(&world.path, &["diff", "-M", "--no-ext-diff"])).unwrap();
        let wanted = files(&world.path);
        restore(&world, &patch, &wanted);
        applied += 1;
    }
    assert_eq!(applied, 60);
}

/// If the file has changed since the patch was made, the tool's result is that of `patch`.
#[test]
fn patches_with_offsets_and_fuzz_give_what_patch_gives() {
    if Command::new("patch").arg("--version").output().is_err() {
        return;
    }
    let mut seed = 11_u64;
    let mut random = move |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    };
    let (mut same, mut refused) = (0, 0);
    for _ in 0..80 {
        let world = world();
        let old: Vec<String> = (0..60).map(|n| format!("line {n}\n")).collect();
        let mut new = old.clone();
        for place in [10, 30, 50] {
            new[place + random(4)] = format!("changed at {place}\n");
        }
        world.write("old", old.concat());
        world.write("new", new.concat());
        let diff = Command::new("diff")
            .args(["-u", "old", "new"])
            .current_dir(&world.path)
            .output()
            .unwrap();
        let patch = String::from_utf8(diff.stdout).unwrap();
        let mut drifted = old;
        for _ in 0..random(6) {
            let at = random(drifted.len());
            match random(3) {
                0 => drifted.insert(at, format!("drifted {}\n", random(1_000))),
                1 => drop(drifted.remove(at)),
                _ => drifted[at] = format!("drifted {}\n", random(1_000)),
            }
        }
        let patch = patch.replace("--- old", "--- file").replace("+++ new", "+++ file");
        world.write("theirs", drifted.concat());
        world.write("file", drifted.concat());
        world.write("p", &patch);
        let mut theirs = Command::new("patch");
        theirs.args(["-s", "-f", "--no-backup-if-mismatch", "-r", "-", "-i", "p", "theirs"]);
        let fits = theirs.current_dir(&world.path).output().unwrap().status.success();
        let result = world.call("apply_patch", &json!({"patch": patch}));
        if fits {
            assert_eq!(
                result.status,
                ToolStatus::Ok,
                "{}\n{patch}\n{}",
                result.text,
                drifted.concat()
            );
            assert_eq!(world.read("file"), world.read("theirs"), "{patch}\n{}", drifted.concat());
            same += 1;
        } else {
            if result.status != ToolStatus::Ok {
                assert_eq!(world.read("file"), drifted.concat());
            }
            refused += 1;
        }
    }
    assert!(same > 20 && refused > 5, "{same} {refused}");
}

/// Takes a patch back with git, applies it with the tool, and compares.
fn restore(world: &ToolFixture, patch: &str, wanted: &[(String, Vec<u8>)]) {
    let file = world.path.parent().unwrap().join("patch");
    fs::write(&file, patch).unwrap();
    git(&world.path, &["apply", "-R", "--whitespace=nowarn", file.to_str().unwrap()]);
    assert_ne!(files(&world.path), wanted);
    let result = world.call("apply_patch", &json!({"patch": patch}));
    assert_eq!(result.status, ToolStatus::Ok, "{}\n{patch}", result.text);
    assert_eq!(files(&world.path), wanted, "{patch}");
}

/// Returns the history from which changes are taken: this project's own, if the checkout has it, or the one that
/// `ARCHITECT_TEST_HISTORY` names.
fn history() -> Option<PathBuf> {
    let own = || env!("CARGO_MANIFEST_DIR").into();
    let history = std::env::var_os("ARCHITECT_TEST_HISTORY").map_or_else(own, PathBuf::from);
    // A copy without its history shows nothing.
    (history.join(".git").exists() || history.join("HEAD").exists()).then_some(history)
}

/// Returns the newest commits with their parents: `ARCHITECT_TEST_COMMITS` of them, or the usual number.
fn commits(history: &Path, usual: u32) -> Vec<(String, String)> {
    let count = std::env::var("ARCHITECT_TEST_COMMITS").unwrap_or_else(|_| usual.to_string());
    let list = git(history, &["log", "--no-merges", "--format=%H %P", "-n", &count]);
    let list = String::from_utf8(list).unwrap();
    let pairs = list.lines().filter_map(|line| line.split_once(' '));
    let pairs = pairs.filter(|(_, parent)| !parent.is_empty());
    pairs.map(|(commit, parent)| (commit.to_owned(), parent.to_owned())).collect()
}

/// Returns the changes of text files between two commits.
fn change(history: &Path, more: &[&str], from: &str, to: &str) -> Option<String> {
    let plain = ["diff", "--no-ext-diff", "--no-textconv"];
    let patch = git(history, &[&plain[..], more, &[from, to]].concat());
    let patch = String::from_utf8(patch).ok()?;
    let is_text = !patch.contains("\nBinary files ")
        && !patch.contains(" mode 120000")
        && !patch.contains(" 160000");
    (is_text && patch.len() <= 2_000_000 && !patch.is_empty()).then_some(patch)
}

/// Returns the names of the files that changed between two commits, each with the kind of change.
fn changed(history: &Path, from: &str, to: &str) -> Vec<(String, String)> {
    let names = git(history, &["diff", "--no-renames", "--name-status", "-z", from, to]);
    let names = String::from_utf8(names).unwrap();
    let fields: Vec<&str> = names.split_terminator('\0').collect();
    fields.chunks(2).map(|pair| (pair[0].to_owned(), pair[1].to_owned())).collect()
}

/// Each change of a real history produces the files of the next commit.
#[test]
fn patches_of_a_real_history_give_what_git_gives() {
    let Some(history) = history() else { return };
    let mut applied = 0;
    for (commit, parent) in commits(&history, 150) {
        let Some(patch) = change(&history, &["-M"], &parent, &commit) else { continue };
        let world = world();
        let mut wanted = Vec::new();
        for (status, name) in changed(&history, &parent, &commit) {
            if status != "A" {
                world.write(&name, git(&history, &["show", &format!("{parent}:{name}")]));
            }
            if status != "D" {
                let content = git(&history, &["show", &format!("{commit}:{name}")]);
                wanted.push((name, content));
            }
        }
        wanted.sort();
        let result = world.call("apply_patch", &json!({"patch": patch}));
        assert_eq!(result.status, ToolStatus::Ok, "{commit}: {}", result.text);
        assert!(files(&world.path) == wanted, "{commit} differs");
        applied += 1;
    }
    println!("{applied} patches give what git gives");
    assert!(applied > 0, "the history has nothing to apply");
}

/// Each change of a real history, on the files as they were some commits earlier: if `patch` can apply it, with offsets
/// and fuzz, the tool gives the same result.
#[test]
fn patches_of_a_real_history_give_what_patch_gives_elsewhere() {
    let Some(history) = history() else { return };
    if Command::new("patch").arg("--version").output().is_err() {
        eprintln!("skipped: there is no patch");
        return;
    }
    let (mut same, mut neither, mut ours, mut other) = (0, 0, 0, Vec::new());
    let commits = commits(&history, 60);
    for ((commit, parent), (earlier, _)) in commits.iter().zip(commits.iter().skip(8)) {
        let more = ["--no-renames", "--diff-filter=M"];
        let Some(patch) = change(&history, &more, parent, commit) else { continue };
        let at = |commit: &str, name: &str| {
            let whole = format!("{commit}:{name}");
            let there = git(&history, &["ls-tree", "--name-only", "-z", commit, "--", name]);
            (!there.is_empty()).then(|| git(&history, &["show", &whole]))
        };
        let (world, theirs) = (world(), world());
        let mut has_moved = false;
        for (status, name) in changed(&history, parent, commit) {
            if let Some(content) = at(earlier, &name).filter(|_| status == "M") {
                has_moved |= at(parent, &name) != Some(content.clone());
                theirs.write(&name, &content);
                world.write(&name, content);
            }
        }
        if !has_moved {
            continue;
        }
        let before = files(&world.path);
        let file = theirs.path.parent().unwrap().join("patch");
        fs::write(&file, &patch).unwrap();
        let mut program = Command::new("patch");
        program.args(["-p1", "-s", "-f", "--no-backup-if-mismatch", "-r", "-", "-i"]).arg(&file);
        let fits = program.current_dir(&theirs.path).output().unwrap().status.success();
        let result = world.call("apply_patch", &json!({"patch": patch}));
        match (fits, result.status == ToolStatus::Ok) {
            (true, true) if files(&world.path) == files(&theirs.path) => same += 1,
            (true, _) => other.push(format!("{commit} on {earlier}: {}", result.text)),
            (false, true) => ours += 1,
            (false, false) => {
                assert!(files(&world.path) == before, "{commit} on {earlier} left something");
                neither += 1;
            }
        }
    }
    println!(
        "{same} patches give what patch gives, {neither} fit for neither, {ours} for us alone"
    );
}
