//! What an agent's loop costs beside a minimum: any agent's command line against one scripted server.
//!
//! ```text
//! cargo bench --bench peers -- [--steps 10,100] [--runs 5] [--tool NAME] [--arguments JSON] [--child LINE] [-- COMMAND…]
//! ```
//!
//! The server speaks Chat Completions. It asks for one tool call at a time — `--tool` with `--arguments` — so many times, and
//! then says `Done.`. `{n}` in the arguments is the number of the step, since the same call again and again may end a run.
//! `COMMAND` is run in a throw-away workspace with `a.txt` in it; `{base}` in it is the address of the interface, which is
//! in `OPENAI_BASE_URL` too. Without one it is this program: without a journal, with one that survives the end of the
//! process, and with one that survives the end of the machine. What it sent is then sent again as a baseline: a raw socket,
//! the bodies as they were, and, with `--child`, the same child process each time. Nothing that has to do the same can be
//! faster.
//!
//! The time is taken at the server, from the first request to the last, so that it has no start-up in it; that has its
//! own column, and so have the first and the last tenth of the steps. Of several runs the fastest counts.
#![allow(clippy::unwrap_used, clippy::print_stdout)] // a benchmark may fail, and prints
#![allow(clippy::cast_precision_loss)] // it counts no more than thousands

use std::io::{BufReader, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use server::{Requests, Server, ServerBehavior, request};

#[path = "subjects/server.rs"]
mod server;

/// What is measured.
struct RequestTimes {
    steps: Vec<usize>,
    runs: usize,
    tool: String,
    arguments: String,
    child: Option<String>,
    commands: Vec<(String, Vec<String>)>,
}

/// What a run took: to its first request, and for a step.
#[derive(Clone, Copy)]
struct LoopTimes {
    first: Duration,
    step: f64,
    early: f64,
    late: f64,
}

/// How long a command may take altogether.
const MAX_RUN_TIME: Duration = Duration::from_secs(600);

/// How long a command that has made its last request may take to end.
const GRACE: Duration = Duration::from_secs(3);

fn asked() -> RequestTimes {
    let mut args = std::env::args().skip(1).filter(|arg| arg != "--bench");
    let mut asked = RequestTimes {
        steps: vec![10, 100],
        runs: 5,
        tool: "read_file".to_owned(),
        arguments: r#"{"path":"a.txt","offset":{n},"limit":20}"#.to_owned(),
        child: None,
        commands: Vec::new(),
    };
    let mut command = Vec::new();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--steps" => {
                let steps = args.next().unwrap();
                asked.steps = steps.split(',').map(|one| one.parse().unwrap()).collect();
            }
            "--runs" => asked.runs = args.next().unwrap().parse().unwrap(),
            "--tool" => asked.tool = args.next().unwrap(),
            "--arguments" => asked.arguments = args.next().unwrap(),
            "--child" => asked.child = args.next(),
            "--" => command.extend(args.by_ref()),
            _ => command.push(arg),
        }
    }
    if command.is_empty() {
        let program = env!("CARGO_BIN_EXE_architect");
        let own =
            "run -m openai-chat/fake --api-base {base} --mode yolo --quiet --max-steps 100000 Go.";
        let own = |name: &str, more: &[&str]| {
            let words = std::iter::once(program).chain(own.split(' ')).chain(more.iter().copied());
            (name.to_owned(), words.map(str::to_owned).collect())
        };
        asked.commands = vec![
            own("no journal", &["--ephemeral"]),
            own("journal: os", &["--set", "sessions.durability=os"]),
            own("journal: full", &[]),
        ];
    } else {
        asked.commands = vec![("command".to_owned(), command)];
    }
    asked
}

/// Runs the command to its last request; returns its requests and what it took.
fn run(command: &[String], server: &Server, steps: usize) -> (Requests, LoopTimes) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.txt"), "some text\n".repeat(2_000)).unwrap();
    let words: Vec<String> =
        command.iter().map(|word| word.replace("{base}", &server.base)).collect();
    let errors = tempfile::NamedTempFile::new().unwrap();
    let begun = Instant::now();
    let mut child = Command::new(&words[0])
        .args(&words[1..])
        .current_dir(folder.path())
        .env("HOME", folder.path())
        .env("OPENAI_BASE_URL", &server.base)
        .env("OPENAI_API_KEY", "none")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(errors.reopen().unwrap())
        .spawn()
        .unwrap();
    let is_over = |child: &mut Child| child.try_wait().unwrap().is_some();
    while server.count() <= steps && begun.elapsed() < MAX_RUN_TIME && !is_over(&mut child) {
        thread::sleep(Duration::from_millis(2));
    }
    // An agent that doesn't stop at `Done.` is killed.
    let done = Instant::now();
    while done.elapsed() < GRACE && !is_over(&mut child) {
        thread::sleep(Duration::from_millis(2));
    }
    let _ = child.kill();
    child.wait().unwrap();
    let requests: Requests = server.take().into_iter().take(steps + 1).collect();
    assert!(
        requests.len() == steps + 1,
        "the command made {} requests, not {}: {}",
        requests.len(),
        steps + 1,
        std::fs::read_to_string(errors.path()).unwrap()
    );
    let took = took(&requests, begun);
    (requests, took)
}

/// Sends the same bytes again, and starts the same child processes.
fn baseline(asked: &RequestTimes, server: &Server, requests: &Requests) -> LoopTimes {
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

fn took(requests: &Requests, begun: Instant) -> LoopTimes {
    let steps = requests.len() - 1;
    let tenth = steps.div_ceil(10);
    let each = |from: usize, to: usize| {
        (requests[to].0 - requests[from].0).as_secs_f64() * 1e3 / (to - from) as f64
    };
    let (early, late) = (each(0, tenth), each(steps - tenth, steps));
    LoopTimes { first: requests[0].0 - begun, step: each(0, steps), early, late }
}

/// Of several runs the fastest; each number for itself.
fn fastest(runs: impl Iterator<Item = LoopTimes>) -> LoopTimes {
    let least = |a: LoopTimes, b: LoopTimes| LoopTimes {
        first: a.first.min(b.first),
        step: a.step.min(b.step),
        early: a.early.min(b.early),
        late: a.late.min(b.late),
    };
    runs.reduce(least).unwrap()
}

fn main() {
    let asked = asked();
    println!(
        "{:<14} {:>6} {:>10} {:>8} {:>8} {:>8} {:>7} {:>12} {:>11}",
        "ms per step",
        "steps",
        "it",
        "minimum",
        "over",
        "ratio",
        "start",
        "first tenth",
        "last tenth"
    );
    for &steps in &asked.steps {
        let (tool, arguments) = (asked.tool.clone(), asked.arguments.clone());
        let server = Server::start(ServerBehavior::Works { steps, tool, arguments });
        for (name, command) in &asked.commands {
            let mut requests = Vec::new();
            let agent = fastest((0..asked.runs).map(|_| {
                let (sent, took) = run(command, &server, steps);
                requests = sent;
                took
            }));
            let minimum = fastest((0..asked.runs).map(|_| baseline(&asked, &server, &requests)));
            println!(
                "{name:<14} {steps:>6} {:>10.3} {:>8.3} {:>8.3} {:>7.1}x {:>7.1} {:>12.3} {:>11.3}",
                agent.step,
                minimum.step,
                agent.step - minimum.step,
                agent.step / minimum.step,
                agent.first.as_secs_f64() * 1e3,
                agent.early,
                agent.late,
            );
        }
    }
}
