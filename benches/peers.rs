//! What an agent's loop costs beside a floor: any agent's command line against one scripted server.
//!
//! ```text
//! cargo bench --bench peers -- [--steps 10,100] [--tool NAME] [--arguments JSON] [--child LINE] [-- COMMAND…]
//! ```
//!
//! The server speaks Chat Completions. It asks for one tool call at a time — `--tool` with `--arguments` — so many times, and
//! then says `Done.`. `{n}` in the arguments is the number of the step, since the same call again and again may end a run. `COMMAND` is run in a throw-away workspace with `a.txt` in it; `{base}` in it is the address of the
//! interface, which is in `OPENAI_BASE_URL` too. Without one it is this program. What it sent is then sent again by the
//! floor: a raw socket, the bodies as they were, and, with `--child`, the same child process each time. Nothing that has
//! to do the same can be faster.
//!
//! The time is taken at the server, from the first request to the last, so that it has no start-up in it; that has its
//! own column. Of several runs the fastest counts.
#![allow(clippy::unwrap_used, clippy::print_stdout)] // a benchmark may fail, and prints
#![allow(clippy::cast_precision_loss)] // it counts no more than thousands

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// How often each run is made.
const RUNS: usize = 5;

/// What is measured.
struct Asked {
    steps: Vec<usize>,
    tool: String,
    arguments: String,
    child: Option<String>,
    command: Vec<String>,
}

/// The requests of one run, with when each had arrived.
type Requests = Vec<(Instant, Vec<u8>)>;

/// A server that asks for a tool call so many times.
struct Server {
    base: String,
    seen: Arc<Mutex<Requests>>,
}

/// What a run took.
#[derive(Clone, Copy)]
struct Took {
    first: Duration,
    step: f64,
}

fn asked() -> Asked {
    let mut args = std::env::args().skip(1).filter(|arg| arg != "--bench");
    let mut asked = Asked {
        steps: vec![10, 100],
        tool: "read_file".to_owned(),
        arguments: r#"{"path":"a.txt","offset":{n},"limit":20}"#.to_owned(),
        child: None,
        command: Vec::new(),
    };
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--steps" => {
                let steps = args.next().unwrap();
                asked.steps = steps.split(',').map(|one| one.parse().unwrap()).collect();
            }
            "--tool" => asked.tool = args.next().unwrap(),
            "--arguments" => asked.arguments = args.next().unwrap(),
            "--child" => asked.child = args.next(),
            "--" => asked.command.extend(args.by_ref()),
            _ => asked.command.push(arg),
        }
    }
    if asked.command.is_empty() {
        let program = env!("CARGO_BIN_EXE_architect");
        let own = "run -m openai-chat/fake --api-base {base} --mode yolo --quiet --ephemeral --max-steps 100000 Go.";
        asked.command = std::iter::once(program).chain(own.split(' ')).map(str::to_owned).collect();
    }
    asked
}

impl Server {
    /// Answers for ever: a tool call as long as a request has fewer results than steps.
    fn start(steps: usize, asked: &Asked) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let base = format!("http://{}/v1", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (notes, tool, arguments) =
            (Arc::clone(&seen), asked.tool.clone(), asked.arguments.clone());
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (notes, tool, arguments) =
                    (Arc::clone(&notes), tool.clone(), arguments.clone());
                thread::spawn(move || serve(&stream.unwrap(), steps, &notes, (&tool, &arguments)));
            }
        });
        Self { base, seen }
    }

    fn take(&self) -> Requests {
        std::mem::take(&mut *self.seen.lock().unwrap())
    }
}

fn serve(stream: &TcpStream, steps: usize, notes: &Mutex<Requests>, call: (&str, &str)) {
    stream.set_nodelay(true).unwrap();
    let mut reader = BufReader::new(stream);
    while let Some(request) = request(&mut reader) {
        let done = {
            let mut seen = notes.lock().unwrap();
            seen.push((Instant::now(), request));
            seen.len() > steps
        };
        let streams = notes.lock().unwrap().last().is_some_and(|(_, bytes)| {
            bytes.windows(13).any(|part| part == b"\"stream\":true" || part == b"stream\": true")
        });
        let number = notes.lock().unwrap().len();
        let delta = match done {
            true => json!({"role": "assistant", "content": "Done."}),
            false => json!({"role": "assistant", "content": null, "tool_calls": [{"index": 0,
                "id": format!("call_{number}"), "type": "function",
                "function": {"name": call.0, "arguments": call.1.replace("{n}", &number.to_string())}}]}),
        };
        if (&*stream).write_all(&answer(&delta, done, streams)).is_err() {
            return;
        }
    }
}

/// Reads one request, head and body.
fn request(reader: &mut impl BufRead) -> Option<Vec<u8>> {
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

fn answer(delta: &Value, done: bool, streams: bool) -> Vec<u8> {
    let finish = if done { "stop" } else { "tool_calls" };
    let usage = json!({"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110});
    let (kind, body) = if streams {
        let chunk = |delta: &Value, finish: Option<&str>| {
            json!({"id": "c", "object": "chat.completion.chunk", "model": "fake",
                "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
        };
        let (first, last) = (chunk(delta, None), chunk(&json!({}), Some(finish)));
        let usage = json!({"id": "c", "model": "fake", "choices": [], "usage": usage});
        let body = format!("data: {first}\n\ndata: {last}\n\ndata: {usage}\n\ndata: [DONE]\n\n");
        ("text/event-stream", body)
    } else {
        let whole = json!({"id": "c", "object": "chat.completion", "model": "fake", "usage": usage,
            "choices": [{"index": 0, "message": delta, "finish_reason": finish}]});
        ("application/json", whole.to_string())
    };
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n{body}")
        .into_bytes()
}

/// Runs the command to its end; returns its requests and what it took.
fn run(asked: &Asked, server: &Server, steps: usize) -> (Requests, Took) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.txt"), "some text\n".repeat(2_000)).unwrap();
    let words: Vec<String> =
        asked.command.iter().map(|word| word.replace("{base}", &server.base)).collect();
    let begun = Instant::now();
    let output = Command::new(&words[0])
        .args(&words[1..])
        .current_dir(folder.path())
        .env("HOME", folder.path())
        .env("OPENAI_BASE_URL", &server.base)
        .env("OPENAI_API_KEY", "none")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let requests = server.take();
    assert!(
        requests.len() == steps + 1,
        "the command made {} requests, not {}: {}",
        requests.len(),
        steps + 1,
        String::from_utf8_lossy(&output.stderr)
    );
    let took = took(&requests, begun);
    (requests, took)
}

/// Sends the same bytes again, and starts the same child processes.
fn floor(asked: &Asked, server: &Server, requests: &Requests) -> Took {
    let begun = Instant::now();
    let address = server.base.trim_start_matches("http://").trim_end_matches("/v1");
    let stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    let mut reader = BufReader::new(&stream);
    for (index, (_, bytes)) in requests.iter().enumerate() {
        (&stream).write_all(bytes).unwrap();
        request(&mut reader).unwrap();
        if let Some(line) = asked.child.as_ref().filter(|_| index + 1 < requests.len()) {
            let mut child = Command::new("sh");
            child.args(["-c", line]).stdin(Stdio::null()).output().unwrap();
        }
    }
    took(&server.take(), begun)
}

fn took(requests: &Requests, begun: Instant) -> Took {
    let (first, last) = (requests.first().unwrap().0, requests.last().unwrap().0);
    let steps = (requests.len() - 1).max(1) as f64;
    Took { first: first - begun, step: (last - first).as_secs_f64() * 1e3 / steps }
}

fn fastest(runs: impl Iterator<Item = Took>) -> Took {
    runs.reduce(|a, b| Took { first: a.first.min(b.first), step: a.step.min(b.step) }).unwrap()
}

fn main() {
    let asked = asked();
    println!("{}", asked.command.join(" "));
    println!(
        "{:>6} {:>14} {:>12} {:>12} {:>12} {:>8}",
        "steps", "first request", "ms per step", "floor", "over it", "ratio"
    );
    for &steps in &asked.steps {
        let server = Server::start(steps, &asked);
        let mut requests = Vec::new();
        let agent = fastest((0..RUNS).map(|_| {
            let (sent, took) = run(&asked, &server, steps);
            requests = sent;
            took
        }));
        let floor = fastest((0..RUNS).map(|_| floor(&asked, &server, &requests)));
        println!(
            "{steps:>6} {:>11.1} ms {:>12.3} {:>12.3} {:>12.3} {:>7.1}x",
            agent.first.as_secs_f64() * 1e3,
            agent.step,
            floor.step,
            agent.step - floor.step,
            agent.step / floor.step
        );
    }
}
