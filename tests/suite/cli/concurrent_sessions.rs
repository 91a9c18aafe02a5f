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
