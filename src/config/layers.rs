//! The layers of the configuration, and reading those that are files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::checked_file::{self, OwnerCheck};
use super::origin::{LayerRank, ValueOrigin};
use super::problem::{ConfigProblem, ProblemKind};
use super::text_types::ConfigName;
use super::value_tree::{self, ConfigNode, ConfigTable, ConfigValue};

/// One source of values.
pub(super) struct ConfigLayer {
    pub(super) rank: LayerRank,
    pub(super) owner: LayerOwner,
    pub(super) table: ConfigTable,
}

/// Who can write a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LayerOwner {
    /// This program, or the user.
    User,
    /// Anyone who can write to the project.
    Project,
}

/// A configuration file, present or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFile {
    /// The path.
    pub path: PathBuf,
    /// The layer that the file belongs to.
    pub rank: LayerRank,
    /// Whether the file was read.
    pub state: ConfigFileState,
}

/// Whether a configuration file was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigFileState {
    /// The file does not exist.
    Absent,
    /// The file was read and applies in full.
    Read,
    /// The file was read, and only what tightens applies, because its folder is not trusted.
    OnlyTightens,
    /// The file was not read, because its folder is not trusted.
    Skipped,
}

/// The content of a file, with its profiles split off.
pub(super) struct FileLayer {
    pub(super) table: ConfigTable,
    pub(super) profiles: BTreeMap<String, ConfigTable>,
}

/// Reads a file; `None` if there is no such file.
pub(super) fn read_layer_file(
    path: &Path,
    rank: LayerRank,
    author: OwnerCheck,
) -> Result<Option<FileLayer>, Vec<ConfigProblem>> {
    let Some(table) = read_table(path, rank, author)? else { return Ok(None) };
    let (table, profiles) = split_profiles(table)?;
    Ok(Some(FileLayer { table, profiles }))
}

/// Splits a table into its settings and its profiles.
pub(super) fn split_profiles(
    mut table: ConfigTable,
) -> Result<(ConfigTable, BTreeMap<String, ConfigTable>), Vec<ConfigProblem>> {
    let profiles = match table.remove("profiles") {
        Some(node) => parse_profiles(node)?,
        None => BTreeMap::new(),
    };
    Ok((table, profiles))
}

/// Reads the file of a profile; `None` if there is no such file.
pub(super) fn read_profile_file(
    path: &Path,
    author: OwnerCheck,
) -> Result<Option<ConfigTable>, Vec<ConfigProblem>> {
    read_table(path, LayerRank::Profile, author)
}

/// Returns the names of the profile files in a folder; no names if the folder can't be read.
pub(super) fn profile_names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let name = |path: PathBuf| {
        let is_toml = path.extension().is_some_and(|end| end == "toml");
        let stem = path.file_stem()?.to_str().filter(|_| is_toml)?;
        ConfigName::parse(stem).map(|name| name.to_string())
    };
    entries.filter_map(|entry| name(entry.path())).collect()
}

fn read_table(
    path: &Path,
    rank: LayerRank,
    author: OwnerCheck,
) -> Result<Option<ConfigTable>, Vec<ConfigProblem>> {
    match checked_file::read_file(path, author) {
        Ok(Some(document)) => value_tree::parse_document(rank, &document).map(Some),
        Ok(None) => Ok(None),
        Err(error) => {
            Err(vec![ConfigProblem::new(ValueOrigin::DEFAULT, ProblemKind::Unreadable(error))])
        }
    }
}

fn parse_profiles(node: ConfigNode) -> Result<BTreeMap<String, ConfigTable>, Vec<ConfigProblem>> {
    let wrong = |key: String, value: &ConfigValue, origin: ValueOrigin| {
        let (expected, found) = ("a table".to_owned(), value.describe());
        ConfigProblem::new(origin, ProblemKind::Invalid { key, expected, found })
    };
    let ConfigValue::Table(table) = node.value else {
        return Err(vec![wrong("profiles".to_owned(), &node.value, node.origin)]);
    };
    let (mut profiles, mut problems) = (BTreeMap::new(), Vec::new());
    for (name, node) in table {
        match node.value {
            ConfigValue::Table(table) => {
                profiles.insert(name, table);
            }
            value => problems.push(wrong(format!("profiles.{name}"), &value, node.origin)),
        }
    }
    if problems.is_empty() { Ok(profiles) } else { Err(problems) }
}

/// Changes the rank of every origin in a table: a profile overrides the file that it is written in.
pub(super) fn with_rank(table: ConfigTable, rank: LayerRank) -> ConfigTable {
    let ranked = |origin: ValueOrigin| ValueOrigin { rank, ..origin };
    let node = |node: ConfigNode| ConfigNode {
        origin: ranked(node.origin),
        key_origin: ranked(node.key_origin),
        value: match node.value {
            ConfigValue::Table(table) => ConfigValue::Table(with_rank(table, rank)),
            other => other,
        },
    };
    table.into_iter().map(|(name, value)| (name, node(value))).collect()
}
