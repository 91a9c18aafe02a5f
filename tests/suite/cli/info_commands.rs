//! The other commands, and wrong usage.

use serde_json::json;

use crate::kit::chat;
use crate::kit::cli::CliFixture;
use crate::kit::server::Server;

#[test]
fn models_are_listed_with_their_aliases() {
    let world = CliFixture::new();
    world.write("prices.toml", "[aliases]\nbest = \"anthropic/claude-sonnet-5\"\n");
    let args = ["models", "--provider", "anthropic", "--set", "costs.prices_file=prices.toml"];
    let listed = world.run(&args);
    let last = listed.out.lines().rev().take(4).collect::<Vec<_>>();
    assert!(last.contains(&"best stands for anthropic/claude-sonnet-5"), "{}", listed.out);
    let json = world.run(&[&args[..], &["--json"]].concat()).json();
    let models = json.as_array().unwrap();
    let best = models.iter().find(|model| model["model"] == "anthropic/claude-sonnet-5").unwrap();
    assert_eq!(best["aliases"], json!(["best"]));
}

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
    for (format, begin) in [
        ("mermaid", "stateDiagram"),
        ("dot", "digraph"),
        ("scxml", "<?xml"),
        ("json", "{"),
        ("promela", "/*"),
        ("tla", "----"),
    ] {
        let ran = world.run(&["machine", "--format", format]);
        assert_eq!(ran.code, 0);
        assert!(ran.out.trim_start().starts_with(begin), "{format}: {}", ran.out);
    }
}

#[test]
fn the_bounds_of_a_run_follow_from_its_options() {
    let world = CliFixture::new();
    let limits = ["--set", "limits.budget_usd=2", "--set", "limits.timeout=600"];
    let ran =
        world.run(&[&["machine", "--bounds", "--set", "limits.max_steps=0"], &limits[..]].concat());
    assert_eq!(ran.code, 0, "{}", ran.err);
    let lines: Vec<_> = ran.out.lines().collect();
    assert_eq!(lines[1..], ["at most $2.00", "at most 600 s", "at most 0 steps"]);
    assert!(lines[0].starts_with("at most 1 call of the model"), "{}", lines[0]);
    let ran = world.run(&["machine", "--bounds", "--format", "dot"]);
    assert_eq!(ran.code, 3);
}

#[test]
fn tables_fit_a_terminal() {
    let world = CliFixture::new();
    let server = Server::new([chat::text("Done.")]);
    assert_eq!(world.run_with_server(&server, &[]).code, 0);
    for args in [&["models"][..], &["stats"], &["sessions", "costs"], &["sessions", "list"]] {
        let printed = world.run(args).out;
        let widest = printed.lines().max_by_key(|line| line.chars().count()).unwrap();
        assert!(widest.chars().count() <= 80, "{args:?}: {widest}");
    }
}

#[test]
fn agents_and_completions_are_listed() {
    let world = CliFixture::new();
    let agents = world.run(&["agents", "--json"]).json();
    let names: Vec<_> =
        agents.as_array().unwrap().iter().map(|agent| agent["name"].clone()).collect();
    assert_eq!(names, ["build", "plan", "resume", "review"]);
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(world.run(&["completions", shell]).out.contains("architect"), "{shell}");
    }
}

#[test]
fn an_agent_with_a_tool_that_does_not_exist_is_listed_as_wrong() {
    let ran =
        CliFixture::new().run(&["agents", "--set", "agents.plan.allowed_tools=[\"raed_file\"]"]);
    assert!(ran.code == 3 && ran.out.contains("raed_file"), "{} {}", ran.code, ran.out);
    assert!(ran.err.contains("did you mean `read_file`?"), "{}", ran.err);
}

/// Requests of a shell's completion script: names that only this machine knows.
#[test]
fn names_of_this_machine_are_completed() {
    let world = CliFixture::new();
    world.write(".architect/profiles/fast.toml", "");
    assert_eq!(world.run_script("[[turn]]\ntext = 'Done.'\n", &[]).code, 0);
    let listed = world.run(&["sessions", "--json"]).json();
    let session = listed[0]["session_id"].as_str().unwrap().to_owned();
    let completed = |words: &[&str]| {
        let mut command = world.command(&[&["--", "architect"], words].concat());
        command.env("_ARCHITECT_COMPLETE", "bash").env("_CLAP_IFS", "\n");
        command.env("_CLAP_COMPLETE_INDEX", words.len().to_string());
        crate::kit::cli::wait_for_exit(command.spawn().unwrap()).out
    };
    for (words, expected) in [
        (&["resume", "0"][..], session.as_str()),
        (&["sessions", "show", "la"], "last"),
        (&["run", "--agent", "b"], "build"),
        (&["run", "--model", "anthropic/"], "anthropic/claude"),
        (&["run", "--profile", ""], "fast"),
        (&["run", "--set", "limits.max_s"], "limits.max_steps="),
    ] {
        let out = completed(words);
        assert!(out.contains(expected), "{words:?}: {out}");
    }
}

#[test]
fn an_unknown_profile_is_reported_with_those_that_are_known() {
    let world = CliFixture::new();
    let unknown = |known: &str| {
        let ran = world.run(&["run", "x", "--profile", "nope"]);
        let expected = format!("unknown profile `nope`\n  known profiles: {known}\n");
        assert!(ran.code == 3 && ran.err.contains(&expected), "{}", ran.err);
    };
    unknown("none");
    world.write(".architect/profiles/fast.toml", "");
    unknown("fast");
}

/// A list fits a terminal, and its short ids are accepted.
#[test]
fn a_list_of_sessions_fits_and_its_ids_can_be_used() {
    let world = CliFixture::new();
    let model = world.script_model("[[turn]]\ntext = 'Done.'\n");
    for task in ["Short.", "A task whose text is longer than what is left of a line of a terminal."]
    {
        assert_eq!(world.run(&["run", task, "--model", &model]).code, 0);
    }
    let list = world.run(&["sessions"]).out;
    assert!(list.lines().all(|line| line.chars().count() <= 80), "{list}");
    let ids: Vec<&str> = list.lines().skip(1).filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(ids.len(), 2, "{list}");
    for (id, task) in ids.iter().zip(["A task whose", "Short."]) {
        assert!(id.len() < 36, "{list}");
        let shown = world.run(&["sessions", "show", id]);
        assert!(shown.code == 0 && shown.out.contains(task), "{}{}", shown.out, shown.err);
    }
}

/// For wrong usage, clap's own code is 2, which is the code of a partial run here.
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

/// Values that a project's own file loosens hold only with the user's trust.
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
