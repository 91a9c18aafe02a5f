//! The overhead of an agent's loop: agents' command lines against one scripted server, compared with a minimal
//! baseline.
//!
//! ```text
//! cargo bench --bench peers -- [--steps 10,100] [--runs 5] [--only NAME,…] [--agents FILE] [--plot FILE]
//! ```
//!
//! `FILE` describes the agents, as `benches/peers.toml` does: the command line of each, and the tool calls that read
//! twenty lines of a file and run `true`. The server asks for one of these calls at a time, as often as there are
//! steps, and then replies `Done.`. Each run has a new workspace, with `a.txt` in it, and a new home. Agents that are
//! not installed are left out.
//!
//! The baseline sends the requests of the agent again, byte for byte, through a raw socket, and starts the same child
//! process each time where a step runs `true`. No agent that does the same can be faster.
//!
//! The time is taken at the server, from the first request to the last. It excludes the start-up, which has its own
//! column, as the first and the last tenth of the steps have. The agents take turns, and medians count. The peak memory
//! is measured in one more run: that of all its processes at once, with shared pages counted once (`Pss`). `--plot`
//! draws the results for the last number of steps.
#![allow(clippy::unwrap_used, clippy::print_stdout)] // a benchmark may fail, and prints
#![allow(clippy::cast_precision_loss)] // it counts no more than thousands

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufReader, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use maud::{Markup, html};
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Deserialize;
use server::{Requests, Server, ServerBehavior, request};

#[path = "subjects/server.rs"]
mod server;

/// The command line options.
struct Options {
    steps: Vec<usize>,
    runs: usize,
    agents: Vec<Agent>,
    plot: Option<PathBuf>,
}

#[derive(Deserialize)]
struct AgentFile {
    agent: Vec<Agent>,
}

/// An agent. In its texts, `{base}` is the address of the interface, `{origin}` the same without `/v1`, `{home}` and
/// `{workspace}` are folders, and `{n}` is the number of the step, since the same call again and again may end a run.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Agent {
    name: String,
    /// `architect` is this program; everything else is on the path.
    command: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// The files of its home, by path.
    #[serde(default)]
    files: BTreeMap<String, String>,
    read: ScriptedCall,
    run: ScriptedCall,
}

/// A tool call that the server asks for.
#[derive(Deserialize)]
struct ScriptedCall {
    tool: String,
    arguments: String,
}

/// The requests of a run, and when it was started.
struct AgentRun {
    server: Server,
    requests: Requests,
    begun: Instant,
}

/// Times of a run: until its first request, and for a step.
#[derive(Clone, Copy)]
struct LoopTimes {
    first: f64,
    step: f64,
    early: f64,
    late: f64,
}

/// The results for an agent.
struct Measured<'a> {
    name: &'a str,
    /// Milliseconds of a step over the baseline: for a step that reads, and for one that runs `true`.
    over: [f64; 2],
    first: f64,
    peak_mb: f64,
}

/// Time limit for a command.
const MAX_RUN_TIME: Duration = Duration::from_secs(600);

/// Time limit for a command to end after its last request.
const GRACE: Duration = Duration::from_secs(3);

/// Interval at which the memory of a run is sampled.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(10);

fn options() -> Options {
    let mut args = std::env::args().skip(1).filter(|arg| arg != "--bench");
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/peers.toml");
    let (mut steps, mut runs, mut only, mut file, mut plot) =
        ("10,100".to_owned(), 5, None, PathBuf::from(file), None);
    while let Some(arg) = args.next() {
        let value = args.next().unwrap();
        match arg.as_str() {
            "--steps" => steps = value,
            "--runs" => runs = value.parse().unwrap(),
            "--only" => only = Some(value),
            "--agents" => file = value.into(),
            "--plot" => plot = Some(value.into()),
            _ => panic!("unknown option {arg}"),
        }
    }
    let AgentFile { agent: mut agents } =
        toml::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    agents.retain(|agent| {
        let is_meant =
            only.as_ref().is_none_or(|only| only.split(',').any(|name| name == agent.name));
        is_meant && agent.is_installed()
    });
    let steps = steps.split(',').map(|one| one.parse().unwrap()).collect();
    Options { steps, runs, agents, plot }
}

impl Agent {
    /// Returns whether the agent is this program.
    fn is_own(&self) -> bool {
        self.command[0] == "architect"
    }

    fn is_installed(&self) -> bool {
        let path = std::env::var_os("PATH").unwrap_or_default();
        self.is_own()
            || std::env::split_paths(&path).any(|folder| folder.join(&self.command[0]).exists())
    }

    /// Returns the version that it reports, if it reports one.
    fn version(&self) -> String {
        let program =
            if self.is_own() { env!("CARGO_BIN_EXE_architect") } else { &self.command[0] };
        let home = tempfile::tempdir().unwrap();
        let mut command = Command::new(program);
        let output = command.arg("--version").env("HOME", home.path()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let starts_with_digit = |word: &&str| word.starts_with(|c: char| c.is_ascii_digit());
        text.split_whitespace().find(starts_with_digit).unwrap_or_default().to_owned()
    }

    /// Returns its command with these folders, and writes the files of its home.
    fn command(&self, server: &Server, home: &Path, workspace: &Path) -> Command {
        let fill = |text: &str| {
            text.replace("{base}", &server.base)
                .replace("{origin}", server.base.trim_end_matches("/v1"))
                .replace("{home}", home.to_str().unwrap())
                .replace("{workspace}", workspace.to_str().unwrap())
        };
        for (name, text) in &self.files {
            let path = home.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, fill(text)).unwrap();
        }
        let program =
            if self.is_own() { env!("CARGO_BIN_EXE_architect") } else { &self.command[0] };
        let mut command = Command::new(program);
        command
            .args(self.command[1..].iter().map(|word| fill(word)))
            .current_dir(workspace)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", home)
            .envs(self.env.iter().map(|(name, value)| (name, fill(value))))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .process_group(0);
        command
    }

    /// Runs it to its last request, with a call to `during` every so often.
    fn run(&self, steps: usize, runs_true: bool, mut during: impl FnMut(u32)) -> AgentRun {
        let (home, workspace) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(workspace.path().join("a.txt"), "some text\n".repeat(2_000)).unwrap();
        let ScriptedCall { tool, arguments } = if runs_true { &self.run } else { &self.read };
        let arguments = arguments.replace("{workspace}", workspace.path().to_str().unwrap());
        let server = Server::start(ServerBehavior::Works { steps, tool: tool.clone(), arguments });
        let errors = tempfile::NamedTempFile::new().unwrap();
        let mut command = self.command(&server, home.path(), workspace.path());
        command.stderr(errors.reopen().unwrap());
        let begun = Instant::now();
        let mut child = command.spawn().unwrap();
        let is_over = |child: &mut Child| child.try_wait().unwrap().is_some();
        while server.count() <= steps && begun.elapsed() < MAX_RUN_TIME && !is_over(&mut child) {
            during(child.id());
            thread::sleep(SAMPLE_INTERVAL);
        }
        // An agent that doesn't stop at `Done.` is killed.
        let done = Instant::now();
        while done.elapsed() < GRACE && !is_over(&mut child) {
            thread::sleep(SAMPLE_INTERVAL);
        }
        let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
        child.wait().unwrap();
        let requests: Requests = server.take().into_iter().take(steps + 1).collect();
        assert!(
            requests.len() == steps + 1,
            "{} made {} requests, not {}: {}",
            self.name,
            requests.len(),
            steps + 1,
            fs::read_to_string(errors.path()).unwrap()
        );
        AgentRun { server, requests, begun }
    }
}

/// Sends the same bytes again, and starts the same child processes.
fn baseline(AgentRun { server, requests, .. }: &AgentRun, runs_true: bool) -> LoopTimes {
    let begun = Instant::now();
    let address = server.base.trim_start_matches("http://").trim_end_matches("/v1");
    let stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    let mut reader = BufReader::new(&stream);
    for (index, (_, bytes)) in requests.iter().enumerate() {
        (&stream).write_all(bytes).unwrap();
        request(&mut reader).unwrap();
        if runs_true && index + 1 < requests.len() {
            let mut child = Command::new("sh");
            child.args(["-c", "true"]).stdin(Stdio::null()).output().unwrap();
        }
    }
    times(&server.take(), begun)
}

fn times(requests: &Requests, begun: Instant) -> LoopTimes {
    let steps = requests.len() - 1;
    let tenth = steps.div_ceil(10);
    let millis = |from: Instant, to: Instant| (to - from).as_secs_f64() * 1e3;
    let each =
        |from: usize, to: usize| millis(requests[from].0, requests[to].0) / (to - from) as f64;
    LoopTimes {
        first: millis(begun, requests[0].0),
        step: each(0, steps),
        early: each(0, tenth),
        late: each(steps - tenth, steps),
    }
}

/// Returns the median of each number.
fn median(runs: &[LoopTimes]) -> LoopTimes {
    let of = |number: fn(&LoopTimes) -> f64| {
        let mut all: Vec<f64> = runs.iter().map(number).collect();
        all.sort_by(f64::total_cmp);
        f64::midpoint(all[(all.len() - 1) / 2], all[all.len() / 2])
    };
    LoopTimes {
        first: of(|run| run.first),
        step: of(|run| run.step),
        early: of(|run| run.early),
        late: of(|run| run.late),
    }
}

/// Returns the memory of a process and all below it, in kB.
fn memory(pid: u32) -> u64 {
    let read = |path: String| fs::read_to_string(path).unwrap_or_default();
    let rollup = read(format!("/proc/{pid}/smaps_rollup"));
    let own = rollup.lines().find_map(|line| line.strip_prefix("Pss:"));
    let own = own.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0_u64);
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let children: String =
        threads.map(|thread| read(thread.path().join("children").display().to_string())).collect();
    own + children.split_whitespace().map(|child| memory(child.parse().unwrap())).sum::<u64>()
}

/// Measures the agents at a number of steps.
fn measure(options: &Options, steps: usize) -> Vec<Measured<'_>> {
    let new = |agent| Measured { name: agent, over: [0.0; 2], first: f64::MAX, peak_mb: 0.0 };
    let mut all: Vec<_> = options.agents.iter().map(|agent| new(agent.name.as_str())).collect();
    for (kind, step) in ["read", "true"].into_iter().enumerate() {
        let mut taken = vec![(Vec::new(), Vec::new()); all.len()];
        for _ in 0..options.runs {
            for (agent, (own, minimum)) in options.agents.iter().zip(&mut taken) {
                let run = agent.run(steps, kind == 1, |_| ());
                own.push(times(&run.requests, run.begun));
                minimum.push(baseline(&run, kind == 1));
            }
        }
        for ((agent, (own, minimum)), measured) in options.agents.iter().zip(&taken).zip(&mut all) {
            let mut peak = 0;
            agent.run(steps, kind == 1, |pid| peak = memory(pid).max(peak));
            let (own, minimum) = (median(own), median(minimum));
            measured.over[kind] = own.step - minimum.step;
            measured.first = own.first.min(measured.first);
            measured.peak_mb = (peak as f64 / 1e3).max(measured.peak_mb);
            println!(
                "{:<24} {step:<5} {steps:>5} {:>9.3} {:>8.3} {:>8.3} {:>7.1} {:>12.3} {:>11.3} {:>8.1}",
                agent.name,
                own.step,
                minimum.step,
                own.step - minimum.step,
                own.first,
                own.early,
                own.late,
                peak as f64 / 1e3,
            );
        }
    }
    all
}

/// Draws bars on logarithmic scales: agents differ by factors.
fn plot(measured: &[Measured<'_>], steps: usize) -> Markup {
    let panel = |title, number: fn(&Measured<'_>) -> f64| {
        (title, measured.iter().map(number).collect::<Vec<_>>())
    };
    let panels = [
        panel("a step that reads, ms", |one| one.over[0]),
        panel("a step that runs true, ms", |one| one.over[1]),
        panel("first request, ms", |one| one.first),
        panel("peak memory, MB", |one| one.peak_mb),
    ];
    let height = 28 * measured.len() + 72;
    let y = |row: usize| 28 * row + 56;
    html! {
        svg xmlns="http://www.w3.org/2000/svg" viewBox=(format!("0 0 960 {height}"))
            font-family="sans-serif" font-size="13"
        {
            rect width="960" height=(height) fill="white" {}
            @for (row, one) in measured.iter().enumerate() {
                text x="165" y=(y(row) + 15) text-anchor="end" { (one.name) }
            }
            @for (column, (title, values)) in panels.iter().enumerate() {
                @let left = 175.0 + 196.0 * column as f64;
                @let low = values.iter().copied().fold(f64::MAX, f64::min).max(0.01).log10().floor();
                @let high = values.iter().copied().fold(0.0, f64::max).log10().ceil().max(low + 1.0);
                @let width = |value: f64| 140.0 * (value.max(0.01).log10() - low) / (high - low);
                text x=(left) y="40" font-weight="bold" { (title) }
                @for (row, value) in values.iter().enumerate() {
                    @let length = width(*value).max(1.0);
                    rect x=(left) y=(y(row)) width=(format!("{length:.1}")) height="20" fill="#3b6ea5" {}
                    text x=(format!("{:.1}", left + length + 4.0)) y=(y(row) + 15) {
                        @if *value < 10.0 { (format!("{value:.2}")) } @else { (format!("{value:.0}")) }
                    }
                }
            }
            text x="175" y="16" fill="#555" {
                "Over a minimal client, " (steps) " steps; logarithmic scales; less is better"
            }
        }
    }
}

fn main() {
    let options = options();
    for agent in &options.agents {
        println!("{} {}", agent.name, agent.version());
    }
    println!(
        "{:<24} {:<5} {:>5} {:>9} {:>8} {:>8} {:>7} {:>12} {:>11} {:>8}",
        "ms per step",
        "step",
        "steps",
        "it",
        "minimum",
        "over",
        "start",
        "first tenth",
        "last tenth",
        "peak MB"
    );
    for &steps in &options.steps {
        let measured = measure(&options, steps);
        if let Some(path) = options.plot.as_ref().filter(|_| options.steps.last() == Some(&steps)) {
            fs::write(path, plot(&measured, steps).into_string()).unwrap();
        }
    }
}
