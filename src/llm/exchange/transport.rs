//! What carries requests: the network, or a recording.

use crate::net::{HeaderMap, HttpClient, HttpRequest, HttpResponse, NetError};
use crate::port::CancellationToken;

/// Carries a request and brings the answer.
pub(crate) trait HttpTransport: Send + Sync {
    /// Sends a request and waits for the head of the answer.
    fn send(
        &self,
        request: &HttpRequest,
        cancel: &CancellationToken,
    ) -> Result<Box<dyn IncomingResponse>, NetError>;
}

/// An answer whose head has arrived.
pub(crate) trait IncomingResponse {
    /// Returns its status.
    fn status(&self) -> u16;

    /// Returns its headers.
    fn headers(&self) -> &HeaderMap;

    /// Reads the next piece of its body; nothing at the end.
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, NetError>;

    /// Leaves the answer, of which nothing more is needed.
    fn release(self: Box<Self>);
}

impl HttpTransport for HttpClient {
    fn send(
        &self,
        request: &HttpRequest,
        cancel: &CancellationToken,
    ) -> Result<Box<dyn IncomingResponse>, NetError> {
        Ok(Box::new(Self::send(self, request, cancel)?))
    }
}

impl IncomingResponse for HttpResponse {
    fn status(&self) -> u16 {
        self.status
    }

    fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, NetError> {
        Self::bytes_read(self, buffer)
    }

    fn release(self: Box<Self>) {
        Self::release(*self);
    }
}
