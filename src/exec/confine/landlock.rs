//! Landlock: access rules of a thread and its children for files, sockets and signals.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, LandlockStatus,
    PathBeneath, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError,
    RulesetStatus, Scope, path_beneath_rules,
};
use rustix::fs::{FileType, fstat};

use super::SandboxGap;
use super::mounts::open_without_links;
use super::seccomp::SocketFilter;

/// The newest version of the rules that this program uses.
const KNOWN_ABI: ABI = ABI::V9;

/// Devices without access to hardware.
pub(super) const DEVICES: [&str; 6] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];

/// Terminal devices.
const TERMINALS: [&str; 2] = ["/dev/ptmx", "/dev/pts"];

/// The access to grant.
pub(super) struct LandlockRules<'a> {
    /// Writable paths without links in them; `None` for all paths.
    pub writable: Option<&'a [PathBuf]>,
    /// Unreadable paths.
    pub hidden: &'a [PathBuf],
    /// Readable folders within hidden ones.
    pub visible: &'a [PathBuf],
    /// The visible terminals.
    pub terminals: TerminalAccess,
    /// The sockets that commands can create; TCP connections need those of the internet.
    pub sockets: SocketFilter,
}

/// The visible terminals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TerminalAccess {
    /// Private terminals.
    Private,
    /// The terminals of the user, which commands may not read.
    User,
}

/// Applies the rules to this thread. Returns the gaps that the kernel's version of them leaves.
///
/// # Errors
///
/// Fails when the kernel has no Landlock, or cannot apply the rules.
pub(super) fn apply(rules: &LandlockRules<'_>) -> io::Result<Vec<SandboxGap>> {
    let status =
        build_ruleset(rules).and_then(RulesetCreated::restrict_self).map_err(io::Error::other)?;
    // The library reports success even without support in the kernel.
    let abi = match (status.ruleset, status.landlock) {
        (RulesetStatus::NotEnforced, LandlockStatus::NotEnabled) => {
            return Err(io::Error::other("Landlock is not enabled in this kernel"));
        }
        (RulesetStatus::NotEnforced, _) => {
            return Err(io::Error::other("this kernel has no Landlock"));
        }
        (_, LandlockStatus::Available { effective_abi, .. }) => effective_abi,
        _ => ABI::V1,
    };
    Ok(gaps(abi))
}

/// Returns whether the kernel has Landlock.
pub(super) fn is_available() -> bool {
    let ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    let ruleset = ruleset.handle_access(AccessFs::from_all(ABI::V1));
    ruleset.and_then(Ruleset::create).is_ok()
}

/// Returns the gaps that a version of the rules leaves.
fn gaps(abi: ABI) -> Vec<SandboxGap> {
    // Before the third version, files elsewhere can be truncated.
    let closed_since = [
        (ABI::V3, SandboxGap::Files),
        (ABI::V6, SandboxGap::Signals),
        (ABI::V9, SandboxGap::LocalSockets),
    ];
    let open = closed_since.into_iter().filter(|(since, _)| abi < *since).map(|(_, gap)| gap);
    [SandboxGap::Metadata].into_iter().chain(open).collect()
}

fn build_ruleset(rules: &LandlockRules<'_>) -> Result<RulesetCreated, RulesetError> {
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .scope(Scope::from_all(KNOWN_ABI))?;
    if rules.sockets == SocketFilter::Local {
        ruleset = ruleset.handle_access(AccessNet::from_all(KNOWN_ABI))?;
    }
    let Some(writable) = rules.writable else { return ruleset.create() };
    let all = AccessFs::from_all(KNOWN_ABI);
    let read = AccessFs::from_read(KNOWN_ABI);
    // Commands cannot create devices; root could otherwise.
    let write = all & !(AccessFs::MakeChar | AccessFs::MakeBlock);
    let terminals = match rules.terminals {
        TerminalAccess::Private => &TERMINALS[..],
        TerminalAccess::User => &[],
    };
    let device = AccessFs::ReadFile
        | AccessFs::WriteFile
        | AccessFs::Truncate
        | AccessFs::ReadDir
        | AccessFs::IoctlDev;
    ruleset
        .handle_access(all)?
        .create()?
        // All folders can be listed. Devices are not readable: reading a disk reads every file on it.
        .add_rules(path_beneath_rules(["/"], AccessFs::ReadDir))?
        .add_rules(path_beneath_rules(readable_paths(rules), read))?
        .add_rules(path_beneath_rules(DEVICES, device))?
        .add_rules(path_beneath_rules(terminals, device))?
        .add_rules(writable_rules(writable, write))
}

/// Returns the rules for writable paths without links: a command may have replaced a folder by a link.
fn writable_rules(
    paths: &[PathBuf],
    access: BitFlags<AccessFs>,
) -> impl Iterator<Item = Result<PathBeneath<OwnedFd>, RulesetError>> {
    let of_files = AccessFs::from_file(KNOWN_ABI);
    paths.iter().filter_map(move |path| {
        let place = open_without_links(path).ok()?;
        let kind = FileType::from_raw_mode(fstat(&place).ok()?.st_mode);
        let access = if kind == FileType::Directory { access } else { access & of_files };
        Some(Ok(PathBeneath::new(place, access)))
    })
}

/// Returns the readable paths: everything except devices and hidden paths. A folder that contains hidden paths is
/// replaced by its current entries.
fn readable_paths(rules: &LandlockRules<'_>) -> Vec<PathBuf> {
    let entries = fs::read_dir("/").into_iter().flatten().flatten().map(|entry| entry.path());
    let entries = entries.filter(|path| path != Path::new("/dev"));
    let mut found = Vec::new();
    for path in entries.chain(rules.visible.iter().cloned()) {
        add_readable(path, rules.hidden, &mut found);
    }
    found
}

fn add_readable(path: PathBuf, hidden: &[PathBuf], found: &mut Vec<PathBuf>) {
    if hidden.contains(&path) {
        return;
    }
    // A link would grant access to its target, which is checked under its own path.
    if path.is_symlink() {
        return;
    }
    if !hidden.iter().any(|hidden| hidden.starts_with(&path)) {
        found.push(path);
        return;
    }
    for entry in fs::read_dir(&path).into_iter().flatten().flatten() {
        add_readable(entry.path(), hidden, found);
    }
}
