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

use rustix::process::{Pid, Signal, geteuid, set_child_subreaper, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};

use super::access::{self, Rules, Tcp};
use super::filter::{self, Sockets};
use super::spawner::Spawner;
use super::{Enforced, Hole, Level, mounts, namespaces, privileges};
use crate::exec::absent::Absent;
use crate::exec::egress;
use crate::exec::helper;
use crate::exec::nameless;
use crate::exec::policy::{Mode, Network, Policy};
use crate::exec::supervise::{self, Start};
use crate::exec::tree::Tree;
use crate::exec::wire::{Link, Tell};

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
        return supervise::serve(&link, Tree::Reaper, &Absent::default(), Start::spawn);
    }
    match ceiling {
        Level::Namespaces => namespaced(link, policy),
        Level::Landlock => landlocked(&link, &policy, why),
        Level::None | Level::Seatbelt => unconfined(&link, &policy),
    }
}

/// Confines nothing, where nothing more may be tried.
fn unconfined(link: &Link, policy: &Policy) -> io::Result<()> {
    let absent = Absent::of(policy);
    match Enforced::unconfined(policy, "it is switched off".to_owned()) {
        Ok(enforced) => link.send(&Tell::Ready(enforced), &[], &[])?,
        Err(why) => return link.send(&Tell::Unable(why), &[], &[]),
    }
    set_child_subreaper(Pid::from_raw(1))?;
    helper::keep_to_ourselves()?;
    supervise::serve(link, Tree::Reaper, &absent, Start::spawn)
}

/// Makes namespaces, and a first process in them, which serves.
fn namespaced(link: Link, policy: Policy) -> io::Result<()> {
    let sockets = mounts::sockets();
    let lower = |why: io::Error| Tell::Lower(format!("namespaces: {why}"));
    if let Err(why) = namespaces::enter(policy.network) {
        return link.send(&lower(why), &[], &[]);
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
        Err(why) => again.send(&lower(why), &[], &[]),
    }
}

/// The first process in namespaces: arranges them, and serves.
pub(in crate::exec) fn first_process(link: &Link, inherited: Inherited) -> io::Result<()> {
    // With its parent gone nobody would collect it, and it would go on.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let absent = Absent::of(&inherited.policy);
    match arranged(inherited) {
        Ok((enforced, spawner, way_out)) => {
            link.send(&Tell::Ready(enforced), &[], way_out.as_ref().map(AsFd::as_fd).as_slice())?;
            // With the engine's end closed, nobody may seem to listen.
            drop(way_out);
            supervise::serve(link, Tree::Namespace, &absent, |start| spawner.spawn(start))
        }
        Err(why) => link.send(&Tell::Lower(format!("namespaces: {why}")), &[], &[]),
    }
}

/// Arranges the namespaces. With a list of hosts, the socket is returned to which the proxy listens.
fn arranged(inherited: Inherited) -> io::Result<(Enforced, Spawner, Option<TcpListener>)> {
    let Inherited { policy, sockets } = inherited;
    let way_out = match policy.network {
        Network::On => None,
        Network::Off => namespaces::loopback_up().map(|()| None)?,
        Network::List => {
            namespaces::loopback_up()?;
            Some(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?)
        }
    };
    let view = mounts::arrange(&policy, &sockets)?;
    // There is a network to be had, if only the machine itself.
    let filter = filter::programs(Sockets::Internet)?;
    let mut env = environment();
    env.extend(["TMPDIR", "TMP", "TEMP"].map(|name| (name.into(), view.temp.clone().into())));
    let is_bound = policy.mode != Mode::Off;
    if let Some(way_out) = &way_out {
        env.extend(egress::environment(way_out.local_addr()?, &policy.allowed_hosts));
    }
    let (spawner, access) = Spawner::new(env, move || {
        privileges::give_up()?;
        let writable = is_bound.then_some(view.writable.as_slice());
        let access = access::apply(&Rules { writable, tcp: Tcp::Free });
        filter::apply(&filter)?;
        Ok(access)
    })?;
    privileges::give_up()?;
    helper::keep_to_ourselves()?;
    // The mounts close what the rules leave open, and most of what they close; without them, the sockets that have no
    // path are left.
    let (holes, why) = match access {
        Ok(open) if open.contains(&Hole::LocalSockets) => (vec![Hole::LaterSockets], None),
        Ok(_) => (Vec::new(), None),
        Err(why) => (vec![Hole::LocalSockets], Some(why.to_string())),
    };
    Ok((Enforced { level: Level::Namespaces, holes, why }, spawner, way_out))
}

/// Confines with access rules and a filter alone; without them, not at all.
fn landlocked(link: &Link, policy: &Policy, why: Option<String>) -> io::Result<()> {
    let absent = Absent::of(policy);
    set_child_subreaper(Pid::from_raw(1))?;
    helper::keep_to_ourselves()?;
    let (enforced, spawner) = match ruled(policy, why.clone()) {
        Ok((enforced, spawner)) if enforced.satisfies(policy) => (Ok(enforced), Some(spawner)),
        Ok((enforced, spawner)) => match Enforced::unconfined(policy, "old access rules".into()) {
            // Better than nothing, and said.
            Ok(_) => (Ok(enforced), Some(spawner)),
            Err(why) => (Err(why), None),
        },
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
        Some(spawner) => {
            supervise::serve(link, Tree::Reaper, &absent, |start| spawner.spawn(start))
        }
        None => supervise::serve(link, Tree::Reaper, &absent, Start::spawn),
    }
}

fn ruled(policy: &Policy, why: Option<String>) -> io::Result<(Enforced, Spawner)> {
    let (sockets, tcp) = match policy.network {
        Network::On => (Sockets::Internet, Tcp::Free),
        // Without a network of their own there is no proxy that they could not go around.
        Network::List | Network::Off => (Sockets::Local, Tcp::None),
    };
    let filter = filter::programs(sockets)?;
    let writable = match policy.mode {
        Mode::Off => None,
        Mode::ReadOnly => Some(vec![policy.temp.clone()]),
        Mode::WorkspaceWrite => {
            let own = [policy.workspace.clone(), policy.temp.clone(), PathBuf::from("/dev/shm")];
            Some(own.into_iter().chain(policy.writable.iter().cloned()).collect())
        }
    };
    let (spawner, mut holes) = Spawner::new(environment(), move || {
        privileges::give_up()?;
        let holes = access::apply(&Rules { writable: writable.as_deref(), tcp })?;
        filter::apply(&filter)?;
        Ok(holes)
    })?;
    if policy.mode == Mode::Off {
        holes.retain(|hole| !matches!(hole, Hole::Metadata | Hole::Files));
    }
    for (paths, hole) in [(&policy.protected, Hole::Protected), (&policy.hidden, Hole::Hidden)] {
        if !paths.is_empty() {
            holes.push(hole);
        }
    }
    holes.sort();
    Ok((Enforced { level: Level::Landlock, holes, why }, spawner))
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
