//! Floor 3: HTTP and server-sent events, with deadlines and cancellation.
//!
//! [`Client`] makes one HTTP exchange at a time on the caller's thread. Each phase of it has a limit of its own, and a
//! [`Cancel`](crate::port::Cancel) token ends it in any phase by closing its socket. [`sse::Parser`] reads event
//! streams. Nothing here knows a model or a tool.

mod body;
mod client;
mod drain;
mod endpoint;
mod environment;
mod error;
mod names;
mod retry_after;
mod secret;
pub mod sse;
mod timed;

pub use body::Body;
pub use client::{Client, Limits, Method, Options, ProxyChoice, Request, Response, Roots};
pub use endpoint::{BadEndpoint, Endpoint};
pub use error::{NetError, Phase};
pub use retry_after::retry_after;
pub use secret::{BadSecret, Secret, Secrets};

pub use ureq::http::{HeaderMap, HeaderName, HeaderValue, header};
