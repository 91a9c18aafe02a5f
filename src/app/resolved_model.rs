//! The model of a run: which one, its limits, and how to connect to it.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use super::error::AppError;
use super::process_env::ProcessEnv;
use crate::config::{self, Config, UnknownPricePolicy};
use crate::llm::model_table::ModelTable;
use crate::llm::scripted::{Script, ScriptPosition, ScriptedModel};
use crate::llm::{ConnectError, ModelConnectionSettings, ModelSpec, Recorder, Recording, connect};
use crate::model::did_you_mean;
use crate::port::Model;

/// The chosen model, with its limits.
#[derive(Clone, Debug)]
pub struct ResolvedModel {
    /// Where it comes from.
    pub source: ModelSource,
    /// Price and sizes, from the model table or its script.
    pub limits: config::ModelLimits,
    models: ModelTable,
}

/// Where a model comes from.
#[derive(Clone, Debug)]
pub enum ModelSource {
    /// A name.
    Named(ModelSpec),
    /// A script.
    Script {
        /// Its name.
        name: Arc<str>,
        /// The script.
        script: Script,
    },
    /// A model of the program that embeds the agent.
    Custom {
        /// Its name.
        name: Arc<str>,
        /// Returns the model, for each run.
        connect: ModelFactory,
    },
}

/// Returns a model.
#[derive(Clone)]
pub struct ModelFactory(Arc<dyn Fn() -> Box<dyn Model> + Send + Sync>);

impl fmt::Debug for ModelFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ModelFactory")
    }
}

/// The session of a model.
pub(super) struct ModelSession<'a> {
    /// Its name, the key of the provider's cache.
    pub(super) name: &'a str,
    /// The position in a script or a recording.
    pub(super) position: ScriptPosition,
    /// Records the exchange.
    pub(super) recorder: &'a Option<Recorder>,
}

impl ResolvedModel {
    /// Returns the model that the configuration names.
    ///
    /// # Errors
    ///
    /// Fails if it names no model, if its script is invalid, and if it has no price although there is a budget.
    pub fn from_config(config: &Config, world: &ProcessEnv) -> Result<Self, AppError> {
        let settings = &config.settings;
        let table = match settings.costs.prices_file.clone() {
            None => ModelTable::built_in(),
            Some(path) => ModelTable::built_in().with_file(&path)?,
        };
        let name = settings.llm.model.as_ref().ok_or(AppError::NoModel)?;
        let spec = ModelSpec::parse(name.as_str(), &table, settings.llm.api_base.is_some())?;
        let chosen = match spec {
            ModelSpec::Scripted(path) => {
                let path = world.cwd.join(path);
                let name = format!("scripted/{}", path.display()).into();
                Self::from_script(name, Script::load(&path)?, table)
            }
            ModelSpec::Replay(path) => Self::from_recording(world.cwd.join(path), table)?,
            ModelSpec::Remote { .. } => {
                // An address of one's own has models of one's own.
                let meant = table.suggest_for(&spec).filter(|_| settings.llm.api_base.is_none());
                if meant.is_some() {
                    let question = did_you_mean(meant.as_deref());
                    log::warn!("the model {spec} is not in the model table{question}");
                }
                Self::from_spec(spec, table)
            }
        };
        chosen.with_known_price(config)
    }

    /// Returns the model, if it has a price or needs none.
    pub(super) fn with_known_price(self, config: &Config) -> Result<Self, AppError> {
        let settings = &config.settings;
        let is_free = settings.limits.budget_usd.is_none()
            || settings.costs.unknown_price == UnknownPricePolicy::Warn;
        if is_free || self.limits.price.is_some() {
            Ok(self)
        } else {
            Err(AppError::NoPrice(self.name().to_string()))
        }
    }

    /// Returns a model that plays this script.
    pub fn scripted(name: impl Into<Arc<str>>, script: Script) -> Self {
        Self::from_script(name.into(), script, ModelTable::built_in())
    }

    /// Returns a model of the program that embeds the agent.
    pub(super) fn custom(
        name: &str,
        connect: impl Fn() -> Box<dyn Model> + Send + Sync + 'static,
    ) -> Self {
        let connect = ModelFactory(Arc::new(connect));
        let limits = config::ModelLimits { price: None, window: None, max_output: None };
        let source = ModelSource::Custom { name: name.into(), connect };
        Self { source, limits, models: ModelTable::built_in() }
    }

    fn from_script(name: Arc<str>, script: Script, table: ModelTable) -> Self {
        let facts = config::ModelLimits {
            price: script.price,
            window: script.window,
            max_output: script.max_output,
        };
        Self { source: ModelSource::Script { name, script }, limits: facts, models: table }
    }

    /// A recording has the price of the recorded model.
    fn from_recording(path: PathBuf, table: ModelTable) -> Result<Self, AppError> {
        let recorded = Recording::load(&path).map_err(ConnectError::from)?;
        let recorded = ModelSpec::parse(recorded.first_model(), &table, true)?;
        let source = ModelSource::Named(ModelSpec::Replay(path));
        Ok(Self { source, ..Self::from_spec(recorded, table) })
    }

    fn from_spec(spec: ModelSpec, table: ModelTable) -> Self {
        let row = table.lookup(&spec);
        let facts = config::ModelLimits {
            price: row.and_then(|row| row.price),
            window: row.and_then(|row| row.window),
            max_output: row.and_then(|row| row.max_output),
        };
        Self { source: ModelSource::Named(spec), limits: facts, models: table }
    }

    /// Returns what the model is called, as `provider/name`.
    pub fn name(&self) -> Arc<str> {
        match &self.source {
            ModelSource::Named(spec) => spec.to_string().into(),
            ModelSource::Script { name, .. } | ModelSource::Custom { name, .. } => Arc::clone(name),
        }
    }

    /// Checks key and address of the model, without a request.
    ///
    /// # Errors
    ///
    /// Fails when something is missing or wrong: its key, its address.
    pub fn check(&self, config: &Config, world: &ProcessEnv) -> Result<(), AppError> {
        let session =
            ModelSession { name: "", position: ScriptPosition::default(), recorder: &None };
        self.connect(config, world, &session).map(drop)
    }

    /// Returns the model, ready for requests.
    ///
    /// # Errors
    ///
    /// Fails when something is missing or wrong in the set-up: its key, its address.
    pub(super) fn connect(
        &self,
        config: &Config,
        world: &ProcessEnv,
        session: &ModelSession<'_>,
    ) -> Result<Box<dyn Model>, AppError> {
        let ModelSession { name, position, recorder: record } = session;
        let position = position.clone();
        match &self.source {
            ModelSource::Script { script, .. } => {
                Ok(Box::new(ScriptedModel::new(script.clone(), position)))
            }
            ModelSource::Custom { connect, .. } => Ok((connect.0)()),
            ModelSource::Named(spec) => {
                let llm = &config.settings.llm;
                let wire = ModelConnectionSettings {
                    api_base: llm.api_base.as_ref().map(|url| url.as_str().to_owned()),
                    api_key_env: llm.api_key_env.as_ref().map(|name| name.as_str().to_owned()),
                    allow_http: llm.allow_http,
                    stream: llm.stream,
                    prompt_caching: llm.prompt_caching,
                    cache_key: Some((*name).to_owned()),
                    recorder: (*record).clone(),
                    timeout: llm.timeout.into(),
                    idle_timeout: llm.idle_timeout.into(),
                    position,
                    ..ModelConnectionSettings::default()
                };
                let env = |name: &str| world.variable(name).map(str::to_owned);
                Ok(connect(spec, &wire, &self.models, &env)?)
            }
        }
    }
}
