//! The fault matrix: a test or a scenario names each row (`Fault L18.`), or the row gives the reason why there is none.
//!
//! `UPDATE=1` writes `tests/FAULTS.md` again, and closes the open rows that have a test by now.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::sync::Once;

use crate::kit::sources::rust_files;

/// The rows, section by section.
struct Matrix {
    sections: Vec<(String, Vec<(String, String)>)>,
    open: BTreeMap<String, String>,
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn matrix() -> Matrix {
    let text = fs::read_to_string(root().join("tests/faults.toml")).unwrap();
    let table: BTreeMap<String, BTreeMap<String, String>> = toml::from_str(&text).unwrap();
    let order = text.lines().filter_map(|line| line.strip_prefix('[')?.strip_suffix(']'));
    let mut sections = Vec::new();
    for name in order.filter(|name| *name != "open") {
        let mut rows: Vec<_> = table[name].clone().into_iter().collect();
        rows.sort_by_key(|(id, _)| id[1..].parse::<u32>().unwrap());
        sections.push((name.to_owned(), rows));
    }
    Matrix { sections, open: table.get("open").cloned().unwrap_or_default() }
}

impl Matrix {
    fn rows(&self) -> impl Iterator<Item = &String> {
        self.sections.iter().flat_map(|(_, rows)| rows.iter().map(|(id, _)| id))
    }
}

/// Returns the rows that a line of documentation names: `Fault L18.`, `Faults L10 to L17, L24 and L25`.
fn named(line: &str) -> Vec<String> {
    let Some(at) = line.find("Fault ").or_else(|| line.find("Faults ")) else { return Vec::new() };
    let mut found: Vec<String> = Vec::new();
    let mut is_range = false;
    for word in line[at..].split_whitespace().skip(1) {
        let id = word.trim_end_matches(['.', ',', ':', ';']);
        let number = id.get(1..).and_then(|number| number.parse::<u32>().ok());
        let is_id = id.starts_with(|c: char| "LTHMSGCRKX".contains(c));
        match (number.filter(|_| is_id), word) {
            (Some(number), _) => {
                let from = found.last().filter(|_| is_range).map(|id| id[1..].parse::<u32>());
                let first = from.map_or(number, |from| from.unwrap() + 1);
                found.extend((first..=number).map(|number| format!("{}{number}", &id[..1])));
                is_range = false;
            }
            (None, "to") => is_range = true,
            (None, "and") => {}
            (None, _) => break,
        }
        if word.ends_with(['.', ':', ';']) {
            break;
        }
    }
    found
}

/// Returns the name of the item that a line defines: a test, or a table of test cases.
fn item(line: &str) -> Option<&str> {
    let (_, name) = line.split_once("fn ").or_else(|| line.split_once("const "))?;
    name.split(['(', '<', ':']).next()
}

/// Returns the tests that name each row, as `file: name`.
fn test_references() -> BTreeMap<String, BTreeSet<String>> {
    let mut bound: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for path in ["src", "tests"].into_iter().flat_map(|folder| rust_files(&root().join(folder))) {
        let text = fs::read_to_string(&path).unwrap();
        let file = path.strip_prefix(root()).unwrap().display().to_string();
        let mut ids: Vec<String> = Vec::new();
        for line in text.lines().map(str::trim_start) {
            if let Some(comment) = line.strip_prefix("///") {
                ids.extend(named(comment));
            } else if let Some(name) = item(line).filter(|_| !ids.is_empty()) {
                for id in ids.drain(..) {
                    bound
                        .entry(id)
                        .or_default()
                        .insert(format!("`{file}`: {}", name.replace('_', " ")));
                }
            } else if !line.starts_with("#[") && !line.is_empty() {
                ids.clear();
            }
        }
    }
    for path in fs::read_dir(root().join("tests/scenarios")).unwrap() {
        let path = path.unwrap().path();
        let file = path.strip_prefix(root()).unwrap().display().to_string();
        let text = fs::read_to_string(&path).unwrap();
        for id in text.lines().filter_map(|line| line.strip_prefix("# ")).flat_map(named) {
            bound.entry(id).or_default().insert(format!("`{file}`"));
        }
    }
    bound
}

fn render(matrix: &Matrix, bound: &BTreeMap<String, BTreeSet<String>>) -> String {
    let count = matrix.rows().filter(|id| bound.contains_key(*id)).count();
    let mut text = format!(
        "# What can go wrong, and which test shows what happens then\n\n\
         Written by the test suite (`UPDATE=1 cargo test --test suite matrix`). {count} of {} rows have a test.\n",
        matrix.rows().count()
    );
    for (section, rows) in &matrix.sections {
        let _ = write!(text, "\n## {section}\n\n| row | fault | shown by |\n|---|---|---|\n");
        for (id, title) in rows {
            let tests =
                bound.get(id).map(|tests| tests.iter().cloned().collect::<Vec<_>>().join("<br>"));
            let open = matrix.open.get(id).map(|why| format!("— {why}"));
            let _ = writeln!(text, "| {id} | {title} | {} |", tests.or(open).unwrap_or_default());
        }
    }
    text
}

/// Returns the rows, and the tests that name them; the table is updated first, and once, on request.
fn in_both() -> (Matrix, BTreeMap<String, BTreeSet<String>>) {
    static UPDATED: Once = Once::new();
    let bound = test_references();
    if std::env::var_os("UPDATE").is_some() {
        UPDATED.call_once(|| close(&bound));
    }
    (matrix(), bound)
}

/// Takes the rows that have a test by now out of the open ones.
fn close(bound: &BTreeMap<String, BTreeSet<String>>) {
    let path = root().join("tests/faults.toml");
    let text = fs::read_to_string(&path).unwrap();
    let (rows, open) = text.split_once("\n[open]\n").unwrap();
    let left = open.lines().filter(|line| !bound.contains_key(line.split(' ').next().unwrap()));
    let left: String = left.map(|line| format!("{line}\n")).collect();
    fs::write(&path, format!("{rows}\n[open]\n{left}")).unwrap();
}

#[test]
fn every_row_has_a_test_or_says_why_not() {
    let (matrix, bound) = in_both();
    let rows: BTreeSet<&String> = matrix.rows().collect();
    let unknown: Vec<_> =
        bound.keys().chain(matrix.open.keys()).filter(|id| !rows.contains(id)).collect();
    assert!(unknown.is_empty(), "rows that the table does not have: {unknown:?}");
    let missing: Vec<_> = rows
        .iter()
        .filter(|id| !bound.contains_key(**id) && !matrix.open.contains_key(**id))
        .collect();
    assert!(missing.is_empty(), "rows without a test: {missing:?}");
    let settled: Vec<_> = matrix.open.keys().filter(|id| bound.contains_key(*id)).collect();
    assert!(settled.is_empty(), "rows that are called open and have a test: {settled:?}");
}

#[test]
fn the_table_in_the_documentation_is_the_one_of_the_tests() {
    let path = root().join("tests/FAULTS.md");
    let (matrix, bound) = in_both();
    let drawn = render(&matrix, &bound);
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, &drawn).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(written == drawn, "tests/FAULTS.md is not what the tests say; UPDATE=1 writes it");
}

#[test]
fn names_of_rows_are_read_as_people_write_them() {
    assert_eq!(named(" Fault L18."), ["L18"]);
    assert_eq!(
        named(" Faults L10 to L12, L24 and L25, each once."),
        ["L10", "L11", "L12", "L24", "L25"]
    );
    assert_eq!(named(" Fault K9, X3, X4."), ["K9", "X3", "X4"]);
    assert_eq!(named(" Faults T6, T7. And T9 too."), ["T6", "T7"]);
    assert_eq!(named(" Fault tolerance is L1."), Vec::<String>::new());
}
