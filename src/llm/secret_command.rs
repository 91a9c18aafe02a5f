//! Runs commands that print keys.

use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};

use super::provider::PROVIDERS;
use crate::port::CancellationToken;

/// The time limit for a command.
const PROCESS_TIMEOUT: Duration = Duration::from_secs(60);

/// The time between two checks of a running command.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The maximum size of a command's output, in bytes.
const MAX_OUTPUT: u64 = 64 << 10;

/// The time for which the output may stay open after the end of a command: a process left behind may keep it open.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(1);

/// Runs a command in a shell, and kills its process group when standard input ends, at the latest with the death of
/// this process.
const GUARDED_SHELL: &str = "exec 3<&0; { read -r _ <&3; kill -KILL 0; } >/dev/null & \
     exec 3<&-; exec /bin/sh -c \"$0\" </dev/null";

/// Runs a command in a shell, without the keys of providers, and returns its output. The command has its own process
/// group, which is killed at the end, even if this process is killed. Its standard error may contain keys, and is
/// dropped.
pub(super) fn run_secret_command(
    command: &str,
    cancel: &CancellationToken,
) -> Result<Vec<u8>, String> {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", GUARDED_SHELL, command]).process_group(0);
    shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let keys = PROVIDERS.iter().flat_map(|provider| provider.key_variables);
    for name in keys.chain(&["AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"]) {
        shell.env_remove(name);
    }
    let mut child = shell.spawn().map_err(|error| format!("could not be started: {error}"))?;
    let _guard = child.stdin.take();
    let pipe = child.stdout.take();
    let (sender, receiver) = crossbeam_channel::bounded(1);
    thread::spawn(move || {
        let mut output = Vec::new();
        if let Some(pipe) = pipe {
            let _ = pipe.take(MAX_OUTPUT).read_to_end(&mut output);
        }
        let _ = sender.send(output);
    });
    let group = Pid::from_child(&child);
    let status = wait_for_end(&mut child, cancel);
    if status.is_none() {
        let _ = kill_process_group(group, Signal::KILL);
        let _ = child.wait();
    }
    match status {
        Some(status) if status.success() => {
            receiver.recv_timeout(OUTPUT_TIMEOUT).map_err(|_| "did not close its output".to_owned())
        }
        Some(status) => Err(format!("failed ({status}); run it by hand to see why")),
        None if cancel.is_cancelled() => Err("was cancelled".to_owned()),
        None => Err(format!("took more than {} s", PROCESS_TIMEOUT.as_secs())),
    }
}

/// Waits for the end of a process. Returns `None` when the time limit is reached, or the wait is cancelled.
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

    #[test]
    fn a_command_that_is_stopped_leaves_no_process_behind() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        let made = Command::new("mkfifo").arg(&fifo).status().unwrap();
        assert!(made.success());
        let (cancel, shown) = (CancellationToken::new(), fifo.display());
        // Both the shell and its child hold the write end of the pipe.
        let command = format!("exec 3>{shown}; echo started >&3; sleep 300; echo key");
        let stopper = cancel.clone();
        let reader = thread::spawn(move || {
            let (mut pipe, mut start) = (std::fs::File::open(fifo).unwrap(), [0; 8]);
            pipe.read_exact(&mut start).unwrap();
            stopper.cancel();
            // The pipe ends when no process is left.
            pipe.read_to_end(&mut Vec::new()).unwrap()
        });
        assert_eq!(run_secret_command(&command, &cancel), Err("was cancelled".to_owned()));
        assert_eq!(reader.join().unwrap(), 0);
    }
}
