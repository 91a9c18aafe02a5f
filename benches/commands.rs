//! The cost of a command over a plain start of the same process.
//!
//! `cargo bench --bench commands` prints a table: the median and the 95th percentile of each way, in milliseconds, and
//! the difference to the plain start. The ways take turns, so that all of them see the same machine.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)] // a program for developers

use std::path::Path;
use std::process::{Command as Plain, Stdio};
use std::time::{Duration, Instant};

use architect::exec::{
    CommandSpec, NetworkAccess, SandboxLevel, SandboxMode, SandboxPolicy, Supervisor,
    VariableFilter, clean_environment,
};
use architect::port::CancellationToken;

const ROUNDS: usize = 400;

fn main() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (workspace, temp) = (folder.path().join("w"), folder.path().join("t"));
    for folder in [&workspace, &temp] {
        std::fs::create_dir(folder).expect("a folder");
    }
    let off = SandboxPolicy { temp: temp.clone(), ..SandboxPolicy::off(&workspace) };
    let confined = |level, network| SandboxPolicy {
        mode: SandboxMode::WorkspaceWrite,
        ceiling: level,
        network,
        ..off.clone()
    };
    let supervisor = |policy| {
        let env =
            clean_environment(std::env::vars_os(), &VariableFilter { rule: &|_| None }, &temp);
        Supervisor::with_program(env!("CARGO_BIN_EXE_architect"), policy, env)
    };
    let in_process = Supervisor::in_process(off.clone(), Vec::new());
    let ways = [
        ("in a thread", in_process),
        ("supervised", supervisor(off.clone())),
        ("landlock", supervisor(confined(SandboxLevel::Landlock, NetworkAccess::On))),
        ("namespaces", supervisor(confined(SandboxLevel::Namespaces, NetworkAccess::On))),
        (
            "namespaces, no network",
            supervisor(confined(SandboxLevel::Namespaces, NetworkAccess::Off)),
        ),
    ];
    for (name, supervisor) in &ways {
        let begun = Instant::now();
        match supervisor.enforcement() {
            Ok(enforced) => {
                println!("{name}: {} after {:.1} ms", enforced.level, millis(begun.elapsed()));
            }
            Err(error) => println!("{name}: {error}"),
        }
    }
    for argv in [&["/bin/true"][..], &["/bin/bash", "-c", ":"]] {
        println!("\n{:<24} {:>8} {:>8} {:>8}", argv.join(" "), "p50", "p95", "over");
        let mut plain = Vec::new();
        let mut taken = vec![Vec::new(); ways.len()];
        for round in 0..ROUNDS + 20 {
            let one = time(|| start(argv, &workspace));
            let all: Vec<_> =
                ways.iter().map(|(_, way)| time(|| run(way, argv, &workspace))).collect();
            // The first rounds warm up.
            if round >= 20 {
                plain.push(one);
                taken.iter_mut().zip(all).for_each(|(taken, one)| taken.push(one));
            }
        }
        let base = row("plain start", &mut plain, None);
        for ((name, _), taken) in ways.iter().zip(&mut taken) {
            row(name, taken, Some(base));
        }
    }
}

fn start(argv: &[&str], cwd: &Path) {
    let done = Plain::new(argv[0])
        .args(&argv[1..])
        .current_dir(cwd)
        .stdin(Stdio::null())
        .output()
        .expect("a process");
    assert!(done.status.success());
}

fn run(supervisor: &Supervisor, argv: &[&str], cwd: &Path) {
    let argv = argv.iter().map(Into::into).collect();
    let command =
        CommandSpec { timeout: Some(Duration::from_secs(30)), ..CommandSpec::new(argv, cwd) };
    let outcome = supervisor.run(&command, &CancellationToken::new()).expect("a command");
    assert!(outcome.end.is_success());
}

fn time(act: impl FnOnce()) -> Duration {
    let begun = Instant::now();
    act();
    begun.elapsed()
}

fn row(name: &str, taken: &mut [Duration], base: Option<Duration>) -> Duration {
    taken.sort();
    let (median, late) = (taken[taken.len() / 2], taken[taken.len() * 95 / 100]);
    let over = base.map_or(String::new(), |base| format!("{:+.2}", millis(median) - millis(base)));
    println!("{name:<24} {:>8.2} {:>8.2} {over:>8}", millis(median), millis(late));
    median
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}
