//! Connects to a model, given its wire, its address and its key.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde_json::{Map, Value};
use thiserror::Error;

use super::bedrock::{self, BedrockSigner, CredentialsError, CredentialsSource};
use super::cassette::{OnMismatch, Player, Recorder, Recording, ReplayModel};
use super::exchange::{HttpTransport, KeySource, RequestSigner, RequestTarget, WireModel};
use super::key_command::{KeyCommand, KeyCommandSetting};
use super::model_list;
use super::model_spec::{ModelSpec, ModelSpecError};
use super::model_table::{EffortError, ModelInfo, ModelTable};
use super::playback_error::PlaybackError;
use super::provider::Provider;
use super::request_settings::RequestSettings;
use super::scripted::{Script, ScriptPosition, ScriptedModel};
use super::vertex::{self, FILE_VARIABLE, ServiceAccount};
use super::wire::{Cloud, StreamFraming, Wire, WireSetup};
use crate::net::{
    Endpoint, EndpointError, HeaderMap, HeaderName, HeaderValue, HttpClient, HttpOptions,
    HttpTimeouts, NetError, Secret, SecretError, Secrets, header,
};
use crate::port::{CancellationToken, Model, WallClock};
use crate::types::{Effort, Fault, OutputField};

/// The settings of the connection to a model.
#[derive(Clone, Debug)]
pub struct ModelConnectionSettings {
    /// A base URL that replaces the provider's, with the same API format.
    pub api_base: Option<String>,
    /// The variable with the key for that base URL.
    pub api_key_env: Option<String>,
    /// The command that prints the key, for a shell. It runs once per process, and again when its key is rejected;
    /// `api_key_env` takes precedence.
    pub api_key_command: Option<KeyCommandSetting>,
    /// The setting that can name a variable with the key, if the base URL is not the one that the provider's keys are
    /// for. Without such a variable, no key is sent there.
    pub own_key_setting: Option<String>,
    /// Whether keys may be sent unencrypted to another machine.
    pub allow_http: bool,
    /// Whether to stream replies.
    pub stream: bool,
    /// Whether to use the provider's prompt cache where it is optional.
    pub prompt_caching: bool,
    /// A text that identifies the requests of one session in the provider's prompt cache.
    pub cache_key: Option<String>,
    /// The time limit for connecting.
    pub connect_timeout: Duration,
    /// The time limit for receiving the head of a response.
    pub timeout: Duration,
    /// The time limit for pauses within a response.
    pub idle_timeout: Duration,
    /// The position of the first call of a script or recording to play.
    pub position: ScriptPosition,
    /// The action if a request differs from the recorded one.
    pub on_mismatch: OnMismatch,
    /// The recorder of requests and responses.
    pub recorder: Option<Recorder>,
    /// The secrets that are masked in recordings and errors, in addition to the key.
    pub secrets: Secrets,
    /// The clock for providers whose requests are signed.
    pub clock: Option<WallClock>,
    /// Additional fields for the body of each request.
    pub options: Arc<Map<String, Value>>,
    /// The reasoning effort.
    pub effort: Option<Effort>,
    /// The field for the output limit with Chat Completions; `None` for the server's default.
    pub output_field: Option<OutputField>,
    /// Additional headers for each request. Headers of the API format take precedence, and lists of values are joined.
    pub headers: Vec<(String, String)>,
}

/// An error in the configuration of a model.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConnectError {
    /// No key was found.
    #[error("there is no key for {provider}: the variable {} is not set", variables.join(" or "))]
    MissingKey {
        /// The name of the provider.
        provider: &'static str,
        /// The variables that may hold the key.
        variables: Vec<String>,
    },
    /// The provider needs a base URL from the user.
    #[error("there is no address for {provider}: set {variable}, or give --api-base")]
    MissingAddress {
        /// The name of the provider.
        provider: &'static str,
        /// The variable that may hold the base URL.
        variable: &'static str,
    },
    /// The key is invalid.
    #[error("the key in {variable} {cause}")]
    InvalidKey {
        /// The variable with the key.
        variable: String,
        /// The reason.
        cause: SecretError,
    },
    /// The user's command did not print a key.
    #[error("{key} {cause}")]
    KeyCommand {
        /// The configuration key that names the command.
        key: String,
        /// A description of the failure.
        cause: String,
    },
    /// There are no keys to sign requests with.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// The service account file is unusable.
    #[error("the file {path} in {FILE_VARIABLE} {cause}")]
    ServiceAccount {
        /// The path of the file.
        path: String,
        /// The problem with the file.
        cause: String,
    },
    /// A part of the address is missing.
    #[error("the address of {provider} is incomplete: the variable {} is not set", variables.join(" or "))]
    MissingAddressPart {
        /// The name of the provider.
        provider: &'static str,
        /// The variables that may hold the missing part.
        variables: [&'static str; 2],
    },
    /// A part of the address has characters other than letters, digits, `-`, `.` and `:`.
    #[error("the value of {0} can't be a part of an address")]
    InvalidAddressPart(&'static str),
    /// Requests can't be signed without the time of day.
    #[error("signing requests to {0} needs a clock, and none is set")]
    MissingClock(&'static str),
    /// The model does not support the requested effort.
    #[error("{model}: {cause}")]
    NoEffort {
        /// The name of the model.
        model: String,
        /// The reason.
        cause: EffortError,
    },
    /// A header from the user is invalid.
    #[error("the header {0} of llm.headers has a name or a value that can't be sent")]
    InvalidHeader(String),
    /// The provider lists no models in its API format.
    #[error("{0} has no list of the models that a key gives access to")]
    NoModelList(&'static str),
    /// The base URL is invalid.
    #[error(transparent)]
    Address(#[from] EndpointError),
    /// The address can't be that of an Azure resource.
    #[error("the address of {provider}, {address}, {cause}")]
    AzureAddress {
        /// The name of the provider.
        provider: &'static str,
        /// The address.
        address: String,
        /// The problem with the address.
        cause: &'static str,
    },
    /// The proxy or the certificates can't be used.
    #[error(transparent)]
    Network(#[from] NetError),
    /// The script or the recording can't be played.
    #[error(transparent)]
    Playback(#[from] PlaybackError),
    /// The recording has a model that this release does not know.
    #[error(transparent)]
    RecordedModel(#[from] ModelSpecError),
}

/// Reads an environment variable.
pub type EnvLookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The factor by which the time limit for the head of a response is extended without streaming: then the head follows
/// the complete reply.
const UNSTREAMED_TIMEOUT_FACTOR: u32 = 10;

impl Default for ModelConnectionSettings {
    fn default() -> Self {
        Self {
            api_base: None,
            api_key_env: None,
            api_key_command: None,
            own_key_setting: None,
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
            secrets: Secrets::default(),
            clock: None,
            options: Arc::default(),
            effort: None,
            output_field: None,
            headers: Vec::new(),
        }
    }
}

/// Returns the model, without sending anything.
///
/// `env` provides the keys, the base URLs (`…_BASE_URL`, `OLLAMA_HOST`), the proxies (`HTTPS_PROXY`, `HTTP_PROXY`,
/// `ALL_PROXY`, `NO_PROXY`) and `SSL_CERT_FILE`. A proxy is not used for an address on this machine.
///
/// # Errors
///
/// Fails for an invalid or incomplete configuration.
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
        ModelSpec::Remote { provider, .. } => {
            let connection = open_connection(provider, settings, env)?;
            build_model(model, settings, table, connection)
        }
    }
}

/// Requests the names of the models that are available with the key.
///
/// # Errors
///
/// Fails for an invalid or incomplete configuration, for a provider without such a list, and if the provider refuses.
pub fn list_models(
    provider: &'static Provider,
    settings: &ModelConnectionSettings,
    table: &ModelTable,
    env: EnvLookup<'_>,
) -> Result<Result<BTreeSet<String>, Fault>, ConnectError> {
    if provider.cloud.is_some() {
        return Err(ConnectError::NoModelList(provider.name()));
    }
    let connection = open_connection(provider, settings, env)?;
    let url = connection.endpoint.join(model_list::list_path(provider.format.name));
    let connection = ModelConnection { url: Some(url), ..connection };
    let spec = ModelSpec::Remote { provider, name: "models".to_owned() };
    let settings = ModelConnectionSettings { stream: false, effort: None, ..settings.clone() };
    let target = build_target(&spec, &settings, table, connection)?;
    Ok(model_list::request_list(&target, &CancellationToken::new()))
}

/// Returns the connection to a provider: the address of requests, and their key.
fn open_connection(
    provider: &Provider,
    settings: &ModelConnectionSettings,
    env: EnvLookup<'_>,
) -> Result<ModelConnection, ConnectError> {
    let base = settings.api_base.as_deref();
    let endpoint = resolve_endpoint(provider, base, settings.allow_http, env)?;
    let timeouts = HttpTimeouts {
        connect: settings.connect_timeout,
        first_byte: match settings.stream {
            true => settings.timeout,
            false => settings.timeout.saturating_mul(UNSTREAMED_TIMEOUT_FACTOR),
        },
        idle: settings.idle_timeout,
    };
    let client = HttpClient::new(&HttpOptions::from_env(&endpoint, timeouts, env))?;
    let key = find_key(provider, settings, env, &endpoint)?;
    let transport = Arc::new(client);
    Ok(ModelConnection { transport, endpoint, url: None, key: Some(key) })
}

/// Returns a model that replays the responses of a recording. Each recorded model keeps its wire and its address.
fn connect_replay(
    recording: Recording,
    settings: &ModelConnectionSettings,
    table: &ModelTable,
) -> Result<Box<dyn Model>, ConnectError> {
    let player = Player::new(recording, settings.position.clone(), settings.on_mismatch);
    let mut models = Vec::new();
    for (model, url, stream) in player.models() {
        let spec = ModelSpec::parse(model, table, false)?;
        let settings = ModelConnectionSettings { stream, ..settings.clone() };
        let connection = ModelConnection {
            transport: Arc::new(player.clone()),
            endpoint: Endpoint::parse(url, true)?,
            url: Some(url.to_owned()),
            key: None,
        };
        models.push((model.to_owned(), build_model(&spec, &settings, table, connection)?));
    }
    Ok(Box::new(ReplayModel { player, models }))
}

/// The connection to the server of a model.
struct ModelConnection {
    transport: Arc<dyn HttpTransport>,
    endpoint: Endpoint,
    /// The URL of requests, unless it follows from the endpoint.
    url: Option<String>,
    /// The key; `None` for a recording.
    key: Option<RequestKey>,
}

/// The key of requests.
enum RequestKey {
    /// A key from the variable of this name.
    Variable(Secret, String),
    /// A key printed by a command.
    Command(KeyCommand),
    /// No key is sent.
    Missing(KeySource),
    /// Requests are signed, with keys from the described source.
    Signed(Arc<dyn RequestSigner>, String),
}

/// Returns a model for a connection.
fn build_model(
    model: &ModelSpec,
    settings: &ModelConnectionSettings,
    table: &ModelTable,
    connection: ModelConnection,
) -> Result<Box<dyn Model>, ConnectError> {
    Ok(Box::new(WireModel::new(build_target(model, settings, table, connection)?)))
}

fn build_target(
    model: &ModelSpec,
    settings: &ModelConnectionSettings,
    table: &ModelTable,
    connection: ModelConnection,
) -> Result<RequestTarget, ConnectError> {
    let ModelSpec::Remote { provider, name } = model else {
        let (name, nearest) = (model.to_string(), None);
        return Err(ModelSpecError::UnknownName { name, nearest }.into());
    };
    let ModelConnection { transport, endpoint, url, key } = connection;
    let id: Arc<str> = model.to_string().into();
    let setup = WireSetup {
        id: Arc::clone(&id),
        provider: provider.name(),
        cloud: provider.cloud,
        host: endpoint.host().to_owned(),
        model: name.clone(),
        is_streaming: settings.stream,
        uses_cache: settings.prompt_caching,
        cache_key: settings.cache_key.clone().filter(|_| settings.prompt_caching),
        max_output: table.lookup(model).and_then(|info| info.max_output),
        output_field: settings.output_field,
        takes_images: table.lookup(model).is_some_and(ModelInfo::takes_images),
        options: Arc::clone(&settings.options),
        effort: settings.effort,
        effort_word: effort_word(model, settings, table)?,
    };
    let url = url.unwrap_or_else(|| endpoint.join(&(provider.format.path)(&setup)));
    let request_settings = RequestSettings::new(&setup).to_json();
    let wire = (provider.format.wire)(setup);
    let mut headers = request_headers(settings, &*wire)?;
    let key_header = |variable: &str| {
        let own = provider.key_header.map(|name| (HeaderName::from_static(name), ""));
        own.unwrap_or_else(|| wire.key_header(variable))
    };
    let mut masker = Secrets::default();
    let mut signer: Option<Arc<dyn RequestSigner>> = None;
    let key_source = match key {
        None => None,
        Some(RequestKey::Missing(source)) => Some(source),
        Some(RequestKey::Signed(with, source)) => {
            signer = Some(with);
            Some(KeySource::Signed(source))
        }
        Some(RequestKey::Command(command)) => {
            // Azure expects a token of Entra ID, which is a JWT, in another header than a key.
            let (header, scheme) = match command.is_token() && provider.key_header.is_some() {
                true => (header::AUTHORIZATION, "Bearer "),
                false => key_header(""),
            };
            let config_key = command.config_key().to_owned();
            signer = Some(Arc::new(command.into_signer(header, scheme)));
            Some(KeySource::Command(config_key))
        }
        Some(RequestKey::Variable(secret, variable)) => {
            let (name, scheme) = key_header(&variable);
            let value = HeaderValue::from_str(&format!("{scheme}{}", secret.expose()));
            let mut value = value.map_err(|_| ConnectError::InvalidKey {
                variable: variable.clone(),
                cause: SecretError::Malformed,
            })?;
            value.set_sensitive(true);
            headers.insert(name, value);
            masker = Secrets::from_keys([secret]);
            Some(KeySource::Variable(variable))
        }
    };
    if let Some(signer) = &signer {
        masker = signer.secrets();
    }
    let masker = masker.join(&settings.secrets);
    let transport = match &settings.recorder {
        Some(recorder) => recorder.wrap_transport(transport, &id, masker.clone()),
        None => transport,
    };
    Ok(RequestTarget {
        transport,
        model: id,
        url,
        headers,
        masker,
        key_source,
        signer,
        has_replaced_keys: AtomicBool::new(false),
        may_truncate: provider.may_truncate,
        settings: request_settings,
        wire,
    })
}

/// Returns the headers of all requests, but for that of the key: the user's, and the wire's.
fn request_headers(
    settings: &ModelConnectionSettings,
    wire: &dyn Wire,
) -> Result<HeaderMap, ConnectError> {
    let mut headers = HeaderMap::new();
    let accept = accepted_type(settings.stream, wire.framing());
    headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    for (name, value) in &settings.headers {
        let invalid = || ConnectError::InvalidHeader(name.clone());
        let mut value = HeaderValue::from_str(value).map_err(|_| invalid())?;
        // Any of these headers may contain a key, which must not be recorded.
        value.set_sensitive(true);
        headers.insert(HeaderName::from_bytes(name.as_bytes()).map_err(|_| invalid())?, value);
    }
    for (name, value) in wire.headers() {
        // `anthropic-beta` is a list.
        let own = headers.get(name).and_then(|own| own.to_str().ok());
        let joined = own.filter(|_| name.ends_with("-beta")).map(|own| format!("{value},{own}"));
        let joined = joined.and_then(|joined| HeaderValue::from_str(&joined).ok());
        let value = joined.unwrap_or_else(|| HeaderValue::from_static(value));
        headers.insert(HeaderName::from_static(name), value);
    }
    Ok(headers)
}

/// Returns the media type of a reply.
fn accepted_type(is_streaming: bool, framing: StreamFraming) -> &'static str {
    match (is_streaming, framing) {
        (false, _) => "application/json",
        (true, StreamFraming::Sse) => "text/event-stream",
        (true, StreamFraming::Amazon) => "application/vnd.amazon.eventstream",
    }
}

/// Returns the provider's word for the effort; `None` without an effort, or if the model table does not have the word.
fn effort_word(
    model: &ModelSpec,
    settings: &ModelConnectionSettings,
    table: &ModelTable,
) -> Result<Option<String>, ConnectError> {
    let Some((effort, info)) = settings.effort.zip(table.lookup(model)) else { return Ok(None) };
    let unsupported = |cause| ConnectError::NoEffort { model: model.to_string(), cause };
    Ok(info.effort_word(effort).map_err(unsupported)?.map(str::to_owned))
}

/// Returns whether a base URL has the same scheme, host and port as another one, by default the provider's. An invalid
/// URL does not.
pub fn has_same_origin(
    provider: &Provider,
    api_base: &str,
    other: Option<&str>,
    env: EnvLookup<'_>,
) -> bool {
    let endpoint = |base| resolve_endpoint(provider, base, true, env).ok();
    let endpoints = endpoint(Some(api_base)).zip(endpoint(other));
    endpoints.is_some_and(|(own, other)| own.has_same_origin(&other))
}

/// Returns the base URL of a provider; the user's, with the provider's defaults, if it is given.
fn resolve_endpoint(
    provider: &Provider,
    api_base: Option<&str>,
    allow_http: bool,
    env: EnvLookup<'_>,
) -> Result<Endpoint, ConnectError> {
    let url = api_base.map(str::to_owned);
    let url = url.or_else(|| provider.base_url_variable.and_then(env));
    let Some(url) = url.filter(|url| !url.trim().is_empty()) else {
        if let ("", Some(variable)) = (provider.base_url, provider.base_url_variable) {
            return Err(ConnectError::MissingAddress { provider: provider.name(), variable });
        }
        let url = fill_variables(provider, provider.base_url, env)?;
        return Ok(Endpoint::parse(&vertex::with_location_host(&url), allow_http)?);
    };
    let port = url.trim().rsplit_once(':').map(|(_, port)| port.parse::<u16>());
    let has_port = matches!(port, Some(Ok(_)));
    let has_scheme = url.rsplit(']').next().unwrap_or(&url).contains("://");
    let url = match provider.default_port {
        Some(port) if !has_scheme && !has_port => format!("{}:{port}", url.trim()),
        Some(_) | None => url,
    };
    let endpoint = Endpoint::parse(&url, allow_http)?;
    if let Some(cause) = provider.is_azure().then(|| azure_address_problem(&endpoint)).flatten() {
        let (provider, address) = (provider.name(), endpoint.to_string());
        return Err(ConnectError::AzureAddress { provider, address, cause });
    }
    let path = (provider.format.base_path)(endpoint.path(), provider.default_path);
    Ok(endpoint.with_path(&fill_variables(provider, &path, env)?))
}

/// Returns the reason why an address can't be that of an Azure resource, of a gateway to one, or of a server on this
/// machine.
fn azure_address_problem(endpoint: &Endpoint) -> Option<&'static str> {
    let host = endpoint.host().to_ascii_lowercase();
    let path = endpoint.path().to_ascii_lowercase();
    if path.contains("/deployments") {
        return Some("has the path of a deployment");
    }
    if ["/chat/completions", "/responses"].iter().any(|end| path.ends_with(end)) {
        return Some("has the path of a request");
    }
    if endpoint.is_loopback() {
        return None;
    }
    if ["portal.azure.com", "ai.azure.com", "oai.azure.com"].contains(&&*host) {
        return Some("is a web site for people");
    }
    if ["openai.azure.com", "cognitiveservices.azure.com", "services.ai.azure.com"]
        .contains(&&*host)
    {
        return Some("has no name of a resource");
    }
    // The mere name of a resource is a common mistake. IPv6 addresses have no dot either.
    (!host.contains('.') && !host.starts_with('[')).then_some("has no domain")
}

/// Replaces the names in braces in a base URL or a path by their values.
fn fill_variables(
    provider: &Provider,
    text: &str,
    env: EnvLookup<'_>,
) -> Result<String, ConnectError> {
    let set = |name: &&str| env(name).filter(|value| !value.trim().is_empty());
    let mut filled = text.to_owned();
    for variables in
        [bedrock::REGION_VARIABLES, vertex::LOCATION_VARIABLES, vertex::PROJECT_VARIABLES]
    {
        let name = format!("{{{}}}", variables[0]);
        if !filled.contains(&name) {
            continue;
        }
        let value = match provider.cloud {
            Some(Cloud::Bedrock) => bedrock::find_region(env),
            Some(Cloud::Vertex) | None => variables.iter().find_map(set),
        };
        let provider = provider.name();
        let value = value.ok_or(ConnectError::MissingAddressPart { provider, variables })?;
        let is_valid = |c: char| c.is_ascii_alphanumeric() || "-.:".contains(c);
        if !value.trim().chars().all(is_valid) {
            return Err(ConnectError::InvalidAddressPart(variables[0]));
        }
        filled = filled.replace(&name, value.trim());
    }
    Ok(filled)
}

/// Returns the signer, and the source of its keys; `None` if a key in a header is enough.
fn find_signer(
    provider: &Provider,
    settings: &ModelConnectionSettings,
    env: EnvLookup<'_>,
    endpoint: &Endpoint,
) -> Result<Option<RequestKey>, ConnectError> {
    let is_own = settings.own_key_setting.is_some();
    let has_api_key = settings.api_key_env.is_some()
        || !is_own && env(bedrock::KEY_VARIABLES[0]).is_some_and(|key| !key.trim().is_empty());
    if provider.cloud != Some(Cloud::Bedrock) || has_api_key {
        return Ok(None);
    }
    let source = match CredentialsSource::from_env(env) {
        // A server on this machine, or at the user's own address, may need no keys.
        Err(CredentialsError::Missing(_)) if is_own || endpoint.is_loopback() => return Ok(None),
        source => source?,
    };
    let region = fill_variables(provider, "{AWS_REGION}", env)?;
    let clock = settings.clock.clone().ok_or(ConnectError::MissingClock(provider.name()))?;
    let description = source.describe();
    let signer = BedrockSigner::new(source, region, clock);
    Ok(Some(RequestKey::Signed(Arc::new(signer), description)))
}

/// Returns the key: from the user's variable, from the user's command, or from the provider's usual source.
fn find_key(
    provider: &Provider,
    settings: &ModelConnectionSettings,
    env: EnvLookup<'_>,
    endpoint: &Endpoint,
) -> Result<RequestKey, ConnectError> {
    if let (None, Some(command)) = (&settings.api_key_env, &settings.api_key_command) {
        let loaded = KeyCommand::load(command, &CancellationToken::new());
        let failed = |cause| ConnectError::KeyCommand { key: command.key.clone(), cause };
        return loaded.map(RequestKey::Command).map_err(failed);
    }
    if let Some(signer) = find_signer(provider, settings, env, endpoint)? {
        return Ok(signer);
    }
    if let (None, Some(setting)) = (&settings.api_key_env, &settings.own_key_setting) {
        return Ok(RequestKey::Missing(KeySource::NoOwnKey(setting.clone())));
    }
    let is_vertex = settings.api_key_env.is_none() && provider.cloud == Some(Cloud::Vertex);
    let is_optional =
        settings.api_key_env.is_none() && (provider.is_key_optional || endpoint.is_loopback());
    let mut variables: Vec<String> = match &settings.api_key_env {
        Some(variable) => vec![variable.clone()],
        None => provider.key_variables.iter().map(|name| (*name).to_owned()).collect(),
    };
    let key = |variable: &String| env(variable).filter(|key| !key.trim().is_empty());
    let found = variables.iter().find_map(|variable| Some((variable.clone(), key(variable)?)));
    match found {
        Some((variable, key)) => match Secret::new(&key) {
            Ok(secret) => Ok(RequestKey::Variable(secret, variable)),
            Err(cause) => Err(ConnectError::InvalidKey { variable, cause }),
        },
        None if is_vertex && key(&FILE_VARIABLE.to_owned()).is_some() => {
            load_service_account(provider, settings, env)
        }
        None if is_optional => Ok(RequestKey::Missing(KeySource::Missing(variables))),
        None => {
            variables.extend(is_vertex.then(|| FILE_VARIABLE.to_owned()));
            Err(ConnectError::MissingKey { provider: provider.name(), variables })
        }
    }
}

/// Returns the service account named by the environment.
fn load_service_account(
    provider: &Provider,
    settings: &ModelConnectionSettings,
    env: EnvLookup<'_>,
) -> Result<RequestKey, ConnectError> {
    let path = env(FILE_VARIABLE).unwrap_or_default();
    let clock = settings.clock.clone().ok_or(ConnectError::MissingClock(provider.name()))?;
    let account = ServiceAccount::load(&path, clock, env)
        .map_err(|cause| ConnectError::ServiceAccount { path, cause })?;
    let description = account.describe();
    Ok(RequestKey::Signed(Arc::new(account), description))
}
