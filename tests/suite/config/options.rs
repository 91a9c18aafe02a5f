//! `--set`: TOML where it is TOML, a bare word otherwise, for every key that is shown.

use architect::config::ProjectTrust;
use architect::types::TimeSpan;

use super::fixture::ConfigFixture;

#[test]
fn a_string_of_toml_is_its_text_and_a_bare_word_is_itself() {
    for (set, model) in [
        ("llm.model=\"x\"", "x"),
        ("llm.model='x'", "x"),
        ("llm.model= \"x\" ", "x"),
        ("llm.model=x", "x"),
        ("llm.model=5", "5"),
        ("llm.model=2026-11-22", "2026-11-22"),
        ("llm.model=\"x", "\"x"),
    ] {
        assert_eq!(
            ConfigFixture::new().set(set).load().settings.llm.model.unwrap().as_str(),
            model,
            "{set}"
        );
    }
    let setup = ConfigFixture::new().variable("ARCHITECT_LLM_MODEL", "\"x\"");
    assert_eq!(setup.load().settings.llm.model.unwrap().as_str(), "x");
    let problems = ConfigFixture::new().set("limits.max_steps=\"5\"").problems();
    assert!(problems[0].contains("a whole number"), "{problems:?}");
    let deny = ConfigFixture::new().set("permissions.deny='run_command(a, b)'").load();
    assert_eq!(deny.settings.permissions.deny, ["run_command(a, b)"]);
}

const GATE: &str = "[[guardrails.quality_gates]]\nname = 'tests'\ncommand = 'make'\n";

#[test]
fn an_empty_list_clears_the_lists_of_files() {
    let setup = || ConfigFixture::new().user(&format!("permissions.deny = ['a']\n{GATE}"));
    let cleared = setup().set("guardrails.quality_gates=[]").set("permissions.deny=[]").load();
    assert!(cleared.settings.guardrails.quality_gates.is_empty());
    assert!(cleared.settings.permissions.deny.is_empty());
    let later = setup().set("permissions.deny=[]").set("permissions.deny=['b']").load();
    assert_eq!(later.settings.permissions.deny, ["b"]);
    // Neither an empty variable nor a file clears anything, least of all the project's.
    let project =
        || setup().project("permissions.deny = []\n").variable("ARCHITECT_PERMISSIONS_DENY", "");
    for trust in [ProjectTrust::Granted, ProjectTrust::Withheld] {
        assert_eq!(project().trust(trust).load().settings.permissions.deny, ["a"]);
    }
    let problems = setup().set("permissions.deny=").problems();
    assert_eq!(problems, ["--set permissions.deny: expected a list; [] empties it"]);
}

/// Every key that is shown can be set to the shown value.
#[test]
fn what_is_shown_can_be_set() {
    let text = format!(
        "{GATE}[[hooks.stop]]\nname = 'h'\ncommand = 'x'\n[[mcp.servers]]\nname = 'm'\ncommand = 'y'\n\
         env = {{ A = 'b' }}\n[permissions.examples]\n'run_command(git push)' = 'deny'\n[agents.docs]\nmax_steps = 3\n"
    );
    let shown = ConfigFixture::new().user(&text).load();
    let shown: Vec<(String, String)> = shown
        .effective_values
        .iter()
        .filter_map(|shown| Some((shown.key.clone(), shown.value()?)))
        .collect();
    assert!(shown.iter().any(|(key, _)| key == "guardrails.quality_gates.tests.timeout"));
    for (key, value) in shown {
        let set = ConfigFixture::new().user(&text).set(&format!("{key}={value}"));
        assert_eq!(set.shown(&key), (value, format!("--set {key}")), "{key}");
    }
}

#[test]
fn a_key_of_an_entry_is_right_or_wrong_with_the_entry() {
    let setup = || ConfigFixture::new().user(GATE);
    let gates = setup().set("guardrails.quality_gates.tests.timeout=5").load();
    let gate = &gates.settings.guardrails.quality_gates[0];
    assert_eq!((gate.command.as_str(), gate.timeout), ("make", TimeSpan::from_secs(5)));
    let path = "--set guardrails.quality_gates";
    for (set, problem) in [
        ("tests.timeout=soon", "tests.timeout: `guardrails.quality_gates.tests.timeout` must be"),
        (
            "tests.timeot=5",
            "tests.timeot: unknown key `guardrails.quality_gates.tests.timeot`, did you mean `timeout`?",
        ),
        ("lint.timeout=5", "lint.timeout: `guardrails.quality_gates.lint.command` is missing"),
    ] {
        let problems = setup().set(&format!("guardrails.quality_gates.{set}")).problems();
        assert!(problems[0].starts_with(&format!("{path}.{problem}")), "{problems:?}");
    }
    let both = setup().set("guardrails.quality_gates.lint.command=x").load();
    assert_eq!(both.settings.guardrails.quality_gates.len(), 2);
    assert!(setup().set("guardrails.quality_gates.=x").problems()[0].contains("unknown key"));
}
