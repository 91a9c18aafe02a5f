//! Classifies network errors.

use crate::net::{ExchangePhase, NetError};
use crate::types::{Fault, FaultKind, RetryAdvice};

/// Returns the fault of a network error in attempt number `attempt`.
pub(crate) fn network_fault(error: &NetError, attempt: u32) -> Fault {
    let (kind, billed) = match error {
        NetError::Connect { .. } | NetError::Dns { .. } | NetError::Proxy { .. } => {
            (FaultKind::Connect, false)
        }
        // The provider may have received the request, and may charge for it.
        NetError::ConnectionLost { .. } => (FaultKind::Connect, true),
        NetError::Timeout { phase, .. } => {
            (FaultKind::Timeout, matches!(phase, ExchangePhase::FirstByte | ExchangePhase::Silence))
        }
        NetError::Tls { .. } => (FaultKind::Tls, false),
        NetError::BrokenResponse { .. } => (FaultKind::Truncated, true),
        NetError::TooLarge { .. } | NetError::HeadersTooLarge { .. } => (FaultKind::Protocol, true),
        NetError::NotHttp { .. } => (FaultKind::NotAnApi, false),
        NetError::InvalidRequest { .. } => (FaultKind::Request, false),
        NetError::Cancelled => (FaultKind::Connect, true),
    };
    let advice = match error {
        // At first, an unknown host may be a temporary failure; the second time, the address is wrong.
        NetError::Dns { is_unknown: true, .. } if attempt > 1 => RetryAdvice::GiveUp,
        NetError::Proxy { .. } => RetryAdvice::GiveUp,
        _ => RetryAdvice::Unspecified,
    };
    let mut message = error.to_string();
    match error {
        NetError::Dns { is_unknown: true, .. } => {
            message.push_str("; is the address of the provider right?");
        }
        NetError::Tls { cause, .. }
            if ["NotValidYet", "not valid yet", "Expired", "expired"]
                .iter()
                .any(|words| cause.contains(words)) =>
        {
            message.push_str("; is the clock of this machine right?");
        }
        NetError::Tls { cause, .. } if cause.contains("UnknownIssuer") => {
            message.push_str("; for a certificate authority of your own, set SSL_CERT_FILE");
        }
        _ => {}
    }
    Fault { advice, billed, ..Fault::new(kind, message) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::types::FaultClass;

    /// Fault L3.
    #[test]
    fn an_unknown_host_is_tried_twice() {
        let (host, cause) = ("nowhere.invalid".to_owned(), "not known".to_owned());
        let error = NetError::Dns { host, cause, is_unknown: true };
        assert_eq!(network_fault(&error, 1).class(), FaultClass::Transient);
        assert_eq!(network_fault(&error, 2).class(), FaultClass::Fatal);
        assert!(network_fault(&error, 2).message.contains("is the address of the provider right"));
    }

    /// Faults L5 and C3.
    #[test]
    fn an_untrusted_certificate_comes_with_a_hint() {
        let tls = |cause: &str| {
            let error = NetError::Tls { host: "h".to_owned(), cause: cause.to_owned() };
            network_fault(&error, 1)
        };
        assert!(tls("invalid peer certificate: UnknownIssuer").message.contains("SSL_CERT_FILE"));
        assert!(tls("invalid peer certificate: NotValidYet").message.contains("clock"));
        assert!(tls("invalid peer certificate: certificate expired: …").message.contains("clock"));
        assert_eq!(tls("").class(), FaultClass::Fatal);
    }

    #[test]
    fn only_what_may_have_reached_the_model_may_be_charged() {
        let timeout =
            |phase| NetError::Timeout { host: String::new(), phase, limit: Duration::from_secs(1) };
        assert!(!network_fault(&timeout(ExchangePhase::Connecting), 1).billed);
        assert!(network_fault(&timeout(ExchangePhase::FirstByte), 1).billed);
    }
}
