//! How servers are reached, as the environment says.

use super::{Endpoint, HttpOptions, HttpTimeouts, ProxyChoice, TrustedRoots};

impl HttpOptions {
    /// Returns how an address is reached: by the proxies (`HTTPS_PROXY`, `http_proxy`, `ALL_PROXY`, `NO_PROXY`) and
    /// certificates (`SSL_CERT_FILE`) that the variables name. An address on this machine is reached without a proxy.
    pub fn from_env(
        endpoint: &Endpoint,
        limits: HttpTimeouts,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Self {
        let set = |names: &[&str]| {
            names.iter().find_map(|name| env(name)).filter(|value| !value.trim().is_empty())
        };
        let proxies: &[&str] = match endpoint.is_secure() {
            true => &["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"],
            // The capital spelling can be set from outside in some servers, so that nobody reads it for plain HTTP.
            false => &["http_proxy", "ALL_PROXY", "all_proxy"],
        };
        let proxy = match set(proxies).filter(|_| !endpoint.is_loopback()) {
            None => ProxyChoice::Direct,
            Some(address) => ProxyChoice::Through {
                address,
                except: set(&["NO_PROXY", "no_proxy"]).unwrap_or_default(),
            },
        };
        let roots = set(&["SSL_CERT_FILE"])
            .map_or(TrustedRoots::System, |path| TrustedRoots::File(path.into()));
        Self { timeouts: limits, proxy, roots }
    }
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
        match HttpOptions::from_env(&endpoint, HttpTimeouts::default(), &env).proxy {
            ProxyChoice::Direct => None,
            ProxyChoice::Through { address, .. } => Some(address),
        }
    }

    #[test]
    fn the_proxy_is_that_of_the_scheme_and_none_for_this_machine() {
        assert_eq!(proxy("https://example.com").as_deref(), Some("http://secure:1"));
        assert_eq!(proxy("http://example.com").as_deref(), Some("http://plain:1"));
        assert_eq!(proxy("http://localhost:3000/mcp"), None);
    }
}
