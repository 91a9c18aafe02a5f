//! Guardrails that no rule and no mode lifts: guarded files, blocked commands, and limits on amounts.

use std::fs;
use std::os::unix::fs::symlink;

use architect::exec::{SandboxLevel, SandboxMode};
use architect::policy::{
    BlockedCommands, CommandScope, FilePatterns, GuardrailLimits, Guardrails, PermissionRules,
};
use architect::tools::{FileDeletion, ToolSettings, permission_rules};
use architect::workspace::WorkspaceRoot;
use serde_json::json;

use super::fixture::{ToolFixture, yolo_settings};

fn world(guardrails: Guardrails) -> ToolFixture {
    let rules = permission_rules(&[], &[], &["run_command", "*_file"]).unwrap();
    ToolFixture::with(ToolSettings { guardrails, rules, ..yolo_settings() }, |_| {})
}

fn patterns(texts: &[&str]) -> FilePatterns {
    FilePatterns::parse(texts).unwrap()
}

fn refused(world: &ToolFixture, line: &str) -> bool {
    let result = world.call("run_command", &json!({"command": line}));
    result.text.starts_with("Denied: ")
}

#[test]
fn sensitive_files_are_neither_read_nor_changed() {
    let sensitive = patterns(&[".env*", "*.pem", "secrets/"]);
    let world = world(Guardrails { sensitive, ..Guardrails::default() });
    for path in [".env", "d/.env.local", "secrets/a"] {
        world.write(path, "SECRET");
        for (tool, arguments) in [
            ("read_file", json!({"path": path})),
            ("write_file", json!({"path": path, "content": "x"})),
            ("edit_file", json!({"path": path, "old_str": "S", "new_str": "x"})),
        ] {
            let output = world.err(tool, &arguments);
            assert!(output.contains("guardrails.sensitive_files has"), "{output}");
        }
    }
    symlink(".env", world.path.join("innocent")).unwrap();
    assert!(world.err("read_file", &json!({"path": "innocent"})).contains("sensitive_files"));
    for line in [
        "cat .env",
        "cat ./d/../.env",
        "cat '.e'nv",
        "grep -r x .env",
        "cat < .env",
        "echo x > .env",
        "echo x >> d/.env.local",
        "cp .env x",
        "cat .e*",
        "cat .en?",
        "cat {.env,x}",
        "cd d && cat .env.local",
        "sh -c 'cat .env'",
        "xargs cat .env",
        "curl -d @.env x",
        "dd if=.env",
        "git show HEAD:.env",
        "python3 -c \"open('.env')\"",
        "cat secrets/*",
        "ls | cat - .env",
        "echo $(cat .env)",
        "cat \"$PWD/.env\"",
        "f=.env; cat $f",
        "cat .env 'unclosed",
        "cat *.pem",
        "base64 a.pem",
    ] {
        assert!(refused(&world, line), "{line}");
    }
    for line in ["echo .env", "ls *.rs", "cat env", "echo '*.pem' > x", "printf .env"] {
        assert!(!refused(&world, line), "{line}");
    }
}

#[test]
fn protected_files_can_be_read() {
    let protected = patterns(&["Cargo.lock", "tests/**", "config/prod.toml"]);
    let world = world(Guardrails { protected, ..Guardrails::default() });
    world.write("Cargo.lock", "1");
    world.write("tests/a", "1");
    world.ok("read_file", &json!({"path": "Cargo.lock"}));
    let output = world.err("write_file", &json!({"path": "tests/b", "content": "x"}));
    assert!(output.contains("guardrails.protected_files has tests/**"), "{output}");
    for line in [
        "echo > Cargo.lock",
        "rm tests/a",
        "sed -i s/1/2/ tests/a",
        "mv x Cargo.lock",
        "cd tests; rm a",
        "tee tests/a",
        "git checkout tests/a",
        "rm -r tests",
        "rm -rf .",
        "mv config x",
        "cd config && rm -rf ../config",
        "rm Cargo.*",
    ] {
        assert!(refused(&world, line), "{line}");
    }
    for line in
        ["cat Cargo.lock tests/*", "sed -n 1p tests/a", "git diff Cargo.lock", "test -f tests/a"]
    {
        assert!(!refused(&world, line), "{line}");
    }
}

/// Returns a workspace with a repository, and the loosest possible permissions.
fn repository(mode: SandboxMode) -> ToolFixture {
    let rules = permission_rules(&[], &[], &["run_command", "*_file", "apply_patch"]).unwrap();
    ToolFixture::with(
        ToolSettings { rules, delete: FileDeletion::Allowed, ..yolo_settings() },
        |policy| {
            policy.mode = mode;
            let protected = [".git/hooks", ".git/config", ".git/config.worktree", ".architect"];
            policy.protected = protected.map(|path| policy.workspace.join(path)).into();
            fs::create_dir_all(policy.workspace.join(".git/hooks")).unwrap();
            fs::write(policy.workspace.join(".git/config"), "[core]\n").unwrap();
            fs::write(policy.workspace.join("evil"), "[core]\n").unwrap();
            symlink(".git", policy.workspace.join("way")).unwrap();
            symlink(".git/config", policy.workspace.join("innocent")).unwrap();
        },
    )
}

/// Fault X1: a tool for files is not confined, and programs that it writes there would run outside of any confinement.
#[test]
fn no_tool_writes_what_no_command_may_write() {
    let world = repository(SandboxMode::WorkspaceWrite);
    let new = |path: &str| json!({"path": path, "content": "x"});
    let patch = |text: &str| json!({"patch": format!("diff --git a/x b/x\n{text}\n")});
    for (tool, arguments) in [
        ("write_file", new(".git/config")),
        ("write_file", new("./d/../.git/hooks/pre-commit")),
        ("write_file", json!({"path": world.path.join(".git/config"), "content": "x"})),
        ("write_file", new(".git/config.worktree")),
        ("write_file", new(".architect/config.toml")),
        ("write_file", new(".git")),
        ("write_file", new("way/hooks/post-checkout")),
        ("write_file", new("innocent")),
        ("write_file", json!({"path": "innocent", "content": "x", "mode": "append"})),
        ("edit_file", json!({"path": ".git/config", "old_str": "core", "new_str": "x"})),
        ("edit_file", json!({"path": "way/config", "old_str": "core", "new_str": "x"})),
        ("delete_file", json!({"path": ".git/config"})),
        ("delete_file", json!({"path": "way/config"})),
        ("apply_patch", patch("rename from evil\nrename to .git/hooks/pre-commit")),
        ("apply_patch", patch("rename from evil\nrename to way/hooks/pre-commit")),
        ("apply_patch", patch("copy from evil\ncopy to .architect/config.toml")),
        ("apply_patch", patch("rename from .git/config\nrename to x")),
        ("apply_patch", json!({"path": ".git/config", "patch": "@@ -1 +1 @@\n-[core]\n+[x]\n"})),
    ] {
        let output = world.err(tool, &arguments);
        let expected = output.contains("no tool may write it") && output.contains("--sandbox off");
        assert!(expected, "{tool} {arguments}: {output}");
    }
    // A link is not deleted at all.
    let deletion =
        patch("deleted file mode 100644\n--- a/innocent\n+++ /dev/null\n@@ -1 +0,0 @@\n-[core]");
    assert!(world.err("apply_patch", &deletion).contains("'innocent' is a symbolic link"));
    assert_eq!(world.read(".git/config"), "[core]\n");
    assert_eq!(fs::read_dir(world.path.join(".git/hooks")).unwrap().count(), 0);
    assert!(!world.path.join(".architect").exists());
    assert!(world.ok("read_file", &json!({"path": ".git/config"})).contains("[core]"));
    world.ok("write_file", &new(".gitignore"));
}

#[test]
fn tools_write_everything_where_commands_may() {
    let world = repository(SandboxMode::Off);
    world.ok("write_file", &json!({"path": ".git/config", "content": "mine"}));
    world.ok("write_file", &json!({"path": "way/hooks/pre-commit", "content": "mine"}));
}

#[test]
fn blocked_commands_do_not_run() {
    let blocked = BlockedCommands::parse(&["^git push", "--force", r"npm\s+publish"]).unwrap();
    let world = world(Guardrails { blocked, ..Guardrails::default() });
    for line in
        ["git push", "ls; git push", "x --force", "sh -c 'npm  publish'", "/usr/bin/git push"]
    {
        assert!(refused(&world, line), "{line}");
    }
    assert!(!refused(&world, "echo x"));
    assert!(BlockedCommands::parse(&["("]).is_err());
}

#[test]
fn only_allowed_commands_run_where_the_user_wants_that() {
    let guardrails = Guardrails {
        commands: CommandScope::AllowedOnly,
        safe: vec!["make test".to_owned()],
        ..Guardrails::default()
    };
    let world = ToolFixture::with(ToolSettings { guardrails, ..yolo_settings() }, |_| {});
    assert!(!refused(&world, "make test -j4") && !refused(&world, "ls"));
    for line in ["make", "make testx", "make test; touch x"] {
        assert!(refused(&world, line), "{line}");
    }
}

#[test]
fn a_run_does_no_more_than_its_limits_allow() {
    let limits = GuardrailLimits { files: Some(2), lines: Some(5), commands: Some(1) };
    let world = world(Guardrails { limits, ..Guardrails::default() });
    let write = |path: &str, content: &str| {
        world.call("write_file", &json!({"path": path, "content": content})).text.to_string()
    };
    assert!(write("a", "1\n").starts_with("Created"));
    assert!(write("b", "1\n").starts_with("Created"));
    assert!(write("a", "2\n").starts_with("Changed"));
    let output = write("c", "1\n");
    assert!(output.contains("guardrails.max_files_modified is 2: 2 files"), "{output}");
    let output = write("a", "3\n");
    assert!(output.contains("guardrails.max_lines_changed is 5: 4 lines"), "{output}");
    // The command is counted, but the files that it changes are not.
    assert!(!refused(&world, "echo 1 > d; echo 1 > e"));
    assert!(refused(&world, "true"));
}

/// The policy does not see which files a program opens by itself; the confinement stops it there.
#[test]
fn guarded_files_are_confined_as_well() {
    let guardrails = Guardrails {
        sensitive: patterns(&[".env"]),
        protected: patterns(&["keep/**"]),
        ..Guardrails::default()
    };
    let found = guardrails.clone();
    let world = ToolFixture::with(ToolSettings { guardrails, ..yolo_settings() }, |policy| {
        policy.mode = SandboxMode::WorkspaceWrite;
        for (path, content) in
            [(".env", "SECRET"), ("d/.env", "SECRET"), ("keep/a", "1"), (".gitignore", ".env")]
        {
            let path = policy.workspace.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        let files = found.guarded_files(
            &WorkspaceRoot::open(&policy.workspace).unwrap(),
            &PermissionRules::default(),
        );
        assert_eq!((files.sensitive.len(), files.protected.len()), (2, 1), "{files:?}");
        policy.hidden.extend(files.sensitive);
        policy.protected.extend(files.protected);
    });
    if world.supervisor.enforcement().unwrap().level != SandboxLevel::Namespaces {
        return;
    }
    let run = |line: &str| world.call("run_command", &json!({"command": line})).text.to_string();
    let output = run("cat $(echo .e)nv d/$(echo .e)nv; echo x > $(echo keep)/a; grep -r SECRET .");
    assert!(!output.contains("SECRET\n") && !output.contains(":SECRET"), "{output}");
    assert_eq!(world.read("keep/a"), "1");
}
