//! Several runs that are given the same id for their session.

use crate::kit::cli::{CliFixture, wait_for_exit};

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

/// Every edit that a run reports as made is in the file, and the others are reported to the model.
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
        std::fs::write(&path, script + "[[turn]]\ntext = 'Done.'\n").unwrap();
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
