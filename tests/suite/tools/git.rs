//! Git commands in a workspace that someone else made; everything else works as usual.

use std::process::Command;

use serde_json::json;

use super::fixture::ToolFixture;

/// Makes a repository that a clone may bring along as plain files, and whose configuration names a program.
fn hostile(world: &ToolFixture) {
    let mut git = Command::new("git");
    let made = git.args(["init", "-q", "--bare", "evil"]).current_dir(&world.path).status();
    assert!(made.unwrap().success());
    let runs = "\tfsmonitor = \"touch $PWD/ran; false #\"\n";
    let core = "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = ..\n";
    world.write("evil/config", format!("{core}{runs}"));
}

fn run(world: &ToolFixture, line: &str) -> String {
    world.call("run_command", &json!({"command": line})).text.to_string()
}

/// Git commands that only query count as reading, so they need no confirmation.
#[test]
fn no_repository_among_the_files_has_its_programs_run() {
    let world = ToolFixture::new();
    hostile(&world);
    let mut plain = Command::new("git");
    plain.args(["-C", "evil", "status"]).current_dir(&world.path).env_remove("GIT_CONFIG_COUNT");
    plain.output().unwrap();
    assert!(world.path.join("ran").exists(), "the repository is not hostile");
    std::fs::remove_file(world.path.join("ran")).unwrap();
    for line in [
        "git -C evil status",
        "cd evil; git status",
        "cd evil && git diff",
        "cd evil/objects; git status",
        "git --git-dir=evil status",
        "git --git-dir=evil diff",
    ] {
        let output = run(&world, line);
        assert!(!world.path.join("ran").exists(), "{line}: {output}");
    }
    let output = run(&world, "git -C evil status");
    assert!(output.contains("cannot use bare repository"), "{output}");
}

#[test]
fn git_works_as_ever() {
    let world = ToolFixture::new();
    world.write("a", "1\n");
    for line in [
        "git init -q . && git config user.name n && git config user.email n@example.org",
        "git add a && git commit -qm one && git log --oneline | grep one",
        "echo 2 >> a && git status -s | grep 'M a' && git diff | grep +2",
        "git stash -q && git stash pop -q && git commit -qam two",
        "git clone -q --bare . copy.git && git --git-dir=copy.git log --oneline | grep two",
        "git clone -q copy.git other && git -C other log --oneline | grep two",
        "git commit -q --allow-empty -m three && git push -q ./copy.git HEAD",
        "git -C other fetch -q && git -C other log --oneline FETCH_HEAD | grep three",
        "git worktree add -q tree && git -C tree status -s && git -C .git log --oneline",
        "git -c protocol.file.allow=always submodule --quiet add ./copy.git sub && git status -s",
        "git -C sub log --oneline | grep three && git gc -q",
    ] {
        let output = run(&world, line);
        assert!(output.ends_with("[exit code 0]"), "{line}: {output}");
    }
}
