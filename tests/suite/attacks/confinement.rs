//! Attacks on the confinement of commands, hooks and servers.
