//! A patch is applied as a whole or not at all, and never outside the workspace.
#![no_main]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use architect::types::ToolCall;
use architect_fuzz::ToolFixture;

thread_local!(static FIXTURE: ToolFixture = ToolFixture::new());

const FILES: [(&str, &[u8]); 4] = [
    ("a", b"1\n2\n3\n4\n5\n6\n7\n8\n"),
    ("b", b"x\r\ny\r\nz\r\n"),
    ("d/c", b"no end of line"),
    ("e", b""),
];

/// Everything below a folder; folders have no content.
fn files(folder: &Path) -> BTreeMap<String, Option<Vec<u8>>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            found.extend(
                files(&path).into_iter().map(|(inner, text)| (format!("{name}/{inner}"), text)),
            );
        } else {
            found.insert(name, fs::read(&path).ok());
        }
    }
    found
}

fn reset(workspace: &Path) {
    for entry in fs::read_dir(workspace).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
    }
    fs::create_dir(workspace.join("d")).unwrap();
    for (name, text) in FILES {
        fs::write(workspace.join(name), text).unwrap();
    }
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Ok(patch) = std::str::from_utf8(data) else { return };
    FIXTURE.with(|fixture| {
        reset(&fixture.path);
        let before = files(&fixture.path);
        let outside = fs::read_dir(fixture.path.parent().unwrap()).unwrap().count();
        let arguments = serde_json::json!({"patch": patch}).to_string();
        let (is_ok, text) = fixture.call(&ToolCall::new("c".into(), "apply_patch", &arguments));
        assert!(!text.is_empty());
        let after = files(&fixture.path);
        assert!(is_ok || before == after, "refused, and yet it changed something: {text}");
        assert_eq!(fs::read_dir(fixture.path.parent().unwrap()).unwrap().count(), outside);
    });
});
