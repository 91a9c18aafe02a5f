//! What an agent's loop costs beside a minimum: any agent's command line against one scripted server.
//!
//! ```text
//! cargo bench --bench peers -- [--steps 10,100] [--runs 5] [--tool NAME] [--arguments JSON] [--child LINE]
//!     [--agent NAME:TOOL=LINE]… [--plot FILE] [-- COMMAND…]
//! ```
//!
//! The server speaks Chat Completions. It asks for one tool call at a time — `--tool` with `--arguments` — so many times, and
//! then says `Done.`. `{n}` in the arguments is the number of the step, since the same call again and again may end a run.
//! `COMMAND` is run in a throw-away workspace with `a.txt` in it; `{base}` in it is the address of the interface, which is
//! in `OPENAI_BASE_URL` too. Without one it is this program: without a journal, with one that survives the end of the
//! process, and with one that survives the end of the machine; and beside it the command lines of other agents, each with
//! its name and the tool that it is asked for, with the same arguments. `--plot` draws the time of a step of each over its minimum, at the last number of steps. What it sent is then sent again as a baseline: a raw socket,
//! the bodies as they were, and, with `--child`, the same child process each time. Nothing that has to do the same can be
//! faster.
//!
//! The time is taken at the server, from the first request to the last, so that it has no start-up in it; that has its
//! own column, and so have the first and the last tenth of the steps. Of several runs the fastest counts.
#![allow(clippy::unwrap_used, clippy::print_stdout)] // a benchmark may fail, and prints
#![allow(clippy::cast_precision_loss)] // it counts no more than thousands

use std::io::{BufReader, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use maud::{Markup, html};
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
    commands: Vec<MeasuredCommand>,
    plot: Option<PathBuf>,
}

/// An agent whose loop is measured.
struct MeasuredCommand {
    name: String,
    /// The tool that the server asks for.
    tool: String,
    words: Vec<String>,
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
        plot: None,
    };
    let (mut command, mut agents) = (Vec::new(), Vec::new());
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
            "--plot" => asked.plot = args.next().map(PathBuf::from),
            "--agent" => {
                let agent = args.next().unwrap();
                let (name, line) = agent.split_once('=').unwrap();
                let (name, tool) = name.split_once(':').unwrap();
                agents.push(MeasuredCommand {
                    name: name.to_owned(),
                    tool: tool.to_owned(),
                    words: ["sh", "-c", &format!("exec {line}")].map(str::to_owned).into(),
                });
            }
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
            let words = words.map(str::to_owned).collect();
            MeasuredCommand { name: name.to_owned(), tool: asked.tool.clone(), words }
        };
        asked.commands = vec![
            own("no journal", &["--ephemeral"]),
            own("journal: os", &["--set", "sessions.durability=os"]),
            own("journal: full", &[]),
        ];
    } else {
        let (name, tool) = ("command".to_owned(), asked.tool.clone());
        asked.commands = vec![MeasuredCommand { name, tool, words: command }];
    }
    asked.commands.extend(agents);
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

/// Draws bars on a logarithmic scale: they differ by factors.
fn plot(over: &[(&str, f64)], steps: usize) -> Markup {
    let most = over.iter().map(|(_, millis)| *millis).fold(1.0, f64::max).log10().ceil();
    let least =
        over.iter().map(|(_, millis)| *millis).fold(1.0, f64::min).max(0.01).log10().floor();
    let at = |millis: f64| 180.0 + 480.0 * (millis.max(0.01).log10() - least) / (most - least);
    let height = 30 * over.len() + 60;
    let mut ticks = Vec::new();
    let mut power = least;
    while power <= most {
        ticks.push(10_f64.powf(power));
        power += 1.0;
    }
    html! {
        svg xmlns="http://www.w3.org/2000/svg" viewBox=(format!("0 0 720 {height}")) font-family="sans-serif" font-size="13" {
            rect width="720" height=(height) fill="white";
            text x="10" y="20" { "Milliseconds per step over the minimum, " (steps) " steps (logarithmic)" }
            @for tick in ticks {
                line x1=(at(tick)) x2=(at(tick)) y1="30" y2=(height - 25) stroke="#ddd";
                text x=(at(tick)) y=(height - 8) text-anchor="middle" fill="#555" { (tick) }
            }
            @for (row, (name, millis)) in over.iter().enumerate() {
                text x="170" y=(30 * row + 55) text-anchor="end" { (name) }
                rect x="180" y=(30 * row + 40) width=((at(*millis) - 180.0).max(1.0)) height="20" fill="#3b6ea5";
                text x=(at(*millis) + 6.0) y=(30 * row + 55) { (format!("{millis:.2}")) }
            }
        }
    }
}

fn main() {
    let asked = asked();
    let mut over = Vec::new();
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
        over.clear();
        for MeasuredCommand { name, tool, words } in &asked.commands {
            let (tool, arguments) = (tool.clone(), asked.arguments.clone());
            let server = Server::start(ServerBehavior::Works { steps, tool, arguments });
            let mut requests = Vec::new();
            let agent = fastest((0..asked.runs).map(|_| {
                let (sent, took) = run(words, &server, steps);
                requests = sent;
                took
            }));
            let minimum = fastest((0..asked.runs).map(|_| baseline(&asked, &server, &requests)));
            over.push((name.as_str(), agent.step - minimum.step));
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
    if let (Some(path), Some(steps)) = (&asked.plot, asked.steps.last()) {
        std::fs::write(path, plot(&over, *steps).into_string()).unwrap();
    }
}
