//! What a failed exchange means.

use crate::model::{Fault, FaultKind, RetryAdvice};
use crate::net::{NetError, Phase};

/// Returns what a failed exchange means for attempt number `attempt`.
pub(crate) fn explain(error: &NetError, attempt: u32) -> Fault {
    let (kind, billed) = match error {
        NetError::Connect { .. } | NetError::Name { .. } | NetError::Proxy { .. } => {
            (FaultKind::Connect, false)
        }
        // The request may have arrived, and the reply been written.
        NetError::Lost { .. } => (FaultKind::Connect, true),
        NetError::Timeout { phase, .. } => {
            (FaultKind::Timeout, matches!(phase, Phase::FirstByte | Phase::Silence))
        }
        NetError::Tls { .. } => (FaultKind::Tls, false),
        NetError::Broken { .. } => (FaultKind::Truncated, true),
        NetError::TooLarge { .. } => (FaultKind::Protocol, true),
        NetError::NotHttp { .. } => (FaultKind::NotAnApi, false),
        NetError::Request { .. } => (FaultKind::Request, false),
        NetError::Cancelled => (FaultKind::Connect, true),
    };
    let retry = match error {
        // A name that does not exist may be a hiccup once, and is a wrong address the second time.
        NetError::Name { is_unknown: true, .. } if attempt > 1 => RetryAdvice::No,
        NetError::Proxy { .. } => RetryAdvice::No,
        _ => RetryAdvice::Silent,
    };
    let mut message = error.to_string();
    match error {
        NetError::Name { is_unknown: true, .. } => {
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
    Fault { retry, billed, ..Fault::new(kind, message) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::model::FaultClass;

    /// Fault L3.
    #[test]
    fn a_name_that_does_not_exist_is_tried_twice_and_no_more() {
        let (host, cause) = ("nowhere.invalid".to_owned(), "not known".to_owned());
        let error = NetError::Name { host, cause, is_unknown: true };
        assert_eq!(explain(&error, 1).class(), FaultClass::Transient);
        assert_eq!(explain(&error, 2).class(), FaultClass::Fatal);
        assert!(explain(&error, 2).message.contains("is the address of the provider right"));
    }

    /// Faults L5 and C3.
    #[test]
    fn a_certificate_that_is_wrong_says_what_can_be_done() {
        let tls = |cause: &str| {
            let error = NetError::Tls { host: "h".to_owned(), cause: cause.to_owned() };
            explain(&error, 1)
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
        assert!(!explain(&timeout(Phase::Connecting), 1).billed);
        assert!(explain(&timeout(Phase::FirstByte), 1).billed);
    }
}
