//! The configuration of a batch's cells, with all mistakes found before a cell begins.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use architect::app::{AppError, ProcessEnv, ResolvedModel, RunSetup, open_worktrees};
use architect::config::{
    Config, ConfigProblem, ConfigSources, LayerRank, ModelName, OptionOverride, OriginSource,
    ProblemKind, UnknownPricePolicy, ValueOrigin, load,
};
use architect::types::ConfirmMode;
use architect::view::ReportSink;
use architect::view::human::{RunningCells, ShownSession};
use architect::workflow::batch::{
    BatchCell, CellConfig, CellConfigurator, CellSession, CommonOptions, ManifestProblem,
    TaskOptions, TaskWorkspace, log_file_sinks,
};
use architect::workflow::with_evaluator;
use architect::workspace::normalize_path;

use super::args::SettingsArgs;
use super::config_options::{
    DEFAULT_AGENT, SavedOptions, as_sets, asks_for_confinement, execution_mode, layer_sources,
    set_key,
};
use super::error::error_hints;

/// Configures cells from the options of the command and the manifest.
pub(crate) struct CellOptions<'a> {
    pub(crate) settings: &'a SettingsArgs,
    pub(crate) world: &'a ProcessEnv,
    pub(crate) common: CommonOptions,
    /// The folder of the batch, with the sessions.
    pub(crate) out: PathBuf,
    /// The names of the manifest and of the file of variants, for messages.
    pub(crate) files: [String; 2],
    /// Whether the batch has a limit of money.
    pub(crate) has_budget: bool,
    /// The table on the terminal, if there is one.
    pub(crate) table: Option<RunningCells>,
    /// The model that evaluates the changes of successful cells.
    pub(crate) evaluator: Option<ModelName>,
}

/// The settings of a cell, in the form of `--set`.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
struct CellSets {
    of_user: Vec<String>,
    /// The settings of manifests that the agent may have written; they override the others.
    of_manifest: Vec<String>,
    /// Whether such a manifest names the folder.
    has_folder_of_manifest: bool,
}

/// Returns the options of a command that are common to all cells. A task can override each of them.
pub(crate) fn common_options(
    settings: &SettingsArgs,
    workspace: PathBuf,
    default_agent: &str,
) -> CommonOptions {
    let mut sets = settings.layers.set.clone();
    let overrides = &settings.keys.overrides;
    sets.extend(as_sets(overrides));
    if overrides.iter().any(asks_for_confinement) {
        sets.push("sandbox.required=true".to_owned());
    }
    let agent = settings.agent.clone().unwrap_or_else(|| default_agent.to_owned());
    let layers = &settings.layers;
    let others = [
        layers.config.as_ref().map(|path| format!("--config {}", path.display())),
        layers.profile.as_ref().map(|name| format!("--profile {name}")),
        settings.mcp_config.as_ref().map(|path| format!("--mcp-config {}", path.display())),
        settings.mode.map(|mode| format!("--mode {mode}")),
        settings.dry_run.map(|is_dry| format!("--dry-run={is_dry}")),
        settings.disable_mcp.map(|is_off| format!("--disable-mcp={is_off}")),
    ];
    CommonOptions { agent, workspace, sets, others: others.into_iter().flatten().collect() }
}

impl CellOptions<'_> {
    fn agent<'a>(&'a self, cell: &'a BatchCell) -> &'a str {
        cell.agent().unwrap_or(&self.common.agent)
    }

    /// Returns the folder from which a cell's configuration is loaded; `None` for the current folder, if no option
    /// names it.
    fn folder<'a>(&'a self, cell: &'a BatchCell) -> Option<&'a Path> {
        match &cell.task.workspace {
            TaskWorkspace::Common => self.settings.layers.workspace.as_deref(),
            TaskWorkspace::Folder(folder)
            | TaskWorkspace::Changes(folder)
            | TaskWorkspace::Repository { folder, .. } => Some(folder),
        }
    }

    /// Returns the settings of a cell.
    fn sets(&self, cell: &BatchCell) -> CellSets {
        let mode = self
            .settings
            .mode
            .map(|mode: ConfirmMode| format!("agents.{}.confirm_mode={mode}", self.agent(cell)));
        let of_user = mode.into_iter().chain(self.common.sets.iter().cloned());
        match self.may_be_written(cell) {
            true => CellSets {
                of_user: of_user.collect(),
                of_manifest: cell.manifest_sets().collect(),
                has_folder_of_manifest: !matches!(cell.task.workspace, TaskWorkspace::Common),
            },
            false => CellSets {
                of_user: of_user.chain(cell.manifest_sets()).collect(),
                ..CellSets::default()
            },
        }
    }

    /// Returns whether the agent may have written a manifest: it is in the folder of the command or of the cell, is reached
    /// by a link there, or is no file, as standard input.
    fn may_be_written(&self, cell: &BatchCell) -> bool {
        let folders = [Some(&*self.common.workspace), self.folder(cell)].into_iter().flatten();
        let real = folders.clone().filter_map(|folder| folder.canonicalize().ok());
        let folders: Vec<PathBuf> = folders.map(|it| self.world.cwd.join(it)).chain(real).collect();
        let is_inside = |path: &Path| folders.iter().any(|folder| path.starts_with(folder));
        self.files.iter().filter(|name| !name.is_empty()).any(|name| {
            let named = normalize_path(&self.world.cwd.join(name));
            let real = named.canonicalize().ok().filter(|file| file.is_file());
            real.is_none_or(|real| is_inside(&named) || is_inside(&real))
        })
    }

    fn sources(&self, folder: Option<&Path>, sets: CellSets) -> ConfigSources {
        let CellSets { of_user, of_manifest, has_folder_of_manifest } = sets;
        let manifest_root = folder.filter(|_| has_folder_of_manifest).map(Path::to_owned);
        let folder = folder.filter(|_| !has_folder_of_manifest);
        let path = |key, path: &Path, option: &str| OptionOverride {
            key,
            value: path.to_string_lossy().into_owned(),
            option: option.to_owned(),
        };
        let workspace = folder.map(|folder| path("workspace.root", folder, "--workspace"));
        let sessions = path("sessions.dir", &self.out, "--out");
        ConfigSources {
            mcp_files: self.settings.mcp_config.iter().cloned().collect(),
            sets: of_user,
            manifest_sets: of_manifest,
            manifest_root,
            options: workspace.into_iter().chain([sessions]).collect(),
            ..layer_sources(&self.settings.layers, self.world)
        }
    }

    /// Returns the problems of a manifest that the agent may have written: it can't name a folder outside the workspace, or
    /// another agent than the user.
    fn manifest_problems(&self, cell: &BatchCell) -> Vec<ConfigProblem> {
        let mut problems = Vec::new();
        if !self.may_be_written(cell) {
            return problems;
        }
        let mut refuse = |key: &str, what: &str| {
            let source = OriginSource::Manifest(key.into());
            let origin = ValueOrigin { rank: LayerRank::Argument, source };
            problems.push(ConfigProblem { origin, kind: ProblemKind::Other(what.to_owned()) });
        };
        let real = |folder: &Path| self.world.cwd.join(folder).canonicalize().ok();
        let folder = self.folder(cell).filter(|_| cell.task.workspace != TaskWorkspace::Common);
        let around = real(&self.common.workspace);
        if let Some((folder, around)) = folder.and_then(real).zip(around)
            && !folder.starts_with(around)
        {
            let key = match cell.task.workspace {
                TaskWorkspace::Repository { .. } => "repo",
                _ => "workspace",
            };
            refuse(
                key,
                "only a file of tasks outside the workspace can name a folder outside it, because the agent can change \
                 the files of a project",
            );
        }
        if let (Some(own), Some(agent)) = (&self.settings.agent, cell.agent())
            && own != agent
        {
            refuse(
                "agent",
                "only a file outside the workspace can name another agent than --agent",
            );
        }
        problems
    }

    /// Returns all mistakes that can be found before a cell begins. Equally configured cells are checked once.
    pub(crate) fn find_problems(&self, cells: &[BatchCell]) -> Vec<ManifestProblem> {
        let (mut seen, mut problems) = (HashSet::new(), Vec::new());
        let mut commits = HashSet::new();
        for cell in cells {
            if let TaskWorkspace::Repository { folder, commit } = &cell.task.workspace
                && folder.is_dir()
                && commits.insert((folder.clone(), commit.clone()))
            {
                let found = open_worktrees(self.world)
                    .and_then(|worktrees| worktrees.find_commit(folder, commit.as_deref()));
                if let Err(error) = found {
                    let key = if commit.is_some() { "ref" } else { "repo" };
                    problems.push(self.problem(cell, false, format!("`{key}`: {error}")));
                }
            }
            let key = (self.folder(cell), self.agent(cell).to_owned(), self.sets(cell));
            if seen.insert(key) {
                self.check(cell, &mut problems);
            }
        }
        let mut shown = HashSet::new();
        problems.retain(|problem| shown.insert(problem.to_string()));
        problems
    }

    /// Checks the configuration of a cell, its agent, its model and its workspace.
    fn check(&self, cell: &BatchCell, problems: &mut Vec<ManifestProblem>) {
        let of_manifest = self.manifest_problems(cell);
        if !of_manifest.is_empty() {
            return self.add_all(cell, &of_manifest, problems);
        }
        // A missing folder has already been reported.
        let folder = self.folder(cell).filter(|folder| folder.is_dir());
        let is_missing = folder.is_none() && self.folder(cell).is_some();
        let Some(mut config) = self.load_valid(cell, folder, problems) else { return };
        if self.settings.disable_mcp == Some(true) {
            config.settings.mcp.servers.clear();
        }
        for notice in &config.notices {
            log::debug!("{}: {notice}", cell.label());
        }
        if let Err(error) = self.check_model(&config) {
            let names = |options: &TaskOptions| options.model.is_some();
            let is_variant = cell.variant.as_ref().is_some_and(|one| names(&one.options));
            let problem = self.problem(cell, is_variant, error.to_string());
            problems.push(ManifestProblem { hints: error_hints(&error), ..problem });
        }
        for agent in [self.agent(cell), DEFAULT_AGENT] {
            match RunSetup::check(&config, self.world, agent) {
                Ok(()) => break,
                Err(AppError::Config(error)) => self.add_all(cell, &error.problems, problems),
                Err(AppError::Workspace { .. } | AppError::HomeAsWorkspace(_)) if is_missing => {
                    break;
                }
                Err(error) => {
                    problems.push(self.problem(cell, false, error.to_string()));
                    break;
                }
            }
        }
    }

    /// Loads the configuration of a cell. Invalid settings of the manifest are reported and left out, so that they hide
    /// no other problems.
    fn load_valid(
        &self,
        cell: &BatchCell,
        folder: Option<&Path>,
        problems: &mut Vec<ManifestProblem>,
    ) -> Option<Config> {
        let mut sets = self.sets(cell);
        loop {
            let error = match load(&self.sources(folder, sets.clone())) {
                Ok(config) => return Some(config),
                Err(error) => error,
            };
            self.add_all(cell, &error.problems, problems);
            let wrong: Vec<&str> = error.problems.iter().filter_map(problem_key).collect();
            let before = sets.clone();
            for sets in [&mut sets.of_user, &mut sets.of_manifest] {
                sets.retain(|set| !wrong.contains(&set_key(set)));
            }
            if sets == before {
                return None;
            }
        }
    }

    fn check_model(&self, config: &Config) -> Result<(), AppError> {
        let evaluated = self.evaluator.clone().map(|model| with_evaluator(config, model));
        let config = evaluated.as_ref().unwrap_or(config);
        let model = ResolvedModel::from_config(config, self.world)?;
        model.check(config, self.world)?;
        let policy = config.settings.costs.unknown_price;
        if let Some(name) = model.unpriced()
            && self.has_budget
            && policy != UnknownPricePolicy::Warn
        {
            return Err(AppError::NoPrice(name.to_string()));
        }
        Ok(())
    }

    fn add_all(
        &self,
        cell: &BatchCell,
        found: &[ConfigProblem],
        problems: &mut Vec<ManifestProblem>,
    ) {
        problems.extend(
            found
                .iter()
                .map(|problem| self.problem(cell, is_of_variant(cell, problem), describe(problem))),
        );
    }

    fn problem(&self, cell: &BatchCell, is_variant: bool, message: String) -> ManifestProblem {
        let [tasks, variants] = &self.files;
        let (file, line) = match &cell.variant {
            Some(variant) if is_variant => (variants, variant.line),
            _ => (tasks, cell.task.line),
        };
        ManifestProblem { file: file.clone(), line, message, hints: Vec::new() }
    }

    /// Warns about folders that several cells share.
    pub(crate) fn warn_about_shared_folders(&self, cells: &[BatchCell]) {
        let mut users: BTreeMap<&Path, usize> = BTreeMap::new();
        for cell in cells {
            let folder = match &cell.task.workspace {
                TaskWorkspace::Common => &self.common.workspace,
                TaskWorkspace::Folder(folder) => folder,
                TaskWorkspace::Changes(_) | TaskWorkspace::Repository { .. } => continue,
            };
            *users.entry(folder).or_default() += 1;
        }
        for (folder, count) in users.into_iter().filter(|(_, count)| *count > 1) {
            log::warn!(
                "{count} cells work in the folder {}, maybe at the same time; a task with `repo` has a worktree of its own",
                folder.display()
            );
        }
    }
}

/// Returns whether a problem is in the options of the variant of a cell.
fn is_of_variant(cell: &BatchCell, problem: &ConfigProblem) -> bool {
    let Some(variant) = &cell.variant else { return false };
    match problem_key(problem) {
        Some(key) => variant.options.all_sets().any(|set| set_key(&set) == key),
        // Without a key, the problem is about the agent.
        None => variant.options.agent.is_some(),
    }
}

/// Returns the key of the option that has a problem.
fn problem_key(problem: &ConfigProblem) -> Option<&str> {
    match &problem.origin.source {
        OriginSource::Argument(option) | OriginSource::Manifest(option) => {
            Some(option.trim_start_matches("--set "))
        }
        OriginSource::BuiltIn
        | OriginSource::File(..)
        | OriginSource::Variable(_)
        | OriginSource::Session => None,
    }
}

/// Returns a problem without the name of the option, because the user has not typed this option.
fn describe(problem: &ConfigProblem) -> String {
    let text = problem.kind.to_string();
    match (problem_key(problem), &problem.kind) {
        (Some(key), ProblemKind::Unknown { kind: "agent", .. }) if key.starts_with("agents.") => {
            text
        }
        (Some(key), _) if text.contains(key) => text,
        (Some(key), _) => format!("`{key}`: {text}"),
        (None, _) => problem.to_string(),
    }
}

impl CellConfigurator for CellOptions<'_> {
    fn configure(&self, cell: &BatchCell) -> Result<CellConfig, AppError> {
        let sets = self.sets(cell);
        let agent = self.agent(cell).to_owned();
        let mut config = load(&self.sources(self.folder(cell), sets.clone()))?;
        let settings = self.settings;
        if settings.disable_mcp == Some(true) {
            config.settings.mcp.servers.clear();
        }
        let layers = &settings.layers;
        let saved = SavedOptions {
            omitted: Vec::new(),
            untrusted_sets: Vec::new(),
            sets: [sets.of_user, sets.of_manifest].concat(),
            agent: Some(agent.clone()),
            config: layers
                .config
                .as_ref()
                .map(|path| self.world.cwd.join(path).to_string_lossy().into_owned()),
            profile: layers.profile.clone(),
            dry_run: settings.dry_run == Some(true),
            disable_mcp: settings.disable_mcp == Some(true),
        };
        let execution = execution_mode(saved.dry_run);
        let evaluator = self.evaluator.clone();
        Ok(CellConfig { config, agent, execution, options: saved.to_json(), evaluator })
    }

    fn sinks(
        &self,
        cell: &BatchCell,
        session: CellSession,
        config: &Config,
    ) -> Result<Vec<Box<dyn ReportSink>>, String> {
        let mut sinks = log_file_sinks(config, self.world, &self.common.workspace)?;
        let shown = match session {
            CellSession::Task => ShownSession::Task { has_checks: !cell.task.checks.is_empty() },
            CellSession::Evaluation => ShownSession::Evaluation,
        };
        sinks.extend(self.table.iter().map(|table| table.sink(&cell.label(), shown)));
        Ok(sinks)
    }
}
