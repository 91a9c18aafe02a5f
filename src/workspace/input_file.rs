//! Input files named by the user.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

/// The character that some editors write before a text.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// Opens a regular file for reading. A named pipe without a writer does not block, and a device does not fill the
/// memory.
///
/// # Errors
///
/// Fails if the file cannot be opened, or is not a regular file.
pub fn open_input(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"))
}

/// Reads a text file like [`open_input`], without a byte order mark.
///
/// # Errors
///
/// Fails if the file cannot be read, or is not UTF-8.
pub fn read_input(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    open_input(path)?.read_to_string(&mut text)?;
    if text.starts_with(BYTE_ORDER_MARK) {
        text.drain(..BYTE_ORDER_MARK.len_utf8());
    }
    Ok(text)
}
