//! Runs every example of the README and of `docs/`, in order, in a project of its own, by a shell. The model is a
//! server on loopback. Examples that can't be run here are listed with their reasons.

use std::fs;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::pages::{CodeBlock, pages};
use crate::kit::cli::{CliFixture, wait_for_exit};
use crate::kit::server::{ReceivedRequest, ScriptedReply, Server};

/// Blocks that are not run: the page, the beginning of the block, and the reason.
const NOT_RUN: &[(&str, &str, &str)] = &[
    ("README.md", "cargo install", "compiles for minutes; packaging/check installs each package"),
    ("docs/batches.md", "bash job.sh", "Slurm; tests/slurm/run runs it on a Slurm of three nodes"),
    ("docs/batches.md", "kubectl", "needs a cluster"),
    ("docs/batches.md", "seq 4 | parallel", "GNU parallel is not on every machine"),
    ("docs/batches.md", "cd packaging/harbor", "needs the package harbor; .ci/run tests the agent"),
    ("docs/models.md", "export GOOGLE_CLOUD_PROJECT", "needs gcloud, and an account there"),
    ("docs/editors.md", "{\"agent_servers\"", "the configuration of an editor"),
];

/// Languages of blocks that no test runs: files of other programs, and diagrams. `rust` is for the doc tests.
const OF_OTHERS: &[&str] =
    &["elisp", "groovy", "ini", "lua", "mermaid", "python", "rust,no_run", "sql", "yaml"];

/// Blocks with an exit code other than 0: the page, the beginning of the block, and the code.
const EXIT_CODES: &[(&str, &str, i32)] =
    &[("docs/workflows.md", "architect loop \"Make the program smaller.\"", 2)];

/// Blocks for a session that runs in another terminal: the page, and the beginning of the block.
const BESIDE_A_RUN: &[(&str, &str)] = &[("docs/sessions.md", "architect steer")];

/// Begins a run in the background, whose command waits for a file, and waits until the run reads messages.
const BEGIN_RUN: &str = "architect run 'Wait for the file.' --mode yolo --quiet &
until architect steer last 'Are you there?' 2> /dev/null; do sleep 0.02; done
";

/// Ends the run in the background.
const END_RUN: &str = "touch go; wait $!\n";

/// The files of the project, which is a repository with one commit.
const FILES: &[(&str, &str)] = &[
    ("README.md", "# A projct\n"),
    ("task.md", "Make the tests pass.\n"),
    ("test.sh", "test -e notes.md\n"),
    ("parser/test.sh", "test -e notes.md\n"),
    ("docs/README.md", "# Options\n"),
    ("program", "0123456789\n"),
    (".gitignore", ".architect/batch\n.architect/loop\n.architect/pipeline\n"),
];

/// Answers of the model to requests that contain a text; it answers all others with "Done."
const ANSWERS: &[(&str, &str)] = &[
    ("You evaluate whether", r#"{"completed": true, "confidence": 1.0}"#),
    ("List the public functions", r#"{"functions": ["parse"]}"#),
    ("List the files that use", "src/a.rs\nsrc/b.rs"),
    ("End with DONE", "DONE"),
    ("End with BUGS", "One bug is left. BUGS"),
];

macro_rules! page_tests {
    ($($name:ident: $path:literal),* $(,)?) => {
        $(#[test]
        fn $name() {
            run_page($path);
        })*

        #[test]
        fn no_page_is_left_out() {
            let all: Vec<_> = pages().iter().map(|page| page.name().to_owned()).collect();
            assert_eq!(all, [$($path),*]);
        }
    };
}

page_tests! {
    front_page: "README.md",
    agents: "docs/agents.md",
    batches: "docs/batches.md",
    ci: "docs/ci.md",
    configuration: "docs/configuration.md",
    editors: "docs/editors.md",
    events: "docs/events.md",
    hooks: "docs/hooks.md",
    install: "docs/install.md",
    laboratory: "docs/laboratory.md",
    library: "docs/library.md",
    mcp: "docs/mcp.md",
    models: "docs/models.md",
    numbers: "docs/numbers.md",
    permissions: "docs/permissions.md",
    python: "docs/python.md",
    run: "docs/run.md",
    sessions: "docs/sessions.md",
    settings: "docs/settings.md",
    statechart: "docs/statechart.md",
    testing: "docs/testing.md",
    tools: "docs/tools.md",
    traces: "docs/traces.md",
    undo: "docs/undo.md",
    workflows: "docs/workflows.md",
    worktrees: "docs/worktrees.md",
}

/// A project, and a model that changes a file of it.
struct Example {
    cli: CliFixture,
    model: Server,
}

impl Example {
    fn new() -> Self {
        let (cli, edits) = (CliFixture::new(), AtomicUsize::new(0));
        for (name, content) in FILES {
            cli.write(name, content);
        }
        let example = Self { cli, model: Server::with_handler(move |asked| reply(asked, &edits)) };
        let git = "git init -q . && git config user.name User && git config user.email user@localhost \
                   && git add . && git commit -qm first && echo 'A change.' >> README.md";
        assert_eq!(example.run(git), (0, String::new()));
        example
    }

    /// Runs lines in a shell that ends at the first one that fails; returns its exit code and its output.
    fn run(&self, lines: &str) -> (i32, String) {
        let program = std::path::Path::new(env!("CARGO_BIN_EXE_architect"));
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{path}", program.parent().unwrap().display());
        let mut shell = Command::new("sh");
        shell
            .args(["-euc", lines])
            .current_dir(self.cli.path(""))
            .env_clear()
            .envs([("PATH", &*path), ("ARCHITECT_LLM_MODEL", "sonnet")])
            .envs([
                ("ANTHROPIC_API_KEY", "sk-ant-example"),
                ("ANTHROPIC_BASE_URL", &*self.model.url("/v1")),
                ("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE"),
                ("AWS_SECRET_ACCESS_KEY", "canary-example"),
                ("AWS_ENDPOINT_URL_BEDROCK_RUNTIME", &*self.model.url("/v1")),
            ])
            .env("HOME", self.cli.home())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let ran = wait_for_exit(shell.spawn().unwrap());
        (ran.code, format!("{}{}", ran.out, ran.err))
    }

    /// Writes a file of the project or, after `~/`, of the home.
    fn write(&self, file: &str, content: &str) {
        let path = match file.strip_prefix("~/") {
            Some(file) => self.cli.home().join(file),
            None => self.cli.path(file),
        };
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
}

/// Runs the blocks of a page in order. A block with a file is written into it.
fn run_page(path: &str) {
    let pages = pages();
    let page = pages.iter().find(|page| page.name() == path).unwrap();
    if Command::new("git").arg("--version").output().is_err() {
        return println!("skipped: there is no git");
    }
    let example = Example::new();
    for block in page.blocks() {
        let begins = |(page, start): (&str, &str)| page == path && block.code.starts_with(start);
        if NOT_RUN.iter().any(|(page, start, _)| begins((page, start))) {
            continue;
        }
        let place = format!("{path}:{}", block.line);
        let expected = EXIT_CODES.iter().find(|(page, start, _)| begins((page, start)));
        let expected = expected.map_or(0, |(_, _, code)| *code);
        match (block.language, block.file) {
            (_, Some(file)) => {
                check_syntax(&block, &place);
                example.write(file, &block.code);
            }
            ("sh", None) => {
                let is_beside = BESIDE_A_RUN.iter().any(|block| begins(*block));
                let lines = match is_beside {
                    true => format!("{BEGIN_RUN}{}{END_RUN}", block.code),
                    false => block.code.clone(),
                };
                let (code, printed) = example.run(&lines);
                assert_eq!(
                    code, expected,
                    "{place}: this ends with {code}:\n{}\n{printed}",
                    block.code
                );
            }
            ("console", None) => {} // written by a test
            (language, None) => {
                assert!(
                    OF_OTHERS.contains(&language),
                    "{place}: no test runs this block: {language:?}"
                );
            }
        }
    }
}

fn check_syntax(block: &CodeBlock<'_>, place: &str) {
    match block.language {
        "toml" => drop(
            block.code.parse::<toml::Table>().unwrap_or_else(|error| panic!("{place}: {error}")),
        ),
        "json" => drop(
            serde_json::from_str::<Value>(&block.code)
                .unwrap_or_else(|error| panic!("{place}: {error}")),
        ),
        _ => {}
    }
}

/// The reply of the model: a change of a file if it may, and then an answer.
fn reply(asked: &ReceivedRequest, edits: &AtomicUsize) -> ScriptedReply {
    let body = asked.json();
    let last = body["messages"]
        .as_array()
        .and_then(|all| all.last())
        .map_or(String::new(), Value::to_string);
    let may_write = body["tools"].to_string().contains("\"write_file\"");
    if !may_write || last.contains("\"tool_result\"") {
        let task = format!("{}{}", body["system"], body["messages"]);
        let answer = ANSWERS.iter().find(|(part, _)| task.contains(part));
        return message(
            &json!({"type": "text", "text": ""}),
            &json!({
                "type": "text_delta", "text": answer.map_or("Done.", |(_, answer)| answer)
            }),
            "end_turn",
        );
    }
    let count = edits.fetch_add(1, Ordering::Relaxed);
    let (name, input) = if last.contains("Wait for the file.") {
        ("run_command", json!({"command": "until test -e go; do sleep 0.02; done"}))
    } else {
        let item = last.split("Port ").nth(1).and_then(|rest| rest.split(' ').next());
        (
            "write_file",
            json!({"path": item.unwrap_or("notes.md"), "content": format!("Note {count}.\n")}),
        )
    };
    let id = format!("toolu_{count}");
    let call = json!({"type": "tool_use", "id": id, "name": name, "input": {}});
    let delta = json!({"type": "input_json_delta", "partial_json": input.to_string()});
    message(&call, &delta, "tool_use")
}

/// A streamed message with one block.
fn message(block: &Value, delta: &Value, stop: &str) -> ScriptedReply {
    let usage = json!({"input_tokens": 100, "output_tokens": 20});
    let start = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "fake", "content": [],
        "stop_reason": null, "usage": usage});
    let events = [
        json!({"type": "message_start", "message": start}),
        json!({"type": "content_block_start", "index": 0, "content_block": block}),
        json!({"type": "content_block_delta", "index": 0, "delta": delta}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": stop}, "usage": usage}),
        json!({"type": "message_stop"}),
    ];
    let event =
        |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap());
    ScriptedReply::stream(events.iter().map(event))
}

#[test]
fn the_lists_of_exceptions_have_nothing_else() {
    let pages = pages();
    let is_there = |path: &str, start: &str| {
        let page = pages.iter().find(|page| page.name() == path);
        page.is_some_and(|page| page.blocks().iter().any(|block| block.code.starts_with(start)))
    };
    let listed = NOT_RUN.iter().map(|(page, start, _)| (*page, *start));
    let listed = listed.chain(BESIDE_A_RUN.iter().copied());
    for (page, start) in listed.chain(EXIT_CODES.iter().map(|(page, start, _)| (*page, *start))) {
        assert!(is_there(page, start), "{page} has no example that begins with {start:?}");
    }
}
