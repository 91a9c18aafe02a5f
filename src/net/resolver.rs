//! Where hosts are.
//!
//! The library asks for the address of a host before every request, on a thread that it starts for that, also when a
//! connection is kept. A number needs nobody to look it up, and a name that was found a moment ago is still there.

use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;
use ureq::unversioned::transport::time::Duration as Limit;

/// Finds hosts, and remembers the one that was found last. Clones share what they remember.
#[derive(Clone, Debug, Default)]
pub(super) struct CachingResolver {
    system: Arc<DefaultResolver>,
    last: Arc<Mutex<Option<CachedAddress>>>,
}

#[derive(Debug)]
struct CachedAddress {
    host: String,
    found_at: Instant,
    addresses: ResolvedSocketAddrs,
}

/// How long an address is believed without asking again.
const CACHE_LIFETIME: Duration = Duration::from_secs(60);

impl CachingResolver {
    /// Forgets what was found: it may be the reason for something that failed.
    pub(super) fn forget(&self) {
        *self.last() = None;
    }

    /// Asks the system, which has no limit of its own; so a thread asks that is left alone when the time is over. The
    /// library would do the same, but panics without a thread.
    fn query_system(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let (tell, told) = mpsc::sync_channel(1);
        let (system, uri, config) = (Arc::clone(&self.system), uri.clone(), config.clone());
        let unlimited = NextTimeout { after: Limit::NotHappening, ..timeout };
        let ask = move || drop(tell.send(system.resolve(&uri, &config, unlimited)));
        thread::Builder::new().name("resolve".to_owned()).spawn(ask).map_err(ureq::Error::Io)?;
        match told.recv_timeout(*timeout.after) {
            Ok(found) => found,
            Err(RecvTimeoutError::Timeout) => Err(ureq::Error::Timeout(timeout.reason)),
            Err(RecvTimeoutError::Disconnected) => Err(ureq::Error::HostNotFound),
        }
    }

    fn last(&self) -> MutexGuard<'_, Option<CachedAddress>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
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
        let known = self.last().as_ref().and_then(|found| {
            let is_it = found.host == host && found.found_at.elapsed() < CACHE_LIFETIME;
            is_it.then(|| found.addresses.clone())
        });
        if let Some(addresses) = known {
            return Ok(addresses);
        }
        let addresses = self.query_system(uri, config, timeout)?;
        *self.last() =
            Some(CachedAddress { host, found_at: Instant::now(), addresses: addresses.clone() });
        Ok(addresses)
    }
}

/// Returns the address of a host that is given as a number.
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
