//! Resources that a process uses.

use std::fs;

/// Resources of a process; memory in kB.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessUsage {
    /// Resident memory.
    pub(crate) resident: u64,
    /// Peak resident memory.
    pub(crate) most: u64,
    pub(crate) descriptors: usize,
    pub(crate) threads: u64,
}

impl ProcessUsage {
    pub(crate) fn of(pid: u32) -> Self {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let number = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.split_whitespace().next().unwrap().parse().unwrap()
        };
        Self {
            resident: number("VmRSS:"),
            most: number("VmHWM:"),
            descriptors: fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count(),
            threads: number("Threads:"),
        }
    }
}
