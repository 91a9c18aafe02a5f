//! The children of this process, the adopted ones included.

use std::fs;

use rustix::process::{Pid, getpid};

/// Calls a function with each child.
pub(super) fn each(mut visit: impl FnMut(Pid)) {
    if !listed(&mut visit) {
        searched(&mut visit);
    }
}

/// Reads the lists that the kernel keeps, one for each thread; not every kernel does.
fn listed(visit: &mut impl FnMut(Pid)) -> bool {
    let Ok(threads) = fs::read_dir("/proc/self/task") else { return false };
    let mut found = false;
    for thread in threads.flatten() {
        if let Ok(list) = fs::read_to_string(thread.path().join("children")) {
            found = true;
            list.split_whitespace().filter_map(pid).for_each(&mut *visit);
        }
    }
    found
}

/// Looks at every process for its parent.
fn searched(visit: &mut impl FnMut(Pid)) {
    let own = getpid();
    let Ok(processes) = fs::read_dir("/proc") else { return };
    for process in processes.flatten() {
        let parent = fs::read_to_string(process.path().join("stat")).ok().and_then(|stat| {
            // The name stands in parentheses and may contain anything; the state and the parent follow it.
            let (_, behind) = stat.rsplit_once(')')?;
            pid(behind.split_whitespace().nth(1)?)
        });
        if parent == Some(own)
            && let Some(child) = process.file_name().to_str().and_then(pid)
        {
            visit(child);
        }
    }
}

fn pid(text: &str) -> Option<Pid> {
    text.parse().ok().and_then(Pid::from_raw)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn both_ways_find_a_child() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let id = Pid::from_child(&child);
        let mut found = Vec::new();
        searched(&mut |pid| found.push(pid));
        assert!(found.contains(&id));
        let mut found = Vec::new();
        each(|pid| found.push(pid));
        assert!(found.contains(&id));
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}
