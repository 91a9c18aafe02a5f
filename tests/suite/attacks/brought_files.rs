//! Attacks by files that this program itself brings into a workspace: by an undo, by a merge, by resuming a session.
//! Each file was harmless in its earlier place.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;

use super::next_run::{TestHome, command};

const PROGRAM: &str = env!("CARGO_BIN_EXE_architect");

/// A workspace, and a file that only code outside of the sandbox can make.
struct Workspace {
    home: TestHome,
    folder: PathBuf,
    canary: PathBuf,
}

impl Workspace {
    fn new() -> Self {
        let home = TestHome::new();
        let (folder, canary) = (home.path("w"), home.path("canary"));
        Self { home, folder, canary }
    }

    /// Makes a repository with a commit and this setting.
    fn with_repository(setting: &str) -> Self {
        let workspace = Self::new();
        fs::write(workspace.folder.join("a"), "a").unwrap();
        let name = ["-c", "user.name=n", "-c", "user.email=n@example.com"];
        workspace.git(&["init", "-q"]);
        workspace.git(&["add", "a"]);
        workspace.git(&[&name[..], &["commit", "-qm", "Begin"]].concat());
        let (key, value) = setting.split_once('=').unwrap();
        workspace.git(&["config", key, &value.replace("HERE", workspace.folder.to_str().unwrap())]);
        workspace
    }

    fn git(&self, args: &[&str]) {
        self.home.program("git", &self.folder).args(args).output().unwrap();
    }

    /// Returns the exit code, and the output for people.
    fn architect(&self, args: &[&str]) -> (i32, String) {
        let output = self.home.program(PROGRAM, &self.folder).args(args).output().unwrap();
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code().unwrap(), printed)
    }

    /// Runs commands of a model, one after the other.
    fn run(&self, lines: &[&str], options: &[&str]) {
        let canary = self.canary.to_str().unwrap();
        let calls: Vec<String> =
            lines.iter().map(|line| command(&line.replace("CANARY", canary))).collect();
        let output = self.home.run(&self.folder, &calls, options);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

/// The configuration is harmless until there is a repository around it, and is then replaced by a safe one. An undo
/// brings the configuration back, but not the rest of the repository, which isn't recorded.
#[test]
fn an_undo_makes_no_repository() {
    let workspace = Workspace::new();
    let config = r#"printf "[core]\n\tbare = false\n\tworktree = .\n\tfsmonitor = touch CANARY; false\n" > config"#;
    let rest = r#"for d in objects refs; do mkdir $d; echo "Signature: 8a477f597d28d172789f06886806bc55" > $d/CACHEDIR.TAG; done; (echo "ref: refs/heads/main"; head -c 18000000 /dev/zero | tr "\0" "\n") > HEAD"#;
    workspace.run(&[config, rest], &[]);
    let undo = ["undo", "--yes", "--force"];
    workspace.home.program(PROGRAM, &workspace.folder).args(undo).output().unwrap();
    assert!(workspace.folder.join("objects").exists());
    workspace.git(&["status"]);
    assert!(!workspace.canary.exists());
}

#[test]
fn a_merge_brings_nothing_that_git_would_run() {
    let hook = "mkdir -p lib/hooks; printf \"#!/bin/sh\\ntouch CANARY\\n\" > lib/hooks/post-checkout; chmod +x lib/hooks/post-checkout";
    let monitor = "mkdir tools; printf \"#!/bin/sh\\ntouch CANARY\\n\" > tools/m; chmod +x tools/m";
    for (setting, worktrees) in [
        ("core.hooksPath=tools/hooks", &[hook, "ln -s lib tools"][..]),
        ("core.fsmonitor=HERE/tools/m", &[monitor]),
    ] {
        let workspace = Workspace::with_repository(setting);
        let names: Vec<String> = (0..worktrees.len()).map(|index| format!("w{index}")).collect();
        for (name, line) in names.iter().zip(worktrees) {
            workspace.run(&[line], &["--worktree", name]);
        }
        for name in &names {
            let (code, printed) = workspace.architect(&["worktrees", "merge", name]);
            let is_named = printed.contains("denied") || printed.contains("protected");
            assert_eq!(code == 2, is_named, "{setting}: {printed}");
        }
        workspace.git(&["status"]);
        workspace.git(&["checkout", "-q"]);
        assert!(!workspace.canary.exists(), "{setting}");
    }
}

/// Git ignores a hook that can't be executed.
#[test]
fn a_merge_turns_no_hook_of_the_user_off() {
    for line in ["echo \"#\" >> hook", "chmod 644 hook"] {
        let workspace = Workspace::with_repository("user.name=n");
        let hook = workspace.folder.join("hook");
        fs::write(&hook, "#!/bin/sh\nexit 1\n").unwrap();
        fs::set_permissions(&hook, Permissions::from_mode(0o755)).unwrap();
        workspace.git(&["config", "user.email", "n@example.com"]);
        workspace.git(&["add", "hook"]);
        workspace.git(&["commit", "-qm", "Add a hook"]);
        symlink("../../hook", workspace.folder.join(".git/hooks/pre-commit")).unwrap();
        workspace.run(&[line], &["--worktree", "w0"]);
        let (code, printed) = workspace.architect(&["worktrees", "merge", "w0"]);
        assert!(code == 2 && printed.contains("sandbox denied"), "{line}: {code} {printed}");
        assert_eq!(fs::metadata(&hook).unwrap().mode() & 0o777, 0o755, "{line}");
        assert_eq!(fs::read_to_string(&hook).unwrap(), "#!/bin/sh\nexit 1\n", "{line}");
    }
}

/// The user's git would run the hook in the tree from which the run is isolated.
#[test]
fn an_isolated_run_writes_nothing_that_git_names_elsewhere() {
    for setting in ["core.hooksPath=tools/hooks", "core.hooksPath=HERE/build/hooks"] {
        let workspace = Workspace::with_repository(setting);
        let build = workspace.folder.join("build");
        fs::create_dir(&build).unwrap();
        let other =
            format!("git init -q {0}; mkdir {0}/.claude; touch {0}/.mcp.json", build.display());
        symlink("build", workspace.folder.join("tools")).unwrap();
        let hook = format!("{}/hooks/post-checkout", build.display());
        let line = format!(
            "mkdir {0}/hooks; printf \"#!/bin/sh\\ntouch CANARY\\n\" > {hook}; chmod +x {hook}",
            build.display()
        );
        let writable = format!("sandbox.writable=[\"{}\"]", build.display());
        workspace.run(&[&line, &other], &["--worktree", "w0", "--set", &writable]);
        workspace.git(&["checkout", "-q"]);
        assert!(!workspace.canary.exists(), "{setting}");
        // These files would steer other programs there.
        assert!(!build.join(".claude").exists() && !build.join(".mcp.json").exists());
    }
}

/// An address of the user's own may lead anywhere.
#[test]
fn an_undo_keeps_the_addresses_of_the_user() {
    let workspace = Workspace::with_repository("user.name=n");
    let origin = workspace.home.path("origin");
    workspace.git(&["init", "-q", "--bare", origin.to_str().unwrap()]);
    workspace.git(&["remote", "add", "origin", origin.to_str().unwrap()]);
    workspace.run(&["echo x > f"], &[]);
    assert_eq!(workspace.architect(&["undo", "--yes"]).0, 0);
    let config = fs::read_to_string(workspace.folder.join(".git/config")).unwrap();
    assert!(config.contains(origin.to_str().unwrap()), "{config}");
}

/// A command that can write the folder could have written the stored options.
#[test]
fn a_session_in_the_workspace_sets_no_program() {
    let workspace = Workspace::new();
    let store = ["--set", "sessions.dir=out"];
    let hook = format!(
        "hooks.session_start=[{{ name = \"h\", command = \"touch {}\", sandbox = \"off\" }}]",
        workspace.canary.display()
    );
    workspace.run(&["true"], &[&store[..], &["--set", &hook]].concat());
    fs::remove_file(&workspace.canary).expect("the user's own hook ran");
    let script = workspace.home.path("again.toml");
    fs::write(&script, "[[turn]]\ntext = \"done\"\n".repeat(3)).unwrap();
    let model = format!("scripted/{}", script.display());
    let (code, printed) = workspace.architect(
        &[&["resume", "last", "x", "--model", &model, "--mode", "yolo"], &store[..]].concat(),
    );
    assert!(code == 0 && printed.contains("hooks.session_start` is ignored"), "{printed}");
    assert!(!workspace.canary.exists());
}

/// A command of a later session can put a link in the place of an earlier workspace.
#[test]
fn no_session_follows_a_link_that_was_made_later() {
    let home = TestHome::new();
    let (sub, config) = (home.path("w/sub"), home.path("out"));
    fs::create_dir(&sub).unwrap();
    fs::create_dir(&config).unwrap();
    home.run(&sub, &[command("echo x > f"), command("rm f")], &[]);
    home.run(&home.path("w"), &[command("mv sub old; ln -s ../out sub")], &[]);
    let id = home.program(PROGRAM, &home.path("w")).args(["sessions", "--json"]).output();
    let listed: serde_json::Value = serde_json::from_slice(&id.unwrap().stdout).unwrap();
    let session = listed
        .as_array()
        .unwrap()
        .iter()
        .find(|it| it["workspace"].as_str().is_some_and(|path| path.ends_with("w/sub")));
    let id = session.unwrap()["session_id"].as_str().unwrap();
    let model = ["--model", "scripted/none.toml"];
    for args in [&["undo", id, "--yes", "--to", "0"][..], &["resume", id, "x", model[0], model[1]]]
    {
        let output = home.program(PROGRAM, &home.path("w")).args(args).output().unwrap();
        let printed = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{args:?}: {printed}");
        assert!(printed.contains("has become a link"), "{args:?}: {printed}");
    }
    assert_eq!(fs::read_dir(&config).unwrap().count(), 0);
}

/// A command could have changed the stored workspace of the session.
#[test]
fn an_undo_follows_no_session_to_another_workspace() {
    let workspace = Workspace::new();
    workspace.run(&["echo x > f"], &["--set", "sessions.dir=out"]);
    let other = workspace.home.path("other");
    fs::create_dir_all(other.join(".git")).unwrap();
    fs::rename(workspace.folder.join("out"), other.join("out")).unwrap();
    let undo = ["undo", "last", "--any-folder", "--yes", "--set", "sessions.dir=out"];
    let output = workspace.home.program(PROGRAM, &other).args(undo).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{printed}");
    assert!(printed.contains("commands may have written"), "{printed}");
    assert!(workspace.folder.join("f").exists());
}
