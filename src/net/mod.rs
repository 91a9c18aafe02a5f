//! Floor 3: HTTP and server-sent events, with deadlines and cancellation.
//!
//! [`HttpClient`] makes one HTTP exchange at a time on the caller's thread. Each phase of it has a limit of its own, and a
//! [`CancellationToken`](crate::port::Cancel) token ends it in any phase by closing its socket. [`sse::SseParser`] reads event
//! streams. Nothing here knows a model or a tool.

mod body;
mod client;
mod drain;
mod endpoint;
mod error;
mod http_options;
mod resolver;
mod retry_after;
mod secret;
pub mod sse;
mod timed_transport;

pub use body::RequestBody;
pub use client::{
    HttpClient, HttpOptions, HttpRequest, HttpResponse, HttpTimeouts, Method, ProxyChoice,
    TrustedRoots,
};
pub use endpoint::{Endpoint, EndpointError};
pub use error::{ExchangePhase, NetError};
pub use retry_after::retry_after;
pub use secret::{Secret, SecretError, Secrets};

pub use ureq::http::{HeaderMap, HeaderName, HeaderValue, header};
