//! Namespaces of their own: users, processes, mounts, and where wanted the network.

use std::fs;
use std::io;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with};
use rustix::process::{getegid, geteuid};
use rustix::thread::UnshareFlags;

use super::policy::NetworkAccess;
use super::privileges;

/// Enters new namespaces. The next process that this one starts is the first in the new one of processes.
///
/// To be called while there is one thread. When it fails, nothing has changed.
pub(super) fn enter(network: NetworkAccess) -> io::Result<()> {
    let mut flags = UnshareFlags::NEWPID | UnshareFlags::NEWNS | UnshareFlags::NEWIPC;
    if network != NetworkAccess::On {
        flags |= UnshareFlags::NEWNET;
    }
    if privileges::can_create_namespaces() {
        // With a new one of users, root could not see any other user's files.
        return unshare(flags);
    }
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    unshare(flags | UnshareFlags::NEWUSER)?;
    // Every number stays what it is; only this one can be mapped.
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
    fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))?;
    privileges::keep_namespace_privileges()
}

/// Returns whether users are counted in a namespace of our own.
pub(super) fn is_user_namespace() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.split_whitespace().nth(2).is_some_and(|count| count == "1")
}

/// The library has deprecated this for the sake of one flag, which unshares open files and is never used here.
#[allow(deprecated)]
fn unshare(flags: UnshareFlags) -> io::Result<()> {
    Ok(rustix::thread::unshare(flags)?)
}

/// Turns on the one network interface that a new network has, by which the machine reaches itself.
pub(super) fn enable_loopback() -> io::Result<()> {
    const NEW_LINK: u16 = 16;
    const REQUEST_AND_ACKNOWLEDGE: u16 = 1 | 4;
    const UP: u32 = 1;
    const LOOPBACK: i32 = 1;

    let mut message = Vec::with_capacity(32);
    // A header: length, type, flags, sequence number, sender.
    message.extend(32u32.to_ne_bytes());
    message.extend(NEW_LINK.to_ne_bytes());
    message.extend(REQUEST_AND_ACKNOWLEDGE.to_ne_bytes());
    message.extend([0; 8]);
    // An interface: family, type, index, flags, which flags.
    message.extend([0; 4]);
    message.extend(LOOPBACK.to_ne_bytes());
    message.extend(UP.to_ne_bytes());
    message.extend(UP.to_ne_bytes());
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    sendto(&socket, &message, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    // The answer is a header and a number: zero, or what went wrong.
    let mut answer = [0; 64];
    let (length, _) = recv(&socket, &mut answer[..], rustix::net::RecvFlags::empty())?;
    match answer.get(16..20).filter(|_| length >= 20).and_then(|bytes| bytes.first_chunk()) {
        Some(error) if i32::from_ne_bytes(*error) == 0 => Ok(()),
        Some(error) => Err(io::Error::from_raw_os_error(-i32::from_ne_bytes(*error))),
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}
