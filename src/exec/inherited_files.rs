//! The one thing that needs `unsafe`: open files that this process has inherited without knowing them.
#![allow(unsafe_code)]

use std::fs;
use std::os::fd::BorrowedFd;

use rustix::io::{FdFlags, fcntl_setfd};

/// Sees to it that nothing started from here inherits an open file besides standard input, output and error.
///
/// Everything that this program opens is closed on its own; what whoever started it has left open is not. To be called
/// before there is a second thread.
pub(super) fn close_inherited_on_exec() {
    let Ok(entries) = fs::read_dir("/dev/fd") else { return };
    let number = |name: std::ffi::OsString| name.to_str().and_then(|name| name.parse::<i32>().ok());
    // The folder's own descriptor is among them; it must be closed before any is touched.
    let open: Vec<i32> = entries.flatten().filter_map(|entry| number(entry.file_name())).collect();
    for file in open.into_iter().filter(|file| *file > 2) {
        // SAFETY: the number was just listed as open, or belonged to the listing itself, which is closed; there is no
        // second thread that could open or close files meanwhile. A number that is not open makes the call fail, and
        // nothing is read, written or closed.
        let file = unsafe { BorrowedFd::borrow_raw(file) };
        let _ = fcntl_setfd(file, FdFlags::CLOEXEC);
    }
}
