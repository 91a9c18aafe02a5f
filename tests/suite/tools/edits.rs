//! Edits to the byte: the parts of a file that a change leaves alone, and forbidden changes.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use architect::policy::{FilePatterns, Guardrails};
use architect::tools::{FileDeletion, ToolSettings, permission_rules};
use architect::types::ToolStatus;
use serde_json::{Value, json};

use super::fixture::{ToolFixture, yolo_settings};

fn world() -> ToolFixture {
    ToolFixture::with(ToolSettings { delete: FileDeletion::Allowed, ..yolo_settings() }, |_| {})
}

fn patch(text: &str) -> Value {
    json!({"patch": text})
}

#[test]
fn what_is_appended_begins_on_a_line_of_its_own() {
    let world = world();
    for (before, content, expected) in [
        ("a", "b\n", "a\nb\n"),
        ("a\n", "b", "a\nb"),
        ("a\r\nb", "c\n", "a\r\nb\r\nc\r\n"),
        ("a", "\nb\n", "a\nb\n"),
        ("", "b", "b"),
        ("a", "", "a"),
    ] {
        world.write("f", before);
        world.ok("write_file", &json!({"path": "f", "content": content, "mode": "append"}));
        assert_eq!(world.read("f"), expected, "{before:?} {content:?}");
    }
}

/// Appended text takes the encoding of the file, and is refused if that is unknown.
#[test]
fn what_is_appended_is_in_the_encoding_of_the_file() {
    let world = world();
    let append = |content: &str| json!({"path": "f", "content": content, "mode": "append"});
    let bytes = || fs::read(world.path.join("f")).unwrap();
    let latin = b"caf\xe9\n";
    fs::write(world.path.join("f"), latin).unwrap();
    assert!(world.err("write_file", &append("t\u{e9}\n")).contains("'f' is not UTF-8"));
    assert_eq!(bytes(), latin);
    world.ok("write_file", &append("tea\n"));
    assert_eq!(bytes(), b"caf\xe9\ntea\n");
    fs::write(world.path.join("f"), b"\xff\xfea\0\n\0").unwrap();
    world.ok("write_file", &append("\u{e9}"));
    assert_eq!(bytes(), b"\xff\xfea\0\n\0\xe9\0");
    world.ok("edit_file", &json!({"path": "f", "old_str": "a", "new_str": "\u{fc}"}));
    assert_eq!(bytes(), b"\xff\xfe\xfc\0\n\0\xe9\0");
    // Half a unit of UTF-16, and no text at all: nothing is lost.
    for content in [&b"\xff\xfea\0\n"[..], b"\x7fELF\0\x01"] {
        fs::write(world.path.join("f"), content).unwrap();
        assert!(world.err("write_file", &append("x")).contains("is a binary file"));
        assert_eq!(bytes(), content);
    }
}

/// Fault T20: the other name may be outside the workspace, so it is reported instead of written through.
#[test]
fn an_edit_reports_that_it_separates_a_file_from_its_hard_links() {
    let world = world();
    world.write("f", "a\n");
    fs::hard_link(world.path.join("f"), world.path.join("g")).unwrap();
    let note =
        "f had other names (hard links), which keep the old content: f is a separate file now.";
    let edit = |old: &str, new: &str| json!({"path": "f", "old_str": old, "new_str": new});
    assert!(world.ok("edit_file", &edit("a", "b")).contains(note));
    assert_eq!((world.read("f"), world.read("g")), ("b\n".to_owned(), "a\n".to_owned()));
    assert!(!world.ok("edit_file", &edit("b", "c")).contains("hard link"));
    assert!(!world.ok("delete_file", &json!({"path": "g"})).contains("hard link"));
}

#[test]
fn an_edit_of_the_last_line_leaves_its_end_alone() {
    let world = world();
    for (before, old, new, expected) in [
        ("a\nb", "b", "c", "a\nc"),
        ("a\r\nb", "b", "c\nd", "a\r\nc\r\nd"),
        ("a\r\nb\r\n", "a\nb", "c\nd", "c\r\nd\r\n"),
        ("a\nb", "a\nb", "c\n", "c\n"),
    ] {
        world.write("f", before);
        world.ok("edit_file", &json!({"path": "f", "old_str": old, "new_str": new}));
        assert_eq!(world.read("f"), expected, "{before:?}");
    }
    world.write("f", "a\nb");
    assert!(
        world
            .err("edit_file", &json!({"path": "f", "old_str": "b\n", "new_str": "c\n"}))
            .contains("not found")
    );
}

#[test]
fn changes_that_are_far_apart_are_counted_by_themselves() {
    let world = world();
    let lines = |at: &[usize]| -> String {
        (1..=100)
            .map(|n| if at.contains(&n) { "x\n".to_owned() } else { format!("{n}\n") })
            .collect()
    };
    world.write("f", lines(&[]));
    let text = "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-1\n+x\n@@ -100 +100 @@\n-100\n+x\n";
    let result = world.call("apply_patch", &patch(text));
    assert_eq!((result.changes[0].added, result.changes[0].removed), (2, 2), "{}", result.text);
    assert_eq!(world.read("f"), lines(&[1, 100]));
}

#[test]
fn marks_and_encodings_survive_a_patch() {
    let world = world();
    let wide = |text: &str| -> Vec<u8> {
        "\u{feff}".encode_utf16().chain(text.encode_utf16()).flat_map(u16::to_le_bytes).collect()
    };
    let insert = patch("--- a/f\n+++ b/f\n@@ -0,0 +1 @@\n+x\n");
    for (before, after) in
        [("\u{feff}a\n".into(), "\u{feff}x\na\n".into()), (wide("a\r\n"), wide("x\r\na\r\n"))]
    {
        let before: Vec<u8> = before;
        world.write("f", &before);
        world.ok("apply_patch", &insert);
        assert_eq!(fs::read(world.path.join("f")).unwrap(), after);
    }
    world.write("f", "\u{feff}a\n");
    world.ok("apply_patch", &patch("--- a/f\n+++ b/f\n@@ -1 +1 @@\n-\u{feff}a\n+a\n"));
    assert_eq!(world.read("f"), "a\n");
}

#[test]
fn names_with_other_prefixes_are_those_of_the_files() {
    let world = world();
    let change =
        |old: &str, new: &str| patch(&format!("--- {old}\n+++ {new}\n@@ -1 +1 @@\n-1\n+2\n"));
    for (old, new) in
        [("src/old.txt", "dst/old.txt"), ("project-1.0/old.txt", "project-1.0/old.txt")]
    {
        world.write("old.txt", "1\n");
        world.ok("apply_patch", &change(old, new));
        assert_eq!(world.read("old.txt"), "2\n");
    }
    world.write("src/old.txt", "1\n");
    assert!(
        world.err("apply_patch", &change("src/old.txt", "dst/old.txt")).contains("both are there")
    );
    assert_eq!((world.read("src/old.txt"), world.read("old.txt")), ("1\n".into(), "2\n".into()));
    world.write("x", "1\n");
    let mode = "diff --git a/x b/x c/x\nold mode 100644\nnew mode 100755\n";
    assert!(world.err("apply_patch", &patch(mode)).contains("are ambiguous"));
    assert!(!world.path.join("x c").exists() && world.mode("x") & 0o111 == 0);
}

/// `diff -N` names files that do not exist, and gives them the first moment of all.
#[test]
fn files_from_the_beginning_of_time_are_made_and_deleted() {
    let world = world();
    world.write("gone", "1\n");
    let text = "--- p-1/new\t1970-01-01 00:00:00.000000000 +0000\n+++ p-2/new\t2026-01-01 00:00:00.0 +0000\n\
                @@ -0,0 +1 @@\n+n\n--- p-1/gone\t2026-01-01 00:00:00.0 +0000\n\
                +++ p-2/gone\t1970-01-01 00:00:00.000000000 +0000\n@@ -1 +0,0 @@\n-1\n";
    world.ok("apply_patch", &patch(text));
    assert!(!world.path.join("gone").exists());
    let made = [world.path.join("new"), world.path.join("p-2/new")];
    assert_eq!(made.map(|path| path.exists()), [true, false]);
}

/// A patch that only deletes a file is about an empty one.
#[test]
fn a_deletion_without_lines_is_about_an_empty_file() {
    let world = world();
    let text = "diff --git a/f b/f\ndeleted file mode 100644\n";
    world.write("f", "1\n");
    assert!(world.err("apply_patch", &patch(text)).contains("does not name"));
    world.write("f", "");
    world.ok("apply_patch", &patch(text));
    assert!(!world.path.join("f").exists());
}

/// The example of the format's documentation.
#[test]
fn the_begin_format_adds_changes_moves_and_deletes() {
    let world = world();
    world.write("src/app.py", "import sys\n\ndef greet():\n    pass\nprint(\"Hi\")\n");
    fs::set_permissions(world.path.join("src/app.py"), Permissions::from_mode(0o755)).unwrap();
    world.write("obsolete.txt", b"\0binary");
    let text = "*** Begin Patch\n*** Add File: hello.txt\n+Hello world\n*** Update File: src/app.py\n\
                *** Move to: src/main.py\n@@ def greet():\n     pass\n-print(\"Hi\")\n+print(\"Hello, world!\")\n\
                *** Delete File: obsolete.txt\n*** End Patch";
    let result = world.call("apply_patch", &patch(text));
    assert_eq!(result.status, ToolStatus::Ok, "{}", result.text);
    assert_eq!(world.read("hello.txt"), "Hello world\n");
    let expected = "import sys\n\ndef greet():\n    pass\nprint(\"Hello, world!\")\n";
    assert_eq!((world.read("src/main.py").as_str(), world.mode("src/main.py")), (expected, 0o755));
    assert!(!world.path.join("src/app.py").exists() && !world.path.join("obsolete.txt").exists());
}

#[test]
fn the_begin_format_is_applied_as_a_whole_or_not_at_all() {
    let world = ToolFixture::new();
    world.write("a", "1\n2\n");
    world.write("b", "x\nx\n");
    let good = "*** Begin Patch\n*** Add File: new\n+n\n*** Update File: a\n@@\n-1\n+one\n";
    for (bad, why) in [
        ("*** Update File: b\n@@\n-y\n+z\n", "its lines are not in the file"),
        ("*** Update File: b\n@@\n-x\n+z\n", "are in the file 2 times"),
        ("*** Update File: b\n@@ fn main() {\n-x\n+z\n", "no line 'fn main() {'"),
        ("*** Update File: none\n@@\n-y\n+z\n", "does not exist"),
        ("*** Add File: b\n+y\n", "'b' exists already"),
        ("*** Update File: a\n*** Move to: b\n@@\n-2\n+two\n", "'b' exists already"),
        ("*** Delete File: b\n", "workspace.allow_delete"),
        ("*** Add File: ../out\n+y\n", "outside the workspace"),
        ("*** Update File: b\n*** Move to: /etc/x\n@@\n-y\n+z\n", "outside the workspace"),
    ] {
        let output = world.err("apply_patch", &patch(&format!("{good}{bad}*** End Patch\n")));
        assert!(output.contains(why), "{bad}{output}");
        assert_eq!((world.read("a"), world.read("b")), ("1\n2\n".into(), "x\nx\n".into()));
        assert!(!world.path.join("new").exists());
    }
    world.ok(
        "apply_patch",
        &patch(&format!("{good}*** Update File: a\n@@\n-2\n+two\n*** End Patch\n")),
    );
    assert_eq!(world.read("a"), "one\ntwo\n");
}

/// Rules and guarded files are about every file that a patch in this format names.
#[test]
fn the_begin_format_is_checked_for_all_of_its_files() {
    let protected = FilePatterns::parse(&[".env"]).unwrap();
    let guardrails = Guardrails { protected, ..Guardrails::default() };
    let rules =
        permission_rules(&["apply_patch(secret/**)", "write_file(locked)"], &[], &[]).unwrap();
    let settings =
        ToolSettings { guardrails, rules, delete: FileDeletion::Allowed, ..yolo_settings() };
    let world = ToolFixture::with(settings, |_| {});
    for name in ["a", "secret/a", ".env"] {
        world.write(name, "1\n");
    }
    let change = |name: &str| format!("*** Update File: {name}\n@@\n-1\n+2\n");
    for (part, why) in [
        ("*** Add File: secret/new\n+x\n".to_owned(), "permissions.deny"),
        (change("secret/a"), "permissions.deny"),
        (
            format!("*** Update File: a\n*** Move to: secret/b\n{}", "@@\n-1\n+2\n"),
            "permissions.deny",
        ),
        ("*** Update File: secret/a\n*** Move to: b\n".to_owned(), "permissions.deny"),
        ("*** Delete File: secret/a\n".to_owned(), "permissions.deny"),
        (change(".env"), ".env"),
        ("*** Update File: a\n*** Move to: d/.env\n".to_owned(), ".env"),
        ("*** Add File: d/.env\n+x\n".to_owned(), ".env"),
    ] {
        let text = format!("*** Begin Patch\n*** Add File: fine\n+x\n{part}*** End Patch\n");
        let result = world.call("apply_patch", &patch(&text));
        assert_eq!(result.status, ToolStatus::Denied, "{part}{}", result.text);
        assert!(result.text.contains(why), "{}", result.text);
        assert!(!world.path.join("fine").exists());
    }
}

/// A file in Latin-1 keeps its bytes, and gets none of another encoding.
#[test]
fn no_encoding_is_mixed_into_another() {
    let world = world();
    let old = b"a\n\xe9t\xe9\n";
    world.write("f", old);
    let hunk = |new: &str| patch(&format!("--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+{new}\n"));
    let edit = |new: &str| json!({"path": "f", "old_str": "a", "new_str": new});
    for (tool, arguments) in [("apply_patch", hunk("é")), ("edit_file", edit("é"))] {
        let output = world.err(tool, &arguments);
        assert!(output.contains("'f' is not UTF-8"), "{output}");
        assert_eq!(fs::read(world.path.join("f")).unwrap(), old);
    }
    world.ok("apply_patch", &hunk("b"));
    assert_eq!(fs::read(world.path.join("f")).unwrap(), b"b\n\xe9t\xe9\n");
}
