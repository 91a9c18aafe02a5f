//! The floors of the house: who may use whom.

use std::fs;
use std::path::{Path, PathBuf};

use crate::kit::sources::rust_files;

/// The rooms, floor by floor, from the ground.
const FLOORS: [&[&str]; 10] = [
    &["model"],
    &["machine"],
    &["port"],
    &["net", "exec", "workspace"],
    &["policy"],
    &["tools"],
    &["llm", "mcp", "hooks", "journal", "view", "config"],
    &["runner"],
    &["app"],
    &["workflow"],
];

/// The longest file that is read in one sitting, its tests included.
const LONGEST: usize = 900;

fn floor(room: &str) -> usize {
    let floor = FLOORS.iter().position(|rooms| rooms.contains(&room));
    floor.unwrap_or_else(|| panic!("{room} is on no floor"))
}

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// The rooms that a text names by `crate::room`, also in a group (`crate::{a, b}`).
fn rooms_named(text: &str) -> Vec<String> {
    let mut rooms = Vec::new();
    for piece in text.split("crate::").skip(1) {
        let names = match piece.strip_prefix('{') {
            Some(group) => group.split('}').next().unwrap().split(',').map(str::trim).collect(),
            None => vec![piece],
        };
        for name in names {
            let end = name.find(|c: char| !c.is_alphanumeric() && c != '_');
            rooms.push(name[..end.unwrap_or(name.len())].to_owned());
        }
    }
    rooms.retain(|room| !room.is_empty());
    rooms
}

#[test]
fn no_room_uses_one_above_it_or_its_neighbour() {
    let mut wrong = Vec::new();
    for path in rust_files(&source()) {
        let inside = path.strip_prefix(source()).unwrap();
        let room = inside.iter().next().unwrap().to_str().unwrap();
        if ["lib.rs", "main.rs", "cli"].contains(&room) {
            continue;
        }
        for used in rooms_named(&fs::read_to_string(&path).unwrap()) {
            if used != room && floor(&used) >= floor(room) {
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
fn no_file_needs_two_sittings() {
    for path in rust_files(Path::new(env!("CARGO_MANIFEST_DIR")).join("src").as_path()) {
        let lines = fs::read_to_string(&path).unwrap().lines().count();
        assert!(lines <= LONGEST, "{} has {lines} lines", path.display());
    }
}

#[test]
fn rooms_are_found_in_every_spelling() {
    let text = "use crate::model::{A, B}; use crate::{port, view::C}; fn f() -> crate::llm::D {}";
    assert_eq!(rooms_named(text), ["model", "port", "view", "llm"]);
}
