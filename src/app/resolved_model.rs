//! The model of a run: which one, its limits, and how to connect to it.

use std::path::PathBuf;
use std::sync::Arc;

use super::error::AppError;
use super::process_env::ProcessEnv;
use crate::config::{Config, ConfigName, ModelConfig, ModelLimits, UnknownPricePolicy};
use crate::llm::model_table::{ModelFacts, ModelInfo, ModelTable};
use crate::llm::scripted::{Script, ScriptPosition, ScriptedModel};
use crate::llm::{ConnectError, ModelConnectionSettings, ModelSpec, Recorder, Recording, connect};
use crate::model::did_you_mean;
use crate::port::{Model, WallClock};
use crate::runner::SystemClock;

/// The chosen model, with its limits.
#[derive(Clone)]
pub struct ResolvedModel {
    source: ModelSource,
    /// Price and sizes, from the model table or its script.
    pub limits: ModelLimits,
    models: ModelTable,
    wrapper: Option<ModelWrapper>,
    /// Its address and key, if the user has defined it with them.
    address: ModelAddress,
}

/// The address and the key of a model that the user has defined.
#[derive(Clone, Default)]
struct ModelAddress {
    api_base: Option<String>,
    api_key_env: Option<String>,
}

/// A model that can be named.
#[derive(Clone, Debug)]
pub struct KnownModel {
    /// The name that the user has given it.
    pub defined_as: Option<String>,
    /// Its name, as `provider/name`.
    pub name: String,
    /// What is known about it.
    pub info: ModelInfo,
}

/// Returns the models that the configuration defines, those of the model table, and the date of the table.
///
/// # Errors
///
/// Fails for an invalid table or definition.
pub fn known_models(config: &Config) -> Result<(Vec<KnownModel>, String), AppError> {
    let table = model_table(config)?;
    let mut models = Vec::new();
    for (name, own) in &config.settings.models {
        let spec = defined_spec(name.as_str(), own, config, &table)?;
        let table = table.clone().with_model(&spec, facts(own))?;
        let info = table.lookup(&spec).cloned();
        let defined_as = Some(name.to_string());
        models.extend(info.map(|info| KnownModel { defined_as, name: spec.to_string(), info }));
    }
    models.extend(table.rows().iter().map(|info| KnownModel {
        defined_as: None,
        name: format!("{}/{}", info.provider.name(), info.id),
        info: info.clone(),
    }));
    Ok((models, table.date().to_owned()))
}

/// Returns the model table, with the prices of the user.
fn model_table(config: &Config) -> Result<ModelTable, AppError> {
    match &config.settings.costs.prices_file {
        None => Ok(ModelTable::built_in()),
        Some(path) => Ok(ModelTable::built_in().with_file(path)?),
    }
}

/// Returns the model of a definition.
fn defined_spec(
    name: &str,
    own: &ModelConfig,
    config: &Config,
    table: &ModelTable,
) -> Result<ModelSpec, AppError> {
    let model = own.model.as_ref();
    let model = model.ok_or_else(|| AppError::IncompleteModel(name.to_owned()))?;
    let has_address = own.api_base.is_some() || config.settings.llm.api_base.is_some();
    Ok(ModelSpec::parse(model.as_str(), table, has_address)?)
}

fn facts(own: &ModelConfig) -> ModelFacts {
    ModelFacts {
        window: own.window,
        max_output: own.output,
        price: own.price.clone(),
        efforts: own.efforts.clone(),
    }
}

/// Where a model comes from.
#[derive(Clone)]
enum ModelSource {
    /// A name.
    Named(ModelSpec),
    /// A model of this program, and its name: a script, or a model of the program that embeds the agent.
    Local(Arc<str>, ModelFactory),
}

/// Returns a model around another one.
pub type ModelWrapper = Arc<dyn Fn(Box<dyn Model>) -> Box<dyn Model> + Send + Sync>;

/// Returns a model, which plays a script from this position if it has one.
type ModelFactory = Arc<dyn Fn(ScriptPosition) -> Box<dyn Model> + Send + Sync>;

impl ResolvedModel {
    /// Returns the model that the configuration names.
    ///
    /// # Errors
    ///
    /// Fails if it names no model, if its script is invalid, and if it has no price although there is a budget.
    pub fn from_config(config: &Config, world: &ProcessEnv) -> Result<Self, AppError> {
        let settings = &config.settings;
        let table = model_table(config)?;
        let name = settings.llm.model.as_ref().ok_or(AppError::NoModel)?;
        let own = ConfigName::parse(name.as_str()).and_then(|name| settings.models.get(&name));
        let (spec, table) = if let Some(own) = own {
            let spec = defined_spec(name.as_str(), own, config, &table)?;
            let table = table.with_model(&spec, facts(own))?;
            (spec, table)
        } else {
            let has_address = settings.llm.api_base.is_some();
            (ModelSpec::parse(name.as_str(), &table, has_address)?, table)
        };
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
                if let (Some(effort), Some(info)) = (settings.llm.effort, table.lookup(&spec)) {
                    let model = spec.to_string();
                    info.effort_word(effort)
                        .map_err(|cause| ConnectError::NoEffort { model, cause })?;
                }
                Self::from_spec(spec, table)
            }
        };
        let address = own.map_or_else(ModelAddress::default, |own| ModelAddress {
            api_base: own.api_base.as_ref().map(ToString::to_string),
            api_key_env: own.api_key_env.as_ref().map(ToString::to_string),
        });
        Self { address, ..chosen }.with_known_price(config)
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
        let source = ModelSource::Local(name.into(), Arc::new(move |_| connect()));
        Self {
            source,
            limits: ModelLimits::default(),
            models: ModelTable::built_in(),
            wrapper: None,
            address: ModelAddress::default(),
        }
    }

    fn from_script(name: Arc<str>, script: Script, models: ModelTable) -> Self {
        let Script { price, window, max_output, .. } = script;
        let play = move |position| {
            Box::new(ScriptedModel::new(script.clone(), position)) as Box<dyn Model>
        };
        let source = ModelSource::Local(name, Arc::new(play));
        let limits = ModelLimits { price, window, max_output };
        Self { source, limits, models, wrapper: None, address: ModelAddress::default() }
    }

    /// A recording has the price of the recorded model.
    fn from_recording(path: PathBuf, table: ModelTable) -> Result<Self, AppError> {
        let recorded = Recording::load(&path).map_err(ConnectError::from)?;
        let recorded = ModelSpec::parse(recorded.first_model(), &table, true)?;
        let source = ModelSource::Named(ModelSpec::Replay(path));
        Ok(Self { source, ..Self::from_spec(recorded, table) })
    }

    fn from_spec(spec: ModelSpec, models: ModelTable) -> Self {
        let row = models.lookup(&spec);
        let limits = row.map_or_else(ModelLimits::default, |row| ModelLimits {
            price: row.price,
            window: row.window,
            max_output: row.max_output,
        });
        let (source, address) = (ModelSource::Named(spec), ModelAddress::default());
        Self { source, limits, models, wrapper: None, address }
    }

    /// Returns the same model with this around it, in each run, those of sub-agents included.
    pub fn wrapped(self, wrapper: ModelWrapper) -> Self {
        Self { wrapper: Some(wrapper), ..self }
    }

    /// Returns what the model is called, as `provider/name`.
    pub fn name(&self) -> Arc<str> {
        match &self.source {
            ModelSource::Named(spec) => spec.to_string().into(),
            ModelSource::Local(name, _) => Arc::clone(name),
        }
    }

    /// Checks key and address of the model, without a request.
    ///
    /// # Errors
    ///
    /// Fails when something is missing or wrong: its key, its address.
    pub fn check(&self, config: &Config, world: &ProcessEnv) -> Result<(), AppError> {
        self.connect(config, world, "", ScriptPosition::default(), None).map(drop)
    }

    /// Returns the model, ready for requests. The name of the session is the key of the provider's cache; `position` is
    /// that in a script or a recording.
    ///
    /// # Errors
    ///
    /// Fails when something is missing or wrong in the set-up: its key, its address.
    pub(super) fn connect(
        &self,
        config: &Config,
        world: &ProcessEnv,
        session: &str,
        position: ScriptPosition,
        recorder: Option<&Recorder>,
    ) -> Result<Box<dyn Model>, AppError> {
        let model = self.connect_inner(config, world, session, position, recorder)?;
        Ok(match &self.wrapper {
            Some(wrap) => wrap(model),
            None => model,
        })
    }

    fn connect_inner(
        &self,
        config: &Config,
        world: &ProcessEnv,
        session: &str,
        position: ScriptPosition,
        recorder: Option<&Recorder>,
    ) -> Result<Box<dyn Model>, AppError> {
        let spec = match &self.source {
            ModelSource::Local(_, connect) => return Ok(connect(position)),
            ModelSource::Named(spec) => spec,
        };
        let llm = &config.settings.llm;
        let settings = ModelConnectionSettings {
            api_base: self
                .address
                .api_base
                .clone()
                .or_else(|| llm.api_base.as_ref().map(ToString::to_string)),
            api_key_env: self
                .address
                .api_key_env
                .clone()
                .or_else(|| llm.api_key_env.as_ref().map(ToString::to_string)),
            api_key_command: llm.api_key_command.clone(),
            allow_http: llm.allow_http,
            stream: llm.stream,
            prompt_caching: llm.prompt_caching,
            cache_key: Some(session.to_owned()),
            recorder: recorder.cloned(),
            timeout: llm.timeout.into(),
            idle_timeout: llm.idle_timeout.into(),
            position,
            clock: Some(WallClock::new(Arc::new(SystemClock::start()))),
            effort: llm.effort,
            options: Arc::new(
                llm.options
                    .iter()
                    .map(|(name, option)| (name.clone(), option.json().clone()))
                    .collect(),
            ),
            headers: llm
                .headers
                .iter()
                .map(|(name, value)| (name.clone(), value.reveal().to_owned()))
                .collect(),
            ..ModelConnectionSettings::default()
        };
        let env = |name: &str| world.variable(name).map(str::to_owned);
        Ok(connect(spec, &settings, &self.models, &env)?)
    }
}
