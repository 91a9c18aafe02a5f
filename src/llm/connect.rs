//! From a model's name to the model: which wire, which address, which key.

use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use super::anthropic::{self, Anthropic};
use super::cassette::{OnMismatch, Player, Recorder, Recording, RecordingError, ReplayModel};
use super::chat::{Chat, Quirks};
use super::exchange::{HttpTransport, KeySource, RequestTarget, WireModel};
use super::fault::SecretMasker;
use super::gemini::Gemini;
use super::model_spec::{ModelSpec, ModelSpecError};
use super::model_table::ModelTable;
use super::provider::{ApiFormat, Provider, ProviderInfo};
use super::responses::{Responses, ResponsesHost};
use super::scripted::{Script, ScriptError, ScriptPosition, ScriptedModel};
use super::wire::Wire;
use crate::model::Tokens;
use crate::net::{
    Endpoint, EndpointError, HeaderMap, HeaderName, HeaderValue, HttpClient, HttpOptions,
    HttpTimeouts, NetError, Secret, SecretError, header,
};
use crate::port::Model;

/// How a model is reached.
#[derive(Clone, Debug)]
pub struct ModelConnectionSettings {
    /// Another address of the same wire format.
    pub api_base: Option<String>,
    /// The variable that holds the key of that address.
    pub api_key_env: Option<String>,
    /// Whether keys may be sent unencrypted to another machine.
    pub allow_http: bool,
    /// Whether replies are streamed.
    pub stream: bool,
    /// Whether the provider's cache is used, where it has to be asked for.
    pub prompt_caching: bool,
    /// What the requests of one session have in common, for the provider's cache.
    pub cache_key: Option<String>,
    /// How long to wait for a connection.
    pub connect_timeout: Duration,
    /// How long to wait for an answer to begin.
    pub timeout: Duration,
    /// How long an answer may be silent.
    pub idle_timeout: Duration,
    /// Where a script or a recording begins.
    pub position: ScriptPosition,
    /// What a recording does where a request is not the one that was recorded.
    pub on_mismatch: OnMismatch,
    /// Writes down what is asked and answered.
    pub recorder: Option<Recorder>,
}

/// Why a model cannot be reached as it is set up.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConnectError {
    /// There is no key.
    #[error("there is no key for {provider}: the variable {} is not set", variables.join(" or "))]
    MissingKey {
        /// The provider.
        provider: &'static str,
        /// Where a key was looked for.
        variables: Vec<String>,
    },
    /// The key cannot be one.
    #[error("the key in {variable} {cause}")]
    InvalidKey {
        /// Where it is.
        variable: String,
        /// What is wrong with it.
        cause: SecretError,
    },
    /// The address cannot be used.
    #[error(transparent)]
    Address(#[from] EndpointError),
    /// The means of the connection cannot be used: the proxy, the certificates.
    #[error(transparent)]
    Network(#[from] NetError),
    /// The script cannot be played.
    #[error(transparent)]
    Script(#[from] ScriptError),
    /// The recording cannot be played.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// The recording has a model in it that this release does not know.
    #[error(transparent)]
    RecordedModel(#[from] ModelSpecError),
}

/// Reads a variable of the environment.
pub type EnvLookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Without streaming the answer begins when the whole reply is written, which takes so many times as long.
const UNSTREAMED_TIMEOUT_FACTOR: u32 = 10;

impl Default for ModelConnectionSettings {
    fn default() -> Self {
        Self {
            api_base: None,
            api_key_env: None,
            allow_http: false,
            stream: true,
            prompt_caching: true,
            cache_key: None,
            connect_timeout: Duration::from_secs(10),
            timeout: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(120),
            position: ScriptPosition::default(),
            on_mismatch: OnMismatch::default(),
            recorder: None,
        }
    }
}

/// Returns the model, ready to be asked. Nothing is sent before that.
///
/// The environment is asked for the keys, `…_BASE_URL`, `OLLAMA_HOST`, the proxies (`HTTPS_PROXY`, `HTTP_PROXY`,
/// `ALL_PROXY`, `NO_PROXY`) and `SSL_CERT_FILE`. An address on this machine is reached without a proxy.
///
/// # Errors
///
/// Fails when something is missing or wrong in the set-up.
pub fn connect(
    model: &ModelSpec,
    settings: &ModelConnectionSettings,
    table: &ModelTable,
    env: EnvLookup<'_>,
) -> Result<Box<dyn Model>, ConnectError> {
    match model {
        ModelSpec::Scripted(path) => {
            let script = Script::load(path)?;
            Ok(Box::new(ScriptedModel::new(script, settings.position.clone())))
        }
        ModelSpec::Replay(path) => connect_replay(Recording::load(path)?, settings, table),
        ModelSpec::Remote { provider, name } => {
            let endpoint = resolve_endpoint(*provider, settings, env)?;
            let client = build_client(&endpoint, settings, env)?;
            let key = find_key(*provider, settings, env, &endpoint)?;
            let sent = Some(match &key {
                Some(key) => KeySource::Variable(key.variable.clone()),
                None => KeySource::Missing(key_variables(*provider, settings)),
            });
            let reached = ModelConnection {
                transport: Arc::new(client),
                endpoint,
                url: None,
                key,
                key_source: sent,
            };
            build_model((*provider, name), settings, table, reached)
        }
    }
}

/// Returns a model that answers as those of a recording did; each keeps its own wire and address.
fn connect_replay(
    recording: Recording,
    settings: &ModelConnectionSettings,
    table: &ModelTable,
) -> Result<Box<dyn Model>, ConnectError> {
    let player = Player::new(recording, settings.position.clone(), settings.on_mismatch);
    let mut models = Vec::new();
    for (model, url, stream) in player.models() {
        let ModelSpec::Remote { provider, name } = ModelSpec::parse(model, table, false)? else {
            let (name, nearest) = (model.to_owned(), None);
            return Err(ModelSpecError::UnknownName { name, nearest }.into());
        };
        let settings = ModelConnectionSettings { stream, ..settings.clone() };
        let endpoint = Endpoint::parse(url, true)?;
        let carrier: Arc<dyn HttpTransport> = Arc::new(player.clone());
        let (url, key, sent) = (Some(url.to_owned()), None, None);
        let reached = ModelConnection { transport: carrier, endpoint, url, key, key_source: sent };
        models.push((model.to_owned(), build_model((provider, &name), &settings, table, reached)?));
    }
    Ok(Box::new(ReplayModel::new(player, models)))
}

/// How a model is reached.
struct ModelConnection {
    transport: Arc<dyn HttpTransport>,
    endpoint: Endpoint,
    /// The whole address, where it does not follow from the endpoint.
    url: Option<String>,
    key: Option<ApiKey>,
    /// What is said about the key when it is refused.
    key_source: Option<KeySource>,
}

/// Returns a model that is reached by a carrier.
fn build_model(
    model: (Provider, &str),
    settings: &ModelConnectionSettings,
    table: &ModelTable,
    reached: ModelConnection,
) -> Result<Box<dyn Model>, ConnectError> {
    let (provider, name) = model;
    let facts = provider.info();
    let ModelConnection { transport: carrier, endpoint, url, key, key_source: sent } = reached;
    let (wire, path) = build_wire(model, &facts, settings, table, &endpoint);
    let mut headers = HeaderMap::new();
    let accept = if settings.stream { "text/event-stream" } else { "application/json" };
    headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if facts.api_format == ApiFormat::Anthropic {
        headers.insert("anthropic-version", HeaderValue::from_static(anthropic::API_VERSION));
        if anthropic::thought_binding::binds_thoughts(name) {
            let (header, value) = anthropic::thought_binding::BETA_HEADER;
            headers.insert(header, HeaderValue::from_static(value));
        }
    }
    if let Some(ApiKey { secret, variable }) = &key {
        let (name, value) = key_header(facts.api_format, variable, secret);
        let cannot = |_| ConnectError::InvalidKey {
            variable: variable.clone(),
            cause: SecretError::Malformed,
        };
        let mut value = HeaderValue::from_str(&value).map_err(cannot)?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    let masks = SecretMasker::new(key.map(|key| key.secret));
    let carrier = match &settings.recorder {
        Some(recorder) => recorder.wrap_transport(carrier, wire.id(), masks.clone()),
        None => carrier,
    };
    let target = RequestTarget {
        url: url.unwrap_or_else(|| endpoint.join(&path)),
        headers,
        masker: masks,
        key_source: sent,
        may_truncate: provider == Provider::Ollama,
    };
    Ok(Box::new(WireModel::new(wire, carrier, target)))
}

/// Returns the wire format of a model, and the path of its requests.
fn build_wire(
    (provider, name): (Provider, &str),
    facts: &ProviderInfo,
    settings: &ModelConnectionSettings,
    table: &ModelTable,
    endpoint: &Endpoint,
) -> (Arc<dyn Wire>, String) {
    let mark: Arc<str> = format!("{}/{name}", facts.name).into();
    let (model, streams) = (name.to_owned(), settings.stream);
    let cache_key = settings.cache_key.clone().filter(|_| settings.prompt_caching);
    match facts.api_format {
        ApiFormat::Chat => {
            let quirks = Quirks::for_server(facts.name, endpoint.host());
            let wire = Chat { id: mark, model, quirks, is_streaming: streams, cache_key };
            (Arc::new(wire), "/chat/completions".to_owned())
        }
        ApiFormat::Responses => {
            let is_openai = endpoint.host().ends_with("api.openai.com");
            let host = if is_openai { ResponsesHost::OpenAi } else { ResponsesHost::Other };
            let wire = Responses { id: mark, model, host, is_streaming: streams, cache_key };
            (Arc::new(wire), "/responses".to_owned())
        }
        ApiFormat::Anthropic => {
            let spec = ModelSpec::Remote { provider, name: name.to_owned() };
            let limit = table.lookup(&spec).and_then(|facts| facts.max_output);
            let max_output =
                limit.map_or(FALLBACK_MAX_OUTPUT, |limit| limit.min(DEFAULT_MAX_OUTPUT));
            let caches = settings.prompt_caching;
            let wire = Anthropic {
                id: mark,
                model,
                is_streaming: streams,
                uses_cache: caches,
                default_max_output: max_output,
            };
            (Arc::new(wire), "/messages".to_owned())
        }
        ApiFormat::Gemini => {
            let wire = Gemini { id: mark, model, is_streaming: streams };
            let path = wire.request_path();
            (Arc::new(wire), path)
        }
    }
}

/// The output limit where one is mandatory and nobody asks for another. A higher one takes away from the room that the
/// request has, and a longer reply goes on in the next one.
const DEFAULT_MAX_OUTPUT: Tokens = Tokens(32_000);

/// The output limit of a model that the table does not know.
const FALLBACK_MAX_OUTPUT: Tokens = Tokens(8_192);

/// Returns where a provider is reached.
fn resolve_endpoint(
    provider: Provider,
    settings: &ModelConnectionSettings,
    env: EnvLookup<'_>,
) -> Result<Endpoint, ConnectError> {
    let facts = provider.info();
    let own = settings.api_base.clone().or_else(|| facts.base_url_env.and_then(env));
    let Some(own) = own.filter(|own| !own.trim().is_empty()) else {
        return Ok(Endpoint::parse(facts.base_url, settings.allow_http)?);
    };
    // `OLLAMA_HOST` may be a host alone.
    let own = match provider {
        Provider::Ollama
            if !own.rsplit(']').next().unwrap_or(&own).contains("://") && !has_port(&own) =>
        {
            format!("{}:11434", own.trim())
        }
        _ => own,
    };
    let endpoint = Endpoint::parse(&own, settings.allow_http)?;
    let path = match (facts.api_format, endpoint.path()) {
        // The provider's own libraries are given the address without the version.
        (ApiFormat::Anthropic, path) if !path.ends_with("/v1") => format!("{path}/v1"),
        (_, "") => facts.default_path.to_owned(),
        (_, path) => path.to_owned(),
    };
    Ok(endpoint.with_path(&path))
}

fn has_port(host: &str) -> bool {
    host.trim().rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok())
}

fn build_client(
    endpoint: &Endpoint,
    settings: &ModelConnectionSettings,
    env: EnvLookup<'_>,
) -> Result<HttpClient, ConnectError> {
    let (first_byte, idle) = match settings.stream {
        true => (settings.timeout, settings.idle_timeout),
        false => {
            (settings.timeout.saturating_mul(UNSTREAMED_TIMEOUT_FACTOR), settings.idle_timeout)
        }
    };
    let limits = HttpTimeouts { connect: settings.connect_timeout, first_byte, idle };
    Ok(HttpClient::new(&HttpOptions::from_env(endpoint, limits, env))?)
}

/// A key, with where it was found.
struct ApiKey {
    secret: Secret,
    variable: String,
}

fn find_key(
    provider: Provider,
    settings: &ModelConnectionSettings,
    env: EnvLookup<'_>,
    endpoint: &Endpoint,
) -> Result<Option<ApiKey>, ConnectError> {
    let facts = provider.info();
    let is_open =
        settings.api_key_env.is_none() && (facts.is_key_optional || endpoint.is_loopback());
    let variables = key_variables(provider, settings);
    let found = variables
        .iter()
        .find_map(|variable| Some((variable, env(variable).filter(|key| !key.trim().is_empty())?)));
    match found {
        Some((variable, key)) => match Secret::new(&key) {
            Ok(secret) => Ok(Some(ApiKey { secret, variable: variable.clone() })),
            Err(cause) => Err(ConnectError::InvalidKey { variable: variable.clone(), cause }),
        },
        None if is_open => Ok(None),
        None => Err(ConnectError::MissingKey { provider: facts.name, variables }),
    }
}

/// Returns the variables that a key is looked for in.
fn key_variables(provider: Provider, settings: &ModelConnectionSettings) -> Vec<String> {
    match &settings.api_key_env {
        Some(named) => vec![named.clone()],
        None => provider.info().key_env.iter().map(|name| (*name).to_owned()).collect(),
    }
}

/// Returns the header that carries a key.
fn key_header(speaks: ApiFormat, variable: &str, key: &Secret) -> (HeaderName, String) {
    match speaks {
        ApiFormat::Anthropic if variable != "ANTHROPIC_AUTH_TOKEN" => {
            (HeaderName::from_static("x-api-key"), key.expose().to_owned())
        }
        ApiFormat::Gemini => (HeaderName::from_static("x-goog-api-key"), key.expose().to_owned()),
        ApiFormat::Anthropic | ApiFormat::Chat | ApiFormat::Responses => {
            (header::AUTHORIZATION, format!("Bearer {}", key.expose()))
        }
    }
}
