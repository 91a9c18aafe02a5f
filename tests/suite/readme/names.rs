//! Options, configuration keys and tools that the pages name exist.

use std::collections::BTreeSet;
use std::fs;

use architect::tools::BUILT_IN;
use serde_json::Value;

use super::pages::{Page, linked_pages, pages};
use crate::kit::cli::CliFixture;

/// Options of other programs: git, Slurm, GNU parallel, the agents that the README compares, the benchmark `peers`.
const OF_OTHERS: &[&str] = &[
    "--git-dir",
    "--requeue",
    "--sshloginfile",
    "--workdir",
    "--max-budget-usd",
    "--max-turns",
    "--steps",
    "--only",
];

/// Returns the options of all commands, from their man pages.
fn options() -> BTreeSet<String> {
    let cli = CliFixture::new();
    assert_eq!(cli.run(&["man", "--out", "man"]).code, 0);
    let manuals = fs::read_dir(cli.path("man")).unwrap();
    let texts = manuals.map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap());
    texts.flat_map(|text| options_in(&text.replace("\\-", "-"))).collect()
}

/// Returns the words that begin with two hyphens, each up to the first character that an option can't have.
fn options_in(text: &str) -> Vec<String> {
    let is_part = |c: char| c.is_ascii_lowercase() || c == '-';
    let found = text.split(|c: char| !is_part(c)).filter(|word| word.starts_with("--"));
    found.filter(|word| word.len() > 2).map(str::to_owned).collect()
}

/// Returns the parts of the prose that are marked as code. A part may continue in the next line, but not in the next
/// paragraph.
fn code_spans(page: &Page) -> Vec<String> {
    let prose: Vec<_> = page.prose().collect();
    let paragraphs = prose.split(|line| line.is_empty()).map(|lines| lines.join(" "));
    paragraphs
        .flat_map(|text| text.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>())
        .collect()
}

/// Returns whether a text names a key of the schema: sections and keys, or names of the user's.
fn has_key(schema: &Value, key: &str) -> bool {
    key.split('.')
        .try_fold(schema, |schema, part| {
            let named = &schema["properties"][part];
            let other = [&schema["additionalProperties"], &schema["items"]]
                .into_iter()
                .find(|other| other.is_object());
            if named.is_object() { Some(named) } else { other }
        })
        .is_some()
}

#[test]
fn options_that_the_pages_name_exist() {
    let known = options();
    let mut unknown = Vec::new();
    for page in linked_pages() {
        // A patch has a line `---`.
        let of_architect = |span: &String| {
            span != "---" && (span.starts_with("--") || span.starts_with("architect "))
        };
        for span in code_spans(&page).into_iter().filter(of_architect) {
            let named = options_in(&span).into_iter();
            let missing =
                named.filter(|name| !known.contains(name) && !OF_OTHERS.contains(&&**name));
            unknown.extend(missing.map(|name| format!("{}: {name}", page.name())));
        }
    }
    assert!(unknown.is_empty(), "no command has these options:\n{}", unknown.join("\n"));
}

#[test]
fn keys_that_the_pages_name_exist() {
    let schema = CliFixture::new().run(&["schema", "config"]).json();
    let sections = schema["properties"].as_object().unwrap();
    let mut unknown = Vec::new();
    for page in linked_pages() {
        for span in code_spans(&page) {
            let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
            let key = span.split(|c: char| !is_part(c)).next().unwrap();
            let is_key =
                key.split_once('.').is_some_and(|(section, _)| sections.contains_key(section));
            if is_key && !has_key(&schema, key) {
                unknown.push(format!("{}: {key}", page.name()));
            }
        }
    }
    assert!(unknown.is_empty(), "the configuration has no such keys:\n{}", unknown.join("\n"));
}

#[test]
fn the_table_of_tools_is_complete() {
    let pages = pages();
    let page = pages.iter().find(|page| page.name() == "docs/tools.md").unwrap();
    let rows: String = page.text.lines().filter(|line| line.starts_with("| `")).collect();
    let missing: Vec<_> = BUILT_IN
        .iter()
        .map(|tool| tool.name)
        .filter(|name| !rows.contains(&format!("`{name}`")))
        .collect();
    assert!(missing.is_empty(), "docs/tools.md has no row for {missing:?}");
}

#[test]
fn options_and_keys_are_found_in_a_text() {
    assert_eq!(
        options_in("run x --max-steps=3 \"--budget 2\" -- a-b"),
        ["--max-steps", "--budget"]
    );
    let schema = serde_json::json!({"properties": {"a": {"properties": {"b": {}}}}});
    assert_eq!([has_key(&schema, "a.b"), has_key(&schema, "a.c")], [true, false]);
}
