//! The proxy of a confined network, through which commands reach only listed hosts.
//!
//! With [`NetworkAccess::List`](super::NetworkAccess::List), commands run in a network namespace that has only the
//! loopback interface. The process that creates the namespace opens a socket in it and passes the socket to the engine.
//! The socket belongs to the namespace, while the proxy that accepts its connections runs outside. The proxy accepts
//! HTTP requests and `CONNECT`, one request per connection. It resolves a name once and connects to the result, accepts
//! no addresses, and refuses a tunnel whose TLS handshake names another host. A confined command has no other resolver,
//! route or socket.
//!
//! Refusals are collected for the result of the command ([`EgressProxy::finish`]).

mod client_hello;
mod hosts;
mod request;

use std::collections::HashMap;
use std::io::{self, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use client_hello::ClientHello;
pub use hosts::{AllowedHosts, ConnectionRefusal, HostPattern, HostPatternError};
use request::ProxyRequest;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Resource, getrlimit};

#[cfg(target_os = "linux")]
use super::command_env::Variable;
use crate::port::lock;

/// The time limit for connecting to one address of a host.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The time limit for all addresses of a host.
const ALL_TIMEOUT: Duration = Duration::from_secs(30);

/// The time limit for a client to send the head of its request, and again for its first TLS message.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);

/// The pause after a connection could not be accepted.
const PAUSE: Duration = Duration::from_millis(10);

/// The maximum number of simultaneous connections of one worker.
const MAX_CONNECTIONS: usize = 256;

/// The maximum number of simultaneous connections of all workers.
const MOST_OF_ALL: usize = 1024;

/// The maximum number of connections in the queue of a socket.
const MOST_WAITING: usize = 65_536;

/// The current number of connections of all workers.
static OF_ALL: AtomicUsize = AtomicUsize::new(0);

/// The maximum number of refusals kept for one command.
const MAX_REFUSALS: usize = 20;

/// A proxy that serves one socket until it is dropped.
pub(super) struct EgressProxy {
    listener: TcpListener,
    shared: Arc<ProxyState>,
}

struct ProxyState {
    hosts: AllowedHosts,
    refused: Mutex<Vec<ConnectionRefusal>>,
    open: Mutex<OpenConnections>,
    /// The maximum numbers of simultaneous connections, of this worker and of all.
    most: [usize; 2],
}

/// The open connections.
#[derive(Default)]
struct OpenConnections {
    next: u64,
    /// One or both ends of each connection.
    ends: HashMap<u64, Vec<Arc<TcpStream>>>,
    is_closing: bool,
}

impl EgressProxy {
    /// Starts the proxy.
    ///
    /// # Errors
    ///
    /// Fails when the thread cannot be started.
    pub(super) fn start(listener: TcpListener, hosts: AllowedHosts) -> io::Result<Self> {
        let shared = Arc::new(ProxyState {
            hosts,
            refused: Mutex::default(),
            open: Mutex::default(),
            most: most(getrlimit(Resource::Nofile).current),
        });
        // A connection that `poll` reported may be gone by the time it is accepted.
        listener.set_nonblocking(true)?;
        let (accepting, serving) = (listener.try_clone()?, Arc::clone(&shared));
        let body = move || {
            loop {
                let mut fds = [PollFd::new(&accepting, PollFlags::IN)];
                // The wait ends when the socket is shut down.
                let _ = poll(&mut fds, None);
                let mut open = lock(&serving.open);
                match accepting.accept() {
                    Ok((client, _)) => {
                        let client = Arc::new(client);
                        let number = open.add(Arc::clone(&client));
                        drop(open);
                        serving.serve_client(number, client);
                    }
                    Err(_) if open.is_closing => return,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    // For example, without a free descriptor, the connection stays in the queue.
                    Err(_) => {
                        drop(open);
                        thread::sleep(PAUSE);
                    }
                }
            }
        };
        thread::Builder::new().name("egress".to_owned()).spawn(body)?;
        Ok(Self { listener, shared })
    }

    /// Closes all connections of the ended command, and returns its refusals, without repetitions.
    pub(super) fn finish(&self) -> Vec<ConnectionRefusal> {
        let mut open = lock(&self.shared.open);
        open.close();
        // Connections in the queue belong to the same command.
        let _ = (0..MOST_WAITING).take_while(|_| self.listener.accept().is_ok()).count();
        drop(open);
        std::mem::take(&mut *lock(&self.shared.refused))
    }
}

impl Drop for EgressProxy {
    fn drop(&mut self) {
        let mut open = lock(&self.shared.open);
        open.is_closing = true;
        open.close();
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
    }
}

impl OpenConnections {
    fn add(&mut self, client: Arc<TcpStream>) -> u64 {
        self.next += 1;
        self.ends.insert(self.next, vec![client]);
        self.next
    }

    /// Closes all connections, and so wakes up the threads that serve them.
    fn close(&mut self) {
        for (_, ends) in self.ends.drain() {
            for end in ends {
                let _ = end.shutdown(Shutdown::Both);
            }
        }
    }
}

/// Returns the maximum numbers of simultaneous connections, of one worker and of all, for a limit of open files. A
/// connection takes two files; half of the files stay free for other uses.
fn most(files: Option<u64>) -> [usize; 2] {
    let files = files.and_then(|files| usize::try_from(files).ok()).unwrap_or(usize::MAX);
    [MAX_CONNECTIONS.min(files / 8), MOST_OF_ALL.min(files / 4)]
}

impl ProxyState {
    /// Serves a connection on its own thread. Closes it if there are too many connections.
    fn serve_client(self: &Arc<Self>, number: u64, client: Arc<TcpStream>) {
        let slot = ConnectionSlot { shared: Arc::clone(self), number };
        OF_ALL.fetch_add(1, Ordering::Relaxed);
        let now = [lock(&self.open).ends.len(), OF_ALL.load(Ordering::Relaxed)];
        if now.iter().zip(self.most).any(|(now, most)| *now > most) {
            return;
        }
        let body = move || {
            if let Err(error) = slot.shared.handle_connection(number, &client) {
                log::debug!("a connection through the proxy broke off: {error}");
            }
            let _ = client.shutdown(Shutdown::Both);
            drop(slot);
        };
        // If the thread cannot be started, the connection is dropped.
        let _ = thread::Builder::new().name("egress".to_owned()).spawn(body);
    }

    fn handle_connection(&self, number: u64, client: &TcpStream) -> io::Result<()> {
        let mut reader = BufReader::new(TimedReader::new(client));
        let Some(request) = request::read(&mut reader)? else { return Ok(()) };
        let opened = request.and_then(|request| {
            let (ProxyRequest::Tunnel { host, port } | ProxyRequest::Forward { host, port, .. }) =
                &request;
            let entry = self.hosts.find(host, *port)?;
            let addresses = resolve_host(host, *port);
            for address in &addresses {
                entry.check(host, address.ip())?;
            }
            let names_port = entry.names_port();
            Ok((request, addresses, names_port))
        });
        let (request, addresses, names_port) = match opened {
            Ok(opened) => opened,
            Err(refusal) => return self.refuse(client, refusal),
        };
        let Some(server) = connect(&addresses).map(Arc::new) else {
            return respond(client, "502 Bad Gateway", "the host could not be reached");
        };
        match lock(&self.open).ends.get_mut(&number) {
            Some(ends) => ends.push(Arc::clone(&server)),
            // The command has ended.
            None => return Ok(()),
        }
        match request {
            ProxyRequest::Forward { head, body, .. } => {
                reader.get_mut().wait_for_ever()?;
                relay(client, &server, |to| {
                    to.write_all(&head)?;
                    body.copy(&mut reader, to)
                })
            }
            ProxyRequest::Tunnel { host, port } => {
                (&*client).write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")?;
                *reader.get_mut() = TimedReader::new(client);
                relay(client, &server, |to| {
                    let opening = if names_port {
                        Vec::new()
                    } else {
                        match read_client_hello(&mut reader, &host, port)? {
                            Ok(opening) => opening,
                            Err(refusal) => {
                                self.record_refusal(refusal);
                                return client.shutdown(Shutdown::Both);
                            }
                        }
                    };
                    reader.get_mut().wait_for_ever()?;
                    to.write_all(&opening)?;
                    io::copy(&mut reader, to)?;
                    server.shutdown(Shutdown::Write)
                })
            }
        }
    }

    fn refuse(&self, client: &TcpStream, refusal: ConnectionRefusal) -> io::Result<()> {
        let status = match refusal {
            ConnectionRefusal::Malformed(_) => "400 Bad Request",
            _ => "403 Forbidden",
        };
        let text = format!("sandbox denied: {refusal}");
        self.record_refusal(refusal);
        respond(client, status, &text)
    }

    fn record_refusal(&self, refusal: ConnectionRefusal) {
        log::debug!("the proxy refused a connection: {refusal}");
        let mut refused = lock(&self.refused);
        if refused.len() < MAX_REFUSALS && !refused.contains(&refusal) {
            refused.push(refusal);
        }
    }
}

/// An entry among the open connections.
struct ConnectionSlot {
    shared: Arc<ProxyState>,
    number: u64,
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        lock(&self.shared.open).ends.remove(&self.number);
        OF_ALL.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A reader from a client, with a time limit for all reads together.
struct TimedReader<'a> {
    client: &'a TcpStream,
    until: Option<Instant>,
}

impl<'a> TimedReader<'a> {
    fn new(client: &'a TcpStream) -> Self {
        Self { client, until: Some(Instant::now() + HEAD_TIMEOUT) }
    }

    fn wait_for_ever(&mut self) -> io::Result<()> {
        self.until = None;
        self.client.set_read_timeout(None)
    }
}

impl Read for TimedReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(until) = self.until {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.client.set_read_timeout(Some(left))?;
        }
        self.client.read(buffer)
    }
}

/// Returns the variables that make programs use the proxy.
#[cfg(target_os = "linux")]
pub(super) fn proxy_variables(proxy: SocketAddr, hosts: &AllowedHosts) -> Vec<Variable> {
    let url = format!("http://{proxy}");
    let (host, port) = (proxy.ip(), proxy.port());
    // Java reads only properties; among its build tools, these two read properties from variables.
    let java = ["http", "https"]
        .map(|scheme| format!("-D{scheme}.proxyHost={host} -D{scheme}.proxyPort={port}"))
        .join(" ");
    // The command's own servers are reached directly, unless servers of the machine are allowed.
    let own = if hosts.has_localhost() { "" } else { "localhost,127.0.0.1,::1" };
    let names =
        ["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"];
    let proxies = names.map(|name| (name, url.as_str()));
    let others = [
        ("no_proxy", own),
        ("NO_PROXY", own),
        ("NODE_USE_ENV_PROXY", "1"),
        ("MAVEN_OPTS", &java),
        ("GRADLE_OPTS", &java),
    ];
    proxies.into_iter().chain(others).map(|(name, value)| (name.into(), value.into())).collect()
}

fn respond(mut client: &TcpStream, status: &str, text: &str) -> io::Result<()> {
    let length = text.len() + 1;
    write!(
        client,
        "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{text}\n"
    )
}

/// Resolves a name, once.
fn resolve_host(host: &str, port: u16) -> Vec<SocketAddr> {
    (host, port).to_socket_addrs().map(Iterator::collect).unwrap_or_default()
}

fn connect(addresses: &[SocketAddr]) -> Option<TcpStream> {
    let until = Instant::now() + ALL_TIMEOUT;
    addresses.iter().find_map(|address| {
        let left = until.saturating_duration_since(Instant::now()).min(CONNECT_TIMEOUT);
        // A timeout of zero is an error.
        TcpStream::connect_timeout(address, left).ok()
    })
}

/// Copies from the server to the client, while `send` copies from the client to the server. Returns once the server has
/// closed its end.
fn relay(
    client: &TcpStream,
    server: &TcpStream,
    send: impl FnOnce(&mut &TcpStream) -> io::Result<()>,
) -> io::Result<()> {
    thread::scope(|scope| {
        let body = || {
            let copied = io::copy(&mut &*server, &mut &*client);
            // The other direction may be blocked on the client, or on a server that does not read.
            let _ = client.shutdown(Shutdown::Both);
            let _ = server.shutdown(Shutdown::Both);
            copied
        };
        thread::Builder::new().name("egress".to_owned()).spawn_scoped(scope, body)?;
        let sent = send(&mut &*server);
        if sent.is_err() {
            let _ = server.shutdown(Shutdown::Both);
        }
        sent
    })
}

/// Reads the first bytes of a client through a tunnel, and checks that they are TLS for the tunnel's host.
fn read_client_hello(
    from: &mut impl Read,
    host: &str,
    port: u16,
) -> io::Result<Result<Vec<u8>, ConnectionRefusal>> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let asked = match client_hello::parse(&bytes) {
            ClientHello::Unfinished if bytes.len() > client_hello::MAX_LENGTH => {
                "no name".to_owned()
            }
            ClientHello::Unfinished => {
                let length = from.read(&mut buffer)?;
                if length == 0 {
                    // An incomplete message is not forwarded.
                    return Ok(Ok(Vec::new()));
                }
                bytes.extend_from_slice(&buffer[..length]);
                continue;
            }
            ClientHello::NotTls => {
                return Ok(Err(ConnectionRefusal::NotTls(host.to_owned(), port)));
            }
            ClientHello::Name(name) if hosts::normalize_host(&name) == host => {
                return Ok(Ok(bytes));
            }
            // Only valid names are reported.
            ClientHello::Name(name) if hosts::is_name(&hosts::normalize_host(&name)) => name,
            ClientHello::Name(_) => "an invalid name".to_owned(),
            ClientHello::Unnamed => "no name".to_owned(),
        };
        return Ok(Err(ConnectionRefusal::OtherName { host: host.to_owned(), asked }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that answers each connection with the input up to the first pause, followed by `!`.
    fn echo() -> (SocketAddr, thread::JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let body = move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut buffer = [0; 4096];
            let length = stream.read(&mut buffer).unwrap();
            stream.write_all(&buffer[..length]).unwrap();
            stream.write_all(b"!").unwrap();
        };
        (address, thread::spawn(body))
    }

    fn proxy(hosts: &[&str]) -> (EgressProxy, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let hosts = hosts.iter().map(|host| HostPattern::parse(host).unwrap()).collect();
        (EgressProxy::start(listener, hosts).unwrap(), address)
    }

    /// Sends each part once the answer to the previous one has begun, and returns all answers.
    fn talk(address: SocketAddr, parts: &[&[u8]]) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut received = Vec::new();
        for (index, part) in parts.iter().enumerate() {
            stream.write_all(part).unwrap();
            if index + 1 == parts.len() {
                let _ = stream.read_to_end(&mut received);
            } else {
                let mut buffer = [0; 4096];
                let length = stream.read(&mut buffer).unwrap();
                received.extend_from_slice(&buffer[..length]);
            }
        }
        String::from_utf8_lossy(&received).into_owned()
    }

    #[test]
    fn a_listed_host_is_reached_by_a_request() {
        let (server, serving) = echo();
        let (egress, address) = proxy(&["localhost"]);
        let request =
            format!("GET http://localhost:{}/x HTTP/1.1\r\nHost: x\r\n\r\n", server.port());
        let received = talk(address, &[request.as_bytes()]);
        assert!(received.starts_with("GET /x HTTP/1.1\r\nHost: localhost:"), "{received}");
        serving.join().unwrap();
        assert_eq!(egress.finish(), []);
    }

    #[test]
    fn a_tunnel_carries_tls_for_its_own_host() {
        let (egress, address) = proxy(&["localhost"]);
        for (first, is_through) in [
            (client_hello::tests::hello(&["localhost"]), true),
            (client_hello::tests::hello(&["LocalHost"]), true),
            (client_hello::tests::hello(&["other.example"]), false),
            (client_hello::tests::hello(&[]), false),
            (b"GET / HTTP/1.1\r\nHost: other\r\n\r\n".to_vec(), false),
        ] {
            let (server, serving) = echo();
            let connect = format!("CONNECT localhost:{} HTTP/1.1\r\n\r\n", server.port());
            let received = talk(address, &[connect.as_bytes(), &first]);
            assert_eq!(received.ends_with('!') && received.len() > 60, is_through, "{received:?}");
            if is_through {
                serving.join().unwrap();
            }
            assert_eq!(egress.finish().is_empty(), is_through);
        }
    }

    #[test]
    fn an_entry_with_a_port_carries_anything_there() {
        let (server, serving) = echo();
        let (_egress, address) = proxy(&[&format!("localhost:{}", server.port())]);
        let connect = format!("CONNECT localhost:{} HTTP/1.1\r\n\r\n", server.port());
        assert!(talk(address, &[connect.as_bytes(), b"SSH-2.0-x\r\n"]).ends_with("SSH-2.0-x\r\n!"));
        serving.join().unwrap();
    }

    #[test]
    fn refusals_are_answered_and_kept_once() {
        let (egress, address) = proxy(&["localhost"]);
        for request in [
            "CONNECT other.example:443 HTTP/1.1\r\n\r\n",
            "CONNECT other.example:443 HTTP/1.1\r\n\r\n",
            "CONNECT 127.0.0.1:80 HTTP/1.1\r\n\r\n",
            "GET http://[::1]/ HTTP/1.1\r\n\r\n",
            "GET http://127.1/ HTTP/1.1\r\n\r\n",
            "CONNECT localhost.:70000 HTTP/1.1\r\n\r\n",
        ] {
            let received = talk(address, &[request.as_bytes()]);
            assert!(received.starts_with("HTTP/1.1 40"), "{received}");
            assert!(received.contains("sandbox denied: "), "{received}");
        }
        let refused: Vec<String> = egress.finish().iter().map(ToString::to_string).collect();
        assert_eq!(refused.len(), 5, "{refused:?}");
        assert_eq!(refused[0], "other.example:443 is not in sandbox.allowed_hosts");
        assert_eq!(egress.finish(), []);
    }

    #[test]
    fn a_second_request_on_a_connection_is_not_forwarded() {
        let (server, serving) = echo();
        let (_egress, address) = proxy(&["localhost"]);
        let one = format!("GET http://localhost:{}/ HTTP/1.1\r\n\r\n", server.port());
        let received =
            talk(address, &[format!("{one}GET http://other.example/ HTTP/1.1\r\n\r\n").as_bytes()]);
        assert!(!received.contains("other.example"), "{received}");
        serving.join().unwrap();
    }

    #[test]
    fn an_incomplete_client_hello_is_not_forwarded() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let (_egress, address) = proxy(&["localhost"]);
        let port = server.local_addr().unwrap().port();
        let mut client = TcpStream::connect(address).unwrap();
        write!(client, "CONNECT localhost:{port} HTTP/1.1\r\n\r\n").unwrap();
        let (mut served, _) = server.accept().unwrap();
        let hello = client_hello::tests::hello(&["other.example"]);
        client.write_all(&hello[..hello.len() - 1]).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut received = Vec::new();
        served.read_to_end(&mut received).unwrap();
        assert_eq!(received, b"");
    }

    #[test]
    fn connections_are_closed_when_the_command_has_ended() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let (egress, address) = proxy(&["localhost"]);
        let port = server.local_addr().unwrap().port();
        let mut ends = Vec::new();
        for start in ["CONNECT localhost:PORT", "GET http://localhost:PORT/"] {
            let mut client = TcpStream::connect(address).unwrap();
            let request = format!("{start} HTTP/1.1\r\n\r\n").replace("PORT", &port.to_string());
            client.write_all(request.as_bytes()).unwrap();
            ends.extend([client, server.accept().unwrap().0]);
            // This client never sends a request.
            ends.push(TcpStream::connect(address).unwrap());
        }
        egress.finish();
        for mut end in ends {
            end.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            let mut received = Vec::new();
            let ended = end.read_to_end(&mut received).err().map(|error| error.kind());
            assert!(matches!(ended, None | Some(io::ErrorKind::ConnectionReset)), "{ended:?}");
        }
        let (server, serving) = echo();
        let request = format!("GET http://localhost:{}/ HTTP/1.1\r\n\r\n", server.port());
        assert!(talk(address, &[request.as_bytes()]).starts_with("GET / HTTP/1.1"));
        serving.join().unwrap();
    }

    #[test]
    fn connections_leave_open_files_for_other_use() {
        assert_eq!(most(Some(256)), [32, 64]);
        assert_eq!(most(Some(1024)), [128, 256]);
        assert_eq!(most(Some(1 << 40)), [MAX_CONNECTIONS, MOST_OF_ALL]);
        assert_eq!(most(None), [MAX_CONNECTIONS, MOST_OF_ALL]);
    }

    #[test]
    fn a_slow_client_is_disconnected() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut over = TimedReader { client: &client, until: Some(Instant::now()) };
        assert_eq!(over.read(&mut [0; 1]).unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn the_proxy_ends_with_its_owner() {
        let (egress, address) = proxy(&["localhost"]);
        drop(egress);
        // The kernel may still queue a connection, but it is not answered.
        let Ok(mut stream) = TcpStream::connect(address) else { return };
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let _ = stream.write_all(b"CONNECT x:1 HTTP/1.1\r\n\r\n");
        let mut received = Vec::new();
        let _ = stream.read_to_end(&mut received);
        assert!(received.is_empty());
    }
}
