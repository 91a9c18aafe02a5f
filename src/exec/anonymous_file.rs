//! Files without a name, to hand something to a process that may never read it.

use std::fs::File;
use std::io::{self, Seek, Write};

/// Returns a file with this content, to be read from its beginning.
pub(super) fn create(content: &[u8]) -> io::Result<File> {
    let mut file = create_empty()?;
    file.write_all(content)?;
    file.rewind()?;
    Ok(file)
}

#[cfg(target_os = "linux")]
fn create_empty() -> io::Result<File> {
    use rustix::fs::{MemfdFlags, memfd_create};

    Ok(memfd_create("input", MemfdFlags::CLOEXEC)?.into())
}

#[cfg(not(target_os = "linux"))]
fn create_empty() -> io::Result<File> {
    tempfile::tempfile()
}
