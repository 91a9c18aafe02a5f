//! The values that are masked for the model, in the journal and in the output.

use super::process_env::ProcessEnv;
use crate::config::Config;
use crate::exec::is_secret_variable;
use crate::net::Secrets;

/// Returns the values of the variables that hold secrets, by their names or because the settings say so, and of the
/// variables and headers for servers and the provider.
///
/// The provider's key is among them. Commands don't get them. But a file of the workspace may contain one, a command may
/// find one elsewhere, and the user may have let one through.
pub fn collect_secrets(config: &Config, world: &ProcessEnv) -> Secrets {
    let settings = &config.settings;
    let tokens = settings.mcp.servers.iter().filter_map(|server| {
        let oauth = server.oauth.as_ref();
        server.token_env.as_ref().or_else(|| oauth?.client_secret_env.as_ref())
    });
    let named: Vec<_> = settings.llm.api_key_env.iter().chain(tokens).collect();
    let is_named = |name: &str| named.iter().any(|known| known.as_str() == name);
    let texts: Vec<(String, String)> = world.text_variables().collect();
    let secret = texts.iter().filter(|(name, _)| is_secret_variable(name) || is_named(name));
    let given = settings.mcp.servers.iter();
    let given = given.flat_map(|server| server.env.iter().chain(&server.headers));
    let given = given.chain(&settings.llm.headers);
    // As a header, `Authorization` has no part before it.
    let given =
        given.filter(|(name, _)| is_secret_variable(&format!("_{}", name.replace('-', "_"))));
    // A scheme comes before a key.
    let given = given.filter_map(|(_, value)| value.reveal().split_whitespace().last());
    Secrets::from_values(secret.map(|(_, value)| value.as_str()).chain(given))
}

/// Returns a message of the user without the keys in it: it is stored, and sent with every request.
pub fn mask_message(message: &str, secrets: &Secrets) -> String {
    let masked = secrets.mask_all(message);
    if masked != message {
        log::warn!(
            "the message contains a key, which is masked: neither the model nor the journal gets it"
        );
    }
    masked
}
