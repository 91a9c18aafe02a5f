//! Namespaces: users, processes, mounts, and optionally the network.

use std::fs;
use std::io;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with};
use rustix::process::{getegid, geteuid};
use rustix::thread::UnshareFlags;

use super::policy::NetworkAccess;
use super::privileges;

/// Enters new namespaces. The next child is the first process of the new PID namespace.
///
/// Must be called while the process has a single thread. On failure, nothing has changed.
pub(super) fn enter(network: NetworkAccess) -> io::Result<()> {
    let mut flags = UnshareFlags::NEWPID | UnshareFlags::NEWNS | UnshareFlags::NEWIPC;
    if network != NetworkAccess::On {
        flags |= UnshareFlags::NEWNET;
    }
    if privileges::can_create_namespaces() {
        // In a new user namespace, root could not access files of other users.
        return unshare(flags);
    }
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    unshare(flags | UnshareFlags::NEWUSER)?;
    // IDs stay the same; only those of this user can be mapped.
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
    fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))?;
    privileges::keep_namespace_privileges()
}

/// Returns whether this process is in a user namespace.
pub(super) fn is_user_namespace() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.split_whitespace().nth(2).is_some_and(|count| count == "1")
}

/// Calls a function that is deprecated because of a flag that unshares open files; that flag is never used here.
#[allow(deprecated)]
fn unshare(flags: UnshareFlags) -> io::Result<()> {
    Ok(rustix::thread::unshare(flags)?)
}

/// Enables the loopback interface of a new network namespace.
pub(super) fn enable_loopback() -> io::Result<()> {
    const NEW_LINK: u16 = 16;
    const REQUEST_AND_ACKNOWLEDGE: u16 = 1 | 4;
    const UP: u32 = 1;
    const LOOPBACK: i32 = 1;

    let mut message = Vec::with_capacity(32);
    // Header: length, type, flags, sequence number, sender.
    message.extend(32u32.to_ne_bytes());
    message.extend(NEW_LINK.to_ne_bytes());
    message.extend(REQUEST_AND_ACKNOWLEDGE.to_ne_bytes());
    message.extend([0; 8]);
    // Interface: family, type, index, flags, mask of flags.
    message.extend([0; 4]);
    message.extend(LOOPBACK.to_ne_bytes());
    message.extend(UP.to_ne_bytes());
    message.extend(UP.to_ne_bytes());
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    sendto(&socket, &message, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    // The answer is a header and an error number, zero for success.
    let mut answer = [0; 64];
    let (length, _) = recv(&socket, &mut answer[..], rustix::net::RecvFlags::empty())?;
    match answer.get(16..20).filter(|_| length >= 20).and_then(|bytes| bytes.first_chunk()) {
        Some(error) if i32::from_ne_bytes(*error) == 0 => Ok(()),
        Some(error) => Err(io::Error::from_raw_os_error(-i32::from_ne_bytes(*error))),
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}
