//! Loading the configuration: reading all layers and merging them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::agents;
use super::checked_file::{self, ConfigFileError, OwnerCheck};
use super::effective::{EffectiveValue, ReadReport, RelativePathBase};
use super::folders::Folders;
use super::layers::{self, ConfigFile, ConfigFileState, ConfigLayer, LayerOwner};
use super::mcp_json;
use super::merge::merge;
use super::origin::{LayerRank, OriginSource, ValueOrigin};
use super::overrides::{self, OptionOverride, SetOverride};
use super::problem::{ConfigError, ConfigNotice, ConfigProblem, NoticeCause, ProblemKind};
use super::resolved::Config;
use super::settings::Settings;
use super::settings_reader::SettingsReader;
use super::trust::{ChangedFile, TrustStore};
use super::untrusted_layer::tighten;
use super::value_tree::{ConfigNode, ConfigTable, ConfigValue};
use crate::exec::is_secret_variable;
use crate::model::{matches_wildcard, nearest};

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
    /// The values of `--set`, as `KEY=VALUE`.
    pub sets: Vec<String>,
    /// The options that set keys.
    pub options: Vec<OptionOverride>,
}

/// Whether the project's folder is trusted; if it isn't, its files can only tighten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProjectTrust {
    /// As the list of trusted folders says.
    #[default]
    Stored,
    /// Trusted for this run.
    Granted,
    /// Not trusted for this run.
    Withheld,
}

/// Reads all layers and merges them.
///
/// # Errors
///
/// Returns every problem in any of them.
pub fn load(sources: &ConfigSources) -> Result<Config, ConfigError> {
    ConfigLoader::new(sources).load()
}

/// Returns the names of the agents that anything but an option defines.
fn agents_defined_in_files(layers: &[ConfigLayer], is_trusted: bool) -> BTreeSet<&str> {
    let counts = |layer: &&ConfigLayer| {
        layer.rank < LayerRank::Argument && (is_trusted || layer.owner == LayerOwner::User)
    };
    let agents = layers.iter().filter(counts).filter_map(|layer| layer.table.get("agents"));
    let names = |node| match node {
        &ConfigNode { value: ConfigValue::Table(ref agents), .. } => {
            Some(agents.keys().map(String::as_str))
        }
        _ => None,
    };
    agents.filter_map(names).flatten().collect()
}

struct ConfigLoader<'a> {
    sources: &'a ConfigSources,
    paths: RelativePathBase,
    /// The chosen profile.
    profile: Option<String>,
    /// The names of all profiles.
    profiles: BTreeSet<String>,
    layers: Vec<ConfigLayer>,
    files: Vec<ConfigFile>,
    problems: Vec<ConfigProblem>,
    notices: Vec<ConfigNotice>,
    /// The project's files that have changed since the user trusted the folder.
    changed: Vec<ChangedFile>,
}

impl<'a> ConfigLoader<'a> {
    fn new(sources: &'a ConfigSources) -> Self {
        let mut loader = Self {
            sources,
            paths: RelativePathBase {
                cwd: sources.cwd.clone(),
                home: sources.folders.home.clone(),
            },
            profile: sources.profile.clone(),
            profiles: BTreeSet::new(),
            layers: Vec::new(),
            files: Vec::new(),
            problems: Vec::new(),
            notices: Vec::new(),
            changed: Vec::new(),
        };
        if loader.profile.is_none() {
            loader.profile = loader.variable(overrides::PROFILE_VARIABLE).map(str::to_owned);
        }
        loader
    }

    fn load(mut self) -> Result<Config, ConfigError> {
        self.add_layer(LayerRank::Default, LayerOwner::User, agents::built_in_layer());
        self.add_user_folder();
        self.add_variables();
        self.add_named_files();
        self.add_arguments();
        // The project's folder is determined by everything but the project.
        let (settings, _) = self.read_settings(&self.merge_layers(true).0);
        let root = settings.workspace.root.unwrap_or_else(|| self.sources.cwd.clone());
        let is_trusted = self.resolve_trust(&root);
        self.add_project(&root, is_trusted);
        self.check_profile();

        let (table, notices) = self.merge_layers(is_trusted);
        self.notices.extend(notices);
        let mut report = ReadReport::default();
        let settings =
            SettingsReader::read_layer(&table, "", &self.paths, &mut report, Settings::read);
        let shown = report.values;
        if is_trusted {
            self.problems.extend(self.passed_secrets());
        }
        let Self { layers, files, notices, mut problems, changed, .. } = self;
        // Every layer was checked by itself, but an option that sets one key of a list's entry is only right or wrong
        // together with the entry.
        if problems.is_empty() {
            problems = report.problems;
        }
        let config = Config {
            settings,
            notices,
            workspace: root,
            is_trusted,
            changed,
            files,
            effective_values: shown,
        };
        if problems.is_empty() {
            problems = config.undefined_agents(&agents_defined_in_files(&layers, is_trusted));
        }
        if problems.is_empty() {
            problems = config.check_consistency();
        }
        if problems.is_empty() { Ok(config) } else { Err(problems.into()) }
    }

    fn add_user_folder(&mut self) {
        let Some(folder) = self.sources.folders.config.clone() else { return };
        self.add_agents(
            &folder.join("agents"),
            LayerRank::User,
            LayerOwner::User,
            OwnerCheck::UserOrRoot,
        );
        self.add_file(
            &folder.join("config.toml"),
            LayerRank::User,
            LayerOwner::User,
            OwnerCheck::UserOrRoot,
        );
        self.add_profile_file(&folder, LayerOwner::User, OwnerCheck::UserOrRoot);
    }

    fn add_variables(&mut self) {
        let mut report = ReadReport::default();
        let variables = &self.sources.variables;
        let table = overrides::layer_from_variables(variables, &mut report, &mut self.notices);
        self.problems.extend(report.problems);
        self.add_layer(LayerRank::Variable, LayerOwner::User, table);
    }

    /// The user names these files, so they may belong to anyone, but must not be writable by everyone.
    fn add_named_files(&mut self) {
        let file = self.sources.file.clone();
        let file = file.or_else(|| self.variable(overrides::CONFIG_VARIABLE).map(PathBuf::from));
        if let Some(file) = file {
            let path = self.sources.cwd.join(file);
            self.add_file(&path, LayerRank::File, LayerOwner::User, OwnerCheck::NotWorldWritable);
            self.require_file(path);
        }
        for file in &self.sources.mcp_files {
            let path = self.sources.cwd.join(file);
            self.add_servers(
                &path,
                LayerRank::File,
                LayerOwner::User,
                OwnerCheck::NotWorldWritable,
            );
            self.require_file(path);
        }
    }

    fn add_arguments(&mut self) {
        // The options saved in a session and those given now may be about one list.
        for set in &self.sources.sets {
            let mut report = ReadReport::default();
            let set = overrides::layer_from_set(set, &mut report);
            self.problems.extend(report.problems);
            match set {
                SetOverride::Key(table) => {
                    self.add_layer(LayerRank::Argument, LayerOwner::User, table);
                }
                SetOverride::EntryKey(table) => {
                    self.layers.push(ConfigLayer {
                        rank: LayerRank::Argument,
                        owner: LayerOwner::User,
                        table,
                    });
                }
            }
        }
        self.add_layer(
            LayerRank::Argument,
            LayerOwner::User,
            overrides::layer_from_options(&self.sources.options),
        );
    }

    fn add_project(&mut self, root: &Path, is_trusted: bool) {
        let folder = root.join(".architect");
        let servers = root.join(".mcp.json");
        let agents = folder.join("agents");
        if is_trusted {
            self.add_servers(
                &servers,
                LayerRank::Project,
                LayerOwner::Project,
                OwnerCheck::Unchecked,
            );
            self.add_agents(
                &agents,
                LayerRank::Project,
                LayerOwner::Project,
                OwnerCheck::Unchecked,
            );
        } else {
            // They could only be ignored, so they are not even read.
            for path in [servers, agents].into_iter().filter(|path| path.exists()) {
                let message = "is ignored, because this folder is not trusted";
                let message = format!("{} {message}", path.display());
                self.add_notice(message, NoticeCause::Untrusted);
                self.files.push(ConfigFile {
                    path,
                    rank: LayerRank::Project,
                    state: ConfigFileState::Skipped,
                });
            }
        }
        let config = folder.join("config.toml");
        self.add_file(&config, LayerRank::Project, LayerOwner::Project, OwnerCheck::Unchecked);
        self.add_profile_file(&folder, LayerOwner::Project, OwnerCheck::Unchecked);
        if !is_trusted {
            let theirs = self.files.iter_mut().filter(|file| file.path.starts_with(&folder));
            for file in theirs.filter(|file| file.state == ConfigFileState::Read) {
                file.state = ConfigFileState::OnlyTightens;
            }
        }
    }

    /// Adds a file with its profiles.
    fn add_file(&mut self, path: &Path, rank: LayerRank, whose: LayerOwner, author: OwnerCheck) {
        let read = layers::read_layer_file(path, rank, author);
        let Some(layer) = self.record_file(path, rank, read) else { return };
        self.add_layer(rank, whose, layer.table);
        for (name, table) in layer.profiles {
            let table = layers::with_rank(table, LayerRank::Profile);
            if self.profile.as_ref() == Some(&name) {
                self.add_layer(LayerRank::Profile, whose, table);
            } else {
                self.check_layer(&table, &format!("profiles.{name}."));
            }
            self.profiles.insert(name);
        }
    }

    /// Adds the file of the chosen profile.
    fn add_profile_file(&mut self, folder: &Path, whose: LayerOwner, author: OwnerCheck) {
        let folder = folder.join("profiles");
        self.profiles.extend(layers::profile_names(&folder));
        let Some(name) = self.profile.as_ref().filter(|name| self.profiles.contains(*name)) else {
            return;
        };
        let path = folder.join(format!("{name}.toml"));
        let read = layers::read_profile_file(&path, author);
        if let Some(table) = self.record_file(&path, LayerRank::Profile, read) {
            self.add_layer(LayerRank::Profile, whose, table);
        }
    }

    fn add_agents(
        &mut self,
        folder: &Path,
        rank: LayerRank,
        whose: LayerOwner,
        author: OwnerCheck,
    ) {
        let table = agents::folder_layer(folder, rank, author, &mut self.problems);
        self.add_layer(rank, whose, table);
    }

    fn add_servers(&mut self, path: &Path, rank: LayerRank, whose: LayerOwner, author: OwnerCheck) {
        let variables = |name: &str| self.variable(name);
        let mut notices = Vec::new();
        let read = mcp_json::read_layer(path, rank, author, &variables, &mut notices);
        self.notices.extend(notices);
        if let Some(table) = self.record_file(path, rank, read) {
            self.add_layer(rank, whose, table);
        }
    }

    /// Records whether a file was read.
    fn record_file<T>(
        &mut self,
        path: &Path,
        rank: LayerRank,
        read: Result<Option<T>, Vec<ConfigProblem>>,
    ) -> Option<T> {
        let state = match &read {
            Ok(None) => ConfigFileState::Absent,
            Ok(Some(_)) | Err(_) => ConfigFileState::Read,
        };
        self.files.push(ConfigFile { path: path.to_owned(), rank, state });
        match read {
            Ok(read) => read,
            Err(wrong) => {
                self.problems.extend(wrong);
                None
            }
        }
    }

    /// Checks a layer and adds it.
    fn add_layer(&mut self, rank: LayerRank, whose: LayerOwner, table: ConfigTable) {
        self.check_layer(&table, "");
        self.layers.push(ConfigLayer { rank, owner: whose, table });
    }

    fn check_layer(&mut self, table: &ConfigTable, path: &str) {
        let mut report = ReadReport::default();
        SettingsReader::read_layer(table, path, &self.paths, &mut report, Settings::read);
        self.problems.extend(report.problems);
    }

    fn require_file(&mut self, path: PathBuf) {
        let is_absent =
            |file: &ConfigFile| file.path == path && file.state == ConfigFileState::Absent;
        if self.files.iter().any(is_absent) {
            let trouble = ProblemKind::Unreadable(ConfigFileError::Missing(path));
            self.problems.push(ConfigProblem::new(ValueOrigin::DEFAULT, trouble));
        }
    }

    fn check_profile(&mut self) {
        let Some(name) = self.profile.as_ref().filter(|name| !self.profiles.contains(*name)) else {
            return;
        };
        let source = match self.sources.profile {
            Some(_) => OriginSource::Argument("--profile".into()),
            None => OriginSource::Variable(overrides::PROFILE_VARIABLE.into()),
        };
        let nearest = nearest(name, self.profiles.iter().map(String::as_str)).map(str::to_owned);
        let known = self.profiles.iter().cloned().collect();
        let trouble = ProblemKind::Unknown { kind: "profile", name: name.clone(), nearest, known };
        self.problems
            .push(ConfigProblem::new(ValueOrigin { rank: LayerRank::Profile, source }, trouble));
    }

    /// Returns whether the project's folder is trusted.
    fn resolve_trust(&mut self, root: &Path) -> bool {
        let trust = match self.sources.trust {
            ProjectTrust::Stored => self.trust_from_variable(),
            given @ (ProjectTrust::Granted | ProjectTrust::Withheld) => given,
        };
        match trust {
            ProjectTrust::Granted => true,
            ProjectTrust::Withheld => false,
            ProjectTrust::Stored => {
                let Some(state) = &self.sources.folders.state else { return false };
                let trusted = TrustStore::new(state).contains(root);
                // Trusting a folder is trusting those who can write it; here, everyone can.
                let path = root.join(".architect/config.toml");
                let open = checked_file::read_file(&path, OwnerCheck::NotWorldWritable);
                let problem = match (trusted, open) {
                    (Err(error), _) => error.to_string(),
                    (Ok(true), Err(error @ ConfigFileError::WorldWritable(_))) => error.to_string(),
                    (Ok(true), _) => return self.is_unchanged(&TrustStore::new(state), root),
                    (Ok(false), _) => return false,
                };
                self.add_notice(
                    format!("{problem}; this folder counts as not trusted"),
                    NoticeCause::Other,
                );
                false
            }
        }
    }

    /// Returns whether a trusted folder is as it was when the user trusted it.
    fn is_unchanged(&mut self, store: &TrustStore, root: &Path) -> bool {
        match store.changed(root) {
            Ok(Some(changed)) => {
                for file in &changed {
                    let path = root.join(&file.path);
                    let message =
                        "has changed since you trusted this folder, which counts as not trusted";
                    let message = format!("{} {message}", path.display());
                    self.add_notice(message, NoticeCause::Untrusted);
                }
                self.changed = changed;
                self.changed.is_empty()
            }
            // The user trusted the folder whatever its files contain.
            Ok(None) => {
                let recorded = match store.add(root) {
                    Ok(()) => "the configuration of this trusted folder is recorded; if it changes, you will be asked".to_owned(),
                    Err(error) => error.to_string(),
                };
                self.add_notice(recorded, NoticeCause::Other);
                true
            }
            Err(error) => {
                let message = format!("{error}; this folder counts as not trusted");
                self.add_notice(message, NoticeCause::Untrusted);
                false
            }
        }
    }

    /// Returns a problem for each secret of the environment that a file of the project, and nothing of the user's, passes
    /// to commands.
    fn passed_secrets(&self) -> Vec<ConfigProblem> {
        let patterns = |whose: LayerOwner| {
            let layers = self.layers.iter().filter(move |layer| layer.owner == whose);
            layers.filter_map(|layer| match &layer.table.get("commands")?.value {
                ConfigValue::Table(commands) => match &commands.get("env_include")?.value {
                    ConfigValue::List(patterns) => Some(patterns),
                    _ => None,
                },
                _ => None,
            })
        };
        let matches = |pattern: &ConfigNode, name: &str| {
            pattern.value.as_text().is_some_and(|pattern| matches_wildcard(pattern, name))
        };
        let names = self.sources.variables.iter().map(|(name, _)| name.as_str());
        let secrets: Vec<&str> = names.filter(|name| is_secret_variable(name)).collect();
        let allowed =
            |name: &str| patterns(LayerOwner::User).flatten().any(|own| matches(own, name));
        let passed = patterns(LayerOwner::Project).flatten().filter_map(|pattern| {
            let name = secrets.iter().find(|name| matches(pattern, name) && !allowed(name))?;
            let what = format!(
                "`commands.env_include`: {name} may hold a secret, and a file of the project passes none to commands; \
                 set it in your own configuration"
            );
            Some(ConfigProblem::new(pattern.origin.clone(), ProblemKind::Other(what)))
        });
        passed.collect()
    }

    /// Returns the trust that the environment variable sets; an empty one is not set.
    fn trust_from_variable(&mut self) -> ProjectTrust {
        match self.variable(overrides::TRUST_VARIABLE).map(str::trim) {
            None | Some("") => ProjectTrust::Stored,
            Some("1" | "true") => ProjectTrust::Granted,
            Some("0" | "false") => ProjectTrust::Withheld,
            Some(_) => {
                let source = OriginSource::Variable(overrides::TRUST_VARIABLE.into());
                let trouble = ProblemKind::Other("must be 1 or 0".to_owned());
                let origin = ValueOrigin { rank: LayerRank::Variable, source };
                self.problems.push(ConfigProblem::new(origin, trouble));
                ProjectTrust::Withheld
            }
        }
    }

    fn add_notice(&mut self, message: String, cause: NoticeCause) {
        self.notices.push(ConfigNotice { origin: ValueOrigin::DEFAULT, message, cause });
    }

    /// Merges all layers, with a notice for everything that is ignored.
    fn merge_layers(&self, is_trusted: bool) -> (ConfigTable, Vec<ConfigNotice>) {
        let mut layers: Vec<&ConfigLayer> = self.layers.iter().collect();
        layers.sort_by_key(|layer| (layer.rank, layer.owner));
        let (mut table, mut notices) = (ConfigTable::new(), Vec::new());
        for layer in layers {
            let mut next = layer.table.clone();
            if layer.owner == LayerOwner::Project && !is_trusted {
                let left_out;
                (next, left_out) = tighten(next, &self.read_settings(&table).1);
                notices.extend(left_out);
            }
            table = merge(table, next, "");
        }
        (table, notices)
    }

    /// Reads the settings of layers that were checked before.
    fn read_settings(&self, table: &ConfigTable) -> (Settings, Vec<EffectiveValue>) {
        let mut report = ReadReport::default();
        let settings =
            SettingsReader::read_layer(table, "", &self.paths, &mut report, Settings::read);
        (settings, report.values)
    }

    fn variable(&self, name: &str) -> Option<&str> {
        let found = self.sources.variables.iter().find(|(variable, _)| variable == name);
        found.map(|(_, value)| value.as_str())
    }
}
