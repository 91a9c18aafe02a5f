//! The interface to the network, or to a recording.

use crate::net::{HeaderMap, HttpClient, HttpRequest, HttpResponse, NetError};
use crate::port::CancellationToken;

/// Sends requests.
pub(crate) trait HttpTransport: Send + Sync {
    /// Sends a request and waits for the head of the response.
    fn send(
        &self,
        request: &HttpRequest,
        cancel: &CancellationToken,
    ) -> Result<Box<dyn IncomingResponse>, NetError>;
}

/// A response whose head was received.
pub(crate) trait IncomingResponse {
    /// Returns the status code.
    fn status(&self) -> u16;

    /// Returns the headers.
    fn headers(&self) -> &HeaderMap;

    /// Reads more of the body; returns zero at its end.
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, NetError>;

    /// Ends reading. The connection may be reused.
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
        Self::read(self, buffer)
    }

    fn release(self: Box<Self>) {
        Self::release(*self);
    }
}
