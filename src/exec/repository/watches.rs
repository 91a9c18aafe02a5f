//! Watches on folders, so that those in which nothing has changed are not looked at again.
//!
//! A watch is set before a folder is read, and ends with the first change of an entry in it. So a folder whose watch is
//! set has the entries that were read. The kernel queues a change before the call that made it returns; it is known
//! when a command has ended. Contents of files are not watched.

use std::collections::HashSet;

#[cfg(not(target_os = "linux"))]
use cap_std::fs::Dir;

/// The number of a watch. Numbers are not used again.
pub(super) type Watch = i32;

/// The watches on the folders below a root.
#[derive(Debug, Default)]
pub(super) struct Watches {
    /// Those that are set, as far as it is known.
    set: HashSet<Watch>,
    source: Source,
    /// The device of the folder that was watched last, and whether its changes are reported.
    #[cfg(target_os = "linux")]
    local: Option<(u64, bool)>,
}

/// Where changes are heard of.
#[derive(Debug, Default)]
enum Source {
    /// Nowhere, and none is wanted.
    #[default]
    None,
    /// Nowhere yet.
    #[cfg(target_os = "linux")]
    Wanted,
    #[cfg(target_os = "linux")]
    Open { queue: std::os::fd::OwnedFd, most: usize },
}

impl Watches {
    /// Returns whether nothing has changed in a folder since it was read.
    pub(super) fn is_set(&self, watch: Option<Watch>) -> bool {
        watch.is_some_and(|watch| self.set.contains(&watch))
    }
}

#[cfg(not(target_os = "linux"))]
impl Watches {
    pub(super) fn wanted() -> Self {
        Self::default()
    }

    pub(super) fn update(&mut self) {}

    pub(super) fn add(&mut self, _: &Dir, _: u64) -> Option<Watch> {
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

    use super::{Source, Watch, Watches};

    /// The file systems whose every change is made through this kernel, and reported: ext, XFS, Btrfs, tmpfs, overlays,
    /// F2FS, bcachefs and ZFS.
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

    /// A quarter of the watches that a user may have, and no more than this many, are used.
    const MOST: usize = 1 << 16;

    impl Watches {
        /// Returns watches that can be set.
        pub(in super::super) fn wanted() -> Self {
            Self { source: Source::Wanted, ..Self::default() }
        }

        /// Forgets the watches that have ended.
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

        /// Watches a folder that is going to be read; `None` if it can't be.
        pub(in super::super) fn add(&mut self, dir: &Dir, device: u64) -> Option<Watch> {
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
                    // There are enough for those that have one.
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
        // Its events have to come from the file system that is looked at, through this very path.
        fs::metadata(format!("/proc/self/fd/{}", dir.as_raw_fd())).ok()?;
        let queue = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok()?;
        Some(Source::Open { queue, most: most.min(MOST) })
    }
}
