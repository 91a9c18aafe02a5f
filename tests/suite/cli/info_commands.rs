//! The other commands, and wrong usage.

use serde_json::json;

use crate::kit::cli::CliFixture;

#[test]
fn the_demonstration_fixes_a_real_file() {
    let ran = CliFixture::new().run(&["demo"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(
        ran.err.contains("before: it fails") && ran.err.contains("after: it passes"),
        "{}",
        ran.err
    );
    assert!(ran.out.contains("convert.sh"), "{}", ran.out);
}

#[test]
fn the_statechart_is_printed_in_each_format() {
    let world = CliFixture::new();
    for (format, begin) in
        [("mermaid", "stateDiagram"), ("dot", "digraph"), ("scxml", "<?xml"), ("json", "{")]
    {
        let ran = world.run(&["machine", "--format", format]);
        assert_eq!(ran.code, 0);
        assert!(ran.out.trim_start().starts_with(begin), "{format}: {}", ran.out);
    }
}

#[test]
fn agents_and_completions_are_listed() {
    let world = CliFixture::new();
    let agents = world.run(&["agents", "--json"]).json();
    let names: Vec<_> =
        agents.as_array().unwrap().iter().map(|agent| agent["name"].clone()).collect();
    assert_eq!(names, ["build", "plan", "resume", "review"]);
    assert!(world.run(&["completions", "bash"]).out.contains("architect"));
}

/// clap's own code for wrong usage, 2, is the one of a partial run here.
#[test]
fn wrong_usage_is_exit_code_3_with_advice() {
    let negative = CliFixture::new().run(&["run", "x", "--budget", "-1"]);
    assert_eq!(negative.code, 3);
    assert!(negative.err.contains("not negative, found -1"), "{}", negative.err);
    let world = CliFixture::new();
    for args in [
        &["run", "--nonsense"][..],
        &["fly"],
        &["run"],
        &["run", "x"],
        &["run", "x", "-m", "nonsense/x"],
        &["run", "x", "-m", "scripted/absent.toml"],
        &["run", "x", "-m", "scripted/s", "-a", "bild"],
        &["run", "x", "-m", "scripted/s", "-w", "absent"],
        &["run", "x", "-m", "scripted/s", "--set", "llm.modle=x"],
        &["run", "x", "-m", "scripted/s", "--session", "../../etc"],
        &["run", "@absent"],
        &["resume", "last"],
    ] {
        let ran = world.run(args);
        assert_eq!(ran.code, 3, "{args:?}: {}", ran.err);
        assert!(ran.err.starts_with("error: ") && ran.out.is_empty(), "{args:?}: {}", ran.err);
    }
    assert_eq!(world.run(&["--help"]).code, 0);
    assert_eq!(world.run(&["--version"]).code, 0);
}

#[test]
fn a_failed_start_still_writes_the_result_document() {
    let ran = CliFixture::new().run(&["run", "x", "--json"]);
    assert_eq!(ran.code, 3);
    let json = ran.json();
    assert_eq!((&json["status"], &json["exit_code"]), (&json!("failed"), &json!(3)));
    let ran = CliFixture::new().run(&["run", "x", "--output-format", "stream-json"]);
    assert_eq!(ran.lines().last().unwrap()["type"], "result");
}

#[test]
fn the_configuration_shows_the_origin_of_each_value() {
    let world = CliFixture::new();
    let ran = world.run(&["config", "show", "--set", "limits.max_steps=7"]);
    let line = ran.out.lines().find(|line| line.starts_with("limits.max_steps")).unwrap();
    assert!(line.contains("= 7") && line.ends_with("# --set limits.max_steps"), "{line}");
    world.write("bad.toml", "[llm]\nmodle = 'x'\n");
    let ran = world.run(&["config", "check", "--config", "bad.toml"]);
    assert_eq!(ran.code, 3);
    assert!(
        ran.err.contains("bad.toml:2:1") && ran.err.contains("did you mean `model`"),
        "{}",
        ran.err
    );
}

#[test]
fn the_doctor_says_what_is_wrong() {
    let world = CliFixture::new();
    let ran = world.run(&["doctor"]);
    assert_eq!(ran.code, 1);
    assert!(ran.out.contains("✗ model") && ran.out.contains("sandbox"), "{}", ran.out);
    let model = world.script_model("[[turn]]\ntext = 'x'");
    let ran = world.run(&["doctor", "--model", &model, "--json"]);
    assert_eq!(ran.code, 0, "{}", ran.out);
}

#[test]
fn a_configuration_is_created_only_once() {
    let world = CliFixture::new();
    assert_eq!(world.run(&["init", "--preset", "rust"]).code, 0);
    assert!(world.read(".architect/config.toml").contains("[llm]"));
    let again = world.run(&["init"]);
    assert_eq!(again.code, 3, "{}", again.err);
    assert_eq!(world.run(&["config", "check"]).code, 0);
    assert_eq!(world.run(&["config", "check", "--trust"]).code, 0);
}

/// What a project's own file loosens holds only with the user's trust.
#[test]
fn a_folder_is_trusted_until_trust_is_withdrawn() {
    let world = CliFixture::new();
    world.write(".architect/config.toml", "[commands]\ndefault_timeout = 700\n");
    let timeout = || {
        let shown = world.run(&["config", "show"]).out;
        let line = shown.lines().find(|line| line.starts_with("commands.default_timeout")).unwrap();
        line.split('#').next().unwrap().trim().to_owned()
    };
    let before = timeout();
    assert!(world.run(&["config", "check"]).err.contains("architect config trust"));
    assert_eq!(world.run(&["config", "trust"]).code, 0);
    assert_eq!(timeout(), "commands.default_timeout = 700");
    assert_eq!(world.run(&["config", "untrust"]).code, 0);
    assert_eq!(timeout(), before);
}
