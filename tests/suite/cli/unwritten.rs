//! Results that can't be written to standard output.

use std::fs::OpenOptions;

use super::world::{World, finish};

#[test]
fn a_result_that_can_t_be_written_is_told_on_standard_error_with_session_steps_and_cost() {
    for format in [&["--json"][..], &["--output-format", "text"]] {
        let world = World::new();
        let model = world.script(
            "[[turn]]\ncalls = [{ name = \"write_file\", arguments = { path = \"a\", content = \"1\" } }]\n\
             [[turn]]\ntext = \"Done.\"\n",
        );
        let args = ["run", "Do it.", "--model", &model, "--mode", "yolo", "-q"];
        let mut command = world.command(&[&args[..], format].concat());
        command.stdout(OpenOptions::new().write(true).open("/dev/full").unwrap());
        let ran = finish(command.spawn().unwrap());
        assert_eq!(ran.code, 1, "{}", ran.err);
        let listed = world.run(&["sessions", "list", "--json"]).json();
        let session = listed[0]["session_id"].as_str().unwrap();
        assert!(ran.err.contains("could not write the output: No space left"), "{}", ran.err);
        assert!(ran.err.contains("ended with llm_done: 1 steps, cost"), "{}", ran.err);
        assert!(ran.err.contains(&format!("architect sessions show {session}")), "{}", ran.err);
    }
}
