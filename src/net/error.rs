//! What can go wrong on the way to a server and back.

use std::fmt;
use std::io;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use ureq::Timeout;

/// Why an exchange failed. No request header or body is ever part of it.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum NetError {
    /// Nobody listens there, or there is no way to it.
    #[error("could not connect to {host}: {cause}")]
    Connect {
        /// The host.
        host: String,
        /// What the system says.
        cause: String,
    },
    /// The name of the host leads nowhere.
    #[error("could not find the address of {host}: {cause}")]
    #[serde(rename = "name")]
    Dns {
        /// The host.
        host: String,
        /// What the system says.
        cause: String,
        /// Whether there is no such name, rather than nobody to ask.
        is_unknown: bool,
    },
    /// A time limit passed.
    #[error("{phase} took more than {} s ({host})", limit.as_secs_f32())]
    Timeout {
        /// The host.
        host: String,
        /// What took too long.
        phase: ExchangePhase,
        /// How long it may take.
        limit: Duration,
    },
    /// The connection cannot be trusted.
    #[error("the connection to {host} cannot be trusted: {cause}")]
    Tls {
        /// The host.
        host: String,
        /// What is wrong with it.
        cause: String,
    },
    /// The proxy does not let the request through.
    #[error("the proxy {proxy} refuses the connection to {host}: {cause}")]
    Proxy {
        /// The host.
        host: String,
        /// The proxy.
        proxy: String,
        /// What it says.
        cause: String,
    },
    /// The connection was lost before an answer began.
    #[error("the connection to {host} was lost before an answer: {cause}")]
    #[serde(rename = "lost")]
    ConnectionLost {
        /// The host.
        host: String,
        /// What happened.
        cause: String,
    },
    /// The answer broke off or is damaged.
    #[error("the answer of {host} broke off: {cause}")]
    #[serde(rename = "broken")]
    BrokenResponse {
        /// The host.
        host: String,
        /// What is wrong with it.
        cause: String,
    },
    /// What came back is no HTTP.
    #[error("what {host} answered is no HTTP: {cause}")]
    NotHttp {
        /// The host.
        host: String,
        /// What is wrong with it.
        cause: String,
    },
    /// The answer is larger than anybody needs.
    #[error("the answer of {host} is larger than {} MiB", limit >> 20)]
    TooLarge {
        /// The host.
        host: String,
        /// The most that is read.
        limit: u64,
    },
    /// The request cannot be made.
    #[error("the request cannot be made: {cause}")]
    #[serde(rename = "request")]
    InvalidRequest {
        /// Why.
        cause: String,
    },
    /// Somebody asked for the exchange to end.
    #[error("the exchange was cancelled")]
    Cancelled,
}

/// A phase of an exchange that has a time limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExchangePhase {
    /// Finding the address, connecting and agreeing on encryption.
    Connecting,
    /// Sending the request.
    Sending,
    /// Waiting for the answer to begin.
    FirstByte,
    /// Silence in the middle of the answer.
    Silence,
}

impl fmt::Display for ExchangePhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connecting => "connecting",
            Self::Sending => "sending the request",
            Self::FirstByte => "waiting for the answer",
            Self::Silence => "silence within the answer",
        })
    }
}

/// How far an exchange had come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResponsePart {
    /// Before the head of the answer.
    Head,
    /// In the body of the answer.
    Body,
}

/// What is needed to name what went wrong.
pub(super) struct ErrorContext<'a> {
    pub(super) host: &'a str,
    pub(super) proxy: Option<String>,
    pub(super) timeouts: &'a super::HttpTimeouts,
    pub(super) part: ResponsePart,
}

impl ErrorContext<'_> {
    /// Returns what an error of the HTTP library means.
    pub(super) fn to_net_error(&self, error: ureq::Error) -> NetError {
        use ureq::Error;
        match error {
            Error::Timeout(which) => self.timeout_error(which),
            Error::Io(error) => self.io_error(&error),
            Error::HostNotFound => self.dns_error("no address", true),
            Error::Tls(cause) => self.tls_error(cause.to_owned()),
            Error::Rustls(error) => self.tls_error(error.to_string()),
            Error::Pem(error) => self.tls_error(format!("{error:?}")),
            Error::ConnectProxyFailed(cause) => NetError::Proxy {
                host: self.host(),
                proxy: self.proxy.clone().unwrap_or_default(),
                cause,
            },
            Error::ConnectionFailed => self.connect_error("connection failed".to_owned()),
            Error::Decompress(_, error) => self.broken_response(error.to_string()),
            Error::Protocol(error) if self.part == ResponsePart::Body => {
                self.broken_response(error.to_string())
            }
            Error::Protocol(error) => {
                NetError::NotHttp { host: self.host(), cause: error.to_string() }
            }
            Error::LargeResponseHeader(..) => {
                NetError::NotHttp { host: self.host(), cause: "its head has no end".to_owned() }
            }
            error => NetError::InvalidRequest { cause: error.to_string() },
        }
    }

    fn io_error(&self, error: &io::Error) -> NetError {
        let cause = error.to_string();
        let no_name = "failed to lookup address information";
        if self.part == ResponsePart::Body {
            return self.broken_response(cause);
        }
        match error.kind() {
            // The TLS library reports what is wrong with a certificate or a handshake as invalid data.
            io::ErrorKind::InvalidData => self.tls_error(cause),
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::NotConnected
            | io::ErrorKind::WriteZero => NetError::ConnectionLost { host: self.host(), cause },
            _ if cause.starts_with(no_name) => {
                let cause = cause.trim_start_matches(no_name).trim_start_matches([':', ' ']);
                let unknown = ["not known", "nodename nor servname", "No address associated"];
                self.dns_error(cause, unknown.iter().any(|text| cause.contains(text)))
            }
            _ => self.connect_error(cause),
        }
    }

    fn timeout_error(&self, which: Timeout) -> NetError {
        let limits = self.timeouts;
        let (phase, limit) = match which {
            Timeout::Resolve | Timeout::Connect => (ExchangePhase::Connecting, limits.connect),
            Timeout::PerWrite | Timeout::SendRequest | Timeout::SendBody => {
                (ExchangePhase::Sending, limits.first_byte)
            }
            Timeout::PerRead if self.part == ResponsePart::Body => {
                (ExchangePhase::Silence, limits.idle)
            }
            _ => (ExchangePhase::FirstByte, limits.first_byte),
        };
        NetError::Timeout { host: self.host(), phase, limit }
    }

    fn host(&self) -> String {
        self.host.to_owned()
    }

    fn connect_error(&self, cause: String) -> NetError {
        NetError::Connect { host: self.host(), cause }
    }

    fn dns_error(&self, cause: &str, is_unknown: bool) -> NetError {
        NetError::Dns { host: self.host(), cause: cause.to_owned(), is_unknown }
    }

    fn tls_error(&self, cause: String) -> NetError {
        NetError::Tls { host: self.host(), cause }
    }

    fn broken_response(&self, cause: String) -> NetError {
        NetError::BrokenResponse { host: self.host(), cause }
    }
}
