//! The setup of a run, checked before anything begins.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;

use super::configured_checks::SchemaCheck;
use super::configured_tools;
use super::context::{
    DiffError, SystemPrompt, WorkspaceDiff, build_system_prompt, diff_since, find_git,
    readable_skills,
};
use super::error::AppError;
use super::function_tool::FunctionTool;
use super::hidden_paths::hidden_registry_warning;
use super::process_env::ProcessEnv;
use super::resolved_model::ResolvedModel;
use super::run_interrupts::RunInterrupts;
use super::sandbox::{Sandbox, foreign_workspace_warning};
use super::skills::{Skill, SkillSources};
use crate::config::{AgentDefinition, Config, ConfigName};
use crate::hooks::Hooks;
use crate::llm::Recorder;
use crate::port::{CancellationToken, lock};
use crate::tools::{CALL_TOOL, ExecutionMode};
use crate::types::{TimeSpan, matches_wildcard};
use crate::workspace::index::IndexSettings;
use crate::workspace::{EditorBuffers, WorkspaceRoot};

/// The setup of a run, checked before anything begins.
#[derive(Clone)]
pub struct RunSetup {
    /// The configuration.
    pub config: Config,
    /// The environment of the process.
    pub env: ProcessEnv,
    /// The agent.
    pub agent: AgentDefinition,
    /// The model.
    pub model: ResolvedModel,
    /// Runs commands.
    pub sandbox: Sandbox,
    /// Whether calls are executed, or only planned in a dry run.
    pub execution: ExecutionMode,
    /// The JSON Schema of the answer.
    pub schema: Option<Arc<Value>>,
    /// Records the exchange with the model.
    pub recorder: Option<Recorder>,
    /// The original workspace, if the workspace is an isolated worktree.
    pub origin: Option<PathBuf>,
    /// The interrupts of its runs; `None` for the signals of the process.
    pub interrupts: Option<RunInterrupts>,
    /// Tools in addition to those of this program and of servers.
    pub(super) tools: Vec<FunctionTool>,
    pub(super) skills: Arc<[Skill]>,
    pub(super) diff: Option<WorkspaceDiff>,
    pub(super) root: WorkspaceRoot,
    pub(super) hook_depth: u32,
}

/// Returns whether a workspace is the root folder, or contains the user's home.
fn contains_home(workspace: &Path, home: Option<&Path>) -> bool {
    let home = home.and_then(|home| home.canonicalize().ok());
    workspace.parent().is_none() || home.is_some_and(|home| home.starts_with(workspace))
}

/// The maximum time that the first call waits for an index of the workspace.
const INDEX_TIMEOUT: Duration = Duration::from_millis(500);

/// The variable with the number of nested hooks around this process.
const HOOK_DEPTH_VARIABLE: &str = "ARCHITECT_HOOK_DEPTH";

/// The parts of a setup that depend on checks of the configuration, the workspace and the system.
struct CheckedSetup {
    root: WorkspaceRoot,
    skills: Arc<[Skill]>,
    sandbox: Sandbox,
    hook_depth: u32,
}

impl CheckedSetup {
    fn new(config: &Config, world: &ProcessEnv, agent: &AgentDefinition) -> Result<Self, AppError> {
        let depth =
            world.variable(HOOK_DEPTH_VARIABLE).and_then(|depth| depth.parse().ok()).unwrap_or(0);
        Hooks::check_depth(depth)?;
        let settings = configured_tools::tool_settings(config, agent, ExecutionMode::Real)?;
        let path = config.workspace.clone();
        let root = WorkspaceRoot::open(&path)
            .map_err(|cause| AppError::Workspace { path: path.clone(), cause })?;
        if root.path().to_str().is_none() {
            // The confinement of commands, the configuration and the journal need the path as text.
            let cause = io::Error::new(io::ErrorKind::InvalidInput, "its path is not UTF-8");
            return Err(AppError::Workspace { path: root.path().to_owned(), cause });
        }
        let is_named = config.settings.workspace.root.is_some()
            && !config.is_of_project(&config.origin("workspace.root"));
        if !is_named && contains_home(root.path(), world.folders().home.as_deref()) {
            return Err(AppError::HomeAsWorkspace(root.path().to_owned()));
        }
        let guarded = settings.guardrails.guarded_files(&root, &settings.rules);
        let own = SkillSources::new(config, world).read();
        let warnings = foreign_workspace_warning(config, root.path())
            .into_iter()
            .chain(hidden_registry_warning(config, world));
        for warning in warnings {
            warn_once(&warning);
        }
        let sandbox = Sandbox::new(config, world, root.path().to_owned(), guarded, &own)?;
        let skills = own.find(&root).into();
        Ok(Self { root, skills, sandbox, hook_depth: depth })
    }
}

/// The warnings that this process has already logged, since it may have thousands of runs.
static WARNED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

fn warn_once(warning: &str) {
    if lock(&WARNED).insert(warning.to_owned()) {
        log::warn!("{warning}");
    }
}

impl RunSetup {
    /// Returns the setup for runs of this agent with this model.
    ///
    /// # Errors
    ///
    /// Fails if the agent is unknown, the workspace can't be opened, the required confinement is unavailable, or this
    /// process was started by too many nested hooks.
    pub fn new(
        config: Config,
        world: ProcessEnv,
        agent: &str,
        model: ResolvedModel,
    ) -> Result<Self, AppError> {
        let agent = config.agent(agent)?;
        let CheckedSetup { root, skills, sandbox, hook_depth } =
            CheckedSetup::new(&config, &world, &agent)?;
        Ok(Self {
            config,
            env: world,
            agent,
            model,
            sandbox,
            execution: ExecutionMode::Real,
            schema: None,
            recorder: None,
            origin: None,
            interrupts: None,
            tools: Vec::new(),
            skills,
            diff: None,
            root,
            hook_depth,
        })
    }

    /// Performs the checks of [`new`](Self::new).
    ///
    /// # Errors
    ///
    /// Fails as `new` does.
    pub fn check(config: &Config, world: &ProcessEnv, agent: &str) -> Result<(), AppError> {
        CheckedSetup::new(config, world, &config.agent(agent)?).map(drop)
    }

    /// Returns the setup with another configuration for the same workspace.
    pub fn with_config(&self, config: Config) -> Self {
        Self { config, ..self.clone() }
    }

    /// Returns the setup with these tools, which the agent may call without confirmation.
    ///
    /// # Errors
    ///
    /// Fails if a name is taken or invalid.
    pub(super) fn with_tools(mut self, tools: Vec<FunctionTool>) -> Result<Self, AppError> {
        for tool in tools {
            let name = tool.name();
            if ConfigName::parse(name).is_none()
                || configured_tools::is_built_in(name)
                || name == CALL_TOOL
                || self.tools.iter().any(|other| other.name() == name)
            {
                return Err(AppError::ToolName(name.to_owned()));
            }
            self.tools.push(tool);
        }
        Ok(self)
    }

    /// Returns the setup for a worktree of the workspace.
    ///
    /// # Errors
    ///
    /// Fails if the worktree can't be opened, or the required confinement is unavailable there.
    pub(super) fn in_worktree(&self, workspace: &Path) -> Result<Self, AppError> {
        let failed = |cause| AppError::Workspace { path: workspace.to_owned(), cause };
        let root = WorkspaceRoot::open(workspace).map_err(failed)?;
        let config = Config { workspace: workspace.to_owned(), ..self.config.clone() };
        let settings = configured_tools::tool_settings(&config, &self.agent, self.execution)?;
        let guarded = settings.guardrails.guarded_files(&root, &settings.rules);
        let own = SkillSources::new(&config, &self.env).read();
        let sandbox = Sandbox::new(&config, &self.env, root.path().to_owned(), guarded, &own)?;
        let origin = self.origin.clone().unwrap_or_else(|| self.root.path().to_owned());
        let origin = Some(origin);
        let skills = own.find(&root).into();
        Ok(Self { config, sandbox, root, skills, origin, diff: None, ..self.clone() })
    }

    /// Returns the setup with tools that see the unsaved changes of an editor.
    pub fn with_buffers(mut self, buffers: Arc<dyn EditorBuffers>) -> Self {
        self.root = self.root.with_buffers(buffers);
        self
    }

    /// Returns the setup for another agent, without a schema of the answer.
    pub fn with_agent(&self, agent: AgentDefinition) -> Self {
        Self { agent, schema: None, ..self.clone() }
    }

    /// Returns the setup for an answer that satisfies this JSON Schema.
    ///
    /// # Errors
    ///
    /// Fails if the schema is invalid, or no answer satisfies it.
    pub fn with_schema(mut self, schema: Value) -> Result<Self, AppError> {
        SchemaCheck::new(&schema)?.require_satisfiable()?;
        self.schema = Some(Arc::new(schema));
        Ok(self)
    }

    /// Adds the changes in the workspace since this commit to the system prompt.
    ///
    /// # Errors
    ///
    /// Fails if there is no such commit, no repository, or no git.
    pub fn with_diff_since(mut self, since: &str) -> Result<Self, AppError> {
        let git = find_git(OsStr::new(self.env.variable("PATH").unwrap_or_default()));
        let git = git.ok_or(DiffError::NoGit)?;
        let cancel = CancellationToken::new();
        self.diff = Some(diff_since(&git, &self.sandbox.checks, &self.root, since, &cancel)?);
        Ok(self)
    }

    /// Returns the system prompt. The same files result in the same bytes. A run that is not stored writes no cache.
    pub(super) fn system_prompt(&self, is_stored: bool) -> Arc<str> {
        let indexer = &self.config.settings.indexer;
        let has_cache = is_stored && indexer.cache_ttl > TimeSpan::ZERO;
        let index = indexer.enabled.then(|| IndexSettings {
            max_file_size: indexer.max_file_size,
            exclude: indexer.exclude.iter().map(ToString::to_string).collect(),
            ttl: indexer.cache_ttl.into(),
            max_wait: INDEX_TIMEOUT,
            // The cache is not in a folder for caches, where commands may write, because it becomes part of a prompt.
            cache: self.env.folders().state.filter(|_| has_cache).map(|own| own.join("workspaces")),
            ..IndexSettings::default()
        });
        let diff = self.diff.as_ref();
        let allowed = &self.agent.allowed_tools;
        let may_use = |tool: &str| allowed.iter().any(|own| matches_wildcard(own, tool));
        let skills = readable_skills(&self.skills, may_use);
        let prompt = &self.agent.system_prompt;
        let SystemPrompt { text, notices } =
            build_system_prompt(prompt, &self.root, &skills, index.as_ref(), diff);
        for notice in notices {
            log::warn!("{notice}");
        }
        text
    }
}
