//! From a model's name to the model: which wire, which address, which key.

use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use super::anthropic::{self, Anthropic};
use super::cassette::{BadRecording, OnDifference, Player, Recorder, Recording, ReplayModel};
use super::chat::{Chat, Quirks};
use super::exchange::{Carrier, SentKey, Target, WireModel};
use super::fault::Masks;
use super::gemini::Gemini;
use super::models::Table;
use super::provider::{Facts, Provider, Speaks};
use super::responses::{Host, Responses};
use super::scripted::{BadScript, Script, ScriptPosition, ScriptedModel};
use super::spec::{BadModel, ModelSpec};
use super::wire::Wire;
use crate::model::Tokens;
use crate::net::{
    BadEndpoint, BadSecret, Client, Endpoint, HeaderMap, HeaderName, HeaderValue, Limits, NetError,
    Options, Secret, header,
};
use crate::port::Model;

/// How a model is reached.
#[derive(Clone, Debug)]
pub struct WireSettings {
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
    pub on_difference: OnDifference,
    /// Writes down what is asked and answered.
    pub record: Option<Recorder>,
}

/// Why a model cannot be reached as it is set up.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConnectError {
    /// There is no key.
    #[error("there is no key for {provider}: the variable {} is not set", variables.join(" or "))]
    NoKey {
        /// The provider.
        provider: &'static str,
        /// Where a key was looked for.
        variables: Vec<String>,
    },
    /// The key cannot be one.
    #[error("the key in {variable} {cause}")]
    BadKey {
        /// Where it is.
        variable: String,
        /// What is wrong with it.
        cause: BadSecret,
    },
    /// The address cannot be used.
    #[error(transparent)]
    Address(#[from] BadEndpoint),
    /// The means of the connection cannot be used: the proxy, the certificates.
    #[error(transparent)]
    Means(#[from] NetError),
    /// The script cannot be played.
    #[error(transparent)]
    Script(#[from] BadScript),
    /// The recording cannot be played.
    #[error(transparent)]
    Recording(#[from] BadRecording),
    /// The recording has a model in it that this release does not know.
    #[error(transparent)]
    Recorded(#[from] BadModel),
}

/// Reads a variable of the environment.
pub type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Without streaming the answer begins when the whole reply is written, which takes so many times as long.
const WHOLE_REPLY: u32 = 10;

impl Default for WireSettings {
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
            on_difference: OnDifference::default(),
            record: None,
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
    settings: &WireSettings,
    table: &Table,
    env: Env<'_>,
) -> Result<Box<dyn Model>, ConnectError> {
    match model {
        ModelSpec::Scripted(path) => {
            let script = Script::load(path)?;
            Ok(Box::new(ScriptedModel::new(script, settings.position.clone())))
        }
        ModelSpec::Replay(path) => replay(Recording::load(path)?, settings, table),
        ModelSpec::Remote { provider, name } => {
            let endpoint = endpoint(*provider, settings, env)?;
            let client = client(&endpoint, settings, env)?;
            let key = key(*provider, settings, env, &endpoint)?;
            let sent = Some(match &key {
                Some(key) => SentKey::Of(key.variable.clone()),
                None => SentKey::Missing(key_variables(*provider, settings)),
            });
            let reached = Reached { carrier: Arc::new(client), endpoint, url: None, key, sent };
            remote((*provider, name), settings, table, reached)
        }
    }
}

/// Returns a model that answers as those of a recording did; each keeps its own wire and address.
fn replay(
    recording: Recording,
    settings: &WireSettings,
    table: &Table,
) -> Result<Box<dyn Model>, ConnectError> {
    let player = Player::new(recording, settings.position.clone(), settings.on_difference);
    let mut models = Vec::new();
    for (model, url, stream) in player.models() {
        let ModelSpec::Remote { provider, name } = ModelSpec::parse(model, table, false)? else {
            let (name, nearest) = (model.to_owned(), None);
            return Err(BadModel::UnknownName { name, nearest }.into());
        };
        let settings = WireSettings { stream, ..settings.clone() };
        let endpoint = Endpoint::parse(url, true)?;
        let carrier: Arc<dyn Carrier> = Arc::new(player.clone());
        let (url, key, sent) = (Some(url.to_owned()), None, None);
        let reached = Reached { carrier, endpoint, url, key, sent };
        models.push((model.to_owned(), remote((provider, &name), &settings, table, reached)?));
    }
    Ok(Box::new(ReplayModel::new(player, models)))
}

/// How a model is reached.
struct Reached {
    carrier: Arc<dyn Carrier>,
    endpoint: Endpoint,
    /// The whole address, where it does not follow from the endpoint.
    url: Option<String>,
    key: Option<Key>,
    /// What is said about the key when it is refused.
    sent: Option<SentKey>,
}

/// Returns a model that is reached by a carrier.
fn remote(
    model: (Provider, &str),
    settings: &WireSettings,
    table: &Table,
    reached: Reached,
) -> Result<Box<dyn Model>, ConnectError> {
    let (provider, name) = model;
    let facts = provider.facts();
    let Reached { carrier, endpoint, url, key, sent } = reached;
    let (wire, path) = wire(model, &facts, settings, table, &endpoint);
    let mut headers = HeaderMap::new();
    let accept = if settings.stream { "text/event-stream" } else { "application/json" };
    headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if facts.speaks == Speaks::Anthropic {
        headers.insert("anthropic-version", HeaderValue::from_static(anthropic::VERSION));
        if anthropic::binding::binds(name) {
            let (header, value) = anthropic::binding::HEADER;
            headers.insert(header, HeaderValue::from_static(value));
        }
    }
    if let Some(Key { secret, variable }) = &key {
        let (name, value) = key_header(facts.speaks, variable, secret);
        let cannot =
            |_| ConnectError::BadKey { variable: variable.clone(), cause: BadSecret::Malformed };
        let mut value = HeaderValue::from_str(&value).map_err(cannot)?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    let masks = Masks::new(key.map(|key| key.secret));
    let carrier = match &settings.record {
        Some(recorder) => recorder.wrap(carrier, wire.name(), masks.clone()),
        None => carrier,
    };
    let target = Target {
        url: url.unwrap_or_else(|| endpoint.join(&path)),
        headers,
        masks,
        key: sent,
        may_truncate: provider == Provider::Ollama,
    };
    Ok(Box::new(WireModel::new(wire, carrier, target)))
}

/// Returns the wire format of a model, and the path of its requests.
fn wire(
    (provider, name): (Provider, &str),
    facts: &Facts,
    settings: &WireSettings,
    table: &Table,
    endpoint: &Endpoint,
) -> (Arc<dyn Wire>, String) {
    let mark: Arc<str> = format!("{}/{name}", facts.name).into();
    let (model, streams) = (name.to_owned(), settings.stream);
    let cache_key = settings.cache_key.clone().filter(|_| settings.prompt_caching);
    match facts.speaks {
        Speaks::Chat => {
            let quirks = Quirks::of(facts.name, endpoint.host());
            let wire = Chat { name: mark, model, quirks, streams, cache_key };
            (Arc::new(wire), "/chat/completions".to_owned())
        }
        Speaks::Responses => {
            let is_openai = endpoint.host().ends_with("api.openai.com");
            let host = if is_openai { Host::OpenAi } else { Host::Other };
            let wire = Responses { name: mark, model, host, streams, cache_key };
            (Arc::new(wire), "/responses".to_owned())
        }
        Speaks::Anthropic => {
            let spec = ModelSpec::Remote { provider, name: name.to_owned() };
            let limit = table.lookup(&spec).and_then(|facts| facts.max_output);
            let max_output = limit.map_or(UNKNOWN_OUTPUT, |limit| limit.min(USUAL_OUTPUT));
            let caches = settings.prompt_caching;
            let wire = Anthropic { name: mark, model, streams, caches, max_output };
            (Arc::new(wire), "/messages".to_owned())
        }
        Speaks::Gemini => {
            let wire = Gemini { name: mark, model, streams };
            let path = wire.path();
            (Arc::new(wire), path)
        }
    }
}

/// The output limit where one is mandatory and nobody asks for another. A higher one takes away from the room that the
/// request has, and a longer reply goes on in the next one.
const USUAL_OUTPUT: Tokens = Tokens(32_000);

/// The output limit of a model that the table does not know.
const UNKNOWN_OUTPUT: Tokens = Tokens(8_192);

/// Returns where a provider is reached.
fn endpoint(
    provider: Provider,
    settings: &WireSettings,
    env: Env<'_>,
) -> Result<Endpoint, ConnectError> {
    let facts = provider.facts();
    let own = settings.api_base.clone().or_else(|| facts.base_env.and_then(env));
    let Some(own) = own.filter(|own| !own.trim().is_empty()) else {
        return Ok(Endpoint::parse(facts.base, settings.allow_http)?);
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
    let path = match (facts.speaks, endpoint.path()) {
        // The provider's own libraries are given the address without the version.
        (Speaks::Anthropic, path) if !path.ends_with("/v1") => format!("{path}/v1"),
        (_, "") => facts.path.to_owned(),
        (_, path) => path.to_owned(),
    };
    Ok(endpoint.with_path(&path))
}

fn has_port(host: &str) -> bool {
    host.trim().rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok())
}

fn client(
    endpoint: &Endpoint,
    settings: &WireSettings,
    env: Env<'_>,
) -> Result<Client, ConnectError> {
    let (first_byte, idle) = match settings.stream {
        true => (settings.timeout, settings.idle_timeout),
        false => (settings.timeout.saturating_mul(WHOLE_REPLY), settings.idle_timeout),
    };
    let limits = Limits { connect: settings.connect_timeout, first_byte, idle };
    Ok(Client::new(&Options::of_environment(endpoint, limits, env))?)
}

/// A key, with where it was found.
struct Key {
    secret: Secret,
    variable: String,
}

fn key(
    provider: Provider,
    settings: &WireSettings,
    env: Env<'_>,
    endpoint: &Endpoint,
) -> Result<Option<Key>, ConnectError> {
    let facts = provider.facts();
    let is_open = settings.api_key_env.is_none() && (facts.is_open || endpoint.is_here());
    let variables = key_variables(provider, settings);
    let found = variables
        .iter()
        .find_map(|variable| Some((variable, env(variable).filter(|key| !key.trim().is_empty())?)));
    match found {
        Some((variable, key)) => match Secret::new(&key) {
            Ok(secret) => Ok(Some(Key { secret, variable: variable.clone() })),
            Err(cause) => Err(ConnectError::BadKey { variable: variable.clone(), cause }),
        },
        None if is_open => Ok(None),
        None => Err(ConnectError::NoKey { provider: facts.name, variables }),
    }
}

/// Returns the variables that a key is looked for in.
fn key_variables(provider: Provider, settings: &WireSettings) -> Vec<String> {
    match &settings.api_key_env {
        Some(named) => vec![named.clone()],
        None => provider.facts().key_env.iter().map(|name| (*name).to_owned()).collect(),
    }
}

/// Returns the header that carries a key.
fn key_header(speaks: Speaks, variable: &str, key: &Secret) -> (HeaderName, String) {
    match speaks {
        Speaks::Anthropic if variable != "ANTHROPIC_AUTH_TOKEN" => {
            (HeaderName::from_static("x-api-key"), key.expose().to_owned())
        }
        Speaks::Gemini => (HeaderName::from_static("x-goog-api-key"), key.expose().to_owned()),
        Speaks::Anthropic | Speaks::Chat | Speaks::Responses => {
            (header::AUTHORIZATION, format!("Bearer {}", key.expose()))
        }
    }
}
