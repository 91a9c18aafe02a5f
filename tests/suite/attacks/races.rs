//! Attacks on the time between a check and the checked action: a folder is swapped for a link while a tool uses it.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use architect::exec::SandboxMode;
use architect::policy::{FilePatterns, Guardrails};
use architect::tools::{ToolSettings, permission_rules};
use serde_json::{Value, json};

use crate::tools::fixture::{ToolFixture, yolo_settings};

/// Ends the swapping, also when a call panics: the scope waits for its threads.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Makes a call again and again while the folder `d` of the workspace alternates between a folder and a link to another
/// one.
fn swapping(world: &ToolFixture, target: &str, tool: &str, arguments: &Value) -> Vec<String> {
    let end = AtomicBool::new(false);
    let path = &world.path;
    fs::create_dir_all(path.join("plain")).unwrap();
    fs::write(path.join("plain/f"), "plain\n").unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            while !end.load(Ordering::Relaxed) {
                let _ = fs::rename(path.join("plain"), path.join("d"));
                let _ = fs::rename(path.join("d"), path.join("plain"));
                let _ = symlink(target, path.join("d"));
                let _ = fs::remove_file(path.join("d"));
            }
        });
        let _end = StopOnDrop(&end);
        let begun = Instant::now();
        let mut texts = Vec::new();
        while begun.elapsed() < Duration::from_millis(1500) {
            texts.push(world.call(tool, arguments).text.to_string());
        }
        texts
    })
}

/// The content of everything below a folder.
fn contents(folder: &std::path::Path) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        if entry.path().is_dir() {
            all.extend(contents(&entry.path()));
        } else {
            let content = fs::read(entry.path()).unwrap_or_default();
            let name = entry.path().display().to_string();
            all.push((name, String::from_utf8_lossy(&content).into_owned()));
        }
    }
    all.sort();
    all
}

const PATCH: &str = "--- /dev/null\n+++ b/d/made\n@@ -0,0 +1 @@\n+x\n";

#[test]
fn no_swapped_folder_leads_a_tool_into_a_repository() {
    for (tool, arguments) in [
        ("write_file", json!({"path": "d/config", "content": "evil"})),
        ("write_file", json!({"path": "d/x/y/z", "content": "evil"})),
        ("edit_file", json!({"path": "d/f", "old_str": "plain", "new_str": "evil"})),
        ("apply_patch", json!({"patch": PATCH})),
        ("delete_file", json!({"path": "d/f"})),
    ] {
        let settings =
            ToolSettings { delete: architect::tools::FileDeletion::Allowed, ..yolo_settings() };
        let world = ToolFixture::with(settings, |policy| policy.mode = SandboxMode::WorkspaceWrite);
        for file in ["HEAD", "config", "f", "objects/o", "refs/r"] {
            world.write(&format!(".git/{file}"), "plain\n");
        }
        let before = contents(&world.path.join(".git"));
        swapping(&world, ".git", tool, &arguments);
        assert_eq!(contents(&world.path.join(".git")), before, "{tool}");
    }
}

#[test]
fn no_swapped_folder_leads_a_tool_to_guarded_files() {
    let guarded = || {
        let parse = |texts: &[&str]| FilePatterns::parse(texts).unwrap();
        let guardrails = Guardrails {
            protected: parse(&["kept/**"]),
            sensitive: parse(&["secret/**"]),
            ..Guardrails::default()
        };
        let rules = permission_rules(&["*(denied/**)"], &[], &["run_command", "*_file"]).unwrap();
        ToolFixture::with(ToolSettings { guardrails, rules, ..yolo_settings() }, |_| {})
    };
    for target in ["kept", "secret", "denied"] {
        for (tool, arguments) in [
            ("write_file", json!({"path": "d/new", "content": "evil"})),
            ("edit_file", json!({"path": "d/f", "old_str": "canary", "new_str": "evil"})),
            ("apply_patch", json!({"patch": PATCH})),
            ("read_file", json!({"path": "d/f"})),
            ("grep", json!({"text": "canary", "path": "d"})),
        ] {
            let reads = ["read_file", "grep"].contains(&tool);
            if reads && target == "kept" {
                continue;
            }
            let world = guarded();
            world.write(&format!("{target}/f"), "canary\n");
            let texts = swapping(&world, target, tool, &arguments);
            let left = contents(&world.path.join(target));
            assert_eq!(left.len(), 1, "{tool} {target}: {left:?}");
            assert_eq!(left[0].1, "canary\n", "{tool} {target}");
            let is_leak = |text: &String| text.contains("canary\n") || text.ends_with("canary");
            let leak = texts.iter().find(|text| reads && is_leak(text));
            assert_eq!(leak, None, "{tool} {target}");
        }
    }
}

/// The contents of files are read by the handle of the workspace; the names of folders are listed by their paths.
#[test]
fn no_swapped_folder_leads_a_search_outside() {
    let world = ToolFixture::with(yolo_settings(), |_| {});
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("canary"), "canary\n").unwrap();
    let target = outside.path().display().to_string();
    for (tool, arguments) in [
        ("find_files", json!({"pattern": "*", "path": "d"})),
        ("find_files", json!({"pattern": "*"})),
        ("grep", json!({"text": "a"})),
        ("list_files", json!({"path": "d"})),
    ] {
        let finds = |text: &String| text.contains("/f") || text.contains("f ");
        let (begun, mut texts) = (Instant::now(), Vec::new());
        while !texts.iter().any(finds) {
            assert!(begun.elapsed() < Duration::from_secs(30), "{tool}: {texts:?}");
            texts.extend(swapping(&world, &target, tool, &arguments));
        }
        for text in texts {
            assert!(!text.contains("canary"), "{tool}: {text}");
        }
    }
}

/// Names are listed by path, so the found files are looked up again in the folder that was opened at the start.
#[test]
fn no_names_are_listed_from_behind_a_link_that_replaces_a_folder() {
    let world = ToolFixture::new();
    let beside = |name: &str| world.path.parent().unwrap().join(name);
    world.write("d/f", "");
    fs::create_dir_all(beside("outside/d")).unwrap();
    for name in ["d/f", "d/secret", "secret"] {
        fs::write(beside("outside").join(name), "").unwrap();
    }
    fs::rename(&world.path, beside("moved")).unwrap();
    symlink(beside("outside"), &world.path).unwrap();
    for path in [".", "d"] {
        for tool in ["find_files", "list_files"] {
            let found = world.ok(tool, &json!({"pattern": "*", "path": path}));
            assert!(!found.contains("secret"), "{tool} {path}: {found}");
        }
    }
}
