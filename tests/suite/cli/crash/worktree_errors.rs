//! System calls that fail in a worktree's life: at its creation, use, merge, resume or removal.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::strace::{self, Syscall, SyscallFault};
use super::{count_cases, tracing_unavailable};
use crate::cli::undo::{Snapshot, snapshot};
use crate::cli::worktrees::fixture::{ANSWER, Project, UserState, command_script};
use crate::kit::cli::{CommandResult, wait_for_exit};
use crate::kit::server::MAX_WAIT;
use crate::kit::system::wait_within;

/// A part of a worktree's life.
struct LifePart {
    name: &'static str,
    has_git: bool,
    /// The command line of an earlier run in the worktree; `None` if the command makes the worktree.
    work: Option<&'static str>,
    /// The command line that the model runs during the command, if the command runs a model.
    line: Option<&'static str>,
    args: &'static [&'static str],
}

const RUN: [&str; 4] = ["run", "x", "--worktree", "w"];
const RUN_WITH_CHANGES: [&str; 5] = ["run", "x", "--worktree", "w", "--with-changes"];
const MERGE: [&str; 3] = ["worktrees", "merge", "w"];
const REMOVE: [&str; 4] = ["worktrees", "rm", "--force", "w"];
const RESUME: [&str; 3] = ["resume", "last", "More."];

const COMMITTED: &str = "echo 1 >> a.txt; mkdir d; echo new > d/new.txt; rm sub/s.txt; git add -A; git commit -q -m work";
const CHANGED: &str =
    "echo 1 >> a.txt; mkdir d; echo new > d/new.txt; rm sub/s.txt; ln -s a.txt link";

const LIFE: [LifePart; 10] = [
    LifePart { name: "unchanged", has_git: true, work: None, line: None, args: &RUN_WITH_CHANGES },
    LifePart {
        name: "work",
        has_git: true,
        work: None,
        line: Some(COMMITTED),
        args: &RUN_WITH_CHANGES,
    },
    LifePart { name: "unchanged copy", has_git: false, work: None, line: None, args: &RUN },
    LifePart { name: "copy", has_git: false, work: None, line: Some(CHANGED), args: &RUN },
    LifePart {
        name: "fast-forward",
        has_git: true,
        work: Some(COMMITTED),
        line: None,
        args: &MERGE,
    },
    LifePart { name: "merge", has_git: true, work: Some(CHANGED), line: None, args: &MERGE },
    LifePart {
        name: "merge of a copy",
        has_git: false,
        work: Some(CHANGED),
        line: None,
        args: &MERGE,
    },
    LifePart { name: "removal", has_git: true, work: Some(COMMITTED), line: None, args: &REMOVE },
    LifePart {
        name: "removal of a copy",
        has_git: false,
        work: Some(CHANGED),
        line: None,
        args: &REMOVE,
    },
    LifePart {
        name: "resume",
        has_git: true,
        work: Some(CHANGED),
        line: Some("echo 2 >> a.txt"),
        args: &RESUME,
    },
];

/// A failure in a system call, and the processes in which it occurs.
#[derive(Clone, Debug)]
struct Failure {
    call: Syscall,
    fault: SyscallFault,
    /// Whether every thread, and every process that is started, has a call that fails; otherwise the first thread alone.
    is_everywhere: bool,
}

/// The files that a command may change, and the state that belongs to the user.
#[derive(Clone, Debug, PartialEq)]
struct View {
    files: Snapshot,
    user: Option<UserState>,
}

impl View {
    fn of(project: &Project) -> Self {
        let mut files = snapshot(&project.cli.path(""));
        // Git does not know empty folders.
        files.retain(|path, (kind, ..)| !path.starts_with(".git") && *kind != 'd');
        let has_git = project.cli.path(".git").exists();
        Self { files, user: has_git.then(|| project.user_state()) }
    }
}

impl LifePart {
    fn is_merge(&self) -> bool {
        self.args == MERGE
    }

    /// Returns a project before this part.
    fn project(&self) -> Project {
        let project = match self.has_git {
            true => Project::new(),
            false => Project::without_git(),
        };
        if self.has_git {
            project.cli.write("a.txt", "stashed\n");
            project.git("stash");
            if self.args == RUN_WITH_CHANGES {
                project.cli.write("staged.txt", "s\n");
                project.git("add staged.txt");
                project.cli.write("a.txt", "not committed\n");
            }
        }
        if let Some(work) = self.work {
            let ran = project.run(&self.script(work), &["--worktree", "w"]);
            assert_eq!(ran.code, 0, "{}", ran.err);
        }
        project
    }

    /// Returns the model's script: the work, the line of the command, and answers for a repetition.
    fn script(&self, work: &str) -> String {
        command_script(work)
            + &self.line.map(command_script).unwrap_or_default()
            + &ANSWER.repeat(2)
    }

    fn command(&self, project: &Project) -> Command {
        let script = match (self.work, self.line) {
            (Some(work), _) => self.script(work),
            (None, Some(line)) => command_script(line),
            (None, None) => ANSWER.to_owned(),
        };
        let model = project.cli.script_model(&script);
        let options = match self.args[0] {
            "run" => vec!["--mode", "yolo", "--json", "--model", &*model],
            "resume" => vec!["--json"],
            _ => Vec::new(),
        };
        project.cli.command(&[self.args, &options].concat())
    }

    fn run(&self, project: &Project, how: &[&str]) -> CommandResult {
        let log = project.cli.home().join("strace.log");
        let command = self.command(project);
        wait_for_exit(strace::under_strace(&command, &log, how).spawn().unwrap())
    }

    /// Returns the calls that the first thread makes in a run without a failure, and the files after it.
    fn trace(&self, all: bool) -> (Vec<Syscall>, View) {
        let project = self.project();
        let ran = self.run(&project, &[]);
        assert_eq!(ran.code, 0, "{}: {}", self.name, ran.err);
        let log = project.cli.home().join("strace.log");
        (strace::observable_calls(&log, all), View::of(&project))
    }

    /// Lets a call fail, checks the remains, and checks that the same command works afterwards. Returns whether it
    /// failed.
    fn fails(&self, project: &Project, failure: &Failure, after: &View) -> bool {
        let case = format!("{}: {failure:?}", self.name);
        let before = View::of(project);
        let how = failure.fault.strace_option(&failure.call);
        let follow: &[&str] = if failure.is_everywhere { &["-f"] } else { &[] };
        let ran = self.run(project, &[follow, &["-e", &how]].concat());
        let is_killed = ran.code == -1 && matches!(failure.fault, SyscallFault::Kill);
        assert!(is_killed || (0..5).contains(&ran.code), "{case}: {} {}", ran.code, ran.err);
        assert!(!ran.err.contains("panicked"), "{case}: {}", ran.err);
        // If nothing can be written, only the exit code is left.
        let is_silent = ran.err.is_empty() && ran.out.is_empty() && failure.call.name != "write";
        assert!(is_killed || ran.code == 0 || !is_silent, "{case}");
        assert!(!project.cli.path(".git/index.lock").exists(), "{case}");
        let worked = work_folder(project).is_some_and(|folder| folder.join("d/new.txt").exists());
        let case = format!("{case}: {} {}{}", ran.code, ran.out, ran.err);
        if is_killed {
            // Git commands of the killed process may still run for a moment; until then the worktree is in use.
            wait_within(MAX_WAIT, &format!("{case}: no worktree is in use"), || {
                listed(project).iter().all(|listed| listed["in_use"] == false)
            });
        }
        match self.is_merge() {
            true => self.check_merge(project, &ran, &before, after, &case),
            false => assert_eq!(View::of(project), before, "{case}"),
        }
        match self.args[0] {
            "run" => self.check_run(project, worked, &case),
            "resume" => self.check_resume(project, &case),
            _ => {}
        }
        for worktree in listed(project) {
            let name = worktree["name"].as_str().unwrap();
            let removed = project.worktrees(&["rm", "--force", name]);
            assert_eq!(removed.code, 0, "{case}: {}", removed.err);
        }
        if self.has_git {
            project.assert_nothing_left(&case);
        } else {
            let left: Vec<_> = snapshot(&project.worktree_folder()).into_keys().collect();
            assert!(left.is_empty(), "{case}: {left:?}");
        }
        ran.code != 0
    }

    /// Finished work is there; without work, nothing is. The same command works.
    fn check_run(&self, project: &Project, worked: bool, case: &str) {
        let listed = listed(project);
        assert!(listed.iter().all(|it| it["changed"] == true), "{case}: {listed:?}");
        assert!(!worked || !listed.is_empty(), "{case}: the work is lost");
        if !listed.is_empty() {
            let removed = project.worktrees(&["rm", "--force", "w"]);
            assert_eq!(removed.code, 0, "{case}: {}", removed.err);
        }
        let again = wait_for_exit(self.command(project).spawn().unwrap());
        assert_eq!(again.code, 0, "{case}: {}", again.err);
        assert_eq!(again.json()["worktree"]["kept"], self.line.is_some(), "{case}");
    }

    fn check_resume(&self, project: &Project, case: &str) {
        let again = wait_for_exit(self.command(project).spawn().unwrap());
        assert_eq!(again.code, 0, "{case}: {}", again.err);
        assert_eq!(again.json()["worktree"]["name"], "w", "{case}");
    }

    /// The files are those before or after the merge, as the command reports. The same command merges, or has nothing
    /// to merge.
    fn check_merge(
        &self,
        project: &Project,
        ran: &CommandResult,
        before: &View,
        after: &View,
        case: &str,
    ) {
        let mut now = View::of(project);
        // A temporary file that can't be removed is reported, and the next command removes it.
        let is_named = |path: &Path| {
            let name = path.file_name().unwrap().to_str().unwrap();
            ran.code > 0
                && name.starts_with(".architect-")
                && (ran.out.contains(name) || ran.err.contains(name))
        };
        now.files.retain(|path, _| !is_named(path));
        let is_after = now.files == after.files;
        // The next command completes a merge that was killed.
        assert!(ran.code == -1 || is_after || now == *before, "{case}: {:?}", now.files);
        assert!(ran.code != 0 || is_after, "{case}");
        assert!(!ran.err.contains("nothing was changed") || now == *before, "{case}");
        let again = wait_for_exit(self.command(project).spawn().unwrap());
        assert_eq!(again.code, 0, "{case}: {}", again.err);
        let again = View::of(project);
        assert_eq!(again.files, after.files, "{case}");
        if let (Some(before), Some(user)) = (&before.user, &again.user) {
            assert_eq!(user.beside_branch(), before.beside_branch(), "{case}");
        }
        let removed = project.worktrees(&["rm", "w"]);
        assert_eq!(removed.code, 0, "{case}: {}", removed.err);
    }
}

/// Returns the worktrees, if there was ever one.
fn listed(project: &Project) -> Vec<serde_json::Value> {
    if project.worktree_folder().exists() { project.listed() } else { Vec::new() }
}

/// Returns the folder of the worktree, if there is one.
fn work_folder(project: &Project) -> Option<std::path::PathBuf> {
    let folder = fs::read_dir(project.worktree_folder()).ok()?.next()?.ok()?.path().join("w");
    folder.is_dir().then_some(folder)
}

/// Calls that don't change files. `rmdir` removes empty folders alone, which are harmless.
const OTHER_CALLS: [&str; 11] = [
    "clone3",
    "faccessat2",
    "futex",
    "kill",
    "pidfd_send_signal",
    "rmdir",
    "sched_setaffinity",
    "set_robust_list",
    "setpgid",
    "shutdown",
    "waitid",
];

/// Calls that read files.
const READING_CALLS: [&str; 8] =
    ["flock", "getdents64", "newfstatat", "openat", "pread64", "read", "readlink", "statx"];

/// Calls that fail in every process, each with the first of its calls to fail: earlier ones start the program.
const CALLS_EVERYWHERE: [(&str, usize); 9] = [
    ("openat", 6),
    ("write", 1),
    ("pwrite64", 1),
    ("mkdir", 1),
    ("rename", 1),
    ("renameat", 1),
    ("link", 1),
    ("unlink", 1),
    ("fsync", 1),
];

const EIO: SyscallFault = SyscallFault::Fail("EIO");
const FULL: SyscallFault = SyscallFault::FailEver("ENOSPC");

/// Returns the failures of a part, and the files after it.
fn failures(part: &LifePart, is_complete: bool) -> (Vec<Failure>, View) {
    let (calls, after) = part.trace(is_complete);
    let changing = if is_complete { part.trace(false).0 } else { calls.clone() };
    let mut failures = Vec::new();
    for call in calls {
        let is_change = changing.contains(&call);
        if OTHER_CALLS.contains(&&*call.name) || !is_change && !READING_CALLS.contains(&&*call.name)
        {
            continue;
        }
        let faults = if is_change { &[EIO, FULL, SyscallFault::Kill][..] } else { &[EIO] };
        let fail = |fault: &SyscallFault| Failure {
            call: call.clone(),
            fault: *fault,
            is_everywhere: false,
        };
        failures.extend(faults.iter().map(fail));
    }
    for (name, first) in CALLS_EVERYWHERE {
        for nth in first..first + 20 {
            for fault in [EIO, FULL] {
                let call = Syscall { name: name.to_owned(), nth };
                failures.push(Failure { call, fault, is_everywhere: true });
            }
        }
    }
    (failures, after)
}

/// The variable with the number of cases of each part.
const SAMPLE: &str = "WORKTREE_FAILURES";

/// The default number of cases of each part, of hundreds.
const DEFAULT_SAMPLE: usize = 4;

/// Lets calls fail in each part: every one, or a sample of this size.
fn each_part(most: Option<usize>) {
    if let Some(why) = tracing_unavailable() {
        return println!("skipped: {why}");
    }
    let broken = AtomicUsize::new(0);
    for part in &LIFE {
        let (failures, after) = failures(part, most.is_none());
        let every = most.map_or(1, |most| failures.len().div_ceil(most).max(1));
        let chosen: Vec<_> = failures.iter().step_by(every).collect();
        let (all, projects) = (chosen.len(), Mutex::new(Vec::new()));
        let pool = || projects.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = count_cases(chosen, |failure| {
            let unused = pool().pop();
            let project = unused.unwrap_or_else(|| part.project());
            let check = AssertUnwindSafe(|| part.fails(&project, failure, &after));
            // The other cases are tried, too.
            let Ok(failed) = catch_unwind(check) else {
                broken.fetch_add(1, Ordering::Relaxed);
                return true;
            };
            // A command that makes a worktree leaves nothing of it, so the project can be used again.
            if part.work.is_none() {
                pool().push(project);
            }
            failed
        });
        println!("{}: {failed} of {all} calls fail the command, of {}", part.name, failures.len());
    }
    assert_eq!(broken.into_inner(), 0, "cases; each has its own message");
}

/// A merge whose temporary files can't be removed, or that is killed before, leaves none without naming it.
#[test]
fn no_temporary_file_of_a_merge_stays_unnamed() {
    if let Some(why) = tracing_unavailable() {
        return println!("skipped: {why}");
    }
    let part = LIFE.iter().find(|part| part.name == "fast-forward").unwrap();
    let (calls, after) = part.trace(false);
    let removals = calls.into_iter().filter(|call| call.name == "unlinkat");
    let faults = [EIO, SyscallFault::FailEver("EIO"), SyscallFault::Kill];
    let failures: Vec<_> = removals
        .flat_map(|call| {
            faults.map(|fault| Failure { call: call.clone(), fault, is_everywhere: false })
        })
        .collect();
    assert!(failures.len() > faults.len(), "{failures:?}");
    count_cases(&failures, |failure| part.fails(&part.project(), failure, &after));
}

/// A worktree is made, merged or removed as a whole or not at all, whatever call fails; the user's files and repository stay
/// as they are, and the same command works afterwards.
#[test]
fn a_failing_system_call_leaves_a_worktree_whole() {
    let number = std::env::var(SAMPLE).map(|number| number.parse().unwrap());
    each_part(Some(number.unwrap_or(DEFAULT_SAMPLE)));
}

#[test]
#[ignore = "takes hours"]
fn every_failing_system_call_leaves_a_worktree_whole() {
    each_part(None);
}
