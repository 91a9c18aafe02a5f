//! Attacks on a network that is a list of hosts.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use architect::exec::{HostPattern, NetworkAccess, SandboxLevel, SandboxPolicy};

use crate::kit::system::wait_until;
use crate::tools::confined_workspace::ConfinedWorkspace;

/// A web server on this machine that counts who reached it.
struct TestHost {
    port: u16,
    reached: Arc<AtomicUsize>,
}

impl TestHost {
    fn new(address: &str) -> Option<Self> {
        let listener = TcpListener::bind(address).ok()?;
        let port = listener.local_addr().unwrap().port();
        let reached = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&reached);
        thread::spawn(move || {
            for stream in listener.incoming().take(100) {
                let Ok(mut stream) = stream else { return };
                counted.fetch_add(1, Ordering::SeqCst);
                let _ = stream.read(&mut [0; 4096]);
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
            }
        });
        Some(Self { port, reached })
    }

    fn reached(&self) -> usize {
        self.reached.load(Ordering::SeqCst)
    }
}

fn listed(hosts: &[&str]) -> impl FnOnce(&mut SandboxPolicy) {
    let hosts = hosts.iter().map(|host| HostPattern::parse(host).unwrap()).collect();
    move |policy| {
        policy.network = NetworkAccess::List;
        policy.allowed_hosts = hosts;
    }
}

#[test]
fn a_listed_host_is_reached_through_the_proxy() {
    let site = TestHost::new("127.0.0.1:0").unwrap();
    let Some(cage) = ConfinedWorkspace::new(SandboxLevel::Namespaces, listed(&["localhost"]))
    else {
        return;
    };
    let output = cage.run(&format!("curl -sS http://localhost:{}/", site.port));
    assert!(output.contains("hello") && !output.contains("sandbox denied"), "{output}");
    assert_eq!(site.reached(), 1);
}

#[test]
fn nothing_else_is_reached() {
    let sites = [TestHost::new("127.0.0.1:0"), TestHost::new("[::1]:0")];
    let hosts = ["*.example.org", "packages.example.com"];
    let Some(cage) = ConfinedWorkspace::new(SandboxLevel::Namespaces, listed(&hosts)) else {
        return;
    };
    for site in sites.iter().flatten() {
        let port = site.port;
        for command in [
            format!("NO_PROXY= no_proxy= curl -sS http://localhost:{port}/"),
            format!("NO_PROXY= no_proxy= curl -sS http://127.0.0.1:{port}/"),
            format!("NO_PROXY= no_proxy= curl -sS http://[::1]:{port}/"),
            format!("NO_PROXY= no_proxy= curl -sS http://127.1:{port}/ --proxytunnel"),
            format!("NO_PROXY= no_proxy= curl -sSk https://localhost:{port}/"),
            format!("curl -sS --noproxy '*' http://127.0.0.1:{port}/"),
            format!("curl -sS --noproxy '*' http://[::1]:{port}/"),
            format!("echo GET / > /dev/tcp/127.0.0.1/{port}"),
            format!("echo GET / > /dev/udp/127.0.0.1/{port}"),
            format!(
                "curl -sS -H 'Host: packages.example.com' -x $HTTP_PROXY http://2130706433:{port}/"
            ),
            format!("curl -sS --socks5-hostname ${{HTTP_PROXY#http://}} http://localhost:{port}/"),
            format!(
                "printf 'CONNECT localhost:{port} HTTP/1.1\\r\\n\\r\\n' | curl -sS -m 3 telnet://${{HTTP_PROXY#http://}}"
            ),
            format!("unshare -Urn curl -sS --noproxy '*' http://127.0.0.1:{port}/"),
            format!("nsenter -t 1 -n curl -sS --noproxy '*' http://127.0.0.1:{port}/"),
        ] {
            let output =
                cage.run(&format!("timeout 5 bash -c \"{}\"", command.replace('"', "\\\"")));
            assert_eq!(site.reached(), 0, "{command}: {output}");
        }
    }
    let output = cage.run("curl -sS https://other.example/; curl -sS http://10.0.0.1/");
    let expected = "sandbox denied: other.example:443 is not in sandbox.allowed_hosts, 10.0.0.1:80 is an address";
    assert!(output.contains(expected), "{output}");
    // The next command does not repeat it.
    assert!(!cage.run("true").contains("sandbox denied"));
}

#[test]
fn there_is_no_resolver_but_the_proxy() {
    let Some(cage) = ConfinedWorkspace::new(SandboxLevel::Namespaces, listed(&["localhost"]))
    else {
        return;
    };
    for command in ["getent ahosts example.org", "curl -sS --noproxy '*' -m 5 http://example.org/"]
    {
        assert!(!cage.succeeds(command), "{command}");
    }
}

/// Connections to a server that never answers are closed when the command that opened them has ended.
#[test]
fn what_a_command_leaves_open_is_closed_with_it() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let site = TestHost::new("127.0.0.1:0").unwrap();
    let Some(cage) = ConfinedWorkspace::new(SandboxLevel::Namespaces, listed(&["localhost"]))
    else {
        return;
    };
    let (closed_sender, closed) = std::sync::mpsc::channel();
    let all_connected = cage.world.path.join("connected");
    thread::spawn(move || {
        let taken: Vec<_> = silent.incoming().take(20).flatten().collect();
        std::fs::write(all_connected, "").unwrap();
        for mut stream in taken {
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            let _ = closed_sender.send(stream.read_to_end(&mut Vec::new()).is_ok());
        }
    });
    cage.run(&format!(
        "for i in $(seq 20); do curl -sS -m 60 http://localhost:{port}/ & done; \
         until test -e connected; do sleep 0.05; done; exit"
    ));
    assert!((0..20).all(|_| closed.recv_timeout(Duration::from_secs(30)) == Ok(true)));
    assert!(cage.run(&format!("curl -sS http://localhost:{}/", site.port)).contains("hello"));
}

/// After any flood of requests, the proxy continues, and reports little to the model.
#[test]
fn a_flood_ends_with_its_command() {
    let site = TestHost::new("127.0.0.1:0").unwrap();
    let Some(cage) = ConfinedWorkspace::new(SandboxLevel::Namespaces, listed(&["localhost"]))
    else {
        return;
    };
    let address = "${HTTP_PROXY#http://}";
    for command in [
        format!(
            "python3 -c 'import socket, sys; a = sys.argv[1].split(\":\"); s = [socket.create_connection(a) for _ in range(1500)]' {address}"
        ),
        format!(
            "long=$(head -c 60000 /dev/zero | tr '\\0' x); for i in 1 2 3; do printf \"CONNECT $i$long:443 HTTP/1.1\\r\\n\\r\\n\" | curl -sS -m 3 telnet://{address} >/dev/null; done"
        ),
        format!(
            "for i in 1 2 3; do printf 'GET http://localhost:{port}/ HTTP/1.1\\r\\nHost: a' > /dev/tcp/127.0.0.1/${{HTTP_PROXY##*:}} & done",
            port = site.port
        ),
    ] {
        let output = cage.run(&command);
        assert!(output.len() < 4_000, "{command}: {}", output.len());
        let after = cage.run(&format!("curl -sS http://localhost:{}/", site.port));
        assert!(after.contains("hello"), "{command}: {after}");
    }
}

/// Without namespaces, commands could bypass the proxy, so there is no network either.
#[test]
fn a_lower_level_has_no_network() {
    let site = TestHost::new("127.0.0.1:0").unwrap();
    let Some(cage) = ConfinedWorkspace::new(SandboxLevel::Landlock, listed(&["localhost"])) else {
        return;
    };
    assert!(!cage.enforced.satisfies(cage.world.supervisor.policy()));
    assert!(!cage.succeeds(&format!("curl -sS --noproxy '*' http://127.0.0.1:{}/", site.port)));
    assert_eq!(site.reached(), 0);
}

/// A bus starts programs for its callers, outside of every confinement.
#[test]
fn a_real_bus_of_a_session_is_not_reached() {
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let socket = folder.path().join("bus");
    let address = format!("unix:path={}", socket.display());
    let daemon = ["--session", "--nofork", "--nopidfile", &format!("--address={address}")];
    let Ok(mut bus) = Command::new("dbus-daemon").args(daemon).spawn() else {
        return eprintln!("skipped: there is no dbus-daemon");
    };
    wait_until("the bus listens", || socket.exists());
    let ask = format!(
        "timeout 5 dbus-send --bus={address} --print-reply --dest=org.freedesktop.DBus / org.freedesktop.DBus.GetId"
    );
    let answers = Command::new("sh").args(["-c", &ask]).output().unwrap().status.success();
    let reached = [
        (SandboxLevel::Namespaces, NetworkAccess::On),
        (SandboxLevel::Namespaces, NetworkAccess::Off),
        (SandboxLevel::Landlock, NetworkAccess::Off),
    ]
    .map(|(level, network)| {
        let cage = ConfinedWorkspace::new(level, |policy| policy.network = network);
        cage.is_some_and(|cage| cage.succeeds(&ask))
    });
    bus.kill().unwrap();
    bus.wait().unwrap();
    assert!(answers, "the bus works outside");
    assert_eq!(reached, [false; 3]);
}
