//! Space reserved after the end of a journal, so that a full disk is noticed before the last record no longer fits.

use std::fs::File;
use std::io;

/// The space reserved after the end of a file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SpaceReservation {
    /// The end of the reserved space.
    end: u64,
    /// Whether the file system cannot reserve space.
    is_unsupported: bool,
}

/// The minimum of reserved space after the last record, in bytes.
const MIN_FREE_BYTES: u64 = 1 << 20;

impl SpaceReservation {
    /// Reserves space for the file up to this offset, and [`MIN_FREE_BYTES`] after it.
    ///
    /// # Errors
    ///
    /// Fails if the disk is too full. Space that was reserved before stays reserved.
    pub(super) fn ensure(&mut self, file: &File, offset: u64) -> io::Result<()> {
        if self.is_unsupported || offset.saturating_add(MIN_FREE_BYTES) <= self.end {
            return Ok(());
        }
        let end = offset.saturating_add(2 * MIN_FREE_BYTES);
        match allocate(file, end) {
            Ok(()) => self.end = end,
            Err(error) if error.kind() == io::ErrorKind::Unsupported => self.is_unsupported = true,
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Cuts the file off at this offset, with all reserved space after it.
    pub(super) fn truncate(&mut self, file: &File, offset: u64) -> io::Result<()> {
        self.end = 0;
        file.set_len(offset)
    }
}

#[cfg(target_os = "linux")]
fn allocate(file: &File, end: u64) -> io::Result<()> {
    use rustix::fs::FallocateFlags;
    use rustix::io::Errno;

    loop {
        match rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, 0, end) {
            Err(Errno::INTR) => {}
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Err(io::ErrorKind::Unsupported.into()),
            result => return result.map_err(io::Error::from),
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn allocate(_: &File, _: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn reserved_space_is_no_content_and_is_given_back() {
        let file = tempfile::tempfile().unwrap();
        let mut reserve = SpaceReservation::default();
        reserve.ensure(&file, 100).unwrap();
        let found = file.metadata().unwrap();
        assert_eq!(found.len(), 0);
        if reserve.is_unsupported {
            return;
        }
        assert!(found.blocks() * 512 >= MIN_FREE_BYTES);
        reserve.truncate(&file, 0).unwrap();
        assert!(file.metadata().unwrap().blocks() * 512 < MIN_FREE_BYTES);
    }

    #[test]
    fn space_is_asked_for_once_a_mebibyte() {
        let file = tempfile::tempfile().unwrap();
        let mut reserve = SpaceReservation::default();
        reserve.ensure(&file, 0).unwrap();
        let end = reserve.end;
        reserve.ensure(&file, MIN_FREE_BYTES).unwrap();
        assert_eq!(reserve.end, end);
        reserve.ensure(&file, MIN_FREE_BYTES + 1).unwrap();
        assert!(reserve.is_unsupported || reserve.end > end);
    }
}
