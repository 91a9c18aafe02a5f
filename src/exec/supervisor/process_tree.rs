//! The tree of processes that grows from a command, and how it is felled.

use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, kill_process_group, test_kill_process_group, waitpid,
};

use super::protocol::ProcessStatus;

/// How the processes that a command has started are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::exec) enum ProcessTree {
    /// By their process group alone; who leaves it is not found.
    Group,
    /// As children: who loses its parent becomes ours.
    #[cfg(target_os = "linux")]
    Reaper,
    /// As everybody else in a namespace in which we are the first process.
    #[cfg(target_os = "linux")]
    Namespace,
}

/// What was found when a tree was felled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::exec) struct KilledTree {
    /// Processes that were killed, the command itself not counted.
    pub strays: u32,
    /// The status of the command, if it had not been collected before.
    pub status: Option<ProcessStatus>,
    /// Whether something is left that does not even die of the last signal.
    pub is_stuck: bool,
}

impl ProcessTree {
    /// Returns whether anything is left besides a command that has been collected.
    pub(in crate::exec) fn has_remaining(self, leader: Pid) -> bool {
        match self {
            Self::Group => test_kill_process_group(leader).is_ok(),
            // What has ended meanwhile is collected on the way.
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

    /// Returns how much memory of their own the processes of the command use, in bytes; 0 where that cannot be told.
    pub(in crate::exec) fn memory(self) -> u64 {
        match self {
            Self::Group => 0,
            #[cfg(target_os = "linux")]
            Self::Reaper | Self::Namespace => super::children::descendants_memory(),
        }
    }

    /// Sends a signal to the group of the command.
    pub(in crate::exec) fn signal(leader: Pid, signal: Signal) {
        // It may be gone already.
        let _ = kill_process_group(leader, signal);
    }

    /// Kills everything that is left, and collects it.
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
            // In this namespace the first process, and it alone, is spared by a signal to everybody.
            #[cfg(target_os = "linux")]
            Self::Namespace => {
                let _ = kill_process_group(Pid::INIT, Signal::KILL);
            }
        }
    }

    /// Collects what has ended; returns whether something is left.
    fn collect(self, leader: Pid, felled: &mut KilledTree) -> bool {
        match self {
            Self::Group => {
                let is_collected = match waitpid(Some(leader), WaitOptions::NOHANG) {
                    Ok(Some((_, status))) => {
                        felled.status = ProcessStatus::from_wait_status(status);
                        true
                    }
                    Ok(None) | Err(Errno::INTR) => false,
                    Err(_) => true,
                };
                let is_left = test_kill_process_group(leader).is_ok();
                if is_left && is_collected {
                    // How many there are cannot be told.
                    felled.strays = 1;
                }
                is_left
            }
            #[cfg(target_os = "linux")]
            Self::Reaper | Self::Namespace => loop {
                match rustix::process::wait(WaitOptions::NOHANG) {
                    Ok(Some((pid, status))) if pid == leader => {
                        felled.status = ProcessStatus::from_wait_status(status)
                    }
                    Ok(Some((_, status))) => {
                        let was_killed = ProcessStatus::from_wait_status(status)
                            == Some(ProcessStatus::Signalled(Signal::KILL.as_raw()));
                        felled.strays += u32::from(was_killed);
                    }
                    Err(Errno::INTR) => {}
                    Ok(None) => return true,
                    Err(_) => return false,
                }
            },
        }
    }
}

impl ProcessStatus {
    /// Returns how a process ended; none when it has only been stopped.
    pub(in crate::exec) fn from_wait_status(status: rustix::process::WaitStatus) -> Option<Self> {
        status
            .exit_status()
            .map(Self::Exited)
            .or_else(|| status.terminating_signal().map(Self::Signalled))
    }
}
