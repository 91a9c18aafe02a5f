//! The levels of confinement, tried from the highest to the lowest.
//!
//! A process may be partly confined after a level has failed. So each level is tried by a new process: the failed one
//! sends [`SupervisorReport::Lower`], and the engine starts the next one with a lower ceiling.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::Stdio;

use rustix::process::{
    Pid, Resource, Signal, geteuid, set_child_subreaper, set_parent_process_death_signal,
};
use serde::{Deserialize, Serialize};

use super::landlock::{self, LandlockRules, TerminalAccess};
use super::mounts::real_paths;
use super::policy::{NetworkAccess, SandboxMode, SandboxPolicy};
use super::seccomp::{self, SocketFilter};
use super::spawner::CommandSpawner;
use super::{Enforcement, SandboxGap, SandboxLevel, mounts, namespaces, privileges};
use crate::exec::command_env::Variable;
use crate::exec::egress;
use crate::exec::package_caches::OverlayFolders;
use crate::exec::protected::snapshot::ProtectedPaths;
use crate::exec::stored_path;
use crate::exec::supervisor::anonymous_file;
use crate::exec::supervisor::helper;
use crate::exec::supervisor::process_tree::ProcessTree;
use crate::exec::supervisor::protocol::{SupervisorLink, SupervisorReport};
use crate::exec::supervisor::supervise::{self, SupervisionRules};
use crate::exec::supervisor::worker::is_shortage;

/// The instructions for the first process of a namespace.
#[derive(Serialize, Deserialize)]
pub(in crate::exec) struct NamespaceSetup {
    policy: SandboxPolicy,
    /// The sockets of other programs; `None` if the list could not be read.
    #[serde(with = "stored_path")]
    sockets: Option<Vec<PathBuf>>,
}

/// Serves the engine at the highest available level.
pub(in crate::exec) fn serve(
    link: SupervisorLink,
    policy: SandboxPolicy,
    ceiling: SandboxLevel,
    why: Option<String>,
) -> io::Result<()> {
    match ceiling {
        SandboxLevel::Namespaces if !policy.is_off() => serve_in_namespaces(link, policy),
        _ => serve_outside_namespaces(&link, &policy, ceiling, why),
    }
}

/// Returns the report for unavailable namespaces.
fn lower(why: &io::Error) -> SupervisorReport {
    match is_shortage(why) {
        true => SupervisorReport::OutOfResources(why.to_string()),
        false => SupervisorReport::Lower(format!("namespaces: {why}")),
    }
}

/// Creates namespaces, and a first process in them that serves the engine.
fn serve_in_namespaces(link: SupervisorLink, policy: SandboxPolicy) -> io::Result<()> {
    let sockets = mounts::named_sockets().ok();
    if let Err(why) = namespaces::enter(policy.network) {
        return link.send(&lower(&why), &[], &[]);
    }
    let inherited = serde_json::to_vec(&NamespaceSetup { policy, sockets })?;
    let again = link.try_clone()?;
    let first = std::process::Command::new("/proc/self/exe")
        .args([helper::ARGUMENT, helper::INIT_ARGUMENT])
        // The setup is not passed as an argument, which every list of processes would show.
        .stdin(anonymous_file(&inherited)?)
        .stdout(link.into_socket())
        .stderr(Stdio::null())
        .spawn();
    match first {
        Ok(mut first) => {
            // Only the new process may keep this end of the connection.
            drop(again);
            let ready = std::fs::File::open("/dev/null")
                .and_then(|null| Ok(rustix::stdio::dup2_stdin(null)?))
                .and_then(|()| helper::forbid_inspection());
            if ready.is_err() {
                let _ = first.kill();
            }
            first.wait().and(ready)
        }
        Err(why) => again.send(&lower(&why), &[], &[]),
    }
}

/// The first process in the namespaces: sets them up, and serves the engine.
pub(in crate::exec) fn run_init(
    link: &SupervisorLink,
    inherited: NamespaceSetup,
) -> io::Result<()> {
    // If the parent ends, no process would collect this one, and it would continue.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let policy = inherited.policy.clone();
    // Existing protected paths are covered by mounts.
    let rules = SupervisionRules::new(&policy, ProcessTree::Namespace, ProtectedPaths::empty());
    let (enforced, spawner, _layers, way_out) = match set_up_namespaces(inherited) {
        Ok(set_up) => set_up,
        Err(why) => return link.send(&lower(&why), &[], &[]),
    };
    if !enforced.is_allowed_by(&policy) {
        let why = enforced.reason.unwrap_or_else(|| "not all of it is available".to_owned());
        return link.send(&SupervisorReport::Lower(format!("namespaces: {why}")), &[], &[]);
    }
    let socket = way_out.as_ref().map(AsFd::as_fd);
    link.send(&SupervisorReport::Ready(enforced), &[], socket.as_slice())?;
    // The proxy must become unreachable when the engine closes its end.
    drop(way_out);
    supervise::serve(link, &rules, |start| spawner.spawn(start))
}

/// Sets up the namespaces. With a list of hosts, returns the socket for the proxy.
fn set_up_namespaces(
    inherited: NamespaceSetup,
) -> io::Result<(Enforcement, CommandSpawner, Option<OverlayFolders>, Option<TcpListener>)> {
    let NamespaceSetup { policy, sockets } = inherited;
    let way_out = match policy.network {
        NetworkAccess::On => None,
        NetworkAccess::Off => namespaces::enable_loopback().map(|()| None)?,
        NetworkAccess::List => {
            namespaces::enable_loopback()?;
            Some(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?)
        }
    };
    limit_pid_namespace(&policy);
    limit_processes(&policy);
    let view = mounts::set_up_mounts(&policy, sockets.as_deref().unwrap_or_default())?;
    let mut env = confinement_variables();
    env.extend(view.env);
    let is_bound = policy.mode != SandboxMode::Off;
    if let Some(way_out) = &way_out {
        env.extend(egress::proxy_variables(way_out.local_addr()?, &policy.allowed_hosts));
    }
    // If a command has replaced a link meanwhile, the replacement is a read-only mount.
    let writable: Vec<PathBuf> =
        view.writable.iter().filter_map(|path| path.canonicalize().ok()).collect();
    let (spawner, layers) = CommandSpawner::new(env, move || {
        restrict_thread(&LandlockRules {
            writable: is_bound.then_some(writable.as_slice()),
            hidden: &[],
            visible: &[],
            terminals: TerminalAccess::Private,
            // The namespace has a network, even if it is only the loopback interface.
            sockets: SocketFilter::Internet,
        })
    })?;
    // Commands with privileges could undo the mounts.
    layers.privileges.as_ref().map_err(|why| io::Error::new(why.kind(), why.to_string()))?;
    privileges::drop_all()?;
    helper::forbid_inspection()?;
    let mut holes = Vec::new();
    // The mounts close the gaps of the access rules, and most of what these rules close. Without the rules, only
    // abstract sockets remain reachable.
    match &layers.access {
        Ok(open) if open.contains(&SandboxGap::LocalSockets) => {
            holes.push(match sockets {
                Some(_) => SandboxGap::LaterSockets,
                // Nothing covers these sockets.
                None => SandboxGap::LocalSockets,
            });
        }
        Ok(_) => {}
        Err(_) => holes.push(SandboxGap::LocalSockets),
    }
    let (missing, why) = layers.gaps();
    holes.extend(missing);
    holes.sort();
    Ok((
        Enforcement { level: SandboxLevel::Namespaces, gaps: holes, reason: why },
        spawner,
        view.layers,
        way_out,
    ))
}

/// The restrictions of a thread that need no namespaces. They are independent of each other: if one fails, the others
/// still apply.
struct Restrictions {
    privileges: io::Result<()>,
    /// The gaps of the access rules.
    access: io::Result<Vec<SandboxGap>>,
    filter: io::Result<()>,
}

impl Restrictions {
    /// Returns the gaps of failed restrictions, and the reason of the failure.
    fn gaps(&self) -> (Vec<SandboxGap>, Option<String>) {
        let failed = [
            ("privileges", self.privileges.as_ref().err(), Some(SandboxGap::Privileges)),
            ("Landlock", self.access.as_ref().err(), None),
            ("the system call filter", self.filter.as_ref().err(), Some(SandboxGap::Calls)),
        ];
        let failed = failed.iter().filter_map(|(what, why, hole)| Some((what, (*why)?, hole)));
        let (whys, holes): (Vec<_>, Vec<_>) =
            failed.map(|(what, why, hole)| (format!("{what}: {why}"), *hole)).unzip();
        let why = (!whys.is_empty()).then(|| whys.join("; "));
        (holes.into_iter().flatten().collect(), why)
    }
}

fn restrict_thread(rules: &LandlockRules<'_>) -> Restrictions {
    let privileges = privileges::drop_all();
    let access = landlock::apply(rules);
    let filter = seccomp::compile_programs(rules.sockets);
    let filter = filter.and_then(|programs| seccomp::apply(&programs));
    Restrictions { privileges, access, filter }
}

/// Serves the engine with access rules and a system call filter alone, if these are available and the ceiling allows
/// them.
fn serve_outside_namespaces(
    link: &SupervisorLink,
    policy: &SandboxPolicy,
    ceiling: SandboxLevel,
    why: Option<String>,
) -> io::Result<()> {
    let rules = SupervisionRules::new(policy, ProcessTree::Reaper, ProtectedPaths::new(policy));
    set_child_subreaper(Pid::from_raw(1))?;
    helper::forbid_inspection()?;
    let set_up = (!policy.is_off() && ceiling >= SandboxLevel::Landlock)
        .then(|| set_up_landlock(policy, why.clone(), rules.protected.can_restore()));
    let (enforced, spawner) = match set_up.transpose() {
        Ok(None) => (Enforcement::unconfined(policy, "it is switched off".to_owned()), None),
        Ok(Some((enforced, spawner))) if enforced.is_allowed_by(policy) => {
            (Ok(enforced), Some(spawner))
        }
        Ok(Some((Enforcement { gaps: holes, reason: why, .. }, _))) => {
            let holes: Vec<String> = holes.iter().map(ToString::to_string).collect();
            let why = why.unwrap_or_else(|| "old access rules".to_owned());
            (Err(format!("{} ({why})", holes.join(", "))), None)
        }
        Err(error) if is_shortage(&error) => {
            return link.send(&SupervisorReport::OutOfResources(error.to_string()), &[], &[]);
        }
        Err(error) => {
            let why = why.into_iter().chain([error.to_string()]).collect::<Vec<_>>().join("; ");
            (Enforcement::unconfined(policy, why), None)
        }
    };
    match enforced {
        Ok(enforced) => link.send(&SupervisorReport::Ready(enforced), &[], &[])?,
        Err(why) => return link.send(&SupervisorReport::Unable(why), &[], &[]),
    }
    supervise::serve(link, &rules, |start| match &spawner {
        Some(spawner) => spawner.spawn(start),
        None => start.spawn(|command| command),
    })
}

fn set_up_landlock(
    policy: &SandboxPolicy,
    why: Option<String>,
    is_put_back: bool,
) -> io::Result<(Enforcement, CommandSpawner)> {
    limit_processes(policy);
    let sockets = match policy.network {
        NetworkAccess::On => SocketFilter::Internet,
        // Without a network namespace, commands could bypass a proxy.
        NetworkAccess::List | NetworkAccess::Off => SocketFilter::Local,
    };
    let caches: Vec<_> = policy.caches.caches.iter().collect();
    let mut env = confinement_variables();
    let writable = match policy.mode {
        SandboxMode::Off => None,
        SandboxMode::ReadOnly => Some(real_paths(std::slice::from_ref(&policy.temp)).collect()),
        SandboxMode::WorkspaceWrite => {
            env.extend(policy.caches.variables(&caches));
            let mut own = vec![policy.temp.clone(), policy.workspace.clone()];
            own.push(PathBuf::from("/dev/shm"));
            own.extend(policy.caches.private_root());
            // A command may have replaced the other roots by links.
            let roots: Vec<PathBuf> = real_paths(&own).chain(policy.writable.clone()).collect();
            Some(roots)
        }
    };
    let hidden: Vec<PathBuf> = real_paths(&policy.hidden).collect();
    let visible = policy.visible.clone();
    let is_inside =
        |path: &PathBuf| writable.iter().flatten().any(|root: &PathBuf| path.starts_with(root));
    let is_hidden_inside = hidden.iter().any(is_inside);
    let is_bound = writable.is_some();
    let (spawner, layers) = CommandSpawner::new(env, move || {
        let (writable, terminals) = (writable.as_deref(), TerminalAccess::User);
        let (hidden, visible) = (&*hidden, &*visible);
        restrict_thread(&LandlockRules { writable, hidden, visible, terminals, sockets })
    })?;
    let (mut holes, missing) = layers.gaps();
    let mut level = SandboxLevel::Landlock;
    match layers.access {
        Ok(open) => holes.extend(open),
        Err(why) => {
            if layers.filter.is_err() && layers.privileges.is_err() {
                return Err(why);
            }
            // The filter still applies.
            level = SandboxLevel::None;
            holes.extend(Enforcement::gaps_without_confinement(policy));
            if layers.filter.is_ok() {
                holes.retain(|hole| *hole != SandboxGap::Network);
            }
        }
    }
    match layers.filter {
        _ if policy.network == NetworkAccess::On => {}
        Ok(()) => holes.retain(|hole| *hole != SandboxGap::LocalSockets),
        // The access rules close TCP only.
        Err(_) => holes.push(SandboxGap::Network),
    }
    if !is_bound {
        holes.retain(|hole| !matches!(hole, SandboxGap::Metadata | SandboxGap::Files));
    } else if !policy.protected.is_empty() {
        holes.retain(|hole| *hole != SandboxGap::Protected);
        let is_exposed = policy.exposed_state().iter().any(|path| path.exists());
        holes.push(if is_put_back && !is_exposed {
            SandboxGap::ProtectedMeanwhile
        } else {
            SandboxGap::Protected
        });
    }
    if is_hidden_inside {
        holes.push(SandboxGap::Hidden);
    }
    holes.sort();
    holes.dedup();
    let why = why.into_iter().chain(missing).collect::<Vec<_>>().join("; ");
    let why = (!why.is_empty()).then_some(why);
    Ok((Enforcement { level, gaps: holes, reason: why }, spawner))
}

/// Limits the process IDs in this namespace, and so the number of processes. Older kernels apply the limit to the whole
/// system; there it is left unchanged.
fn limit_pid_namespace(policy: &SandboxPolicy) {
    const SINCE: [u32; 2] = [6, 14];
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let version: Vec<u32> =
        release.split(['.', '-']).take(2).filter_map(|part| part.parse().ok()).collect();
    if let (Some(most), true) = (policy.limits.processes, version.as_slice() >= &SINCE[..]) {
        let most = most.max(MIN_PID_LIMIT).to_string();
        let _ = std::fs::write("/proc/sys/kernel/pid_max", most);
    }
}

/// Limits the number of processes and threads. The kernel counts those of the user namespace if there is one, otherwise
/// all of the user; it does not count those of root.
fn limit_processes(policy: &SandboxPolicy) {
    let Some(most) = policy.limits.processes else { return };
    let is_own = !geteuid().is_root() && namespaces::is_user_namespace();
    let most = if is_own { most } else { most.saturating_add(count_processes()) };
    helper::lower_limit(Resource::Nproc, Some(most));
}

/// The lowest process ID limit that the kernel accepts.
const MIN_PID_LIMIT: u64 = 301;

/// Returns the number of processes and threads of this user.
fn count_processes() -> u64 {
    use std::os::unix::fs::MetadataExt;

    let own = geteuid().as_raw();
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let own = processes.filter(|entry| entry.metadata().is_ok_and(|about| about.uid() == own));
    let threads = own.filter_map(|entry| std::fs::read_dir(entry.path().join("task")).ok());
    threads.map(|threads| threads.count() as u64).sum()
}

/// Returns variables that adapt programs to the confinement.
fn confinement_variables() -> Vec<Variable> {
    if geteuid().is_root() {
        // As root of the namespace, tar would try to change file owners, and fail.
        vec![("TAR_OPTIONS".into(), "--no-same-owner".into())]
    } else {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn a_shortage_lowers_no_level() {
        for error in [Errno::AGAIN, Errno::NOMEM] {
            assert!(matches!(lower(&error.into()), SupervisorReport::OutOfResources(_)), "{error}");
        }
        for error in [Errno::PERM, Errno::NOSPC, Errno::INVAL] {
            assert!(matches!(lower(&error.into()), SupervisorReport::Lower(_)), "{error}");
        }
    }
}
