//! The resource usage of a long run: memory, descriptors and threads.

use std::thread;
use std::time::{Duration, Instant};

use agent::agent;
use process::ProcessUsage;
use server::{Server, ServerBehavior};
use wait_timeout::ChildExt;

#[path = "../../../benches/subjects/agent.rs"]
mod agent;
#[allow(dead_code)] // benchmarks use more of both
#[path = "../../../benches/subjects/process.rs"]
mod process;
#[allow(dead_code)]
#[path = "../../../benches/subjects/server.rs"]
mod server;

const STEPS: usize = 2_000;

/// Time limit of the run.
const MAX_RUN_TIME: Duration = Duration::from_secs(180);

/// Fault R17. `cargo bench --bench long` runs ten thousand steps. The conversation is summarized on the way, so that
/// its size is bounded, and so is everything else.
#[test]
fn a_run_of_thousands_of_steps_takes_no_more_than_it_did_early() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.txt"), "some text\n".repeat(STEPS)).unwrap();
    let (tool, arguments) =
        ("read_file".to_owned(), r#"{"path":"a.txt","offset":{n},"limit":50}"#.to_owned());
    let server = Server::start(ServerBehavior::Works { steps: STEPS, tool, arguments });
    let sets = ["sessions.durability=os", "context.max_context_tokens=20000"];
    let args = ["--max-steps", "100000", "--set", sets[0], "--set", sets[1]];
    let mut child = agent(&server.base, folder.path(), &args).spawn().unwrap();
    let begun = Instant::now();
    let mut after = |steps: usize| {
        while server.count() < steps {
            if let Some(status) = child.try_wait().unwrap() {
                panic!("it ended after {} steps: {status}", server.count());
            }
            if begun.elapsed() > MAX_RUN_TIME {
                let _ = child.kill();
                panic!("only {} steps", server.count());
            }
            thread::sleep(Duration::from_millis(2));
        }
        ProcessUsage::of(child.id())
    };
    // Both are after summaries, so that the conversation had reached its greatest length once before each.
    let (early, late) = (after(STEPS / 4), after(STEPS - 20));
    let left = MAX_RUN_TIME.saturating_sub(begun.elapsed());
    assert!(child.wait_timeout(left).unwrap().expect("it has an end").success());
    assert!(late.most <= early.most + 2_048, "{early:?}, then {late:?}");
    assert!(late.descriptors <= early.descriptors + 2, "{early:?}, then {late:?}");
    assert!(late.threads <= early.threads + 2, "{early:?}, then {late:?}");
}
