//! The options of a client: timeouts, proxy, certificates.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ureq::Proxy;
use ureq::tls::{PemItem, RootCerts};

use super::Endpoint;

/// The timeouts of the phases of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpTimeouts {
    /// The timeout for resolving the host, and again for connecting and the TLS handshake.
    pub connect: Duration,
    /// The timeout from the request to the head of the response, and for each blocked write of the request.
    pub first_byte: Duration,
    /// The timeout between two reads of the response after its head.
    pub idle: Duration,
}

/// The options of a client.
#[derive(Clone, Debug, Default)]
pub struct HttpOptions {
    /// The timeouts.
    pub timeouts: HttpTimeouts,
    /// The proxy; `None` to connect directly.
    pub proxy: Option<HttpProxy>,
    /// A PEM file with the only trusted certificates; `None` for those of the system.
    pub trusted_roots: Option<PathBuf>,
}

/// The proxy for requests, except for some hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpProxy {
    /// The address, `http://host:port` or `socks5://host:port`.
    pub address: String,
    /// The hosts that are reached without the proxy, separated by commas (`NO_PROXY`).
    pub except: String,
}

impl Default for HttpTimeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            first_byte: Duration::from_secs(60),
            idle: Duration::from_secs(120),
        }
    }
}

impl HttpOptions {
    /// Returns the options for an endpoint from the environment: the proxies (`HTTPS_PROXY`, `http_proxy`, `ALL_PROXY`,
    /// `NO_PROXY`) and certificates (`SSL_CERT_FILE`). This machine is reached without a proxy.
    pub fn from_env(
        endpoint: &Endpoint,
        timeouts: HttpTimeouts,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Self {
        let set = |names: &[&str]| {
            names.iter().find_map(|name| env(name)).filter(|value| !value.trim().is_empty())
        };
        let proxies: &[&str] = match endpoint.is_secure() {
            true => &["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"],
            // `HTTP_PROXY` is ignored, as usual: in CGI programs, a client can set it by a header.
            false => &["http_proxy", "ALL_PROXY", "all_proxy"],
        };
        let address = set(proxies).filter(|_| !endpoint.is_loopback());
        let except = || set(&["NO_PROXY", "no_proxy"]).unwrap_or_default();
        let proxy = address.map(|address| HttpProxy { address, except: except() });
        Self { timeouts, proxy, trusted_roots: set(&["SSL_CERT_FILE"]).map(PathBuf::from) }
    }
}

/// Returns the proxy for the HTTP library; `None` if its address is invalid.
pub(super) fn parse_proxy(HttpProxy { address, except }: &HttpProxy) -> Option<Proxy> {
    let proxy = Proxy::new(address).ok()?;
    let mut builder = Proxy::builder(proxy.protocol()).host(proxy.host()).port(proxy.port());
    if let Some(name) = proxy.username() {
        builder = builder.username(name);
    }
    if let Some(password) = proxy.password() {
        builder = builder.password(password);
    }
    let hosts = except.split(',').map(str::trim).filter(|host| !host.is_empty());
    // As in other programs, a name includes its subdomains.
    let names = hosts.flat_map(|host| {
        let is_name = !host.starts_with(['.', '*', '[']) && host.parse::<IpAddr>().is_err();
        [Some(host.to_owned()), is_name.then(|| format!(".{host}"))].into_iter().flatten()
    });
    names.fold(builder, |builder, name| builder.no_proxy(&name)).build().ok()
}

/// Reads the trusted certificates of a file; fails with the reason.
pub(super) fn load_certificates(path: &Path) -> Result<RootCerts, String> {
    let pem = fs::read(path).map_err(|error| error.to_string())?;
    let mut found = Vec::new();
    for item in ureq::tls::parse_pem(&pem) {
        if let PemItem::Certificate(certificate) = item.map_err(|error| error.to_string())? {
            found.push(certificate);
        }
    }
    if found.is_empty() {
        return Err("it has no certificates".to_owned());
    }
    Ok(RootCerts::Specific(Arc::new(found)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxy(address: &str) -> Option<String> {
        let env = |name: &str| match name {
            "HTTPS_PROXY" => Some("http://secure:1".to_owned()),
            "HTTP_PROXY" => Some("http://set-by-a-request:1".to_owned()),
            "http_proxy" => Some("http://plain:1".to_owned()),
            _ => None,
        };
        let endpoint = Endpoint::parse(address, true).unwrap();
        let options = HttpOptions::from_env(&endpoint, HttpTimeouts::default(), &env);
        options.proxy.map(|proxy| proxy.address)
    }

    #[test]
    fn a_name_without_a_proxy_stands_for_its_subdomains() {
        let except = "corp.test, 10.0.0.1,.own.test".to_owned();
        let proxy = parse_proxy(&HttpProxy { address: "http://proxy.test:1".to_owned(), except });
        let proxy = proxy.unwrap();
        let is_direct = |host: &str| proxy.is_no_proxy(&format!("http://{host}/").parse().unwrap());
        for host in ["corp.test", "llm.corp.test", "10.0.0.1", "a.own.test"] {
            assert!(is_direct(host), "{host}");
        }
        assert!(!is_direct("mycorp.test") && !is_direct("corp.test.com"));
    }

    #[test]
    fn the_proxy_depends_on_the_scheme_and_is_skipped_for_loopback() {
        assert_eq!(proxy("https://example.com").as_deref(), Some("http://secure:1"));
        assert_eq!(proxy("http://example.com").as_deref(), Some("http://plain:1"));
        assert_eq!(proxy("http://localhost:3000/mcp"), None);
    }
}
