//! The layers of the architecture: which module may use which.

use std::fs;
use std::path::{Path, PathBuf};

use crate::kit::sources::rust_files;

/// The modules of each layer, from the lowest.
const LAYERS: [&[&str]; 11] = [
    &["types"],
    &["machine"],
    &["port"],
    &["workspace"],
    &["net", "exec"],
    &["policy"],
    &["tools"],
    &["llm", "mcp", "hooks", "journal", "view", "config", "conform"],
    &["runner"],
    &["app"],
    &["workflow", "acp"],
];

/// The greatest length of a file, its tests included.
const LONGEST: usize = 900;

fn layer(module: &str) -> usize {
    let layer = LAYERS.iter().position(|modules| modules.contains(&module));
    layer.unwrap_or_else(|| panic!("{module} is in no layer"))
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
        if ["lib.rs", "main.rs", "cli"].contains(&module) {
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

/// The library neither parses arguments nor hides its errors' types; only the binary does.
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
fn modules_are_found_in_every_spelling() {
    let text = "use crate::types::{A, B}; use crate::{port, view::C}; fn f() -> crate::llm::D {}";
    assert_eq!(modules_named(text), ["types", "port", "view", "llm"]);
}
