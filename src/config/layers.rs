//! The layers, and reading those that are files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::file::{self, Author};
use super::origin::{Origin, Rank};
use super::problem::{Problem, Trouble};
use super::text::Name;
use super::tree::{self, Node, Table, Value};

/// A layer.
pub(super) struct Layer {
    pub(super) rank: Rank,
    pub(super) whose: Whose,
    pub(super) table: Table,
}

/// Who wrote a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Whose {
    /// We, or the user.
    Ours,
    /// Whoever can write to the project.
    Projects,
}

/// A file that configuration is looked for in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFile {
    /// Where it lies, or would lie.
    pub path: PathBuf,
    /// Its layer.
    pub rank: Rank,
    /// What became of it.
    pub state: FileState,
}

/// What became of a file that configuration is looked for in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileState {
    /// It is not there.
    Absent,
    /// It was read, and all of it counts.
    Read,
    /// It was read, and only what tightens counts, because its folder is not trusted.
    OnlyTightens,
    /// It was not read, because its folder is not trusted.
    LeftOut,
}

/// What a file says, its profiles apart.
pub(super) struct FileLayer {
    pub(super) table: Table,
    pub(super) profiles: BTreeMap<String, Table>,
}

/// Reads a file; none when there is no such file.
pub(super) fn of_file(
    path: &Path,
    rank: Rank,
    author: Author,
) -> Result<Option<FileLayer>, Vec<Problem>> {
    let Some(table) = read(path, rank, author)? else { return Ok(None) };
    let (table, profiles) = without_profiles(table)?;
    Ok(Some(FileLayer { table, profiles }))
}

/// Returns a table without its profiles, and these.
pub(super) fn without_profiles(
    mut table: Table,
) -> Result<(Table, BTreeMap<String, Table>), Vec<Problem>> {
    let profiles = match table.remove("profiles") {
        Some(node) => profiles(node)?,
        None => BTreeMap::new(),
    };
    Ok((table, profiles))
}

/// Reads the file of a profile; none when there is no such file.
pub(super) fn of_profile_file(path: &Path, author: Author) -> Result<Option<Table>, Vec<Problem>> {
    read(path, Rank::Profile, author)
}

/// Returns the names of the profiles that have files in a folder; an unreadable folder has none.
pub(super) fn profile_files(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let name = |path: PathBuf| {
        let is_toml = path.extension().is_some_and(|end| end == "toml");
        let stem = path.file_stem()?.to_str().filter(|_| is_toml)?;
        Name::parse(stem).map(|name| name.to_string())
    };
    entries.filter_map(|entry| name(entry.path())).collect()
}

fn read(path: &Path, rank: Rank, author: Author) -> Result<Option<Table>, Vec<Problem>> {
    match file::read(path, author) {
        Ok(Some(document)) => tree::parse(rank, &document).map(Some),
        Ok(None) => Ok(None),
        Err(error) => Err(vec![Problem::new(Origin::DEFAULT, Trouble::Unreadable(error))]),
    }
}

fn profiles(node: Node) -> Result<BTreeMap<String, Table>, Vec<Problem>> {
    let wrong = |key: String, value: &Value, origin: Origin| {
        let (expected, found) = ("a table".to_owned(), value.found());
        Problem::new(origin, Trouble::Invalid { key, expected, found })
    };
    let Value::Table(table) = node.value else {
        return Err(vec![wrong("profiles".to_owned(), &node.value, node.origin)]);
    };
    let (mut profiles, mut problems) = (BTreeMap::new(), Vec::new());
    for (name, node) in table {
        match node.value {
            Value::Table(table) => {
                profiles.insert(name, table);
            }
            value => problems.push(wrong(format!("profiles.{name}"), &value, node.origin)),
        }
    }
    if problems.is_empty() { Ok(profiles) } else { Err(problems) }
}

/// Gives every origin of a layer another rank: a profile stands above the file that it is written in.
pub(super) fn with_rank(table: Table, rank: Rank) -> Table {
    let ranked = |origin: Origin| Origin { rank, ..origin };
    let node = |node: Node| Node {
        origin: ranked(node.origin),
        key: ranked(node.key),
        value: match node.value {
            Value::Table(table) => Value::Table(with_rank(table, rank)),
            other => other,
        },
    };
    table.into_iter().map(|(name, value)| (name, node(value))).collect()
}
