//! The README agrees with the program.
//!
//! `UPDATE=1 cargo test readme` updates the generated sections.

use std::env;
use std::fs;
use std::path::Path;

use architect::llm::provider_table;
use architect::view::chart::{StatechartFormat, render, render_overview};
use architect::view::reference_tables;

/// The generated sections, by the names in their markers.
fn sections() -> Vec<(&'static str, String)> {
    let fenced = |diagram: String| format!("```mermaid\n{diagram}```\n");
    vec![
        ("providers", provider_table()),
        ("overview", fenced(render_overview().unwrap())),
        ("chart", fenced(render(StatechartFormat::Mermaid).unwrap())),
        ("stop-reasons", reference_tables::stop_reasons().to_markdown()),
        ("events", reference_tables::events().to_markdown()),
    ]
}

/// Returns the text with a section replaced.
fn replaced(text: &str, name: &str, section: &str) -> String {
    let (begin, end) = (format!("<!-- begin {name} -->\n"), format!("<!-- end {name} -->"));
    let from = text.find(&begin).unwrap_or_else(|| panic!("the README has no {begin}"));
    let from = from + begin.len();
    let to = from + text[from..].find(&end).unwrap_or_else(|| panic!("the README has no {end}"));
    format!("{}{section}{}", &text[..from], &text[to..])
}

#[test]
fn the_generated_sections_of_the_readme_are_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let text = fs::read_to_string(&path).unwrap();
    let fresh = sections()
        .iter()
        .fold(text.clone(), |text, (name, section)| replaced(&text, name, section));
    if env::var_os("UPDATE").is_some() {
        fs::write(&path, &fresh).unwrap();
    } else {
        assert!(text == fresh, "the README is not up to date; run `UPDATE=1 cargo test readme`");
    }
}

#[test]
fn a_section_is_replaced_and_nothing_else() {
    let text = "a\n<!-- begin x -->\nold\n<!-- end x -->\nb\n";
    assert_eq!(replaced(text, "x", "new\n"), "a\n<!-- begin x -->\nnew\n<!-- end x -->\nb\n");
}
