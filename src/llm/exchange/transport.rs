//! The interface to the network or to a recording, and to the signing of requests.

use crate::llm::wire;
use crate::net::{HeaderMap, HttpClient, HttpRequest, HttpResponse, Result, Secrets};
use crate::port::CancellationToken;

/// Sends requests.
pub(crate) trait HttpTransport: Send + Sync {
    /// Sends a request and waits for the head of the response.
    fn send(&self, request: &HttpRequest, cancel: &CancellationToken) -> Result<IncomingResponse>;
}

/// A response after its head was received.
pub(crate) struct IncomingResponse {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Box<dyn ResponseBody>,
}

/// The body of a response.
pub(crate) trait ResponseBody {
    /// Reads more of the body. Returns the number of bytes; zero at the end.
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize>;

    /// Ends reading. The connection may be reused.
    fn release(self: Box<Self>);
}

impl HttpTransport for HttpClient {
    fn send(&self, request: &HttpRequest, cancel: &CancellationToken) -> Result<IncomingResponse> {
        let body = Self::send(self, request, cancel)?;
        let (status, headers) = (body.status, body.headers.clone());
        Ok(IncomingResponse { status, headers, body: Box::new(body) })
    }
}

impl ResponseBody for HttpResponse {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        Self::read(self, buffer)
    }

    fn release(self: Box<Self>) {
        Self::release(*self);
    }
}

/// Signs requests with keys that may be replaced while the program is running.
pub(crate) trait RequestSigner: Send + Sync {
    /// Returns the request with its signature.
    fn sign(&self, request: &HttpRequest, cancel: &CancellationToken) -> wire::Result<HttpRequest>;

    /// Returns whether the keys have been replaced since the last signature, which was rejected.
    fn has_new_keys(&self, cancel: &CancellationToken) -> bool;

    /// Returns the keys of the last signature.
    fn secrets(&self) -> Secrets;
}
