//! A project in a git repository, whose user must not be affected by a worktree.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::cli::undo::snapshot;
use crate::kit::cli::{CliFixture, CommandResult};

/// A project in a repository with one commit.
pub(crate) struct Project {
    pub(crate) cli: CliFixture,
}

/// The user's state of a repository, without the branches of worktrees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UserState {
    pub(crate) index: Option<Vec<u8>>,
    pub(crate) head: String,
    config: String,
    hooks: usize,
    stash: String,
    pub(crate) refs: String,
    status: String,
}

impl UserState {
    /// Returns the part that stays the same when the user's branch moves.
    pub(crate) fn beside_branch(&self) -> Self {
        let empty = String::new;
        Self { index: None, refs: empty(), status: empty(), ..self.clone() }
    }
}

impl Project {
    /// Returns a folder without a repository.
    pub(crate) fn without_git() -> Self {
        let cli = CliFixture::new();
        cli.write("a.txt", "one\ntwo\nthree\n").write("sub/s.txt", "s\n");
        Self { cli }
    }

    /// Returns a project with a commit, in which the user has a stash and a file that is not committed.
    pub(crate) fn new() -> Self {
        let project = Self::without_git();
        project.git("init -q -b main");
        project.git("config user.name User");
        project.git("config user.email user@localhost");
        project.cli.write(".gitignore", "ignored\n");
        project.git("add .");
        project.git("commit -q -m first");
        project
    }

    /// Runs git in the project.
    pub(crate) fn git(&self, words: &str) -> String {
        let (ok, text) = self.try_git(words);
        assert!(ok, "git {words}: {text}");
        text
    }

    pub(crate) fn try_git(&self, words: &str) -> (bool, String) {
        let mut git = Command::new("git");
        git.args(words.split(' ')).current_dir(self.cli.path("")).env("HOME", self.cli.home());
        let output = git.env("GIT_OPTIONAL_LOCKS", "0").output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&text).into_owned())
    }

    /// Returns the folders and files of the worktrees, without those of one project.
    pub(crate) fn worktree_folder(&self) -> PathBuf {
        self.cli.home().join(".local/state/architect/worktrees")
    }

    /// Runs a task in a worktree; the model plays a script.
    pub(crate) fn run(&self, script: &str, args: &[&str]) -> CommandResult {
        self.cli.run_script(script, &[&["--mode", "yolo", "--json"], args].concat())
    }

    /// Runs a command line as the model's, and returns the result document.
    pub(crate) fn run_line(&self, line: &str, args: &[&str]) -> Value {
        let ran = self.run(&command_script(line), args);
        assert_eq!(ran.code, 0, "{}\n{}", ran.out, ran.err);
        ran.json()
    }

    /// Runs the command for worktrees.
    pub(crate) fn worktrees(&self, args: &[&str]) -> CommandResult {
        self.cli.run(&[&["worktrees"], args].concat())
    }

    /// Returns the listed worktrees.
    pub(crate) fn listed(&self) -> Vec<Value> {
        let ran = self.worktrees(&["list", "--json"]);
        assert_eq!(ran.code, 0, "{}", ran.err);
        ran.json().as_array().unwrap().clone()
    }

    /// Returns the user's state.
    pub(crate) fn user_state(&self) -> UserState {
        let git = self.cli.path(".git");
        let read = |name: &str| fs::read_to_string(git.join(name)).unwrap_or_default();
        let refs = self.git("for-each-ref");
        let own: Vec<_> = refs.lines().filter(|line| !line.contains("heads/architect/")).collect();
        UserState {
            index: fs::read(git.join("index")).ok(),
            head: read("HEAD"),
            config: read("config"),
            hooks: fs::read_dir(git.join("hooks")).map_or(0, Iterator::count),
            stash: read("logs/refs/stash"),
            refs: own.join("\n"),
            status: self.git("status --porcelain"),
        }
    }

    /// Returns the contents of the remaining folder of each project that has had worktrees.
    pub(crate) fn left_folders(&self) -> Vec<Vec<OsString>> {
        let names = |entry: fs::DirEntry| {
            let inside = fs::read_dir(entry.path()).into_iter().flatten().flatten();
            inside.map(|entry| entry.file_name()).collect()
        };
        let left = fs::read_dir(self.worktree_folder()).into_iter().flatten().flatten();
        left.map(names).collect()
    }

    /// Asserts that nothing of worktrees is left: no folder, branch or entry.
    pub(crate) fn assert_nothing_left(&self, case: &str) {
        let left = self.left_folders();
        assert!(left.is_empty(), "{case}: {left:?}");
        assert_eq!(self.git("branch --list architect/*"), "", "{case}");
        let linked = self.cli.path(".git/worktrees");
        assert!(!linked.exists(), "{case}: {:?}", snapshot(&linked).keys());
        self.assert_sound(case);
    }

    /// Asserts that the repository is sound.
    pub(crate) fn assert_sound(&self, case: &str) {
        let (ok, text) = self.try_git("fsck --no-dangling");
        assert!(ok && !text.contains("error"), "{case}: {text}");
    }
}

/// Returns a script in which the model runs a command line.
pub(crate) fn command_script(line: &str) -> String {
    let line = line.replace('\\', "\\\\").replace('"', "\\\"");
    format!(
        "[[turn]]\ncalls = [{{ name = \"run_command\", arguments = {{ command = \"{line}\" }} }}]\n\n\
         [[turn]]\ntext = \"Done.\"\n"
    )
}

/// A script that only answers.
pub(crate) const ANSWER: &str = "[[turn]]\ntext = \"Done.\"\n";
