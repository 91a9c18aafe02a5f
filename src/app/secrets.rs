//! The values that are masked for the model, in the journal and in the output.

use super::process_env::ProcessEnv;
use crate::config::{Config, HttpUrl, SecretText, may_be_secret};
use crate::exec::{is_key_variable, is_secret_variable};
use crate::llm::PROVIDERS;
use crate::net::{Secrets, address_parameters};

/// Returns the secret values in the environment and the settings: variables that are secret by their names or by the
/// settings, variables and headers for servers and the provider, and parameters of the provider's address. Values under
/// the name of a key may be short.
///
/// The provider's key is among them. Commands don't get these values, but a file of the workspace may contain one, a
/// command may find one elsewhere, and the user may have passed one on.
pub fn collect_secrets(config: &Config, world: &ProcessEnv) -> Secrets {
    let settings = &config.settings;
    let tokens = settings.mcp.servers.iter().filter_map(|server| {
        let oauth = server.oauth.as_ref();
        server.token_env.as_ref().or_else(|| oauth?.client_secret_env.as_ref())
    });
    let of_models = settings.models.values().filter_map(|model| model.api_key_env.as_ref());
    let named: Vec<_> = settings.llm.api_key_env.iter().chain(of_models).chain(tokens).collect();
    let is_key = |name: &str| named.iter().any(|known| known.as_str() == name);
    let texts: Vec<(String, String)> = world.text_variables().collect();
    let secret = texts.iter().filter(|(name, _)| is_secret_variable(name) || is_key(name));
    let keys = texts.iter().filter(|(name, _)| is_key_variable(name) || is_key(name));
    // In a header, `Authorization` has no prefix, so this adds one.
    let variable = |name: &str| format!("_{}", name.replace('-', "_"));
    let is_named = |name: &str| is_secret_variable(&variable(name));
    let servers = settings.mcp.servers.iter();
    let env = servers.clone().flat_map(|server| &server.env).filter(|(name, _)| is_named(name));
    let headers = servers.flat_map(|server| &server.headers).chain(&settings.llm.headers);
    let key_env = env.clone().filter(|(name, _)| is_key_variable(&variable(name)));
    let key_headers = headers.clone().filter(|(name, _)| is_named(name));
    // A header with an unsuspicious name may still contain a key.
    let headers = headers.filter(|(name, value)| is_named(name) || may_be_secret(value.reveal()));
    let bases = settings.models.values().filter_map(|model| model.api_base.as_ref());
    let bases = settings.llm.api_base.iter().chain(bases).map(HttpUrl::as_str);
    let is_base = |name: &str| PROVIDERS.iter().any(|it| it.base_url_variable == Some(name));
    let of_env = texts.iter().filter(|(name, _)| is_base(name)).map(|(_, base)| base.as_str());
    let parameters = bases.chain(of_env).flat_map(address_parameters);
    let (named_parameters, parameters): (Vec<_>, Vec<_>) =
        parameters.partition(|(name, _)| is_named(name));
    let parameters = parameters.into_iter().filter(|(_, value)| may_be_secret(value));
    let mut options = Vec::new();
    settings.llm.options.values().for_each(|option| option.collect_secrets(&mut options));
    let values = secret.map(|(_, value)| value.as_str()).chain(last_words(env.chain(headers)));
    let keys = keys.map(|(_, value)| value.as_str()).chain(last_words(key_env.chain(key_headers)));
    let values = values.chain(options).chain(parameters.map(|(_, value)| value));
    let keys = keys.chain(named_parameters.into_iter().map(|(_, value)| value));
    Secrets::from_values(values).join(&Secrets::from_key_values(keys))
}

/// Returns the part of each value after its last space, since a scheme may precede a key.
fn last_words<'a>(
    values: impl Iterator<Item = (&'a String, &'a SecretText)>,
) -> impl Iterator<Item = &'a str> {
    values.filter_map(|(_, value)| value.reveal().split_whitespace().last())
}

/// Returns a message of the user with its keys masked, because it is stored and sent with every request.
pub fn mask_message(message: &str, secrets: &Secrets) -> String {
    let masked = secrets.mask_all(message);
    if masked != message {
        log::warn!(
            "the message contains a key, which is masked: neither the model nor the journal gets it"
        );
    }
    masked
}
