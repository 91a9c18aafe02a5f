//! The processes of a command, and how to kill all of them.

use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, kill_process_group, test_kill_process_group, waitpid,
};

use crate::exec::command::CommandEnd;

/// The method of finding the processes of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::exec) enum ProcessTree {
    /// By process group alone; processes that leave the group are not found.
    Group,
    /// As children of this process, which adopts orphans.
    #[cfg(target_os = "linux")]
    Reaper,
    /// As all other processes of a namespace whose first process is this one.
    #[cfg(target_os = "linux")]
    Namespace,
}

/// The result of killing all processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::exec) struct KilledTree {
    /// The number of killed processes, without the command itself.
    pub strays: u32,
    /// Whether a process has survived SIGKILL.
    pub is_stuck: bool,
}

impl ProcessTree {
    /// Returns whether other processes remain after the command itself was collected.
    pub(in crate::exec) fn has_remaining(self, leader: Pid) -> bool {
        match self {
            Self::Group => test_kill_process_group(leader).is_ok(),
            // Collect processes that have ended meanwhile.
            #[cfg(target_os = "linux")]
            Self::Reaper | Self::Namespace => loop {
                match rustix::process::wait(WaitOptions::NOHANG) {
                    Ok(Some(_)) | Err(Errno::INTR) => {}
                    Ok(None) => return true,
                    Err(_) => return false,
                }
            },
        }
    }

    /// Returns whether the command's processes are known to use more memory than `most` bytes. `shared_before` is the
    /// shared memory of the machine before the command.
    #[cfg_attr(not(target_os = "linux"), expect(unused_variables))]
    pub(in crate::exec) fn exceeds_memory(self, most: u64, shared_before: u64) -> bool {
        match self {
            Self::Group => false,
            #[cfg(target_os = "linux")]
            Self::Reaper | Self::Namespace => {
                super::children::exceed_memory(most, shared_before, self == Self::Namespace)
            }
        }
    }

    /// Returns the shared memory of the machine, in bytes; 0 if this method does not use it.
    pub(in crate::exec) fn shared_memory(self) -> u64 {
        match self {
            Self::Group => 0,
            #[cfg(target_os = "linux")]
            Self::Reaper | Self::Namespace => super::children::machine_shared_memory(),
        }
    }

    /// Sends a signal to the process group of the command.
    pub(in crate::exec) fn signal(leader: Pid, signal: Signal) {
        // The command may have ended.
        let _ = kill_process_group(leader, signal);
    }

    /// Kills and collects all remaining processes.
    pub(in crate::exec) fn kill_all(self, leader: Pid, patience: Duration) -> KilledTree {
        let until = Instant::now() + patience;
        let mut felled = KilledTree::default();
        let mut pause = Duration::from_micros(50);
        loop {
            self.kill(leader);
            if !self.collect(leader, &mut felled) {
                return felled;
            }
            if Instant::now() >= until {
                return KilledTree { is_stuck: true, ..felled };
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(10));
        }
    }

    fn kill(self, leader: Pid) {
        Self::signal(leader, Signal::KILL);
        match self {
            Self::Group => {}
            #[cfg(target_os = "linux")]
            Self::Reaper => super::children::for_each_child(|child| {
                let _ = rustix::process::kill_process(child, Signal::KILL);
            }),
            // A signal to all processes spares the first process of a namespace.
            #[cfg(target_os = "linux")]
            Self::Namespace => {
                let _ = kill_process_group(Pid::INIT, Signal::KILL);
            }
        }
    }

    /// Collects ended processes; returns whether others remain.
    fn collect(self, leader: Pid, felled: &mut KilledTree) -> bool {
        match self {
            Self::Group => {
                let collected = waitpid(Some(leader), WaitOptions::NOHANG);
                let is_collected = !matches!(collected, Ok(None) | Err(Errno::INTR));
                let is_left = test_kill_process_group(leader).is_ok();
                if is_left && is_collected {
                    // The number of processes is unknown.
                    felled.strays = 1;
                }
                is_left
            }
            #[cfg(target_os = "linux")]
            Self::Reaper | Self::Namespace => loop {
                match rustix::process::wait(WaitOptions::NOHANG) {
                    Ok(Some((pid, status))) => {
                        let was_killed = status.terminating_signal() == Some(Signal::KILL.as_raw());
                        felled.strays += u32::from(was_killed && pid != leader);
                    }
                    Err(Errno::INTR) => {}
                    Ok(None) => return true,
                    Err(_) => return false,
                }
            },
        }
    }
}

impl CommandEnd {
    /// Returns the end of a process; `None` if it was only stopped.
    pub(super) fn from_wait_status(status: WaitStatus) -> Option<Self> {
        let exited = status.exit_status().map(Self::Exited);
        exited.or_else(|| status.terminating_signal().map(Self::Signalled))
    }
}
