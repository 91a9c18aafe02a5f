//! Which model a run asks, what is known of it, and how it is reached.

use std::path::PathBuf;
use std::sync::Arc;

use super::error::AppError;
use super::world::World;
use crate::config::{self, Config, UnknownPrice};
use crate::llm::models::Table;
use crate::llm::scripted::{Script, ScriptPosition, ScriptedModel};
use crate::llm::{ConnectError, ModelSpec, Recorder, Recording, WireSettings, connect};
use crate::model::did_you_mean;
use crate::port::Model;

/// The model that was chosen, with what is known of it.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// Where it comes from.
    pub source: Source,
    /// What the table, or its script, says of it.
    pub facts: config::ModelFacts,
    table: Table,
}

/// Where a model comes from.
#[derive(Clone, Debug)]
pub enum Source {
    /// A name.
    Named(ModelSpec),
    /// A script that was read already.
    Script {
        /// What it is called.
        name: Arc<str>,
        /// What it says.
        script: Script,
    },
}

/// What a model has to know of the session that asks it.
pub(super) struct InSession<'a> {
    /// Its name, which requests have in common for the provider's cache.
    pub(super) name: &'a str,
    /// Where a script and a recording go on.
    pub(super) position: ScriptPosition,
    /// Where the exchange is written down.
    pub(super) record: &'a Option<Recorder>,
}

impl Chosen {
    /// Returns the model that the configuration names.
    ///
    /// # Errors
    ///
    /// Fails when it names none, when its script can't be played, and when it has no price although there is a budget.
    pub fn of(config: &Config, world: &World) -> Result<Self, AppError> {
        let settings = &config.settings;
        let table = match settings.costs.prices_file.clone() {
            None => Table::built_in(),
            Some(path) => Table::built_in().with_file(path)?,
        };
        let name = settings.llm.model.as_ref().ok_or(AppError::NoModel)?;
        let spec = ModelSpec::parse(name.as_str(), &table, settings.llm.api_base.is_some())?;
        let chosen = match spec {
            ModelSpec::Scripted(path) => {
                let path = world.cwd.join(path);
                let name = format!("scripted/{}", path.display()).into();
                Self::script(name, Script::load(&path)?, table)
            }
            ModelSpec::Replay(path) => Self::replay(world.cwd.join(path), table)?,
            ModelSpec::Remote { .. } => {
                // An address of one's own has models of one's own.
                let meant = table.meant(&spec).filter(|_| settings.llm.api_base.is_none());
                if meant.is_some() {
                    let question = did_you_mean(meant.as_deref());
                    log::warn!("the model {spec} is not in the model table{question}");
                }
                Self::named(spec, table)
            }
        };
        let is_free = settings.limits.budget_usd.is_none()
            || settings.costs.unknown_price == UnknownPrice::Warn;
        if is_free || chosen.facts.price.is_some() {
            Ok(chosen)
        } else {
            Err(AppError::NoPrice(chosen.name().to_string()))
        }
    }

    /// Returns a model that plays this script.
    pub fn scripted(name: impl Into<Arc<str>>, script: Script) -> Self {
        Self::script(name.into(), script, Table::built_in())
    }

    fn script(name: Arc<str>, script: Script, table: Table) -> Self {
        let facts = config::ModelFacts {
            price: script.price,
            window: script.window,
            ceiling: script.max_output,
        };
        Self { source: Source::Script { name, script }, facts, table }
    }

    /// What was recorded costs what it cost then.
    fn replay(path: PathBuf, table: Table) -> Result<Self, AppError> {
        let recorded = Recording::load(&path).map_err(ConnectError::from)?;
        let recorded = ModelSpec::parse(recorded.model(), &table, true)?;
        let source = Source::Named(ModelSpec::Replay(path));
        Ok(Self { source, ..Self::named(recorded, table) })
    }

    fn named(spec: ModelSpec, table: Table) -> Self {
        let row = table.lookup(&spec);
        let facts = config::ModelFacts {
            price: row.and_then(|row| row.price),
            window: row.and_then(|row| row.window),
            ceiling: row.and_then(|row| row.max_output),
        };
        Self { source: Source::Named(spec), facts, table }
    }

    /// Returns what the model is called, as `provider/name`.
    pub fn name(&self) -> Arc<str> {
        match &self.source {
            Source::Named(spec) => spec.to_string().into(),
            Source::Script { name, .. } => Arc::clone(name),
        }
    }

    /// Checks whether the model can be reached as it is set up, without reaching for it.
    ///
    /// # Errors
    ///
    /// Fails when something is missing or wrong: its key, its address.
    pub fn check(&self, config: &Config, world: &World) -> Result<(), AppError> {
        let session = InSession { name: "", position: ScriptPosition::default(), record: &None };
        self.connect(config, world, &session).map(drop)
    }

    /// Returns the model, ready to be asked.
    ///
    /// # Errors
    ///
    /// Fails when something is missing or wrong in the set-up: its key, its address.
    pub(super) fn connect(
        &self,
        config: &Config,
        world: &World,
        session: &InSession<'_>,
    ) -> Result<Box<dyn Model>, AppError> {
        let InSession { name, position, record } = session;
        let position = position.clone();
        match &self.source {
            Source::Script { script, .. } => {
                Ok(Box::new(ScriptedModel::new(script.clone(), position)))
            }
            Source::Named(spec) => {
                let llm = &config.settings.llm;
                let wire = WireSettings {
                    api_base: llm.api_base.as_ref().map(|url| url.as_str().to_owned()),
                    api_key_env: llm.api_key_env.as_ref().map(|name| name.as_str().to_owned()),
                    allow_http: llm.allow_http,
                    stream: llm.stream,
                    prompt_caching: llm.prompt_caching,
                    cache_key: Some((*name).to_owned()),
                    record: (*record).clone(),
                    timeout: llm.timeout.into(),
                    idle_timeout: llm.idle_timeout.into(),
                    position,
                    ..WireSettings::default()
                };
                let env = |name: &str| world.variable(name).map(str::to_owned);
                Ok(connect(spec, &wire, &self.table, &env)?)
            }
        }
    }
}
