//! The options of the command line and the schema, which follow from the declarations of the keys.

use architect::config::{OptionValue, keys, schema};
use architect::llm::provider_names;
use serde_json::Value;

use crate::kit::cli::CliFixture;

#[test]
fn each_option_of_a_key_is_in_the_help_of_a_run() {
    let help = CliFixture::new().run(&["run", "--help"]).out;
    let options: Vec<_> = keys().iter().filter_map(|key| key.option).collect();
    assert!(options.len() > 15, "{options:?}");
    for option in options {
        let name = match option.value {
            OptionValue::Named(name) if !name.is_empty() => format!("--{} <{name}>", option.long),
            OptionValue::Named(_) | OptionValue::Sets(_) => format!("--{}", option.long),
        };
        assert!(help.contains(&name), "{name} is not in {help}");
    }
}

#[test]
fn a_word_that_an_option_does_not_know_is_rejected_with_the_words_that_it_knows() {
    let fixture = CliFixture::new();
    for (args, words) in [
        (["machine", "--format", "png"], "mermaid, dot, scxml, json, promela, tla"),
        (["run", "--mode", "ask"], "confirm-all, confirm-sensitive, yolo"),
        (["run", "--color", "red"], "auto, always, never"),
        (["run", "--report", "pdf"], "json, markdown, github, html"),
        (["run", "--lang", "tlh"], "en, es"),
        (["init", "--preset", "go"], "plain, rust, python, node, ci"),
    ] {
        let result = fixture.run(&args);
        assert_eq!(result.code, 3, "{args:?}");
        assert!(result.err.contains(words), "{args:?} {}", result.err);
    }
}

#[test]
fn the_schema_is_printed_even_if_the_configuration_is_invalid() {
    let fixture = CliFixture::new();
    fixture.write(".architect/config.toml", "not toml");
    let result = fixture.run(&["config", "schema"]);
    assert_eq!(result.code, 0, "{}", result.err);
    assert_eq!(serde_json::from_str::<Value>(&result.out).unwrap(), schema(&provider_names()));
}

/// An option on the command line overrides a file, and `config show` prints its value.
#[test]
fn options_set_their_keys() {
    let fixture = CliFixture::new();
    let shown = fixture.run(&[
        "config",
        "show",
        "--max-steps",
        "7",
        "--budget",
        "2.50",
        "--sandbox",
        "read-only",
        "--allow",
        "run_command(a, b)",
        "--allow",
        "grep",
        "--no-commands",
        "--timeout",
        "1.5",
    ]);
    for line in [
        "limits.max_steps = 7",
        "limits.budget_usd = 2.5",
        "limits.timeout = 1.5",
        "sandbox.mode = \"read-only\"",
        "sandbox.required = true",
        "permissions.allow = [\"run_command(a, b)\", \"grep\"]",
        "commands.enabled = false",
    ] {
        assert!(shown.out.contains(line), "{line} is not in {} {}", shown.out, shown.err);
    }
}
