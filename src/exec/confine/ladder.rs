//! The ladder of levels, from the top down.
//!
//! A process that has tried a level and failed may be half-way into it, so each level is tried by a process of its own:
//! it says [`Tell::Lower`], and the engine starts the next one with a lower ceiling.

use std::ffi::OsString;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::Stdio;

use rustix::process::{
    Pid, Resource, Signal, geteuid, set_child_subreaper, set_parent_process_death_signal,
};
use serde::{Deserialize, Serialize};

use super::access::{self, Rules, Tcp, Terminals};
use super::filter::{self, Sockets};
use super::spawner::Spawner;
use super::{Enforced, Hole, Level, mounts, namespaces, privileges};
use crate::exec::absent::Absent;
use crate::exec::caches::Layers;
use crate::exec::egress;
use crate::exec::helper;
use crate::exec::nameless;
use crate::exec::policy::{Mode, Network, Policy};
use crate::exec::snapshot::Protected;
use crate::exec::supervise::{self, Start};
use crate::exec::tree::Tree;
use crate::exec::wire::{Link, Tell};
use crate::exec::worker::is_shortage;

/// What the first process of a namespace is told by the one that made it.
#[derive(Serialize, Deserialize)]
pub(in crate::exec) struct Inherited {
    policy: Policy,
    sockets: Vec<PathBuf>,
}

/// Serves the engine at the highest level that can be had.
pub(in crate::exec) fn serve(
    link: Link,
    policy: Policy,
    ceiling: Level,
    why: Option<String>,
) -> io::Result<()> {
    if policy.is_off() {
        set_child_subreaper(Pid::from_raw(1))?;
        helper::keep_to_ourselves()?;
        link.send(&Tell::Ready(Enforced::nothing()), &[], &[])?;
        let (absent, protected) = (Absent::default(), Protected::nothing());
        return supervise::serve(
            &link,
            Tree::Reaper,
            &absent,
            &protected,
            policy.limits.memory,
            Start::spawn,
        );
    }
    match ceiling {
        Level::Namespaces => namespaced(link, policy),
        Level::Landlock => landlocked(&link, &policy, why),
        Level::None | Level::Seatbelt => unconfined(&link, &policy),
    }
}

/// Confines nothing, where nothing more may be tried.
fn unconfined(link: &Link, policy: &Policy) -> io::Result<()> {
    let (absent, protected) = (Absent::of(policy), Protected::of(policy));
    match Enforced::unconfined(policy, "it is switched off".to_owned()) {
        Ok(enforced) => link.send(&Tell::Ready(enforced), &[], &[])?,
        Err(why) => return link.send(&Tell::Unable(why), &[], &[]),
    }
    set_child_subreaper(Pid::from_raw(1))?;
    helper::keep_to_ourselves()?;
    supervise::serve(link, Tree::Reaper, &absent, &protected, policy.limits.memory, Start::spawn)
}

/// Returns what the engine is told of namespaces that could not be had.
fn lower(why: &io::Error) -> Tell {
    match is_shortage(why) {
        true => Tell::NoRoom(why.to_string()),
        false => Tell::Lower(format!("namespaces: {why}")),
    }
}

/// Makes namespaces, and a first process in them, which serves.
fn namespaced(link: Link, policy: Policy) -> io::Result<()> {
    let sockets = mounts::sockets();
    if let Err(why) = namespaces::enter(policy.network) {
        return link.send(&lower(&why), &[], &[]);
    }
    let inherited = serde_json::to_vec(&Inherited { policy, sockets })?;
    let again = link.again()?;
    let first = std::process::Command::new("/proc/self/exe")
        .args([helper::ARGUMENT, helper::FIRST])
        // Not as an argument: every command that lists processes would show it.
        .stdin(nameless::filled(&inherited)?)
        .stdout(link.into_socket())
        .stderr(Stdio::null())
        .spawn();
    match first {
        Ok(mut first) => {
            // Its end of the connection is the one that counts.
            drop(again);
            rustix::stdio::dup2_stdin(std::fs::File::open("/dev/null")?)?;
            helper::keep_to_ourselves()?;
            first.wait().map(|_| ())
        }
        Err(why) => again.send(&lower(&why), &[], &[]),
    }
}

/// The first process in namespaces: arranges them, and serves.
pub(in crate::exec) fn first_process(link: &Link, inherited: Inherited) -> io::Result<()> {
    // With its parent gone nobody would collect it, and it would go on.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let absent = Absent::of(&inherited.policy);
    let policy = inherited.policy.clone();
    match arranged(inherited) {
        Ok((enforced, spawner, layers, way_out)) => {
            if !enforced.is_allowed_by(&policy) {
                let why = enforced.why.unwrap_or_else(|| "not all of it can be had".to_owned());
                return link.send(&Tell::Lower(format!("namespaces: {why}")), &[], &[]);
            }
            link.send(&Tell::Ready(enforced), &[], way_out.as_ref().map(AsFd::as_fd).as_slice())?;
            // With the engine's end closed, nothing may seem to listen.
            drop(way_out);
            let nothing = Protected::nothing();
            let start = |start| spawner.spawn(start);
            let served = supervise::serve(
                link,
                Tree::Namespace,
                &absent,
                &nothing,
                policy.limits.memory,
                start,
            );
            drop(layers);
            served
        }
        Err(why) => link.send(&lower(&why), &[], &[]),
    }
}

/// Arranges the namespaces. With a list of hosts, the socket is returned to which the proxy listens.
fn arranged(
    inherited: Inherited,
) -> io::Result<(Enforced, Spawner, Option<Layers>, Option<TcpListener>)> {
    let Inherited { policy, sockets } = inherited;
    let way_out = match policy.network {
        Network::On => None,
        Network::Off => namespaces::loopback_up().map(|()| None)?,
        Network::List => {
            namespaces::loopback_up()?;
            Some(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?)
        }
    };
    limit_numbers(&policy);
    limit_processes(&policy);
    let view = mounts::arrange(&policy, &sockets)?;
    let mut env = environment();
    env.extend(view.env);
    let is_bound = policy.mode != Mode::Off;
    if let Some(way_out) = &way_out {
        env.extend(egress::environment(way_out.local_addr()?, &policy.allowed_hosts));
    }
    let writable = view.writable;
    let (spawner, layers) = Spawner::new(env, move || {
        Ok(take_on(
            // There is a network to be had, if only the machine itself.
            Sockets::Internet,
            &Rules {
                writable: is_bound.then_some(writable.as_slice()),
                hidden: &[],
                terminals: Terminals::Private,
                tcp: Tcp::Free,
            },
        ))
    })?;
    // Commands that keep them could undo the mounts.
    layers.privileges.as_ref().map_err(|why| io::Error::new(why.kind(), why.to_string()))?;
    privileges::give_up()?;
    helper::keep_to_ourselves()?;
    let mut holes = Vec::new();
    // The mounts close what the rules leave open, and most of what they close; without them, the sockets that have no
    // path are left.
    match &layers.access {
        Ok(open) if open.contains(&Hole::LocalSockets) => holes.push(Hole::LaterSockets),
        Ok(_) => {}
        Err(_) => holes.push(Hole::LocalSockets),
    }
    let (missing, why) = layers.missing();
    holes.extend(missing);
    holes.sort();
    Ok((Enforced { level: Level::Namespaces, holes, why }, spawner, view.layers, way_out))
}

/// What a thread has taken on of what does not need namespaces; each for itself, so that one that fails takes no other
/// one along.
struct TakenOn {
    privileges: io::Result<()>,
    /// What the rules leave open.
    access: io::Result<Vec<Hole>>,
    filter: io::Result<()>,
}

impl TakenOn {
    /// Returns the holes that are left by what failed, and why it did.
    fn missing(&self) -> (Vec<Hole>, Option<String>) {
        let failed = [
            ("privileges", self.privileges.as_ref().err(), Some(Hole::Privileges)),
            ("Landlock", self.access.as_ref().err(), None),
            ("the system call filter", self.filter.as_ref().err(), Some(Hole::Calls)),
        ];
        let failed = failed.iter().filter_map(|(what, why, hole)| Some((what, (*why)?, hole)));
        let (whys, holes): (Vec<_>, Vec<_>) =
            failed.map(|(what, why, hole)| (format!("{what}: {why}"), *hole)).unzip();
        let why = (!whys.is_empty()).then(|| whys.join("; "));
        (holes.into_iter().flatten().collect(), why)
    }
}

fn take_on(sockets: Sockets, rules: &Rules<'_>) -> TakenOn {
    let privileges = privileges::give_up();
    let access = access::apply(rules);
    let filter = filter::programs(sockets).and_then(|programs| filter::apply(&programs));
    TakenOn { privileges, access, filter }
}

/// Confines with access rules and a filter alone, as far as there are any.
fn landlocked(link: &Link, policy: &Policy, why: Option<String>) -> io::Result<()> {
    let absent = Absent::of(policy);
    let protected = Protected::of(policy);
    set_child_subreaper(Pid::from_raw(1))?;
    helper::keep_to_ourselves()?;
    limit_processes(policy);
    let (enforced, spawner) = match ruled(policy, why.clone(), protected.is_feasible()) {
        Ok((enforced, spawner)) if enforced.is_allowed_by(policy) => (Ok(enforced), Some(spawner)),
        Ok((Enforced { holes, why, .. }, _)) => {
            let holes: Vec<String> = holes.iter().map(ToString::to_string).collect();
            let why = why.unwrap_or_else(|| "old access rules".to_owned());
            (Err(format!("{} ({why})", holes.join(", "))), None)
        }
        Err(error) if is_shortage(&error) => {
            return link.send(&Tell::NoRoom(error.to_string()), &[], &[]);
        }
        Err(error) => {
            let why = why.into_iter().chain([error.to_string()]).collect::<Vec<_>>().join("; ");
            (Enforced::unconfined(policy, why), None)
        }
    };
    match enforced {
        Ok(enforced) => link.send(&Tell::Ready(enforced), &[], &[])?,
        Err(why) => return link.send(&Tell::Unable(why), &[], &[]),
    }
    match spawner {
        Some(spawner) => supervise::serve(
            link,
            Tree::Reaper,
            &absent,
            &protected,
            policy.limits.memory,
            |start| spawner.spawn(start),
        ),
        None => supervise::serve(
            link,
            Tree::Reaper,
            &absent,
            &protected,
            policy.limits.memory,
            Start::spawn,
        ),
    }
}

fn ruled(
    policy: &Policy,
    why: Option<String>,
    is_put_back: bool,
) -> io::Result<(Enforced, Spawner)> {
    let (sockets, tcp) = match policy.network {
        Network::On => (Sockets::Internet, Tcp::Free),
        // Without a network of their own there is no proxy that they could not go around.
        Network::List | Network::Off => (Sockets::Local, Tcp::None),
    };
    let caches: Vec<_> = policy.caches.list.iter().collect();
    let mut env = environment();
    let writable = match policy.mode {
        Mode::Off => None,
        Mode::ReadOnly => Some(vec![policy.temp.clone()]),
        Mode::WorkspaceWrite => {
            env.extend(policy.caches.variables(&caches));
            let own = [policy.workspace.clone(), policy.temp.clone(), PathBuf::from("/dev/shm")];
            let private = policy.caches.all_private();
            Some(own.into_iter().chain(policy.writable.iter().cloned()).chain(private).collect())
        }
    };
    let hidden: Vec<PathBuf> =
        policy.hidden.iter().filter_map(|path| path.canonicalize().ok()).collect();
    let is_inside =
        |path: &PathBuf| writable.iter().flatten().any(|root: &PathBuf| path.starts_with(root));
    let is_hidden_inside = hidden.iter().any(is_inside);
    let is_bound = writable.is_some();
    let (spawner, layers) = Spawner::new(env, move || {
        let terminals = Terminals::OfTheUser;
        let rules = Rules { writable: writable.as_deref(), hidden: &hidden, terminals, tcp };
        Ok(take_on(sockets, &rules))
    })?;
    let (mut holes, missing) = layers.missing();
    let mut level = Level::Landlock;
    match layers.access {
        Ok(open) => holes.extend(open),
        Err(why) => {
            if layers.filter.is_err() && layers.privileges.is_err() {
                return Err(why);
            }
            // What the filter refuses is refused still.
            level = Level::None;
            holes.extend(Enforced::holes_of_nothing(policy));
            if layers.filter.is_ok() {
                holes.retain(|hole| *hole != Hole::Network);
            }
        }
    }
    if policy.network != Network::On && layers.filter.is_err() {
        // The rules close TCP alone.
        holes.push(Hole::Network);
    }
    if layers.filter.is_ok() && policy.network != Network::On {
        holes.retain(|hole| *hole != Hole::LocalSockets);
    }
    if !is_bound {
        holes.retain(|hole| !matches!(hole, Hole::Metadata | Hole::Files));
    } else if !policy.protected.is_empty() {
        holes.retain(|hole| *hole != Hole::Protected);
        holes.push(if is_put_back { Hole::ProtectedMeanwhile } else { Hole::Protected });
    }
    if is_hidden_inside {
        holes.push(Hole::Hidden);
    }
    holes.sort();
    holes.dedup();
    let why = why.into_iter().chain(missing).collect::<Vec<_>>().join("; ");
    let why = (!why.is_empty()).then_some(why);
    Ok((Enforced { level, holes, why }, spawner))
}

/// Limits the numbers of processes in our namespace of them, and with that how many there are. In older kernels the
/// limit is that of the whole system, and is left alone.
fn limit_numbers(policy: &Policy) {
    const SINCE: [u32; 2] = [6, 14];
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let version: Vec<u32> =
        release.split(['.', '-']).take(2).filter_map(|part| part.parse().ok()).collect();
    if let (Some(most), true) = (policy.limits.processes, version.as_slice() >= &SINCE[..]) {
        let most = most.max(LEAST_NUMBERS).to_string();
        let _ = std::fs::write("/proc/sys/kernel/pid_max", most);
    }
}

/// Limits how many processes and threads there are. The kernel counts those of a namespace of users, and otherwise all
/// of the user; root it does not count.
fn limit_processes(policy: &Policy) {
    let Some(most) = policy.limits.processes else { return };
    let is_own = !geteuid().is_root() && namespaces::is_user_namespace();
    let most = if is_own { most } else { most.saturating_add(counted_processes()) };
    helper::lower(Resource::Nproc, Some(most));
}

/// The kernel takes no lower limit for the numbers of processes.
const LEAST_NUMBERS: u64 = 301;

/// Returns how many processes and threads this user has.
fn counted_processes() -> u64 {
    use std::os::unix::fs::MetadataExt;

    let own = geteuid().as_raw();
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let own = processes.filter(|entry| entry.metadata().is_ok_and(|about| about.uid() == own));
    let threads = own.filter_map(|entry| std::fs::read_dir(entry.path().join("task")).ok());
    threads.map(|threads| threads.count() as u64).sum()
}

/// What commands need to know of how they are confined.
fn environment() -> Vec<(OsString, OsString)> {
    if geteuid().is_root() {
        // It takes itself for somebody who can give files away, and fails.
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
    fn a_shortage_says_nothing_about_what_the_system_can_do() {
        for error in [Errno::AGAIN, Errno::NOMEM] {
            assert!(matches!(lower(&error.into()), Tell::NoRoom(_)), "{error}");
        }
        for error in [Errno::PERM, Errno::NOSPC, Errno::INVAL] {
            assert!(matches!(lower(&error.into()), Tell::Lower(_)), "{error}");
        }
    }
}
