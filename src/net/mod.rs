//! HTTP and server-sent events, with timeouts and cancellation.
//!
//! [`HttpClient`] performs one HTTP exchange at a time, on the thread of the caller. Each phase has a timeout, and a
//! [`CancellationToken`](crate::port::CancellationToken) ends an exchange in any phase by closing its socket.
//! [`sse::SseParser`] parses server-sent events, and [`event_stream::EventStreamParser`] Amazon's event streams. This
//! module does not depend on models or tools.

mod body;
mod client;
mod drain;
mod endpoint;
mod error;
pub mod event_stream;
mod options;
mod readable_fields;
mod resolver;
mod retry_after;
mod secret;
mod secret_forms;
pub mod sse;
mod timed_transport;

pub use body::RequestBody;
pub use client::{HttpClient, HttpRequest, HttpResponse, MAX_RESPONSE_BYTES, Method};
pub use endpoint::{Endpoint, EndpointError};
pub(crate) use error::Result;
pub use error::{ExchangePhase, NetError};
pub use options::{HttpOptions, HttpProxy, HttpTimeouts};
pub use readable_fields::ReadableFields;
pub use retry_after::{MAX_RETRY_DELAY, retry_after};
pub(crate) use secret::RESERVED_IN_ADDRESS;
pub use secret::{MaskingWriter, Secret, SecretError, Secrets, address_parameters, mask_address};
pub(crate) use secret_forms::MASK;

pub use ureq::http::{HeaderMap, HeaderName, HeaderValue, header};
