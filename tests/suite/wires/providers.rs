//! The providers in the help and in the configuration template. `readme` has those of the pages.

use std::process::Command;

use architect::config::{ProjectPreset, template};
use architect::llm::{PROVIDERS, Provider, provider_names};

/// Returns the providers that a text has as words.
fn named(text: &str) -> Vec<&'static str> {
    let is_part = |c: char| c.is_alphanumeric() || c == '-';
    let words: Vec<&str> = text.split(|c| !is_part(c)).collect();
    PROVIDERS.iter().map(Provider::name).filter(|name| words.contains(name)).collect()
}

#[test]
fn the_help_and_the_template_name_all_providers() {
    let help = Command::new(env!("CARGO_BIN_EXE_architect")).args(["run", "--help"]).output();
    let help = String::from_utf8(help.unwrap().stdout).unwrap();
    let all: Vec<&str> = PROVIDERS.iter().map(Provider::name).collect();
    assert_eq!(named(&help), all, "`--model` in the help has to have: {}", all.join(", "));
    let template = template(ProjectPreset::Plain, &provider_names());
    assert_eq!(named(&template), all, "`llm.model` in the template needs: {}", all.join(", "));
}
