//! The files that a process may have open, for cells that run at the same time.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The files that a cell has open while a command of its model runs, and some more.
const FILES_PER_CELL: u64 = 12;

/// The files that the process has open besides those of its cells.
const OTHER_FILES: u64 = 100;

/// Returns how many cells may run at the same time, at most as many as asked for. The limit of open files is raised for
/// them as far as the system allows; commands have the same limit.
pub(super) fn limit_by_open_files(cells: usize) -> usize {
    let wanted = u64::try_from(cells).unwrap_or(u64::MAX);
    let files = wanted.saturating_mul(FILES_PER_CELL).saturating_add(OTHER_FILES);
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let Some(now) = current.filter(|now| *now < files) else { return cells };
    let raised = maximum.map_or(files, |maximum| maximum.min(files));
    let limit = Rlimit { current: Some(raised), maximum };
    let most = if setrlimit(Resource::Nofile, limit).is_ok() { raised } else { now };
    let possible = (most.saturating_sub(OTHER_FILES) / FILES_PER_CELL).max(1);
    if possible >= wanted {
        return cells;
    }
    log::warn!(
        "{possible} cells run at the same time instead of {cells}: a process may have {most} files open here (`ulimit -Hn`)"
    );
    usize::try_from(possible).unwrap_or(cells)
}
