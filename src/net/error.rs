//! Network errors.

use std::fmt;
use std::io;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use ureq::Timeout;

use super::options::HttpTimeouts;

/// The result of an HTTP exchange.
pub(crate) type Result<T, E = NetError> = std::result::Result<T, E>;

/// An error of an HTTP exchange. It never contains headers or the body of the request.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum NetError {
    /// The connection was refused, or the host is unreachable.
    #[error("could not connect to {host}: {cause}")]
    Connect {
        /// The host.
        host: String,
        /// The error of the system.
        cause: String,
    },
    /// The host name can't be resolved.
    #[error("could not find the address of {host}: {cause}")]
    #[serde(rename = "name")]
    Dns {
        /// The host.
        host: String,
        /// The error of the system.
        cause: String,
        /// Whether the name does not exist, as opposed to a failure of the resolver.
        is_unknown: bool,
    },
    /// A timeout.
    #[error("{phase} took more than {} s ({host})", limit.as_secs_f32())]
    Timeout {
        /// The host.
        host: String,
        /// The phase.
        phase: ExchangePhase,
        /// The timeout of the phase.
        limit: Duration,
    },
    /// The TLS handshake failed.
    #[error("the connection to {host} cannot be trusted: {cause}")]
    Tls {
        /// The host.
        host: String,
        /// The reason.
        cause: String,
    },
    /// The proxy rejects the connection.
    #[error("the proxy {proxy} refuses the connection to {host}: {cause}")]
    Proxy {
        /// The host.
        host: String,
        /// The proxy.
        proxy: String,
        /// The response of the proxy.
        cause: String,
    },
    /// The connection was lost before the response.
    #[error("the connection to {host} was lost before a response: {cause}")]
    #[serde(rename = "lost")]
    ConnectionLost {
        /// The host.
        host: String,
        /// The error.
        cause: String,
    },
    /// The response is incomplete or invalid.
    #[error("the response of {host} is incomplete or invalid: {cause}")]
    #[serde(rename = "broken")]
    BrokenResponse {
        /// The host.
        host: String,
        /// The reason.
        cause: String,
    },
    /// The response is not HTTP.
    #[error("the response of {host} is not HTTP: {cause}")]
    NotHttp {
        /// The host.
        host: String,
        /// The reason.
        cause: String,
    },
    /// The response is too large.
    #[error("the response of {host} is larger than {} MiB", limit >> 20)]
    TooLarge {
        /// The host.
        host: String,
        /// The size limit in bytes.
        limit: u64,
    },
    /// The headers of the response are too large, or too many.
    #[error("the headers of the response of {host} are too large: {cause}")]
    HeadersTooLarge {
        /// The host.
        host: String,
        /// The limit that they exceed.
        cause: String,
    },
    /// The request is invalid.
    #[error("invalid request: {cause}")]
    #[serde(rename = "request")]
    InvalidRequest {
        /// The reason.
        cause: String,
    },
    /// The exchange was cancelled.
    #[error("the exchange was cancelled")]
    Cancelled,
}

/// A phase of an exchange with a timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExchangePhase {
    /// Resolving the host, connecting, and the TLS handshake.
    Connecting,
    /// Sending the request.
    Sending,
    /// Waiting for the response.
    FirstByte,
    /// Waiting for more of the response.
    Silence,
}

impl fmt::Display for ExchangePhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connecting => "connecting",
            Self::Sending => "sending the request",
            Self::FirstByte => "waiting for the response",
            Self::Silence => "silence within the response",
        })
    }
}

/// The part of the response that was being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResponsePart {
    /// The head.
    Head,
    /// The body.
    Body,
}

/// The context of an error.
pub(super) struct ErrorContext<'a> {
    pub(super) host: &'a str,
    pub(super) proxy: Option<String>,
    pub(super) timeouts: &'a HttpTimeouts,
    pub(super) part: ResponsePart,
}

/// The HTTP library's message for a head with too many headers.
const TOO_MANY_HEADERS: &str = "too many headers";

impl ErrorContext<'_> {
    /// Converts an error of the HTTP library.
    pub(super) fn to_net_error(&self, error: ureq::Error) -> NetError {
        use ureq::Error;
        let host = self.host.to_owned();
        match error {
            Error::Timeout(which) => {
                let timeouts = self.timeouts;
                let (phase, limit) = match which {
                    Timeout::Resolve | Timeout::Connect => {
                        (ExchangePhase::Connecting, timeouts.connect)
                    }
                    Timeout::PerWrite | Timeout::SendRequest | Timeout::SendBody => {
                        (ExchangePhase::Sending, timeouts.first_byte)
                    }
                    Timeout::PerRead if self.part == ResponsePart::Body => {
                        (ExchangePhase::Silence, timeouts.idle)
                    }
                    _ => (ExchangePhase::FirstByte, timeouts.first_byte),
                };
                NetError::Timeout { host, phase, limit }
            }
            Error::Io(error) => self.io_error(&error),
            Error::HostNotFound => {
                NetError::Dns { host, cause: "no address".to_owned(), is_unknown: true }
            }
            Error::Tls(cause) => NetError::Tls { host, cause: cause.to_owned() },
            Error::Rustls(error) => NetError::Tls { host, cause: error.to_string() },
            Error::Pem(error) => NetError::Tls { host, cause: format!("{error:?}") },
            Error::ConnectProxyFailed(cause) => {
                NetError::Proxy { host, proxy: self.proxy.clone().unwrap_or_default(), cause }
            }
            Error::ConnectionFailed => {
                NetError::Connect { host, cause: "connection failed".to_owned() }
            }
            Error::Decompress(_, error) => {
                NetError::BrokenResponse { host, cause: error.to_string() }
            }
            Error::Protocol(error) if self.part == ResponsePart::Body => {
                NetError::BrokenResponse { host, cause: error.to_string() }
            }
            Error::Protocol(error) => match error.to_string() {
                cause if cause.contains(TOO_MANY_HEADERS) => {
                    NetError::HeadersTooLarge { host, cause: TOO_MANY_HEADERS.to_owned() }
                }
                cause => NetError::NotHttp { host, cause },
            },
            Error::LargeResponseHeader(..) if self.part == ResponsePart::Body => {
                NetError::BrokenResponse {
                    host,
                    cause: "a chunk has no end of its size".to_owned(),
                }
            }
            Error::LargeResponseHeader(_, limit) => {
                let cause = format!("more than {} KiB", limit >> 10);
                NetError::HeadersTooLarge { host, cause }
            }
            // The library takes a body that ends within the frame of a chunk for one that stalls.
            Error::BodyStalled => NetError::BrokenResponse {
                host,
                cause: "the connection was closed within the frame of a chunk".to_owned(),
            },
            error => NetError::InvalidRequest { cause: error.to_string() },
        }
    }

    fn io_error(&self, error: &io::Error) -> NetError {
        let (host, cause) = (self.host.to_owned(), error.to_string());
        let no_name = "failed to lookup address information";
        if self.part == ResponsePart::Body {
            return NetError::BrokenResponse { host, cause };
        }
        match error.kind() {
            // The TLS library reports errors of certificates and handshakes as invalid data.
            io::ErrorKind::InvalidData => NetError::Tls { host, cause },
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::NotConnected
            | io::ErrorKind::WriteZero => NetError::ConnectionLost { host, cause },
            _ if cause.starts_with(no_name) => {
                let cause = cause.trim_start_matches(no_name).trim_start_matches([':', ' ']);
                let unknown = ["not known", "nodename nor servname", "No address associated"];
                let is_unknown = unknown.iter().any(|text| cause.contains(text));
                NetError::Dns { host, cause: cause.to_owned(), is_unknown }
            }
            _ => NetError::Connect { host, cause },
        }
    }
}
