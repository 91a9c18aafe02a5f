//! A scripted server on loopback that implements Chat Completions, Responses and Messages, streamed or not, and keeps
//! the requests that it received.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use scripted_reply::{Format, ScriptedReply, chat_chunk};
use serde_json::json;

#[path = "scripted_reply.rs"]
mod scripted_reply;

/// The behavior of the server.
#[derive(Clone, Debug)]
#[allow(dead_code)] // not every benchmark uses all of it
pub(crate) enum ServerBehavior {
    /// Asks for a tool call, `steps` times, and then replies `Done.`; `{n}` in the arguments is the number of the step.
    Works { steps: usize, tool: String, arguments: String },
    /// Streams the same word again and again.
    Streams,
    /// Refuses requests, and asks for a retry after half a minute.
    Refuses,
}

/// The requests of an agent, with their times of arrival. Requests without tools, such as those for titles, are not
/// counted as steps; they are answered with `Done.`.
pub(crate) type Requests = Vec<(Instant, Vec<u8>)>;

/// A server that runs until the process ends.
pub(crate) struct Server {
    pub(crate) base: String,
    seen: Arc<Mutex<Requests>>,
}

impl Server {
    pub(crate) fn start(manner: ServerBehavior) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let base = format!("http://{}/v1", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let notes = Arc::clone(&seen);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (notes, manner) = (Arc::clone(&notes), manner.clone());
                thread::spawn(move || serve(&stream.unwrap(), &manner, &notes));
            }
        });
        Self { base, seen }
    }

    /// Returns how many requests have arrived.
    pub(crate) fn count(&self) -> usize {
        self.seen.lock().unwrap().len()
    }

    /// Returns the requests, and begins again.
    #[allow(dead_code)]
    pub(crate) fn take(&self) -> Requests {
        std::mem::take(&mut *self.seen.lock().unwrap())
    }
}

/// Serves a connection until the other side leaves.
fn serve(stream: &TcpStream, manner: &ServerBehavior, seen: &Mutex<Requests>) -> Option<()> {
    stream.set_nodelay(true).unwrap();
    let mut reader = BufReader::new(stream);
    loop {
        let request = request(&mut reader)?;
        let has = |text: &[u8]| memchr::memmem::find(&request, text).is_some();
        let streams = has(b"\"stream\":true") || has(b"\"stream\": true");
        let is_step = has(b"\"tools\":");
        let (format, tokens) = (Format::of(&request), request.len() / 4);
        let number = {
            let mut seen = seen.lock().unwrap();
            if is_step {
                seen.push((Instant::now(), request));
            }
            seen.len()
        };
        let mut stream = stream;
        match manner {
            ServerBehavior::Works { steps, tool, arguments } => {
                let call = (is_step && number <= *steps).then(|| {
                    (number, tool.as_str(), arguments.replace("{n}", &number.to_string()))
                });
                // The reported tokens make an agent summarize.
                let reply = ScriptedReply { call, tokens };
                stream.write_all(&reply.response(format, streams)).ok()?;
            }
            ServerBehavior::Streams => {
                stream
                    .write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
                    .ok()?;
                let word = chat_chunk(&json!({"role": "assistant", "content": "word "}), None);
                loop {
                    stream.write_all(word.as_bytes()).ok()?;
                    thread::sleep(Duration::from_millis(5));
                }
            }
            ServerBehavior::Refuses => {
                let head = "HTTP/1.1 429 Too Many Requests\r\nretry-after: 30\r\n";
                write!(stream, "{head}content-length: 2\r\n\r\n{{}}").ok()?;
            }
        }
    }
}

/// Reads one request, head and body.
pub(crate) fn request(reader: &mut impl BufRead) -> Option<Vec<u8>> {
    let (mut bytes, mut length, mut chunked) = (Vec::new(), 0, false);
    loop {
        let mut line = Vec::new();
        if reader.read_until(b'\n', &mut line).ok()? == 0 {
            return None;
        }
        let text = String::from_utf8_lossy(&line).to_ascii_lowercase();
        if let Some(value) = text.strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        chunked |= text.starts_with("transfer-encoding:") && text.contains("chunked");
        bytes.extend_from_slice(&line);
        if line == b"\r\n" {
            break;
        }
    }
    if chunked {
        loop {
            let mut line = Vec::new();
            reader.read_until(b'\n', &mut line).ok()?;
            let size = usize::from_str_radix(String::from_utf8_lossy(&line).trim(), 16).ok()?;
            bytes.extend_from_slice(&line);
            take(reader, size + 2, &mut bytes)?;
            if size == 0 {
                return Some(bytes);
            }
        }
    }
    take(reader, length, &mut bytes)?;
    Some(bytes)
}

fn take(reader: &mut impl Read, length: usize, bytes: &mut Vec<u8>) -> Option<()> {
    let begin = bytes.len();
    bytes.resize(begin + length, 0);
    reader.read_exact(&mut bytes[begin..]).ok()
}
