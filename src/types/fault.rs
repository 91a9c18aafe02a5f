//! The faults of model calls: one taxonomy for every provider.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{TimeSpan, Tokens, word_enum};

/// The reason why a model call failed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Fault {
    /// The kind of fault.
    pub kind: FaultKind,
    /// The message for the user, free of secrets and of control characters.
    pub message: Arc<str>,
    /// The provider's advice on retrying.
    #[serde(default, rename = "retry")]
    pub advice: RetryAdvice,
    /// The wait before a retry that the provider asks for.
    #[serde(default, rename = "wait", skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<TimeSpan>,
    /// Whether the provider may charge for the call although no reply came.
    #[serde(default)]
    pub billed: bool,
    /// The estimated output that had arrived. The provider charges for it, too.
    #[serde(default, rename = "heard", skip_serializing_if = "Tokens::is_zero")]
    pub received: Tokens,
}

word_enum! {
    /// The kind of a model call's fault.
    pub enum FaultKind {
        /// No connection: refused, unreachable, a name that does not resolve, lost while sending.
        Connect = "connect",
        /// A time limit of the call passed: connecting, first byte, silence, or the whole call.
        Timeout = "timeout",
        /// The provider asks for fewer requests.
        RateLimited = "rate_limited",
        /// The provider failed or is overloaded.
        Server = "server",
        /// The reply ended before its terminal event.
        Truncated = "truncated",
        /// The reply breaks its own protocol: invalid JSON, a repeated index, an unknown finish reason.
        Protocol = "protocol",
        /// The request does not fit the context window.
        Overflow = "overflow",
        /// The key is missing, wrong or not allowed to do this.
        Auth = "auth",
        /// The account has no credit or quota left.
        Quota = "quota",
        /// The provider refuses the content of the request.
        Refused = "refused",
        /// The request itself is wrong: a parameter, an address.
        Request = "request",
        /// The provider does not have the model, or does not offer it to this key.
        MissingModel = "missing_model",
        /// The response isn't from a model API: a captive portal, a web page, a redirect.
        NotAnApi = "not_an_api",
        /// The connection cannot be trusted: a certificate or its name is wrong.
        Tls = "tls",
        /// A hook of the user blocked the call or its reply.
        Blocked = "blocked",
        /// The budget that the run shares with others doesn't cover the call, which was not sent.
        Budget = "budget",
    }
}

/// A provider's advice on retrying (`x-should-retry`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "cli", derive(schemars::JsonSchema))]
pub enum RetryAdvice {
    /// No advice; the kind of fault decides.
    #[default]
    #[serde(rename = "silent")]
    Unspecified,
    /// A retry makes sense.
    #[serde(rename = "yes")]
    Retry,
    /// A retry makes no sense.
    #[serde(rename = "no")]
    GiveUp,
}

/// The possible reaction to a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FaultClass {
    /// The same request may succeed later.
    Transient,
    /// A smaller request may succeed.
    Overflow,
    /// A retry can't succeed until something is fixed.
    Fatal,
}

impl Fault {
    /// Returns a fault without a provider's advice or charges.
    pub fn new(kind: FaultKind, message: impl Into<Arc<str>>) -> Self {
        Self {
            kind,
            message: message.into(),
            advice: RetryAdvice::Unspecified,
            retry_after: None,
            billed: false,
            received: Tokens::ZERO,
        }
    }

    /// Returns the possible reaction to the fault. A provider's advice takes precedence, except that an overflow is
    /// never retried with the same request.
    pub fn class(&self) -> FaultClass {
        match (self.kind.class(), self.advice) {
            (FaultClass::Overflow, _) => FaultClass::Overflow,
            (_, RetryAdvice::Retry) => FaultClass::Transient,
            (_, RetryAdvice::GiveUp) => FaultClass::Fatal,
            (class, RetryAdvice::Unspecified) => class,
        }
    }
}

impl FaultKind {
    /// Returns the possible reaction to a fault of this kind if the provider gives no advice.
    pub fn class(self) -> FaultClass {
        match self {
            Self::Connect
            | Self::Timeout
            | Self::RateLimited
            | Self::Server
            | Self::Truncated
            | Self::Protocol => FaultClass::Transient,
            Self::Overflow => FaultClass::Overflow,
            Self::Auth
            | Self::Quota
            | Self::Refused
            | Self::Request
            | Self::MissingModel
            | Self::NotAnApi
            | Self::Tls
            | Self::Blocked
            | Self::Budget => FaultClass::Fatal,
        }
    }

    /// Returns whether another model may answer the same request, because this one is overloaded, out of reach or
    /// missing. The user has to see a wrong key, an empty account, a refusal or a wrong request.
    pub fn permits_fallback(self) -> bool {
        match self {
            Self::Connect
            | Self::Timeout
            | Self::RateLimited
            | Self::Server
            | Self::Truncated
            | Self::MissingModel => true,
            Self::Protocol
            | Self::Overflow
            | Self::Auth
            | Self::Quota
            | Self::Refused
            | Self::Request
            | Self::NotAnApi
            | Self::Tls
            | Self::Blocked
            | Self::Budget => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_decides_unless_the_request_is_too_large() {
        let class = |kind, retry| Fault { advice: retry, ..Fault::new(kind, "") }.class();
        assert_eq!(class(FaultKind::Server, RetryAdvice::GiveUp), FaultClass::Fatal);
        assert_eq!(class(FaultKind::Request, RetryAdvice::Retry), FaultClass::Transient);
        assert_eq!(class(FaultKind::Overflow, RetryAdvice::Retry), FaultClass::Overflow);
        assert_eq!(class(FaultKind::Auth, RetryAdvice::Unspecified), FaultClass::Fatal);
    }
}
