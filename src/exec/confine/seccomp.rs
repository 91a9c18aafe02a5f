//! Seccomp: a filter for system calls that commands don't need, or that would bypass the other layers.

use std::collections::BTreeMap;
use std::io;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

/// The sockets that commands can create.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SocketFilter {
    /// Internet and Unix sockets.
    Internet,
    /// Unix sockets that can't reach sockets of other programs.
    Local,
}

/// Calls denied regardless of their arguments.
const DENIED_CALLS: &[i64] = &[
    // Mounts, namespaces, root folders.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    OPEN_TREE_ATTR,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_setns,
    // Access to files without a path.
    libc::SYS_open_by_handle_at,
    // Large kernel interfaces that also bypass this filter.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_fanotify_init,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    // The machine as a whole.
    libc::SYS_kexec_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_syslog,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_vhangup,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_kexec_file_load,
];

/// The bit of calls of the x32 ABI, a second numbering of the same calls.
#[cfg(target_arch = "x86_64")]
const X32_BIT: i64 = 0x4000_0000;

/// The request that inserts input into a terminal.
const TIOCSTI: u64 = 0x5412;
const TIOCLINUX: u64 = 0x541c;

/// Numbers that are the same on every architecture, but missing in `libc` on some.
const FCHMODAT2: i64 = 452;
const OPEN_TREE_ATTR: i64 = 467;

type SyscallRules = BTreeMap<i64, Vec<SeccompRule>>;

/// Returns the programs of the filter, in the order to apply them.
pub(super) fn compile_programs(sockets: SocketFilter) -> io::Result<[BpfProgram; 2]> {
    let mut refused: SyscallRules = DENIED_CALLS.iter().map(|call| (*call, Vec::new())).collect();
    refused.extend(setuid_rules()?);
    if sockets == SocketFilter::Local {
        // Other programs on this machine have network access, and could use it for the command.
        refused.insert(libc::SYS_connect, Vec::new());
        refused.insert(libc::SYS_socketpair, datagram_rules()?);
    }
    // Limits and priorities of other processes; 0 is the calling process.
    let is_other = || condition(0, SeccompCmpOp::Ne, 0);
    let is_set = SeccompCondition::new(2, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, 0);
    let sets = rule(vec![is_other()?, is_set.map_err(io::Error::other)?])?;
    let priority = rule(vec![condition(1, SeccompCmpOp::Ne, 0)?])?;
    let namespaces = NAMESPACE_FLAGS.iter().map(|flag| argument_has_flag(0, *flag));
    let namespaces = namespaces.collect::<io::Result<Vec<_>>>()?;
    refused.extend([
        (libc::SYS_socket, socket_rules(sockets)?),
        (libc::SYS_prlimit64, vec![sets]),
        (libc::SYS_setpriority, vec![priority]),
        (libc::SYS_ioctl, vec![argument_equals(1, TIOCSTI)?, argument_equals(1, TIOCLINUX)?]),
        (libc::SYS_unshare, namespaces.clone()),
        (libc::SYS_clone, namespaces),
    ]);
    // The arguments of `clone3` cannot be filtered; without it, programs use `clone`.
    let unknown = SyscallRules::from([(libc::SYS_clone3, Vec::new())]);
    Ok([compile(refused, libc::EPERM)?, compile(unknown, libc::ENOSYS)?])
}

/// Returns rules against setuid programs: a setuid file created by a command of root would make every user root. Calls
/// with arguments in memory cannot be filtered, but they only create new files.
fn setuid_rules() -> io::Result<SyscallRules> {
    const FLAG: u64 = libc::S_ISUID as u64;
    const CREATES: u64 = libc::O_CREAT as u64;
    let creating = |flags, mode| {
        let both = [(flags, CREATES), (mode, FLAG)];
        let both =
            both.map(|(argument, bit)| condition(argument, SeccompCmpOp::MaskedEq(bit), bit));
        rule(both.into_iter().collect::<Result<_, _>>()?)
    };
    let mut rules = SyscallRules::from([
        (libc::SYS_fchmod, vec![argument_has_flag(1, FLAG)?]),
        (libc::SYS_fchmodat, vec![argument_has_flag(2, FLAG)?]),
        (FCHMODAT2, vec![argument_has_flag(2, FLAG)?]),
        (libc::SYS_openat, vec![creating(2, 3)?]),
        (libc::SYS_mknodat, vec![argument_has_flag(2, FLAG)?]),
    ]);
    #[cfg(target_arch = "x86_64")]
    rules.extend([
        (libc::SYS_chmod, vec![argument_has_flag(1, FLAG)?]),
        (libc::SYS_creat, vec![argument_has_flag(1, FLAG)?]),
        (libc::SYS_mknod, vec![argument_has_flag(1, FLAG)?]),
        (libc::SYS_open, vec![creating(1, 2)?]),
    ]);
    Ok(rules)
}

/// Flags that create namespaces.
const NAMESPACE_FLAGS: [u64; 7] = [
    libc::CLONE_NEWUSER as u64,
    libc::CLONE_NEWNS as u64,
    libc::CLONE_NEWPID as u64,
    libc::CLONE_NEWNET as u64,
    libc::CLONE_NEWIPC as u64,
    libc::CLONE_NEWUTS as u64,
    libc::CLONE_NEWCGROUP as u64,
];

/// Returns rules against all sockets except the allowed ones.
fn socket_rules(sockets: SocketFilter) -> io::Result<Vec<SeccompRule>> {
    let families: &[i32] = match sockets {
        SocketFilter::Internet => &[libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK],
        SocketFilter::Local => &[libc::AF_UNIX, libc::AF_NETLINK],
    };
    let is_none =
        families.iter().map(|family| condition(0, SeccompCmpOp::Ne, family.unsigned_abs().into()));
    let other = rule(is_none.collect::<Result<_, _>>()?)?;
    // The only allowed netlink protocol lists network interfaces.
    let kernel = rule(vec![
        condition(0, SeccompCmpOp::Eq, libc::AF_NETLINK.unsigned_abs().into())?,
        condition(2, SeccompCmpOp::Ne, libc::NETLINK_ROUTE.unsigned_abs().into())?,
    ])?;
    let mut rules = vec![other, kernel];
    if sockets == SocketFilter::Local {
        rules.extend(datagram_rules()?);
    }
    Ok(rules)
}

/// Returns rules against Unix sockets that reach others without connecting, including socket pairs. Raw Unix sockets
/// are such sockets, too.
fn datagram_rules() -> io::Result<Vec<SeccompRule>> {
    // The other bits are flags.
    const TYPES: u64 = 0xf;
    let of_type = |kind: i32| {
        rule(vec![
            condition(0, SeccompCmpOp::Eq, libc::AF_UNIX.unsigned_abs().into())?,
            condition(1, SeccompCmpOp::MaskedEq(TYPES), kind.unsigned_abs().into())?,
        ])
    };
    [libc::SOCK_DGRAM, libc::SOCK_RAW].into_iter().map(of_type).collect()
}

fn argument_equals(argument: u8, value: u64) -> io::Result<SeccompRule> {
    rule(vec![condition(argument, SeccompCmpOp::Eq, value)?])
}

fn argument_has_flag(argument: u8, flag: u64) -> io::Result<SeccompRule> {
    rule(vec![condition(argument, SeccompCmpOp::MaskedEq(flag), flag)?])
}

fn condition(argument: u8, op: SeccompCmpOp, value: u64) -> io::Result<SeccompCondition> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, op, value).map_err(io::Error::other)
}

fn rule(conditions: Vec<SeccompCondition>) -> io::Result<SeccompRule> {
    SeccompRule::new(conditions).map_err(io::Error::other)
}

/// Compiles a filter that denies these calls; a call of another architecture kills the process.
fn compile(rules: SyscallRules, errno: i32) -> io::Result<BpfProgram> {
    #[cfg(target_arch = "x86_64")]
    let rules = {
        let twice = |(call, rules): (i64, Vec<SeccompRule>)| {
            [(call, rules.clone()), (call | X32_BIT, rules)]
        };
        rules.into_iter().flat_map(twice).collect()
    };
    let arch = std::env::consts::ARCH.try_into().map_err(io::Error::other)?;
    SeccompFilter::new(
        rules,
        SeccompAction::Allow,
        SeccompAction::Errno(errno.unsigned_abs()),
        arch,
    )
    .and_then(BpfProgram::try_from)
    .map_err(io::Error::other)
}

/// Applies the filter to this thread and everything that it starts.
pub(super) fn apply(programs: &[BpfProgram]) -> io::Result<()> {
    // The first program still permits the call that adds the second.
    programs
        .iter()
        .try_for_each(|program| seccompiler::apply_filter(program).map_err(io::Error::other))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixDatagram, UnixStream};

    use rustix::net::{AddressFamily, SocketType, socket};

    use super::*;

    /// A datagram reaches a daemon without a connection.
    #[test]
    fn without_a_network_no_unix_socket_sends_datagrams() {
        for sockets in [SocketFilter::Local, SocketFilter::Internet] {
            // The filter applies to the whole thread.
            let thread = std::thread::spawn(move || {
                apply(&compile_programs(sockets).unwrap()).unwrap();
                assert!(UnixStream::pair().is_ok());
                [
                    UnixDatagram::unbound().is_ok(),
                    UnixDatagram::pair().is_ok(),
                    socket(AddressFamily::UNIX, SocketType::RAW, None).is_ok(),
                ]
            });
            assert_eq!(thread.join().unwrap(), [sockets == SocketFilter::Internet; 3]);
        }
    }
}
