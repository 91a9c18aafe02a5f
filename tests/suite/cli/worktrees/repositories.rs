//! Worktrees of unusual repositories: each works, or is refused with the reason.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::fixture::{ANSWER, Project, command_script};
use crate::kit::cli::CommandResult;

/// Runs a command line in a worktree of a folder.
fn run_in(project: &Project, folder: &Path, line: &str, args: &[&str]) -> CommandResult {
    let folder = folder.to_str().unwrap();
    project.run(&command_script(line), &[&["-w", folder, "--worktree", "w"], args].concat())
}

fn folder_of(result: &Value) -> PathBuf {
    result["worktree"]["folder"].as_str().unwrap().into()
}

fn read(folder: &Path, name: &str) -> String {
    fs::read_to_string(folder.join(name)).unwrap_or_default()
}

/// Asserts that a run is refused with this reason, and leaves nothing.
fn assert_refused(project: &Project, args: &[&str], reason: &str) {
    let ran = project.run(ANSWER, &[&["--worktree", "w"], args].concat());
    assert_eq!(ran.code, 3, "{} {}", ran.out, ran.err);
    assert!(ran.err.contains(reason), "{}", ran.err);
    let left = fs::read_dir(project.worktree_folder()).into_iter().flatten().count();
    assert_eq!(left, 0, "{reason}");
}

#[test]
fn without_a_commit_there_is_no_worktree() {
    let project = Project::without_git();
    project.git("init -q");
    assert_refused(&project, &[], "the repository has no commit yet");
}

#[test]
fn without_the_program_a_repository_is_not_copied() {
    let project = Project::new();
    let script = project.cli.script_model(ANSWER);
    let mut command = project.cli.command(&["run", "x", "--model", &script, "--worktree"]);
    let ran = crate::kit::cli::wait_for_exit(command.env("PATH", "/nowhere").spawn().unwrap());
    assert_eq!(ran.code, 3, "{}", ran.err);
    assert!(ran.err.contains("is in a git repository, but git was not found"), "{}", ran.err);
}

#[test]
fn a_worktree_begins_at_a_detached_head_and_is_merged_there() {
    let project = Project::new();
    project.git("checkout -q --detach");
    project.run_line("echo x > x; git add x; git commit -q -m work", &["--worktree", "w"]);
    assert_eq!(project.worktrees(&["merge", "w"]).code, 0);
    assert_eq!(project.git("log --format=%s -1 HEAD"), "work\n");
    assert_eq!(project.git("log --format=%s -1 main"), "first\n");
}

#[test]
fn during_a_merge_or_a_rebase_the_commit_is_used_and_changes_are_not_carried_over() {
    let project = Project::new();
    project.git("checkout -q -b other");
    project.cli.write("a.txt", "other\n");
    project.git("commit -q -a -m other");
    project.git("checkout -q main");
    project.cli.write("a.txt", "mine\n");
    project.git("commit -q -a -m mine");
    for (command, abort, name) in [
        ("merge other", "merge --abort", "a merge"),
        ("rebase other", "rebase --abort", "a rebase"),
    ] {
        assert!(!project.try_git(command).0);
        let state = project.user_state();
        let reason = format!("{name} is in progress; finish or abort it first");
        assert_refused(&project, &["--with-changes"], &reason);
        project.run_line("echo x > x", &["--worktree", "w"]);
        let ran = project.worktrees(&["merge", "w"]);
        assert!(ran.code == 1 && ran.err.contains("is in progress"), "{}", ran.err);
        assert_eq!(project.worktrees(&["rm", "w", "--force"]).code, 0);
        assert_eq!(project.user_state(), state);
        project.git(abort);
    }
    project.assert_nothing_left("in the end");
}

#[test]
fn the_workspace_in_the_worktree_is_the_same_subfolder() {
    let project = Project::new();
    let sub = project.cli.path("sub");
    let ran = run_in(&project, &sub, "pwd > where; cat s.txt >> where", &[]);
    let folder = folder_of(&ran.json());
    let expected = format!("{}\ns\n", folder.join("sub").display());
    assert_eq!(read(&folder, "sub/where"), expected);
    assert_eq!(project.worktrees(&["rm", "w", "--force"]).code, 0);
    fs::create_dir(project.cli.path("untracked")).unwrap();
    let folder = project.cli.path("untracked");
    assert_refused(&project, &["-w", folder.to_str().unwrap()], "'untracked' is not in the commit");
    project.cli.write("untracked/x", "x\n");
    let ran = run_in(&project, &folder, "cat x > y", &["--with-changes"]);
    assert_eq!(read(&folder_of(&ran.json()), "untracked/y"), "x\n");
}

#[test]
fn a_worktree_of_a_linked_work_tree_begins_at_its_commit() {
    let project = Project::new();
    let linked = project.cli.home().join("linked");
    project.git(&format!("worktree add -q -b side {}", linked.display()));
    fs::write(linked.join("side.txt"), "side\n").unwrap();
    let git = |words: &str| {
        let output = Command::new("git").arg("-C").arg(&linked).args(words.split(' ')).output();
        assert!(output.unwrap().status.success());
    };
    git("add side.txt");
    git("commit -q -m side");
    let ran =
        run_in(&project, &linked, "cat side.txt > seen; git add seen; git commit -q -m seen", &[]);
    assert_eq!(read(&folder_of(&ran.json()), "seen"), "side\n", "{}", ran.err);
    // All work trees of a repository share the names, as they share the branches.
    assert_eq!(project.listed()[0]["name"], "w");
    let merge = ["merge", "w", "-w", linked.to_str().unwrap()];
    assert_eq!(project.worktrees(&merge).code, 0);
    assert_eq!(read(&linked, "seen"), "side\n");
    assert_eq!(project.git("log --format=%s -1 main"), "first\n");
}

#[test]
fn a_bare_repository_has_worktrees_and_no_tree_to_merge_into() {
    let project = Project::new();
    let bare = project.cli.home().join("bare.git");
    project.git(&format!("clone -q --bare . {}", bare.display()));
    let ran = run_in(&project, &bare, "cat a.txt > b.txt", &[]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(read(&folder_of(&ran.json()), "b.txt"), "one\ntwo\nthree\n");
    let ran = project.worktrees(&["merge", "w", "-w", bare.to_str().unwrap()]);
    assert!(ran.code == 1 && ran.err.contains("has no work tree"), "{}", ran.err);
    let args = ["-w", bare.to_str().unwrap(), "--worktree", "x", "--with-changes"];
    let ran = project.run(ANSWER, &args);
    assert!(ran.code == 3 && ran.err.contains("the repository is a bare one"), "{}", ran.err);
    // A work tree of a bare repository is treated like any other.
    let tree = project.cli.home().join("tree");
    let mut add = Command::new("git");
    add.arg("-C").arg(&bare).args(["worktree", "add", "-q", "-b", "t"]).arg(&tree);
    assert!(add.status().unwrap().success());
    let args = ["-w", tree.to_str().unwrap(), "--worktree", "y"];
    let ran = project.run(&command_script("echo y > y"), &args);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let ran = project.worktrees(&["merge", "y", "-w", tree.to_str().unwrap()]);
    assert_eq!((ran.code, read(&tree, "y")), (0, "y\n".to_owned()), "{}", ran.err);
}

#[test]
fn a_sparse_checkout_stays_sparse() {
    let project = Project::new();
    project.git("sparse-checkout set --no-cone /sub/ /.gitignore");
    assert!(!project.cli.path("a.txt").exists());
    let line = "ls > sub/listed; git add sub/listed; git commit -q -m work; ls sub >> sub/listed";
    let result = project.run_line(line, &["--worktree", "w"]);
    assert_eq!(read(&folder_of(&result), "sub/listed"), "sub\nlisted\ns.txt\n");
    // Files that are not checked out are not lost.
    assert!(project.git("show architect/w:a.txt").starts_with("one"));
    assert_eq!(project.git("show --format= --name-status architect/w"), "A\tsub/listed\n");
}

/// Committed changes that are not checked out are merged with their commit, or not at all.
#[test]
fn a_commit_beside_a_sparse_checkout_is_merged() {
    let project = Project::new();
    project.git("sparse-checkout set --no-cone /sub/ /.gitignore");
    let line = "echo s > sub/new; echo other > a.txt; git add --sparse -A; git commit -q -m work; git sparse-checkout reapply";
    project.run_line(line, &["--worktree", "w"]);
    project.git("commit -q --allow-empty -m mine");
    let refused = project.worktrees(&["merge", "w"]);
    assert_eq!(refused.code, 1, "{}", refused.out);
    assert!(refused.err.contains("a.txt: a sparse checkout leaves it out"), "{}", refused.err);
    assert!(!project.cli.path("sub/new").exists());
    project.git("reset -q --soft HEAD~1");
    let ran = project.worktrees(&["merge", "w"]);
    assert!(ran.code == 0 && ran.out.contains("fast-forward"), "{}{}", ran.out, ran.err);
    assert_eq!(project.git("status --porcelain"), "");
    assert_eq!(project.git("show HEAD:a.txt"), "other\n");
    assert!(!project.cli.path("a.txt").exists() && project.cli.path("sub/new").exists());
}

#[test]
fn submodules_are_empty_and_reported() {
    let library = Project::new();
    let project = Project::new();
    let url = library.cli.path("");
    project.git(&format!("-c protocol.file.allow=always submodule add -q {} lib", url.display()));
    project.git("commit -q -m lib");
    project.cli.write("lib/a.txt", "changed\n");
    let ran = project.run(&command_script("ls lib > seen"), &["--worktree", "w", "--with-changes"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.err.contains("submodules are empty in the worktree"), "{}", ran.err);
    assert_eq!(ran.json()["worktree"]["files_changed"], 1, "{}", ran.out);
    assert_eq!(project.worktrees(&["merge", "w"]).code, 0);
    assert_eq!(project.cli.read("lib/a.txt"), "changed\n");
    // A submodule is a repository of its own.
    let lib = project.cli.path("lib");
    let args = ["-w", lib.to_str().unwrap(), "--worktree", "in-lib"];
    let ran = project.run(&command_script("cp a.txt b.txt"), &args);
    assert_eq!(read(&folder_of(&ran.json()), "b.txt"), "one\ntwo\nthree\n", "{}", ran.err);
}

/// The merge takes over only the id of the submodule's commit, which exists in the worktree alone.
#[test]
fn a_worktree_with_a_submodule_that_was_set_up_is_not_removed_unasked() {
    let project = Project::new();
    // Commands see no other folder of this kind.
    let library = project.cli.temp().display().to_string();
    project.git(&format!("clone -q . {library}"));
    project.git(&format!("-c protocol.file.allow=always submodule add -q {library} lib"));
    project.git("commit -q -m lib");
    let line = "git -c protocol.file.allow=always submodule -q update --init; cd lib; echo m > m; git add m; \
                git -c user.name=n -c user.email=e commit -q -m m; cd ..; git add lib; git commit -q -m bump";
    project.run_line(line, &["--worktree", "w"]);
    let ran = project.worktrees(&["merge", "w"]);
    assert!(ran.code == 0 && ran.out.contains("fast-forward"), "{}{}", ran.out, ran.err);
    let refused = project.worktrees(&["rm", "w"]);
    assert_eq!(refused.code, 1, "{}", refused.err);
    assert!(refused.err.contains("the repository in lib"), "{}", refused.err);
    assert_eq!(project.worktrees(&["rm", "--force", "w"]).code, 0);
}

/// A file that a filter stores as a pointer is filled by the filter, and is not a change.
#[test]
fn filtered_files_are_whole_in_the_worktree() {
    let project = Project::new();
    let store = project.cli.path(".git/lfs");
    fs::create_dir(&store).unwrap();
    let config = |key: &str, command: String| {
        let mut set = Command::new("git");
        set.args(["config", key, &command]).current_dir(project.cli.path(""));
        assert!(set.status().unwrap().success());
    };
    config("filter.lfs.clean", format!("tee {}/object | md5sum", store.display()));
    config("filter.lfs.smudge", format!("cat > /dev/null; cat {}/object", store.display()));
    config("filter.lfs.required", "true".to_owned());
    project.cli.write(".gitattributes", "*.bin filter=lfs\n").write("x.bin", "large\n");
    project.git("add .");
    project.git("commit -q -m pointer");
    let ran = project.run(ANSWER, &["--worktree", "n"]);
    assert_eq!(ran.json()["worktree"]["kept"], false, "{}", ran.err);
    let result = project.run_line("cat x.bin > seen", &["--worktree", "w"]);
    assert_eq!(read(&folder_of(&result), "seen"), "large\n");
    assert_eq!(project.worktrees(&["merge", "w"]).code, 0);
    assert_eq!(project.cli.read("x.bin"), "large\n");
    assert_eq!(project.git("status --porcelain"), "?? seen\n");
}

/// The folder for state may be in the workspace, as when the home is the workspace.
#[test]
fn a_worktree_inside_of_the_workspace_is_refused() {
    let project = Project::new();
    let script = project.cli.script_model(ANSWER);
    for workspace in [project.cli.path(""), project.cli.home()] {
        let state = workspace.join("state");
        let workspace = workspace.to_str().unwrap();
        let mut command =
            project.cli.command(&["run", "x", "--model", &script, "--worktree", "-w", workspace]);
        let ran = command.env("XDG_STATE_HOME", &state).spawn().unwrap();
        let ran = crate::kit::cli::wait_for_exit(ran);
        assert_eq!(ran.code, 3, "{}", ran.err);
        assert!(ran.err.contains("the worktree would be inside of"), "{}", ran.err);
        assert!(ran.err.contains("XDG_STATE_HOME"), "{}", ran.err);
        assert!(!state.join("architect/worktrees").exists());
    }
}

/// A repository in the work tree, such as a work tree of the user, is neither carried over nor touched.
#[test]
fn repositories_in_the_workspace_are_left_alone() {
    let project = Project::new();
    project.git("worktree add -q -b side trees/side");
    project.cli.write("new.txt", "new\n");
    let ran = project.run(&command_script("ls > seen"), &["--worktree", "w", "--with-changes"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.err.contains("repositories in the work tree are not carried over: trees/side/"));
    assert_eq!(read(&folder_of(&ran.json()), "seen"), "a.txt\nnew.txt\nseen\nsub\n");
    assert!(project.git("worktree list").contains("trees/side"));
}

/// References in tables, as newer versions of git can have them.
#[test]
fn a_repository_with_reftable_has_worktrees() {
    let project = Project::without_git();
    let (is_known, _) = project.try_git("init -q -b main --ref-format=reftable");
    if !is_known {
        return println!("skipped: this git has no reftable");
    }
    project.git("config user.name User");
    project.git("config user.email user@localhost");
    project.git("add .");
    project.git("commit -q -m first");
    let ran = project.run(ANSWER, &["--worktree", "n"]);
    assert_eq!((ran.code, &ran.json()["worktree"]["kept"]), (0, &false.into()), "{}", ran.err);
    let line =
        "echo x > x; git add x; git commit -q -m work && git branch architect/more; echo y > y";
    let result = project.run_line(line, &["--worktree", "w"]);
    assert_eq!(result["worktree"]["commits"], 1, "{result}");
    assert_eq!(project.git("log --format=%s -1 architect/more"), "work\n");
    assert_eq!(project.git("log --format=%s -1 main"), "first\n");
    assert_eq!(project.worktrees(&["merge", "w"]).code, 0);
    assert_eq!((project.cli.read("x"), project.cli.read("y")), ("x\n".into(), "y\n".into()));
    assert_eq!(project.worktrees(&["rm", "w"]).code, 0);
    assert_eq!(project.git("branch --list architect/w"), "");
    project.assert_sound("in the end");
}

/// Without namespaces, the limit holds as well; without any confinement, the run reports that it doesn't.
#[test]
fn the_limit_holds_without_namespaces_or_is_reported() {
    let project = Project::new();
    let main = project.cli.path("").display().to_string();
    let line = format!(
        "echo x > {main}/foreign; echo x >> {main}/.git/config; echo x > {main}/.git/hooks/x; \
         echo own > own; git add own; git commit -q -m own"
    );
    let model = project.cli.script_model(&command_script(&line));
    let run = ["run", "x", "--model", &model, "--mode", "yolo", "--json"];
    let before = project.user_state();
    let inner = project.cli.command(&[&run[..], &["-v", "--worktree", "w"]].concat());
    let mut outer = Command::new("unshare");
    let without = "echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-all \"$0\" \"$@\"";
    outer.args(["-Ur", "sh", "-c", without]);
    outer.arg(inner.get_program()).args(inner.get_args()).env_clear();
    outer.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let outer = outer.current_dir(project.cli.path("")).output().unwrap();
    let (out, err) = (outer.stdout, String::from_utf8_lossy(&outer.stderr).into_owned());
    if ["unshare", "setpriv", "Permission"]
        .iter()
        .any(|found| err.starts_with(found) || err.starts_with("sh:"))
    {
        return println!("skipped: {err}");
    }
    assert!(err.contains("confined by Landlock"), "{err}");
    let result: Value = serde_json::from_slice(&out).unwrap();
    assert_eq!(project.user_state(), before);
    assert!(!project.cli.path("foreign").exists());
    assert_eq!(result["worktree"]["commits"], 1, "{result}");
    let ran = project.cli.run(&[&run[..], &["--sandbox", "off", "--worktree", "off"]].concat());
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.err.contains("can write outside of its worktree"), "{}", ran.err);
}
