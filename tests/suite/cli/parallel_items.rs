//! `architect pipeline`: a step whose items run at the same time, each in a worktree of its own.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::process::Child;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::cli::worktrees::fixture::Project;
use crate::kit::cli::{CommandResult, wait_for_exit, wait_until};

/// The files that the items write.
const FILES: [&str; 3] = ["each-1.txt", "each-2.txt", "each-3.txt"];

/// Writes a file with the name of the item's worktree.
const WRITE: &str = "n=$(basename $PWD | cut -c1-6); grep -q mine a.txt && echo $n >> $n.txt";

/// A list, its items at the same time, and a step with their answers. Three items, each for 4000 micro-dollars.
struct Parallel {
    project: Project,
}

impl Parallel {
    fn new(line: &str, checks: &str) -> Self {
        Self::in_project(Project::new(), line, checks)
    }

    fn in_project(project: Project, line: &str, checks: &str) -> Self {
        let steps = format!(
            "[[steps]]\nname = \"list\"\nprompt = \"List.\"\nmodel = \"scripted/{home}/list.toml\"\n\
             [[steps]]\nname = \"each\"\nforeach = \"{{{{steps.list.output}}}}\"\nparallel = 2\n\
             prompt = \"Do '{{{{item}}}}'.\"\nchecks = {checks}\n\
             [[steps]]\nname = \"all\"\nprompt = \"Describe '{{{{steps.each.output}}}}'.\"\nmodel = \"scripted/{home}/list.toml\"\n",
            home = project.cli.home().display()
        );
        fs::write(project.cli.home().join("steps.toml"), steps).unwrap();
        let list = "price = { input = 1.0, output = 10.0 }\nmax_output = 100\n[[turn]]\ntext = \"- one\\n- two\\n- three\"\nusage = { input = 0, output = 0 }\n";
        fs::write(project.cli.home().join("list.toml"), list).unwrap();
        // Uncommitted changes are available to the items.
        project.cli.write("a.txt", "one\ntwo\nmine\n");
        let parallel = Self { project };
        parallel.write_script(line, 0);
        parallel
    }

    fn write_script(&self, line: &str, delay_ms: u64) {
        let script = format!(
            "price = {{ input = 1.0, output = 10.0 }}\nmax_output = 100\n\
             [[turn]]\nusage = {{ input = 1000, output = 100 }}\n\
             calls = [{{ name = \"run_command\", arguments = {{ command = {line:?} }} }}]\n\
             [[turn]]\ntext = \"built\"\ndelay_ms = {delay_ms}\nusage = {{ input = 1000, output = 100 }}\n"
        );
        fs::write(self.project.cli.home().join("build.toml"), script).unwrap();
    }

    fn begin(&self, args: &[&str]) -> Child {
        self.begin_with_format("--json", args)
    }

    fn begin_with_format(&self, format: &str, args: &[&str]) -> Child {
        let home = self.project.cli.home();
        let steps = home.join("steps.toml").display().to_string();
        let model = format!("scripted/{}", home.join("build.toml").display());
        let common = ["pipeline", &steps, "--model", &model, "--out", "ignored", "--mode", "yolo"];
        let args = [&common[..], &[format], args].concat();
        self.project.cli.command(&args).spawn().unwrap()
    }

    fn run(&self, args: &[&str]) -> CommandResult {
        wait_for_exit(self.begin(args))
    }

    fn is_there(&self, file: &str) -> bool {
        self.project.cli.path(file).exists()
    }

    /// Returns the number of sessions that items have had.
    fn item_sessions(&self) -> usize {
        let batches = fs::read_dir(self.project.cli.path("ignored/batches")).into_iter().flatten();
        let sessions =
            batches.flat_map(|batch| fs::read_dir(batch.unwrap().path().join("sessions")));
        let names = sessions.flatten().map(|entry| entry.unwrap().path());
        names.filter(|path| path.extension().is_some_and(|end| end == "jsonl")).count()
    }

    /// Returns the names of the worktrees that are left.
    fn worktrees(&self) -> Vec<String> {
        let listed = self.project.listed();
        listed.iter().map(|it| it["name"].as_str().unwrap().to_owned()).collect()
    }
}

fn items(result: &CommandResult) -> Vec<Value> {
    let iterations = result.json()["workflow"]["iterations"].clone();
    iterations[1]["items"].as_array().unwrap().clone()
}

#[test]
fn items_run_in_worktrees_that_are_merged_at_the_end() {
    let parallel = Parallel::new(WRITE, "[]");
    let before = parallel.project.user_state();
    let ran = parallel.run(&[]);
    assert_eq!(ran.outcome(), (0, "llm_done".to_owned(), "success".to_owned()), "{}", ran.err);
    let names: Vec<Value> = items(&ran).iter().map(|it| it["item"].clone()).collect();
    assert_eq!(names, ["one", "two", "three"]);
    let result = ran.json();
    assert_eq!(
        (&result["cost"], &result["costs"]["by_source"]["agent"]),
        (&0.012.into(), &0.012.into())
    );
    // Two calls for each item, one for each of the two other steps.
    assert_eq!((&result["steps"], &result["llm_calls"]), (&3.into(), &8.into()), "{result}");
    assert_eq!(result["usage"]["input_tokens"], 6000);
    assert_eq!(result["tools_used"].as_array().unwrap().len(), 3);
    for file in FILES {
        assert_eq!(parallel.project.cli.read(file), format!("{}\n", &file[..6]));
    }
    let after = parallel.project.user_state();
    assert_eq!((after.refs, after.head, after.index), (before.refs, before.head, before.index));
    assert!(parallel.worktrees().is_empty());
    // Finished items are not repeated.
    fs::remove_file(parallel.project.cli.path(FILES[0])).unwrap();
    assert_eq!((parallel.run(&[]).code, parallel.item_sessions()), (0, 3));
    assert!(!parallel.is_there(FILES[0]));
}

/// A conflict ends the step and loses nothing: the branches stay. The same command continues with that item; earlier
/// items are not merged again.
#[test]
fn a_conflict_is_reported_with_its_item_and_its_branch() {
    let parallel = Parallel::new("basename $PWD | cut -c1-6 > shared.txt", "[]");
    let ran = parallel.run(&[]);
    assert_eq!(ran.outcome(), (2, "checks_failed".to_owned(), "partial".to_owned()), "{}", ran.err);
    let error = ran.json()["error"].as_str().unwrap().to_owned();
    let branch = items(&ran)[1]["branch"].as_str().unwrap().to_owned();
    assert!(error.starts_with("item 2 (two): ") && error.contains(&branch), "{error}");
    assert!(ran.err.contains("new in both trees"), "{}", ran.err);
    assert_eq!(parallel.project.cli.read("shared.txt"), "each-1\n");
    assert_eq!(parallel.worktrees().len(), 2);

    fs::remove_file(parallel.project.cli.path("shared.txt")).unwrap();
    let ran = parallel.run(&[]);
    assert!(ran.code == 2 && ran.err.contains("item 3 (three)"), "{}", ran.err);
    assert_eq!(parallel.project.cli.read("shared.txt"), "each-2\n");
    let [last] = &parallel.worktrees()[..] else { panic!("{}", ran.err) };
    assert_eq!(parallel.project.worktrees(&["rm", "--force", last]).code, 0);
    let ran = parallel.run(&[]);
    assert_eq!((ran.code, parallel.item_sessions()), (0, 3), "{}", ran.err);
    assert!(ran.err.contains("is gone, and not merged"), "{}", ran.err);
}

/// Each half is harmless alone: the folder of hooks, and the link to it that the user's configuration names.
#[test]
fn an_item_whose_merge_makes_something_harmless_ends_the_step() {
    let line = "case $PWD in *each-1*) mkdir -p lib/hooks; touch lib/hooks/pre-commit; \
                chmod +x lib/hooks/pre-commit;; *each-2*) ln -s lib tools;; esac";
    let parallel = Parallel::new(line, "[]");
    parallel.project.git("config core.hooksPath tools/hooks");
    let ran = parallel.run(&[]);
    assert_eq!(ran.outcome(), (2, "checks_failed".to_owned(), "partial".to_owned()), "{}", ran.err);
    let error = ran.json()["error"].as_str().unwrap().to_owned();
    assert!(error.starts_with("item 2 (two): ") && error.contains("renamed"), "{error}");
    assert!(!parallel.is_there("tools/hooks/pre-commit"));
    assert_eq!((parallel.run(&[]).code, parallel.item_sessions()), (0, 3));
}

/// Nothing is merged before all items have succeeded. The same command retries the failed items.
#[test]
fn an_item_that_fails_its_checks_is_tried_again() {
    let parallel = Parallel::new(WRITE, r#"["test ! -e each-2.txt || grep -q again a.txt"]"#);
    let ran = parallel.run(&[]);
    assert_eq!(ran.outcome(), (2, "checks_failed".to_owned(), "partial".to_owned()), "{}", ran.err);
    assert!(ran.err.contains("each: item 2 (two): `test ! -e each-2.txt"), "{}", ran.err);
    assert_eq!(FILES.map(|file| parallel.is_there(file)), [false; 3]);
    parallel.project.cli.write("a.txt", "one\ntwo\nmine\nagain\n");
    let ran = parallel.run(&[]);
    assert_eq!((ran.code, parallel.item_sessions()), (0, 4), "{}", ran.err);
    assert_eq!(FILES.map(|file| parallel.is_there(file)), [true; 3]);
}

#[test]
fn the_budget_covers_all_items_together() {
    let parallel = Parallel::new(WRITE, "[]");
    let ran = parallel.run(&["--budget", "0.009"]);
    assert_eq!(ran.outcome().1, "budget_exceeded", "{}", ran.err);
    assert!(ran.json()["cost"].as_f64().unwrap() <= 0.009, "{}", ran.out);
    let again = parallel.run(&["--budget", "1"]);
    assert_eq!((again.code, parallel.item_sessions()), (0, 3), "{}", again.err);
    assert_eq!(again.json()["cost"], 0.012);
}

#[test]
fn killed_and_interrupted_items_continue_inside_their_sessions() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::KILL, -1)] {
        let parallel = Parallel::new(WRITE, "[]");
        parallel.write_script(WRITE, 600_000);
        let child = parallel.begin(&[]);
        let has_run = |name: &str| {
            let projects = fs::read_dir(parallel.project.worktree_folder()).into_iter().flatten();
            let inside = projects.flat_map(|it| fs::read_dir(it.unwrap().path()).unwrap());
            // A shell makes the file before it writes.
            inside.flatten().any(|it| fs::read(it.path().join(name)).is_ok_and(|it| !it.is_empty()))
        };
        wait_until("two items run", || FILES[..2].iter().all(|name| has_run(name)));
        kill_process(Pid::from_child(&child), signal).unwrap();
        let stopped = wait_for_exit(child);
        assert_eq!(stopped.code, code, "{}", stopped.err);
        if signal == Signal::TERM {
            assert!(stopped.json()["cost"].as_f64().unwrap() >= 0.004, "{}", stopped.out);
        }
        parallel.write_script(WRITE, 0);
        let again = parallel.run(&[]);
        assert_eq!((again.code, parallel.item_sessions()), (0, 3), "{}", again.err);
        for file in FILES {
            assert_eq!(parallel.project.cli.read(file), format!("{}\n", &file[..6]));
        }
    }
}

/// Merges that were killed are completed, and no merge is repeated.
#[test]
fn killed_merges_are_completed() {
    for file in FILES {
        let parallel = Parallel::new(WRITE, "[]");
        let child = parallel.begin(&[]);
        wait_until("an item is merged", || parallel.is_there(file));
        kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
        wait_for_exit(child);
        let again = parallel.run(&[]);
        assert_eq!((again.code, parallel.item_sessions()), (0, 3), "{}", again.err);
        for file in FILES {
            assert_eq!(parallel.project.cli.read(file), format!("{}\n", &file[..6]));
        }
        assert!(parallel.worktrees().is_empty(), "{}", again.err);
    }
}

/// A command of an earlier run, or the author of the repository, may have made the link.
#[test]
fn a_link_in_the_folder_of_the_results_is_refused() {
    let parallel = Parallel::new(WRITE, "[]");
    let elsewhere = parallel.project.cli.home().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    DirBuilder::new().mode(0o700).create(parallel.project.cli.path("ignored")).unwrap();
    symlink(&elsewhere, parallel.project.cli.path("ignored/batches")).unwrap();
    let ran = parallel.run(&[]);
    assert!(
        ran.code != 0 && ran.err.contains("ignored/batches: there is a symbolic link"),
        "{}",
        ran.err
    );
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
}

#[test]
fn without_a_repository_nothing_is_started() {
    let parallel = Parallel::in_project(Project::without_git(), WRITE, "[]");
    let ran = parallel.run(&[]);
    assert_eq!(ran.code, 3, "{}", ran.err);
    assert!(ran.err.contains("steps.toml:5: `parallel` needs git"), "{}", ran.err);
    assert!(
        ran.err.contains("nothing was started") && !parallel.is_there("ignored"),
        "{}",
        ran.err
    );
}

#[test]
fn the_stream_has_the_events_of_each_item_by_its_session() {
    let parallel = Parallel::new(WRITE, "[]");
    let ran = wait_for_exit(parallel.begin_with_format("--output-format=stream-json", &[]));
    assert_eq!(ran.code, 0, "{}", ran.err);
    let lines = ran.lines();
    let of_type = |name: &str| lines.iter().filter(|line| line["type"] == name).count();
    // Two steps and three items; one result, on the last line.
    assert_eq!((of_type("agent_start"), of_type("agent_end"), of_type("result")), (5, 5, 1));
    assert_eq!(lines.last().unwrap()["type"], "result");
    let calls = lines.iter().filter(|line| line["type"] == "tool_call_end");
    let sessions: BTreeSet<&str> = calls.map(|it| it["session_id"].as_str().unwrap()).collect();
    assert_eq!(sessions.len(), 3, "{sessions:?}");
    for session in sessions {
        let of_session = lines.iter().filter(|line| line["session_id"] == session);
        let numbers: Vec<u64> = of_session.filter_map(|line| line["seq"].as_u64()).collect();
        let expected: Vec<u64> = (1..).take(numbers.len()).collect();
        assert_eq!(numbers, expected, "{session}");
    }
}
