//! Reading and changing files.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::Arc;

use architect::machine::{CallIntent, FileDigests};
use architect::tools::{FileDeletion, ToolSettings};
use architect::types::{FileAction, FileChange};
use architect::workspace::sha256;
use serde_json::json;

use super::fixture::{ToolFixture, yolo_settings};

#[test]
fn a_file_is_read_as_it_is_or_in_pages() {
    let world = ToolFixture::new();
    world.write("a", "one\ntwo\nthree\nfour");
    assert_eq!(world.ok("read_file", &json!({"path": "a"})), "one\ntwo\nthree\nfour");
    let page = world.ok("read_file", &json!({"path": "a", "offset": 2, "limit": 2}));
    assert_eq!(page, "two\nthree\n[lines 2-3 of 4; read on with offset 4]");
    let page = world.ok("read_file", &json!({"path": "a", "offset": 4}));
    assert_eq!(page, "four\n[lines 4-4 of 4]");
    let page = world.ok("read_file", &json!({"path": "a", "limit": 0}));
    assert_eq!(page, "one\n[lines 1-1 of 4; read on with offset 2]");
    let output = world.err("read_file", &json!({"path": "a", "offset": 9}));
    assert_eq!(output, "'a' has 4 lines; there is no line 9.");
}

/// Fault T19.
#[test]
fn odd_files_are_read_or_named() {
    let world = ToolFixture::new();
    world.write("empty", "");
    world.write("binary", b"\x7fELF\0\0");
    world.write("bom", "\u{feff}text");
    world.write("latin", b"caf\xe9\n");
    let wide: Vec<u8> = "\u{feff}wide é".encode_utf16().flat_map(u16::to_le_bytes).collect();
    world.write("wide", wide);
    let read = |path: &str| world.call("read_file", &json!({"path": path})).text.to_string();
    assert_eq!(read("empty"), "(the file is empty)");
    assert_eq!(read("binary"), "'binary' is a binary file of 6 bytes; it cannot be shown as text.");
    assert_eq!(read("bom"), "text");
    assert_eq!(read("wide"), "wide é");
    assert!(read("latin").starts_with("caf\u{fffd}\n"));
    assert!(read("latni").contains("Did you mean 'latin'?"));
}

/// Fault R5.
#[test]
fn a_page_of_an_enormous_file_is_read_without_loading_it() {
    let world = ToolFixture::new();
    world.write("big", "first\n".repeat(2_000));
    let file = fs::OpenOptions::new().write(true).open(world.path.join("big")).unwrap();
    file.set_len(1 << 40).unwrap();
    let output = world.ok("read_file", &json!({"path": "big", "offset": 3, "limit": 1}));
    assert_eq!(output, "first\n[lines 3-3 of many; read on with offset 4]");
}

#[test]
fn a_file_is_written_and_added_to() {
    let world = ToolFixture::new();
    let result = world.call("write_file", &json!({"path": "d/a", "content": "one\n"}));
    assert_eq!(&*result.text, "Created d/a (1 line).");
    let change =
        FileChange { path: "d/a".into(), action: FileAction::Created, added: 1, removed: 0 };
    assert_eq!(result.changes, [change]);
    world.ok("write_file", &json!({"path": "d/a", "content": "two\n", "mode": "append"}));
    assert_eq!(world.read("d/a"), "one\ntwo\n");
    let output = world.ok("write_file", &json!({"path": "d/a", "content": "new\n"}));
    assert_eq!(output, "Changed d/a (+1 -2 lines).");
}

/// Fault T21.
#[test]
fn one_piece_of_a_file_is_edited() {
    let world = ToolFixture::new();
    world.write("a", "one two two\n");
    let edit = |old: &str, new: &str, all: bool| {
        let arguments = json!({"path": "a", "old_str": old, "new_str": new, "replace_all": all});
        world.call("edit_file", &arguments).text.to_string()
    };
    assert!(edit("three", "x", false).starts_with("old_str not found in a. "));
    assert!(edit("two", "x", false).starts_with("old_str appears 2 times in a. "));
    assert_eq!(world.read("a"), "one two two\n");
    assert_eq!(edit("one", "1", false), "Changed a (+1 -1 lines).");
    assert_eq!(edit("two", "2", true), "Changed a (+1 -1 lines). 2 places replaced.");
    assert_eq!(world.read("a"), "1 2 2\n");
}

#[test]
fn what_is_not_content_survives_an_edit() {
    let world = ToolFixture::new();
    world.write("crlf", "\u{feff}one\r\ntwo\r\nlast");
    fs::set_permissions(world.path.join("crlf"), fs::Permissions::from_mode(0o755)).unwrap();
    let edit = json!({"path": "crlf", "old_str": "two\n", "new_str": "2\n3\n"});
    world.ok("edit_file", &edit);
    assert_eq!(world.read("crlf"), "\u{feff}one\r\n2\r\n3\r\nlast");
    assert_eq!(world.mode("crlf"), 0o755);
    world.ok("write_file", &json!({"path": "crlf", "content": "new\nfile\n"}));
    assert_eq!(world.read("crlf"), "\u{feff}new\r\nfile\r\n");
    assert_eq!(world.mode("crlf"), 0o755);
    world.write("latin", b"caf\xe9 = 1\n");
    world.ok("edit_file", &json!({"path": "latin", "old_str": "= 1", "new_str": "= 2"}));
    assert_eq!(fs::read(world.path.join("latin")).unwrap(), b"caf\xe9 = 2\n");
}

#[test]
fn a_byte_order_mark_is_not_doubled() {
    let world = ToolFixture::new();
    let wide = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
    for (before, after) in [
        ("\u{feff}old".into(), "\u{feff}new".into()),
        (wide("\u{feff}old"), wide("\u{feff}new")),
        (b"old".to_vec(), "\u{feff}new".into()),
    ] {
        let after: Vec<u8> = after;
        world.write("a", before);
        world.ok("write_file", &json!({"path": "a", "content": "\u{feff}new"}));
        assert_eq!(fs::read(world.path.join("a")).unwrap(), after);
    }
}

/// Neither a link nor its target is deleted.
#[test]
fn a_link_is_not_deleted() {
    let settings = ToolSettings { delete: FileDeletion::Allowed, ..yolo_settings() };
    let world = ToolFixture::with(settings, |_| {});
    world.write("real", "one\n");
    symlink("real", world.path.join("link")).unwrap();
    symlink("nothing", world.path.join("dangling")).unwrap();
    let patch = "*** Begin Patch\n*** Delete File: link\n*** End Patch\n";
    for (tool, arguments) in [
        ("delete_file", json!({"path": "link"})),
        ("apply_patch", json!({"patch": patch})),
        (
            "apply_patch",
            json!({"patch": "diff --git a/link b/new\nrename from link\nrename to new\n"}),
        ),
    ] {
        let output = world.err(tool, &arguments);
        assert!(output.contains("'link' is a symbolic link, and only files can be"), "{output}");
        assert!(
            output.contains("name that: 'real'. To delete the link, use a command"),
            "{output}"
        );
    }
    let output = world.err("delete_file", &json!({"path": "dangling"}));
    assert!(output.contains("only files can be deleted. To delete the link, use"), "{output}");
    assert_eq!(world.read("link"), "one\n");
}

/// The limit holds for the shown entries, not for the examined ones.
#[test]
fn a_name_is_found_among_many_entries() {
    let world = ToolFixture::new();
    for n in 0..2_000 {
        world.write(&format!("big/f{n:04}"), "");
    }
    let list = |pattern: &str| world.ok("list_files", &json!({"path": "big", "pattern": pattern}));
    for n in [0, 999, 1_999] {
        assert_eq!(list(&format!("f{n:04}")), format!("big/f{n:04}"));
    }
    let all = list("*");
    assert!(all.starts_with("big/f0000\nbig/f0001\n"), "{all}");
    let end = "big/f0999\n[only the first 1000 are shown; narrow path or pattern]";
    assert!(all.contains(end), "{all}");
}

/// Fault T20.
#[test]
fn a_link_is_edited_through_inside_and_refused_outside() {
    let world = ToolFixture::new();
    world.write("d/real", "one\n");
    symlink("d/real", world.path.join("inside")).unwrap();
    let outside = world.path.parent().unwrap().join("outside");
    fs::write(&outside, "secret\n").unwrap();
    symlink(&outside, world.path.join("link")).unwrap();
    symlink("..", world.path.join("up")).unwrap();
    world.ok("edit_file", &json!({"path": "inside", "old_str": "one", "new_str": "two"}));
    assert_eq!(world.read("d/real"), "two\n");
    assert!(fs::symlink_metadata(world.path.join("inside")).unwrap().is_symlink());
    for path in ["link", "up/outside", "../outside", outside.to_str().unwrap()] {
        for (tool, arguments) in [
            ("read_file", json!({"path": path})),
            ("write_file", json!({"path": path, "content": "x"})),
            ("edit_file", json!({"path": path, "old_str": "secret", "new_str": "x"})),
        ] {
            let output = world.err(tool, &arguments);
            assert!(output.contains("outside the workspace"), "{tool} {path}: {output}");
        }
    }
    assert_eq!(fs::read_to_string(outside).unwrap(), "secret\n");
}

/// Fault T22: a call changes the content that it was authorized for.
#[test]
fn a_file_that_changes_between_authorization_and_edit_is_left_alone() {
    let world = ToolFixture::new();
    world.write("a", "one\n");
    let edit = json!({"path": "a", "old_str": "one", "new_str": "two"});
    let clear = world.authorize("edit_file", &edit).unwrap();
    world.write("a", "one, but another\n");
    let result = (clear.job)(&crate::kit::effect::scope());
    assert!(result.text.contains("'a' changed in the meantime"), "{}", result.text);
    assert_eq!(world.read("a"), "one, but another\n");
}

/// The digests show a resume whether an edit happened.
#[test]
fn the_intent_of_an_edit_names_the_digests_before_and_after() {
    let world = ToolFixture::new();
    world.write("a", "one\n");
    let edit = json!({"path": "a", "old_str": "one", "new_str": "two"});
    let image = |path: &str, before: Option<Arc<str>>, after: Option<Arc<str>>| CallIntent::Edit {
        files: [FileDigests { path: path.into(), before, after }].into(),
    };
    let intent = world.authorize("edit_file", &edit).unwrap().intent;
    assert_eq!(intent, image("a", Some(sha256(b"one\n")), Some(sha256(b"two\n"))));
    let new = json!({"path": "b", "content": "x"});
    let intent = world.authorize("write_file", &new).unwrap().intent;
    assert_eq!(intent, image("b", None, Some(sha256(b"x"))));
    assert_eq!(world.authorize("list_files", &json!({})).unwrap().intent, CallIntent::ReadOnly);
}

#[test]
fn folders_are_listed() {
    let world = ToolFixture::new();
    for path in ["b.rs", "a.txt", "d/c.rs", "d/e/f.rs", ".git/config"] {
        world.write(path, "");
    }
    assert_eq!(world.ok("list_files", &json!({})), ".git/\na.txt\nb.rs\nd/");
    let found = world.ok("list_files", &json!({"pattern": "*.rs", "recursive": true}));
    assert_eq!(found, "b.rs\nd/c.rs\nd/e/f.rs");
    assert!(world.err("list_files", &json!({"path": "x"})).contains("'x' does not exist"));
}
