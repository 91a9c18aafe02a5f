//! Arguments of the command line, and the messages about wrong ones.

use serde_json::{Value, json};

use crate::kit::chat;
use crate::kit::cli::{CliFixture, outcome, wait_for_exit};
use crate::kit::server::{ReceivedRequest, ScriptedReply, Server};

const DONE: &str = "[[turn]]\ntext = \"Done.\"\n";

#[test]
fn an_unknown_agent_is_refused_whatever_else_is_configured() {
    let world = CliFixture::new();
    let known = "known agents: build, plan, resume, review";
    let ways: [&[&str]; 5] = [
        &["-a", "nemo"],
        &["-a", "nemo", "--mode", "yolo"],
        &["-a", "nemo", "--set", "agents.nemo.max_steps=3"],
        &["--set", "agents.nemo.confirm_mode=yolo"],
        &["-a", "nemo", "--mode", "yolo", "--json"],
    ];
    for args in ways {
        let ran = world.run_script(DONE, args);
        assert_eq!(ran.code, 3, "{args:?} {}", ran.err);
        assert!(ran.err.contains("unknown agent `nemo`") && ran.err.contains(known), "{}", ran.err);
        assert!(!ran.err.contains("did you mean"), "{}", ran.err);
    }
    let ran = world.run_script(DONE, &["-a", "biuld", "--mode", "yolo"]);
    assert!(ran.err.contains("did you mean `build`?"), "{}", ran.err);
    // An agent can be defined by options alone.
    let tools = "agents.helper.allowed_tools=['read_file']";
    let ran = world.run_script(DONE, &["-a", "helper", "--mode", "yolo", "--set", tools]);
    assert_eq!(ran.code, 0, "{}", ran.err);
}

#[test]
fn the_nearest_option_is_suggested_by_its_letters() {
    let world = CliFixture::new();
    for (typed, meant) in [("--modle", "--model"), ("--budegt=1", "--budget"), ("--jsno", "--json")]
    {
        let ran = world.run(&["run", "x", typed]);
        assert_eq!(ran.code, 3);
        assert!(ran.err.contains(&format!("'{meant}'")), "{}", ran.err);
    }
    let ran = world.run(&["run", "x", "--max-steps", "-1"]);
    assert!(ran.err.contains("'-1'") && !ran.err.contains("tip"), "{}", ran.err);
    let ran = world.run(&["sessions", "--jsno"]);
    assert!(ran.err.contains("'--json'") && ran.out.is_empty(), "{}", ran.err);
}

#[test]
fn only_an_unknown_command_is_taken_for_a_task() {
    let world = CliFixture::new();
    let hint = "a task is given to `run`";
    assert!(world.run(&["fix it"]).err.contains(hint));
    assert!(!world.run(&["sessions", "lst"]).err.contains(hint));
}

#[test]
fn a_file_that_can_t_be_read_is_a_matter_of_usage() {
    let world = CliFixture::new();
    let ran = world.run(&["sessions", "import", "nowhere.jsonl"]);
    assert!(ran.code == 3 && ran.err.contains("nowhere.jsonl"), "{}", ran.err);
    let ran = world.run_script(DONE, &["-c", "nowhere.toml"]);
    assert!(ran.code == 3 && ran.err.contains("nowhere.toml"), "{}", ran.err);
    assert!(!ran.err.contains("config show"), "{}", ran.err);
}

/// The confinement of commands, the configuration and the journal hold the path as text.
#[test]
#[cfg(target_os = "linux")] // elsewhere there are no such names
fn a_workspace_whose_path_is_not_utf_8_is_refused_before_any_model_call() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let world = CliFixture::new();
    let odd = world.path("w").with_file_name(OsStr::from_bytes(b"w\xff"));
    std::fs::create_dir(&odd).unwrap();
    let script = world.script_model(DONE);
    let mut command = world.command(&["run", "x", "--model", &script]);
    let ran = wait_for_exit(command.current_dir(&odd).spawn().unwrap());
    assert!(ran.code == 3 && ran.err.contains("its path is not UTF-8"), "{}", ran.err);
    assert!(ran.err.contains("name another folder with --workspace"), "{}", ran.err);
    // Such names are not converted and looked up under another name either.
    for option in ["--workspace", "--config", "--log-file"] {
        let mut command = world.command(&["run", "x", "--model", &script, option]);
        let ran = wait_for_exit(command.arg(&odd).spawn().unwrap());
        assert!(ran.code == 3 && ran.err.contains("UTF-8"), "{option} {}", ran.err);
    }
}

#[test]
fn a_limit_that_is_not_a_number_is_refused_with_what_is_expected() {
    let world = CliFixture::new();
    for (option, value, expected) in [
        ("--timeout", "5 min", "expected a number of seconds such as 300, or a time such as 10m"),
        ("--step-timeout", "", "expected a number of seconds"),
        ("--budget", "$1", "expected a number of US dollars, such as 0.50"),
        ("--max-steps", "many", "expected a whole number, not negative, such as 30"),
        ("--max-tokens", "-1", "expected a whole number"),
    ] {
        let ran = world.run(&["run", "x", option, value]);
        assert!(ran.code == 3 && ran.err.contains(expected), "{option} {}", ran.err);
    }
}

#[test]
fn an_empty_task_is_refused_with_where_it_came_from() {
    let world = CliFixture::new();
    let script = world.script_model(DONE);
    for (prompt, notice) in
        [("-", "(nothing came from standard input)"), (" ", "the task is empty\n")]
    {
        let ran = world.run(&["run", prompt, "--model", &script]);
        assert!(ran.code == 3 && ran.err.contains(notice), "{}", ran.err);
        assert!(ran.err.contains("hint: describe what to do"), "{}", ran.err);
    }
}

/// A run whose answer can't be written is not paid for.
#[test]
fn a_file_that_can_t_be_written_is_refused_before_the_run() {
    let world = CliFixture::new();
    world.write("file", "").write("folder/x", "");
    for path in ["file/answer.md", "file/a/answer.md", "folder"] {
        for option in ["-o", "--report-file"] {
            let ran = world.run_script(DONE, &[option, path]);
            assert!(ran.code == 3 && ran.out.is_empty(), "{path} {}", ran.err);
            assert!(
                ran.err.contains("could not write") && ran.err.contains("a folder"),
                "{}",
                ran.err
            );
        }
    }
    for path in ["new/a/answer.md", "file", "/dev/null"] {
        let ran = world.run_script(DONE, &["-o", path]);
        assert_eq!(ran.code, 0, "{path} {}", ran.err);
    }
    let ran = world.run_script(DONE, &["--output-schema", "none.json"]);
    let notice = "could not read the schema of the answer from none.json";
    assert!(ran.code == 3 && ran.err.contains(notice), "{}", ran.err);
}

#[test]
fn wrong_usage_is_a_document_with_json_output() {
    let world = CliFixture::new();
    for args in [["run", "--json", "--jsn"], ["resume", "--json", "--jsn"]] {
        let ran = world.run(&args);
        assert_eq!(ran.outcome(), outcome(3, "-", "failed"), "{}", ran.out);
        assert!(ran.json()["error"].as_str().unwrap().contains("--jsn"), "{}", ran.out);
    }
    let ran = world.run(&["run", "x", "--output-format", "stream-json", "--max-steps", "many"]);
    assert_eq!(ran.lines().last().unwrap()["exit_code"], 3, "{}", ran.out);
    for args in [["run", "--jsn", "x"], ["run", "--", "--json"]] {
        assert_eq!(world.run(&args).out, "");
    }
}

#[test]
fn a_variable_that_no_setting_has_is_no_matter_of_trust() {
    let world = CliFixture::new();
    let model = world.script_model(DONE);
    let mut command = world.command(&["run", "x", "--model", &model]);
    let ran = wait_for_exit(command.env("ARCHITECT_MODEL", "x").spawn().unwrap());
    assert_eq!(ran.code, 3);
    assert!(ran.err.contains("did you mean `ARCHITECT_LLM_MODEL`?"), "{}", ran.err);
    assert!(!ran.err.contains("trust"), "{}", ran.err);
}

#[test]
fn a_refused_request_without_a_key_says_that_none_was_sent() {
    let world = CliFixture::new();
    let refused = || ScriptedReply::with_length(401, r#"{"error": {"message": "who are you?"}}"#);
    let server = Server::new([refused(), refused(), refused()]);
    let base = server.url("/v1");
    let run = |args: &[&str], key: Option<&str>| {
        let model = ["run", "x", "--model", "openai-chat/fake", "--api-base", &base];
        let mut command = world.command(&[&model[..], args].concat());
        key.map(|key| command.env("OPENAI_API_KEY", key));
        wait_for_exit(command.spawn().unwrap())
    };
    let ran = run(&[], None);
    assert_eq!(ran.code, 4);
    let notice = "no key was sent: the variable OPENAI_API_KEY is not set";
    assert!(ran.err.contains(notice) && ran.out.contains(notice), "{} {}", ran.err, ran.out);
    let ran = run(&[], Some("sk-wrong"));
    assert!(ran.err.contains("the key is the one in OPENAI_API_KEY"), "{}", ran.err);
}

#[test]
fn denied_calls_are_reported_and_fail_the_run_on_request() {
    let world = CliFixture::new();
    let script = "[[turn]]\ncalls = [{ name = \"write_file\", arguments = { path = \"a\", content = \"\" } }]\n\
                  [[turn]]\ntext = \"Done.\"\n[[turn]]\ntext = \"Again.\"\n";
    let report = ["--report-file", "report.md"];
    let ran = world.run_script(script, &report);
    assert_eq!(ran.code, 0);
    assert!(ran.err.contains("1 tool call was denied: write_file"), "{}", ran.err);
    assert!(world.read("report.md").contains("1 denied call"), "{}", world.read("report.md"));
    for args in
        [["--fail-on-denied", "--json"], ["--set=permissions.fail_on_denied=true", "--json"]]
    {
        let ran = world.run_script(script, &args);
        assert_eq!(ran.outcome(), outcome(2, "checks_failed", "partial"), "{}", ran.out);
        assert_eq!(
            (&ran.json()["output"], &ran.json()["denied"][0]["tool"]),
            (&json!("Done."), &json!("write_file"))
        );
    }
    let sessions = world.run(&["sessions", "--json"]).json();
    assert_eq!(sessions[0]["status"], "partial");
    // Another task has no such limit.
    let ran = world.run(&["resume", "last", "Say it again.", "--json"]);
    assert_eq!(ran.outcome(), outcome(0, "llm_done", "success"), "{}", ran.out);
    let ran = world.run_script(script, &["--fail-on-denied", "--json", "--mode", "yolo"]);
    assert_eq!(ran.outcome(), outcome(0, "llm_done", "success"), "{}", ran.out);
}

/// Denied calls of a sub-agent count, too.
#[test]
fn what_a_sub_agent_was_denied_fails_a_run_that_wants_that() {
    let world = CliFixture::new();
    let script = "[[turn]]\ncalls = [{ name = \"dispatch_subagent\", arguments = { agent = \"build\", task = \"Write.\" } }]\n\
                  [[turn]]\ncalls = [{ name = \"write_file\", arguments = { path = \"a\", content = \"\" } }]\n\
                  [[turn]]\ntext = \"I could not.\"\n[[turn]]\ntext = \"Done.\"\n";
    let dispatch = "--allow=dispatch_subagent";
    let ran = world.run_script(script, &["--json", dispatch]);
    assert_eq!(ran.outcome(), outcome(0, "llm_done", "success"), "{}", ran.out);
    let ran = world.run_script(script, &["--json", dispatch, "--fail-on-denied"]);
    assert_eq!(ran.outcome(), outcome(2, "checks_failed", "partial"), "{}", ran.out);
    let denied = ran.json()["denied"].as_array().unwrap().clone();
    let tools: Vec<_> = denied.iter().map(|call| &call["tool"]).collect();
    assert_eq!(tools, ["write_file", "dispatch_subagent"]);
}

/// The preset works as written, in a fresh checkout with a fresh home.
#[test]
fn the_ci_preset_works_once_it_is_trusted_for_the_run() {
    let world = CliFixture::new();
    let script = "price = { input = 1.0, output = 1.0 }\n[[turn]]\n\
                  calls = [{ name = \"write_file\", arguments = { path = \"a\", content = \"\" } }]\n\
                  [[turn]]\ntext = \"Done.\"\n";
    assert_eq!(world.run(&["init", "--preset", "ci"]).code, 0);
    let ran = world.run_script(script, &["--json"]);
    assert_eq!(ran.outcome(), outcome(2, "checks_failed", "partial"), "{}", ran.out);
    assert!(ran.err.contains("ARCHITECT_TRUST=1"), "{}", ran.err);
    let ran = world.run_script(script, &["--json", "--trust"]);
    assert_eq!(ran.outcome(), outcome(0, "llm_done", "success"), "{}", ran.err);
    let model = world.script_model(script);
    let trusting = |value: &str| {
        let mut command = world.command(&["run", "x", "--json", "--model", &model]);
        wait_for_exit(command.env("ARCHITECT_TRUST", value).spawn().unwrap())
    };
    assert_eq!(["1", "true", "0", ""].map(|value| trusting(value).code), [0, 0, 2, 2]);
    let ran = trusting("yes");
    assert!(ran.code == 3 && ran.err.contains("ARCHITECT_TRUST: must be 1 or 0"), "{}", ran.err);
    // The trust for one run is not remembered.
    assert_eq!(world.run_script(script, &[]).code, 2);
}

#[test]
fn doctor_looks_at_trust_and_servers_and_tries_the_key_when_asked_to() {
    let world = CliFixture::new();
    let refused = ScriptedReply::with_length(401, r#"{"error": {"message": "who are you?"}}"#);
    let server = Server::new([chat::text("ok"), refused]);
    let base = server.url("/v1");
    world.write(".architect/config.toml", "[agents.build]\nconfirm_mode = \"yolo\"\n");
    let servers = format!(
        "mcp.servers=[{{ name = 'dead', command = 'false' }}, {{ name = 'far', url = '{}' }}]",
        "http://127.0.0.1:1/mcp"
    );
    let doctor = |args: &[&str]| {
        let model = ["doctor", "--json", "--model", "openai-chat/fake", "--api-base", &base];
        let ran = world.run(&[&model[..], &["--set", &servers], args].concat());
        let found = ran.json();
        let of = |what: &str| {
            let all = found.as_array().unwrap();
            let one = all.iter().find(|one| one["what"] == what).unwrap();
            (one["state"].clone(), one["said"].as_str().unwrap().to_owned())
        };
        (of("model"), of("mcp"), of("trust"))
    };
    let (_, mcp, trust) = doctor(&[]);
    assert!(mcp.1.contains("dead: it died") && mcp.1.contains("far: not tried"), "{}", mcp.1);
    assert_eq!((&mcp.0, &trust.0), (&json!("warning"), &json!("warning")));
    assert!(trust.1.contains("1 setting is ignored"), "{}", trust.1);
    assert_eq!(server.requests().len(), 0);
    let (model, mcp, trust) = doctor(&["--online", "--trust"]);
    assert_ne!(model.0, json!("bad"), "{}", model.1);
    assert!(mcp.1.contains("far: it cannot be reached"), "{}", mcp.1);
    assert_eq!(trust.0, json!("good"));
    let (model, ..) = doctor(&["--online"]);
    assert_eq!(model.0, json!("bad"));
    assert!(model.1.contains("no key was sent"), "{}", model.1);
    let sent: Vec<Value> = server.requests().iter().map(ReceivedRequest::json).collect();
    assert_eq!(sent[0]["messages"].as_array().unwrap().len(), 2);
}

#[test]
fn lists_fit_a_terminal_of_eighty_columns() {
    let world = CliFixture::new();
    let model = world.script_model(&format!("price = {{ input = 1.0, output = 1.0 }}\n{DONE}"));
    let task = "A task of many words, which does not fit behind the other columns. ".repeat(3);
    assert_eq!(world.run(&["run", &task, "--model", &model]).code, 0);
    for args in [&["sessions"][..], &["sessions", "search", "words"]] {
        let ran = world.run(args);
        assert!(ran.out.contains("A task of"), "{}", ran.out);
        let longest = ran.out.lines().map(|line| line.chars().count()).max();
        assert!(longest <= Some(80), "{}", ran.out);
    }
}
