//! Everything that a run needs, found and checked before anything begins.

use std::io;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use super::context::Changes;
use super::error::AppError;
use super::model::Chosen;
use super::sandbox::Sandbox;
use super::schema::Schema;
use super::tools;
use super::world::World;
use crate::config::{Agent, Config};
use crate::hooks::Hooks;
use crate::llm::Recorder;
use crate::workspace::Root;

/// Everything that a run needs, found and checked before anything begins.
#[derive(Clone)]
pub struct Setup {
    /// The configuration.
    pub config: Config,
    /// What surrounds the program.
    pub world: World,
    /// The agent.
    pub agent: Agent,
    /// The model.
    pub model: Chosen,
    /// Where commands run.
    pub sandbox: Sandbox,
    /// Whether anything is changed.
    pub effect: Effect,
    /// The JSON Schema of the answer.
    pub schema: Option<Arc<Value>>,
    /// Where the exchange with the model is written down.
    pub record: Option<Recorder>,
    pub(super) changes: Option<Changes>,
    pub(super) root: Root,
    pub(super) depth: u32,
}

/// Whether a run changes anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Effect {
    /// It does.
    #[default]
    Real,
    /// What would change something is described.
    Described,
}

/// Returns whether a workspace is the root folder, or has the user's home in it.
fn holds_home(workspace: &Path, home: Option<&Path>) -> bool {
    let home = home.and_then(|home| home.canonicalize().ok());
    workspace.parent().is_none() || home.is_some_and(|home| home.starts_with(workspace))
}

/// The variable that tells how many hooks are around this process.
const DEPTH: &str = "ARCHITECT_HOOK_DEPTH";

impl Setup {
    /// Returns what a run of this agent with this model needs.
    ///
    /// # Errors
    ///
    /// Fails when the agent is unknown, the workspace can't be opened, the required confinement can't be had, or this
    /// process was started by too many hooks.
    pub fn new(config: Config, world: World, agent: &str, model: Chosen) -> Result<Self, AppError> {
        let depth = world.variable(DEPTH).and_then(|depth| depth.parse().ok()).unwrap_or(0);
        Hooks::check_depth(depth)?;
        let agent = config.agent(agent)?;
        let settings = tools::settings(&config, &agent, Effect::Real)?;
        let path = config.workspace.clone();
        let root =
            Root::open(&path).map_err(|cause| AppError::Workspace { path: path.clone(), cause })?;
        if root.path().to_str().is_none() {
            // The confinement of commands, the configuration and the journal hold the path as text.
            let cause = io::Error::new(io::ErrorKind::InvalidInput, "its path is not UTF-8");
            return Err(AppError::Workspace { path: root.path().to_owned(), cause });
        }
        let is_named = config.settings.workspace.root.is_some();
        if !is_named && holds_home(root.path(), world.folders().home.as_deref()) {
            return Err(AppError::Home(root.path().to_owned()));
        }
        let guarded = settings.guardrails.files(&root, &settings.rules);
        let sandbox = Sandbox::new(&config, &world, root.path().to_owned(), guarded)?;
        Ok(Self {
            config,
            world,
            agent,
            model,
            sandbox,
            effect: Effect::Real,
            schema: None,
            record: None,
            changes: None,
            root,
            depth,
        })
    }

    /// Returns the same with another configuration, of the same workspace.
    pub fn configured(&self, config: Config) -> Self {
        Self { config, ..self.clone() }
    }

    /// Returns the same for another agent, whose answer is free.
    pub fn acting_as(&self, agent: Agent) -> Self {
        Self { agent, schema: None, ..self.clone() }
    }

    /// Returns the same for an answer that satisfies this JSON Schema.
    ///
    /// # Errors
    ///
    /// Fails when the schema is none.
    pub fn answering(mut self, schema: Value) -> Result<Self, AppError> {
        Schema::new(&schema)?;
        self.schema = Some(Arc::new(schema));
        Ok(self)
    }
}
