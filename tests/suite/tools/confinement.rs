//! Rights of a confined command: each row of the matrix, at each level.

#![allow(clippy::print_stdout, clippy::print_stderr)] // what a failed test shows

use std::fs;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use architect::exec::{
    NetworkAccess, SandboxGap, SandboxLevel, SandboxMode, SandboxPolicy, SandboxRequirement,
    Supervisor,
};
use architect::port::CancellationToken;
use rustix::net::{AddressFamily, Protocol, SocketType, socket};
use serde_json::json;

use super::confined_workspace::ConfinedWorkspace;
use super::fixture::{ToolFixture, yolo_settings};
use crate::kit::system::folder_outside_temp;

/// Not a test by itself: the attempts of a confined process, as `MARKER_FILES` says.
#[test]
#[ignore = "started by the other tests inside a cage"]
fn inside() {
    let what = std::env::var("INSIDE").unwrap();
    let (what, argument) = what.split_once(' ').unwrap();
    let address = || argument.parse::<std::net::SocketAddr>().unwrap();
    let udp = |own: &str| {
        let socket = UdpSocket::bind(own)?;
        socket.send_to(b"x", address()).map(|_| ())
    };
    let make = |family, kind, protocol: u32| {
        let protocol = std::num::NonZeroU32::new(protocol).map(Protocol::from_raw);
        socket(AddressFamily::from_raw(family), kind, protocol).map(|_| ()).map_err(Into::into)
    };
    let done: std::io::Result<()> = match what {
        "tcp" => TcpStream::connect_timeout(&address(), Duration::from_secs(2)).map(|_| ()),
        "bind" => TcpListener::bind(address()).map(|_| ()),
        "udp" => udp("0.0.0.0:0"),
        "udp6" => udp("[::]:0"),
        "unix" => UnixStream::connect(argument).map(|_| ()),
        "abstract" => {
            let address = SocketAddr::from_abstract_name(argument).unwrap();
            UnixStream::connect_addr(&address).map(|_| ())
        }
        "packet" => make(17, SocketType::RAW, 0),
        "vsock" => make(40, SocketType::STREAM, 0),
        "audit" => make(16, SocketType::RAW, 9),
        "helper" => {
            // The command uses the helper as an engine does, and asks it to confine nothing.
            let helper = Supervisor::with_program(
                env!("CARGO_BIN_EXE_architect"),
                SandboxPolicy::off("."),
                Vec::new(),
            );
            let line = format!("echo x > {argument}");
            let words = ["/bin/sh", "-c", &line].map(Into::into).to_vec();
            let outcome = helper
                .run(&architect::exec::CommandSpec::new(words, "."), &CancellationToken::new());
            assert!(!Path::new(argument).exists(), "{outcome:?}");
            Ok(())
        }
        "loopback" => TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| TcpStream::connect(listener.local_addr()?).map(|_| ())),
        other => panic!("{other}"),
    };
    done.unwrap();
}

/// Fault X1, files: a command writes in its workspace and nowhere else.
fn files_outside_cannot_be_changed(cage: &ConfinedWorkspace) {
    let o = cage.outside.display().to_string();
    assert!(cage.succeeds("touch a && mkdir d && mv a d/b && ln d/b c && ln -s c e && rm -r d"));
    assert!(cage.succeeds("f=$(mktemp) && echo x > $f && rm $f"));
    // Other tests may do the same at this moment, if the folder is not private.
    let own = format!("/dev/shm/architect-test-{}-{}", std::process::id(), cage.enforced.level);
    let own = own.replace(' ', "-");
    assert!(
        cage.succeeds(&format!(
            "echo x > /dev/null && head -c 4 /dev/urandom > r && echo x > {own}"
        ))
    );
    assert!(cage.succeeds(&format!("cat {o}/file")), "reading is free");
    for denied in [
        format!("echo x > {o}/new"),
        format!("echo x >> {o}/file"),
        format!("truncate -s 0 {o}/file"),
        format!("rm {o}/file"),
        format!("mkdir {o}/d"),
        format!("mv {o}/file stolen"),
        format!("touch own && mv own {o}/own"),
        format!("ln {o}/file linked && echo x >> linked"),
        format!("ln -s {o} way && echo x > way/new"),
        format!("ln -s {o}/file to && echo x >> to"),
        format!("exec 3< {o}; echo x > /proc/self/fd/3/new"),
        format!("cd {o} && touch here"),
        "echo x > /proc/self/comm".to_owned(),
        "mknod dev b 1 1".to_owned(),
        "dd if=/dev/vda of=disk count=1 2>/dev/null || dd if=/dev/sda of=disk count=1".to_owned(),
    ] {
        assert!(!cage.succeeds(&denied), "{denied}");
    }
    assert_eq!(fs::read_to_string(cage.outside.join("file")).unwrap(), "secret\n");
    assert_eq!(fs::read_dir(&cage.outside).unwrap().count(), 1);
    assert!(!Path::new(&own).exists() || cage.enforced.level == SandboxLevel::Landlock);
    let _ = fs::remove_file(&own);
}

/// Fault X1, the rest of the system.
fn the_engine_and_the_system_cannot_be_touched(cage: &ConfinedWorkspace) {
    let engine = std::process::id();
    for denied in [
        format!("kill -0 {engine}"),
        "kill -9 $PPID; sleep 0.2; kill -0 $PPID && false".to_owned(),
        format!("cat /proc/{engine}/environ"),
        format!("head -c 1 /proc/{engine}/mem"),
        format!("ls -l /proc/{engine}/fd/"),
        "unshare -Ur true".to_owned(),
        "unshare -n true".to_owned(),
        "mount -t tmpfs x /mnt".to_owned(),
        "chroot / true".to_owned(),
        "sudo -n true".to_owned(),
        "su -c true nobody".to_owned(),
    ] {
        assert!(!cage.succeeds(&denied), "{denied}");
    }
    for denied in ["packet -", "vsock -", "audit -"] {
        assert!(!cage.can_do(denied), "{denied}");
    }
    let status = cage.run("grep -E 'CapEff|CapBnd|NoNewPrivs|Seccomp:' /proc/self/status");
    assert!(status.contains("CapEff:\t0000000000000000"), "{status}");
    assert!(status.contains("NoNewPrivs:\t1") && status.contains("Seccomp:\t2"), "{status}");
    assert!(cage.succeeds("true"), "the supervisor is still there");
}

#[test]
fn with_namespaces_nothing_is_left_open() {
    let Some(cage) = ConfinedWorkspace::new(SandboxLevel::Namespaces, |_| {}) else { return };
    let later = [SandboxGap::LaterSockets];
    assert!(cage.enforced.gaps.is_empty() || cage.enforced.gaps == later, "{:?}", cage.enforced);
    files_outside_cannot_be_changed(&cage);
    the_engine_and_the_system_cannot_be_touched(&cage);
    let o = cage.outside.display().to_string();
    let listener = UnixListener::bind(cage.outside.join("socket")).unwrap();
    // This cage was made before the socket existed; a new one knows the socket.
    drop(cage);
    drop(listener);
    let Some(cage) = ConfinedWorkspace::new(SandboxLevel::Namespaces, |policy| {
        let mut init = Command::new("git");
        init.args(["init", "-q", "."]).current_dir(&policy.workspace);
        assert!(init.status().unwrap().success());
        let outside = policy.workspace.parent().unwrap().join("outside");
        std::mem::forget(UnixListener::bind(outside.join("socket")).unwrap());
    }) else {
        return;
    };
    assert_ne!(o, cage.outside.display().to_string());
    let o = cage.outside.display();
    for denied in [
        format!("chmod 777 {o}/file"),
        format!("touch -d yesterday {o}/file"),
        "echo x > .git/hooks/pre-commit".to_owned(),
        "mv .git/hooks .git/other".to_owned(),
        "echo x > .architect/config.toml".to_owned(),
        "cat ../state/journal".to_owned(),
        "echo x >> ../state/journal".to_owned(),
    ] {
        assert!(!cage.succeeds(&denied), "{denied}");
    }
    assert!(!cage.can_do(&format!("unix {o}/socket")));
    assert!(
        !cage.succeeds(
            "ls /proc | grep -x 1000000 || ls /proc | grep -cE '^[0-9]+$' | grep -E '...'"
        )
    );
    assert!(cage.succeeds("git config user.email a@b && git config user.name a"));
    assert!(cage.succeeds("touch new && git status && git add -A && git commit -qm x"));
}

#[test]
fn with_access_rules_alone_the_holes_are_named() {
    let Some(cage) = ConfinedWorkspace::new(SandboxLevel::Landlock, |_| {}) else { return };
    for hole in [SandboxGap::Metadata, SandboxGap::ProtectedMeanwhile] {
        assert!(cage.enforced.gaps.contains(&hole), "{:?}", cage.enforced);
    }
    assert!(
        !cage.succeeds("cat ../state/journal"),
        "what is hidden outside the workspace is not read"
    );
    files_outside_cannot_be_changed(&cage);
    if !cage.enforced.gaps.contains(&SandboxGap::Signals) {
        the_engine_and_the_system_cannot_be_touched(&cage);
    }
}

/// Fault X10: nothing leaves when the network is off. With namespaces the machine still reaches itself.
#[test]
fn without_a_network_nothing_leaves() {
    for level in [SandboxLevel::Namespaces, SandboxLevel::Landlock] {
        let Some(cage) =
            ConfinedWorkspace::new(level, |policy| policy.network = NetworkAccess::Off)
        else {
            continue;
        };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let there = listener.local_addr().unwrap();
        let name = format!("architect-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let _abstract = UnixListener::bind_addr(&address);
        let named = cage.outside.join("socket");
        let _named = UnixListener::bind(&named).unwrap();
        for denied in [
            format!("tcp {there}"),
            "tcp 192.0.2.1:80".to_owned(),
            "udp 192.0.2.1:53".to_owned(),
            "tcp [2001:db8::1]:443".to_owned(),
            "udp6 [2001:db8::1]:53".to_owned(),
            format!("abstract {name}"),
        ] {
            assert!(!cage.can_do(&denied), "{level}: {denied}");
        }
        for denied in [
            format!("echo > /dev/tcp/127.0.0.1/{}", there.port()),
            "getent hosts example.org".to_owned(),
            format!("curl -s -m 3 http://{there}/"),
            "ping -c 1 -W 1 192.0.2.1".to_owned(),
            format!("git ls-remote git://{there}/x"),
        ] {
            assert!(!cage.succeeds(&denied), "{level}: {denied}");
        }
        assert_eq!(cage.can_do("loopback -"), level == SandboxLevel::Namespaces);
        // With namespaces, only the sockets are covered that existed when the cage was made.
        if level == SandboxLevel::Landlock {
            assert!(!cage.can_do(&format!("unix {}", named.display())));
        }
        let output = cage.run("curl -s -m 3 http://192.0.2.1/; cat < /dev/tcp/192.0.2.1/80");
        assert!(output.contains("sandbox denied: the network is off"), "{output}");
    }
}

#[test]
fn with_a_network_the_machine_can_be_reached() {
    let Some(cage) = ConfinedWorkspace::new(SandboxLevel::Namespaces, |_| {}) else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    assert!(cage.can_do(&format!("tcp {}", listener.local_addr().unwrap())));
    assert!(cage.can_do("loopback -"));
}

#[test]
fn a_read_only_workspace_is_not_written() {
    for level in [SandboxLevel::Namespaces, SandboxLevel::Landlock] {
        let Some(cage) =
            ConfinedWorkspace::new(level, |policy| policy.mode = SandboxMode::ReadOnly)
        else {
            continue;
        };
        assert!(!cage.succeeds("touch a"), "{level}");
        assert!(cage.succeeds("f=$(mktemp) && echo x > $f && cat $f && ls"), "{level}");
    }
}

/// Outside the usual folder for temporary files, that folder is a private one.
#[test]
fn temporary_files_are_private() {
    let Some(base) = folder_outside_temp() else { return };
    let Some(cage) = ConfinedWorkspace::new(SandboxLevel::Namespaces, |policy| {
        policy.workspace = base.path().join("w");
        fs::create_dir(&policy.workspace).unwrap();
        policy.protected.clear();
    }) else {
        return;
    };
    assert!(cage.succeeds("cd /tmp && echo x > architect-own && mktemp && test $TMPDIR = /tmp"));
    assert!(!Path::new("/tmp/architect-own").exists());
    assert!(
        cage.succeeds("cat /tmp/architect-own"),
        "one command finds what another one left there"
    );
}

/// Fault X2: if a required level is unsupported, nothing starts; if a preferred one is, the result gives the reason for
/// the lower level.
#[test]
fn an_unsupported_level_is_refused_or_reported() {
    let world = ToolFixture::with(yolo_settings(), |policy| {
        policy.mode = SandboxMode::WorkspaceWrite;
        policy.need = SandboxRequirement::Required;
        policy.ceiling = SandboxLevel::None;
    });
    assert!(world.supervisor.enforcement().is_err());
    let output = world.err("run_command", &json!({"command": "touch x"}));
    assert!(output.contains("commands cannot be confined here as required"), "{output}");
    assert!(!world.path.join("x").exists());
    let world = ToolFixture::with(yolo_settings(), |policy| {
        policy.mode = SandboxMode::WorkspaceWrite;
        policy.ceiling = SandboxLevel::None;
    });
    let enforced = world.supervisor.enforcement().unwrap();
    assert_eq!(enforced.level, SandboxLevel::None);
    assert!(
        enforced.reason.is_some() && enforced.gaps.contains(&SandboxGap::Files),
        "{enforced:?}"
    );
}

/// Fault T14.
#[test]
fn a_denial_says_that_it_is_one_and_how_to_allow_it() {
    let Some(cage) = ConfinedWorkspace::new(SandboxLevel::Namespaces, |_| {}) else { return };
    let output = cage.run(&format!("touch {}/x", cage.outside.display()));
    assert!(output.contains("sandbox denied: writing outside the workspace"), "{output}");
    assert!(output.contains("sandbox.writable"), "{output}");
    let own = cage.run("mkdir locked && chmod 555 locked && mkdir locked/x");
    assert!(!own.contains("sandbox denied"), "{own}");
}

/// Fault X15: a command that asks the helper for all rights gets those that it had.
#[test]
fn the_helper_grants_no_rights_to_a_command() {
    for level in [SandboxLevel::Namespaces, SandboxLevel::Landlock] {
        let Some(cage) = ConfinedWorkspace::new(level, |_| {}) else { continue };
        let outside = cage.outside.join("new");
        assert!(cage.can_do(&format!("helper {}", outside.display())));
        assert!(!outside.exists(), "{level}");
        assert!(cage.succeeds("true"));
    }
}

/// Fault T18: a command that kills whatever it can kills itself at the most.
#[test]
fn a_command_that_kills_everything_kills_itself_alone() {
    for level in [SandboxLevel::Namespaces, SandboxLevel::Landlock] {
        let Some(cage) = ConfinedWorkspace::new(level, |_| {}) else { continue };
        if cage.enforced.gaps.contains(&SandboxGap::Signals) {
            continue;
        }
        let mut bystander = Command::new("sleep").arg("60").spawn().unwrap();
        for line in
            ["kill -9 -1", "kill -9 0", "kill -9 $PPID", "kill -9 1", "kill -STOP -1; kill -9 $$"]
        {
            cage.run(line);
            assert_eq!(cage.run("echo on"), "on\n[exit code 0]", "{level}: {line}");
        }
        assert!(bystander.try_wait().unwrap().is_none(), "{level}");
        bystander.kill().unwrap();
        bystander.wait().unwrap();
    }
}

/// Fault X15: a process gains nothing by starting the helper.
#[test]
fn the_helper_does_nothing_for_other_processes() {
    for argument in [&["__exec"][..], &["__exec", "first"], &["__exec", "first", "{}"]] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_architect"))
            .args(argument)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdin.take());
        assert!(!child.wait_with_output().unwrap().status.success());
    }
}
