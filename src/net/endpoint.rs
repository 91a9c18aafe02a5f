//! Base URLs.

use std::fmt;
use std::net::IpAddr;

use thiserror::Error;
use ureq::http::Uri;

use super::secret_forms::MASK;

/// The base URL of an API: scheme, host, and path prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Scheme, host and port.
    origin: String,
    host: String,
    /// The path without a trailing slash; empty for the root.
    path: String,
    query: Option<String>,
    is_secure: bool,
}

/// An invalid base URL.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EndpointError {
    /// The text is not of the form `https://host/path`. The given text omits parts that may be a password or a key.
    #[error("'{0}' is not an address of the form https://host/path")]
    Malformed(String),
    /// The URL has a user name or a password, which would appear in logs.
    #[error("the address of {0} has a user name or a password in it")]
    Credentials(String),
    /// The URL is an unencrypted URL of another machine; the network could read the key.
    #[error("http://{0} is not encrypted, and a key sent there could be read on the way")]
    Unencrypted(String),
}

impl Endpoint {
    /// Parses a base URL. The default scheme is `http` for this machine and `https` for others.
    ///
    /// # Errors
    ///
    /// Fails for an invalid URL, for credentials, and for `http` to another machine unless `allow_http` is set.
    pub fn parse(text: &str, allow_http: bool) -> Result<Self, EndpointError> {
        let text = text.trim();
        let malformed = || EndpointError::Malformed(without_secrets(text).to_owned());
        let full = if text.contains("://") {
            text.to_owned()
        } else {
            let host: Uri = format!("http://{text}").parse().map_err(|_| malformed())?;
            let is_here = host.host().is_some_and(is_loopback_host);
            format!("{}://{text}", if is_here { "http" } else { "https" })
        };
        let uri: Uri = full.parse().map_err(|_| malformed())?;
        let authority = uri.authority().ok_or_else(malformed)?;
        let host = authority.host().to_owned();
        if authority.as_str().contains('@') {
            return Err(EndpointError::Credentials(host));
        }
        // The library accepts any text as a port.
        let rest = authority.as_str().strip_prefix(&*host).unwrap_or_default();
        let port = rest.strip_prefix(':').filter(|port| !port.is_empty());
        if port.is_some_and(|port| port.parse::<u16>().is_err()) {
            return Err(malformed());
        }
        let secure = match uri.scheme_str() {
            Some("https") => true,
            Some("http") if allow_http || is_loopback_host(&host) => false,
            Some("http") => return Err(EndpointError::Unencrypted(host)),
            _ => return Err(malformed()),
        };
        if host.is_empty() {
            return Err(malformed());
        }
        Ok(Self {
            origin: format!("{}://{authority}", if secure { "https" } else { "http" }),
            path: uri.path().trim_end_matches('/').to_owned(),
            query: uri.query().map(str::to_owned),
            host,
            is_secure: secure,
        })
    }

    /// Returns the URL for a path below this one.
    pub fn join(&self, path: &str) -> String {
        let Self { origin, path: base, query, .. } = self;
        match query {
            Some(query) if path.contains('?') => format!("{origin}{base}{path}&{query}"),
            Some(query) => format!("{origin}{base}{path}?{query}"),
            None => format!("{origin}{base}{path}"),
        }
    }

    /// Returns the host.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the path without a trailing slash.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the URL with another path.
    pub fn with_path(self, path: &str) -> Self {
        Self { path: path.to_owned(), ..self }
    }

    /// Returns whether scheme, host and port are the same as those of another endpoint.
    pub fn has_same_origin(&self, other: &Self) -> bool {
        self.normal_origin() == other.normal_origin()
    }

    /// Returns the origin in lower case, without the default port.
    fn normal_origin(&self) -> String {
        let origin = self.origin.to_ascii_lowercase();
        let default_port = if self.is_secure { ":443" } else { ":80" };
        origin.strip_suffix(default_port).map(str::to_owned).unwrap_or(origin)
    }

    /// Returns whether the host is this machine, which is reached without a proxy.
    pub fn is_loopback(&self) -> bool {
        is_loopback_host(&self.host)
    }

    /// Returns whether the connection is encrypted.
    pub fn is_secure(&self) -> bool {
        self.is_secure
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.origin, self.path)
    }
}

/// Returns an invalid address without its parameters, or [`MASK`] if it may contain a password.
fn without_secrets(text: &str) -> &str {
    match text.contains('@') {
        true => MASK,
        false => text.split(['?', '#']).next().unwrap_or_default(),
    }
}

/// Returns whether a host is this machine, going by its name alone.
fn is_loopback_host(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let address: Result<IpAddr, _> = bare.parse();
    match address {
        // The unspecified address is this machine; local servers often listen on it.
        Ok(address) => address.is_loopback() || address.is_unspecified(),
        Err(_) => host.eq_ignore_ascii_case("localhost"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn join(base: &str) -> String {
        Endpoint::parse(base, false).unwrap().join("/chat")
    }

    #[test]
    fn paths_are_joined_with_one_slash() {
        assert_eq!(join("https://api.example.com/v1/"), "https://api.example.com/v1/chat");
        assert_eq!(join("https://api.example.com"), "https://api.example.com/chat");
        assert_eq!(join("https://h/v1?version=2"), "https://h/v1/chat?version=2");
        assert_eq!(join("http://[::1]:8080/v1"), "http://[::1]:8080/v1/chat");
    }

    #[test]
    fn an_origin_is_scheme_host_and_port() {
        let origin = Endpoint::parse("https://h.example/v1", false).unwrap();
        for (other, is_same) in [
            ("https://H.example:443/other?key=1", true),
            ("https://h.example:8443", false),
            ("http://h.example", false),
            ("https://h.example.net", false),
        ] {
            let other = Endpoint::parse(other, true).unwrap();
            assert_eq!(origin.has_same_origin(&other), is_same, "{other}");
        }
    }

    #[test]
    fn a_missing_scheme_defaults_to_https_unless_loopback() {
        assert_eq!(join("localhost:11434"), "http://localhost:11434/chat");
        assert_eq!(join("0.0.0.0:11434"), "http://0.0.0.0:11434/chat");
        assert_eq!(join("example.com/v1"), "https://example.com/v1/chat");
    }

    /// Fault L7.
    #[test]
    fn plain_http_to_another_host_needs_permission() {
        for far in ["http://example.com/v1", "http://10.0.0.1", "http://localhost.example.com"] {
            assert!(matches!(Endpoint::parse(far, false), Err(EndpointError::Unencrypted(_))));
            assert!(Endpoint::parse(far, true).is_ok());
        }
        for near in ["http://127.0.0.1:1", "http://localhost", "http://[::1]:1", "http://127.9.9.9"]
        {
            assert!(Endpoint::parse(near, false).is_ok(), "{near}");
        }
    }

    #[test]
    fn an_invalid_address_is_rejected() {
        for text in ["", "ftp://host", "http://", "https:///path", "ws://host", "a b"] {
            let refused = Endpoint::parse(text, true);
            assert!(matches!(refused, Err(EndpointError::Malformed(_))), "{text:?} {refused:?}");
        }
        for (text, shown) in [
            ("https://me:canary/x@host/v1", "***"),
            ("https://me:can?ary@host/v1", "***"),
            ("a b?key=canary", "a b"),
            ("https://host:port/v1", "https://host:port/v1"),
            ("https://[::1]:65536", "https://[::1]:65536"),
        ] {
            let refused = Endpoint::parse(text, true);
            assert_eq!(refused, Err(EndpointError::Malformed(shown.to_owned())), "{text}");
        }
        for good in ["http://[::1]", "http://[::1]:80", "https://host:"] {
            assert!(Endpoint::parse(good, false).is_ok(), "{good}");
        }
        let refused = Endpoint::parse("https://me:canary@host/v1", true);
        assert_eq!(refused, Err(EndpointError::Credentials("host".to_owned())));
    }
}
