//! The other side: this program, started again as a supervisor of commands.

use std::ffi::OsStr;
use std::io;
use std::process::ExitCode;

use super::confine::Enforced;
use super::policy::Policy;
use super::supervise::{Start, serve};
use super::tree::Tree;
use super::wire::{Ask, Link, Received, Tell};

/// The argument with which the program is started as a supervisor.
pub const ARGUMENT: &str = "__exec";

/// Returns whether the program was started as a supervisor; it then has to do nothing but [`main`].
pub fn is_requested(first: Option<&OsStr>) -> bool {
    first == Some(OsStr::new(ARGUMENT))
}

/// Supervises commands until the engine is gone. The engine is at the other end of standard input.
///
/// Started by anybody else it does nothing: it can only take away what whoever starts it may do anyway.
pub fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn run() -> io::Result<()> {
    let socket = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    let link = Link::over(socket);
    let Some(Received { message: Ask::Confine(policy), .. }) = link.receive::<Ask>()? else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let (enforced, tree) = prepare(&policy)?;
    link.send(&Tell::Ready(enforced), &[], &[])?;
    serve(&link, tree, Start::spawn)
}

fn prepare(_: &Policy) -> io::Result<(Enforced, Tree)> {
    let _ = rustix::process::setsid();
    #[cfg(target_os = "linux")]
    {
        rustix::process::set_child_subreaper(rustix::process::Pid::from_raw(1))?;
        Ok((Enforced::nothing(), Tree::Reaper))
    }
    #[cfg(not(target_os = "linux"))]
    Ok((Enforced::nothing(), Tree::Group))
}
