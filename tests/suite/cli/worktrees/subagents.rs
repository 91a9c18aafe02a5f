//! Sub-agents that may change files: each works in a worktree, and its changes are applied when it is done.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use wait_timeout::ChildExt;

use super::fixture::Project;
use crate::kit::chat;
use crate::kit::cli::{CommandResult, wait_for_exit, wait_until};
use crate::kit::server::{ReceivedRequest, ScriptedReply, Server};

/// A step of an agent.
#[derive(Clone)]
enum Step {
    /// Runs a command line.
    Run(&'static str),
    /// Replaces a text in a file.
    Edit(&'static str, &'static str, &'static str),
    /// Dispatches agents of this name with these tasks, in one reply.
    Dispatch(&'static str, &'static [&'static str]),
    /// Waits until this number of agents have reached this step.
    Meet(usize),
    /// Never answers, the first time.
    Hang,
    /// Fails.
    Refuse,
}

use Step::{Dispatch, Edit, Hang, Meet, Refuse, Run};

/// The steps of each agent, by its task.
type Script = &'static [(&'static str, &'static [Step])];

/// A model that plays the steps of each agent, independent of the others.
struct Agents {
    server: Server,
    hung: Arc<AtomicUsize>,
}

impl Agents {
    fn new(script: Script) -> Self {
        let (met, hung) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
        let hangs = Arc::clone(&hung);
        let server = Server::with_handler(move |request| reply(script, request, &met, &hangs));
        Self { server, hung }
    }

    fn command(&self, project: &Project, args: &[&str]) -> Command {
        let (base, mode) = (self.server.url("/v1"), ["--mode", "yolo", "--json"]);
        let model = ["--model", "openai-chat/fake", "--api-base", &base];
        let mut command = project.cli.command(&[args, &model, &mode].concat());
        command.env("OPENAI_API_KEY", "sk-test-canary");
        command
    }

    fn run(&self, project: &Project, args: &[&str]) -> CommandResult {
        let args = [&["run", "Do it."], args].concat();
        let ran = wait_for_exit(self.command(project, &args).spawn().unwrap());
        assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
        ran
    }

    /// Returns the results that the dispatcher's model got last.
    fn results(&self) -> Vec<String> {
        let requests = self.server.requests();
        let bodies = requests.iter().rev().map(ReceivedRequest::json);
        let mut own = bodies.filter(|body| is_task(body, "Do it."));
        let messages = own.next().unwrap()["messages"].as_array().unwrap().clone();
        let results = messages.iter().filter(|message| message["role"] == "tool");
        results.map(|result| result["content"].as_str().unwrap().to_owned()).collect()
    }
}

/// Returns whether this is the task of a conversation, also if text was added to it since.
fn is_task(body: &Value, task: &str) -> bool {
    body["messages"][1]["content"].to_string().contains(task)
}

fn reply(
    script: Script,
    request: &ReceivedRequest,
    met: &AtomicUsize,
    hung: &AtomicUsize,
) -> ScriptedReply {
    let body = request.json();
    let sent = body["messages"].as_array().unwrap().iter();
    let sent = sent.filter(|message| message["role"] == "assistant").count();
    let (task, steps) = script.iter().find(|(task, _)| is_task(&body, task)).unwrap();
    let mut next = steps.get(sent);
    if let Some(Meet(all)) = next {
        met.fetch_add(1, Ordering::SeqCst);
        let begun = Instant::now();
        while met.load(Ordering::SeqCst) < *all && begun.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(5));
        }
        next = Some(&Run("true"));
    }
    if let Some(Hang) = next {
        if hung.fetch_add(1, Ordering::SeqCst) == 0 {
            return ScriptedReply::silence();
        }
        next = Some(&Run("true"));
    }
    let call = |name, arguments: Value| (name, arguments.to_string());
    let calls: Vec<(&str, String)> = match next {
        None => return chat::text(&format!("{task} is done.")),
        Some(Refuse) => return ScriptedReply::with_length(400, "{}"),
        Some(Run(line)) => vec![call("run_command", json!({"command": line}))],
        Some(Edit(path, old, new)) => {
            vec![call("edit_file", json!({"path": path, "old_str": old, "new_str": new}))]
        }
        Some(Dispatch(agent, tasks)) => {
            let arguments = |task| json!({"agent": agent, "task": task});
            tasks.iter().map(|task| call("dispatch_subagent", arguments(task))).collect()
        }
        Some(Meet(_) | Hang) => unreachable!(),
    };
    let ids: Vec<String> = (0..calls.len()).map(|index| format!("{sent}-{index}")).collect();
    let calls = calls.iter().zip(&ids).map(|((name, text), id)| (&**id, *name, &**text));
    chat::calls(&calls.collect::<Vec<_>>())
}

const BOTH: Step = Dispatch("build", &["One.", "Two."]);

/// Both begin with the uncommitted changes, work at the same time, and can't reach their dispatcher's files.
#[test]
fn sub_agents_that_change_something_work_side_by_side() {
    let project = Project::new();
    project.cli.write("bin", "a\0b").write("old", "old\n").write("gone", "gone\n");
    project.git("add .");
    project.git("commit -q -m more");
    project.cli.write("a.txt", "one\ntwo\nchanged\n").write("new", "n\n");
    let main = project.cli.path("").display().to_string();
    fs::write(project.cli.path("main.txt"), &main).unwrap();
    let before = project.user_state();
    let agents = Agents::new(&[
        ("Do it.", &[BOTH]),
        (
            "One.",
            &[
                Meet(2),
                Run(
                    "cat a.txt new; pwd; echo x > $(cat main.txt)/foreign; git -C $(cat main.txt) add new",
                ),
                Run(
                    "printf 'c\\0d' > bin; mv old renamed; rm gone; chmod +x sub/s.txt; ln -s bin link; git commit -q -a -m x",
                ),
            ],
        ),
        (
            "Two.",
            &[
                Meet(2),
                Run("echo two > two; mkdir -p deep/er; echo d > deep/er/d; echo i > ignored"),
            ],
        ),
    ]);
    let ran = agents.run(&project, &[]);
    let results = agents.results();
    assert!(results[0].starts_with("One. is done."), "{results:?}");
    assert!(results[0].contains("in your files now: "), "{results:?}");
    assert!(results[1].contains("deep/er/d, two]"), "{results:?}");
    let seen =
        agents.server.requests().iter().map(|request| request.body.clone()).collect::<String>();
    assert!(seen.contains("changed\\nn\\n") && seen.contains("worktrees/"), "{seen}");
    let after = project.user_state();
    assert_eq!(
        (&after.index, &after.refs, &after.head),
        (&before.index, &before.refs, &before.head)
    );
    assert!(!project.cli.path("foreign").exists() && !project.cli.path("ignored").exists());
    assert_eq!(fs::read(project.cli.path("bin")).unwrap(), b"c\0d");
    assert!(!project.cli.path("old").exists() && !project.cli.path("gone").exists());
    assert_eq!(project.cli.read("renamed"), "old\n");
    let mode = fs::metadata(project.cli.path("sub/s.txt")).unwrap().permissions().mode();
    assert_eq!(mode & 0o111, 0o111);
    assert_eq!(fs::read_link(project.cli.path("link")).unwrap(), Path::new("bin"));
    assert_eq!(
        (project.cli.read("two"), project.cli.read("deep/er/d")),
        ("two\n".into(), "d\n".into())
    );
    assert_eq!(
        (project.cli.read("a.txt"), project.cli.read("new")),
        ("one\ntwo\nchanged\n".into(), "n\n".into())
    );
    let modified = ran.json()["files_modified"].as_array().unwrap().len();
    assert_eq!(modified, 8, "{}", ran.out);
    project.assert_nothing_left("in the end");
}

/// The first agent's change is applied; the second one's is on its branch, which its dispatcher can read.
#[test]
fn the_second_change_of_a_file_is_a_conflict() {
    let project = Project::new();
    let agents = Agents::new(&[
        (
            "Do it.",
            &[
                BOTH,
                Run(
                    "git show $(git branch --list 'architect/*' --format '%(refname:short)'):a.txt",
                ),
            ],
        ),
        ("One.", &[Meet(2), Edit("a.txt", "two", "2")]),
        ("Two.", &[Meet(2), Edit("a.txt", "two", "II"), Run("echo x > x")]),
    ]);
    agents.run(&project, &[]);
    let results = agents.results();
    let (applied, refused): (Vec<_>, Vec<_>) =
        results[..2].iter().partition(|text| text.contains("in your files now: a.txt"));
    assert_eq!((applied.len(), refused.len()), (1, 1), "{results:?}");
    let listed = project.listed();
    let branch = listed[0]["branch"].as_str().unwrap();
    assert!(refused[0].contains("NOT applied") && refused[0].contains(branch), "{refused:?}");
    assert!(refused[0].contains("<<<<<<< yours"), "{refused:?}");
    let (first, second) = match applied[0].starts_with("One.") {
        true => ("2", "II"),
        false => ("II", "2"),
    };
    assert_eq!(project.cli.read("a.txt"), format!("one\n{first}\nthree\n"));
    assert!(results[2].contains(&format!("one\n{second}\nthree\n")), "{results:?}");
    assert_eq!(listed.len(), 1);
    // A clean-up keeps worktrees with work.
    project.cli.run(&["worktrees"]);
    assert_eq!(project.listed(), listed);
    project.assert_sound("in the end");
}

/// An agent that is the only one works in the files of its dispatcher, including those that git ignores; a key changes
/// that. Without git, the worktree is a copy.
#[test]
fn a_key_says_where_an_agent_works() {
    let alone: Script = &[
        ("Do it.", &[Dispatch("build", &["One."])]),
        ("One.", &[Run("cat ignored; echo own >> ignored; echo one > one; rm -r sub")]),
    ];
    let many: Script = &[
        ("Do it.", &[BOTH]),
        ("One.", &[Run("cat ignored; echo own >> ignored; echo one > one; rm -r sub")]),
        ("Two.", &[Run("test -e one && cp one two")]),
    ];
    let set = |value: &str| format!("agents.build.isolation={value}");
    for (has_git, script, value, is_isolated) in [
        (true, alone, "auto", false),
        (true, alone, "worktree", true),
        (true, many, "none", false),
        (false, many, "auto", false),
        (false, alone, "worktree", true),
    ] {
        let case = format!("git {has_git}, {value}");
        let project = if has_git { Project::new() } else { Project::without_git() };
        project.cli.write("ignored", "i\n");
        let agents = Agents::new(script);
        agents.run(&project, &["--set", &set(value)]);
        let result = agents.results().remove(0);
        assert_eq!(result.contains("in your files now"), is_isolated, "{case}: {result}");
        assert_eq!(project.cli.read("one"), "one\n", "{case}");
        assert!(!project.cli.path("sub/s.txt").exists(), "{case}");
        let ignored = project.cli.read("ignored");
        // Git ignores the file, so it is not part of the result; a copy has all files.
        assert_eq!(ignored == "i\nown\n", !(has_git && is_isolated), "{case}: {ignored}");
        assert_eq!(project.cli.path("two").exists(), script.len() == 3, "{case}");
        assert_eq!(project.listed().len(), 0, "{case}");
    }
    let ran = Project::new().cli.run(&["run", "x", "--set", "agents.build.isolation=some"]);
    assert_eq!(ran.code, 3, "{}", ran.err);
}

/// The changes of a failed agent are not applied, and not lost.
#[test]
fn the_work_of_a_failed_agent_stays_on_its_branch() {
    let project = Project::new();
    let agents = Agents::new(&[
        ("Do it.", &[BOTH]),
        ("One.", &[Run("echo one > one"), Refuse]),
        ("Two.", &[Run("echo two > two")]),
    ]);
    agents.run(&project, &[]);
    let results = agents.results();
    assert!(results[0].contains("not applied to your files"), "{results:?}");
    assert!(!project.cli.path("one").exists() && project.cli.path("two").exists());
    let listed = project.listed();
    let name = listed[0]["name"].as_str().unwrap();
    assert_eq!((listed.len(), project.worktrees(&["merge", name]).code), (1, 0));
    assert_eq!(project.cli.read("one"), "one\n");
}

/// The dispatcher's worktree is changed, and the user's tree is not.
#[test]
fn sub_agents_of_a_run_in_a_worktree_change_that() {
    let project = Project::new();
    let agents = Agents::new(&[
        ("Do it.", &[Run("echo dirty > dirty"), BOTH]),
        ("One.", &[Run("cat dirty && echo one > one")]),
        ("Two.", &[Run("cat dirty && echo two > two")]),
    ]);
    let before = project.user_state();
    let result = agents.run(&project, &["--worktree", "w"]).json();
    assert_eq!(project.user_state(), before);
    let folder = Path::new(result["worktree"]["folder"].as_str().unwrap());
    for name in ["one", "two", "dirty"] {
        assert!(folder.join(name).exists(), "{name}");
    }
    assert_eq!(project.listed().len(), 1);
}

/// The state before the agents is recorded, and all of their changes are undone.
#[test]
fn the_changes_of_sub_agents_are_undone() {
    let project = Project::new();
    let folder = project.cli.home().join(".config/architect");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("config.toml"), "[checkpoints]\nenabled = true\n").unwrap();
    let agents = Agents::new(&[
        ("Do it.", &[BOTH]),
        ("One.", &[Edit("a.txt", "two", "2")]),
        ("Two.", &[Run("echo two > two; rm sub/s.txt")]),
    ]);
    agents.run(&project, &[]);
    assert!(project.cli.path("two").exists());
    let undone = project.cli.run(&["undo", "--yes"]);
    assert_eq!(undone.code, 0, "{}", undone.err);
    assert_eq!(project.cli.read("a.txt"), "one\ntwo\nthree\n");
    assert!(!project.cli.path("two").exists() && project.cli.path("sub/s.txt").exists());
}

fn resume(agents: &Agents, project: &Project) -> CommandResult {
    let begun = Instant::now();
    loop {
        let command = agents.command(project, &["resume", "last"]).spawn().unwrap();
        let ran = wait_for_exit(command);
        // Processes of the killed run may still be there for a moment.
        let is_busy = ran.err.contains("in use") || ran.err.contains("running");
        if !is_busy || begun.elapsed() > Duration::from_secs(10) {
            return ran;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Of two agents, one is done and the other one is at work when the engine is killed.
#[test]
fn a_killed_run_goes_on_with_its_sub_agents_in_their_worktrees() {
    let project = Project::new();
    let agents = Agents::new(&[
        ("Do it.", &[BOTH]),
        ("One.", &[Edit("a.txt", "one", "first\none")]),
        ("Two.", &[Edit("a.txt", "three", "three\nlast"), Hang, Run("echo two > two")]),
    ]);
    let mut child = agents.command(&project, &["run", "Do it."]).spawn().unwrap();
    wait_until("one is done and the other one waits", || {
        agents.hung.load(Ordering::SeqCst) > 0 && project.cli.read("a.txt").starts_with("first")
    });
    std::thread::sleep(Duration::from_millis(300));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(project.cli.read("a.txt"), "first\none\ntwo\nthree\n");
    let requests = agents.server.requests().len();
    let ran = resume(&agents, &project);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    assert_eq!(project.cli.read("a.txt"), "first\none\ntwo\nthree\nlast\n");
    assert_eq!(project.cli.read("two"), "two\n");
    // The first step of the agent was not repeated.
    let later = &agents.server.requests()[requests..];
    let again = later.iter().map(ReceivedRequest::json);
    let mut again = again.filter(|body| is_task(body, "Two."));
    assert!(again.all(|body| body["messages"].as_array().unwrap().len() > 3));
    project.assert_nothing_left("in the end");
}

/// The work of an interrupted sub-agent is not lost silently, and `what-if` needs no worktree that was removed since.
#[test]
fn an_interrupted_run_names_the_branches_of_its_sub_agents() {
    let project = Project::new();
    let agents = Agents::new(&[
        ("Do it.", &[BOTH]),
        ("One.", &[Run("echo one > one"), Hang]),
        ("Two.", &[Run("echo two > two")]),
    ]);
    let child = agents.command(&project, &["run", "Do it."]).spawn().unwrap();
    wait_until("one waits and the other one is done", || {
        agents.hung.load(Ordering::SeqCst) > 0 && project.cli.path("two").exists()
    });
    wait_until("what the other one did is applied", || project.listed().len() == 1);
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let ran = wait_for_exit(child);
    assert_eq!(ran.code, 143, "{}", ran.err);
    let listed = project.listed();
    let (branch, session) =
        (listed[0]["branch"].as_str().unwrap(), listed[0]["session_id"].as_str());
    let session = session.unwrap();
    let named = format!("session {session} is not applied, and stays on the branch {branch}");
    assert!(ran.err.contains(&named), "{}", ran.err);
    assert_eq!(ran.err.matches("is not applied").count(), 1, "{}", ran.err);
    let name = listed[0]["name"].as_str().unwrap();
    let merge = format!("architect worktrees merge {name}");
    let unapplied = json!([
        {"session_id": session, "worktree": name, "branch": branch, "merge_command": merge}
    ]);
    assert_eq!(ran.json()["unapplied_work"], unapplied);
    // The same holds with more replies in between.
    for _ in 0..2 {
        let resumed = resume(&agents, &project);
        assert_eq!(resumed.json()["unapplied_work"], unapplied, "{}", resumed.err);
        assert!(resumed.err.contains(&named), "{}", resumed.err);
    }
    assert_eq!(project.worktrees(&["rm", "--force", name]).code, 0);
    assert_eq!(resume(&agents, &project).json()["unapplied_work"], Value::Null);
    let what_if = project.cli.run(&["what-if", session, "--set", "limits.max_steps=1"]);
    assert_eq!(what_if.code, 0, "{}", what_if.err);
}

/// Killed at any time and resumed, all changes are there once, and nothing else is.
#[test]
fn sub_agents_survive_being_killed_at_any_time() {
    let rounds = std::env::var("WORKTREE_ROUNDS").ok().and_then(|text| text.parse().ok());
    let rounds: u64 = rounds.unwrap_or(8);
    let mut killed = 0;
    for round in 0..rounds {
        let project = Project::new();
        fs::set_permissions(project.cli.path("sub/s.txt"), Permissions::from_mode(0o755)).unwrap();
        let state = project.user_state();
        let agents = Agents::new(&[
            ("Do it.", &[BOTH]),
            ("One.", &[Edit("a.txt", "one", "first\none"), Edit("sub/s.txt", "s", "s\nt")]),
            ("Two.", &[Edit("a.txt", "three", "three\nlast")]),
        ]);
        let mut child = agents.command(&project, &["run", "Do it."]).spawn().unwrap();
        let time = Duration::from_millis(150 + (round * 97) % 900);
        if child.wait_timeout(time).unwrap().is_none() {
            child.kill().unwrap();
            killed += 1;
        }
        child.wait().unwrap();
        // A worktree whose changes were applied doesn't wait for a resume.
        let mut listed = project.listed().into_iter();
        let is_needed = |it: &Value| it["in_use"] == true || it["changed"] == true;
        assert!(listed.all(|worktree| is_needed(&worktree)), "{round}");
        if project.cli.run(&["sessions", "--json"]).json() != json!([]) {
            let ran = resume(&agents, &project);
            assert_eq!(ran.code, 0, "{round}: {}{}", ran.out, ran.err);
            let text = project.cli.read("a.txt");
            assert_eq!(text, "first\none\ntwo\nthree\nlast\n", "{round}: {:?}", agents.results());
            assert_eq!(project.cli.read("sub/s.txt"), "s\nt\n", "{round}");
        }
        let case = format!("round {round}");
        project.assert_nothing_left(&case);
        let now = project.user_state();
        assert_eq!((now.index, now.refs), (state.index, state.refs), "{case}");
    }
    println!("killed {killed} of {rounds}");
}
