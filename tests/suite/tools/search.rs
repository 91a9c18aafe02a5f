//! Searching files by their content and by their names.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::time::{Duration, Instant};

use architect::policy::{FilePatterns, Guardrails};
use architect::tools::{ToolSettings, permission_rules};
use serde_json::json;

use super::fixture::{ToolFixture, yolo_settings};

#[test]
fn lines_are_found_with_what_stands_around_them() {
    let world = ToolFixture::new();
    world.write("src/a.rs", "one\ntwo\nfn main() {\n  x\n}\nlast\n");
    world.write("b.txt", "fn other\n");
    let output = world.ok("search_code", &json!({"pattern": r"fn \w+", "context_lines": 1}));
    assert_eq!(output, "b.txt\n1:fn other\n\nsrc/a.rs\n2-two\n3:fn main() {\n4-  x");
    let output = world.ok("search_code", &json!({"pattern": "FN", "case_sensitive": false, "file_pattern": "*.rs", "context_lines": 0}));
    assert_eq!(output, "src/a.rs\n3:fn main() {");
    let output = world.ok("search_code", &json!({"pattern": "fn", "path": "src"}));
    assert!(output.starts_with("src/a.rs\n"), "{output}");
    assert_eq!(world.ok("search_code", &json!({"pattern": "nothing"})), "No matches.");
    let output = world.err("search_code", &json!({"pattern": "(a{100}){1000}b"}));
    assert!(output.contains("exceeds size limit"), "{output}");
    let output = world.err("search_code", &json!({"pattern": "("}));
    assert!(
        output.contains("unclosed group")
            && output.ends_with("To search for literal text, use grep."),
        "{output}"
    );
    assert!(
        world
            .err("search_code", &json!({"pattern": "x", "path": "none"}))
            .contains("'none' does not exist")
    );
}

#[test]
fn grep_searches_for_its_text_literally() {
    let world = ToolFixture::new();
    world.write("a", "x.y(\nxay(\n");
    assert_eq!(world.ok("grep", &json!({"text": "x.y("})), "a\n1:x.y(");
    assert_eq!(world.ok("grep", &json!({"text": "X.Y(", "case_sensitive": false})), "a\n1:x.y(");
    world.write("many", "hit\n".repeat(100));
    let output = world.ok("grep", &json!({"text": "hit", "max_results": 2}));
    assert_eq!(
        output,
        "many\n1:hit\n2:hit\n[2 of 100 matches in 1 files are shown; narrow the search, or raise max_results]"
    );
}

#[test]
fn files_are_found_by_name_and_by_path() {
    let world = ToolFixture::new();
    for path in ["a.rs", "src/b.rs", "src/d/c.rs", "src/d/x.py", ".github/w.yml"] {
        world.write(path, "");
    }
    let find = |pattern: &str| world.ok("find_files", &json!({"pattern": pattern}));
    assert_eq!(find("*.rs"), "a.rs\nsrc/b.rs\nsrc/d/c.rs");
    assert_eq!(find("src/**/*.rs"), "src/b.rs\nsrc/d/c.rs");
    assert_eq!(find("*.yml"), ".github/w.yml");
    assert_eq!(find("*.go"), "No files.");
    let below = world.ok("find_files", &json!({"pattern": "d/*.py", "path": "src"}));
    assert_eq!(below, "src/d/x.py");
}

/// Faults T23, R6, R7, R12: ignored, binary and special files and links are left out, and nothing waits.
#[test]
fn only_text_of_the_project_is_searched() {
    let world = ToolFixture::new();
    world.write(".gitignore", "target/\n*.log\n");
    world.write("target/a", "hit");
    world.write("x.log", "hit");
    world.write(".git/config", "hit");
    world.write("binary", b"hit\0\n");
    world.write("latin", b"caf\xe9 hit\n");
    let wide: Vec<u8> = "\u{feff}wide hit\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    world.write("wide", wide);
    assert!(Command::new("mkfifo").arg(world.path.join("pipe")).status().unwrap().success());
    symlink("/etc", world.path.join("etc")).unwrap();
    symlink("loop", world.path.join("loop")).unwrap();
    symlink("/dev/zero", world.path.join("zero")).unwrap();
    let begun = Instant::now();
    let output = world.ok("grep", &json!({"text": "hit"}));
    assert_eq!(output, "latin\n1:caf\u{fffd} hit\n\nwide\n1:wide hit");
    assert!(
        world
            .err("grep", &json!({"text": "root", "path": "etc"}))
            .contains("outside the workspace")
    );
    assert!(begun.elapsed() < Duration::from_secs(5));
}

/// A line that is longer than the memory for a search.
#[test]
fn a_file_that_can_not_be_searched_is_named() {
    let world = ToolFixture::new();
    world.write("data.json", [vec![b'x'; 80 << 20], b"hit\n".to_vec()].concat());
    let output = world.ok("grep", &json!({"text": "hit"}));
    let note = "[1 file could not be searched, e.g. data.json: ";
    assert!(output.starts_with(&format!("No matches.\n{note}")), "{output}");
    world.write("a", "hit\n");
    let output = world.ok("grep", &json!({"text": "hit"}));
    assert!(output.starts_with("a\n1:hit\n") && output.contains(note), "{output}");
}

/// The walk opens ignore files by itself, and a pipe without a writer would block it for ever.
#[test]
fn ignore_files_that_can_t_be_read_block_no_search() {
    let pipe = |world: &ToolFixture, name: &str| {
        world.write("open", "hit\n");
        fs::create_dir_all(world.path.join(name).parent().unwrap()).unwrap();
        assert!(Command::new("mkfifo").arg(world.path.join(name)).status().unwrap().success());
    };
    for name in [".gitignore", ".git/info/exclude", "d/.ignore"] {
        let world = ToolFixture::new();
        pipe(&world, name);
        assert_eq!(world.ok("grep", &json!({"text": "hit"})), "open\n1:hit", "{name}");
        assert_eq!(world.ok("find_files", &json!({"pattern": "o*"})), "open", "{name}");
    }
}

/// The exclude file of the workspace's repository holds; a `.git` file leads a search nowhere.
#[test]
fn an_exclude_file_is_read_in_the_workspace_alone() {
    let world = ToolFixture::new();
    for path in ["mine.txt", "open.txt", "far/info/exclude"] {
        world.write(path, "hit\n");
    }
    world.write(".git/info/exclude", "mine.txt\n");
    let far = world.path.join("far");
    assert!(Command::new("mkfifo").arg(far.join("commondir")).status().unwrap().success());
    world.write("sub/.git", format!("gitdir: {}\n", far.display()));
    world.write("sub/a.txt", "");
    let found = world.ok("find_files", &json!({"pattern": "*.txt"}));
    assert_eq!(found, "open.txt\nsub/a.txt");
    assert_eq!(world.ok("find_files", &json!({"pattern": "*.txt", "path": "sub"})), "sub/a.txt");
}

/// A link in the requested path is followed inside the workspace, and rules hold for its target.
#[test]
fn files_behind_a_requested_link_are_found_unless_they_are_guarded() {
    let guardrails = Guardrails {
        sensitive: FilePatterns::parse(&["private/**"]).unwrap(),
        ..Guardrails::default()
    };
    let world = ToolFixture::with(ToolSettings { guardrails, ..yolo_settings() }, |_| {});
    world.write("src/d/a", "");
    world.write("private/a", "");
    for (target, name) in [("src", "l"), ("private", "p")] {
        symlink(target, world.path.join(name)).unwrap();
    }
    let find = |path: &str| world.call("find_files", &json!({"pattern": "a", "path": path})).text;
    assert_eq!(find("l").to_string(), "l/d/a");
    assert!(!find("p").to_string().contains("p/a"), "{}", find("p"));
}

#[test]
fn guarded_files_are_not_searched() {
    let sensitive = FilePatterns::parse(&[".env"]).unwrap();
    let guardrails = Guardrails { sensitive, ..Guardrails::default() };
    let rules = permission_rules(&["read_file(private/**)"], &[], &[]).unwrap();
    let world = ToolFixture::with(ToolSettings { guardrails, rules, ..yolo_settings() }, |_| {});
    for path in [".env", "d/.env", "private/a", "open"] {
        world.write(path, "hit\n");
    }
    assert_eq!(world.ok("grep", &json!({"text": "hit"})), "open\n1:hit");
    assert_eq!(world.ok("search_code", &json!({"pattern": "h.t"})), "open\n1:hit");
    assert!(world.err("grep", &json!({"text": "hit", "path": ".env"})).contains("sensitive_files"));
    symlink(".env", world.path.join("plain")).unwrap();
    assert!(
        world.err("grep", &json!({"text": "hit", "path": "plain"})).contains("sensitive_files")
    );
}

/// Faults T23, R4: an expression that is expensive for backtracking engines, and many files.
#[test]
fn a_search_takes_little_time() {
    let world = ToolFixture::new();
    world.write("hard", format!("{}\n", "a".repeat(100_000)));
    for folder in 0..50 {
        for file in 0..100 {
            world.write(&format!("d{folder}/f{file}"), "text\n");
        }
    }
    let begun = Instant::now();
    let output = world.ok("search_code", &json!({"pattern": "(a+)+$b|^(a|aa)+c"}));
    assert_eq!(output, "No matches.");
    let output = world.ok("grep", &json!({"text": "text"}));
    assert!(
        output.starts_with("d0/f0\n1:text\n")
            && output.contains("[30 of 5000 matches in 5000 files"),
        "{output}"
    );
    assert!(begun.elapsed() < Duration::from_secs(10));
    fs::write(world.path.join("line"), vec![b'x'; 3_000_000]).unwrap();
    let output = world.ok("grep", &json!({"text": "xxx", "path": "line"}));
    assert!(output.len() < 600, "{}", output.len());
}

/// Folders that are generated are left out, unless they are asked for.
#[test]
fn dependencies_are_searched_only_when_they_are_named() {
    let world = ToolFixture::new();
    for path in ["src/a.js", "node_modules/p/b.js", "rust/target/c.js", ".venv/d.js", "target/e.js"]
    {
        world.write(path, "needle\n");
    }
    world.write("rust/Cargo.toml", "");
    for (tool, arguments) in
        [("grep", json!({"text": "needle"})), ("find_files", json!({"pattern": "*.js"}))]
    {
        let output = world.ok(tool, &arguments);
        assert!(output.contains("src/a.js") && output.contains("target/e.js"), "{output}");
        for left_out in ["b.js", "c.js", "d.js"] {
            assert!(!output.contains(left_out), "{tool}: {output}");
        }
    }
    for (path, file) in [("node_modules", "b.js"), ("rust/target", "c.js"), (".venv", "d.js")] {
        assert!(world.ok("grep", &json!({"text": "needle", "path": path})).contains(file));
        assert!(world.ok("find_files", &json!({"pattern": "*.js", "path": path})).contains(file));
    }
}
