//! The `architect` command: it starts the supervisor of commands or the command line.

mod cli;

use std::process::ExitCode;

use architect::exec::helper;

fn main() -> ExitCode {
    let_children_be_waited_for();
    // This comes first, because a supervisor of commands is a different program.
    if let Some(code) = architect::supervisor_main() {
        return code;
    }
    // If this is not possible, only the confinement keeps commands from inspecting this process.
    let _ = helper::forbid_inspection();
    return_large_blocks();
    cli::main()
}

/// Restores the default handling of SIGCHLD. A parent process that ignores this signal passes that on, and every
/// command would seem to have failed.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
fn let_children_be_waited_for() {
    // SAFETY: it sets no handler, and there is no other thread yet.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

#[cfg(not(target_os = "linux"))]
fn let_children_be_waited_for() {}

/// Makes the allocator of glibc return freed blocks of at least a mebibyte to the system. By default, after the first
/// one is freed, it keeps blocks of up to 32 MiB in every thread, so that a long reply would take several times its
/// size.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code)]
fn return_large_blocks() {
    const LARGE: std::ffi::c_int = 1 << 20;
    // SAFETY: it takes numbers only, and there is no other thread yet.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
        libc::mallopt(libc::M_TRIM_THRESHOLD, LARGE);
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn return_large_blocks() {}
