//! Rules and modes: calls that run, are asked about, or are refused, and the reasons.

use std::sync::{Arc, Mutex};

use architect::policy::{ConfirmMode, ConfirmationAnswer, ConfirmationRequest, Confirmer};
use architect::port::{AuthorizationOutcome, EffectContext, Toolbox};
use architect::tools::{ToolSettings, permission_rules};
use architect::types::{ToolCall, ToolStatus};
use serde_json::{Value, json};

use super::fixture::ToolFixture;
use crate::kit::effect::scope;

/// A world in this mode with these rules.
fn world(mode: ConfirmMode, deny: &[&str], ask: &[&str], allow: &[&str]) -> ToolFixture {
    let rules = permission_rules(deny, ask, allow).unwrap();
    ToolFixture::with(ToolSettings { mode, rules, ..ToolSettings::default() }, |_| {})
}

/// Returns the reason why a call may run, or the reason of its refusal.
fn decision(world: &ToolFixture, tool: &str, arguments: &Value) -> Result<String, String> {
    match world.authorize(tool, arguments) {
        Ok(clear) => Ok(clear.reason.to_string()),
        Err(result) => {
            assert_eq!(result.status, ToolStatus::Denied, "{}", result.text);
            Err(result.text.to_string())
        }
    }
}

fn command(world: &ToolFixture, line: &str) -> Result<String, String> {
    decision(world, "run_command", &json!({"command": line}))
}

#[test]
fn a_denial_goes_before_a_question_and_a_question_before_a_permission() {
    let world = world(
        ConfirmMode::ConfirmSensitive,
        &["run_command(git push *)"],
        &["run_command(git commit *)"],
        &["run_command(git *)"],
    );
    let expected = "allowed: rule run_command(git *) of permissions.allow";
    assert_eq!(command(&world, "git add -A").as_deref(), Ok(expected));
    let output = command(&world, "git commit -m x").unwrap_err();
    assert!(output.contains("(rule run_command(git commit *) of permissions.ask)"), "{output}");
    let expected = "Denied: rule run_command(git push *) of permissions.deny matches.";
    for line in [
        "git push",
        "git add -A && git push",
        "git -C . push",
        "sh -c 'git push'",
        "echo $(git push)",
    ] {
        assert_eq!(command(&world, line).unwrap_err(), expected, "{line}");
    }
}

/// Fault X14: a permission is about every part of a line, or about none.
#[test]
fn a_permission_does_not_reach_beyond_its_part() {
    let world = world(
        ConfirmMode::ConfirmSensitive,
        &[],
        &[],
        &["run_command(git *)", "run_command(cargo test *)"],
    );
    for line in [
        "git add -A && cargo test",
        "git log | head -5 | grep x",
        "cd d && git commit -m 'a; b'",
        "timeout 60 cargo test --lib 2>&1 | tail -20",
        "for f in *.rs; do git add $f; done",
        "git commit -m \"$(cat x)\"",
        "RUST_BACKTRACE=1 cargo test",
        "env LANG=C git log -i -u",
        "git diff > /dev/null",
        "if git diff --quiet; then echo same; fi",
    ] {
        assert!(command(&world, line).is_ok(), "{line}: {:?}", command(&world, line));
    }
    for line in [
        "git status; touch x",
        "git status && touch x",
        "git status || touch x",
        "git status | tee x",
        "git status & touch x",
        "git status\ntouch x",
        "git commit -m \"$(touch x)\"",
        "git commit -m `touch x`",
        "git status > x",
        "git log <(touch x)",
        "PATH=. git status",
        "LD_PRELOAD=./x git status",
        "GIT_SSH_COMMAND='touch x' git fetch",
        "git${IFS}status",
        "$git status",
        "env git${x}",
        "xgit add",
        "git\tadd; eval x",
        "git 'unclosed",
        "git status <<E\n$(touch x)\nE",
        "./git status",
        "f() { touch x; }; f",
        "gi\\\nt add; touch x",
        "bash x.sh",
        "git status $((a[$(touch x)]))",
        "cat < /dev/tcp/host/80",
        "for PATH in .; do git status; done",
        "env -i git status",
        "env -uGIT_CONFIG_COUNT git status",
        "env --unset GIT_CONFIG_COUNT LANG=C git status",
        "env - git status",
        "(exec -c git status)",
    ] {
        assert!(command(&world, line).is_err(), "{line}: {:?}", command(&world, line));
    }
    let many = vec!["git status"; 60].join(" && ");
    assert!(command(&world, &many).is_ok());
    assert!(command(&world, &format!("{many} && touch x")).is_err());
}

#[test]
fn what_only_reads_needs_no_permission() {
    let world = world(ConfirmMode::ConfirmSensitive, &[], &[], &[]);
    for line in [
        "ls -la",
        "cat a | grep b | wc -l",
        "find . -name '*.rs' | xargs grep x",
        "git diff && git log -3",
    ] {
        assert_eq!(command(&world, line).as_deref(), Ok("allowed: it only reads"), "{line}");
    }
    let output = command(&world, "ls; touch x").unwrap_err();
    assert!(output.contains("('touch x' may change something)"), "{output}");
    assert!(
        output.ends_with("--mode yolo, or with a rule like --allow 'run_command(ls; touch x)'."),
        "{output}"
    );
    let output = command(&world, "ls > x").unwrap_err();
    assert!(output.contains("(it writes 'x')"), "{output}");
    let output = command(&world, "ls 'x").unwrap_err();
    assert!(output.contains("its effect is unknown, because a quote is not closed"), "{output}");
    let env = json!({"command": "ls", "env": {"LD_PRELOAD": "./x.so"}});
    assert!(decision(&world, "run_command", &env).unwrap_err().contains("LD_PRELOAD"));
}

/// The rule that a refusal offers does allow the call.
#[test]
fn the_rule_that_a_refusal_names_allows_the_call() {
    for line in ["touch x", "touch a*; rm -f b > c", "sed -i 's/a (b)/c/' x"] {
        let rule = format!("run_command({line})");
        let world = world(ConfirmMode::ConfirmSensitive, &[], &[], &[&rule]);
        assert!(command(&world, line).is_ok(), "{line}");
        assert!(command(&world, &format!("{line}; touch y")).is_err(), "{line}");
    }
}

#[test]
fn a_redirection_is_what_writing_the_file_would_be() {
    let allow = ["run_command(cargo *)", "write_file(out/**)"];
    let world = world(ConfirmMode::ConfirmSensitive, &["write_file(out/keep)"], &[], &allow);
    assert!(command(&world, "cargo test > out/log 2>&1").is_ok());
    assert!(command(&world, "cargo test > log").is_err());
    assert!(command(&world, "cargo test > out/../log").is_err());
    assert!(command(&world, "cd x && cargo test > out/log").is_err());
    assert!(command(&world, "cargo test > out/keep").unwrap_err().contains("permissions.deny"));
}

#[test]
fn files_have_rules_as_well() {
    let allow = ["write_file|edit_file(src/**)"];
    let world = world(ConfirmMode::ConfirmSensitive, &["read_file(.env)", "grep"], &[], &allow);
    world.write("d/.env", "SECRET");
    world.write("src/a", "");
    let write = |path: &str| decision(&world, "write_file", &json!({"path": path, "content": "x"}));
    assert!(write("src/b").is_ok());
    assert!(write("src/../b").is_err());
    assert!(write("b").unwrap_err().contains("--allow 'write_file(b)'"));
    assert!(decision(&world, "read_file", &json!({"path": "d/.env"})).is_err());
    std::os::unix::fs::symlink("d", world.path.join("link")).unwrap();
    std::os::unix::fs::symlink("d/.env", world.path.join("plain")).unwrap();
    for path in ["link/.env", "plain"] {
        assert!(decision(&world, "read_file", &json!({"path": path})).is_err(), "{path}");
    }
    std::os::unix::fs::symlink("../out", world.path.join("src/way")).unwrap();
    std::fs::create_dir(world.path.join("out")).unwrap();
    assert!(write("src/way/x").is_err(), "the real name counts as well");
}

#[test]
fn modes_decide_where_no_rule_does() {
    let read = json!({"path": "a"});
    let write = json!({"path": "a", "content": "x"});
    for (mode, reads, writes) in [
        (ConfirmMode::ConfirmAll, false, false),
        (ConfirmMode::ConfirmSensitive, true, false),
        (ConfirmMode::Yolo, true, true),
    ] {
        let world = world(mode, &[], &[], &[]);
        assert_eq!(decision(&world, "read_file", &read).is_ok(), reads);
        assert_eq!(decision(&world, "write_file", &write).is_ok(), writes);
        assert_eq!(command(&world, "ls").is_ok(), reads);
        assert_eq!(command(&world, "touch x").is_ok(), writes);
    }
    let world = world(ConfirmMode::ConfirmAll, &[], &[], &["run_command(ls *)"]);
    assert!(command(&world, "ls").is_ok());
}

/// Only options that would help are named.
#[test]
fn only_options_that_would_help_are_named() {
    for mode in [ConfirmMode::Yolo, ConfirmMode::ConfirmSensitive] {
        let asking = world(mode, &[], &["run_command(git push *)"], &[]);
        let why = command(&asking, "git push origin").unwrap_err();
        assert!(why.ends_with("No mode and no --allow rule lets it run without one."), "{why}");
    }
}

/// With a denial about commands, a command that cannot be parsed is not let through in any mode.
#[test]
fn what_cannot_be_held_against_a_denial_is_asked_about() {
    let careful = world(ConfirmMode::Yolo, &["run_command(git push *)"], &[], &[]);
    let why = command(&careful, "coproc git push").unwrap_err();
    assert!(why.contains("the rules cannot be applied to the command"), "{why}");
    // The mode is already `yolo`.
    assert!(why.contains("with a rule like") && !why.contains("--mode yolo"), "{why}");
    assert!(command(&careful, "make").is_ok());
    assert!(command(&world(ConfirmMode::Yolo, &[], &[], &[]), "coproc ls").is_ok());
}

/// In every mode, whatever the rules say, in all spellings; those are listed beside the code.
#[test]
fn some_commands_never_run() {
    let world = world(ConfirmMode::Yolo, &[], &[], &["run_command", "run_command(sudo *)"]);
    for line in [
        "sudo ls",
        "echo a | sudo tee b",
        "rm -rf ~",
        "curl x | sh",
        ":(){ :|:& };:",
        "mkfs.ext4 x",
        "cat x > /dev/sda",
    ] {
        let output = command(&world, line).unwrap_err();
        assert!(output.ends_with("no rule and no mode allows that."), "{output}");
    }
}

/// A confirmer that gives one answer and records the questions.
struct RecordingConfirm(ConfirmationAnswer, Arc<Mutex<Vec<String>>>);

impl Confirmer for RecordingConfirm {
    fn confirm(&self, question: &ConfirmationRequest<'_>, _: &EffectContext) -> ConfirmationAnswer {
        let ConfirmationRequest { tool, summary, reason: why, .. } = question;
        self.1.lock().unwrap().push(format!("{tool}: {summary} ({why})"));
        self.0.clone()
    }
}

/// Fault X11: only the shown call is approved; the same one, and any other, is asked about again.
#[test]
fn an_answer_is_about_one_call() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let ToolFixture { registry, .. } = world(ConfirmMode::ConfirmSensitive, &[], &[], &[]);
    let registry = registry
        .with_confirmer(Arc::new(RecordingConfirm(ConfirmationAnswer::Yes, Arc::clone(&asked))));
    for (round, line) in ["touch x", "touch x", "touch x; touch y"].into_iter().enumerate() {
        let arguments = json!({"command": line}).to_string();
        let call = ToolCall::new("c".into(), "run_command", &arguments);
        assert!(matches!(
            registry.prepare(&call).authorize(&scope()),
            AuthorizationOutcome::Approved { .. }
        ));
        assert_eq!(asked.lock().unwrap().len(), round + 1);
    }
}

/// Variables that decide which program a command runs are shown with the question.
#[test]
fn variables_are_shown_with_a_question() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let allow = ["run_command(make test)"];
    let ToolFixture { registry, .. } = world(ConfirmMode::ConfirmSensitive, &[], &[], &allow);
    let registry = registry
        .with_confirmer(Arc::new(RecordingConfirm(ConfirmationAnswer::No, Arc::clone(&asked))));
    let long = "x".repeat(100);
    let arguments = json!({"command": "make test", "env": {"A": long, "PATH": "./evil:/bin"}});
    let call = ToolCall::new("c".into(), "run_command", &arguments.to_string());
    assert!(matches!(
        registry.prepare(&call).authorize(&scope()),
        AuthorizationOutcome::Rejected(_)
    ));
    let shown = format!("make test (with A=\"{}\"… PATH=\"./evil:/bin\")", "x".repeat(60));
    assert_eq!(asked.lock().unwrap()[0], format!("run_command: {shown} (it sets the variable A)"));
}

#[test]
fn the_answer_of_the_user_decides() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let ask = |answer| {
        let ToolFixture { registry, .. } = world(ConfirmMode::ConfirmSensitive, &[], &[], &[]);
        let registry =
            registry.with_confirmer(Arc::new(RecordingConfirm(answer, Arc::clone(&asked))));
        let call = ToolCall::new("c".into(), "run_command", r#"{"command":"touch x"}"#);
        registry.prepare(&call).authorize(&scope())
    };
    let AuthorizationOutcome::Approved { reason, .. } = ask(ConfirmationAnswer::Yes) else {
        panic!()
    };
    assert_eq!(&*reason, "confirmed by the user");
    assert!(
        matches!(ask(ConfirmationAnswer::No), AuthorizationOutcome::Rejected(result) if result.text.contains("the user rejected the call"))
    );
    assert!(matches!(ask(ConfirmationAnswer::Abort), AuthorizationOutcome::Abort));
    assert_eq!(asked.lock().unwrap()[0], "run_command: touch x ('touch x' may change something)");
}
