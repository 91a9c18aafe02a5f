//! The architecture: allowed dependencies between modules, and the greatest length of a file.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use crate::kit::sources::rust_files;

mod imports;

/// The greatest length of a file, its tests included.
const LONGEST: usize = 900;

/// The layer of each module, by the table in the documentation of the crate.
static LAYERS: LazyLock<BTreeMap<String, usize>> =
    LazyLock::new(|| layers(&fs::read_to_string(source().join("lib.rs")).unwrap()));

/// Returns the layers of the modules in the table of a text: `//! | 3 | `net`, `exec` | what |`.
fn layers(text: &str) -> BTreeMap<String, usize> {
    let mut layers = BTreeMap::new();
    for line in text.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let ["//!", layer, modules, _, ""] = cells[..] else { continue };
        let Ok(layer) = layer.parse() else { continue };
        // Names are in backticks: the odd pieces between them.
        for name in modules.split('`').skip(1).step_by(2) {
            let earlier = layers.insert(name.to_owned(), layer);
            assert_eq!(earlier, None, "{name} is in two layers");
        }
    }
    layers
}

fn layer(module: &str) -> usize {
    let layer = LAYERS.get(module);
    *layer.unwrap_or_else(|| panic!("the table in src/lib.rs has no layer of {module}"))
}

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// Returns the modules that a text names by `crate::module`, also in a group (`crate::{a, b}`).
fn modules_named(text: &str) -> Vec<String> {
    let mut modules = Vec::new();
    for piece in text.split("crate::").skip(1) {
        let names = match piece.strip_prefix('{') {
            Some(group) => group.split('}').next().unwrap().split(',').map(str::trim).collect(),
            None => vec![piece],
        };
        for name in names {
            let end = name.find(|c: char| !c.is_alphanumeric() && c != '_');
            modules.push(name[..end.unwrap_or(name.len())].to_owned());
        }
    }
    modules.retain(|module| !module.is_empty());
    modules
}

#[test]
fn no_module_uses_one_of_its_own_layer_or_above() {
    let mut wrong = Vec::new();
    for path in rust_files(&source()) {
        let inside = path.strip_prefix(source()).unwrap();
        let module = inside.iter().next().unwrap().to_str().unwrap();
        if ["lib.rs", "main.rs"].contains(&module) {
            continue;
        }
        for used in modules_named(&fs::read_to_string(&path).unwrap()) {
            if used != module && layer(&used) >= layer(module) {
                wrong.push(format!("{} uses {used}", inside.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Only the binary parses arguments and hides the types of errors; the library does neither.
#[test]
fn only_the_binary_knows_clap_and_anyhow() {
    for path in rust_files(&source()) {
        let inside = path.strip_prefix(source()).unwrap().to_str().unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let is_bin = inside == "main.rs" || inside.starts_with("cli/");
        assert!(
            is_bin || !["clap::", "anyhow::"].iter().any(|name| text.contains(name)),
            "{inside}"
        );
    }
}

#[test]
fn no_file_is_longer_than_the_limit() {
    for path in rust_files(Path::new(env!("CARGO_MANIFEST_DIR")).join("src").as_path()) {
        let lines = fs::read_to_string(&path).unwrap().lines().count();
        assert!(lines <= LONGEST, "{} has {lines} lines", path.display());
    }
}

#[test]
fn the_table_of_layers_names_each_module_of_the_crate() {
    let folders = fs::read_dir(source()).unwrap().map(|entry| entry.unwrap());
    let mut modules: Vec<String> = folders
        .filter(|entry| entry.file_type().unwrap().is_dir())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    modules.sort_unstable();
    assert!(LAYERS.keys().eq(&modules), "{:?}, but src has {modules:?}", *LAYERS);
}

#[test]
fn layers_are_read_from_a_table() {
    let table = "//! | layer | modules | what |\n//! |---|---|---|\n//! | 1 | `b`, [`c`] | `d` |\n//! | 0 | `a` | |\n";
    let expected = [("a", 0), ("b", 1), ("c", 1)].map(|(name, layer)| (name.to_owned(), layer));
    assert_eq!(layers(table), BTreeMap::from(expected));
}

#[test]
fn modules_are_found_in_every_spelling() {
    let text = "use crate::types::{A, B}; use crate::{port, view::C}; fn f() -> crate::llm::D {}";
    assert_eq!(modules_named(text), ["types", "port", "view", "llm"]);
}
