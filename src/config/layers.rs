//! The layers, and reading those that are files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::checked_file::{self, OwnerCheck};
use super::origin::{LayerRank, ValueOrigin};
use super::problem::{ConfigProblem, ProblemKind};
use super::text_types::ConfigName;
use super::value_tree::{self, ConfigNode, ConfigTable, ConfigValue};

/// A layer.
pub(super) struct ConfigLayer {
    pub(super) rank: LayerRank,
    pub(super) owner: LayerOwner,
    pub(super) table: ConfigTable,
}

/// Who wrote a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LayerOwner {
    /// We, or the user.
    User,
    /// Whoever can write to the project.
    Project,
}

/// A file that configuration is looked for in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFile {
    /// Where it lies, or would lie.
    pub path: PathBuf,
    /// Its layer.
    pub rank: LayerRank,
    /// What became of it.
    pub state: ConfigFileState,
}

/// What became of a file that configuration is looked for in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigFileState {
    /// It is not there.
    Absent,
    /// It was read, and all of it counts.
    Read,
    /// It was read, and only what tightens counts, because its folder is not trusted.
    OnlyTightens,
    /// It was not read, because its folder is not trusted.
    Skipped,
}

/// What a file says, its profiles apart.
pub(super) struct FileLayer {
    pub(super) table: ConfigTable,
    pub(super) profiles: BTreeMap<String, ConfigTable>,
}

/// Reads a file; none when there is no such file.
pub(super) fn read_layer_file(
    path: &Path,
    rank: LayerRank,
    author: OwnerCheck,
) -> Result<Option<FileLayer>, Vec<ConfigProblem>> {
    let Some(table) = read_table(path, rank, author)? else { return Ok(None) };
    let (table, profiles) = split_profiles(table)?;
    Ok(Some(FileLayer { table, profiles }))
}

/// Returns a table without its profiles, and these.
pub(super) fn split_profiles(
    mut table: ConfigTable,
) -> Result<(ConfigTable, BTreeMap<String, ConfigTable>), Vec<ConfigProblem>> {
    let profiles = match table.remove("profiles") {
        Some(node) => parse_profiles(node)?,
        None => BTreeMap::new(),
    };
    Ok((table, profiles))
}

/// Reads the file of a profile; none when there is no such file.
pub(super) fn read_profile_file(
    path: &Path,
    author: OwnerCheck,
) -> Result<Option<ConfigTable>, Vec<ConfigProblem>> {
    read_table(path, LayerRank::Profile, author)
}

/// Returns the names of the profiles that have files in a folder; an unreadable folder has none.
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

/// Gives every origin of a layer another rank: a profile stands above the file that it is written in.
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
