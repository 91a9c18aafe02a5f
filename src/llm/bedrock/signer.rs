//! Signs requests to Bedrock.

use std::sync::Mutex;

use jiff::{SignedDuration, Timestamp};

use super::credentials::{Credentials, CredentialsSource};
use super::signature::{SigningScope, sign};
use crate::llm::exchange::RequestSigner;
use crate::llm::wire::Result;
use crate::net::{HeaderName, HeaderValue, HttpRequest, Secrets};
use crate::port::{CancellationToken, WallClock, lock};
use crate::types::{Fault, FaultKind};

/// Signs requests to Bedrock.
pub(in crate::llm) struct BedrockSigner {
    source: CredentialsSource,
    region: String,
    clock: WallClock,
    /// The keys of the last signature.
    last: Mutex<Option<Credentials>>,
}

/// The name of the service in signatures.
const SERVICE: &str = "bedrock";

/// The time before their expiry at which keys are replaced.
const EXPIRY_MARGIN: SignedDuration = SignedDuration::from_mins(1);

impl BedrockSigner {
    /// Returns a signer for a region.
    pub(in crate::llm) fn new(source: CredentialsSource, region: String, clock: WallClock) -> Self {
        let last = Mutex::new(source.known());
        Self { source, region, clock, last }
    }

    fn now(&self) -> Result<Timestamp> {
        let wrong_clock = |_| Fault::new(FaultKind::Request, "the clock of this machine is wrong");
        Timestamp::try_from(self.clock.now()).map_err(wrong_clock)
    }

    /// Returns the keys, after replacing keys that are about to expire.
    fn load(&self, at: Timestamp, cancel: &CancellationToken) -> Result<Credentials> {
        let is_valid = |known: &Credentials| {
            known
                .expires
                .is_none_or(|expires| at.saturating_add(EXPIRY_MARGIN).is_ok_and(|at| at < expires))
        };
        let known = lock(&self.last).clone().filter(is_valid);
        let loaded = self.source.load(known.as_ref(), cancel);
        loaded.map_err(|error| Fault::new(FaultKind::Auth, error.to_string()))
    }
}

impl RequestSigner for BedrockSigner {
    fn sign(&self, request: &HttpRequest, cancel: &CancellationToken) -> Result<HttpRequest> {
        let at = self.now()?;
        let credentials = self.load(at, cancel)?;
        let mut signed = request.clone();
        let scope = SigningScope { region: &self.region, service: SERVICE, at };
        for (name, value) in sign(request, &credentials, scope) {
            let value = HeaderValue::from_str(&value);
            let malformed =
                |_| Fault::new(FaultKind::Auth, "the AWS keys can't be sent in a header");
            let mut value = value.map_err(malformed)?;
            value.set_sensitive(true);
            signed.headers.insert(HeaderName::from_static(name), value);
        }
        *lock(&self.last) = Some(credentials);
        Ok(signed)
    }

    fn has_new_keys(&self, cancel: &CancellationToken) -> bool {
        let rejected = lock(&self.last).take();
        let Ok(loaded) = self.source.load(None, cancel) else { return false };
        let is_new = rejected.is_some_and(|rejected| {
            (rejected.access_key_id, rejected.session_token)
                != (loaded.access_key_id.clone(), loaded.session_token.clone())
        });
        *lock(&self.last) = Some(loaded);
        is_new
    }

    fn secrets(&self) -> Secrets {
        lock(&self.last).as_ref().map(Credentials::secrets).unwrap_or_default()
    }
}
