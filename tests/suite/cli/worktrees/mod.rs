//! Isolated workspaces: `run --worktree`, and `worktrees`.

pub(crate) mod fixture;
mod forks;
mod repositories;
mod subagents;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use self::fixture::{ANSWER, Project, command_script};
use crate::cli::crash::strace::under_strace;
use crate::kit::cli::{CliFixture, wait_for_exit};

/// The work of a run is in the worktree, on its branch. The user's tree, index, stash, hooks and configuration stay
/// unchanged, whatever tools and commands try.
#[test]
fn a_run_in_a_worktree_can_change_nothing_of_the_user() {
    let project = Project::new();
    project.cli.write("a.txt", "stashed\n");
    project.git("stash");
    let before = project.user_state();
    let main = project.cli.path("");
    let script = format!(
        "[[turn]]\ncalls = [{{ name = \"write_file\", arguments = {{ path = \"{}\", content = \"x\" }} }}]\n{}",
        main.join("tool.txt").display(),
        command_script(&format!(
            "cd {}; echo x > foreign; echo x > .git/HEAD; echo x >> .git/config; echo x > .git/hooks/pre-commit; \
             echo x > .git/index; echo x > .git/MERGE_HEAD; cd -; git stash list; echo y >> a.txt; git stash; \
             git branch mine; git tag mine; git config alias.x '!touch x'; echo done > b.txt; git add b.txt; \
             git -c user.name=n -c user.email=e commit -q -m work; git rev-parse HEAD",
            main.display()
        ))
    );
    let ran = project.run(&script, &["--worktree", "fix"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(project.user_state(), before);
    assert!(!project.cli.path("foreign").exists() && !project.cli.path("tool.txt").exists());
    assert!(!project.cli.path(".git/MERGE_HEAD").exists());
    let result = ran.json();
    let worktree = &result["worktree"];
    assert_eq!(worktree["branch"], "architect/fix");
    assert_eq!((&worktree["commits"], &worktree["files_changed"]), (&1.into(), &2.into()));
    assert_eq!((&worktree["lines_added"], &worktree["lines_removed"]), (&2.into(), &0.into()));
    assert_eq!(worktree["uncommitted"], serde_json::json!(["a.txt"]));
    assert_eq!(worktree["kept"], true);
    assert_eq!(worktree["merge_command"], "architect worktrees merge fix");
    let folder = Path::new(worktree["folder"].as_str().unwrap());
    assert_eq!(fs::read_to_string(folder.join("b.txt")).unwrap(), "done\n");
    assert_eq!(project.git("log --format=%s -1 architect/fix"), "work\n");
    let listed = project.listed();
    assert_eq!((&listed[0]["name"], &listed[0]["changed"]), (&"fix".into(), &true.into()));
    assert_eq!(listed[0]["session_id"], result["session_id"]);
    project.assert_sound("after the run");
}

/// A command makes the worktree's branch another name for the user's branch, which is not deleted with the worktree.
#[test]
fn the_branch_of_a_worktree_cannot_stand_for_another_one() {
    let project = Project::new();
    let (before, main) = (project.user_state(), project.git("symbolic-ref HEAD"));
    let line = format!(
        "git checkout -q --detach; git symbolic-ref refs/heads/architect/w {}",
        main.trim()
    );
    project.run_line(&line, &["--worktree", "w"]);
    assert_eq!(project.worktrees(&["rm", "--force", "w"]).code, 0);
    assert_eq!(project.user_state(), before);
    project.assert_nothing_left("after the removal");
}

/// Work is kept and merged, also if git was made to overlook it.
#[test]
fn a_hidden_change_is_work() {
    for flag in ["--skip-worktree", "--assume-unchanged"] {
        let project = Project::new();
        let line = format!("git update-index {flag} a.txt; echo hidden >> a.txt");
        let result = project.run_line(&line, &["--worktree", "w"]);
        assert_eq!(result["worktree"]["uncommitted"], serde_json::json!(["a.txt"]), "{flag}");
        assert_eq!(project.worktrees(&["merge", "w"]).code, 0, "{flag}");
        assert!(project.cli.read("a.txt").contains("hidden"), "{flag}");
    }
}

/// Git takes a folder that it can't read for an empty one.
#[test]
fn a_folder_that_cannot_be_read_is_work() {
    let project = Project::new();
    let result = project.run_line("mkdir d; echo work > d/x", &["--worktree", "w"]);
    let folder = Path::new(result["worktree"]["folder"].as_str().unwrap()).join("d");
    fs::set_permissions(folder, fs::Permissions::from_mode(0o0)).unwrap();
    let worktrees = |args: &[&str]| {
        let command = project.cli.command(&[&["worktrees"], args].concat());
        // Root can read every folder, so the run has no such capability.
        let mut ordinary = Command::new("setpriv");
        ordinary.args(["--bounding-set=-dac_override,-dac_read_search", "--"]);
        ordinary.arg(command.get_program()).args(command.get_args()).env_clear();
        ordinary.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        ordinary.current_dir(project.cli.path("")).stdout(Stdio::piped()).stderr(Stdio::piped());
        ordinary.spawn().map(wait_for_exit)
    };
    for args in [["merge", "w"], ["rm", "w"]] {
        let Ok(refused) = worktrees(&args) else {
            return println!("skipped: there is no setpriv");
        };
        if refused.err.starts_with("setpriv: ") {
            return println!("skipped: {}", refused.err);
        }
        assert_eq!(refused.code, 1, "{}", refused.err);
        assert!(refused.err.contains("could not open directory 'd/'"), "{}", refused.err);
    }
    let removed = worktrees(&["rm", "--force", "w"]).unwrap();
    assert_eq!(removed.code, 0, "{}", removed.err);
    assert!(removed.out.contains("its content is unknown"), "{}", removed.out);
    project.assert_nothing_left("removed");
}

#[test]
fn either_all_named_worktrees_are_removed_or_none() {
    let project = Project::new();
    for name in ["a", "b"] {
        project.run_line("echo x > made", &["--worktree", name]);
    }
    let names = || -> Vec<_> { project.listed().iter().map(|it| it["name"].clone()).collect() };
    assert_eq!(project.worktrees(&["merge", "a"]).code, 0);
    let before = names();
    for (other, code) in [("b", 1), ("none", 3)] {
        let refused = project.worktrees(&["rm", "a", other]);
        assert_eq!((refused.code, &*refused.out), (code, ""), "{}", refused.err);
        assert_eq!(names(), before);
    }
    let removed = project.worktrees(&["rm", "a", "b", "a", "--force"]);
    assert_eq!((removed.code, names().len()), (0, 0), "{}", removed.err);
}

/// The commits of a repository in the worktree exist nowhere else.
#[test]
fn a_worktree_with_a_repository_in_it_is_not_removed_unasked() {
    let project = Project::new();
    let commit = "git -c user.name=n -c user.email=e commit -qm";
    let line = format!(
        "git init -q own; (cd own; echo x > f; git add f; {commit} x); git add own; {commit} own"
    );
    project.run_line(&line, &["--worktree", "w"]);
    assert_eq!(project.worktrees(&["merge", "w"]).code, 0);
    let refused = project.worktrees(&["rm", "w"]);
    assert_eq!(refused.code, 1, "{}", refused.err);
    assert!(refused.err.contains("the repository in own"), "{}", refused.err);
    assert_eq!(project.worktrees(&["rm", "--force", "w"]).code, 0);
}

#[test]
fn a_merge_overwrites_no_ignored_file() {
    let project = Project::new();
    project.cli.write(".git/info/exclude", "*.ig\n").write("keep.ig", "mine\n");
    let line = "echo theirs > keep.ig; git add -f keep.ig; \
                git -c user.name=n -c user.email=e commit -qm x";
    project.run_line(line, &["--worktree", "w"]);
    assert_eq!(project.worktrees(&["merge", "w"]).code, 1);
    assert_eq!(project.cli.read("keep.ig"), "mine\n");
}

#[test]
fn everyday_git_commands_work_in_a_worktree() {
    let project = Project::new();
    let line = "set -e; echo y >> a.txt; git add -A; git commit -q -m one; \
                git checkout -q -b architect/other; git commit -q --allow-empty -m two; git checkout -q architect/w; \
                git merge -q architect/other; git commit -q --amend --allow-empty -m three; git reset -q --soft HEAD~1; \
                git checkout -q -- .; git rebase -q HEAD~1; git gc -q || true; echo all";
    let result = project.run_line(line, &["--worktree", "w"]);
    let shown = project.cli.run(&["sessions", "show", result["session_id"].as_str().unwrap()]).out;
    assert!(shown.contains("\nall\n"), "{shown}");
    assert_eq!(project.git("log --format=%s -1 architect/other"), "two\n");
    assert_eq!(result["worktree"]["commits"], 1);
    project.assert_sound("in the end");
}

#[test]
fn an_unchanged_worktree_is_removed_with_its_branch() {
    let project = Project::new();
    let before = project.user_state();
    for args in [&["--worktree"][..], &["--worktree", "named"], &["--worktree", "x", "--ephemeral"]]
    {
        let ran = project.run(ANSWER, args);
        assert_eq!(ran.code, 0, "{}", ran.err);
        assert_eq!(ran.json()["worktree"]["kept"], false, "{args:?}");
        project.assert_nothing_left(&format!("{args:?}"));
    }
    // The log reports the worktree, and result documents of other runs don't.
    let ran = project.cli.run_script(ANSWER, &["--worktree", "n"]);
    assert!(ran.err.contains("architect/n: unchanged, removed"), "{}", ran.err);
    assert_eq!(project.run(ANSWER, &[]).json().get("worktree"), None);
    assert_eq!(project.user_state(), before);
    // A session that can't be resumed has no command for it.
    let ran = project.run(ANSWER, &["--worktree", "fix", "--max-steps", "0"]);
    assert_eq!(ran.json()["resume_command"], serde_json::Value::Null, "{}", ran.err);
}

#[test]
fn a_name_is_taken_invalid_or_generated_and_a_sentence_is_the_prompt() {
    let project = Project::new();
    project.run_line("echo x > x", &["--worktree", "fix"]);
    project.git("branch architect/branch");
    for (name, expected) in [
        ("fix", "the worktree name 'fix' is taken: there is a branch architect/fix"),
        ("branch", "there is a branch architect/branch"),
        ("../x", "invalid worktree name '../x'"),
        ("a.b", "invalid worktree name"),
    ] {
        let ran = project.run(ANSWER, &["--worktree", name]);
        assert_eq!(ran.code, 3, "{}", ran.err);
        assert!(ran.err.contains(expected), "{}", ran.err);
    }
    let model = project.cli.script_model(ANSWER);
    let ran = project.cli.run(&["run", "--worktree", "Do the thing.", "--model", &model, "--json"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.json()["worktree"]["name"].as_str().unwrap().starts_with("run-"));
    // A run that can't begin leaves nothing.
    let ran = project.cli.run(&["run", "x", "--model", "unknown/x", "--worktree", "y"]);
    assert_eq!(ran.code, 3, "{}", ran.err);
    assert_eq!(project.listed().len(), 1);
}

#[test]
fn a_branch_that_is_in_the_way_is_named() {
    let project = Project::new();
    project.git("branch architect");
    let ran = project.run(ANSWER, &["--worktree", "x"]);
    assert_eq!(ran.code, 3, "{}", ran.err);
    assert!(ran.err.contains("no branch architect/x beside the branch architect"), "{}", ran.err);
    project.assert_nothing_left("in the end");
}

/// The worktree has the user's tree as it is; the user's index is only read.
#[test]
fn uncommitted_changes_are_carried_over_on_request() {
    let project = Project::new();
    let cli = &project.cli;
    cli.write("gone.txt", "g\n").write("kind", "file\n").write("d/x", "x\n");
    project.git("add .");
    project.git("commit -q -m second");
    cli.write("a.txt", "staged\n");
    project.git("add a.txt");
    cli.write("a.txt", "staged\nnot staged\n").write("new/file.txt", "new\n").write("ignored", "i");
    cli.write("added.txt", "added\n");
    project.git("add added.txt");
    fs::set_permissions(cli.path("sub/s.txt"), fs::Permissions::from_mode(0o755)).unwrap();
    project.git("rm -q gone.txt");
    fs::remove_file(cli.path("kind")).unwrap();
    symlink("a.txt", cli.path("kind")).unwrap();
    fs::remove_dir_all(cli.path("d")).unwrap();
    cli.write("d", "a file now\n");
    let before = project.user_state();
    let line = "s=$(git status --porcelain); echo \"$s\" > status";
    let result = project.run_line(line, &["--worktree", "c", "--with-changes"]);
    assert_eq!(project.user_state(), before);
    let folder = Path::new(result["worktree"]["folder"].as_str().unwrap()).to_owned();
    let status = fs::read_to_string(folder.join("status")).unwrap();
    assert_eq!(status, project.git("status --porcelain"));
    assert!(!folder.join("ignored").exists() && !folder.join("gone.txt").exists());
    assert_eq!(fs::read_to_string(folder.join("d")).unwrap(), "a file now\n");
    // Without a change of its own, the worktree is removed: the user has everything.
    let ran = project.run(ANSWER, &["--worktree", "u", "--with-changes"]);
    assert_eq!(ran.json()["worktree"]["kept"], false, "{}", ran.err);
    assert_eq!(ran.json()["worktree"]["uncommitted"], serde_json::json!([]));
    assert_eq!(project.listed().len(), 1);
    // Without the option, the worktree has the files of the commit.
    let result = project.run_line("cp a.txt copy", &["--worktree", "n"]);
    let folder = Path::new(result["worktree"]["folder"].as_str().unwrap());
    assert_eq!(fs::read_to_string(folder.join("copy")).unwrap(), "one\ntwo\nthree\n");
}

#[test]
fn a_worktree_is_merged_by_fast_forward_or_as_changes() {
    let project = Project::new();
    project.run_line("echo x > x; git add x; git commit -q -m work", &["--worktree", "ff"]);
    let ran = project.worktrees(&["merge", "ff"]);
    assert!(ran.code == 0 && ran.out.contains("fast-forward"), "{} {}", ran.out, ran.err);
    assert_eq!(project.git("log --format=%s -1"), "work\n");
    assert_eq!(project.git("status --porcelain"), "");
    // Merged work is not lost.
    let ran = project.worktrees(&["rm", "ff"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    project.assert_nothing_left("merged");

    // The user's index stays as it is; other lines of the same file are merged.
    let line =
        "sed -i 's/three/THREE/' a.txt; rm sub/s.txt; echo n > new; chmod +x new; ln -s a.txt link";
    project.run_line(line, &["--worktree", "p"]);
    project.cli.write("a.txt", "ONE\ntwo\nthree\n");
    let index = fs::read(project.cli.path(".git/index")).unwrap();
    let ran = project.worktrees(&["merge", "p", "--json"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(ran.json()["files"].as_array().unwrap().len(), 4);
    assert_eq!(project.cli.read("a.txt"), "ONE\ntwo\nTHREE\n");
    assert!(!project.cli.path("sub/s.txt").exists());
    let mode = fs::metadata(project.cli.path("new")).unwrap().permissions().mode();
    assert_eq!(mode & 0o111, 0o111);
    assert_eq!(fs::read_link(project.cli.path("link")).unwrap(), Path::new("a.txt"));
    assert_eq!(fs::read(project.cli.path(".git/index")).unwrap(), index);
    // A repetition changes nothing, and merges files again that have been removed since.
    let again = project.worktrees(&["merge", "p", "--json"]);
    assert_eq!(again.json()["files"], ran.json()["files"]);
    fs::remove_file(project.cli.path("new")).unwrap();
    let again = project.worktrees(&["merge", "p", "--json"]);
    assert_eq!(again.json()["files"].as_array().unwrap().len(), 1, "{}", again.out);
    assert!(project.cli.path("new").exists());
    assert_eq!(project.worktrees(&["rm", "p"]).code, 0);
}

/// Merged work that the user has removed from the tree since the merge exists nowhere else.
#[test]
fn merged_work_that_the_tree_has_lost_is_removed_by_force_alone() {
    let commit = "; git add -A; git commit -q -m work";
    for (project, end) in
        [(Project::new(), ""), (Project::new(), commit), (Project::without_git(), "")]
    {
        project.run_line(&format!("echo n > new{end}"), &["--worktree", "w"]);
        assert_eq!(project.worktrees(&["merge", "w"]).code, 0, "{end}");
        assert_eq!(project.listed()[0]["changed"], false, "{end}");
        match end {
            "" => fs::remove_file(project.cli.path("new")).unwrap(),
            _ => drop(project.git("reset -q --hard HEAD~1")),
        }
        assert_eq!(project.listed()[0]["changed"], true, "{end}");
        let refused = project.worktrees(&["rm", "w"]);
        assert_eq!(refused.code, 1, "{end}: {}", refused.err);
        assert!(refused.err.contains("merged, but no longer in "), "{end}: {}", refused.err);
        assert!(refused.err.contains(": new\n"), "{end}: {}", refused.err);
        let arguments = if end.is_empty() {
            &["rm", "--force", "w"][..]
        } else {
            project.git("branch kept architect/w");
            &["rm", "w"]
        };
        let removed = project.worktrees(arguments);
        assert_eq!(removed.code, 0, "{end}: {}", removed.err);
        assert_eq!(removed.out.contains("lost: merged"), end.is_empty(), "{}", removed.out);
        assert!(project.listed().is_empty());
    }
}

/// The test simulates a file of another user in the folder, until the file is removed.
#[test]
fn a_worktree_that_could_not_be_removed_completely_is_listed() {
    let project = Project::without_git();
    project.run_line("echo n > new", &["--worktree", "w"]);
    let deny = "inject=unlink,unlinkat,rmdir:error=EACCES";
    let failing = |args: &[&str]| {
        let command = project.cli.command(&[&["worktrees"], args].concat());
        let how = ["-f", "-qq", "-e", "trace=unlink,unlinkat,rmdir", "-e", deny];
        let child = under_strace(&command, &project.cli.home().join("strace"), &how).spawn();
        child.ok().map(wait_for_exit)
    };
    let Some(failed) = failing(&["rm", "--force", "w"]) else {
        return println!("skipped: there is no strace");
    };
    assert!(failed.code == 1 && failed.err.contains("could not remove"), "{}", failed.err);
    let listed = failing(&["list"]).unwrap();
    assert!(listed.out.starts_with("w (removal incomplete)\n"), "{}{}", listed.out, listed.err);
    let again = failing(&["rm", "w"]).unwrap();
    assert!(again.code == 1 && again.err.contains("could not remove"), "{}", again.err);
    let removed = project.worktrees(&["rm", "w"]);
    assert_eq!((removed.code, removed.out.trim()), (0, "worktree w removed"), "{}", removed.err);
    assert!(project.listed().is_empty());
}

/// The user then changes a file that the killed merge has written.
#[test]
fn conflicts_after_an_interrupted_merge_name_what_it_has_changed() {
    let project = Project::new();
    project.run_line("sed -i 1ifirst a.txt; echo t >> sub/s.txt", &["--worktree", "w"]);
    let merge = project.cli.command(&["worktrees", "merge", "w"]);
    let how = ["-f", "-qq", "-e", "trace=renameat", "-e", "inject=renameat:signal=KILL:when=2"];
    let Ok(child) = under_strace(&merge, &project.cli.home().join("strace"), &how).spawn() else {
        return println!("skipped: there is no strace");
    };
    wait_for_exit(child);
    project.cli.write("a.txt", "mine\ntwo\nthree\n");
    let refused = project.worktrees(&["merge", "w"]);
    let changed = "an earlier one was interrupted, and these files have changed: a.txt";
    assert!(refused.code == 1 && refused.err.contains(changed), "{}", refused.err);
    let again = project.worktrees(&["merge", "w"]);
    assert!(again.code == 1 && again.err.contains("nothing was changed"), "{}", again.err);
}

/// On a full disk nothing is merged, by fast-forward or as files.
#[test]
fn a_merge_without_space_changes_nothing() {
    let lines = r#"
        mount -t tmpfs -o size=3m none . 2> /dev/null || { echo skipped; exit; }
        cd "$PWD"
        git init -q; git config user.name n; git config user.email e
        echo a > a; echo z > z; git add .; git commit -q -m first
        "$0" run x --model "$1" --mode yolo --worktree w > /dev/null 2>&1 || { echo run; exit; }
        head -c 1500000 /dev/zero > full
        "$0" worktrees merge w > /dev/null 2> err
        echo $? $(grep -c 'No space' err) $(cat a z) $(git status --porcelain) $(git log --format=%s)
        rm full err
        "$0" worktrees merge w > /dev/null 2>&1
        echo $? $(cat a z) $(stat -c %s big) $(git status --porcelain) $(git log --format=%s)
    "#;
    let work = "echo b > a; echo y > z; head -c 2000000 /dev/zero > big";
    for (commit, left, log) in [
        ("", "M a M z ?? big first", "first"),
        ("; git add -A; git commit -q -m work", "work first", "first"),
    ] {
        let cli = CliFixture::new();
        let model = cli.script_model(&command_script(&format!("{work}{commit}")));
        let architect = cli.command(&[]);
        let mut shell = Command::new("unshare");
        shell.args(["-rm", "sh", "-c", lines]).arg(architect.get_program()).arg(&model);
        shell.current_dir(cli.path("")).env_clear();
        shell.envs(architect.get_envs().filter_map(|(key, value)| Some((key, value?))));
        let Ok(output) = shell.output() else { return println!("skipped: there is no unshare") };
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() || text.starts_with("skipped") {
            return println!("skipped: a file system can't be mounted here");
        }
        let expected = format!("1 1 a z ?? err ?? full {log}\n0 b y 2000000 {left}\n");
        assert_eq!(text, expected, "{}", String::from_utf8_lossy(&output.stderr));
    }
}

/// No user may read more than by default, and a file that becomes executable stays private.
#[test]
fn merged_files_are_as_private_as_others() {
    for commit in ["", "; git add -A; git commit -q -m work"] {
        let project = Project::new();
        fs::set_permissions(project.cli.path("a.txt"), fs::Permissions::from_mode(0o600)).unwrap();
        let line = format!("chmod +x a.txt; echo n > new; chmod +x new{commit}");
        project.run_line(&line, &["--worktree", "w"]);
        let merge = project.cli.command(&["worktrees", "merge", "w"]);
        let mut shell = Command::new("sh");
        shell.args(["-c", "umask 077; exec \"$0\" worktrees merge w"]).arg(merge.get_program());
        shell.current_dir(project.cli.path("")).env_clear();
        shell.envs(merge.get_envs().filter_map(|(name, value)| Some((name, value?))));
        assert!(shell.output().unwrap().status.success());
        for name in ["a.txt", "new"] {
            let mode = fs::metadata(project.cli.path(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o700, "{name}: {mode:o}");
        }
    }
}

/// The user changes the text of the file meanwhile.
#[test]
fn a_file_that_became_executable_is_merged_with_the_changes_of_the_user() {
    for line in
        ["chmod +x a.txt", "chmod +x a.txt; git commit -qam x", "chmod +x a.txt; sed -i 1i0 a.txt"]
    {
        let project = Project::new();
        project.run_line(line, &["--worktree", "w"]);
        project.cli.write("a.txt", &format!("{}last\n", project.cli.read("a.txt")));
        let ran = project.worktrees(&["merge", "w"]);
        assert_eq!(ran.code, 0, "{line}: {}", ran.err);
        let mode = fs::metadata(project.cli.path("a.txt")).unwrap().permissions().mode();
        assert_eq!(mode & 0o111, 0o111, "{line}: {mode:o}");
        assert!(project.cli.read("a.txt").ends_with("three\nlast\n"), "{line}");
    }
}

/// The merge is killed before and after the first file was written. The user then changes that file, with or without
/// the merged change.
#[test]
fn a_killed_merge_keeps_what_is_changed_before_it_is_completed() {
    for when in [1, 2] {
        let project = Project::new();
        project.run_line("sed -i 1ifirst a.txt; echo t >> sub/s.txt", &["--worktree", "w"]);
        let merge = project.cli.command(&["worktrees", "merge", "w"]);
        let kill = format!("inject=renameat:signal=KILL:when={when}");
        let how = ["-f", "-qq", "-e", "trace=renameat", "-e", &kill];
        let Ok(child) = under_strace(&merge, &project.cli.home().join("strace"), &how).spawn()
        else {
            return println!("skipped: there is no strace");
        };
        wait_for_exit(child);
        let written = project.cli.read("a.txt");
        assert_eq!(written.starts_with("first"), when == 2, "{written}");
        project.cli.write("a.txt", &format!("{written}last\n"));
        let ran = project.worktrees(&["merge", "w", "--json"]);
        assert_eq!(ran.code, 0, "{}", ran.err);
        assert_eq!(project.cli.read("a.txt"), "first\none\ntwo\nthree\nlast\n", "{when}");
        assert_eq!(project.cli.read("sub/s.txt"), "s\nt\n", "{when}");
        let mut files: Vec<String> = serde_json::from_value(ran.json()["files"].clone()).unwrap();
        files.sort();
        assert_eq!(files, ["a.txt", "sub/s.txt"], "{when}");
    }
}

/// Files, links and folders take each other's places.
#[test]
fn kinds_that_have_changed_are_merged() {
    let line = "rm link; mkdir link; echo x > link/x; rm -r sub; ln -s link sub; \
                rm a.txt; mkdir -p a.txt/d; echo y > a.txt/d/y; chmod +x a.txt/d/y; rm -r d; echo d > d";
    for project in [Project::new(), Project::without_git()] {
        project.cli.write("d/e/f", "f\n");
        symlink("sub", project.cli.path("link")).unwrap();
        if project.cli.path(".git").exists() {
            project.git("add .");
            project.git("commit -q -m second");
        }
        project.run_line(line, &["--worktree", "w", "--with-changes"]);
        // A folder stays if another file is in it.
        project.cli.write("sub/mine", "mine\n");
        let ran = project.worktrees(&["merge", "w"]);
        assert!(ran.code == 1 && ran.err.contains("sub: "), "{}{}", ran.out, ran.err);
        assert!(project.cli.path("link").is_symlink() && project.cli.path("d/e/f").exists());
        fs::remove_file(project.cli.path("sub/mine")).unwrap();
        let ran = project.worktrees(&["merge", "w"]);
        assert_eq!(ran.code, 0, "{}", ran.err);
        assert_eq!(fs::read_link(project.cli.path("sub")).unwrap(), Path::new("link"));
        assert_eq!(project.cli.read("sub/x") + &project.cli.read("a.txt/d/y"), "x\ny\n");
        assert_eq!(project.cli.read("d"), "d\n");
        let mode = fs::metadata(project.cli.path("a.txt/d/y")).unwrap().permissions().mode();
        assert_eq!(mode & 0o100, 0o100);
        assert_eq!(project.worktrees(&["rm", "w"]).code, 0);
    }
}

/// The user already has the changes that were carried over, and may have changed the files further.
#[test]
fn changes_that_were_carried_over_are_no_conflict() {
    let project = Project::new();
    project.cli.write("a.txt", "mine\ntwo\nthree\n").write("new.txt", "new\n").write("same", "s\n");
    let line = "echo more >> new.txt; sed -i s/three/THREE/ a.txt";
    project.run_line(line, &["--worktree", "w", "--with-changes"]);
    project.cli.write("a.txt", "MINE\ntwo\nthree\n").write("same", "changed\n");
    let ran = project.worktrees(&["merge", "w"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(project.cli.read("a.txt"), "MINE\ntwo\nTHREE\n");
    assert_eq!(project.cli.read("new.txt"), "new\nmore\n");
    assert_eq!(project.cli.read("same"), "changed\n");
    // Changes that were committed in the worktree prevent a fast-forward, and are merged as files.
    project.cli.write("a.txt", "a\ntwo\nthree\n");
    let line = "echo four >> a.txt; git add -A; git commit -q -m all";
    project.run_line(line, &["--worktree", "c", "--with-changes"]);
    let ran = project.worktrees(&["merge", "c"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(project.cli.read("a.txt"), "a\ntwo\nthree\nfour\n");
    // The user has removed the changes that were merged from the first worktree.
    let lost = project.worktrees(&["rm", "w"]);
    assert!(lost.code == 1 && lost.err.contains("merged, but "), "{}", lost.err);
    for arguments in [&["rm", "--force", "w"][..], &["rm", "c"]] {
        assert_eq!(project.worktrees(arguments).code, 0);
    }
    project.assert_nothing_left("merged");
}

#[test]
fn conflicts_are_shown_and_change_nothing() {
    let project = Project::new();
    let line = "sed -i 's/two/theirs/' a.txt; echo new > b.txt; echo c > c.txt";
    project.run_line(line, &["--worktree", "w"]);
    project.cli.write("a.txt", "one\nours\nthree\n").write("b.txt", "mine\n");
    let before = project.user_state();
    let ran = project.worktrees(&["merge", "w"]);
    assert_eq!(ran.code, 1, "{}", ran.out);
    for expected in [
        "a.txt: it has changed in both trees",
        "<<<<<<< yours",
        "theirs",
        "b.txt: it is new in both",
    ] {
        assert!(ran.err.contains(expected), "{}", ran.err);
    }
    assert_eq!(project.user_state(), before);
    assert!(!project.cli.path("c.txt").exists());
    assert_eq!(project.cli.read("a.txt"), "one\nours\nthree\n");
}

/// A git process that outlives its killed run by a moment writes into a folder that was removed.
#[test]
fn a_folder_that_belongs_to_no_worktree_is_removed() {
    let project = Project::new();
    project.run_line("echo x > x", &["--worktree", "w"]);
    let all = fs::read_dir(project.worktree_folder()).unwrap().next().unwrap().unwrap().path();
    for name in ["late", "copy"] {
        fs::create_dir_all(all.join(name).join("d")).unwrap();
    }
    fs::write(all.join("copy.files"), "").unwrap();
    assert_eq!(project.listed().len(), 1);
    assert!(!all.join("late").exists() && all.join("copy/d").exists() && all.join("w/x").exists());
}

#[test]
fn a_lock_that_a_killed_git_has_left_keeps_no_worktree() {
    let project = Project::new();
    project.run_line("echo x > x", &["--worktree", "w"]);
    project.cli.write(".git/refs/heads/architect/w.lock", "");
    let ran = project.worktrees(&["rm", "--force", "w"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    project.assert_nothing_left("removed");
}

#[test]
fn work_is_removed_by_force_alone() {
    let project = Project::new();
    project
        .run_line("echo x > x; git add x; git commit -q -m work; echo y > y", &["--worktree", "w"]);
    for _ in 0..2 {
        let ran = project.worktrees(&["rm", "w"]);
        assert_eq!(ran.code, 1, "{}", ran.out);
        let lost = "work that would be lost: 1 commit, 2 files changed (+2 −0), 1 not committed";
        assert!(ran.err.contains(lost), "{}", ran.err);
        assert_eq!(project.listed().len(), 1);
    }
    let ran = project.worktrees(&["rm", "w", "--force"]);
    assert!(ran.code == 0 && ran.out.contains("lost: 1 commit"), "{}", ran.err);
    project.assert_nothing_left("removed");
    assert_eq!(project.worktrees(&["rm", "w"]).code, 3);
    assert_eq!(project.worktrees(&["merge", "../../x"]).code, 3);
}

/// A resume uses the worktree again, and reports if it is gone.
#[test]
fn resume_goes_back_into_the_worktree() {
    let project = Project::new();
    let script = command_script("echo x > x") + &command_script("cat x > again");
    let ran = project.run(&script, &["--worktree", "w"]);
    let result = ran.json();
    let folder = Path::new(result["worktree"]["folder"].as_str().unwrap()).to_owned();
    let ran = project.cli.run(&["resume", "last", "More.", "--json"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(ran.json()["session_id"], result["session_id"]);
    assert_eq!(ran.json()["worktree"]["name"], "w");
    assert_eq!(fs::read_to_string(folder.join("again")).unwrap(), "x\n");
    assert!(!project.cli.path("again").exists());
    assert_eq!(project.worktrees(&["rm", "w", "--force"]).code, 0);
    let ran = project.cli.run(&["resume", "last", "More."]);
    assert_eq!(ran.code, 3, "{}", ran.out);
    assert!(ran.err.contains("the worktree 'w' is gone"), "{}", ran.err);
    assert!(ran.err.contains("--workspace DIR"), "{}", ran.err);
}

/// A merged worktree stays, and the result of a run that adds nothing says so.
#[test]
fn a_merged_worktree_stays_although_a_run_changes_nothing() {
    let project = Project::new();
    let script = command_script("echo x > x") + ANSWER;
    assert_eq!(project.run(&script, &["--worktree", "w"]).code, 0);
    assert_eq!(project.worktrees(&["merge", "w"]).code, 0);
    let ran = project.cli.run(&["resume", "last", "More.", "--json"]);
    assert_eq!((ran.code, &ran.json()["worktree"]["kept"]), (0, &true.into()), "{}", ran.err);
    assert_eq!(project.listed()[0]["name"], "w");
}

/// Hooks and a monitor that the repository names don't run. Its filters do, as in any checkout, but confined.
#[test]
fn programs_of_the_repository_run_confined_or_not_at_all() {
    let project = Project::new();
    let outside = project.cli.home().join("outside");
    let script = project.cli.path("tool.sh");
    let line = format!("#!/bin/sh\necho ran >> {0} || true\ncat\n", outside.display());
    fs::write(&script, line).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir_all(project.cli.path(".git/hooks")).unwrap();
    for hook in ["post-checkout", "reference-transaction", "post-index-change", "post-merge"] {
        fs::copy(&script, project.cli.path(&format!(".git/hooks/{hook}"))).unwrap();
    }
    for key in ["core.fsmonitor", "core.sshCommand", "diff.external"] {
        project.git(&format!("config {key} {}", script.display()));
    }
    project.cli.write(".gitattributes", "*.up filter=up\n").write("x.up", "LOUD\n");
    fs::write(
        project.cli.path(".git/up.sh"),
        "#!/bin/sh\ntr A-Z a-z; echo ran >> $HOME/outside || true\n",
    )
    .unwrap();
    let smudge = project.cli.path(".git/up.sh");
    fs::set_permissions(&smudge, fs::Permissions::from_mode(0o755)).unwrap();
    project.git("config filter.up.clean cat");
    project.git(&format!("config filter.up.smudge {}", smudge.display()));
    project.git("-c core.fsmonitor=false -c core.hooksPath=/dev/null add .gitattributes x.up");
    project.git("-c core.fsmonitor=false -c core.hooksPath=/dev/null commit -q -m filter");
    let _ = fs::remove_file(&outside);
    let line = "cat x.up > seen";
    let result = project.run_line(line, &["--worktree", "w"]);
    let folder = Path::new(result["worktree"]["folder"].as_str().unwrap());
    assert_eq!(fs::read_to_string(folder.join("seen")).unwrap(), "loud\n");
    project.listed();
    assert_eq!(project.worktrees(&["merge", "w"]).code, 0);
    assert_eq!(project.worktrees(&["rm", "w"]).code, 0);
    assert!(!outside.exists(), "{}", fs::read_to_string(&outside).unwrap());
}

/// Without git, a worktree is a copy of the folder. It shares no file with the original.
#[test]
fn without_git_a_worktree_is_a_copy() {
    let project = Project::without_git();
    let ran = project.run(ANSWER, &["--worktree", "n"]);
    assert_eq!(ran.json()["worktree"]["kept"], false, "{}", ran.err);
    assert_eq!(fs::read_dir(project.worktree_folder()).unwrap().count(), 0);
    let line = "echo four >> a.txt; rm sub/s.txt; echo b > b.txt";
    let result = project.run_line(line, &["--worktree", "w", "--with-changes"]);
    assert_eq!(result["worktree"]["branch"], serde_json::Value::Null);
    assert_eq!(result["worktree"]["files_changed"], 3);
    assert_eq!(project.cli.read("a.txt"), "one\ntwo\nthree\n");
    project.cli.write("a.txt", "mine\n");
    let ran = project.worktrees(&["merge", "w"]);
    assert!(
        ran.code == 1 && ran.err.contains("a.txt: it has changed in both trees"),
        "{}",
        ran.err
    );
    assert!(!project.cli.path("b.txt").exists());
    project.cli.write("a.txt", "one\ntwo\nthree\n");
    assert_eq!(project.worktrees(&["merge", "w"]).code, 0);
    assert_eq!(project.cli.read("a.txt"), "one\ntwo\nthree\nfour\n");
    assert!(!project.cli.path("sub/s.txt").exists());
    assert_eq!(project.worktrees(&["rm", "w"]).code, 0);
    assert_eq!(fs::read_dir(project.worktree_folder()).unwrap().count(), 0);
}

/// A removed worktree's files are those of its workspace, and in a scenario, sub-agents work in the workspace.
#[test]
fn sessions_in_worktrees_become_scenarios_that_pass() {
    let edit = r#"[[turn]]
calls = [{ name = "read_file", arguments = { path = "a.txt" } }]
[[turn]]
calls = [{ name = "edit_file", arguments = { path = "a.txt", old_str = "two", new_str = "2" } }]
[[turn]]
text = "Done."
"#;
    let dispatch = format!(
        r#"[[turn]]
calls = [{{ name = "dispatch_subagent", arguments = {{ agent = "build", task = "Edit it." }} }}]
{edit}[[turn]]
text = "All done."
"#
    );
    let project = Project::new();
    for (name, script, args) in [
        ("kept", edit, ["--worktree", "kept"]),
        ("removed", edit, ["--worktree", "removed"]),
        ("sub-agent", &dispatch, ["--set", "agents.build.isolation=worktree"]),
    ] {
        let session = project.run(script, &args).json()["session_id"].clone();
        if name == "removed" {
            assert_eq!(project.worktrees(&["rm", "--force", name]).code, 0);
        }
        let scenario = project.cli.run(&["test", "--from", session.as_str().unwrap()]);
        assert_eq!(scenario.code, 0, "{}", scenario.err);
        project.cli.write(&format!("suite/{name}.toml"), &scenario.out);
    }
    let tested = project.cli.run(&["test", "suite"]);
    assert!(tested.code == 0 && tested.out.contains("3 passed"), "{}{}", tested.out, tested.err);
}
