//! Keys that are printed by the user's commands.

use std::sync::Mutex;

use super::exchange::RequestSigner;
use super::secret_command::run_secret_command;
use super::wire::Result;
use crate::net::{HeaderName, HeaderValue, HttpRequest, Secret, Secrets};
use crate::port::{CancellationToken, lock};
use crate::types::{Fault, FaultKind};

/// The printed keys, with the commands that printed them. Each command runs once per process: sub-agents and the runs
/// of a batch share its key.
static PRINTED: Mutex<Vec<(String, Secret)>> = Mutex::new(Vec::new());

/// A command of the user that prints a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyCommandSetting {
    /// The configuration key that names the command.
    pub key: String,
    /// The command, for a shell.
    pub command: String,
}

/// A command that prints a key.
pub(super) struct KeyCommand {
    setting: KeyCommandSetting,
    /// The key of the last request.
    key: Mutex<Secret>,
}

/// Sets the key printed by a command in the header of each request.
pub(super) struct KeyCommandSigner {
    command: KeyCommand,
    header: HeaderName,
    /// The text before the key in the header.
    scheme: &'static str,
}

impl KeyCommand {
    /// Returns the command with its key. The command runs unless it has already printed a key.
    ///
    /// # Errors
    ///
    /// Fails with a description if the command prints no key.
    pub(super) fn load(
        setting: &KeyCommandSetting,
        cancel: &CancellationToken,
    ) -> Result<Self, String> {
        let key = Mutex::new(printed_key(&setting.command, None, cancel)?);
        Ok(Self { setting: setting.clone(), key })
    }

    /// Returns the configuration key that names the command.
    pub(super) fn config_key(&self) -> &str {
        &self.setting.key
    }

    /// Returns whether the key is a JSON Web Token.
    pub(super) fn is_token(&self) -> bool {
        let key = lock(&self.key);
        key.expose().starts_with("eyJ") && key.expose().matches('.').count() == 2
    }

    /// Returns a signer that sends the key in a header, after a scheme.
    pub(super) fn into_signer(self, header: HeaderName, scheme: &'static str) -> KeyCommandSigner {
        KeyCommandSigner { command: self, header, scheme }
    }
}

/// Returns the key printed by a command. The command runs unless it has already printed one.
///
/// # Errors
///
/// Fails with a description if the command prints no key.
pub(crate) fn command_key(command: &str, cancel: &CancellationToken) -> Result<Secret, String> {
    printed_key(command, None, cancel)
}

/// Returns the key printed by a command. If that is the rejected key, the command runs again.
fn printed_key(
    command: &str,
    rejected: Option<&Secret>,
    cancel: &CancellationToken,
) -> Result<Secret, String> {
    // Another run that needs the key waits for it here.
    let mut printed = lock(&PRINTED);
    let known = printed.iter().position(|(known, _)| known == command);
    if let Some(known) = known {
        let key = &printed[known].1;
        if Some(key) != rejected {
            return Ok(key.clone());
        }
    }
    let output = run_secret_command(command, cancel)?;
    let key = std::str::from_utf8(&output).map_err(|_| "printed something else than text")?;
    let key = Secret::new(key).map_err(|cause| format!("printed a key that {cause}"))?;
    Secrets::mask_everywhere(&key);
    if let Some(known) = known {
        printed.remove(known);
    }
    printed.push((command.to_owned(), key.clone()));
    Ok(key)
}

impl RequestSigner for KeyCommandSigner {
    fn sign(&self, request: &HttpRequest, _: &CancellationToken) -> Result<HttpRequest> {
        let value = format!("{}{}", self.scheme, lock(&self.command.key).expose());
        let malformed = |_| Fault::new(FaultKind::Auth, "the key can't be sent in a header");
        let mut value = HeaderValue::from_str(&value).map_err(malformed)?;
        value.set_sensitive(true);
        let mut signed = request.clone();
        signed.headers.insert(self.header.clone(), value);
        Ok(signed)
    }

    fn has_new_keys(&self, cancel: &CancellationToken) -> bool {
        let KeyCommand { setting, key } = &self.command;
        let rejected = lock(key).clone();
        match printed_key(&setting.command, Some(&rejected), cancel) {
            Ok(printed) => {
                let is_new = printed != rejected;
                *lock(key) = printed;
                is_new
            }
            Err(cause) => {
                log::warn!("the key was rejected, and {} {cause}", setting.key);
                false
            }
        }
    }

    fn secrets(&self) -> Secrets {
        Secrets::from_keys([lock(&self.command.key).clone()])
    }
}
