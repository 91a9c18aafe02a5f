//! The `architect` command. It knows the library, its arguments and its terminal; the work is done elsewhere.

mod cli;

use std::process::ExitCode;

use architect::exec::helper;

fn main() -> ExitCode {
    let_children_be_waited_for();
    // Before anything else: as a supervisor of commands this is another program.
    if let Some(code) = architect::supervisor_main() {
        return code;
    }
    // Where it cannot be had, the confinement of commands is what keeps them away.
    let _ = helper::forbid_inspection();
    return_large_blocks();
    cli::main()
}

/// Lets the ends of child processes be known. A parent that ignores them passes that on, and every command would seem to
/// have failed.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
fn let_children_be_waited_for() {
    // SAFETY: it sets no handler, and there is no other thread yet.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

#[cfg(not(target_os = "linux"))]
fn let_children_be_waited_for() {}

/// Makes the allocator of glibc return freed blocks of a mebibyte to the system. By default, it keeps them once the first
/// one is freed, up to 32 MiB each and in every thread, so that a long reply would take several times its size.
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
