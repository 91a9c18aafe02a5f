//! Folders and processes.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Waits until something is so; fails when it is not within ten seconds.
pub(crate) fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    wait_within(Duration::from_secs(10), what, is_so);
}

pub(crate) fn wait_within(limit: Duration, what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < limit, "not within {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the maximum memory use of a process so far, in bytes.
pub(crate) fn peak_memory(process: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kilobytes| kilobytes << 10)
}

/// Waits for the end of a process; also returns the maximum of its memory use, in bytes.
pub(crate) fn wait_with_peak(child: &mut Child, limit: Duration) -> (ExitStatus, u64) {
    let (begun, mut peak) = (Instant::now(), 0);
    loop {
        peak = peak.max(peak_memory(child.id()).unwrap_or(0));
        if let Some(status) = child.try_wait().unwrap() {
            return (status, peak);
        }
        assert!(begun.elapsed() < limit, "not within {limit:?}: the end of a process");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Returns a folder that is not below the usual one for temporary files; the checkout itself may be there.
pub(crate) fn folder_outside_temp() -> Option<TempDir> {
    let home = std::env::var_os("HOME").unwrap_or_default();
    let places = [env!("CARGO_TARGET_TMPDIR").into(), PathBuf::from(home), "/var/tmp".into()];
    let outside = |place: &&PathBuf| place.is_absolute() && !place.starts_with("/tmp");
    let found = places.iter().filter(outside).find_map(|place| tempfile::tempdir_in(place).ok());
    if found.is_none() {
        eprintln!("skipped: this user can write nowhere but in /tmp");
    }
    found
}

/// Returns how many processes sleep for this number of seconds; each test has its own number.
pub(crate) fn count_sleeping(seconds: &str) -> usize {
    let line = format!("sleep\x00{seconds}\x00");
    count_processes_where("cmdline", |found| found == line.as_bytes())
}

/// Returns how many processes run a program with this argument.
pub(crate) fn count_processes(argument: &str) -> usize {
    let is_it = |word: &[u8]| word == argument.as_bytes();
    count_processes_where("cmdline", |line| line.split(|byte| *byte == 0).any(is_it))
}

/// Returns how many processes have this in their environment.
pub(crate) fn count_with_variable(value: &str) -> usize {
    let has_value = |all: &[u8]| memchr::memmem::find(all, value.as_bytes()).is_some();
    count_processes_where("environ", has_value)
}

fn count_processes_where(file: &str, is_it: impl Fn(&[u8]) -> bool) -> usize {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter(|entry| fs::read(entry.path().join(file)).is_ok_and(|text| is_it(&text)))
        .count()
}
