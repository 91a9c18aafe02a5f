//! Dropping privileges.

use std::io;

use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    configure_capability_in_ambient_set, remove_capability_from_bounding_set, set_capabilities,
    set_no_new_privs,
};

/// The capabilities for creating namespaces.
const FOR_NAMESPACES: CapabilitySet =
    CapabilitySet::SYS_ADMIN.union(CapabilitySet::NET_ADMIN).union(CapabilitySet::SETPCAP);

/// The capabilities of the process that mounts an overlay. The kernel uses them to copy files with owners and
/// permissions, through a folder without permissions.
const FOR_OVERLAYS: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID);

/// Drops all privileges of this thread, and the ability to regain them.
pub(super) fn drop_all() -> io::Result<()> {
    match clear_ambient_capability_set() {
        Ok(()) | Err(Errno::INVAL) => {}
        Err(error) => return Err(error.into()),
    }
    for bit in 0..64 {
        match remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << bit)) {
            Ok(()) => {}
            // The end of the list, or not permitted: then there is no privilege to pass on.
            Err(Errno::INVAL | Errno::PERM) => break,
            Err(error) => return Err(error.into()),
        }
    }
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    set_no_new_privs(true)?;
    if capabilities(None)?.effective.is_empty() {
        Ok(())
    } else {
        Err(io::Error::other("privileges could not be dropped"))
    }
}

/// Keeps the capabilities for namespaces across exec.
pub(super) fn keep_namespace_privileges() -> io::Result<()> {
    let mut sets = capabilities(None)?;
    let kept = FOR_NAMESPACES | FOR_OVERLAYS & sets.permitted;
    sets.inheritable |= kept & sets.permitted;
    set_capabilities(None, sets)?;
    for bit in kept.iter() {
        configure_capability_in_ambient_set(bit, true)?;
    }
    Ok(())
}

/// Returns whether this process can create namespaces as it is.
pub(super) fn can_create_namespaces() -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(FOR_NAMESPACES))
}
