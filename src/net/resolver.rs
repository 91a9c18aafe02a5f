//! Resolves hosts.
//!
//! The library resolves the host before every request, on a new thread, even if a connection was kept. So numeric
//! addresses are handled without a lookup, and the last result is cached.

use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;
use ureq::unversioned::transport::time::Duration as Limit;

use crate::port::lock;

/// Resolves hosts, and caches the last result. Clones share the cache.
#[derive(Clone, Debug, Default)]
pub(super) struct CachingResolver {
    system: Arc<DefaultResolver>,
    /// A host, its addresses, and the time at which they were found.
    last: Arc<Mutex<Option<(String, ResolvedSocketAddrs, Instant)>>>,
}

/// The time for which a result is cached.
const CACHE_LIFETIME: Duration = Duration::from_secs(60);

impl CachingResolver {
    /// Clears the cache after a failure that a stale address may have caused.
    pub(super) fn forget(&self) {
        *lock(&self.last) = None;
    }

    /// Queries the system on a thread, since the system has no timeout. The library does the same, but panics if no
    /// thread can be created.
    fn query_system(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let (sender, receiver) = mpsc::sync_channel(1);
        let (system, uri, config) = (Arc::clone(&self.system), uri.clone(), config.clone());
        let unlimited = NextTimeout { after: Limit::NotHappening, ..timeout };
        let resolve = move || drop(sender.send(system.resolve(&uri, &config, unlimited)));
        thread::Builder::new()
            .name("resolve".to_owned())
            .spawn(resolve)
            .map_err(ureq::Error::Io)?;
        match receiver.recv_timeout(*timeout.after) {
            Ok(found) => found,
            Err(RecvTimeoutError::Timeout) => Err(ureq::Error::Timeout(timeout.reason)),
            Err(RecvTimeoutError::Disconnected) => Err(ureq::Error::HostNotFound),
        }
    }
}

impl Resolver for CachingResolver {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        if let Some(address) = numeric_address(uri) {
            let mut addresses = self.empty();
            addresses.push(address);
            return Ok(addresses);
        }
        let host = format!(
            "{}://{}",
            uri.scheme_str().unwrap_or_default(),
            uri.authority().map_or("", |a| a.as_str())
        );
        if let Some((known, addresses, found_at)) = &*lock(&self.last)
            && *known == host
            && found_at.elapsed() < CACHE_LIFETIME
        {
            return Ok(addresses.clone());
        }
        let addresses = self.query_system(uri, config, timeout)?;
        *lock(&self.last) = Some((host, addresses.clone(), Instant::now()));
        Ok(addresses)
    }
}

/// Returns the address of a numeric host.
fn numeric_address(uri: &Uri) -> Option<SocketAddr> {
    let default = match uri.scheme_str()? {
        "http" => 80,
        "https" => 443,
        _ => return None,
    };
    let host = uri.host()?.trim_start_matches('[').trim_end_matches(']');
    let address: IpAddr = host.parse().ok()?;
    Some(SocketAddr::new(address, uri.port_u16().unwrap_or(default)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(uri: &str) -> Option<String> {
        numeric_address(&uri.parse().unwrap()).map(|address| address.to_string())
    }

    #[test]
    fn a_numeric_address_needs_no_lookup() {
        assert_eq!(found("http://127.0.0.1:8080/v1").unwrap(), "127.0.0.1:8080");
        assert_eq!(found("https://[::1]/v1").unwrap(), "[::1]:443");
        assert_eq!(found("http://10.0.0.1/").unwrap(), "10.0.0.1:80");
        assert_eq!(found("https://example.com/"), None);
        assert_eq!(found("socks5://127.0.0.1:1"), None);
    }
}
