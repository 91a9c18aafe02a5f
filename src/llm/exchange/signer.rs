//! Signing of requests.

use crate::llm::wire::Result;
use crate::net::{HttpRequest, Secrets};
use crate::port::CancellationToken;

/// Signs requests with keys that may be replaced while the program runs.
pub(crate) trait RequestSigner: Send + Sync {
    /// Returns the request with its signature.
    fn sign(&self, request: &HttpRequest, cancel: &CancellationToken) -> Result<HttpRequest>;

    /// Returns whether the keys have been replaced since the last signature, which was rejected.
    fn has_new_keys(&self, cancel: &CancellationToken) -> bool;

    /// Notes that a request was not rejected.
    fn accept_keys(&self) {}

    /// Returns the keys of the last signature.
    fn secrets(&self) -> Secrets;
}
