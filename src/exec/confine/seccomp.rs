//! The filter of system calls: what no command needs, and what would lead around the other walls.

use std::collections::BTreeMap;
use std::io;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

/// Which sockets can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SocketFilter {
    /// Those of the internet, and those of this machine.
    Internet,
    /// Those of this machine, and none of another program by its name.
    Local,
}

/// Calls that are refused whatever their arguments are.
const DENIED_CALLS: &[i64] = &[
    // Other mounts, other namespaces, other roots.
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
    // Ways to files that are not paths.
    libc::SYS_open_by_handle_at,
    // Large surfaces of the kernel, and another way to make every other call.
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

/// A second set of numbers for the same calls, which the processor's mode doesn't tell apart.
#[cfg(target_arch = "x86_64")]
const X32_BIT: i64 = 0x4000_0000;

/// Types something into a terminal as if its user had.
const TIOCSTI: u64 = 0x5412;
const TIOCLINUX: u64 = 0x541c;

/// These have the same numbers on every system; the library doesn't name them on all of them.
const FCHMODAT2: i64 = 452;
const OPEN_TREE_ATTR: i64 = 467;

type SyscallRules = BTreeMap<i64, Vec<SeccompRule>>;

/// Returns the programs of the filter, in the order in which they are to be applied.
pub(super) fn compile_programs(sockets: SocketFilter) -> io::Result<[BpfProgram; 2]> {
    let mut refused: SyscallRules = DENIED_CALLS.iter().map(|call| (*call, Vec::new())).collect();
    refused.insert(libc::SYS_socket, socket_rules(sockets)?);
    refused.extend(setuid_rules()?);
    if sockets == SocketFilter::Local {
        // Other programs on this machine have the network, and do much for whoever reaches them.
        refused.insert(libc::SYS_connect, Vec::new());
    }
    // Limits and priorities of other processes; those of this one are named by 0.
    let is_other = || condition(0, SeccompCmpOp::Ne, 0);
    let is_set = SeccompCondition::new(2, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, 0);
    let sets = rule(vec![is_other()?, is_set.map_err(io::Error::other)?])?;
    refused.insert(libc::SYS_prlimit64, vec![sets]);
    let priority = rule(vec![condition(1, SeccompCmpOp::Ne, 0)?])?;
    refused.insert(libc::SYS_setpriority, vec![priority]);
    refused.insert(
        libc::SYS_ioctl,
        vec![argument_equals(1, TIOCSTI)?, argument_equals(1, TIOCLINUX)?],
    );
    for call in [libc::SYS_unshare, libc::SYS_clone] {
        refused.insert(
            call,
            NAMESPACE_FLAGS
                .iter()
                .map(|flag| argument_has_flag(0, *flag))
                .collect::<Result<_, _>>()?,
        );
    }
    // What the newer call is asked for cannot be seen; without it, everybody uses the older one.
    let unknown = SyscallRules::from([(libc::SYS_clone3, Vec::new())]);
    Ok([compile(refused, libc::EPERM)?, compile(unknown, libc::ENOSYS)?])
}

/// Returns the rules that refuse programs which run as their owner: one that root's command makes would make everybody
/// root. A call that has its arguments in memory cannot be seen through; it makes new files only.
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

/// The flags that ask for namespaces.
const NAMESPACE_FLAGS: [u64; 7] = [
    libc::CLONE_NEWUSER as u64,
    libc::CLONE_NEWNS as u64,
    libc::CLONE_NEWPID as u64,
    libc::CLONE_NEWNET as u64,
    libc::CLONE_NEWIPC as u64,
    libc::CLONE_NEWUTS as u64,
    libc::CLONE_NEWCGROUP as u64,
];

/// Returns the rules that refuse every socket but those allowed.
fn socket_rules(sockets: SocketFilter) -> io::Result<Vec<SeccompRule>> {
    let families: &[i32] = match sockets {
        SocketFilter::Internet => &[libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK],
        SocketFilter::Local => &[libc::AF_UNIX, libc::AF_NETLINK],
    };
    let is_none =
        families.iter().map(|family| condition(0, SeccompCmpOp::Ne, family.unsigned_abs().into()));
    let other = rule(is_none.collect::<Result<_, _>>()?)?;
    // Of the kernel's own, only the one that tells the addresses of this machine.
    let kernel = rule(vec![
        condition(0, SeccompCmpOp::Eq, libc::AF_NETLINK.unsigned_abs().into())?,
        condition(2, SeccompCmpOp::Ne, libc::NETLINK_ROUTE.unsigned_abs().into())?,
    ])?;
    Ok(vec![other, kernel])
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

/// Compiles a filter that refuses these calls; a call of another architecture ends the process.
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

/// Applies the filter to this thread, and to everything that it starts.
pub(super) fn apply(programs: &[BpfProgram]) -> io::Result<()> {
    // Once the first one holds, the second one can still be added: the call for it is not refused.
    programs
        .iter()
        .try_for_each(|program| seccompiler::apply_filter(program).map_err(io::Error::other))
}
