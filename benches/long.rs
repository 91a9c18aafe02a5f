//! Memory and speed of a session of ten thousand steps against a loopback server, with its journal.
//!
//! `cargo bench --bench long [-- STEPS]` prints, after each tenth, the resident memory and its peak, the numbers of
//! descriptors and threads, and the time of a step. The conversation is summarized whenever it has 45 000 tokens. The
//! durability is `os`, so that the disk is not measured.
#![allow(clippy::unwrap_used, clippy::print_stdout)] // a benchmark may fail, and prints
#![allow(clippy::cast_precision_loss)] // it counts no more than thousands

use std::thread;
use std::time::{Duration, Instant};

use agent::agent;
use process::ProcessUsage;
use server::{Server, ServerBehavior};

#[path = "subjects/agent.rs"]
mod agent;
#[path = "subjects/process.rs"]
mod process;
#[path = "subjects/server.rs"]
mod server;

fn main() {
    let steps = std::env::args().skip(1).find_map(|arg| arg.parse().ok()).unwrap_or(10_000_usize);
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.txt"), "some text\n".repeat(2_000)).unwrap();
    let (tool, arguments) = ("read_file".to_owned(), r#"{"path":"a.txt","offset":{n},"limit":20}"#);
    let server =
        Server::start(ServerBehavior::Works { steps, tool, arguments: arguments.to_owned() });
    let sets = ["sessions.durability=os", "context.max_context_tokens=60000"];
    let args = ["--quiet", "--max-steps", "1000000", "--set", sets[0], "--set", sets[1]];
    let mut child = agent(&server.base, folder.path(), &args).spawn().unwrap();
    println!(
        "{:>7} {:>13} {:>10} {:>12} {:>8} {:>12}",
        "steps", "resident kB", "most kB", "descriptors", "threads", "ms per step"
    );
    let tenth = (steps / 10).max(1);
    let (mut at, mut since) = (1, Instant::now());
    while at <= steps {
        while server.count() < at {
            assert!(child.try_wait().unwrap().is_none(), "it is over too early");
            thread::sleep(Duration::from_micros(200));
        }
        let ProcessUsage { resident, most, descriptors, threads } = ProcessUsage::of(child.id());
        let step = since.elapsed().as_secs_f64() * 1e3 / tenth as f64;
        println!("{at:>7} {resident:>13} {most:>10} {descriptors:>12} {threads:>8} {step:>12.3}");
        (at, since) = (if at == 1 { tenth } else { at + tenth }, Instant::now());
    }
    assert!(child.wait().unwrap().success());
}
