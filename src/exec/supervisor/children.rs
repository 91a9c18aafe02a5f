//! The children of this process, including adopted ones.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;

use rustix::process::{Pid, getpid};

/// Calls a function for each child.
pub(in crate::exec) fn for_each_child(mut visit: impl FnMut(Pid)) {
    if !for_each_listed(&mut visit) {
        for_each_by_parent(&mut visit);
    }
}

/// Reads the kernel's lists of children, one per thread. Returns `false` if the kernel does not have them.
fn for_each_listed(visit: &mut impl FnMut(Pid)) -> bool {
    let Ok(threads) = fs::read_dir("/proc/self/task") else { return false };
    let mut found = false;
    for thread in threads.flatten() {
        if let Ok(list) = fs::read_to_string(thread.path().join("children")) {
            found = true;
            list.split_whitespace().filter_map(parse_pid).for_each(&mut *visit);
        }
    }
    found
}

/// Calls the function for each process whose parent is this process.
fn for_each_by_parent(visit: &mut impl FnMut(Pid)) {
    let own = getpid();
    let Ok(processes) = fs::read_dir("/proc") else { return };
    for process in processes.flatten() {
        let parent = fs::read_to_string(process.path().join("stat")).ok().and_then(|stat| {
            // The name is in parentheses and may contain any character; state and parent follow it.
            let (_, behind) = stat.rsplit_once(')')?;
            parse_pid(behind.split_whitespace().nth(1)?)
        });
        if parent == Some(own)
            && let Some(child) = process.file_name().to_str().and_then(parse_pid)
        {
            visit(child);
        }
    }
}

/// A descendant of this process, with its memory in bytes.
struct Descendant {
    pid: i32,
    anonymous: u64,
    /// Mapped files in memory.
    shared: u64,
}

/// Returns whether the descendants of this process use more memory than `most` bytes. Memory that several of them map
/// counts once; files in memory count even if no descendant maps them. `shared_before` is the value of
/// [`machine_shared_memory`] before the first descendant was started. `own_namespace` is true if shared memory belongs
/// to the descendants alone.
pub(in crate::exec) fn exceed_memory(most: u64, shared_before: u64, own_namespace: bool) -> bool {
    let all = descendants();
    let folder = own_namespace.then(|| rustix::fs::statvfs("/dev/shm").ok()).flatten();
    let mut files = folder.map_or(0, |all| (all.f_blocks - all.f_bfree) * all.f_frsize);
    // The sum is an upper bound that needs one file per process: mapped pages count for each process, and files of
    // other programs count, too.
    let growth = machine_shared_memory().saturating_sub(shared_before);
    let mapped = all.iter().map(|one| one.anonymous + one.shared).sum::<u64>();
    if mapped + files + growth <= most {
        return false;
    }
    let (mut anonymous, mut shared, mut seen) = (0, 0, HashSet::new());
    for one in &all {
        let rollup = fs::read_to_string(format!("/proc/{}/smaps_rollup", one.pid));
        // A process can hide the file, and an old kernel does not have it.
        let exact = |name, rough| {
            rollup.as_ref().ok().and_then(|text| kilobytes(text, name)).unwrap_or(rough)
        };
        anonymous += exact("Pss_Anon:", one.anonymous);
        shared += exact("Pss_Shmem:", one.shared);
        for file in fs::read_dir(format!("/proc/{}/fd", one.pid)).into_iter().flatten().flatten() {
            let target = fs::read_link(file.path()).unwrap_or_default();
            let is_anonymous = target.as_os_str().as_bytes().starts_with(b"/memfd:");
            if let Some(found) = is_anonymous.then(|| fs::metadata(file.path()).ok()).flatten()
                && seen.insert((found.dev(), found.ino()))
            {
                files += found.blocks() * 512;
            }
        }
    }
    if own_namespace && let Ok(segments) = fs::read_to_string("/proc/sysvipc/shm") {
        let rows = segments.lines().skip(1);
        files +=
            rows.filter_map(|row| row.split_whitespace().nth(14)?.parse::<u64>().ok()).sum::<u64>();
    }
    anonymous + shared.max(files) > most
}

/// Returns the memory of the machine that is shared or used by files, in bytes; 0 if unknown.
pub(in crate::exec) fn machine_shared_memory() -> u64 {
    let about = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    kilobytes(&about, "Shmem:").unwrap_or(0)
}

/// Returns a value from a kernel list, in bytes.
fn kilobytes(list: &str, name: &str) -> Option<u64> {
    let line = list.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|number| number << 10)
}

fn descendants() -> Vec<Descendant> {
    let own = getpid().as_raw_nonzero().get();
    let mut processes: HashMap<i32, (i32, Descendant)> = HashMap::new();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let Ok(status) = fs::read_to_string(process.path().join("status")) else { continue };
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
        let parent = parent.and_then(|parent| parent.trim().parse().ok()).unwrap_or(0);
        let size = |name| kilobytes(&status, name).unwrap_or(0);
        let (anonymous, shared) = (size("RssAnon:"), size("RssShmem:"));
        processes.insert(pid, (parent, Descendant { pid, anonymous, shared }));
    }
    let is_ours = |mut number: i32| {
        // The loop is bounded: the list is not a consistent snapshot, and a parent may be gone.
        for _ in 0..processes.len() {
            match processes.get(&number) {
                Some((parent, _)) if *parent == own => return true,
                Some((parent, _)) => number = *parent,
                None => return false,
            }
        }
        false
    };
    let ours: HashSet<i32> = processes.keys().copied().filter(|number| is_ours(*number)).collect();
    processes.into_values().map(|(_, one)| one).filter(|one| ours.contains(&one.pid)).collect()
}

fn parse_pid(text: &str) -> Option<Pid> {
    text.parse().ok().and_then(Pid::from_raw)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn both_methods_find_a_child() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let id = Pid::from_child(&child);
        let mut found = Vec::new();
        for_each_by_parent(&mut |pid| found.push(pid));
        assert!(found.contains(&id));
        let mut found = Vec::new();
        for_each_child(|pid| found.push(pid));
        assert!(found.contains(&id));
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}
