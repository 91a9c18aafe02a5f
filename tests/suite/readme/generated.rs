//! Tables, diagrams and the picture of a run are made by the program.
//!
//! `UPDATE=1 cargo test readme` updates the generated sections.

use std::env;
use std::fs;
use std::process::{Command, Stdio};

use architect::config::{ProjectPreset, template, untrusted_changes};
use architect::exec::{SandboxPolicy, Supervisor};
use architect::llm::{provider_names, provider_table};
use architect::port::{ToolSpec, Toolbox as _};
use architect::tools::{ToolRegistry, ToolSettings, standard_tools};
use architect::view::chart::{StatechartFormat, render, render_overview};
use architect::view::reference_tables;
use architect::workspace::WorkspaceRoot;

use super::pages::{pages, root};
use crate::kit::cli::{CliFixture, wait_for_exit};

/// The generated sections, by the names in their markers.
fn sections() -> Vec<(&'static str, String)> {
    let fenced = |diagram: String| format!("```mermaid\n{diagram}```\n");
    vec![
        ("demo", demo()),
        ("providers", provider_table()),
        ("overview", fenced(render_overview().unwrap())),
        ("chart", fenced(render(StatechartFormat::Mermaid).unwrap())),
        ("stop-reasons", reference_tables::stop_reasons().to_markdown()),
        ("events", reference_tables::events().to_markdown()),
        ("settings", settings()),
        ("untrusted-changes", untrusted_changes_table()),
        ("tool-arguments", tool_arguments()),
    ]
}

/// Returns the keys as a new configuration file has them, without the line for editors.
fn settings() -> String {
    let text = template(ProjectPreset::Plain, &provider_names());
    let (_, keys) = text.split_once("\n\n").unwrap();
    format!("```toml file=~/.config/architect/config.toml\n{}\n```\n", keys.trim_end())
}

fn untrusted_changes_table() -> String {
    let named = |key: &&str| format!("`{}`", key.replace('*', "NAME"));
    let row = |(change, keys): (&str, Vec<&str>)| {
        let keys: Vec<_> = keys.iter().map(named).collect();
        format!("| {change} | {} |\n", keys.join(", "))
    };
    let rows: String = untrusted_changes().into_iter().map(row).collect();
    format!("| an untrusted project may | keys |\n|---|---|\n{rows}")
}

/// Returns the arguments of the built-in tools, a line each.
fn tool_arguments() -> String {
    let folder = tempfile::tempdir().unwrap();
    let root = WorkspaceRoot::open(folder.path()).unwrap();
    let supervisor = Supervisor::in_process(SandboxPolicy::off(folder.path()), Vec::new());
    let settings = ToolSettings::default();
    let tools = standard_tools(&root, &supervisor, &settings);
    let mut specs = ToolRegistry::new(tools, settings).specs().to_vec();
    specs.sort_by(|a, b| a.name.cmp(&b.name));
    let rows: String = specs.iter().flat_map(argument_rows).collect();
    format!("| tool | argument | what |\n|---|---|---|\n{rows}")
}

fn argument_rows(tool: &ToolSpec) -> Vec<String> {
    let required = tool.schema["required"].as_array().cloned().unwrap_or_default();
    let arguments = tool.schema["properties"].as_object().unwrap();
    let row = |(name, argument): (&String, &serde_json::Value)| {
        let shown = match required.iter().any(|it| it == name) {
            true => format!("**`{name}`**"),
            false => format!("`{name}`"),
        };
        let what = argument["description"].as_str().unwrap().replace('\n', " ");
        format!("| `{}` | {shown} | {} |\n", tool.name, what.replace('|', "\\|"))
    };
    arguments.iter().map(row).collect()
}

/// Runs the demonstration, and returns its output on a terminal. Names that differ between runs are replaced.
fn demo() -> String {
    let world = CliFixture::new();
    let mut shell = Command::new("sh");
    let program = format!("exec '{}' demo 2>&1", env!("CARGO_BIN_EXE_architect"));
    shell.args(["-c", &program]).current_dir(world.path("")).env_clear().env("HOME", world.home());
    shell.env("PATH", env::var_os("PATH").unwrap_or_default()).env("TMPDIR", "/tmp");
    let ran = wait_for_exit(shell.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap());
    assert_eq!(ran.code, 0, "{}", ran.out);
    let out = with_fixed(&ran.out, "/architect-demo-", "x7Kq2P");
    let out = with_fixed(&out, "▶ Session ", "01a20abf-1ad5-74f1-9213-4c1351db21fa");
    let hash = "84d5659a947e1e2fe14a1935e3621fafec99db64279b5a464450bfd152ee992b";
    let out = with_fixed(&out, "Journal: ", hash);
    format!("```console\n$ architect demo\n{}\n```\n", out.trim_end())
}

/// Replaces the text after a marker by text of the same length.
fn with_fixed(text: &str, marker: &str, fixed: &str) -> String {
    let (before, after) =
        text.split_once(marker).unwrap_or_else(|| panic!("no {marker} in {text}"));
    format!("{before}{marker}{fixed}{}", &after[fixed.len()..])
}

/// Returns the text with a section replaced, or `None` if it has no such section.
fn replaced(text: &str, name: &str, section: &str) -> Option<String> {
    let (begin, end) = (format!("<!-- begin {name} -->\n"), format!("<!-- end {name} -->"));
    let from = text.find(&begin)? + begin.len();
    let to = from + text[from..].find(&end).unwrap_or_else(|| panic!("there is no {end}"));
    Some(format!("{}{section}{}", &text[..from], &text[to..]))
}

#[test]
fn the_generated_sections_of_the_readme_and_the_pages_are_up_to_date() {
    let mut missing: Vec<_> = sections();
    for page in pages() {
        let mut fresh = page.text.clone();
        missing.retain(|(name, section)| match replaced(&fresh, name, section) {
            Some(text) => {
                fresh = text;
                false
            }
            None => true,
        });
        if env::var_os("UPDATE").is_some() {
            fs::write(root().join(&page.path), &fresh).unwrap();
        } else {
            let name = page.name();
            assert!(
                page.text == fresh,
                "{name} is not up to date; run `UPDATE=1 cargo test readme`"
            );
        }
    }
    assert!(missing.is_empty(), "no page has these sections: {missing:?}");
}

#[test]
fn a_section_is_replaced_and_nothing_else() {
    let text = "a\n<!-- begin x -->\nold\n<!-- end x -->\nb\n";
    let replaced_text = "a\n<!-- begin x -->\nnew\n<!-- end x -->\nb\n";
    assert_eq!(replaced(text, "x", "new\n").as_deref(), Some(replaced_text));
    assert_eq!(replaced(text, "y", "new\n"), None);
}
