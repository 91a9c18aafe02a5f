//! HTTP exchanges with a timeout for each phase and cancellation.

use std::io::Read;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use std::{fmt, fs};

use ureq::config::AutoHeaderValue;
use ureq::tls::{PemItem, RootCerts, TlsConfig};
use ureq::unversioned::transport::{Connector as _, DefaultConnector};
use ureq::{Agent, BodyReader, Proxy, SendBody, http};

use super::body::RequestBody;
use super::drain::ResponseDrain;
use super::error::{ErrorContext, NetError, ResponsePart, Result};
use super::resolver::CachingResolver;
use super::timed_transport::TimedConnector;
use super::{Endpoint, HeaderMap, header};
use crate::port::{CancelRegistration, CancellationToken, lock};

pub use http::Method;

/// An HTTP client that keeps connections. Clones share them.
#[derive(Clone, Debug)]
pub struct HttpClient(Arc<HttpClientState>);

#[derive(Debug)]
struct HttpClientState {
    config: ureq::config::Config,
    timeouts: HttpTimeouts,
    pool: Mutex<ConnectionPool>,
    drain: ResponseDrain,
}

/// An agent with its connections. A cancelled exchange closes all of them, and a new pool replaces this one.
#[derive(Clone, Debug)]
struct ConnectionPool {
    agent: Agent,
    resolver: CachingResolver,
    /// Whether it may have a used connection, which the server may have closed.
    has_reused: Arc<AtomicBool>,
}

/// The timeouts of the phases of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpTimeouts {
    /// For resolving the host, and again for connecting with the TLS handshake.
    pub connect: Duration,
    /// From the request to the head of the response, and for each blocked write of the request.
    pub first_byte: Duration,
    /// Between two reads of the response after its head.
    pub idle: Duration,
}

/// The options of a client.
#[derive(Clone, Debug, Default)]
pub struct HttpOptions {
    /// The timeouts.
    pub timeouts: HttpTimeouts,
    /// The proxy, if there is one.
    pub proxy: Option<HttpProxy>,
    /// A PEM file with the only trusted certificates, in place of those of the system.
    pub trusted_roots: Option<PathBuf>,
}

/// The proxy for requests, except for some hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpProxy {
    /// The address, `http://host:port` or `socks5://host:port`.
    pub address: String,
    /// The hosts without a proxy, separated by commas (`NO_PROXY`).
    pub except: String,
}

/// An HTTP request.
#[derive(Clone, Debug)]
pub struct HttpRequest {
    /// The method.
    pub method: Method,
    /// The URL.
    pub url: String,
    /// The headers, except for those of the body.
    pub headers: HeaderMap,
    /// The body.
    pub body: RequestBody,
}

/// A response whose head was received. [`HttpResponse::read`] reads the body.
pub struct HttpResponse {
    /// The status code.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    host: String,
    reader: BodyReader<'static>,
    bytes_read: u64,
    /// Unregisters the cancellation when the response is dropped.
    cancel_guard: Option<CancelRegistration>,
    cancel: CancellationToken,
    client: HttpClient,
    has_reused: Arc<AtomicBool>,
}

/// The size limit of a response.
const MAX_RESPONSE_BYTES: u64 = 64 << 20;

/// The size of a buffer, four times that of a TLS record. The head of a response has to fit into it.
const BUFFER_SIZE: usize = 64 << 10;

/// How long an idle connection is kept: long enough for a tool to run between two calls.
const IDLE_CONNECTION_TIMEOUT: Duration = Duration::from_secs(90);

/// The time within which a request on a connection that the server has closed fails.
const STALE_CONNECTION_TIME: Duration = Duration::from_secs(1);

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
            // `HTTP_PROXY` is ignored as usual: in CGI programs a client can set it by a header.
            false => &["http_proxy", "ALL_PROXY", "all_proxy"],
        };
        let address = set(proxies).filter(|_| !endpoint.is_loopback());
        let except = || set(&["NO_PROXY", "no_proxy"]).unwrap_or_default();
        let proxy = address.map(|address| HttpProxy { address, except: except() });
        Self { timeouts, proxy, trusted_roots: set(&["SSL_CERT_FILE"]).map(PathBuf::from) }
    }
}

impl HttpClient {
    /// Returns a client without connections.
    ///
    /// # Errors
    ///
    /// Fails for an invalid proxy address or an unusable file of certificates.
    pub fn new(options: &HttpOptions) -> Result<Self> {
        let invalid = |cause| NetError::InvalidRequest { cause };
        let proxy = options.proxy.as_ref().map(|proxy| {
            parse_proxy(proxy).ok_or_else(|| invalid("invalid proxy address".to_owned()))
        });
        let roots = match &options.trusted_roots {
            None => RootCerts::PlatformVerifier,
            Some(path) => load_certificates(path).map_err(|cause| {
                let path = path.display();
                invalid(format!("could not use the certificates in {path}: {cause}"))
            })?,
        };
        let timeouts = options.timeouts;
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .proxy(proxy.transpose()?)
            .tls_config(TlsConfig::builder().root_certs(roots).build())
            .user_agent(AutoHeaderValue::Provided(Arc::new(
                concat!("architect/", env!("CARGO_PKG_VERSION")).to_owned(),
            )))
            .timeout_resolve(Some(timeouts.connect))
            .timeout_connect(Some(timeouts.connect))
            .timeout_recv_response(Some(timeouts.first_byte))
            .timeout_per_write(Some(timeouts.first_byte))
            .max_idle_age(IDLE_CONNECTION_TIMEOUT)
            .input_buffer_size(BUFFER_SIZE)
            .output_buffer_size(BUFFER_SIZE)
            .build();
        let pool = Mutex::new(ConnectionPool::new(&config, timeouts.idle));
        let drain = ResponseDrain::default();
        Ok(Self(Arc::new(HttpClientState { config, timeouts, pool, drain })))
    }

    /// Sends a request and waits for the head of the response.
    ///
    /// An idle connection that the server has closed is replaced once: the loss shows at once, while a server that has read
    /// the request takes its time. Nothing else is retried, and redirects are not followed.
    ///
    /// # Errors
    ///
    /// Fails for a network error. An error status is not an error here.
    pub fn send(&self, request: &HttpRequest, cancel: &CancellationToken) -> Result<HttpResponse> {
        self.0.drain.wait();
        let (pool, sent_at) = (self.current_pool(), Instant::now());
        match self.send_on(&pool, request, cancel) {
            Err(NetError::ConnectionLost { .. })
                if pool.has_reused.load(Ordering::Relaxed)
                    && sent_at.elapsed() < STALE_CONNECTION_TIME =>
            {
                self.send_on(&self.current_pool(), request, cancel)
            }
            sent => sent,
        }
    }

    /// Sends a request that must not be received twice: a lost connection is not replaced, since the server may have
    /// read the request.
    ///
    /// # Errors
    ///
    /// Fails like [`HttpClient::send`].
    pub fn send_once(
        &self,
        request: &HttpRequest,
        cancel: &CancellationToken,
    ) -> Result<HttpResponse> {
        self.0.drain.wait();
        self.send_on(&self.current_pool(), request, cancel)
    }

    /// Sends a request on this pool, which is replaced if a connection is lost.
    fn send_on(
        &self,
        pool: &ConnectionPool,
        request: &HttpRequest,
        cancel: &CancellationToken,
    ) -> Result<HttpResponse> {
        let guard = {
            let (client, pool) = (self.clone(), pool.clone());
            cancel.on_cancel(move || {
                client.replace_pool(&pool);
                pool.agent.shutdown();
            })
        };
        let host = host_and_port(&request.url);
        let send = || {
            let mut reader = request.body.reader();
            let mut builder = http::Request::builder().method(&request.method).uri(&request.url);
            if let Some(headers) = builder.headers_mut() {
                headers.clone_from(&request.headers);
                headers.insert(header::CONTENT_LENGTH, request.body.len().into());
                // Compression would delay the events of a stream.
                headers.insert(header::ACCEPT_ENCODING, http::HeaderValue::from_static("identity"));
            }
            pool.agent
                .run(builder.body(SendBody::from_reader(&mut reader)).map_err(ureq::Error::Http)?)
        };
        let response = send();
        if cancel.is_cancelled() {
            return Err(NetError::Cancelled);
        }
        let response = response.map_err(|error| {
            pool.resolver.forget();
            let error = self.error_context(&host, ResponsePart::Head).to_net_error(error);
            if let NetError::ConnectionLost { .. } = error {
                self.replace_pool(pool);
            }
            error
        })?;
        let (head, body) = response.into_parts();
        Ok(HttpResponse {
            status: head.status.as_u16(),
            headers: head.headers,
            host,
            reader: body.into_reader(),
            bytes_read: 0,
            cancel_guard: Some(guard),
            cancel: cancel.clone(),
            client: self.clone(),
            has_reused: Arc::clone(&pool.has_reused),
        })
    }

    fn error_context<'a>(&'a self, host: &'a str, part: ResponsePart) -> ErrorContext<'a> {
        let proxy = self.0.config.proxy().map(|proxy| format!("{}:{}", proxy.host(), proxy.port()));
        ErrorContext { host, proxy, timeouts: &self.0.timeouts, part }
    }

    fn current_pool(&self) -> ConnectionPool {
        lock(&self.0.pool).clone()
    }

    /// Replaces this pool, unless that was done already.
    fn replace_pool(&self, pool: &ConnectionPool) {
        let mut current = lock(&self.0.pool);
        if Arc::ptr_eq(&current.has_reused, &pool.has_reused) {
            *current = ConnectionPool::new(&self.0.config, self.0.timeouts.idle);
        }
    }
}

impl ConnectionPool {
    fn new(config: &ureq::config::Config, idle: Duration) -> Self {
        let (resolver, has_reused) = (CachingResolver::default(), Arc::new(AtomicBool::new(false)));
        let connector = DefaultConnector::default().chain(TimedConnector { idle });
        let agent = Agent::with_parts(config.clone(), connector, resolver.clone());
        Self { agent, resolver, has_reused }
    }
}

impl HttpResponse {
    /// Reads more of the body; returns zero at its end.
    ///
    /// For a body without a length and chunks, the end may be a connection that was closed early; only the content can
    /// show that.
    ///
    /// # Errors
    ///
    /// Fails for an invalid or too large body, after a timeout or a cancellation.
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let read = self.reader.read(buffer).map_err(ureq::Error::from);
        if self.cancel.is_cancelled() {
            return Err(NetError::Cancelled);
        }
        let explain =
            |error| self.client.error_context(&self.host, ResponsePart::Body).to_net_error(error);
        let count = read.map_err(explain)?;
        self.bytes_read += count as u64;
        if self.bytes_read > MAX_RESPONSE_BYTES {
            return Err(NetError::TooLarge { host: self.host.clone(), limit: MAX_RESPONSE_BYTES });
        }
        if count == 0
            && !self.header("connection").is_some_and(|text| text.eq_ignore_ascii_case("close"))
        {
            self.has_reused.store(true, Ordering::Relaxed);
        }
        Ok(count)
    }

    /// Reads the body to its end, or up to `most` bytes.
    ///
    /// # Errors
    ///
    /// Fails like [`HttpResponse::read`].
    pub fn read_all(&mut self, most: usize) -> Result<Vec<u8>> {
        let (mut body, mut buffer) = (Vec::new(), vec![0; 16 << 10]);
        while body.len() < most {
            match self.read(&mut buffer)? {
                0 => break,
                count => body.extend_from_slice(&buffer[..count]),
            }
        }
        body.truncate(most);
        Ok(body)
    }

    /// Releases a response whose content is complete; the connection is reused if the body ends soon.
    pub fn release(mut self) {
        self.cancel_guard = None;
        self.cancel = CancellationToken::new();
        if self.is_complete() {
            // The end is known, so there is nothing to wait for.
            self.drain(1);
        } else {
            let client = self.client.clone();
            client.0.drain.push(self);
        }
    }

    /// Returns whether the body was read up to its declared length.
    fn is_complete(&self) -> bool {
        let length = self.header("content-length").and_then(|length| length.parse().ok());
        let is_coded = ["transfer-encoding", "content-encoding"].map(|name| self.header(name));
        length == Some(self.bytes_read) && is_coded == [None, None]
    }

    /// Reads to the end, but at most `most` bytes.
    pub(super) fn drain(mut self, most: u64) {
        let (limit, mut buffer) = (self.bytes_read + most, [0; 4 << 10]);
        while self.bytes_read < limit && self.read(&mut buffer).is_ok_and(|count| count > 0) {}
    }

    /// Returns the text of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

impl fmt::Debug for HttpResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response").field("status", &self.status).finish_non_exhaustive()
    }
}

/// Returns the host and port of a URL, for error messages.
fn host_and_port(url: &str) -> String {
    let uri: Result<http::Uri, _> = url.parse();
    uri.ok().and_then(|uri| Some(uri.authority()?.as_str().to_owned())).unwrap_or_default()
}

fn parse_proxy(HttpProxy { address, except }: &HttpProxy) -> Option<Proxy> {
    let proxy = Proxy::new(address).ok()?;
    let mut builder = Proxy::builder(proxy.protocol()).host(proxy.host()).port(proxy.port());
    if let Some(name) = proxy.username() {
        builder = builder.username(name);
    }
    if let Some(password) = proxy.password() {
        builder = builder.password(password);
    }
    let hosts = except.split(',').map(str::trim).filter(|host| !host.is_empty());
    // As other programs read it, a name stands for its subdomains, too.
    let names = hosts.flat_map(|host| {
        let is_name = !host.starts_with(['.', '*', '[']) && host.parse::<IpAddr>().is_err();
        [Some(host.to_owned()), is_name.then(|| format!(".{host}"))].into_iter().flatten()
    });
    names.fold(builder, |builder, name| builder.no_proxy(&name)).build().ok()
}

fn load_certificates(path: &Path) -> Result<RootCerts, String> {
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
