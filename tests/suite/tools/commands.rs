//! Commands: output, end, and cleanup.

use std::fs::{File, OpenOptions};
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use architect::port::{AuthorizationOutcome, CancellationToken, Toolbox};
use architect::tools::{OutputStore, TextWriter, ToolSettings};
use architect::types::{CallId, Sha256Digest, ToolCall, ToolStatus};
use architect::workspace::{LinePage, LinePosition};
use serde_json::json;

use super::fixture::{ToolFixture, yolo_settings};
use crate::kit::effect::scope_with;
use crate::kit::system::{count_sleeping, wait_until};

fn run(world: &ToolFixture, command: &str) -> String {
    world.call("run_command", &json!({"command": command})).text.to_string()
}

#[test]
fn the_result_has_output_error_output_and_exit_code() {
    let world = ToolFixture::new();
    assert_eq!(run(&world, "echo out; echo err >&2; exit 3"), "out\n[stderr]\nerr\n[exit code 3]");
    assert_eq!(run(&world, "true"), "[exit code 0]");
    assert_eq!(run(&world, "printf x"), "x\n[exit code 0]");
}

/// Fault T9.
#[test]
fn the_ways_to_end_are_distinguished() {
    let world = ToolFixture::new();
    assert_eq!(run(&world, "kill -SEGV $$"), "[ended by signal 11 (SIGSEGV)]");
    assert!(run(&world, "nonsense-command").ends_with("[exit code 127: command not found]"));
    assert!(run(&world, "/etc/passwd").ends_with("[exit code 126: not executable]"));
}

/// Fault T13.
#[test]
fn no_state_is_passed_to_the_next_command() {
    let world = ToolFixture::new();
    world.write("d/x", "");
    run(&world, "cd /; export LEFT=behind; ulimit -n 50");
    let output = run(&world, "pwd; echo \"[$LEFT]\"");
    assert_eq!(output, format!("{}\n[]\n[exit code 0]", world.path.display()));
    let output =
        world.ok("run_command", &json!({"command": "pwd; echo $X", "cwd": "d", "env": {"X": "y"}}));
    assert_eq!(output, format!("{}/d\ny\n[exit code 0]", world.path.display()));
}

/// Fault T8: no one can answer, so a command that asks fails at once.
#[test]
fn nothing_waits_for_an_answer() {
    let world = ToolFixture::new();
    let begun = Instant::now();
    assert_eq!(run(&world, "cat; read x; echo \"$?\""), "1\n[exit code 0]");
    assert!(run(&world, "tty").starts_with("not a tty"));
    assert!(run(&world, "cat < /dev/tty").contains("No such device or address"));
    assert!(begun.elapsed() < Duration::from_secs(10));
}

/// Faults T1, T2.
#[test]
fn a_command_is_ended_after_its_time() {
    let world = ToolFixture::new();
    let begun = Instant::now();
    let call = json!({"command": "echo begun; sleep 4711.1", "timeout": 1});
    let result = world.call("run_command", &call);
    assert_eq!(result.status, ToolStatus::TimedOut);
    assert_eq!(
        &*result.text,
        "begun\n[timed out after 1 s and was killed with all its processes; `timeout` can be up to 3600 s]"
    );
    let stubborn =
        json!({"command": "trap '' TERM; sleep 4711.1 & wait; sleep 4711.1", "timeout": 1});
    assert_eq!(world.call("run_command", &stubborn).status, ToolStatus::TimedOut);
    assert!(begun.elapsed() < Duration::from_secs(9));
    assert_eq!(count_sleeping("4711.1"), 0);
}

/// Fault T3.
#[test]
fn a_daemon_does_not_survive_its_command() {
    let world = ToolFixture::new();
    let output =
        run(&world, "for i in 1 2 3; do setsid -f sleep 4711.3; done; (setsid sleep 4711.3 &)");
    assert!(output.contains("4 background processes were ended with it"), "{output}");
    assert_eq!(count_sleeping("4711.3"), 0);
}

/// Fault T4.
#[test]
fn a_background_process_that_holds_the_output_delays_nothing() {
    let world = ToolFixture::new();
    let begun = Instant::now();
    let output = run(&world, "sleep 4711.4 & echo started");
    assert_eq!(output, "started\n[exit code 0; a background process was ended with it]");
    assert!(begun.elapsed() < Duration::from_secs(3));
    assert_eq!(count_sleeping("4711.4"), 0);
}

/// Output that a process in the background writes soon after is not lost. On a busy machine it may come too late.
#[test]
fn the_background_may_finish_what_it_does() {
    let world = ToolFixture::new();
    let outputs = (0..5).map(|_| run(&world, "echo one; (sleep 0.05; echo two) &"));
    let last = outputs.into_iter().find(|output| output == "one\ntwo\n[exit code 0]");
    assert!(last.is_some());
}

#[test]
fn an_interrupt_ends_a_command_and_its_tree() {
    let world = ToolFixture::new();
    let call = json!({"command": "setsid sleep 4711.5 & sleep 4711.5"});
    let call = ToolCall::new("c".into(), "run_command", &call.to_string());
    let cancel = CancellationToken::new();
    let AuthorizationOutcome::Approved { call: job, .. } =
        world.registry.prepare(&call).authorize(&scope_with(&cancel))
    else {
        panic!()
    };
    let token = cancel.clone();
    let running = thread::spawn(move || job(&scope_with(&token)));
    wait_until("both run", || count_sleeping("4711.5") == 2);
    let begun = Instant::now();
    cancel.cancel();
    let result = running.join().unwrap();
    assert_eq!(result.status, ToolStatus::Interrupted);
    assert!(begun.elapsed() < Duration::from_secs(3));
    assert_eq!(count_sleeping("4711.5"), 0);
}

/// Faults T6, T7.
#[test]
fn a_flood_of_output_costs_little() {
    let world = ToolFixture::new();
    let output = run(&world, "head -c 300M /dev/zero; echo; echo end");
    assert!(output.len() < 10_000, "{}", output.len());
    assert!(output.contains("end\n[exit code 0]"));
    let lines = run(&world, "seq 1 1000000");
    assert!(lines.starts_with("1\n2\n") && lines.contains("\n1000000\n[exit code 0]"), "{lines}");
    assert!(lines.contains(" lines omitted ...]\n"));
}

/// Returns settings that store this many bytes of each output.
fn settings_that_store(bytes: u64) -> ToolSettings {
    let mut settings = yolo_settings();
    settings.commands.max_stored_output = bytes;
    settings
}

fn page(world: &ToolFixture, offset: u64, byte: u64) -> String {
    world.ok(
        "read_output",
        &json!({"call_id": "call-1", "offset": offset, "byte": byte, "limit": 2}),
    )
}

#[test]
fn the_whole_of_ten_megabytes_is_stored_and_its_lines_are_counted() {
    let world = ToolFixture::new();
    let output = run(&world, "seq -f 'line %.0f of many lines that are written' 1 250000");
    // A result has 40 and 20 lines, the last of which is the exit code.
    assert!(output.contains("\n[... 249941 lines omitted ...]\n"), "{output}");
    assert!(output.ends_with("[The full result is stored: read_output with call_id \"call-1\".]"));
    assert!(page(&world, 125_000, 0).starts_with("line 125000 of many"));
    let last = page(&world, 250_000, 0);
    assert!(
        last.starts_with("line 250000 of many lines that are written\n[exit code 0]\n"),
        "{last}"
    );
    assert!(last.ends_with("[lines 250000-250001 of 250001]"), "{last}");
}

#[test]
fn a_line_of_megabytes_is_paged_by_bytes() {
    let world = ToolFixture::new();
    let output = run(&world, "head -c 5000000 /dev/zero | tr '\\0' x; echo end; echo two");
    assert!(output.contains(" bytes omitted ...]\n"), "{output}");
    let first = page(&world, 1, 0);
    assert!(first.contains("; continue with offset 1 and byte "), "{first}");
    assert!(page(&world, 1, 4_999_998).starts_with("xxend\ntwo\n[lines 1-2 of 3"));
}

#[test]
fn binary_output_is_stored_as_text() {
    let world = ToolFixture::new();
    run(&world, "head -c 1000000 /dev/zero | tr '\\0' '\\377'; printf '\\nlast \\0 line\\n' >&2");
    let last = page(&world, 4, 0);
    assert!(last.starts_with("last \\u{0} line\n[exit code 0]\n"), "{last}");
}

#[test]
fn what_is_beyond_the_limit_of_stored_output_is_reported() {
    let world = ToolFixture::with(settings_that_store(1 << 20), |_| {});
    let output = run(&world, "yes 1234567 | head -n 250000");
    let missing = 2_000_000 - (1 << 20) - (256 << 10);
    let note = format!(
        "[Part of the result is stored: read_output with call_id \"call-1\". {missing} bytes of it are not stored: an output is \
         stored up to 1048576 bytes.]"
    );
    assert!(output.ends_with(&note), "{output}");
    assert!(output.contains("\n[... 249800 lines omitted ...]\n"), "{output}");
    let gap = world.ok("read_output", &json!({"call_id": "call-1", "offset": 131_073, "limit": 3}));
    assert!(gap.contains(&format!("[... {missing} bytes are not stored ...]")), "{gap}");
}

/// A store on a full disk.
#[derive(Debug)]
struct FullStore;

impl OutputStore for FullStore {
    fn store(&self, _: &CallId, _: Arc<str>) -> io::Result<Option<Sha256Digest>> {
        Err(io::ErrorKind::StorageFull.into())
    }

    fn store_written(
        &self,
        call: &CallId,
        write: TextWriter<'_>,
    ) -> io::Result<Option<Sha256Digest>> {
        let mut text = Vec::new();
        write(&mut text)?;
        let text = String::from_utf8_lossy(&text);
        assert!(text.len() < 600_000 && text.contains(" bytes are not stored ...]"));
        self.store(call, text.into())
    }

    fn open_spool(&self) -> io::Result<File> {
        OpenOptions::new().write(true).open("/dev/full")
    }

    fn page(&self, _: &CallId, _: LinePosition, _: u64) -> Option<LinePage> {
        None
    }
}

#[test]
fn a_full_disk_loses_only_the_stored_output() {
    let mut world = ToolFixture::new();
    world.registry = world.registry.with_results(Arc::new(FullStore));
    for command in ["seq 1 300000", "seq 1 1000"] {
        let output = run(&world, command);
        assert!(output.starts_with("1\n2\n") && output.contains("\n[exit code 0]\n"), "{output}");
        assert!(output.contains("[The whole could not be stored: "), "{output}");
    }
}

/// Fault T10: the result names the system's reason for a refusal.
#[test]
fn a_command_that_cannot_start_says_why() {
    let world = ToolFixture::new();
    assert!(
        world
            .err("run_command", &json!({"command": "ls", "cwd": "no"}))
            .contains("'no' does not exist")
    );
    let long = format!(": {}; echo done | cat", "x".repeat(300_000));
    let output = run(&world, &long);
    assert_eq!(output, "done\n[exit code 0]");
}

/// Fault T12. In a process of its own: other tests in this one open and close files meanwhile.
#[test]
fn a_hundred_commands_leave_no_zombie_and_no_open_file() {
    const IN_CHILD: &str = "ARCHITECT_TEST_HUNDRED_COMMANDS";

    if std::env::var_os(IN_CHILD).is_none() {
        let own = std::env::current_exe().unwrap();
        let name = "tools::commands::a_hundred_commands_leave_no_zombie_and_no_open_file";
        let output = std::process::Command::new(own)
            .args(["--exact", name, "--nocapture", "--test-threads=1"])
            .env(IN_CHILD, "1")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        return assert!(output.status.success() && text.contains("1 passed"), "{text}");
    }
    let world = ToolFixture::new();
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let zombies = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        let lists = tasks.map(|task| std::fs::read_to_string(task.path().join("children")));
        let ids = lists.flatten().collect::<Vec<_>>().join(" ");
        let stats = ids
            .split_whitespace()
            .filter_map(|id| std::fs::read_to_string(format!("/proc/{id}/stat")).ok());
        stats.filter(|stat| stat.contains(") Z ")).count()
    };
    run(&world, "true");
    let before = open();
    for _ in 0..100 {
        assert_eq!(run(&world, "true & false"), "[exit code 1]");
    }
    assert_eq!((open(), zombies()), (before, 0));
}
