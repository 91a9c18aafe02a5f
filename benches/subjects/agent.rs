//! The command itself, as a process whose model is a server on loopback.

use std::path::Path;
use std::process::{Command, Stdio};

/// Returns the command for a task in a folder that is also its home, and is passed as `--workspace` for that reason.
/// The command asks for no confirmation, and prints nothing.
pub(crate) fn agent(base: &str, folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_architect"));
    command
        .args(["run", "-m", "openai-chat/fake", "--api-base", base, "--mode", "yolo"])
        .arg("--workspace")
        .arg(folder)
        .args(args)
        .arg("Go.")
        .current_dir(folder)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", folder)
        .env("OPENAI_API_KEY", "none")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}
