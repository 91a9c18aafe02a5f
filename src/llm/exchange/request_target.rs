//! The server of a model's requests, and the settings for sending them.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde_json::Value;

use super::transport::{HttpTransport, RequestSigner};
use crate::llm::fault;
use crate::llm::wire::{Result, Wire};
use crate::net::{HeaderMap, HttpRequest, Secrets};
use crate::port::CancellationToken;
use crate::types::{Fault, FaultKind};

/// The server of a model's requests, and the settings for sending them.
pub(crate) struct RequestTarget {
    pub(crate) wire: Arc<dyn Wire>,
    pub(crate) transport: Arc<dyn HttpTransport>,
    /// `provider/model`, which identifies blocks that only this model can read.
    pub(crate) model: Arc<str>,
    pub(crate) url: String,
    pub(crate) headers: HeaderMap,
    pub(crate) masker: Secrets,
    /// The source of the key, for error messages; `None` for a recording.
    pub(crate) key_source: Option<KeySource>,
    /// The signer of requests, if a key in a header is not enough.
    pub(crate) signer: Option<Arc<dyn RequestSigner>>,
    /// Whether its keys have been replaced since the last accepted request.
    pub(crate) has_replaced_keys: AtomicBool,
    /// Whether to warn if the provider counts far fewer tokens than were sent.
    pub(crate) may_truncate: bool,
    /// The settings that determine the encoding of requests, in their stored form.
    pub(crate) settings: Value,
}

/// The source of the key of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeySource {
    /// The key is from this variable.
    Variable(String),
    /// The key is printed by a command, which this configuration key names.
    Command(String),
    /// No key is sent, since none of these variables is set.
    Missing(Vec<String>),
    /// No key is sent: the model has its own address, and this setting names no variable with a key.
    NoOwnKey(String),
    /// Requests are signed with keys from the described source.
    Signed(String),
}

impl RequestTarget {
    /// Returns a request with its signature, if this target needs one.
    pub(crate) fn sign<'a>(
        &self,
        request: &'a HttpRequest,
        cancel: &CancellationToken,
    ) -> Result<Cow<'a, HttpRequest>> {
        match &self.signer {
            Some(signer) => signer.sign(request, cancel).map(Cow::Owned),
            None => Ok(Cow::Borrowed(request)),
        }
    }

    /// Returns the keys in use.
    pub(crate) fn secrets(&self) -> Secrets {
        match &self.signer {
            Some(signer) => self.masker.join(&signer.secrets()),
            None => self.masker.clone(),
        }
    }

    /// Returns a fault without secrets, and with a hint if the provider rejects the key.
    pub(crate) fn describe(&self, mut fault: Fault) -> Fault {
        let mut message = fault::readable(&self.secrets().mask_all(&fault.message));
        if let (FaultKind::Auth, Some(key)) = (fault.kind, &self.key_source) {
            message.push_str(&key.hint());
        }
        fault.message = message.into();
        fault
    }
}

impl KeySource {
    /// Returns a hint for the user if the provider rejects the key.
    pub(crate) fn hint(&self) -> String {
        match self {
            Self::Variable(variable) => format!("; the key is the one in {variable}"),
            Self::Command(key) => format!("; the key is the one that {key} prints"),
            Self::Signed(source) => format!("; the keys are {source}"),
            Self::NoOwnKey(setting) => {
                format!("; no key was sent ({setting} names the variable that holds one)")
            }
            Self::Missing(variables) if variables.is_empty() => {
                "; no key was sent (--api-key-env NAME names the variable that holds one)"
                    .to_owned()
            }
            Self::Missing(variables) => format!(
                "; no key was sent: the variable {} is not set (--api-key-env NAME names another one)",
                variables.join(" or ")
            ),
        }
    }
}
