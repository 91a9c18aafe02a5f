//! The changes since a commit, found without running anything of the workspace.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use architect::app::context::{DiffError, WorkspaceDiff, diff_since, find_git};
use architect::exec::{
    NetworkAccess, SandboxMode, SandboxPolicy, Supervisor, VariableFilter, clean_environment,
};
use architect::port::CancellationToken;
use architect::workspace::WorkspaceRoot;
use tempfile::TempDir;

/// A repository with one commit, and a folder for the marks of its traps.
struct TestRepo {
    folder: TempDir,
}

impl TestRepo {
    fn new() -> Self {
        let repo = Self { folder: tempfile::tempdir().unwrap() };
        fs::create_dir_all(repo.at("repo/src")).unwrap();
        repo.git(&["init", "-q", "-b", "main"]);
        repo.put("repo/a.txt", "one\n");
        repo.put("repo/src/b.txt", "two\n");
        repo.commit("first");
        repo
    }

    fn at(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    fn put(&self, path: &str, text: &str) {
        fs::write(self.at(path), text).unwrap();
    }

    fn git(&self, arguments: &[&str]) {
        let git = Command::new("git")
            .args(["-c", "user.name=x", "-c", "user.email=x@example.com"])
            .args(arguments)
            .current_dir(self.at("repo"))
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .output()
            .unwrap();
        assert!(git.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&git.stderr));
    }

    fn commit(&self, message: &str) {
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "-m", message]);
    }

    /// Returns a program that leaves a mark when it runs.
    fn plant_trap(&self, name: &str) -> String {
        let path = self.at(&format!("trap-{name}"));
        fs::write(
            &path,
            format!("#!/bin/sh\n: > '{}'\nexit 1\n", self.at(&format!("sprung-{name}")).display()),
        )
        .unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn trap_ran(&self) -> Vec<String> {
        let names = fs::read_dir(self.folder.path()).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.filter(|name| name.starts_with("sprung-")).collect();
        names.sort();
        names
    }

    /// Computes the changes without confinement, so that traps would be sprung.
    fn since(&self, workspace: &str, reference: &str) -> Result<WorkspaceDiff, DiffError> {
        self.since_under(workspace, reference, &SandboxPolicy::off(self.at(workspace)))
    }

    fn since_under(
        &self,
        workspace: &str,
        reference: &str,
        policy: &SandboxPolicy,
    ) -> Result<WorkspaceDiff, DiffError> {
        let path = self.at(workspace);
        let temp = self.at("temp");
        fs::create_dir_all(&temp).unwrap();
        let policy = SandboxPolicy { temp, ..policy.clone() };
        // Variables of a git process that called the program must not redirect the comparison.
        let engine = std::env::vars_os()
            .chain([("GIT_INDEX_FILE".into(), "/nowhere".into()), ("GIT_DIR".into(), "/".into())]);
        let env =
            clean_environment(engine, &VariableFilter { rule: &|_| None }, self.folder.path());
        let supervisor = Supervisor::with_program(env!("CARGO_BIN_EXE_architect"), policy, env);
        let git = find_git(&std::env::var_os("PATH").unwrap()).unwrap();
        diff_since(
            &git,
            &supervisor,
            &WorkspaceRoot::open(path).unwrap(),
            reference,
            &CancellationToken::new(),
        )
    }
}

fn added(changes: &WorkspaceDiff) -> Vec<&str> {
    let added = |line: &&str| line.starts_with('+') && !line.starts_with("+++");
    changes.patch.lines().filter(added).collect()
}

#[test]
fn a_reference_is_never_an_option() {
    let repo = TestRepo::new();
    repo.git(&["tag", "v1.0"]);
    for good in ["HEAD", "main", "v1.0^{}", "@"] {
        assert_eq!(repo.since("repo", good).unwrap().since, good);
    }
    for bad in ["", "-p", "--output=x", "a b", "a\nb", "\u{1}"] {
        assert!(matches!(repo.since("repo", bad), Err(DiffError::InvalidReference(_))), "{bad}");
    }
}

#[test]
fn committed_and_uncommitted_changes_are_reported() {
    let repo = TestRepo::new();
    repo.put("repo/a.txt", "one\nmore\n");
    repo.commit("second");
    repo.put("repo/src/b.txt", "two\nyet more\n");
    assert_eq!(added(&repo.since("repo", "HEAD~1").unwrap()), ["+more", "+yet more"]);
    assert_eq!(added(&repo.since("repo", "main").unwrap()), ["+yet more"]);
    // A workspace that is a part of a repository has its own changes, by its own paths.
    repo.put("repo/new.txt", "");
    repo.put("repo/src/new.txt", "");
    repo.put("repo/.gitignore", "old.txt\n");
    repo.put("repo/old.txt", "");
    assert_eq!(repo.since("repo", "main").unwrap().untracked, ".gitignore\nnew.txt\nsrc/new.txt\n");
    let part = repo.since("repo/src", "HEAD~1").unwrap();
    assert_eq!(part.untracked, "new.txt\n");
    assert_eq!(added(&part), ["+yet more"]);
    assert!(part.patch.contains("+++ b/b.txt"), "{}", part.patch);
}

#[test]
fn an_unknown_commit_and_a_folder_without_repository_are_errors() {
    let repo = TestRepo::new();
    assert!(matches!(repo.since("repo", "nothing"), Err(DiffError::UnknownCommit(_))));
    assert!(matches!(repo.since("repo", "HEAD:a.txt"), Err(DiffError::UnknownCommit(_))));
    fs::remove_dir_all(repo.at("repo/.git")).unwrap();
    assert!(matches!(repo.since("repo", "HEAD"), Err(DiffError::NoRepository(_))));
}

#[test]
fn a_confined_git_reports_the_same_changes() {
    let repo = TestRepo::new();
    repo.put("repo/a.txt", "one\nmore\n");
    let off = SandboxPolicy::off(repo.at("repo"));
    let policy = SandboxPolicy { mode: SandboxMode::ReadOnly, network: NetworkAccess::Off, ..off };
    assert_eq!(added(&repo.since_under("repo", "HEAD", &policy).unwrap()), ["+more"]);
}

#[test]
fn a_long_patch_loses_its_middle() {
    let repo = TestRepo::new();
    repo.put("repo/a.txt", &"a line that is new\n".repeat(20_000));
    let changes = repo.since("repo", "HEAD").unwrap();
    assert!(changes.omitted_bytes > 200_000 && changes.patch.len() < 70_000);
    assert!(changes.patch.contains("bytes omitted ...]"));
}

/// Fault X5.
#[test]
fn nothing_that_the_repository_names_is_run() {
    let repo = TestRepo::new();
    repo.put(
        "repo/.gitattributes",
        "a.txt filter=one diff=text\nsrc/b.txt filter=p diff=ext\nc.txt filter=two\n",
    );
    repo.put("repo/c.txt", "three\n");
    repo.commit("second");
    repo.git(&["config", "core.fsmonitor", &repo.plant_trap("monitor")]);
    repo.git(&["config", "diff.external", &repo.plant_trap("external")]);
    repo.git(&["config", "diff.ext.command", &repo.plant_trap("driver")]);
    repo.git(&["config", "diff.text.textconv", &repo.plant_trap("textconv")]);
    repo.git(&["config", "filter.one.clean", &repo.plant_trap("clean")]);
    repo.git(&["config", "filter.p.process", &repo.plant_trap("process")]);
    repo.git(&["config", "filter.p.required", "true"]);
    repo.git(&["config", "filter.b.c d.clean", &repo.plant_trap("odd")]);
    repo.put(
        "repo/.git/more",
        &format!("[filter \"two\"]\nclean = {}\n", repo.plant_trap("included")),
    );
    repo.git(&["config", "include.path", "more"]);
    repo.git(&["config", "core.pager", &repo.plant_trap("pager")]);
    repo.git(&["config", "core.hooksPath", repo.folder.path().to_str().unwrap()]);
    fs::copy(repo.plant_trap("hook"), repo.at("post-index-change")).unwrap();
    for path in ["a.txt", "src/b.txt", "c.txt"] {
        repo.put(&format!("repo/{path}"), "changed\n");
    }
    let changes = repo.since("repo", "HEAD").unwrap();
    assert_eq!(added(&changes), ["+changed"; 3]);
    assert_eq!(repo.trap_ran(), [""; 0]);
    // The traps are real: a plain git springs them.
    let off = ["-c", "filter.p.process=", "-c", "filter.p.required=false"];
    for arguments in [
        &["diff", "--no-ext-diff", "--", "a.txt"][..],
        &["diff", "--", "src/b.txt"],
        &[&off[..], &["diff", "--", "src/b.txt"]].concat(),
        &["diff", "--", "c.txt"],
    ] {
        Command::new("git").args(arguments).current_dir(repo.at("repo")).output().unwrap();
    }
    let names = ["clean", "driver", "external", "included", "monitor", "process", "textconv"];
    assert_eq!(repo.trap_ran(), names.map(|name| format!("sprung-{name}")));
}

/// Fault X5.
#[test]
fn nothing_is_fetched_and_no_other_folder_is_shown() {
    let repo = TestRepo::new();
    // A work tree elsewhere would show a file outside of the workspace.
    fs::create_dir(repo.at("elsewhere")).unwrap();
    repo.put("elsewhere/a.txt", "secret\n");
    repo.git(&["config", "core.worktree", repo.at("elsewhere").to_str().unwrap()]);
    repo.put("repo/a.txt", "mine\n");
    assert_eq!(added(&repo.since("repo", "HEAD").unwrap()), ["+mine"]);
    // Git fetches the missing objects of a partial clone by the method that the repository names.
    repo.git(&["config", "extensions.partialClone", "origin"]);
    repo.git(&["config", "core.repositoryFormatVersion", "1"]);
    repo.git(&["config", "remote.origin.promisor", "true"]);
    repo.git(&["config", "remote.origin.url", &format!("ext::{}", repo.plant_trap("fetch"))]);
    repo.git(&["config", "protocol.ext.allow", "always"]);
    remove_blobs(&repo.at("repo/.git/objects"));
    assert!(matches!(
        repo.since("repo", "HEAD"),
        Err(DiffError::GitFailed(_) | DiffError::UnknownCommit(_))
    ));
    assert_eq!(repo.trap_ran(), [""; 0]);
    let plain = Command::new("git").args(["diff", "HEAD"]).current_dir(repo.at("repo")).output();
    drop(plain.unwrap());
    assert_eq!(repo.trap_ran(), ["sprung-fetch"]);
}

#[test]
fn a_filter_without_a_readable_name_stops_it() {
    for name in [&b"odd\x01"[..], b"\xff", b"a=b", b"a\\\\b"] {
        let repo = TestRepo::new();
        let config = repo.at("repo/.git/config");
        let mut text = fs::read(&config).unwrap();
        text.extend([b"[filter \"", name, b"\"]\nclean = true\n"].concat());
        fs::write(&config, text).unwrap();
        assert!(matches!(repo.since("repo", "HEAD"), Err(DiffError::UnsafeFilterName)), "{name:?}");
    }
}

/// Removes every loose object that holds a file.
fn remove_blobs(objects: &Path) {
    for folder in fs::read_dir(objects).unwrap().map(|entry| entry.unwrap().path()) {
        let digest = |file: &Path| {
            let part = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
            format!("{}{}", part(&folder), part(file))
        };
        if folder.file_name().is_some_and(|name| name.len() != 2) {
            continue;
        }
        for file in fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
            let mut git = Command::new("git");
            git.args(["cat-file", "-t", &digest(&file)]).current_dir(objects);
            if git.output().unwrap().stdout == b"blob\n" {
                fs::remove_file(&file).unwrap();
            }
        }
    }
}
