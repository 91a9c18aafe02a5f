//! HTTP exchanges with a timeout for each phase and cancellation.

use std::fmt;
use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ureq::config::AutoHeaderValue;
use ureq::tls::{RootCerts, TlsConfig};
use ureq::unversioned::transport::{Connector as _, DefaultConnector};
use ureq::{Agent, BodyReader, SendBody, http};

use super::body::RequestBody;
use super::drain::ResponseDrain;
use super::error::{ErrorContext, NetError, ResponsePart, Result};
use super::options::{HttpOptions, HttpTimeouts, load_certificates, parse_proxy};
use super::resolver::CachingResolver;
use super::timed_transport::TimedConnector;
use super::{HeaderMap, header};
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
    /// Whether the pool may have a reused connection, which the server may have closed.
    has_reused: Arc<AtomicBool>,
}

/// An HTTP request.
#[derive(Clone, Debug)]
pub struct HttpRequest {
    /// The method.
    pub method: Method,
    /// The URL.
    pub url: String,
    /// The headers, except those of the body.
    pub headers: HeaderMap,
    /// The body.
    pub body: RequestBody,
}

/// A response after its head was received. [`HttpResponse::read`] reads the body.
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

/// The maximum size of a response, in bytes.
pub const MAX_RESPONSE_BYTES: u64 = 64 << 20;

/// The size of a buffer, four times that of a TLS record. The head of a response has to fit into it.
const BUFFER_SIZE: usize = 64 << 10;

/// The time for which an idle connection is kept: long enough for a tool to run between two calls.
const IDLE_CONNECTION_TIMEOUT: Duration = Duration::from_secs(90);

/// The time within which a request fails if the server has closed its connection.
const STALE_CONNECTION_TIME: Duration = Duration::from_secs(1);

impl HttpClient {
    /// Returns a client without connections.
    ///
    /// # Errors
    ///
    /// Fails for an invalid proxy address or an unusable certificate file.
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
    /// An idle connection that the server has closed is replaced once: its loss shows at once, while a server that has
    /// read the request takes time to respond. Nothing else is retried, and redirects are not followed.
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

    /// Sends a request that must not be received twice. A lost connection is not replaced, since the server may have
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

    /// Sends a request on a pool, which is replaced if a connection is lost.
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

    /// Replaces a pool, unless it has already been replaced.
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
    /// Reads more of the body. Returns the number of bytes; zero at the end.
    ///
    /// If a body has neither a length nor chunks, its end may be a connection that was closed early; only the content
    /// can show that.
    ///
    /// # Errors
    ///
    /// Fails for an invalid or too large body, after a timeout, and after a cancellation.
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

    /// Reads the body to its end, but at most `most` bytes.
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

    /// Releases a response whose content is complete. Its connection is reused if the body ends soon.
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
