//! Forks that begin in a worktree, with the files of a record.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::fixture::{ANSWER, Project};
use crate::cli::undo::{Snapshot, snapshot};
use crate::kit::cli::CommandResult;

/// Two steps of the original session, with files that are not committed, not known to git, or ignored by it.
const ORIGINAL: &str = r#"
[[turn]]
calls = [{ name = "run_command", arguments = { command = "echo first >> a.txt; mkdir d; echo new > d/new; echo i > ignored; rm sub/s.txt; ln -s a.txt link; chmod 755 a.txt" } }]

[[turn]]
calls = [{ name = "run_command", arguments = { command = "echo second >> a.txt; rm -r d link; echo s > sub/s.txt; chmod 644 a.txt" } }]

[[turn]]
text = "Done."
"#;

/// The script of a fork after the first step.
const FORKED: &str = r#"
[[turn]]
text = "Not sent again."

[[turn]]
calls = [{ name = "run_command", arguments = { command = "cat a.txt d/new; echo forked > sub/forked" } }]

[[turn]]
text = "Done."
"#;

impl Project {
    fn recording(self) -> Self {
        let folder = self.cli.home().join(".config/architect");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("config.toml"), "[checkpoints]\nenabled = true\n").unwrap();
        self
    }

    /// Runs the original session. Returns its first step, as `fork` takes it.
    fn first_step(&self, args: &[&str]) -> String {
        let ran = self.run(ORIGINAL, args);
        assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
        let session = ran.json()["session_id"].as_str().unwrap().to_owned();
        let exported = self.cli.run(&["sessions", "export", &session]);
        let settled = exported.lines().into_iter().find(|line| !line["event"]["settled"].is_null());
        format!("{session}@{}", settled.unwrap()["seq"])
    }

    fn fork(&self, record: &str, script: &str, args: &[&str]) -> CommandResult {
        let model = self.cli.script_model(script);
        let fork = ["fork", record, "--files", "--model", &model, "--mode", "yolo"];
        let ran = self.cli.run(&[&fork, args].concat());
        assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
        ran
    }

    fn files(&self) -> Snapshot {
        let mut files = snapshot(&self.cli.path(""));
        files.retain(|path, _| !path.starts_with(".git"));
        files
    }
}

fn folder(result: &Value) -> PathBuf {
    result["worktree"]["folder"].as_str().unwrap().into()
}

fn read(folder: &Path, name: &str) -> String {
    fs::read_to_string(folder.join(name)).unwrap()
}

/// The files are those of the record, whatever their state in git. Only the fork's own changes are merged.
#[test]
fn a_fork_works_in_a_worktree_with_the_files_of_its_record() {
    let project = Project::new().recording();
    let record = project.first_step(&[]);
    project.git("commit -q -a -m later");
    let (files, user) = (project.files(), project.user_state());
    let result = project.fork(&record, FORKED, &["Go on.", "--json"]).json();
    assert_eq!((project.files(), project.user_state()), (files, user));
    let name = result["worktree"]["name"].as_str().unwrap();
    assert_eq!(result["worktree"]["branch"], format!("architect/{name}"));
    let tree = folder(&result);
    assert_eq!(read(&tree, "a.txt"), "one\ntwo\nthree\nfirst\n");
    assert_eq!((read(&tree, "d/new"), read(&tree, "ignored")), ("new\n".into(), "i\n".into()));
    assert_eq!(fs::read_link(tree.join("link")).unwrap(), Path::new("a.txt"));
    assert!(!tree.join("sub/s.txt").exists());
    assert_eq!(read(&tree, "sub/forked"), "forked\n");
    let listed = project.listed();
    assert_eq!(listed[0]["session_id"], result["session_id"]);
    let session = result["session_id"].as_str().unwrap();
    let shown = project.cli.run(&["sessions", "show", session]).out;
    assert!(shown.contains("It continues in another folder"), "{shown}");
    let merged = project.worktrees(&["merge", name]);
    assert_eq!(merged.code, 0, "{}", merged.err);
    assert!(
        merged.out.contains("  sub/forked\n") && !merged.out.contains("a.txt"),
        "{}",
        merged.out
    );
    assert_eq!(project.cli.read("a.txt"), "one\ntwo\nthree\nfirst\nsecond\n");
    assert!(!project.cli.path("d").exists() && project.cli.path("sub/s.txt").exists());
    project.assert_sound("after the merge");
}

/// Files that came with the record are not changes of the fork.
#[test]
fn a_fork_that_changes_nothing_has_no_changes() {
    let project = Project::new().recording();
    let record = project.first_step(&[]);
    let result = project.fork(&record, &ANSWER.repeat(2), &["Go on.", "--json"]).json();
    let worktree = &result["worktree"];
    assert_eq!((&worktree["kept"], &worktree["files_changed"]), (&false.into(), &0.into()));
    assert_eq!(worktree["uncommitted"], serde_json::json!([]));
}

/// A fork that does not run yet keeps its worktree. A resume uses it, and reports if it is gone.
#[test]
fn a_fork_that_waits_is_resumed_in_its_worktree() {
    for project in [Project::new(), Project::without_git()] {
        let project = project.recording();
        let record = project.first_step(&[]);
        let files = project.files();
        let fork = project.fork(&record, ANSWER, &["--only"]).out.trim().to_owned();
        // No clean-up removes the worktree as unused.
        assert_eq!(project.run(ANSWER, &["--worktree"]).code, 0);
        let listed = project.listed();
        assert_eq!(listed[0]["session_id"], fork.as_str());
        assert_eq!(listed[0]["changed"], false, "{listed:?}");
        let model = project.cli.script_model(FORKED);
        let resume = ["resume", &fork, "Go on.", "--model", &model, "--json", "--mode", "yolo"];
        let ran = project.cli.run(&resume);
        assert_eq!(ran.code, 0, "{}", ran.err);
        let tree = folder(&ran.json());
        assert_eq!(read(&tree, "a.txt"), "one\ntwo\nthree\nfirst\n");
        assert_eq!(read(&tree, "sub/forked"), "forked\n");
        assert_eq!(project.files(), files);
        let merged = project.worktrees(&["merge", listed[0]["name"].as_str().unwrap()]);
        assert_eq!((merged.code, project.cli.read("sub/forked")), (0, "forked\n".to_owned()));
        // A fork of the fork has the same workspace.
        let second = project.cli.run(&["fork", &fork, "--only"]).out;
        let removed = project.worktrees(&["rm", "--force", listed[0]["name"].as_str().unwrap()]);
        assert_eq!(removed.code, 0, "{}", removed.err);
        for session in [&*fork, second.trim()] {
            let ran = project.cli.run(&["resume", session, "More.", "--model", &model]);
            assert_eq!(ran.code, 3, "{}", ran.err);
            assert!(ran.err.contains("is gone"), "{}", ran.err);
        }
    }
}

/// The fork gets the original's work in its own worktree, up to the record.
#[test]
fn a_fork_of_a_session_in_a_worktree_brings_its_work_along() {
    for project in [Project::new(), Project::without_git()] {
        let project = project.recording();
        let record = project.first_step(&["--worktree", "first"]);
        let files = project.files();
        let result = project.fork(&record, FORKED, &["Go on.", "--json"]).json();
        assert_eq!(project.files(), files);
        let name = result["worktree"]["name"].as_str().unwrap();
        let merged = project.worktrees(&["merge", name]);
        assert_eq!(merged.code, 0, "{}", merged.err);
        assert_eq!(project.cli.read("a.txt"), "one\ntwo\nthree\nfirst\n");
        assert_eq!(project.cli.read("sub/forked"), "forked\n");
        assert!(!project.cli.path("sub/s.txt").exists());
        assert_eq!(project.listed().len(), 2);
    }
}

/// The workspace is a folder of the repository; the rest is as committed.
#[test]
fn a_fork_of_a_session_in_a_subfolder_restores_that_folder() {
    let project = Project::new().recording();
    let script = ORIGINAL.replace("echo first >> a.txt;", "").replace("; chmod 755 a.txt", "");
    let script = script.replace("rm sub/s.txt; ln -s a.txt link", "rm s.txt").replace("sub/", "");
    let script = script.replace("; chmod 644 a.txt", "").replace(" link", "");
    let folder = project.cli.path("sub");
    let ran = project.run(&script, &["--workspace", folder.to_str().unwrap()]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let session = ran.json()["session_id"].as_str().unwrap().to_owned();
    let exported = project.cli.run(&["sessions", "export", &session]);
    let settled = exported.lines().into_iter().find(|line| !line["event"]["settled"].is_null());
    let record = format!("{session}@{}", settled.unwrap()["seq"]);
    project.fork(&record, ANSWER, &["--only"]);
    let tree = PathBuf::from(project.listed()[0]["folder"].as_str().unwrap());
    assert_eq!(read(&tree, "sub/d/new"), "new\n");
    assert!(!tree.join("sub/s.txt").exists());
    assert_eq!(read(&tree, "a.txt"), "one\ntwo\nthree\n");
}
