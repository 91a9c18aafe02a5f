//! What carries requests: the network, or a recording.

use crate::net::{Client, HeaderMap, NetError, Request, Response};
use crate::port::Cancel;

/// Carries a request and brings the answer.
pub(crate) trait Carrier: Send + Sync {
    /// Sends a request and waits for the head of the answer.
    fn send(&self, request: &Request, cancel: &Cancel) -> Result<Box<dyn Incoming>, NetError>;
}

/// An answer whose head has arrived.
pub(crate) trait Incoming {
    /// Returns its status.
    fn status(&self) -> u16;

    /// Returns its headers.
    fn headers(&self) -> &HeaderMap;

    /// Reads the next piece of its body; nothing at the end.
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, NetError>;

    /// Leaves the answer, of which nothing more is needed.
    fn leave(self: Box<Self>);
}

impl Carrier for Client {
    fn send(&self, request: &Request, cancel: &Cancel) -> Result<Box<dyn Incoming>, NetError> {
        Ok(Box::new(Self::send(self, request, cancel)?))
    }
}

impl Incoming for Response {
    fn status(&self) -> u16 {
        self.status
    }

    fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, NetError> {
        Self::read(self, buffer)
    }

    fn leave(self: Box<Self>) {
        Self::leave(*self);
    }
}
