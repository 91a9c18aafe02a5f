//! The model of a run: resolution of its name, its limits, and the connection to it.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::error::AppError;
use super::process_env::ProcessEnv;
use super::secrets::collect_secrets;
use crate::config::{
    Config, ConfigName, ConfigProblem, EvaluationMode, LlmConfig, ModelConfig, ModelLimits,
    ModelName, OriginSource, ProblemKind, Settings, UnknownPricePolicy, ValueOrigin, model_rules,
};
use crate::llm::model_table::{EffortError, ModelFacts, ModelInfo, ModelTable};
use crate::llm::scripted::{Script, ScriptPosition, ScriptedModel};
use crate::llm::{
    ConnectError, KeyCommandSetting, ModelConnectionSettings, ModelSpec, Provider, Recorder,
    Recording, RequestSettingsError, connect, encoding_model, has_same_origin, list_models,
};
use crate::machine::CallPurpose;
use crate::port::{Model, ModelCall, ModelRequest, WallClock};
use crate::runner::SystemClock;
use crate::tools::DeferredToolsModel;
use crate::types::{
    ContextLimits, Effort, Fault, ImageBudget, OutputField, RunRules, Tokens, did_you_mean,
};
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
    /// The address and key of the model's own definition.
    address: ModelAddress,
    /// Whether the model is of another provider than `llm.api_base`, the key of `llm`, `llm.options` and `llm.headers`.
    /// With the same provider, these settings apply only to models of the same origin.
    is_of_other_provider: bool,
    /// The field for the output limit, from the model's own definition.
    output_field: Option<OutputField>,
    /// Whether the effort of the configuration is for another model.
    has_default_effort: bool,
    /// The model of summaries, if it is a different one.
    summarizer: Option<Box<ResolvedModel>>,
    /// The model of evaluations, if it is a different one.
    evaluator: Option<Box<ResolvedModel>>,
    /// The fallback models in their order, each with its name in this run.
    fallbacks: Vec<(Arc<str>, ResolvedModel)>,
}

/// The address and the key of a model.
#[derive(Clone, Default)]
#[allow(clippy::struct_field_names)] // as in the configuration
struct ModelAddress {
    base: Option<String>,
    /// The setting that names `key_env`.
    key_setting: Option<String>,
    key_env: Option<String>,
    key_command: Option<KeyCommandSetting>,
}

/// A model that the user can choose by name.
#[derive(Clone, Debug)]
pub struct KnownModel {
    /// The name in the user's configuration; `None` for a model of the table.
    pub defined_as: Option<String>,
    /// The name, as `provider/name`.
    pub name: String,
    /// The information about the model.
    pub info: ModelInfo,
}

/// The models that the user can choose by name.
#[derive(Clone, Debug)]
pub struct KnownModels {
    /// The models of the configuration, and those of the model table.
    pub models: Vec<KnownModel>,
    /// The model table.
    pub table: ModelTable,
    /// The problems with other definitions of the configuration.
    pub problems: Vec<ConfigProblem>,
}

/// Returns the models that the user can choose by name.
///
/// # Errors
///
/// Fails if the model table is invalid.
pub fn known_models(config: &Config) -> Result<KnownModels, AppError> {
    let table = model_table(config)?;
    let (mut models, mut problems) = (Vec::new(), Vec::new());
    for (name, own) in &config.settings.models {
        match defined_model(name, own, config, &table) {
            Ok(model) => models.extend(model),
            Err(error) => problems.push(definition_problem(name.as_str(), &error, config)),
        }
    }
    models.extend(table.rows().iter().map(|info| KnownModel {
        defined_as: None,
        name: format!("{}/{}", info.provider.name(), info.id),
        info: info.clone(),
    }));
    Ok(KnownModels { models, table, problems })
}

/// Returns the problem with a definition, located at its model or the first of its other keys.
fn definition_problem(name: &str, error: &AppError, config: &Config) -> ConfigProblem {
    let path = format!("models.{name}.");
    let keys = config.effective_values.iter();
    let mut set = keys.filter(|shown| shown.key.starts_with(&path) && shown.value().is_some());
    let named = set.clone().find(|shown| shown.key[path.len()..] == *"model");
    let origin = named.or_else(|| set.next()).map(|shown| shown.origin.clone());
    let what = match error {
        AppError::IncompleteModel(_) => error.to_string(),
        _ => format!("`models.{name}`: {error}"),
    };
    ConfigProblem { origin: origin.unwrap_or(ValueOrigin::DEFAULT), kind: ProblemKind::Other(what) }
}

/// Returns the model of a definition; `None` for a script.
fn defined_model(
    name: &ConfigName,
    own: &ModelConfig,
    config: &Config,
    table: &ModelTable,
) -> Result<Option<KnownModel>, AppError> {
    let spec = defined_spec(name.as_str(), own, config, table)?;
    let table = table.clone().with_model(&spec, facts(own))?;
    let info = table.lookup(&spec).cloned();
    let defined_as = Some(name.to_string());
    Ok(info.map(|info| KnownModel { defined_as, name: spec.to_string(), info }))
}

/// Requests the list of models that a provider offers for the key, with the information of the model table. The default
/// provider is that of the configured model. The inner error is the provider's refusal.
///
/// # Errors
///
/// Fails if the configuration names no provider, has no key for it, or the provider has no such list.
pub fn available_models(
    config: &Config,
    world: &ProcessEnv,
    provider: Option<&'static Provider>,
) -> Result<Result<Vec<KnownModel>, Fault>, AppError> {
    let named = config.settings.llm.model.as_ref();
    let chosen = named.map(|name| ResolvedModel::named(name, config, world)).transpose()?;
    let own = chosen.as_ref().and_then(ResolvedModel::provider);
    let provider = provider.or(own).ok_or(AppError::NoModel)?;
    let table = model_table(config)?;
    let spec = |id: &str| ModelSpec::Remote { provider, name: id.to_owned() };
    let model = match chosen.filter(|_| own == Some(provider)) {
        Some(model) => model,
        None => ResolvedModel {
            is_of_other_provider: own.is_some(),
            ..ResolvedModel::from_spec(spec("models"), table.clone())
        },
    };
    let settings = model.connection_settings(config, world);
    let env = |name: &str| world.variable(name).map(str::to_owned);
    let listed = list_models(provider, &settings, &table, &env)?;
    Ok(listed.map(|names| {
        let known = |id: String| {
            let unknown = ModelInfo {
                id: id.clone(),
                provider,
                price: None,
                window: None,
                max_output: None,
                efforts: None,
                images: None,
            };
            let info = table.lookup(&spec(&id)).cloned().unwrap_or(unknown);
            KnownModel { defined_as: None, name: format!("{}/{id}", provider.name()), info }
        };
        names.into_iter().map(known).collect()
    }))
}

/// Returns the model table, with the prices of the user.
///
/// # Errors
///
/// Fails if the user's file of prices can't be read or is invalid.
pub fn model_table(config: &Config) -> Result<ModelTable, AppError> {
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

/// The source of a model.
#[derive(Clone)]
enum ModelSource {
    /// A model name.
    Named(ModelSpec),
    /// A model of this program with its name: a script, or a model of the embedding program.
    Local(Arc<str>, ModelFactory),
}

/// Wraps a model.
pub type ModelWrapper = Arc<dyn Fn(Box<dyn Model>, &ModelLimits) -> Box<dyn Model> + Send + Sync>;

/// The models of a run: the first one, the fallbacks, and optionally one for summaries.
struct ModelSet {
    first: Box<dyn Model>,
    /// Empty for a recording, which contains the replies of all models.
    fallbacks: Vec<Box<dyn Model>>,
    /// The model of summaries, with its output limit.
    summarizer: Option<(Box<dyn Model>, Option<Tokens>)>,
}

impl Model for ModelSet {
    fn prepare(&mut self, ask: &ModelRequest<'_>) -> Result<Box<dyn ModelCall>, Fault> {
        if let (CallPurpose::Compaction, Some((summarizer, most))) =
            (ask.purpose, &mut self.summarizer)
        {
            let most = most.unwrap_or(Tokens(u64::MAX));
            let max_output = ask.max_output.map(|output| output.min(most));
            return summarizer.prepare(&ModelRequest { max_output, ..*ask });
        }
        let index = usize::try_from(ask.model).unwrap_or(usize::MAX);
        let fallback = index.checked_sub(1).and_then(|index| self.fallbacks.get_mut(index));
        fallback.unwrap_or(&mut self.first).prepare(ask)
    }

    fn request_settings(&self) -> Value {
        let models = std::iter::once(&self.first).chain(&self.fallbacks);
        let models: Vec<Value> = models.map(|model| model.request_settings()).collect();
        let summaries = self.summarizer.as_ref();
        let settings = summaries.map(|(model, _)| model.request_settings());
        let limit = summaries.and_then(|(_, most)| *most);
        json!({ "models": models, "summaries": settings, "summary_limit": limit })
    }
}

/// Returns a model that encodes the requests of a run as they were sent, and sends nothing.
///
/// # Errors
///
/// Fails if the settings of the requests are not stored, or are those of another release.
pub(super) fn encoding_models(settings: &Value) -> Result<Box<dyn Model>, RequestSettingsError> {
    if let Some(names) = settings["deferred"].as_array() {
        let names = names.iter().filter_map(Value::as_str).map(Arc::from);
        let model = encoding_models(&settings["model"])?;
        return Ok(Box::new(DeferredToolsModel::new(model, names)));
    }
    let Some(models) = settings["models"].as_array() else { return encoding_model(settings) };
    let mut models = models.iter().map(encoding_model).collect::<Result<Vec<_>, _>>()?.into_iter();
    let summarizer = match &settings["summaries"] {
        Value::Null => None,
        own => Some((encoding_model(own)?, settings["summary_limit"].as_u64().map(Tokens))),
    };
    let first = models.next().ok_or(RequestSettingsError::Missing)?;
    Ok(Box::new(ModelSet { first, fallbacks: models.collect(), summarizer }))
}

/// Creates a model. A script or a recording begins at this position.
type ModelFactory = Arc<dyn Fn(ScriptPosition) -> Box<dyn Model> + Send + Sync>;

impl ResolvedModel {
    /// Returns the configured model.
    ///
    /// # Errors
    ///
    /// Fails if the configuration names no model, if a script is invalid, or if the price is unknown although there is
    /// a budget. This includes the models of summaries and evaluations.
    pub fn from_config(config: &Config, world: &ProcessEnv) -> Result<Self, AppError> {
        let name = config.settings.llm.model.as_ref().ok_or(AppError::NoModel)?;
        let mut model = Self::named(name, config, world)?;
        model.check_effort(config)?;
        model.with_other_models(config, world)
    }

    /// Adds the models of summaries and evaluations, and the fallbacks. A recording already contains the models of its
    /// run.
    pub(super) fn with_other_models(
        mut self,
        config: &Config,
        world: &ProcessEnv,
    ) -> Result<Self, AppError> {
        let settings = &config.settings;
        for name in &settings.llm.fallback {
            self.add_fallback(name, config, world)?;
        }
        if let ModelSource::Named(ModelSpec::Replay(_)) = self.source {
            return Ok(self);
        }
        let other = |name: &ModelName| {
            let mut other = Self::named(name, config, world)?;
            other.has_default_effort = true;
            other.is_of_other_provider = self.has_other_provider(&other);
            Ok::<_, AppError>(Box::new(other))
        };
        let summarizer = settings.llm.summary_model.as_ref().map(other).transpose()?;
        let evaluation = &settings.evaluation;
        let evaluator = evaluation.model.as_ref();
        let evaluator = evaluator.filter(|_| evaluation.mode != EvaluationMode::Off);
        self.evaluator = evaluator.map(other).transpose()?;
        if let Some(summarizer) = &summarizer {
            let fallbacks = self.fallbacks.iter_mut().map(|(_, fallback)| &mut fallback.limits);
            for limits in std::iter::once(&mut self.limits).chain(fallbacks) {
                let windows = [limits.window, summarizer.limits.window];
                limits.window = windows.into_iter().flatten().min();
                limits.summary_price = summarizer.limits.price;
            }
        }
        self.summarizer = summarizer;
        Ok(self)
    }

    /// Adds a fallback for this model and for the fallbacks added before. It gets the same reasoning effort, if it has
    /// that effort.
    fn add_fallback(
        &mut self,
        name: &ModelName,
        config: &Config,
        world: &ProcessEnv,
    ) -> Result<(), AppError> {
        let mut other = Self::named(name, config, world)?;
        let is_same =
            |known: &Self| known.name() == other.name() && known.address.base == other.address.base;
        if is_same(self) || self.fallbacks.iter().any(|(_, known)| is_same(known)) {
            return Err(AppError::RepeatedFallback(other.name().to_string()));
        }
        // A model that is already there under another address is shown by the name that the user has given it.
        let is_taken = self.name() == other.name()
            || self.fallbacks.iter().any(|(known, _)| *known == other.name());
        let shown = if is_taken { name.as_str().into() } else { other.name() };
        other.is_of_other_provider = self.has_other_provider(&other);
        if let Some(effort) = config.settings.llm.effort.0
            && other.missing_effort(effort).is_some()
        {
            log::warn!("{shown} has no effort '{effort}', and reasons as its provider decides");
            other.has_default_effort = true;
        }
        self.fallbacks.push((shown, other));
        Ok(())
    }

    fn has_other_provider(&self, other: &Self) -> bool {
        match (self.provider(), other.provider()) {
            (Some(own), Some(other)) => own != other,
            _ => false,
        }
    }

    /// Returns the error if the model is known to lack this reasoning effort.
    fn missing_effort(&self, effort: Effort) -> Option<EffortError> {
        let ModelSource::Named(spec @ ModelSpec::Remote { .. }) = &self.source else { return None };
        self.models.lookup(spec)?.effort_word(effort).err()
    }

    /// Checks that the model has the configured effort. An effort that was not given with the command that resumes a
    /// session was meant for the session's earlier model, and is ignored.
    fn check_effort(&mut self, config: &Config) -> Result<(), AppError> {
        let Some(effort) = config.settings.llm.effort.0 else { return Ok(()) };
        let Some(cause) = self.missing_effort(effort) else { return Ok(()) };
        let model = self.name();
        let origin = config.origin("llm.effort");
        let is_given = matches!(origin.source, OriginSource::Argument(_));
        if !config.is_resumed || is_given {
            let what = format!("{model}: {cause}; with \"default\", the provider decides");
            return Err(config.problem_with("llm.effort", what).into());
        }
        log::warn!(
            "{model} has no effort '{effort}' (from {origin}), and reasons as its provider decides"
        );
        self.has_default_effort = true;
        Ok(())
    }

    /// Returns the reasoning effort; `None` if the provider decides.
    pub(super) fn effort(&self, config: &Config) -> Option<Effort> {
        config.settings.llm.effort.0.filter(|_| !self.has_default_effort)
    }

    /// Returns the rules of a run, extended by the rules for several models.
    pub fn add_to_rules(&self, settings: &Settings, rules: RunRules) -> RunRules {
        let context = ContextLimits { images: self.image_budget(), ..rules.context };
        let rules = RunRules { context, ..rules };
        let summary_model = self.summarizer.as_ref().map(|summarizer| summarizer.name());
        if self.fallbacks.is_empty() {
            return RunRules { summary_model, ..rules };
        }
        let first = model_rules(settings, self.name(), &self.limits);
        let others = self.fallbacks.iter();
        let others =
            others.map(|(name, model)| model_rules(settings, Arc::clone(name), &model.limits));
        let models = std::iter::once(first).chain(others).collect();
        RunRules { summary_model, models, ..rules }
    }

    /// Returns whether the model is called through a provider's API, so that the user can define its unknown
    /// properties.
    pub(super) fn is_definable(&self) -> bool {
        matches!(&self.source, ModelSource::Named(ModelSpec::Remote { .. }))
    }

    /// Returns the limits on images in one request that this model and all its fallbacks accept.
    fn image_budget(&self) -> ImageBudget {
        let own = self.images.map_or(ImageBudget::UNLIMITED, |limits| limits.budget);
        self.fallbacks.iter().fold(own, |budget, (_, model)| budget.min(model.image_budget()))
    }

    /// Returns the model of a name.
    fn named(name: &ModelName, config: &Config, world: &ProcessEnv) -> Result<Self, AppError> {
        let settings = &config.settings;
        let table = model_table(config)?;
        let own = ConfigName::parse(name.as_str()).and_then(|name| settings.models.get(&name));
        let (spec, table) = if let Some(own) = own {
            let defined = defined_spec(name.as_str(), own, config, &table).and_then(|spec| {
                let table = table.with_model(&spec, facts(own))?;
                Ok((spec, table))
            });
            defined.map_err(|error| definition_problem(name.as_str(), &error, config))?
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
                // With a custom address, models outside the table are expected.
                let meant = table.suggest_for(&spec).filter(|_| settings.llm.api_base.is_none());
                if meant.is_some() {
                    let question = did_you_mean(meant.as_deref());
                    log::warn!("the model {spec} is not in the model table{question}");
                }
                Self::from_spec(spec, table)
            }
        };
        let address = own.map_or_else(ModelAddress::default, |own| ModelAddress {
            base: own.api_base.as_ref().map(ToString::to_string),
            key_setting: Some(format!("models.{name}.api_key_env")),
            key_env: own.api_key_env.as_ref().map(ToString::to_string),
            key_command: own.api_key_command.as_ref().map(|command| KeyCommandSetting {
                key: format!("models.{name}.api_key_command"),
                command: command.clone(),
            }),
        });
        let output_field = own.and_then(|own| own.output_field);
        Self { address, output_field, ..chosen }.with_known_price(config)
    }

    /// Returns the model if it has a price or needs none.
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

    /// Returns a model of the embedding program.
    pub(super) fn custom(
        name: &str,
        connect: impl Fn() -> Box<dyn Model> + Send + Sync + 'static,
    ) -> Self {
        Self::from_source(ModelSource::Local(name.into(), Arc::new(move |_| connect())))
    }

    /// Returns a model without any other information.
    fn from_source(source: ModelSource) -> Self {
        Self {
            source,
            limits: ModelLimits::default(),
            images: None,
            models: ModelTable::built_in(),
            wrapper: None,
            address: ModelAddress::default(),
            is_of_other_provider: false,
            output_field: None,
            has_default_effort: false,
            summarizer: None,
            evaluator: None,
            fallbacks: Vec::new(),
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

    /// Returns the same model with a wrapper, which applies to each run, including those of sub-agents.
    pub fn wrapped(self, wrapper: ModelWrapper) -> Self {
        Self { wrapper: Some(wrapper), ..self }
    }

    /// Returns the model of evaluations, if it is a different one.
    pub(crate) fn evaluator(&self) -> Option<Self> {
        let wrapper = self.wrapper.clone();
        self.evaluator.as_ref().map(|evaluator| Self { wrapper, ..(**evaluator).clone() })
    }

    /// Returns the name of the first model without a price.
    pub fn unpriced(&self) -> Option<Arc<str>> {
        let others = self.summarizer.iter().chain(&self.evaluator).map(|other| &**other);
        let fallbacks = self.fallbacks.iter().map(|(_, model)| model);
        let mut all = std::iter::once(self).chain(fallbacks).chain(others);
        all.find(|model| model.limits.price.is_none()).map(Self::name)
    }

    /// Returns the provider of a remote model.
    fn provider(&self) -> Option<&'static Provider> {
        match &self.source {
            ModelSource::Named(ModelSpec::Remote { provider, .. }) => Some(provider),
            ModelSource::Named(_) | ModelSource::Local(..) => None,
        }
    }

    /// Returns the name of the model, as `provider/name`.
    pub fn name(&self) -> Arc<str> {
        match &self.source {
            ModelSource::Named(spec) => spec.to_string().into(),
            ModelSource::Local(name, _) => Arc::clone(name),
        }
    }

    /// Checks the key and the address of the model, without a request.
    ///
    /// # Errors
    ///
    /// Fails if the key or the address is missing or invalid.
    pub fn check(&self, config: &Config, world: &ProcessEnv) -> Result<(), AppError> {
        self.connect(config, world, "", ScriptPosition::default(), None).map(drop)
    }

    /// Returns the model, ready for requests. `session` is the key of the provider's cache; `position` is the position
    /// in a script or a recording.
    ///
    /// # Errors
    ///
    /// Fails if the key or the address is missing or invalid.
    pub(super) fn connect(
        &self,
        config: &Config,
        world: &ProcessEnv,
        session: &str,
        position: ScriptPosition,
        recorder: Option<&Recorder>,
    ) -> Result<Box<dyn Model>, AppError> {
        let model = self.connect_inner(config, world, session, position, recorder)?;
        // Problems with the model of evaluations are found before the run.
        if let Some(evaluator) = &self.evaluator {
            evaluator.check(config, world)?;
        }
        let wrap = |model: Box<dyn Model>, limits: &ModelLimits| match &self.wrapper {
            Some(wrap) => wrap(model, limits),
            None => model,
        };
        let first = wrap(model, &self.limits);
        let connect = |other: &Self| {
            other.connect_inner(config, world, session, ScriptPosition::default(), recorder)
        };
        let summarizer = match &self.summarizer {
            Some(other) => Some((wrap(connect(other)?, &self.limits), other.limits.max_output)),
            None => None,
        };
        let is_recording = matches!(self.source, ModelSource::Named(ModelSpec::Replay(_)));
        let fallbacks = self.fallbacks.iter().filter(|_| !is_recording);
        let fallbacks = fallbacks
            .map(|(_, other)| Ok(wrap(connect(other)?, &other.limits)))
            .collect::<Result<Vec<_>, AppError>>()?;
        if summarizer.is_none() && fallbacks.is_empty() {
            return Ok(first);
        }
        Ok(Box::new(ModelSet { first, fallbacks, summarizer }))
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
        let settings = ModelConnectionSettings {
            cache_key: Some(session.to_owned()),
            recorder: recorder.cloned(),
            secrets: collect_secrets(config, world),
            position,
            ..self.connection_settings(config, world)
        };
        let env = |name: &str| world.variable(name).map(str::to_owned);
        Ok(connect(spec, &settings, &self.models, &env)?)
    }

    fn connection_settings(&self, config: &Config, world: &ProcessEnv) -> ModelConnectionSettings {
        let llm = &config.settings.llm;
        let ModelAddress { base, key_setting, key_env, key_command } = self.address.clone();
        // Keys, headers and options for one server are not sent to another.
        let env = |name: &str| world.variable(name).map(str::to_owned);
        let common = match self.is_of_other_provider {
            true => LlmConnection::default(),
            false => LlmConnection::new(llm),
        };
        let common_base = common.address.base.as_deref();
        let is_elsewhere = base
            .as_ref()
            .zip(self.provider())
            .is_some_and(|(base, provider)| !has_same_origin(provider, base, common_base, &env));
        let common = if is_elsewhere { LlmConnection::default() } else { common };
        // A model with its own key does not get the common one.
        let (key_env, key_command) = match (&key_env, &key_command) {
            (None, None) => (common.address.key_env, common.address.key_command),
            _ => (key_env, key_command),
        };
        ModelConnectionSettings {
            api_base: base.or(common.address.base),
            api_key_env: key_env,
            api_key_command: key_command,
            own_key_setting: key_setting.filter(|_| is_elsewhere),
            allow_http: llm.allow_http,
            stream: llm.stream,
            prompt_caching: llm.prompt_caching,
            timeout: llm.timeout.into(),
            idle_timeout: llm.idle_timeout.into(),
            clock: Some(WallClock::new(Arc::new(SystemClock::start()))),
            effort: self.effort(config),
            output_field: self.output_field,
            options: common.options,
            headers: common.headers,
            ..ModelConnectionSettings::default()
        }
    }
}

/// The settings of `llm` that apply to one provider.
#[derive(Default)]
struct LlmConnection {
    address: ModelAddress,
    options: Arc<Map<String, Value>>,
    headers: Vec<(String, String)>,
}

impl LlmConnection {
    fn new(llm: &LlmConfig) -> Self {
        let options = llm.options.iter();
        let headers = llm.headers.iter();
        Self {
            address: ModelAddress {
                base: llm.api_base.as_ref().map(ToString::to_string),
                key_setting: None,
                key_env: llm.api_key_env.as_ref().map(ToString::to_string),
                key_command: llm.api_key_command.as_ref().map(|command| KeyCommandSetting {
                    key: "llm.api_key_command".to_owned(),
                    command: command.clone(),
                }),
            },
            options: Arc::new(
                options.map(|(name, option)| (name.clone(), option.json().clone())).collect(),
            ),
            headers: headers
                .map(|(name, value)| (name.clone(), value.reveal().to_owned()))
                .collect(),
        }
    }
}
