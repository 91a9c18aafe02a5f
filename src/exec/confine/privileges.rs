//! Privileges: none is kept.

use std::io;

use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    configure_capability_in_ambient_set, remove_capability_from_bounding_set, set_capabilities,
    set_no_new_privs,
};

/// What setting up namespaces takes.
const FOR_NAMESPACES: CapabilitySet =
    CapabilitySet::SYS_ADMIN.union(CapabilitySet::NET_ADMIN).union(CapabilitySet::SETPCAP);

/// What the kernel does in the name of whoever mounted private folders over others: it copies files, with owners and
/// permissions, by way of a folder that is closed to everyone.
const FOR_OVERLAYS: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID);

/// Gives up every privilege of this thread, and the way to any.
pub(super) fn drop_all() -> io::Result<()> {
    match clear_ambient_capability_set() {
        Ok(()) | Err(Errno::INVAL) => {}
        Err(error) => return Err(error.into()),
    }
    for bit in 0..64 {
        match remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << bit)) {
            Ok(()) => {}
            // There are no more of them; or we may not, and then we have none to hand on either.
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
        Err(io::Error::other("privileges could not be given up"))
    }
}

/// Keeps what setting up namespaces takes across the start of a program.
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

/// Returns whether this process may make namespaces as it is.
pub(super) fn can_create_namespaces() -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(FOR_NAMESPACES))
}
