//! The model of a run: which one, its limits, and how to connect to it.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::error::AppError;
use super::process_env::ProcessEnv;
use crate::config::{
    Config, ConfigName, EvaluationMode, LlmConfig, ModelConfig, ModelLimits, ModelName,
    UnknownPricePolicy,
};
use crate::llm::model_table::{ModelFacts, ModelInfo, ModelTable};
use crate::llm::scripted::{Script, ScriptPosition, ScriptedModel};
use crate::llm::{ConnectError, ModelConnectionSettings, ModelSpec, Recorder, Recording, connect};
use crate::machine::CallPurpose;
use crate::model::{Effort, Fault, Tokens, did_you_mean};
use crate::port::{Model, ModelCall, ModelRequest, WallClock};
use crate::runner::SystemClock;
use crate::workspace::image::ImageLimits;

/// The chosen model, with its limits.
#[derive(Clone)]
pub struct ResolvedModel {
    source: ModelSource,
    /// Price and sizes, from the model table or its script.
    pub limits: ModelLimits,
    /// The limits for images; `None` if the model takes none.
    pub(super) images: Option<&'static ImageLimits>,
    models: ModelTable,
    wrapper: Option<ModelWrapper>,
    /// Its address and key, if the user has defined it with them.
    address: ModelAddress,
    /// Whether `llm.api_base`, the key of `llm`, `llm.options` and `llm.headers` are for another provider.
    is_of_other_provider: bool,
    /// Whether the effort of the configuration is for another model.
    has_default_effort: bool,
    /// The model of summaries, if it is another one.
    summarizer: Option<Box<ResolvedModel>>,
    /// The model of evaluations, if it is another one.
    evaluator: Option<Box<ResolvedModel>>,
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
        images: own.images,
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
pub type ModelWrapper = Arc<dyn Fn(Box<dyn Model>, &ModelLimits) -> Box<dyn Model> + Send + Sync>;

/// A model whose summaries are written by another one.
struct WithSummarizer {
    model: Box<dyn Model>,
    summarizer: Box<dyn Model>,
    /// The most tokens of a summary.
    max_output: Option<Tokens>,
}

impl Model for WithSummarizer {
    fn prepare(&mut self, ask: &ModelRequest<'_>) -> Result<Box<dyn ModelCall>, Fault> {
        match ask.purpose {
            CallPurpose::Agent | CallPurpose::Closing => self.model.prepare(ask),
            CallPurpose::Compaction => {
                let most = self.max_output.unwrap_or(Tokens(u64::MAX));
                let max_output = ask.max_output.map(|output| output.min(most));
                self.summarizer.prepare(&ModelRequest { max_output, ..*ask })
            }
        }
    }
}

/// Returns a model, which plays a script from this position if it has one.
type ModelFactory = Arc<dyn Fn(ScriptPosition) -> Box<dyn Model> + Send + Sync>;

impl ResolvedModel {
    /// Returns the model that the configuration names.
    ///
    /// # Errors
    ///
    /// Fails if it names no model, if its script is invalid, and if it has no price although there is a budget; for the
    /// models of summaries and evaluations too.
    pub fn from_config(config: &Config, world: &ProcessEnv) -> Result<Self, AppError> {
        let name = config.settings.llm.model.as_ref().ok_or(AppError::NoModel)?;
        Self::named(name, config, world, config.settings.llm.effort)?
            .with_other_models(config, world)
    }

    /// Adds the models of summaries and evaluations. A recording has those of its run.
    pub(super) fn with_other_models(
        mut self,
        config: &Config,
        world: &ProcessEnv,
    ) -> Result<Self, AppError> {
        let settings = &config.settings;
        if let ModelSource::Named(ModelSpec::Replay(_)) = self.source {
            return Ok(self);
        }
        let other = |name: &ModelName| {
            let mut other = Self::named(name, config, world, None)?;
            other.has_default_effort = true;
            other.is_of_other_provider = match (self.provider(), other.provider()) {
                (Some(own), Some(other)) => own != other,
                _ => false,
            };
            Ok::<_, AppError>(Box::new(other))
        };
        let summarizer = settings.llm.summary_model.as_ref().map(other).transpose()?;
        let evaluation = &settings.evaluation;
        let evaluator = evaluation.model.as_ref();
        let evaluator = evaluator.filter(|_| evaluation.mode != EvaluationMode::Off);
        self.evaluator = evaluator.map(other).transpose()?;
        if let Some(summarizer) = &summarizer {
            let windows = [self.limits.window, summarizer.limits.window];
            self.limits.window = windows.into_iter().flatten().min();
            self.limits.summary_price = summarizer.limits.price;
        }
        self.summarizer = summarizer;
        Ok(self)
    }

    /// Returns the model that this name means.
    fn named(
        name: &ModelName,
        config: &Config,
        world: &ProcessEnv,
        effort: Option<Effort>,
    ) -> Result<Self, AppError> {
        let settings = &config.settings;
        let table = model_table(config)?;
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
                if let (Some(effort), Some(info)) = (effort, table.lookup(&spec)) {
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
        Self::from_source(ModelSource::Local(name.into(), Arc::new(move |_| connect())))
    }

    /// Returns a model about which nothing more is known.
    fn from_source(source: ModelSource) -> Self {
        Self {
            source,
            limits: ModelLimits::default(),
            images: None,
            models: ModelTable::built_in(),
            wrapper: None,
            address: ModelAddress::default(),
            is_of_other_provider: false,
            has_default_effort: false,
            summarizer: None,
            evaluator: None,
        }
    }

    fn from_script(name: Arc<str>, script: Script, models: ModelTable) -> Self {
        let Script { price, window, max_output, .. } = script;
        let play = move |position| {
            Box::new(ScriptedModel::new(script.clone(), position)) as Box<dyn Model>
        };
        let source = ModelSource::Local(name, Arc::new(play));
        let limits = ModelLimits { price, summary_price: None, window, max_output };
        Self { limits, models, ..Self::from_source(source) }
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
            summary_price: None,
            window: row.window,
            max_output: row.max_output,
        });
        let images = row.and_then(ModelInfo::image_limits);
        Self { limits, images, models, ..Self::from_source(ModelSource::Named(spec)) }
    }

    /// Returns the same model with this around it, in each run, those of sub-agents included.
    pub fn wrapped(self, wrapper: ModelWrapper) -> Self {
        Self { wrapper: Some(wrapper), ..self }
    }

    /// Returns the model of evaluations, if it is another one.
    pub(crate) fn evaluator(&self) -> Option<Self> {
        let wrapper = self.wrapper.clone();
        self.evaluator.as_ref().map(|evaluator| Self { wrapper, ..(**evaluator).clone() })
    }

    /// Returns the name of the first model without a price.
    pub fn unpriced(&self) -> Option<Arc<str>> {
        let others = self.summarizer.iter().chain(&self.evaluator).map(|other| &**other);
        let mut all = std::iter::once(self).chain(others);
        all.find(|model| model.limits.price.is_none()).map(Self::name)
    }

    /// Returns the provider of a model over the network.
    fn provider(&self) -> Option<&'static str> {
        match &self.source {
            ModelSource::Named(ModelSpec::Remote { provider, .. }) => Some(provider.name()),
            ModelSource::Named(_) | ModelSource::Local(..) => None,
        }
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
        // What is missing for the evaluation is known before the run.
        if let Some(evaluator) = &self.evaluator {
            evaluator.check(config, world)?;
        }
        let model = match &self.summarizer {
            None => model,
            Some(other) => {
                let position = ScriptPosition::default();
                let summarizer = other.connect_inner(config, world, session, position, recorder)?;
                let max_output = other.limits.max_output;
                Box::new(WithSummarizer { model, summarizer, max_output })
            }
        };
        Ok(match &self.wrapper {
            Some(wrap) => wrap(model, &self.limits),
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
        let defaults = LlmConnection::new(llm);
        let common = if self.is_of_other_provider { LlmConnection::default() } else { defaults };
        let ModelAddress { api_base, api_key_env } = self.address.clone();
        let settings = ModelConnectionSettings {
            api_base: api_base.or(common.api_base),
            api_key_env: api_key_env.or(common.api_key_env),
            api_key_command: common.api_key_command,
            allow_http: llm.allow_http,
            stream: llm.stream,
            prompt_caching: llm.prompt_caching,
            cache_key: Some(session.to_owned()),
            recorder: recorder.cloned(),
            timeout: llm.timeout.into(),
            idle_timeout: llm.idle_timeout.into(),
            position,
            clock: Some(WallClock::new(Arc::new(SystemClock::start()))),
            effort: llm.effort.filter(|_| !self.has_default_effort),
            options: common.options,
            headers: common.headers,
            ..ModelConnectionSettings::default()
        };
        let env = |name: &str| world.variable(name).map(str::to_owned);
        Ok(connect(spec, &settings, &self.models, &env)?)
    }
}

/// The part of the settings of calls that is for one provider.
#[derive(Default)]
struct LlmConnection {
    api_base: Option<String>,
    api_key_env: Option<String>,
    api_key_command: Option<String>,
    options: Arc<Map<String, Value>>,
    headers: Vec<(String, String)>,
}

impl LlmConnection {
    fn new(llm: &LlmConfig) -> Self {
        let options = llm.options.iter();
        let headers = llm.headers.iter();
        Self {
            api_base: llm.api_base.as_ref().map(ToString::to_string),
            api_key_env: llm.api_key_env.as_ref().map(ToString::to_string),
            api_key_command: llm.api_key_command.clone(),
            options: Arc::new(
                options.map(|(name, option)| (name.clone(), option.json().clone())).collect(),
            ),
            headers: headers
                .map(|(name, value)| (name.clone(), value.reveal().to_owned()))
                .collect(),
        }
    }
}
