//! Watches on folders, so that unchanged ones are not scanned again.
//!
//! A watch is set before a folder is read, and removed at the first change of its entries. So the entries of a watched
//! folder are those that were read. The kernel queues a change before the system call that caused it returns, so all
//! changes of a command are known at its end. Changes of file contents are not watched.

use std::collections::HashSet;

#[cfg(not(target_os = "linux"))]
use cap_std::fs::Dir;

/// A watch descriptor. Descriptors are not reused.
pub(super) type WatchId = i32;

/// The watches below a root.
#[derive(Debug, Default)]
pub(super) struct Watches {
    /// The active watches.
    set: HashSet<WatchId>,
    #[cfg(target_os = "linux")]
    source: Source,
    /// The device of the last watched folder, and whether its changes are reported.
    #[cfg(target_os = "linux")]
    local: Option<(u64, bool)>,
}

/// The source of change events.
#[cfg(target_os = "linux")]
#[derive(Debug, Default)]
enum Source {
    /// None, and none is wanted.
    #[default]
    None,
    /// A source is wanted, but not opened yet.
    Wanted,
    Open {
        queue: std::os::fd::OwnedFd,
        most: usize,
    },
}

impl Watches {
    /// Returns whether a folder is unchanged since it was read.
    pub(super) fn is_set(&self, watch: Option<WatchId>) -> bool {
        watch.is_some_and(|watch| self.set.contains(&watch))
    }
}

#[cfg(not(target_os = "linux"))]
#[allow(clippy::unused_self)] // the same functions as on Linux
impl Watches {
    pub(super) fn wanted() -> Self {
        Self::default()
    }

    pub(super) fn update(&mut self) {}

    pub(super) fn add(&mut self, _: &Dir, _: u64) -> Option<WatchId> {
        None
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs;
    use std::mem::MaybeUninit;
    use std::os::fd::AsRawFd;

    use cap_std::fs::Dir;
    use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
    use rustix::io::Errno;

    use super::{Source, WatchId, Watches};

    /// File systems that report all their changes, because these go through this kernel: ext, XFS, Btrfs, tmpfs,
    /// overlays, F2FS, bcachefs and ZFS.
    const LOCAL: [i64; 8] = [
        0xef53,
        0x5846_5342,
        0x9123_683e,
        0x0102_1994,
        0x794c_7630,
        0xf2f5_2010,
        0xca45_1a4e,
        0x2fc1_2fc1,
    ];

    /// The maximum number of watches; a quarter of the user's limit if that is less.
    const MOST: usize = 1 << 16;

    impl Watches {
        /// Returns an empty set that can be extended.
        pub(in super::super) fn wanted() -> Self {
            Self { source: Source::Wanted, ..Self::default() }
        }

        /// Removes ended watches.
        pub(in super::super) fn update(&mut self) {
            let Source::Open { queue, .. } = &self.source else { return };
            let mut buffer = [MaybeUninit::uninit(); 16 << 10];
            let mut events = Reader::new(queue, &mut buffer);
            loop {
                match events.next() {
                    Ok(event) if event.events().contains(ReadFlags::QUEUE_OVERFLOW) => {
                        self.set.clear();
                    }
                    Ok(event) => {
                        self.set.remove(&event.wd());
                    }
                    Err(Errno::INTR) => {}
                    Err(Errno::AGAIN) => return,
                    Err(error) => {
                        log::debug!("watches could not be read: {error}");
                        self.set.clear();
                        self.source = Source::None;
                        return;
                    }
                }
            }
        }

        /// Watches a folder before it is read; `None` if that fails.
        pub(in super::super) fn add(&mut self, dir: &Dir, device: u64) -> Option<WatchId> {
            if matches!(self.source, Source::Wanted) {
                self.source = opened(dir).unwrap_or_default();
            }
            let Source::Open { queue, most } = &self.source else { return None };
            if self.set.len() >= *most {
                return None;
            }
            let known = self.local.filter(|(known, _)| *known == device);
            let (_, is_local) = *self.local.insert(known.unwrap_or_else(|| {
                let found = rustix::fs::fstatfs(dir);
                (device, found.is_ok_and(|found| LOCAL.contains(&found.f_type)))
            }));
            if !is_local {
                return None;
            }
            let changes = WatchFlags::CREATE
                | WatchFlags::DELETE
                | WatchFlags::MOVED_FROM
                | WatchFlags::MOVED_TO
                | WatchFlags::DELETE_SELF
                | WatchFlags::MOVE_SELF
                | WatchFlags::ONESHOT
                | WatchFlags::ONLYDIR;
            let path = format!("/proc/self/fd/{}", dir.as_raw_fd());
            match inotify::add_watch(queue, path, changes) {
                Ok(watch) => {
                    self.set.insert(watch);
                    Some(watch)
                }
                Err(error) => {
                    // The user's limit is reached.
                    log::debug!("no watch was set: {error}");
                    if let Source::Open { most, .. } = &mut self.source {
                        *most = 0;
                    }
                    None
                }
            }
        }
    }

    fn opened(dir: &Dir) -> Option<Source> {
        let most = fs::read_to_string("/proc/sys/fs/inotify/max_user_watches").ok()?;
        let most = most.trim().parse::<usize>().ok()? / 4;
        // The events must come from the same file system, through this path.
        fs::metadata(format!("/proc/self/fd/{}", dir.as_raw_fd())).ok()?;
        let queue = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok()?;
        Some(Source::Open { queue, most: most.min(MOST) })
    }
}
