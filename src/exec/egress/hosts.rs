//! The hosts that commands may reach, and the addresses that their names may resolve to.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The hosts that commands may reach: names and patterns of names, none by default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllowedHosts(Vec<HostPattern>);

/// An entry of the list: `packages.example.com` or `*.example.org`, optionally with `:PORT`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HostPattern {
    /// The name in lower case, without `*.` and without a final dot.
    name: String,
    /// Whether it matches every name below `name` instead of `name` itself.
    is_wildcard: bool,
    /// The only allowed port; `None` for every port.
    port: Option<u16>,
}

/// An error in an entry of the list.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("'{entry}' {problem}")]
pub struct HostPatternError {
    entry: String,
    problem: &'static str,
}

/// The reason for refusing a connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Error)]
pub enum ConnectionRefusal {
    /// No entry of the list allows the host and port.
    #[error("{0}:{1} is not in sandbox.allowed_hosts")]
    NotAllowed(String, u16),
    /// The host is an address instead of a name.
    #[error("{0}:{1} is an address, and sandbox.allowed_hosts accepts names only")]
    Address(String, u16),
    /// The name resolves to an address that its entry does not allow.
    #[error("{host} resolves to {address}, {why}")]
    InternalAddress {
        /// The requested name.
        host: String,
        /// The address of the name.
        address: IpAddr,
        /// The reason why the address is not allowed.
        why: &'static str,
    },
    /// TLS for a host other than that of the connection.
    #[error("a connection to {host} requested {asked} inside TLS")]
    OtherName {
        /// The host of the connection.
        host: String,
        /// The requested server name.
        asked: String,
    },
    /// A tunnel without TLS.
    #[error("a connection to {0}:{1} does not use TLS; an entry with its port would allow that")]
    NotTls(String, u16),
    /// An invalid request.
    #[error("invalid request to the proxy: {0}")]
    Malformed(&'static str),
}

impl FromIterator<HostPattern> for AllowedHosts {
    fn from_iter<I: IntoIterator<Item = HostPattern>>(entries: I) -> Self {
        Self(entries.into_iter().collect())
    }
}

impl AllowedHosts {
    /// Returns whether the list allows servers on this machine.
    #[cfg(target_os = "linux")]
    pub(super) fn has_localhost(&self) -> bool {
        self.0.iter().any(HostPattern::is_localhost)
    }

    /// Returns the entry that allows a connection. Entries without a wildcard take precedence.
    ///
    /// # Errors
    ///
    /// Fails when no entry allows the connection, and when the host is an address.
    pub(super) fn find(&self, host: &str, port: u16) -> Result<&HostPattern, ConnectionRefusal> {
        let host = normalize_host(host);
        if is_address(&host) {
            return Err(ConnectionRefusal::Address(host, port));
        }
        if !is_name(&host) {
            return Err(ConnectionRefusal::Malformed("its host is not a name"));
        }
        let mut matching: Vec<_> =
            self.0.iter().filter(|pattern| pattern.matches(&host, port)).collect();
        matching.sort_by_key(|pattern| (pattern.is_wildcard, pattern.port.is_none()));
        matching.first().copied().ok_or(ConnectionRefusal::NotAllowed(host, port))
    }
}

impl HostPattern {
    /// Parses an entry.
    ///
    /// # Errors
    ///
    /// Fails when the entry is not a name or a pattern of names, optionally with a port.
    pub fn parse(entry: &str) -> Result<Self, HostPatternError> {
        let invalid = |problem| HostPatternError { entry: entry.to_owned(), problem };
        let not_a_host = || {
            invalid(
                "is not a host: use a name like packages.example.com or *.example.org, with :PORT if wanted",
            )
        };
        let text = entry.trim();
        if is_address(text) || text.parse::<std::net::SocketAddr>().is_ok() {
            return Err(invalid("is an address; use a host name"));
        }
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) => {
                let port = port.parse().ok().filter(|port| *port != 0).ok_or_else(not_a_host)?;
                (host, Some(port))
            }
            None => (text, None),
        };
        let (name, is_wildcard) = match host.strip_prefix("*.") {
            Some(name) => (name, true),
            None => (host, false),
        };
        let name = normalize_host(name);
        if is_address(&name) {
            return Err(invalid("is an address; use a host name"));
        }
        let is_top_level = is_wildcard && !name.contains('.') && name != "localhost";
        if name == "*" || is_top_level && is_name(&name) {
            return Err(invalid("would allow every host; use network = \"on\" for that"));
        }
        if is_name(&name) { Ok(Self { name, is_wildcard, port }) } else { Err(not_a_host()) }
    }

    fn matches(&self, host: &str, port: u16) -> bool {
        let is_host = if self.is_wildcard {
            host.strip_suffix(&self.name).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
        } else {
            host == self.name
        };
        is_host && self.port.is_none_or(|allowed| allowed == port)
    }

    fn is_localhost(&self) -> bool {
        self.name == "localhost" || self.name.ends_with(".localhost")
    }

    /// Returns whether the entry names a port, which allows protocols other than TLS.
    pub(super) fn names_port(&self) -> bool {
        self.port.is_some()
    }

    /// Checks an address of the name.
    ///
    /// Loopback addresses are allowed for `localhost` only, and private networks for names that are listed in full.
    /// Link-local addresses, and metadata addresses, at which clouds issue credentials, are not allowed for any name.
    ///
    /// # Errors
    ///
    /// Fails when the entry does not allow the address.
    pub(super) fn check(&self, host: &str, address: IpAddr) -> Result<(), ConnectionRefusal> {
        let inside =
            |why| Err(ConnectionRefusal::InternalAddress { host: host.to_owned(), address, why });
        let reach = match address_scope(address) {
            AddressScope::Global | AddressScope::Private if is_own(address) => {
                AddressScope::Loopback
            }
            reach => reach,
        };
        match reach {
            AddressScope::Global => Ok(()),
            AddressScope::Private if !self.is_wildcard => Ok(()),
            AddressScope::Private => inside("a private network, which only a full name may reach"),
            AddressScope::Loopback if self.is_localhost() => Ok(()),
            AddressScope::Loopback => inside("this machine, which only localhost may reach"),
            AddressScope::Unreachable => inside("which no host may reach"),
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let star = if self.is_wildcard { "*." } else { "" };
        write!(f, "{star}{}", self.name)?;
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

/// The scope of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AddressScope {
    Global,
    Private,
    Loopback,
    /// Link-local, multicast, unspecified, reserved.
    Unreachable,
}

/// Metadata services of clouds outside of the link-local range: Alibaba, Azure, Oracle, Amazon, Google.
const METADATA: [IpAddr; 5] = [
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
];

/// Returns whether an address belongs to an interface of this machine: packets to it then have it as their source, too.
fn is_own(address: IpAddr) -> bool {
    let address = address.to_canonical();
    let any: IpAddr =
        if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    // `connect` sends nothing; it selects the source address.
    UdpSocket::bind((any, 0))
        .and_then(|socket| socket.connect((address, 9)).and_then(|()| socket.local_addr()))
        .is_ok_and(|own| own.ip() == address)
}

fn address_scope(address: IpAddr) -> AddressScope {
    if METADATA.contains(&address) {
        return AddressScope::Unreachable;
    }
    match address {
        IpAddr::V4(v4) => {
            let [a, b, ..] = v4.octets();
            if v4.is_loopback() {
                AddressScope::Loopback
            } else if v4.is_private() || (a == 100 && (64..128).contains(&b)) {
                AddressScope::Private
            } else if v4.is_link_local() || v4.is_multicast() || a == 0 || a >= 240 {
                AddressScope::Unreachable
            } else {
                AddressScope::Global
            }
        }
        IpAddr::V6(v6) => {
            if let Some(v4) = v6.to_ipv4_mapped() {
                return address_scope(IpAddr::V4(v4));
            }
            // Prefixes that embed an IPv4 address: 6to4, NAT64.
            let embedded = |high: u16, low: u16| {
                address_scope(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)).into())
            };
            match v6.segments() {
                [0x2002, high, low, ..] => embedded(high, low),
                [0x64, 0xff9b, 0, 0, 0, 0, high, low] => embedded(high, low),
                _ if v6.is_loopback() => AddressScope::Loopback,
                _ if v6.is_unique_local() => AddressScope::Private,
                // Global unicast is 2000::/3; the rest is link-local, multicast, unspecified or reserved.
                [first, ..] if first & 0xe000 == 0x2000 => AddressScope::Global,
                _ => AddressScope::Unreachable,
            }
        }
    }
}

/// Returns a name in its form for comparison, in lower case and without a final dot.
pub(super) fn normalize_host(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

pub(super) fn is_name(name: &str) -> bool {
    let is_label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    !name.is_empty() && name.len() <= 253 && name.split('.').all(is_label)
}

/// Returns whether a host is an address, in any notation that resolvers accept: `127.1`, `0x7f000001`, `[::1]`.
fn is_address(host: &str) -> bool {
    if host.contains('[') || host.parse::<IpAddr>().is_ok() {
        return true;
    }
    // The last label of a name is never a number.
    let last = host.rsplit('.').next().unwrap_or_default();
    let digits = last.strip_prefix("0x").or_else(|| last.strip_prefix("0X"));
    match digits {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => !last.is_empty() && last.bytes().all(|byte| byte.is_ascii_digit()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[&str]) -> AllowedHosts {
        entries.iter().map(|entry| HostPattern::parse(entry).unwrap()).collect()
    }

    #[test]
    fn a_name_is_allowed_as_it_is_listed() {
        let hosts = list(&["packages.example.com", "*.example.org", "git.example.net:22"]);
        for (host, port, is_allowed) in [
            ("packages.example.com", 443, true),
            ("PACKAGES.example.com.", 80, true),
            ("a.packages.example.com", 443, false),
            ("xpackages.example.com", 443, false),
            ("packages.example.com.evil.net", 443, false),
            ("a.example.org", 443, true),
            ("a.b.example.org", 443, true),
            ("example.org", 443, false),
            (".example.org", 443, false),
            ("evilexample.org", 443, false),
            ("git.example.net", 22, true),
            ("git.example.net", 443, false),
            ("", 443, false),
        ] {
            assert_eq!(hosts.find(host, port).is_ok(), is_allowed, "{host}:{port}");
        }
    }

    #[test]
    fn an_interface_of_this_machine_belongs_to_localhost() {
        assert!(is_own("127.0.0.1".parse().unwrap()) && !is_own("192.0.2.1".parse().unwrap()));
        let route = UdpSocket::bind("0.0.0.0:0").unwrap();
        let Ok(()) = route.connect("192.0.2.1:9") else { return eprintln!("skipped: no network") };
        let own = route.local_addr().unwrap().ip();
        let IpAddr::V4(v4) = own else { panic!() };
        let hosts = list(&["full.example.com", "*.example.org", "localhost"]);
        for address in [own, v4.to_ipv6_mapped().into()] {
            for host in ["full.example.com", "a.example.org"] {
                let checked = hosts.find(host, 443).unwrap().check(host, address);
                assert!(
                    matches!(checked, Err(ConnectionRefusal::InternalAddress { .. })),
                    "{host} {address}"
                );
            }
        }
        assert!(hosts.find("localhost", 443).unwrap().check("localhost", own).is_ok());
    }

    #[test]
    fn invalid_names_are_refused_below_a_pattern() {
        let hosts = list(&["*.example.org"]);
        for host in ["::1%x.example.org", "a/b.example.org", "a\\b.example.org", "ä.example.org"] {
            assert!(matches!(hosts.find(host, 80), Err(ConnectionRefusal::Malformed(_))), "{host}");
        }
    }

    #[test]
    fn an_address_is_refused_in_every_spelling() {
        let hosts = list(&["*.example.org", "localhost"]);
        for host in
            ["127.0.0.1", "127.1", "2130706433", "0x7f000001", "0x7F.1", "[::1]", "::1", "1.2.3.4."]
        {
            assert!(matches!(hosts.find(host, 80), Err(ConnectionRefusal::Address(..))), "{host}");
        }
    }

    #[test]
    fn invalid_entries_are_refused() {
        for entry in [
            "",
            "*",
            "*.com",
            "10.0.0.1",
            "[::1]:80",
            "a b",
            "http://a.example",
            "a.example/x",
            "a.example:0",
            "a..b",
            "*.*.example.org",
            "a.*.org",
            "*x.example.org",
        ] {
            assert!(HostPattern::parse(entry).is_err(), "{entry}");
        }
    }

    #[test]
    fn a_name_resolves_to_global_addresses_unless_listed_in_full() {
        let hosts = list(&["full.example.com", "*.example.org", "localhost"]);
        for (host, address, is_allowed) in [
            ("a.example.org", "93.184.216.34", true),
            ("a.example.org", "10.1.2.3", false),
            ("full.example.com", "10.1.2.3", true),
            ("full.example.com", "100.64.0.1", true),
            ("full.example.com", "127.0.0.1", false),
            ("full.example.com", "169.254.169.254", false),
            ("full.example.com", "fe80::1", false),
            ("full.example.com", "fd00::1", true),
            ("a.example.org", "fd00::1", false),
            ("a.example.org", "2606:2800::1", true),
            ("a.example.org", "::ffff:127.0.0.1", false),
            ("full.example.com", "::ffff:169.254.169.254", false),
            ("full.example.com", "64:ff9b::7f00:1", false),
            ("full.example.com", "2002:7f00:1::", false),
            ("full.example.com", "0.0.0.0", false),
            ("full.example.com", "::", false),
            ("localhost", "127.0.0.1", true),
            ("localhost", "::1", true),
            ("localhost", "169.254.169.254", false),
            ("full.example.com", "::127.0.0.1", false),
            ("full.example.com", "::ffff:100.100.100.200", false),
            ("full.example.com", "100.100.100.200", false),
            ("full.example.com", "168.63.129.16", false),
            ("full.example.com", "192.0.0.192", false),
            ("full.example.com", "fd00:ec2::254", false),
            ("full.example.com", "fd20:ce::254", false),
            ("localhost", "fd00:ec2::254", false),
        ] {
            let entry = hosts.find(host, 443).unwrap();
            let checked = entry.check(host, address.parse().unwrap());
            assert_eq!(checked.is_ok(), is_allowed, "{host} {address}");
        }
    }
}
