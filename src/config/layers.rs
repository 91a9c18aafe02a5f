//! The layers of the configuration and their files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::checked_file::FileOwner;
use super::effective::ReadReport;
use super::folders::Folders;
use super::origin::{ConfigDocument, LayerRank};
use super::text_types::ConfigName;
use super::toml_document::parse_document;
use super::value_tree::{ConfigNode, ConfigTable, ConfigValue};

/// One source of values.
pub(super) struct ConfigLayer {
    pub(super) rank: LayerRank,
    pub(super) owner: FileOwner,
    /// Whether only the values that tighten apply, although the folder is trusted.
    pub(super) only_tightens: bool,
    pub(super) table: ConfigTable,
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
    /// The file was read, and only the values that tighten apply, because its folder is not trusted.
    OnlyTightens,
    /// The file was not read, because its folder is not trusted.
    Skipped,
}

impl FileOwner {
    /// Returns the layer of the owner's files.
    pub(super) fn rank(self) -> LayerRank {
        match self {
            Self::User => LayerRank::User,
            Self::Named => LayerRank::File,
            Self::Project => LayerRank::Project,
        }
    }
}

/// Parses a file into its settings, and its profiles by name.
pub(super) fn parse_layer(
    document: &Arc<ConfigDocument>,
    rank: LayerRank,
    report: &mut ReadReport,
) -> Option<(ConfigTable, BTreeMap<String, ConfigTable>)> {
    let mut table = parse_document(rank, document, report)?;
    let mut profiles = BTreeMap::new();
    if table.remove("profiles").is_some() {
        // Profiles override the file that contains them, so their values have another rank.
        let again = parse_document(LayerRank::Profile, document, report)?.remove("profiles");
        match again {
            Some(ConfigNode { value: ConfigValue::Table(all), .. }) => {
                for (name, node) in all {
                    match node {
                        ConfigNode { value: ConfigValue::Table(table), .. } => {
                            profiles.insert(name, table);
                        }
                        node => report.invalid(&node, &format!("profiles.{name}"), "a table"),
                    }
                }
            }
            Some(node) => report.invalid(&node, "profiles", "a table"),
            None => {}
        }
    }
    Some((table, profiles))
}

/// Returns the files of a folder with this extension, sorted by name; no files if the folder can't be read.
pub(super) fn files_in(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let mut paths: Vec<_> =
        paths.filter(|path| path.extension().is_some_and(|end| end == extension)).collect();
    paths.sort();
    paths
}

/// Returns the names of the profiles that have files of their own, those of a project first.
pub fn profile_names(workspace: &Path, folders: &Folders) -> Vec<String> {
    let folders = [Some(workspace.join(".architect")), folders.config.clone()];
    folders.iter().flatten().flat_map(|folder| profile_files(&folder.join("profiles"))).collect()
}

/// Returns the names of the profile files in a folder.
pub(super) fn profile_files(folder: &Path) -> impl Iterator<Item = String> + use<> {
    files_in(folder, "toml").into_iter().filter_map(|path| {
        let stem = path.file_stem()?.to_str()?;
        ConfigName::parse(stem).map(|name| name.to_string())
    })
}
