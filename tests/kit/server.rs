//! An HTTP server on loopback with scripted replies.
//!
//! Each request takes the next [`ScriptedReply`], on whichever connection. Nothing here waits for ever: reading, hanging and
//! the server's own threads end after [`MAX_WAIT`] at the latest, and with the server.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Time limit of every wait here.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(30);

/// A server; it ends when it is dropped.
pub(crate) struct Server {
    address: SocketAddr,
    shared: Arc<ServerState>,
}

/// Returns the reply to a request, by the request's number and content.
type ReplyFor = dyn Fn(usize, &ReceivedRequest) -> ScriptedReply + Send + Sync;

struct ServerState {
    answer: Box<ReplyFor>,
    next: AtomicUsize,
    connections: AtomicUsize,
    requests: Mutex<Vec<ReceivedRequest>>,
    over: AtomicBool,
}

/// A request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedRequest {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
    /// The number of its connection, counted from one.
    pub(crate) connection: usize,
    /// The time when it had arrived.
    pub(crate) at: Instant,
}

/// The reply to a request: bytes, pauses, and an end.
#[derive(Clone, Debug, Default)]
pub(crate) struct ScriptedReply(Vec<ReplyStep>);

#[derive(Clone, Debug)]
enum ReplyStep {
    Write(Vec<u8>),
    Wait(Duration),
    /// Sends nothing more until the client disconnects.
    Hang,
    /// Closes the connection.
    Close,
    /// Writes the same again and again, until the client disconnects.
    Drip(Vec<u8>, Duration),
}

impl ScriptedReply {
    /// Returns a whole answer with a length.
    pub(crate) fn with_length(status: u16, body: &str) -> Self {
        Self::with_headers(status, &[("content-type", "application/json")], body)
    }

    /// Returns a whole answer with these headers.
    pub(crate) fn with_headers(status: u16, headers: &[(&str, &str)], body: &str) -> Self {
        let head = head(status, headers, &format!("content-length: {}\r\n", body.len()));
        Self::raw(format!("{head}{body}"))
    }

    /// Returns an event stream, each piece in a chunk of its own.
    pub(crate) fn stream<T: AsRef<str>>(pieces: impl IntoIterator<Item = T>) -> Self {
        pieces
            .into_iter()
            .fold(Self::open_stream(), |reply, piece| reply.chunk(piece.as_ref()))
            .end()
    }

    /// Returns the head of an event stream.
    pub(crate) fn open_stream() -> Self {
        let headers = [("content-type", "text/event-stream")];
        Self::raw(head(200, &headers, "transfer-encoding: chunked\r\n"))
    }

    /// Returns these bytes as they are.
    pub(crate) fn raw(bytes: impl Into<Vec<u8>>) -> Self {
        Self(vec![ReplyStep::Write(bytes.into())])
    }

    /// Returns a silence without end.
    pub(crate) fn silence() -> Self {
        Self(vec![ReplyStep::Hang])
    }

    /// Returns a connection that is closed without a reply.
    pub(crate) fn closed() -> Self {
        Self(vec![ReplyStep::Close])
    }

    /// Goes on with bytes.
    pub(crate) fn bytes(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.0.push(ReplyStep::Write(bytes.into()));
        self
    }

    /// Goes on with a chunk.
    pub(crate) fn chunk(self, piece: &str) -> Self {
        self.bytes(chunk(piece.as_bytes()))
    }

    /// Goes on with the end of the chunks.
    pub(crate) fn end(self) -> Self {
        self.bytes("0\r\n\r\n")
    }

    /// Goes on after a pause.
    pub(crate) fn wait(mut self, pause: Duration) -> Self {
        self.0.push(ReplyStep::Wait(pause));
        self
    }

    /// Waits before everything else.
    pub(crate) fn after(mut self, pause: Duration) -> Self {
        self.0.insert(0, ReplyStep::Wait(pause));
        self
    }

    /// Sends nothing more, and keeps the connection open.
    pub(crate) fn hang(mut self) -> Self {
        self.0.push(ReplyStep::Hang);
        self
    }

    /// Closes the connection.
    pub(crate) fn close(mut self) -> Self {
        self.0.push(ReplyStep::Close);
        self
    }

    /// Goes on with the same chunk for ever.
    pub(crate) fn repeat_chunk(mut self, piece: &str, pause: Duration) -> Self {
        self.0.push(ReplyStep::Drip(chunk(piece.as_bytes()), pause));
        self
    }
}

fn head(status: u16, headers: &[(&str, &str)], more: &str) -> String {
    let headers: Vec<_> =
        headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    format!("HTTP/1.1 {status} Test\r\n{}{more}\r\n", headers.concat())
}

/// Returns bytes as a chunk of a chunked body.
pub(crate) fn chunk(bytes: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

impl Server {
    /// Returns a server that answers with these replies, one for each request; further ones get a 599.
    pub(crate) fn new(replies: impl IntoIterator<Item = ScriptedReply>) -> Self {
        let replies: Vec<ScriptedReply> = replies.into_iter().collect();
        Self::start(move |number, _| {
            let none = || ScriptedReply::with_length(599, "the test has no reply for this request");
            replies.get(number).cloned().unwrap_or_else(none)
        })
    }

    /// Returns a server whose last reply also serves all further requests.
    pub(crate) fn repeating(replies: impl IntoIterator<Item = ScriptedReply>) -> Self {
        let replies: Vec<ScriptedReply> = replies.into_iter().collect();
        Self::start(move |number, _| replies[number.min(replies.len() - 1)].clone())
    }

    /// Returns a server that makes each reply from its request, and may take its time for that.
    pub(crate) fn with_handler(
        answer: impl Fn(&ReceivedRequest) -> ScriptedReply + Send + Sync + 'static,
    ) -> Self {
        Self::start(move |_, received| answer(received))
    }

    fn start(
        answer: impl Fn(usize, &ReceivedRequest) -> ScriptedReply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(ServerState {
            answer: Box::new(answer),
            next: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
            requests: Mutex::new(Vec::new()),
            over: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming() {
                if accepting.over.load(Ordering::SeqCst) {
                    break;
                }
                let (Ok(stream), shared) = (stream, Arc::clone(&accepting)) else { break };
                thread::spawn(move || {
                    let number = shared.connections.fetch_add(1, Ordering::SeqCst) + 1;
                    // Many tests are about clients that disconnect, so errors are ignored.
                    let _ = shared.serve(&stream, number);
                });
            }
        });
        Self { address, shared }
    }

    /// Returns `http://127.0.0.1:port` with a path.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Returns the requests that have arrived.
    pub(crate) fn requests(&self) -> Vec<ReceivedRequest> {
        self.shared.requests.lock().unwrap().clone()
    }

    /// Returns how many connections were made.
    pub(crate) fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Waits until this number of requests have arrived.
    pub(crate) fn wait_for(&self, count: usize) -> Vec<ReceivedRequest> {
        let until = Instant::now() + MAX_WAIT;
        loop {
            let requests = self.requests();
            if requests.len() >= count {
                return requests;
            }
            assert!(Instant::now() < until, "{} of {count} requests came", requests.len());
            thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
        // Wakes the accepting thread.
        let _ = TcpStream::connect(self.address);
    }
}

impl ServerState {
    fn serve(&self, stream: &TcpStream, connection: usize) -> io::Result<()> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(MAX_WAIT))?;
        stream.set_write_timeout(Some(MAX_WAIT))?;
        let mut reader = BufReader::new(stream.try_clone()?);
        while let Some(received) = read_request(&mut reader, connection)? {
            self.requests.lock().unwrap().push(received.clone());
            let number = self.next.fetch_add(1, Ordering::SeqCst);
            for act in &(self.answer)(number, &received).0 {
                if !self.perform(act, stream)? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Returns whether the connection continues.
    fn perform(&self, act: &ReplyStep, mut stream: &TcpStream) -> io::Result<bool> {
        match act {
            ReplyStep::Write(bytes) => stream.write_all(bytes)?,
            ReplyStep::Wait(pause) => thread::sleep(*pause),
            ReplyStep::Close => {
                stream.shutdown(std::net::Shutdown::Both)?;
                return Ok(false);
            }
            ReplyStep::Hang => {
                // Returns at once when the client closes its side.
                let _ = stream.read(&mut [0; 1]);
                return Ok(false);
            }
            ReplyStep::Drip(bytes, pause) => {
                let until = Instant::now() + MAX_WAIT;
                while Instant::now() < until && !self.over.load(Ordering::SeqCst) {
                    stream.write_all(bytes)?;
                    thread::sleep(*pause);
                }
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn read_request(
    reader: &mut impl BufRead,
    connection: usize,
) -> io::Result<Option<ReceivedRequest>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace().map(str::to_owned);
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? <= 2 {
            break;
        }
        if let Some((name, value)) = line.split_once(':') {
            headers.push((name.to_lowercase(), value.trim().to_owned()));
        }
    }
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length = length.and_then(|(_, value)| value.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let body = String::from_utf8_lossy(&body).into_owned();
    Ok(Some(ReceivedRequest { method, path, headers, body, connection, at: Instant::now() }))
}

impl ReceivedRequest {
    /// Returns a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Returns the body as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap()
    }
}
