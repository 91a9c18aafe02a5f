//! The children of this process, including adopted ones.

use std::collections::HashMap;
use std::fs;

use rustix::process::{Pid, getpid};

/// Calls a function for each child.
pub(in crate::exec) fn for_each_child(mut visit: impl FnMut(Pid)) {
    if !for_each_listed(&mut visit) {
        for_each_by_parent(&mut visit);
    }
}

/// Reads the lists of the kernel, one for each thread; not every kernel has them.
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

/// Checks the parent of every process.
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

/// Returns the anonymous memory of all descendants of this process, in bytes.
pub(in crate::exec) fn descendants_memory() -> u64 {
    let own = getpid().as_raw_nonzero().get();
    let mut processes: HashMap<i32, (i32, u64)> = HashMap::new();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(number) = process.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let Ok(status) = fs::read_to_string(process.path().join("status")) else { continue };
        let value = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse::<u64>().ok()
        };
        let parent = value("PPid:").and_then(|parent| i32::try_from(parent).ok());
        processes.insert(number, (parent.unwrap_or(0), value("RssAnon:").unwrap_or(0)));
    }
    let is_ours = |mut number: i32| {
        // Bounded: the list is not a consistent snapshot, and a parent may be gone.
        for _ in 0..processes.len() {
            match processes.get(&number) {
                Some((parent, _)) if *parent == own => return true,
                Some((parent, _)) => number = *parent,
                None => return false,
            }
        }
        false
    };
    let ours = processes.iter().filter(|(number, _)| is_ours(**number));
    ours.map(|(_, (_, kilobytes))| kilobytes << 10).sum()
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
