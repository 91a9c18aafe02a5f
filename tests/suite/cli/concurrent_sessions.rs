//! Several processes with one store: runs with the same id for their session, and queries of the index.

use std::fs;

use serde_json::Value;

use crate::kit::cli::{CliFixture, CommandResult, wait_for_exit};

#[test]
fn of_several_runs_with_one_id_one_runs_and_the_others_fail() {
    let world = CliFixture::new();
    let model = world.script_model("[[turn]]\ntext = 'Done.'\n");
    for round in 0..3 {
        let id = format!("019f0000-0000-7000-8000-00000000000{round}");
        let start = |index: usize| {
            let task = format!("task {index}");
            let args = ["run", &task, "--model", &model, "--session", &id, "--json"];
            world.command(&args).spawn().unwrap()
        };
        let running: Vec<_> = (0..8).map(start).collect();
        let ran: Vec<_> = running.into_iter().map(wait_for_exit).collect();
        let won: Vec<_> = (0..8).filter(|index| ran[*index].code == 0).collect();
        let [won] = won[..] else { panic!("round {round}: {won:?} ran") };
        for lost in ran.iter().filter(|ran| ran.code != 0) {
            assert_eq!(lost.code, 3, "{}", lost.err);
            let text = lost.err.as_str();
            assert!(text.contains("exists already") || text.contains("is busy"), "{text}");
            assert_eq!(lost.json()["exit_code"], 3);
        }
        let shown = world.run(&["sessions", "show", &id]);
        assert!(shown.out.contains(&format!("task {won}\n")), "{}", shown.out);
        assert_eq!(world.run(&["replay", &id, "--verify"]).code, 0);
    }
}

/// Every edit that a run reports as done is in the file, and the others are reported to the model.
///
/// `ARCHITECT_PARALLEL_EDITS` sets the number of edits of each run; the number of runs grows with it.
#[test]
fn no_acknowledged_edit_of_runs_in_one_folder_is_lost() {
    let edits = std::env::var("ARCHITECT_PARALLEL_EDITS").ok().and_then(|set| set.parse().ok());
    let edits: usize = edits.unwrap_or(30);
    let runs = if edits > 30 { 20 } else { 6 };
    let world = CliFixture::new();
    world.write("log", "").write("counter", "start\n");
    let start = |run: usize| {
        let mut script = String::new();
        for edit in 0..edits {
            let line = format!("{run}-{edit}\\n");
            let append = format!("{{ path = 'log', content = \"{line}\", mode = 'append' }}");
            let insert = format!(
                "{{ path = 'counter', old_str = 'start', new_str = \"start\\n{run}-{edit}\" }}"
            );
            script += &format!(
                "[[turn]]\ncalls = [{{ name = 'write_file', arguments = {append} }}, \
                 {{ name = 'edit_file', arguments = {insert} }}]\n"
            );
        }
        let path = world.home().join(format!("{run}.toml"));
        fs::write(&path, script + "[[turn]]\ntext = 'Done.'\n").unwrap();
        let (model, steps) = (format!("scripted/{}", path.display()), (edits + 1).to_string());
        let args = ["run", "Do it.", "--model", &model, "--output-format", "stream-json"];
        let limits = ["--max-steps", &steps, "--mode", "yolo", "--set", "sessions.durability=os"];
        world.command(&[&args[..], &limits].concat()).spawn().unwrap()
    };
    let running: Vec<_> = (0..runs).map(start).collect();
    let mut made = [0, 0];
    for (run, ran) in running.into_iter().map(wait_for_exit).enumerate() {
        assert_eq!(ran.code, 0, "{}{}", ran.err, ran.out);
        let ended: Vec<_> =
            ran.lines().into_iter().filter(|line| line["type"] == "tool_call_end").collect();
        assert_eq!(ended.len(), 2 * edits);
        for end in &ended {
            let index = usize::from(end["name"] == "edit_file");
            let edit = end["id"].as_str().unwrap().split('_').nth(1).unwrap();
            let (file, line) = (["log", "counter"][index], format!("{run}-{edit}"));
            let is_made = world.read(file).lines().any(|there| there == line);
            assert_eq!(is_made, end["status"] == "ok", "{file} {line}: {end}");
            made[index] += usize::from(is_made);
        }
    }
    assert_eq!(world.read("log").lines().count(), made[0]);
    assert_eq!(world.read("counter").lines().count(), made[1] + 1);
    assert!(made[0] >= edits && made[1] >= edits, "{made:?}");
}

const SESSIONS: usize = 6;

/// Returns a store with some sessions.
fn with_sessions() -> CliFixture {
    let world = CliFixture::new();
    let model = world.script_model("[[turn]]\ntext = 'Done.'\n");
    for index in 0..SESSIONS {
        let ran = world.run(&["run", &format!("task {index}"), "--model", &model, "-q"]);
        assert_eq!(ran.code, 0, "{}", ran.err);
    }
    world
}

/// Runs all commands at once, each of which succeeds.
fn run_at_once(world: &CliFixture, commands: &[&[&str]]) -> Vec<CommandResult> {
    let start = |args: &&[&str]| world.command(args).spawn().unwrap();
    let running: Vec<_> = commands.iter().map(start).collect();
    let ran: Vec<_> = running.into_iter().map(wait_for_exit).collect();
    ran.iter().for_each(|ran| assert_eq!(ran.code, 0, "{}{}", ran.err, ran.out));
    ran
}

/// Lists, searches and sums at once, checks that each answer has all sessions, and returns the standard error output.
fn query_at_once(world: &CliFixture) -> String {
    let list = &["sessions", "list", "--json"][..];
    let queries = [list, &["sessions", "search", "task", "--json"], &["stats", "--json"]].repeat(3);
    let ran = run_at_once(world, &queries);
    for (ran, query) in ran.iter().zip(queries) {
        let counted = match ran.json() {
            Value::Array(rows) => Some(rows.len() as u64),
            statistics => statistics["sessions"].as_u64(),
        };
        assert_eq!(counted, Some(SESSIONS as u64), "{query:?} {}", ran.err);
    }
    ran.iter().map(|ran| ran.err.as_str()).collect()
}

/// Fault S10: one process builds the index, and the others use it.
#[test]
fn queries_that_build_the_index_at_once_are_complete() {
    let world = with_sessions();
    let index = world.home().join(".local/state/architect/index.db");
    for _ in 0..3 {
        assert_eq!(query_at_once(&world), "");
        fs::remove_file(&index).unwrap();
    }
    assert_eq!(world.run(&["stats"]).err, "");
    let whole = fs::read(&index).unwrap();
    for page in [0, 1, 2, 5] {
        let mut damaged = whole.clone();
        damaged[page * 4096..][..4096].fill(0xa5);
        fs::write(&index, damaged).unwrap();
        let warnings = query_at_once(&world);
        assert!(warnings.matches("the session index is broken").count() <= 1, "{warnings}");
        assert!(warnings.lines().count() <= 1, "{warnings}");
        assert_eq!(query_at_once(&world), "", "page {page}: it was built again");
    }
    fs::write(&index, b"no database".repeat(1000)).unwrap();
    assert_eq!(query_at_once(&world).lines().count(), 1);
}

/// Fault S10.
#[test]
fn sessions_that_are_removed_at_once_are_removed_without_a_failure() {
    let world = with_sessions();
    let listed = world.run(&["sessions", "list", "--json"]).json();
    let ids: Vec<&str> =
        listed.as_array().unwrap().iter().map(|row| row["session_id"].as_str().unwrap()).collect();
    let remove: Vec<_> = ids.iter().map(|id| ["sessions", "rm", id]).collect();
    let remove: Vec<&[&str]> = remove.iter().map(|args| &args[..]).collect();
    for ran in run_at_once(&world, &remove) {
        assert_eq!(ran.err, "");
    }
    assert_eq!(world.run(&["sessions", "--json"]).out.trim(), "[]");
}

/// The index is a cache: if it can't be written, a removal still succeeds.
#[test]
fn a_removal_does_not_depend_on_the_index() {
    let world = with_sessions();
    let index = world.home().join(".local/state/architect/index.db");
    let _ = fs::remove_file(&index);
    fs::create_dir(&index).unwrap();
    let ran = world.run(&["sessions", "rm", "last"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.err.contains("using a temporary one"), "{}", ran.err);
}
