//! Loading the configuration: reading all layers and merging them.

use std::cell::LazyCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::agents;
use super::checked_file::{self, ConfigFileError, FileOwner};
use super::effective::{ReadReport, RelativePathBase};
use super::folders::Folders;
use super::layers::{self, ConfigFile, ConfigFileState, ConfigLayer};
use super::mcp_json;
use super::merge::merge;
use super::origin::{ConfigDocument, LayerRank, OriginSource, ValueOrigin};
use super::overrides::{self, OptionOverride, SetOrigin, SetOverride};
use super::problem::{ConfigError, ConfigNotice, NoticeCause, ProblemKind};
use super::resolved::Config;
use super::settings::Settings;
use super::settings_reader::SettingsReader;
use super::toml_document;
use super::trust::{ChangedFile, TrustStore};
use super::untrusted_layer::{self, IgnoredBecause, TightenedValues, tighten};
use super::value_tree::{ConfigNode, ConfigTable};
use crate::exec::{has_address_password, is_secret_variable};
use crate::types::matches_wildcard;

/// The inputs of [`load`].
#[derive(Clone, Debug, Default)]
pub struct ConfigSources {
    /// The folders of this program.
    pub folders: Folders,
    /// The current folder.
    pub cwd: PathBuf,
    /// The environment variables.
    pub variables: Vec<(String, String)>,
    /// Whether the project's folder is trusted.
    pub trust: ProjectTrust,
    /// The file of `--config`.
    pub file: Option<PathBuf>,
    /// The files of `--mcp-config`.
    pub mcp_files: Vec<PathBuf>,
    /// The name of `--profile`.
    pub profile: Option<String>,
    /// Values in the form of `--set` from a place that others could have written. Only those that tighten apply.
    pub untrusted_sets: Vec<String>,
    /// Values in the form of `--set`, stored in the resumed session; `None` for a new run.
    pub saved_sets: Option<Vec<String>>,
    /// The values of `--set`, as `KEY=VALUE`.
    pub sets: Vec<String>,
    /// Values in the form of `--set` from a manifest that the agent may have written. They can't loosen the confinement
    /// or choose where a key is sent.
    pub manifest_sets: Vec<String>,
    /// The workspace that such a manifest names.
    pub manifest_root: Option<PathBuf>,
    /// Whether the agent may have written all values, as in a scenario; like `manifest_sets`.
    pub is_all_of_project: bool,
    /// The options that set keys.
    pub options: Vec<OptionOverride>,
}

/// Whether the project's folder is trusted; if it isn't, its files can only tighten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProjectTrust {
    /// As the list of trusted folders determines.
    #[default]
    Stored,
    /// Trusted for this run.
    Granted,
    /// Not trusted for this run.
    Withheld,
}

impl ConfigSources {
    fn variable(&self, name: &str) -> Option<&str> {
        let found = self.variables.iter().find(|(variable, _)| variable == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// Reads all layers and merges them.
///
/// # Errors
///
/// Returns every problem in any of the layers.
pub fn load(sources: &ConfigSources) -> Result<Config, ConfigError> {
    let profile = sources.profile.as_deref();
    ConfigLoader {
        sources,
        paths: RelativePathBase { cwd: sources.cwd.clone(), home: sources.folders.home.clone() },
        profile: profile.or_else(|| sources.variable(overrides::PROFILE_VARIABLE)),
        profiles: BTreeSet::new(),
        layers: Vec::new(),
        files: Vec::new(),
        report: ReadReport::default(),
        changed: Vec::new(),
    }
    .load()
}

struct ConfigLoader<'a> {
    sources: &'a ConfigSources,
    paths: RelativePathBase,
    /// The chosen profile.
    profile: Option<&'a str>,
    /// The names of all profiles.
    profiles: BTreeSet<String>,
    layers: Vec<ConfigLayer>,
    files: Vec<ConfigFile>,
    /// Problems and notices.
    report: ReadReport,
    /// The project's files that have changed since the user trusted the folder.
    changed: Vec<ChangedFile>,
}

impl ConfigLoader<'_> {
    fn load(mut self) -> Result<Config, ConfigError> {
        self.add_layer(LayerRank::Default, FileOwner::User, agents::built_in_layer());
        if let Some(folder) = &self.sources.folders.config {
            self.add_agents(&folder.join("agents"), FileOwner::User);
            self.add_settings(folder, FileOwner::User);
        }
        let variables = overrides::layer_from_variables(&self.sources.variables, &mut self.report);
        self.add_layer(LayerRank::Variable, FileOwner::User, variables);
        self.add_named_files();
        self.add_arguments();
        // The project itself has no influence on the location of its folder.
        let (settings, _) = self.read_settings(&self.merge_layers(true).0);
        let workspace = settings.workspace.root.unwrap_or_else(|| self.sources.cwd.clone());
        let is_trusted = self.resolve_trust(&workspace);
        self.add_project(&workspace, is_trusted);
        self.add_manifest_sets(is_trusted);
        self.check_profile();

        let (table, notices) = self.merge_layers(is_trusted);
        self.report.notices.extend(notices);
        let (settings, last) = self.read_settings(&table);
        self.check_passed_secrets(is_trusted);
        let Self { sources, layers, files, report, changed, .. } = self;
        let effective_values = last.values;
        let ReadReport { notices, mut problems, .. } = report;
        let config = Config {
            settings,
            notices,
            workspace,
            is_trusted,
            is_resumed: sources.saved_sets.is_some(),
            is_all_of_project: sources.is_all_of_project,
            changed,
            files,
            effective_values,
        };
        // Each layer was checked by itself. An option that sets one key of a list's entry is only valid or invalid
        // together with the entry.
        if problems.is_empty() {
            problems = last.problems;
        }
        if problems.is_empty() {
            let counts = |layer: &&ConfigLayer| {
                layer.rank < LayerRank::Argument
                    && (is_trusted || layer.owner != FileOwner::Project)
            };
            let agents = layers.iter().filter(counts);
            let agents = agents.filter_map(|layer| layer.table.get("agents")?.value.as_table());
            let names = agents.flat_map(|agents| agents.keys().map(String::as_str)).collect();
            problems = config.undefined_agents(&names);
        }
        if problems.is_empty() {
            problems = config.check_consistency();
        }
        if problems.is_empty() { Ok(config) } else { Err(ConfigError { problems }) }
    }

    fn add_named_files(&mut self) {
        let sources = self.sources;
        let variable = || sources.variable(overrides::CONFIG_VARIABLE).map(Path::new);
        if let Some(file) = sources.file.as_deref().or_else(variable) {
            self.add_file(&sources.cwd.join(file), FileOwner::Named);
        }
        for file in &sources.mcp_files {
            self.add_servers(&sources.cwd.join(file), FileOwner::Named);
        }
    }

    fn add_arguments(&mut self) {
        let (rank, owner) = (LayerRank::Argument, FileOwner::User);
        // The options saved in a session and the options of this run may set the same list.
        let sources = self.sources;
        let untrusted = sources.untrusted_sets.iter().map(|set| (set, true, SetOrigin::Session));
        let saved = sources.saved_sets.iter().flatten();
        let saved = saved.map(|set| (set, false, SetOrigin::Session));
        let sets = sources.sets.iter().map(|set| (set, false, SetOrigin::Argument));
        for (set, only_tightens, from) in untrusted.chain(saved).chain(sets) {
            let table = self.read_set(set, from);
            self.layers.push(ConfigLayer { rank, owner, only_tightens, table });
        }
        if let Some(root) = &sources.manifest_root {
            let set = format!("workspace.root={}", root.display());
            let table = self.read_set(&set, SetOrigin::Manifest);
            self.layers.push(ConfigLayer { rank, owner, only_tightens: false, table });
        }
        for option in &self.sources.options {
            self.add_layer(rank, owner, overrides::layer_from_option(option));
        }
    }

    fn read_set(&mut self, set: &str, from: SetOrigin) -> ConfigTable {
        match overrides::layer_from_set(set, from, &mut self.report) {
            SetOverride::Key(table) => {
                self.check_layer(&table, "");
                table
            }
            SetOverride::EntryKey(table) => table,
        }
    }

    /// Adds the values of a manifest, with a problem for each that loosens those of all other layers.
    fn add_manifest_sets(&mut self, is_trusted: bool) {
        // Other commands have none, and don't merge all layers for them.
        if self.sources.manifest_sets.is_empty() {
            return;
        }
        let own = self.read_settings(&self.merge_layers(is_trusted).0).1.values;
        for set in &self.sources.manifest_sets {
            let table = self.read_set(set, SetOrigin::Manifest);
            untrusted_layer::find_loosened(&table, "", &own, &mut |origin, key| {
                let what = "only your own configuration can set this, or a value that is less strict than yours, because \
                            the agent can change the files of a project";
                let kind = ProblemKind::Other(format!("`{key}`: {what}"));
                self.report.problem(origin.clone(), kind);
            });
            let (rank, owner) = (LayerRank::Argument, FileOwner::User);
            self.layers.push(ConfigLayer { rank, owner, only_tightens: false, table });
        }
    }

    fn add_project(&mut self, root: &Path, is_trusted: bool) {
        let folder = root.join(".architect");
        let (servers, agents) = (root.join(".mcp.json"), folder.join("agents"));
        if is_trusted {
            self.add_servers(&servers, FileOwner::Project);
            self.add_agents(&agents, FileOwner::Project);
        } else {
            // In an untrusted folder these files are ignored, so they are not even read.
            for path in [servers, agents].into_iter().filter(|path| path.exists()) {
                let message = "is ignored, because this folder is not trusted";
                self.add_notice(format!("{} {message}", path.display()), NoticeCause::Untrusted);
                let (rank, state) = (LayerRank::Project, ConfigFileState::Skipped);
                self.files.push(ConfigFile { path, rank, state });
            }
        }
        let before = self.files.len();
        self.add_settings(&folder, FileOwner::Project);
        if !is_trusted {
            let read = self.files[before..].iter_mut();
            read.filter(|file| file.state == ConfigFileState::Read)
                .for_each(|file| file.state = ConfigFileState::OnlyTightens);
        }
    }

    /// Adds the `config.toml` of a folder, and the file of the chosen profile.
    fn add_settings(&mut self, folder: &Path, owner: FileOwner) {
        self.add_file(&folder.join("config.toml"), owner);
        let folder = folder.join("profiles");
        self.profiles.extend(layers::profile_files(&folder));
        let Some(name) = self.profile.filter(|name| self.profiles.contains(*name)) else { return };
        let path = folder.join(format!("{name}.toml"));
        let document = self.read_document(&path, LayerRank::Profile, owner);
        let table = document.and_then(|document| {
            toml_document::parse_document(LayerRank::Profile, &document, &mut self.report)
        });
        if let Some(table) = table {
            self.add_layer(LayerRank::Profile, owner, table);
        }
    }

    /// Adds a file with its profiles.
    fn add_file(&mut self, path: &Path, owner: FileOwner) {
        let document = self.read_document(path, owner.rank(), owner);
        let layer = document
            .and_then(|document| layers::parse_layer(&document, owner.rank(), &mut self.report));
        let Some((table, profiles)) = layer else { return };
        self.add_layer(owner.rank(), owner, table);
        for (name, table) in profiles {
            if self.profile == Some(&*name) {
                self.add_layer(LayerRank::Profile, owner, table);
            } else {
                self.check_layer(&table, &format!("profiles.{name}."));
            }
            self.profiles.insert(name);
        }
    }

    fn add_agents(&mut self, folder: &Path, owner: FileOwner) {
        let table = agents::folder_layer(folder, owner, &mut self.report);
        self.add_layer(owner.rank(), owner, table);
    }

    fn add_servers(&mut self, path: &Path, owner: FileOwner) {
        let variable = |name: &str| self.sources.variable(name);
        let document = self.read_document(path, owner.rank(), owner);
        let table = document.and_then(|document| {
            mcp_json::parse_layer(&document, owner, variable, &mut self.report)
        });
        if let Some(table) = table {
            self.add_layer(owner.rank(), owner, table);
        }
    }

    /// Reads a file, and records whether it exists. A file that the user names must exist.
    fn read_document(
        &mut self,
        path: &Path,
        rank: LayerRank,
        owner: FileOwner,
    ) -> Option<Arc<ConfigDocument>> {
        let read = checked_file::read_file(path, owner);
        let state = match &read {
            Ok(None) => ConfigFileState::Absent,
            Ok(Some(_)) | Err(_) => ConfigFileState::Read,
        };
        self.files.push(ConfigFile { path: path.to_owned(), rank, state });
        let error = match read {
            Ok(None) if owner == FileOwner::Named => ConfigFileError::Missing(path.to_owned()),
            Ok(document) => return document,
            Err(error) => error,
        };
        self.report.problem(ValueOrigin::DEFAULT, ProblemKind::Unreadable(error));
        None
    }

    /// Checks a layer and adds it.
    fn add_layer(&mut self, rank: LayerRank, owner: FileOwner, table: ConfigTable) {
        self.check_layer(&table, "");
        self.layers.push(ConfigLayer { rank, owner, only_tightens: false, table });
    }

    fn check_layer(&mut self, table: &ConfigTable, path: &str) {
        SettingsReader::read_layer(table, path, &self.paths, &mut self.report, Settings::read);
        self.report.values.clear();
    }

    fn check_profile(&mut self) {
        let Some(name) = self.profile.filter(|name| !self.profiles.contains(*name)) else { return };
        let source = match self.sources.profile {
            Some(_) => OriginSource::Argument("--profile".into()),
            None => OriginSource::Variable(overrides::PROFILE_VARIABLE.into()),
        };
        let kind =
            ProblemKind::unknown_of("profile", name, self.profiles.iter().cloned().collect());
        self.report.problem(ValueOrigin { rank: LayerRank::Profile, source }, kind);
    }

    /// Returns whether the project's folder is trusted.
    fn resolve_trust(&mut self, root: &Path) -> bool {
        let trust = match self.sources.trust {
            ProjectTrust::Stored => self.trust_from_variable(),
            given @ (ProjectTrust::Granted | ProjectTrust::Withheld) => given,
        };
        let store = match (trust, &self.sources.folders.state) {
            (ProjectTrust::Granted, _) => return true,
            (ProjectTrust::Withheld, _) | (ProjectTrust::Stored, None) => return false,
            (ProjectTrust::Stored, Some(state)) => TrustStore::new(state),
        };
        let mut distrust = |error: String, cause| {
            self.add_notice(format!("{error}; this folder counts as not trusted"), cause);
            false
        };
        match store.contains(root) {
            Ok(true) => {}
            Ok(false) => return false,
            Err(error) => return distrust(error.to_string(), NoticeCause::Other),
        }
        // Trusting a folder means trusting everyone who can write it; here, every user can.
        let config = root.join(".architect/config.toml");
        let open = checked_file::read_file(&config, FileOwner::Named);
        if let Err(error @ ConfigFileError::WorldWritable(_)) = open {
            return distrust(error.to_string(), NoticeCause::Other);
        }
        match store.changed(root) {
            Ok(Some(changed)) => {
                for file in &changed {
                    let path = root.join(&file.path);
                    let message =
                        "has changed since you trusted this folder, so it counts as not trusted";
                    let message = format!("{} {message}", path.display());
                    self.add_notice(message, NoticeCause::Untrusted);
                }
                self.changed = changed;
                self.changed.is_empty()
            }
            // No contents are recorded: the user trusted the folder whatever its files contain.
            Ok(None) => {
                let recorded = "the configuration of this trusted folder is recorded; if it changes, you will be asked";
                let recorded = store.add(root).map(|()| recorded.to_owned());
                let message = recorded.unwrap_or_else(|error| error.to_string());
                self.add_notice(message, NoticeCause::Other);
                true
            }
            Err(error) => distrust(error.to_string(), NoticeCause::Untrusted),
        }
    }

    /// Reports each secret variable that a file of the project or a manifest passes to commands, unless the user's own
    /// configuration passes it.
    fn check_passed_secrets(&mut self, is_trusted: bool) {
        let patterns = |is_project: bool| {
            let layers = self.layers.iter();
            let layers = layers.filter(|layer| is_trusted || layer.owner != FileOwner::Project);
            let patterns = layers.filter_map(|layer| {
                let commands = layer.table.get("commands")?.value.as_table()?;
                let patterns = commands.get("env_include")?.value.as_list()?;
                Some(patterns.iter().map(|pattern| (layer.owner, pattern)))
            });
            let is_of_project = move |(owner, _): &(FileOwner, &ConfigNode)| {
                (*owner == FileOwner::Project) == is_project
            };
            patterns.flatten().filter(is_of_project).map(|(_, pattern)| pattern)
        };
        let matches = |pattern: &ConfigNode, name: &str| {
            pattern.value.as_text().is_some_and(|pattern| matches_wildcard(pattern, name))
        };
        let is_secret = |(name, value): &&(String, String)| {
            is_secret_variable(name)
                || has_address_password(value)
                || value.contains("PRIVATE KEY-----")
        };
        let secrets = self.sources.variables.iter().filter(is_secret);
        let secrets: Vec<&str> = secrets
            .map(|(name, _)| name.as_str())
            .filter(|name| !patterns(false).any(|own| matches(own, name)))
            .collect();
        for pattern in patterns(true) {
            if let Some(name) = secrets.iter().find(|name| matches(pattern, name)) {
                let what = format!(
                    "`commands.env_include`: {name} may hold a secret, and a file of the project passes none to \
                     commands; set it in your own configuration"
                );
                self.report.problem(pattern.origin.clone(), ProblemKind::Other(what));
            }
        }
    }

    /// Returns the trust that the environment variable sets; an empty variable counts as not set.
    fn trust_from_variable(&mut self) -> ProjectTrust {
        match self.sources.variable(overrides::TRUST_VARIABLE).map(str::trim) {
            None | Some("") => ProjectTrust::Stored,
            Some("1" | "true") => ProjectTrust::Granted,
            Some("0" | "false") => ProjectTrust::Withheld,
            Some(_) => {
                let source = OriginSource::Variable(overrides::TRUST_VARIABLE.into());
                let origin = ValueOrigin { rank: LayerRank::Variable, source };
                self.report.problem(origin, ProblemKind::Other("must be 1 or 0".to_owned()));
                ProjectTrust::Withheld
            }
        }
    }

    fn add_notice(&mut self, message: String, cause: NoticeCause) {
        self.report.notice(ValueOrigin::DEFAULT, message, cause);
    }

    /// Merges all layers, with a notice for everything that is ignored.
    fn merge_layers(&self, is_trusted: bool) -> (ConfigTable, Vec<ConfigNotice>) {
        let why_ignored = |layer: &ConfigLayer| match layer.owner {
            _ if layer.only_tightens => Some(IgnoredBecause::StoredInWorkspace),
            FileOwner::Project if !is_trusted => Some(IgnoredBecause::UntrustedFolder),
            FileOwner::Project | FileOwner::Named | FileOwner::User => None,
        };
        let mut layers: Vec<&ConfigLayer> = self.layers.iter().collect();
        layers.sort_by_key(|layer| (layer.rank, layer.owner));
        // Computed only if a layer is restricted.
        let trusted = LazyCell::new(|| {
            let trusted = layers.iter().filter(|layer| why_ignored(layer).is_none());
            let trusted = trusted.map(|layer| layer.table.clone());
            let trusted = trusted.fold(ConfigTable::new(), |table, next| merge(table, next, ""));
            self.read_settings(&trusted).1.values
        });
        let (mut table, mut notices) = (ConfigTable::new(), Vec::new());
        for layer in &layers {
            let mut next = layer.table.clone();
            if let Some(why) = why_ignored(layer) {
                let below = self.read_settings(&table).1.values;
                let others = TightenedValues { below: &below, trusted: &trusted };
                next = tighten(next, "", &others, &mut |origin, path| {
                    notices.push(why.notice(origin, path));
                });
            }
            table = merge(table, next, "");
        }
        (table, notices)
    }

    /// Reads the settings of layers that were checked before.
    fn read_settings(&self, table: &ConfigTable) -> (Settings, ReadReport) {
        let mut report = ReadReport::default();
        let settings =
            SettingsReader::read_layer(table, "", &self.paths, &mut report, Settings::read);
        (settings, report)
    }
}
