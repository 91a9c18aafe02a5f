//! Hooks that are real commands.

use std::sync::Arc;
use std::time::{Duration, Instant};

use architect::exec::{SandboxPolicy, Supervisor};
use architect::hooks::{CommandHook, Hook, HookError, HookInput, HookOutput, HookSession};
use architect::port::CancellationToken;

use crate::kit::effect::scope_with;
use crate::kit::system::{count_sleeping, wait_until};

/// Asks a hook that is this command about a task, for so long.
fn ask_about(
    command: &str,
    prompt: &str,
    timeout: Duration,
    cancel: &CancellationToken,
) -> Result<HookOutput, HookError> {
    let folder = tempfile::tempdir().unwrap();
    let path = vec![("PATH".into(), std::env::var_os("PATH").unwrap())];
    let policy = SandboxPolicy::off(folder.path());
    let shell = Supervisor::with_program(env!("CARGO_BIN_EXE_architect"), policy, path);
    let session = HookSession {
        id: "s".into(),
        workspace: folder.path().to_owned(),
        ..HookSession::default()
    };
    let hook = CommandHook::new(command, timeout, session.into(), Arc::new(shell));
    hook.run(&HookInput::SessionStart { prompt: prompt.into() }, &scope_with(cancel))
}

/// A time limit that no hook here reaches.
const LONG: Duration = Duration::from_secs(30);

fn ask(command: &str) -> Result<HookOutput, HookError> {
    ask_about(command, "the task", LONG, &CancellationToken::new())
}

#[test]
fn a_command_reads_the_occasion_and_its_output_is_the_answer() {
    let output =
        ask(r#"grep -q '"the task"' && echo "{\"additionalContext\":\"$ARCHITECT_HOOK\"}""#);
    assert_eq!(output, Ok(HookOutput::context("session_start")));
}

/// Faults H1 and H3.
#[test]
fn the_end_of_a_command_is_its_answer() {
    assert_eq!(ask("true"), Ok(HookOutput::default()));
    let no = HookOutput::Block { reason: "not today\n".to_owned() };
    assert_eq!(ask("echo not today >&2; exit 2"), Ok(no));
    assert!(matches!(ask("exit 7"), Err(HookError::Exit { code: 7, .. })));
    assert_eq!(ask("kill -SEGV $$"), Err(HookError::Signal(11)));
    assert!(matches!(ask("/no/such/program"), Err(HookError::Start(_))));
    assert!(matches!(ask("/etc/passwd"), Err(HookError::Start(_))));
}

/// Fault H2.
#[test]
fn a_command_that_hangs_is_killed_with_all_it_started() {
    let (command, timeout) =
        ("trap '' TERM; setsid sleep 87611 & sleep 87611", Duration::from_secs(1));
    let hangs = ask_about(command, "", timeout, &CancellationToken::new());
    assert_eq!(hangs, Err(HookError::TimedOut(timeout)));
    wait_until("nothing is left", || count_sleeping("87611") == 0);
}

#[test]
fn a_cancelled_command_ends_soon() {
    let cancel = CancellationToken::new();
    let canceller = cancel.clone();
    let asking = std::thread::spawn(move || ask_about("sleep 87612", "", LONG, &cancel));
    wait_until("it runs", || count_sleeping("87612") == 1);
    let begun = Instant::now();
    canceller.cancel();
    assert_eq!(asking.join().unwrap(), Err(HookError::Cancelled));
    assert!(begun.elapsed() < Duration::from_secs(8));
}

/// Fault H4.
#[test]
fn an_answer_has_an_end_and_is_text() {
    let most = r#"printf '{"additionalContext":"%01048000d"}' 0"#;
    assert!(matches!(ask(most), Ok(HookOutput::Continue(_))));
    let more = r#"printf '{"additionalContext":"%01049000d"}' 0"#;
    assert_eq!(ask(more), Err(HookError::Output("its output is too long".to_owned())));
    assert!(matches!(ask(r"printf '{\377}'"), Err(HookError::Output(_))));
}

/// Fault H9.
#[test]
fn a_command_need_not_read_what_it_is_given() {
    let prompt = "x".repeat(1 << 20);
    let output = ask_about("true", &prompt, LONG, &CancellationToken::new());
    assert_eq!(output, Ok(HookOutput::default()));
}
