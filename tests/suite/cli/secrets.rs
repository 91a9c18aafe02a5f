//! The key: no remaining file contains it, and no other process has it.

use std::fs;
use std::path::Path;

use serde_json::json;

use crate::kit::chat;
use crate::kit::cli::{CliFixture, wait_for_exit};
use crate::kit::server::{ScriptedReply, Server};

/// The key that every task of these tests has.
const KEY: &str = "sk-test-canary";

/// Commands that look for the key in the state of a process.
const LOOKS: [&str; 6] = [
    "env; set; export -p; cat /proc/self/environ",
    "for p in $PPID $(cut -d' ' -f4 /proc/$PPID/stat); do cat /proc/$p/environ; done",
    "cat /proc/[0-9]*/environ | tr '\\0' '\\n' | grep -a canary",
    "cat /proc/[0-9]*/cmdline | tr '\\0' '\\n' | grep -a canary | grep -v grep",
    "for p in /proc/[0-9]*; do head -c 1 $p/mem; ls $p/fd/ $p/cwd/ $p/map_files/; done",
    "cat /proc/*/task/*/environ | grep -ac canary",
];

/// Returns the files below a folder that have the key in them.
fn with_key(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        if kind.is_dir() {
            found.extend(with_key(&path));
        } else if kind.is_file() {
            let content = fs::read(&path).unwrap();
            if content.windows(KEY.len()).any(|part| part == KEY.as_bytes()) {
                found.push(path.display().to_string());
            }
        }
    }
    found
}

/// Fault X12: commands, logs, journal, index, reports, pages and spans; the output, and error messages.
#[test]
fn the_key_is_in_nothing_that_is_left_behind() {
    let world = CliFixture::new();
    world.write("a", "text\n");
    let looks = LOOKS.map(|line| json!({"command": line}).to_string());
    let looks: Vec<_> = looks.iter().map(|line| ("c", "run_command", line.as_str())).collect();
    let refused = r#"{"error": {"message": "the key sk-test-canary is overloaded"}}"#;
    let server = Server::new([
        chat::calls(&looks),
        ScriptedReply::with_length(500, refused),
        chat::calls(&[("d", "read_file", r#"{"path": "a"}"#)]),
        ScriptedReply::with_length(401, refused),
    ]);
    let collector = Server::repeating([ScriptedReply::with_length(200, "{}")]);
    let args = ["--mode", "yolo", "-vvv", "--json", "--report-file", "report.html"];
    let mut task =
        world.command_with_server(&server, &[&args[..], &["--log-file", "log.txt"]].concat());
    task.env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url(""));
    let ran = wait_for_exit(task.spawn().unwrap());
    assert_eq!(ran.code, 4, "{}", ran.err);
    for args in [&["trace", "last", "--html", "trace.html"][..], &["sessions", "show", "last"]] {
        let ran = world.run(args);
        assert!(ran.code == 0 && !ran.out.contains(KEY), "{}{}", ran.out, ran.err);
    }
    assert!(!ran.out.contains(KEY) && !ran.err.contains(KEY), "{}{}", ran.out, ran.err);
    let left = with_key(world.path("").parent().unwrap());
    assert_eq!(left, Vec::<String>::new());
    assert!(world.path("log.txt").exists() && world.path("trace.html").exists());
    for request in server.requests().iter().chain(&collector.requests()) {
        assert!(!request.body.contains(KEY), "{}", request.body);
    }
}

/// Fault X8: at each level, nothing of the engine can be read; without any level, root alone can read it.
#[test]
fn a_command_learns_nothing_from_the_process_of_the_engine() {
    let is_root = rustix::process::geteuid().is_root();
    for sandbox in ["workspace-write", "read-only", "off"] {
        if sandbox == "off" && is_root {
            eprintln!("skipped: what is not confined and runs as root reads everything");
            continue;
        }
        let world = CliFixture::new();
        let looks = LOOKS.map(|line| json!({"command": line}).to_string());
        let looks: Vec<_> = looks.iter().map(|line| ("c", "run_command", line.as_str())).collect();
        let trace = r#"{"command": "e=$(cut -d' ' -f4 /proc/$PPID/stat); strace -p $PPID -p $e true; echo x > /proc/$e/mem"}"#;
        let server = Server::new([
            chat::calls(&looks),
            chat::calls(&[("t", "run_command", trace)]),
            chat::text("Done."),
        ]);
        let ran = world.run_with_server(&server, &["--mode", "yolo", "--sandbox", sandbox]);
        assert_eq!((ran.code, ran.out.as_str()), (0, "Done.\n"), "{}", ran.err);
        for request in server.requests() {
            assert!(!request.body.contains(KEY), "{sandbox}: {}", request.body);
        }
    }
}

/// Commands cannot read the digests of the system's passwords, not even as root.
#[test]
fn a_command_reads_no_passwords_of_the_system() {
    let world = CliFixture::new();
    let read = r#"{"command": "grep -q . /etc/shadow && echo BREACH"}"#;
    let server = Server::new([chat::calls(&[("c", "run_command", read)]), chat::text("Done.")]);
    let ran = world.run_with_server(&server, &["--mode", "yolo", "--sandbox", "workspace-write"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let requests = server.requests();
    let result = requests[1].json()["messages"][3]["content"].to_string();
    assert!(result.contains("exit code") && !result.contains("BREACH"), "{result}");
}

/// Fault R16: without the usual folder for temporary files there is one among the engine's own.
#[test]
fn without_a_place_for_temporary_files_commands_have_one_all_the_same() {
    let world = CliFixture::new();
    let line = r#"{"command": "f=$(mktemp) && echo x > $f && cat $f"}"#;
    let server = Server::new([chat::calls(&[("c", "run_command", line)]), chat::text("Done.")]);
    let mut task = world.command_with_server(&server, &["--mode", "yolo", "--json"]);
    let ran = wait_for_exit(task.env("TMPDIR", "/nowhere").spawn().unwrap());
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(ran.json()["tools_used"][0]["success"], true, "{}", server.requests()[1].body);
    let left = fs::read_dir(world.home().join(".local/state/architect/tmp")).unwrap().count();
    assert_eq!(left, 0, "it is gone afterwards");
}
