//! Commands that print keys.

use std::io::Read as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use super::provider::PROVIDERS;
use crate::port::CancellationToken;

/// How long a command may run.
const PROCESS_TIMEOUT: Duration = Duration::from_secs(60);

/// The time between two looks at a running command.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The longest output of a command, in bytes.
const MAX_OUTPUT: u64 = 64 << 10;

/// Runs a command in a shell, without the keys of providers, and returns its output. What it prints to its standard
/// error may contain keys, and is dropped.
pub(super) fn run_secret_command(
    command: &str,
    cancel: &CancellationToken,
) -> Result<Vec<u8>, String> {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", command]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let keys = PROVIDERS.iter().flat_map(|provider| provider.key_variables);
    for name in keys.chain(&["AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"]) {
        shell.env_remove(name);
    }
    let mut child = shell.spawn().map_err(|error| format!("could not be started: {error}"))?;
    let pipe = child.stdout.take();
    let (sender, receiver) = crossbeam_channel::bounded(1);
    thread::spawn(move || {
        let mut output = Vec::new();
        if let Some(pipe) = pipe {
            let _ = pipe.take(MAX_OUTPUT).read_to_end(&mut output);
        }
        let _ = sender.send(output);
    });
    let status = wait_for_end(&mut child, cancel);
    if status.is_none() {
        let _ = child.kill();
        let _ = child.wait();
    }
    match status {
        Some(status) if status.success() => {
            // A process that it left behind may keep the pipe open.
            receiver
                .recv_timeout(Duration::from_secs(1))
                .map_err(|_| "did not close its output".to_owned())
        }
        Some(status) => Err(format!("failed ({status}); run it by hand to see why")),
        None if cancel.is_cancelled() => Err("was cancelled".to_owned()),
        None => Err(format!("took more than {} s", PROCESS_TIMEOUT.as_secs())),
    }
}

/// Waits for the end of a process; returns `None` at the time limit, and when cancelled.
fn wait_for_end(child: &mut Child, cancel: &CancellationToken) -> Option<ExitStatus> {
    for _ in 0..PROCESS_TIMEOUT.as_millis() / POLL_INTERVAL.as_millis() {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if !cancel.wait_for(POLL_INTERVAL) => {}
            Ok(None) | Err(_) => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cancelled_command_is_ended() {
        let cancel = CancellationToken::new();
        cancel.cancel();
        assert_eq!(run_secret_command("sleep 60", &cancel), Err("was cancelled".to_owned()));
    }
}
