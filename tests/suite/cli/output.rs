//! Standard output, standard error, and output files.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::json;

use crate::kit::chat;
use crate::kit::cli::{CliFixture, outcome, wait_for_exit};
use crate::kit::server::Server;

#[test]
fn standard_output_has_the_answer_and_nothing_else() {
    let (world, server) = (CliFixture::new(), Server::new([chat::text("All is well.")]));
    let ran = world.run_with_server(&server, &[]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "All is well.\n"), "{}", ran.err);
    assert!(ran.err.contains("Agent completed"), "{}", ran.err);
    assert!(!ran.err.contains('\u{1b}'));
    let request = &server.requests()[0];
    assert_eq!(request.header("authorization"), Some("Bearer sk-test-canary"));
    assert_eq!(request.json()["stream"], true);
}

#[test]
fn json_is_one_document() {
    let (world, server) = (CliFixture::new(), Server::new([chat::text("Fine.")]));
    let ran = world.run_with_server(&server, &["--json"]);
    assert_eq!(ran.outcome(), outcome(0, "llm_done", "success"));
    let json = ran.json();
    assert_eq!(json["output"], "Fine.");
    assert_eq!(json["usage"]["input_tokens"], chat::USAGE.0);
    assert_eq!(json["model"], "openai-chat/fake");
    assert_eq!((&json["steps"], &json["llm_calls"]), (&json!(0), &json!(1)));
}

#[test]
fn stream_json_is_an_event_on_each_line_and_the_result_on_the_last() {
    let (world, server) = (CliFixture::new(), Server::new([chat::text("Fine.")]));
    let ran = world.run_with_server(&server, &["--output-format", "stream-json", "--quiet"]);
    let lines = ran.lines();
    assert_eq!(lines[0]["type"], "agent_start");
    assert_eq!(lines.last().unwrap()["type"], "result");
    assert_eq!(lines.last().unwrap()["output"], "Fine.");
    let seqs: Vec<u64> = lines.iter().filter_map(|line| line["seq"].as_u64()).collect();
    assert!(seqs.is_sorted() && seqs.len() + 1 == lines.len());
    assert_eq!(ran.err, "");
}

#[test]
fn without_streams_the_whole_reply_is_asked_for() {
    let (world, server) = (CliFixture::new(), Server::new([chat::unstreamed("Fine.")]));
    let ran = world.run_with_server(&server, &["--no-stream"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "Fine.\n"), "{}", ran.err);
    assert_ne!(server.requests()[0].json()["stream"], true);
}

#[test]
fn the_answer_goes_into_a_file_too_and_a_report_beside_it() {
    let (world, server) = (CliFixture::new(), Server::new([chat::text("Fine.")]));
    let ran =
        world.run_with_server(&server, &["-o", "out/answer.txt", "--report-file", "out/report.md"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(world.read("out/answer.txt"), "Fine.\n");
    assert!(world.read("out/report.md").contains("Fine."));
}

#[test]
fn the_verbose_log_shows_what_is_enforced() {
    let (world, server) = (CliFixture::new(), Server::repeating([chat::text("Fine.")]));
    let enforced = "info: commands are ";
    assert!(world.run_with_server(&server, &["-v", "--json"]).err.contains(enforced));
    assert!(!world.run_with_server(&server, &["--json"]).err.contains(enforced));
}

/// Other programs may have written there before, and may write later.
#[test]
fn a_file_behind_standard_output_is_not_replaced() {
    let (world, server) = (CliFixture::new(), Server::new([chat::text("Fine.")]));
    let mut log = std::fs::File::create(world.path("log")).unwrap();
    log.write_all(b"before\n").unwrap();
    let mut task =
        world.command_with_server(&server, &["-o", "/dev/stdout", "--report-file", "/dev/stderr"]);
    let err = std::fs::File::create(world.path("err")).unwrap();
    let ran = wait_for_exit(task.stdout(log).stderr(err).spawn().unwrap());
    assert_eq!((ran.code, world.read("log").as_str()), (3, "before\n"), "{}", world.read("err"));
    let mut log = std::fs::OpenOptions::new().append(true).open(world.path("log")).unwrap();
    let args = ["-o", "/dev/stdout", "--report-file", "/dev/stderr", "--report", "markdown"];
    let ran = wait_for_exit(
        world.command_with_server(&server, &args).stdout(log.try_clone().unwrap()).spawn().unwrap(),
    );
    log.write_all(b"after\n").unwrap();
    assert_eq!((ran.code, world.read("log").as_str()), (0, "before\nFine.\nFine.\nafter\n"));
    assert!(ran.err.contains("# ") && ran.err.contains("LLM"), "{}", ran.err);
}

/// A link in the workspace may be planted. A run whose output can't be written does not begin.
#[test]
fn an_output_file_that_is_a_link_of_the_workspace_is_refused_before_the_run() {
    let (world, server) = (CliFixture::new(), Server::new([chat::text("Fine.")]));
    std::os::unix::fs::symlink(world.home().join("x"), world.path("answer.md")).unwrap();
    for option in ["-o", "--report-file"] {
        let ran = world.run_with_server(&server, &[option, "answer.md"]);
        assert_eq!(ran.code, 3, "{}", ran.err);
        assert!(ran.err.contains("answer.md is a link inside the workspace"), "{}", ran.err);
    }
    assert!(server.requests().is_empty());
}

#[test]
fn a_dash_is_standard_output_and_no_file() {
    let world = CliFixture::new();
    for (args, out) in [(&["-o", "-"][..], "Fine.\n"), (&["-o", "-", "--json"], "{")] {
        let server = Server::new([chat::text("Fine.")]);
        let ran = world.run_with_server(&server, args);
        assert_eq!((ran.code, ran.out.lines().count()), (0, 1), "{}", ran.err);
        assert!(ran.out.starts_with(out), "{}", ran.out);
    }
    let server = Server::new([]);
    let ran = world.run_with_server(&server, &["--report", "markdown", "--report-file", "-"]);
    assert_eq!(ran.code, 3);
    assert!(ran.err.contains("goes to standard error"), "{}", ran.err);
    assert!(!world.path("-").exists());
}

/// The standard library opens `/dev/null` in its place, as users do who want no output.
#[test]
fn a_result_without_standard_output_is_not_a_success() {
    let world = CliFixture::new();
    let script = world.script_model("[[turn]]\ntext = \"Fine.\"\n");
    let run = ["run", "x", "--model", &script];
    for args in [&run[..], &[&run[..], &["--json"]].concat(), &["config", "path"]] {
        for (redirection, code) in [(">&-", 141), ("> /dev/null", 0), ("1<> /dev/null", 0)] {
            let line = format!("exec \"$0\" \"$@\" {redirection}");
            let mut command = Command::new("sh");
            command.args(["-c", &line, env!("CARGO_BIN_EXE_architect")]).args(args);
            let command = command.current_dir(world.path("")).env("HOME", world.home());
            let ran = wait_for_exit(command.stderr(Stdio::piped()).spawn().unwrap());
            assert_eq!(ran.code, code, "{args:?} {redirection}: {}", ran.err);
        }
    }
}

/// Commands can't write a hook in the work tree, but they can commit one, which a checkout writes.
#[test]
fn a_run_whose_commits_have_hooks_of_the_work_tree_ends_with_a_warning() {
    let commit = |file: &str| {
        let who = "git -c user.name=n -c user.email=e";
        format!(
            "H=$(echo x | git hash-object -w --stdin) && git update-index --add --cacheinfo 100755,$H,{file} && \
             {who} commit -qm x"
        )
    };
    for (hooks, file, warns) in [
        (".husky", ".husky/post-checkout", true),
        (".husky", "src/x", false),
        (".git/hooks", ".husky/post-checkout", false),
    ] {
        let world = CliFixture::new();
        let made = format!("git init -q . && git config core.hooksPath {hooks}");
        let made = Command::new("sh").args(["-c", &made]).current_dir(world.path("")).status();
        assert!(made.unwrap().success());
        let call = format!(
            "[[turn]]\ncalls = [{{ name = \"run_command\", arguments = {{ command = '{}' }} }}]\n[[turn]]\ntext = \"Fine.\"\n",
            commit(file)
        );
        let ran = world.run_script(&call, &["--mode", "yolo"]);
        assert_eq!(ran.code, 0, "{}", ran.err);
        let warning = format!("commits of this run change {file}");
        assert_eq!(ran.err.contains(&warning), warns, "{hooks} {file}: {}", ran.err);
    }
}

/// With a task given, standard input is never read: it may never end.
#[test]
fn an_open_standard_input_delays_nothing() {
    let (world, server) = (CliFixture::new(), Server::new([chat::text("Fine.")]));
    let mut child = world.command_with_server(&server, &[]).stdin(Stdio::piped()).spawn().unwrap();
    let stdin = child.stdin.take();
    let ran = wait_for_exit(child);
    assert_eq!(ran.code, 0, "{}", ran.err);
    drop(stdin);
}

/// A standard input that is silent, or never ends, doesn't outlive the time limit of the run.
#[test]
fn reading_standard_input_takes_no_longer_than_the_run_may() {
    let world = CliFixture::new();
    let session = world.run_script("[[turn]]\ntext = \"Fine.\"\n", &["--timeout", "1", "--json"]);
    let session = session.json()["session_id"].as_str().unwrap().to_owned();
    for args in [
        &["run", "-", "--timeout", "1"][..],
        &["run", "Look.", "--stdin", "--set", "limits.timeout=1"],
        // With the stored options of its session.
        &["resume", &session, "-"],
        &["batch", "-", "--timeout", "1"],
    ] {
        let mut child = world.command(args).stdin(Stdio::piped()).spawn().unwrap();
        let stdin = child.stdin.take();
        let ran = wait_for_exit(child);
        drop(stdin);
        assert_eq!(ran.code, 3, "{args:?}: {}", ran.err);
        let cause = "standard input did not end within the time limit of 1.0 s";
        assert!(ran.err.contains(cause), "{args:?}: {}", ran.err);
    }
    let endless = std::fs::File::open("/dev/zero").unwrap();
    let ran = wait_for_exit(world.command(&["run", "-"]).stdin(endless).spawn().unwrap());
    assert_eq!(ran.code, 3, "{}", ran.err);
    assert!(ran.err.contains("standard input is longer than 10485760 bytes"), "{}", ran.err);
}

#[test]
fn a_task_comes_from_standard_input_or_a_file_on_request() {
    let world = CliFixture::new();
    let task = |args: &[&str], input: &[u8]| {
        let server = Server::new([chat::text("Fine.")]);
        let base = server.url("/v1");
        let model = ["--model", "openai-chat/fake", "--api-base", &base];
        let mut command = world.command(&[&["run"], args, &model[..]].concat());
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        // Some of these processes do not read their input, so errors are ignored.
        let _ = child.stdin.take().unwrap().write_all(input);
        assert_eq!(wait_for_exit(child).code, 0);
        let messages = server.requests()[0].json()["messages"].clone();
        messages.as_array().unwrap().last().unwrap()["content"].as_str().unwrap().to_owned()
    };
    world.write("task.md", "From a file.");
    assert_eq!(task(&["-"], b"From a pipe."), "From a pipe.");
    assert_eq!(task(&["@task.md"], b"never read"), "From a file.");
    assert_eq!(task(&["Look.", "--stdin"], b"log"), "Look.\n\nlog");
    // A diff may have a line in another encoding.
    assert_eq!(task(&["Look.", "--stdin"], b"\xe9"), "Look.\n\n\u{fffd}");
}

#[test]
fn a_closed_standard_output_is_no_panic() {
    let (world, server) = (CliFixture::new(), Server::new([chat::text("Fine.")]));
    let mut child = world.command_with_server(&server, &[]).spawn().unwrap();
    drop(child.stdout.take());
    let ran = wait_for_exit(child);
    assert_eq!(ran.code, 141, "{}", ran.err);
    assert!(!ran.err.contains("panic"), "{}", ran.err);
}

#[test]
fn the_answer_can_have_to_satisfy_a_schema() {
    let world = CliFixture::new();
    world.write(
        "schema.json",
        r#"{"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}"#,
    );
    let server = Server::new([chat::text("n is 3"), chat::text("{\"n\": 3}")]);
    let ran = world.run_with_server(&server, &["--output-schema", "schema.json", "--json"]);
    assert_eq!(ran.outcome(), outcome(0, "llm_done", "success"));
    assert_eq!(ran.json()["structured_output"], json!({"n": 3}));
    let server = Server::repeating([chat::text("never")]);
    let files = ["--report-file", "report.md"];
    let schema = ["--output-schema", "schema.json", "--json"];
    let ran = world.run_with_server(&server, &[&schema[..], &files].concat());
    assert_eq!(ran.outcome(), outcome(2, "schema_not_met", "partial"));
    let result = ran.json();
    let reason = result["error"].as_str().unwrap();
    assert!(
        reason.starts_with("the answer does not satisfy the schema: it is not JSON"),
        "{reason}"
    );
    assert!(ran.err.contains(reason), "{}", ran.err);
    assert!(world.read("report.md").contains("\nReason: the answer does not satisfy the schema"));
    let shown = world.run(&["sessions", "show", "last"]).out;
    assert!(shown.contains(&format!("\nerror      {reason}\n")), "{shown}");
}

#[test]
fn a_schema_that_no_answer_satisfies_costs_no_call() {
    let (world, server) = (CliFixture::new(), Server::repeating([chat::text("{}")]));
    for (schema, reason) in [
        ("false", "can't be satisfied: it is false"),
        ("{\"$ref\": \"#\"}", "can't be satisfied: it refers to itself without end"),
        (
            "{\"type\": \"integer\", \"minimum\": 5, \"maximum\": 3}",
            "can't be satisfied: it excludes all",
        ),
        ("{\"maximum\": 18446744073709551616}", "more than 64 bits: 18446744073709551616"),
    ] {
        world.write("schema.json", schema);
        let ran = world.run_with_server(&server, &["--output-schema", "schema.json"]);
        assert!(ran.code == 3 && ran.err.contains(reason), "{}", ran.err);
    }
    assert_eq!(server.requests().len(), 0);
}

#[test]
fn a_byte_order_mark_is_not_part_of_a_file() {
    let world = CliFixture::new();
    let model = world.script_model("[[turn]]\ntext = '{}'\n");
    for (name, text) in [
        ("task.txt", "Do it."),
        ("schema.json", "{}"),
        ("servers.json", "{\"mcpServers\": {}}"),
        ("config.toml", "[limits]\nmax_steps = 1\n"),
    ] {
        world.write(name, &format!("\u{feff}{text}"));
    }
    let files =
        ["-c", "config.toml", "--mcp-config", "servers.json", "--output-schema", "schema.json"];
    let ran = world.run(&[&["run", "@task.txt", "--model", &model], &files[..]].concat());
    assert_eq!(ran.code, 0, "{}", ran.err);
    let shown = world.run(&["sessions", "show", "last"]).out;
    assert!(shown.contains("\nDo it.\n"), "{shown:?}");
}

#[test]
fn a_recording_plays_the_run_again_without_a_server() {
    let (world, server) = (CliFixture::new(), Server::new([chat::text("All is well.")]));
    assert_eq!(world.run_with_server(&server, &["--record", "run.jsonl"]).code, 0);
    drop(server);
    assert!(!world.read("run.jsonl").contains("canary"));
    let ran = world.run(&["run", "Do it.", "--model", "replay/run.jsonl"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "All is well.\n"), "{}", ran.err);
}
