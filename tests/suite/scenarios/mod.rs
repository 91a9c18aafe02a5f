//! `architect test`: the scenarios of this project, and the output for a scenario that fails.

use std::fs;
use std::path::Path;

use crate::kit::cli::CliFixture;

const HELLO: &str = "# kept\nprompt = \"Say hello.\"\n\n[[turn]]\ntext = \"Hello.\"\n";

fn expecting(expect: &str) -> String {
    format!("{HELLO}\n[expect]\n{expect}")
}

#[test]
fn the_scenarios_of_this_project_pass() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let ran = CliFixture::new().run(&["test", folder.to_str().unwrap(), "--json"]);
    let json = ran.json();
    let failed: Vec<_> = json["scenarios"].as_array().unwrap().iter().collect();
    let failed = failed.into_iter().filter(|one| one["passed"] == false);
    let reported =
        failed.map(|one| format!("{}\n{}", one["path"], one["difference"].as_str().unwrap()));
    assert_eq!(reported.collect::<Vec<_>>(), Vec::<String>::new());
    assert_eq!(ran.code, 0);
    assert!(json["passed"].as_u64().unwrap() >= 15);
}

#[test]
fn a_difference_is_shown_line_by_line_and_fails_the_command() {
    let world = CliFixture::new();
    world.write("a.toml", &expecting("exit_code = 0\noutput = \"Hello!\"\n"));
    let ran = world.run(&["test", "a.toml", "--junit", "junit.xml"]);
    assert_eq!(ran.code, 1, "{}", ran.err);
    assert!(ran.out.starts_with("✗ a.toml ("), "{}", ran.out);
    let lines = "     exit_code = 0\n    -output = \"Hello!\"\n    +output = \"Hello.\"\n";
    assert!(ran.out.contains(lines), "{}", ran.out);
    assert!(ran.out.ends_with("0 passed, 1 failed\n"));
    assert!(world.read("junit.xml").contains("tests=\"1\" failures=\"1\" errors=\"0\""));
}

#[test]
fn update_writes_what_was_seen_and_leaves_the_rest_of_the_file() {
    let world = CliFixture::new();
    world.write("a.toml", HELLO);
    assert_eq!(world.run(&["test", "a.toml"]).code, 1, "a scenario that expects nothing passes");
    assert_eq!(world.run(&["test", "a.toml", "--update"]).code, 0);
    let written = world.read("a.toml");
    assert!(written.starts_with(HELLO));
    assert!(written.contains("[expect]\nexit_code = 0\nstop_reason = \"llm_done\"\n"), "{written}");
    assert_eq!(world.run(&["test", "a.toml"]).code, 0);
    assert_eq!(world.read("a.toml"), written);
}

#[test]
fn an_invalid_scenario_is_reported_with_its_line_before_anything_runs() {
    let world = CliFixture::new();
    world.write("s/good.toml", &expecting("exit_code = 0\n"));
    world.write("s/bad.toml", &expecting("exit_code = 0\nexit_cod = 1\n"));
    let ran = world.run(&["test", "s"]);
    assert_eq!((ran.code, ran.out.as_str()), (3, ""));
    assert!(ran.err.contains("s/bad.toml:9: unknown field `exit_cod`"), "{}", ran.err);
    world.write("s/bad.toml", &expecting("files = { \"a.txt\" = 1 }\n"));
    let ran = world.run(&["test", "s"]);
    assert!(ran.err.contains("s/bad.toml:8: expected true or false for whether"), "{}", ran.err);
}

#[test]
fn a_scenario_sees_nothing_of_the_user_and_two_runs_are_the_same() {
    let world = CliFixture::new();
    fs::create_dir_all(world.home().join(".config/architect")).unwrap();
    let own =
        "language = \"es\"\n[limits]\nmax_steps = 1\n[permissions]\ndeny = [\"run_command\"]\n";
    fs::write(world.home().join(".config/architect/config.toml"), own).unwrap();
    let calls =
        "[[turn]]\ncalls = [{ name = \"run_command\", arguments = { command = \"pwd; env\" } }]\n";
    let text = format!("prompt = \"x\"\nmode = \"yolo\"\n{calls}[[turn]]\ntext = \"a\"\n");
    world.write("a.toml", &text).write("b.toml", &text);
    let ran = world.run(&["test", "a.toml", "b.toml", "--update"]);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    let seen = world.read("a.toml");
    assert_eq!(seen, world.read("b.toml"));
    assert!(!seen.contains(world.home().to_str().unwrap()), "{seen}");
}

#[test]
fn a_session_becomes_a_scenario_that_passes() {
    let world = CliFixture::new();
    world.write("a.txt", "one\n").write("b.txt", "left alone\n");
    let script = r#"
        [[turn]]
        text = "I look."
        calls = [
            { name = "read_file", arguments = { path = "b.txt" } },
            { name = "edit_file", arguments = { path = "a.txt", old_str = "one", new_str = "two" } },
            { name = "write_file", arguments = { path = "new/c.txt", content = "three\n" } },
        ]
        [[turn]]
        error = { kind = "server", message = "overloaded", wait_ms = 10 }
        [[turn]]
        text = "Done."
        usage = { input = 20, output = 5 }
    "#;
    let ran = world.run_script(script, &["--mode", "yolo", "--json"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let scenario = world.run(&["test", "--from", "last"]);
    assert_eq!(scenario.code, 0, "{}", scenario.err);
    world.write("made.toml", &scenario.out);
    let tested = world.run(&["test", "made.toml"]);
    assert_eq!(tested.code, 0, "{}\n{}", tested.out, scenario.out);
    let before = "[workspace]\n\"a.txt\" = \"\"\"\none\n\"\"\"\n";
    assert!(scenario.out.contains(before), "{}", scenario.out);
    assert!(!scenario.out.contains("# What"), "{}", scenario.out);
}
