//! Attacks on the confinement of commands, hooks and servers.
//!
//! Each row is a line for a shell, and the hole by which it would succeed. It is run at each level that this system has.
//! A row that succeeds at a level that does not name its hole is a defect of that level.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Program, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use architect::exec::{
    CommandEnd, CommandOutcome, CommandSpec, Enforcement, NetworkAccess, PackageCaches, SandboxGap,
    SandboxLevel, SandboxMode, SandboxPolicy, Supervisor, VariableFilter, clean_environment,
};
use architect::port::CancellationToken;
use tempfile::TempDir;

use crate::tools::confined_workspace::ConfinedWorkspace;

/// The hidden content, which must not occur in an output.
const SECRET: &str = "CANARY-SECRET";

/// The output of a successful attack that leaves nothing behind.
const BREACH: &str = "BREACH";

/// Writing outside of the workspace.
const OUTSIDE_FILES: &[&str] = &[
    "echo x > $OUT/new",
    "echo x >> $OUT/file",
    ": > $OUT/file",
    "truncate -s 0 $OUT/file",
    "rm -f $OUT/file",
    "rm -rf $OUT",
    "mkdir $OUT/d",
    "mv $OUT/file stolen",
    "cp a $OUT/copy",
    "touch own && mv own $OUT/own",
    "ln a $OUT/hard",
    "ln -s /etc/passwd $OUT/link",
    "ln $OUT/file linked; echo x >> linked",
    "ln -s $OUT way; echo x > way/new",
    "ln -s $OUT/file to; echo x >> to",
    "exec 3< $OUT; echo x > /proc/self/fd/3/new",
    "exec 3< $OUT/file; echo x > /proc/self/fd/3",
    "cd $OUT && touch here",
    "cd .. && echo x > outside/new",
    "(cd / && echo x > ${OUT#/}/new)",
    "echo x > /proc/self/root$OUT/new",
    "echo x > /proc/self/cwd/../outside/new",
    "echo x > /proc/$$/root$OUT/new",
    "mkfifo $OUT/pipe",
    "dd if=/dev/zero of=$OUT/zero bs=1 count=1",
    "tar cf - a | tar xf - -C $OUT",
    "install a $OUT/installed",
    "sed -i s/x/y/ $OUT/file",
    "perl -e 'open F, \">\", \"$ENV{OUT}/perl\"; print F 1'",
    "python3 -c 'import os; os.mkdir(os.environ[\"OUT\"] + \"/python\")'",
    "git init -q $OUT/repository",
    "GIT_DIR=$OUT/dir git init -q --bare",
    "bash -c 'bash -c \"echo x > $OUT/deep\"'",
    "setsid sh -c 'echo x > $OUT/late'; sleep 0.1",
    "(echo x > $OUT/background &) ; sleep 0.1",
    "trap 'echo x > $OUT/trap' EXIT; exit 1",
    "echo x > ../w2",
    "mv $PWD ../moved",
    "rmdir .. ; rm -rf ../outside",
    "rename 's/file/other/' $OUT/file || mv $OUT/file $OUT/other",
    "find $OUT -type f -delete",
    "xargs -a a -I{} cp a $OUT/xargs",
    "awk 'BEGIN { print 1 > ENVIRON[\"OUT\"] \"/awk\" }'",
    "cat a | tee $OUT/tee",
    "split -b 1 a $OUT/split",
    "TMPDIR=$OUT mktemp",
    "fallocate -l 10 $OUT/file",
    "cp --reflink=auto a $OUT/reflink",
];

/// Attacks on files in the home that the user's shell, tools and package managers run or obey later.
const HOME_FILES: &[&str] = &[
    "echo evil >> $HOME/.bashrc",
    "echo evil >> $HOME/.profile",
    "echo evil > $HOME/.gitconfig",
    "mkdir -p $HOME/.config/git && echo evil > $HOME/.config/git/config",
    "mkdir -p $HOME/.config/systemd/user && echo evil > $HOME/.config/systemd/user/x.service",
    "mkdir -p $HOME/.config/autostart && echo evil > $HOME/.config/autostart/x.desktop",
    "mkdir -p $HOME/.local/bin && echo evil > $HOME/.local/bin/ls",
    "echo evil > $HOME/.cargo/bin/tool",
    "echo evil > $HOME/.cargo/config.toml",
    "echo evil >> $HOME/.cargo/registry/src/lib.rs",
    "rm -rf $HOME/.cargo/registry",
    "mv $HOME/.cargo $HOME/.old",
    "mv $HOME/.cargo/bin $HOME/.cargo/old; mkdir $HOME/.cargo/bin; echo evil > $HOME/.cargo/bin/tool",
    "ln -sf /bin/true $HOME/.cargo/bin/tool",
    "echo evil > ${CARGO_HOME:-$HOME/.cargo}/bin/tool",
    "echo evil > $HOME/.rustup/toolchains/stable/bin/rustc",
    "echo evil >> $HOME/.cache/starship/init.bash",
    "echo evil > $HOME/.npm/_npx/x",
    "mkdir -p $HOME/.gradle && echo evil > $HOME/.gradle/init.gradle",
    "mkdir -p $HOME/.m2 && echo evil > $HOME/.m2/settings.xml",
    "mkdir -p $HOME/.local/share/pnpm && echo evil > $HOME/.local/share/pnpm/pnpm",
    "mkdir -p $HOME/go/bin && echo evil > $HOME/go/bin/gopls",
    "echo evil > $HOME/.npmrc",
    "mkdir -p $HOME/.vim && echo evil > $HOME/.vim/vimrc",
    "echo evil | crontab - && crontab -r && echo BREACH",
    "echo evil > $STATE/trusted",
];

/// Attacks on files that the user hides.
const HIDDEN: &[&str] = &[
    "cat $HOME/.ssh/id",
    "cat < $HOME/.ssh/id",
    "head -c 100 $HOME/.netrc",
    "cat $HOME/.cargo/credentials.toml",
    "cat ${CARGO_HOME:-$HOME/.cargo}/credentials.toml",
    "cat /proc/self/root$HOME/.ssh/id",
    "cat $HOME/../home/.ssh/id",
    "ln -s $HOME/.ssh keys; cat keys/id",
    "ln $HOME/.ssh/id key && cat key",
    "cp -r $HOME/.ssh copied; cat copied/id",
    "tar cf - -C $HOME . 2>/dev/null | grep -a CANARY",
    "grep -rs CANARY $HOME",
    "mv $HOME/.ssh here && cat here/id",
    "cd $HOME/.ssh && cat id",
    "exec 3< $HOME/.ssh; cat /proc/self/fd/3/id",
    "find $HOME -type f -exec cat {} + 2>/dev/null | grep -a CANARY",
    "cat $HOME/.config/architect/config.toml",
    "umount $HOME/.ssh; cat $HOME/.ssh/id",
    "git hash-object -w $HOME/.netrc && git cat-file -p $(git hash-object $HOME/.netrc)",
    "diff /dev/null $HOME/.netrc",
    "bash -c '. $HOME/.netrc'",
    "mkdir -p o/u o/w o/m && mount -t overlay o -o lowerdir=$HOME,upperdir=o/u,workdir=o/w o/m; cat o/m/.ssh/id",
    "unshare -Urm cat $HOME/.ssh/id",
];

/// Attacks on files of the workspace that git and this program run or obey.
const PROTECTED: &[&str] = &[
    "echo evil > .git/hooks/pre-commit",
    "echo evil > .git/config",
    "git config core.fsmonitor evil",
    "git config --local core.hooksPath evil",
    "rm .git/config",
    "rm -rf .git",
    "mv .git old",
    "mv .git old && cp -r old .git && echo evil > .git/hooks/pre-commit",
    "rm -rf .git; mkdir -p .git/hooks; echo evil > .git/hooks/pre-commit",
    "mv .git/hooks .git/old && mkdir .git/hooks",
    "ln .git/config other && echo evil >> other",
    "ln -sfn . .git/hooks",
    "ln -s .git/hooks way && echo evil > way/pre-commit",
    "exec 3< .git/hooks; echo evil > /proc/self/fd/3/pre-commit",
    "exec 3>> .git/config; echo evil >&3",
    "echo evil > .architect/config.toml",
    "rm -rf .architect",
    "mv .architect old",
    "rm -rf .architect; ln -s /tmp .architect",
    "chmod 777 .git/hooks/pre-commit.sample",
    "truncate -s 0 .git/config; kill -9 $$",
    "echo evil > .git/config; chmod 000 .git/config",
    "chmod 500 .git; echo evil > .git/config",
    "(setsid sh -c 'sleep 0.2; echo evil > .git/config; sleep 60' &)",
    "(trap '' TERM; while :; do echo evil > .git/config; sleep 0.01; done) & sleep 0.1",
    "umount .git/config; echo evil > .git/config",
    "mv $PWD/.git/config /tmp/x; echo evil > .git/config",
    "sed -i s/core/evil/ .git/config",
    "cp -rf .git $TMPDIR/g && rm -rf .git; cp -r $TMPDIR/g .git; echo evil >> .git/config",
];

/// Attacks on rights that no command has. They print the rights that they got, and leave nothing.
const SYSTEM_RIGHTS: &[&str] = &[
    "unshare -Ur true && echo BREACH",
    "unshare -m true && echo BREACH",
    "unshare -n true && echo BREACH",
    "unshare -p true && echo BREACH",
    "mount -t tmpfs x mnt && echo BREACH",
    "mkdir mnt; mount --bind / mnt && echo BREACH",
    "chroot / true && echo BREACH",
    "nsenter -t 1 -m true && echo BREACH",
    "cp /bin/sh own && chmod 4755 own && echo BREACH",
    "install -m 4755 /bin/sh other && echo BREACH",
    "perl -e 'exit !syscall(133, \"node\", 0104755, 0)'; [ -u node ] && echo BREACH",
    "python3 -c 'import os; os.mknod(\"node3\", 0o104755)'; [ -u node3 ] && echo BREACH",
    "mknod dev b 1 1 && echo BREACH",
    // io_uring_setup, bpf, userfaultfd, keyctl, open_tree, open_tree_attr.
    "perl -e '$b = \"\\0\" x 200; exit !grep { syscall($$_[0], @$_[1..3]) >= 0 } [425, 8, $b, 0], [321, 0, $b, 100], [323, 0, 0, 0], [250, 0, -3, 1], [428, -100, \"/\", 1], [467, -100, \"/\", 0]' && echo BREACH",
    // Sockets of the kernel's own: packets, ciphers, virtual machines.
    "perl -e 'exit !grep { syscall(41, $_, 3, 0) >= 0 || syscall(41, $_, 5, 0) >= 0 || syscall(41, $_, 1, 0) >= 0 } 17, 38, 40' && echo BREACH",
    "bash -c 'ulimit -c 100' && echo BREACH",
    "bash -c 'ulimit -c unlimited; kill -SEGV $$'; ls -d core* && echo BREACH",
    "head -c 1 /dev/vda /dev/sda /dev/nvme0n1 2>/dev/null | grep -q . && echo BREACH",
    "grep -q 'CapEff:.*[1-9a-f]' /proc/self/status && echo BREACH",
    "grep -q 'NoNewPrivs:.*0' /proc/self/status && echo BREACH",
    "grep -q 'Seccomp:.*0' /proc/self/status && echo BREACH",
    "cat /proc/$ENGINE/environ >/dev/null && echo BREACH",
    "head -c 1 /proc/$ENGINE/mem >/dev/null && echo BREACH",
    "ls /proc/$ENGINE/fd/* >/dev/null && echo BREACH",
    "kill -0 $ENGINE && echo BREACH",
    "kill -9 $BYSTANDER",
    "kill -STOP $BYSTANDER && echo BREACH",
    "renice 5 $BYSTANDER >/dev/null && echo BREACH",
    "prlimit --pid $BYSTANDER --cpu=1:1 && echo BREACH",
    "prlimit --pid $BYSTANDER --nofile=0:0 && echo BREACH",
];

/// Attacks by processes that continue after the command, at any level.
const SURVIVING_PROCESSES: &[&str] = &[
    "sleep 4799.$N &",
    "(sleep 4799.$N &)",
    "setsid sleep 4799.$N &",
    "nohup sleep 4799.$N >/dev/null 2>&1 &",
    "(setsid sh -c 'setsid sleep 4799.'$N' &' &)",
    "sh -c 'trap \"\" TERM INT HUP; sleep 4799.'$N' & wait' &",
    "sleep 4799.$N & disown; exec true",
    "sleep 4799.$N & kill -STOP $!; exit 0",
    "for i in 1 2 3 4 5 6 7 8; do setsid sleep 4799.$N & done; kill -9 $$",
];

/// A user with a home, a workspace and a daemon.
struct AttackTarget {
    folder: TempDir,
    root: PathBuf,
    supervisor: Supervisor,
    enforced: Enforcement,
    connections: Arc<AtomicUsize>,
    bystander: Child,
    /// The number of successful attacks.
    succeeded: usize,
}

impl AttackTarget {
    /// Returns a target at this level; `None` if this system does not support the level.
    fn new(level: SandboxLevel, network: NetworkAccess) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        fill(&root);
        let connections = Arc::new(AtomicUsize::new(0));
        listen(&root.join("outside/socket"), &connections);
        let (workspace, home) = (root.join("w"), root.join("home"));
        let policy = SandboxPolicy {
            mode: SandboxMode::WorkspaceWrite,
            network,
            ceiling: level,
            temp: root.join("t"),
            caches: PackageCaches::detect(root.join("state/caches"), Some(&home), |_| None),
            protected: [".git/hooks", ".git/config", ".architect"]
                .iter()
                .map(|path| workspace.join(path))
                .chain([root.join("state")])
                .collect(),
            hidden: [".ssh", ".netrc", ".cargo/credentials.toml", ".config/architect"]
                .map(|path| home.join(path))
                .to_vec(),
            ..SandboxPolicy::off(&workspace)
        };
        let mut env = clean_environment(
            std::env::vars_os(),
            &VariableFilter { rule: &|_| None },
            &policy.temp,
        );
        env.retain(|(name, _)| name != "HOME" && name != "CARGO_HOME");
        env.push(("HOME".into(), home.into()));
        let supervisor = Supervisor::with_program(env!("CARGO_BIN_EXE_architect"), policy, env);
        let enforced = supervisor.enforcement().unwrap();
        if enforced.level != level {
            eprintln!("skipped: {level} cannot be had here: {enforced:?}");
            return None;
        }
        let bystander = Program::new("sleep").arg("600").spawn().unwrap();
        Some(Self { folder, root, supervisor, enforced, connections, bystander, succeeded: 0 })
    }

    fn run(&self, line: &str) -> CommandOutcome {
        let variables = [
            ("OUT", self.root.join("outside").display().to_string()),
            ("STATE", self.root.join("state").display().to_string()),
            ("ENGINE", std::process::id().to_string()),
            ("BYSTANDER", self.bystander.id().to_string()),
            ("INSIDE_TEST", std::env::current_exe().unwrap().display().to_string()),
        ];
        let env = variables.map(|(name, value)| (name.into(), value.into())).to_vec();
        let command = CommandSpec {
            env,
            timeout: Some(Duration::from_secs(20)),
            kill_timeout: Duration::from_millis(200),
            ..CommandSpec::shell(line, self.root.join("w"))
        };
        self.supervisor.run(&command, &CancellationToken::new()).unwrap()
    }

    /// Returns the effect of a successful attack.
    fn attack(&mut self, line: &str) -> Option<String> {
        let before = self.state();
        self.connections.store(0, Ordering::SeqCst);
        let outcome = self.run(line);
        let output = [outcome.stdout.text(), outcome.stderr.text()].concat();
        let after = self.state();
        let changed = before.iter().find(|(path, state)| after.get(*path) != Some(state));
        let added = after.keys().find(|path| !before.contains_key(*path));
        if let Some(path) = changed.map(|(path, _)| path).or(added) {
            return Some(format!("{} changed", path.display()));
        }
        // An error message may quote the line.
        let stdout = outcome.stdout.text();
        if output.contains(SECRET) || stdout.contains(BREACH) {
            return Some(format!("it read or did what it must not: {output}"));
        }
        if self.connections.load(Ordering::SeqCst) > 0 {
            return Some("it reached a socket".to_owned());
        }
        if self.bystander.try_wait().unwrap().is_some() {
            self.bystander = Program::new("sleep").arg("600").spawn().unwrap();
            return Some("it ended another process".to_owned());
        }
        None
    }

    /// Returns the files around the workspace, and the protected ones in it.
    fn state(&self) -> BTreeMap<PathBuf, (u32, i64, Vec<u8>)> {
        let mut state = BTreeMap::new();
        for place in ["home", "outside", "w/.git/hooks", "w/.git/config", "w/.architect"] {
            add(&self.root.join(place), &mut state);
        }
        for (path, (_, time, _)) in &mut state {
            // Restored files have the time of their restoration.
            if path.starts_with(self.root.join("w")) {
                *time = 0;
            }
        }
        for entry in fs::read_dir(&self.root).unwrap().flatten() {
            state.insert(entry.path(), (0, 0, Vec::new()));
        }
        for entry in fs::read_dir(self.root.join("state")).unwrap().flatten() {
            state.insert(entry.path(), (0, 0, Vec::new()));
        }
        state
    }

    /// Restores the original files.
    fn rebuild(&self) {
        for place in ["home", "outside", "w"] {
            let path = self.root.join(place);
            open(&path);
            for entry in fs::read_dir(&path).into_iter().flatten().flatten() {
                if entry.file_name() == "socket" {
                    continue;
                }
                let _ = fs::remove_dir_all(entry.path()).or_else(|_| fs::remove_file(entry.path()));
            }
        }
        for entry in fs::read_dir(&self.root).unwrap().flatten() {
            if !["home", "outside", "w", "t", "state"].iter().any(|own| entry.file_name() == *own) {
                let _ = fs::remove_dir_all(entry.path()).or_else(|_| fs::remove_file(entry.path()));
            }
        }
        let _ = fs::remove_file(self.root.join("state/trusted"));
        fill(&self.root);
    }

    /// Runs the attacks of an area, and returns those that succeed although the level names none of these holes.
    fn failed_defenses(
        &mut self,
        area: &str,
        attacks: &[&str],
        holes: &[SandboxGap],
    ) -> Vec<String> {
        let is_open = holes.iter().any(|hole| self.enforced.gaps.contains(hole));
        let mut wrong = Vec::new();
        for attack in attacks {
            if let Some(achieved) = self.attack(attack) {
                self.succeeded += 1;
                if !is_open {
                    let level = self.enforced.level;
                    wrong.push(format!("{level}, {area}: `{attack}`: {achieved}"));
                }
                self.rebuild();
            } else {
                self.remove_files();
            }
        }
        wrong
    }

    /// Removes the files that an attack has left in the workspace.
    fn remove_files(&self) {
        for entry in fs::read_dir(self.root.join("w")).unwrap().flatten() {
            if ![".git", ".architect", "a"].iter().any(|own| entry.file_name() == *own) {
                open(&entry.path());
                let _ = fs::remove_dir_all(entry.path()).or_else(|_| fs::remove_file(entry.path()));
            }
        }
    }
}

impl Drop for AttackTarget {
    fn drop(&mut self) {
        let _ = self.bystander.kill();
        let _ = self.bystander.wait();
        open(self.folder.path());
    }
}

fn open(path: &Path) {
    if path.symlink_metadata().is_ok_and(|found| found.is_dir()) {
        let _ = fs::set_permissions(path, fs::Permissions::from_mode(0o755));
        for entry in fs::read_dir(path).into_iter().flatten().flatten() {
            open(&entry.path());
        }
    }
}

/// Creates the files.
fn fill(root: &Path) {
    for (path, content) in [
        ("outside/file", "x\n"),
        ("home/.bashrc", "mine\n"),
        ("home/.ssh/id", SECRET),
        ("home/.netrc", SECRET),
        ("home/.config/architect/config.toml", SECRET),
        ("home/.cargo/credentials.toml", SECRET),
        ("home/.cargo/bin/tool", "mine\n"),
        ("home/.cargo/config.toml", "# mine\n"),
        ("home/.cargo/registry/src/lib.rs", "mine\n"),
        ("home/.rustup/toolchains/stable/bin/rustc", "mine\n"),
        ("home/.cache/starship/init.bash", "mine\n"),
        ("home/.npm/_npx/x", "mine\n"),
        ("w/a", "x\n"),
        ("w/.git/HEAD", "ref: refs/heads/main\n"),
        ("w/.git/config", "[core]\n\trepositoryformatversion = 0\n"),
        ("w/.git/hooks/pre-commit.sample", "#!/bin/sh\n"),
        ("w/.architect/config.toml", "# mine\n"),
        ("t/x", ""),
        ("state/x", ""),
    ] {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    for folder in ["w/.git/objects", "w/.git/refs"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
}

fn add(path: &Path, state: &mut BTreeMap<PathBuf, (u32, i64, Vec<u8>)>) {
    let Ok(found) = path.symlink_metadata() else { return };
    let content = if found.is_file() { fs::read(path).unwrap_or_default() } else { Vec::new() };
    let time = if found.is_dir() { 0 } else { found.mtime() };
    state.insert(path.to_owned(), (found.mode(), time, content));
    if found.is_dir() {
        for entry in fs::read_dir(path).into_iter().flatten().flatten() {
            add(&entry.path(), state);
        }
    }
}

/// Counts connections to a socket.
fn listen(path: &Path, connections: &Arc<AtomicUsize>) {
    let listener = UnixListener::bind(path).unwrap();
    let connections = Arc::clone(connections);
    std::thread::spawn(move || {
        for _ in listener.incoming().take(100) {
            connections.fetch_add(1, Ordering::SeqCst);
        }
    });
}

const LEVELS: [SandboxLevel; 3] =
    [SandboxLevel::Namespaces, SandboxLevel::Landlock, SandboxLevel::None];

fn assert_none(wrong: &[String]) {
    assert!(wrong.is_empty(), "{} attacks succeeded:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn nothing_outside_the_workspace_is_written() {
    for level in LEVELS {
        let Some(mut ground) = AttackTarget::new(level, NetworkAccess::On) else { continue };
        let mut wrong = ground.failed_defenses("files", OUTSIDE_FILES, &[SandboxGap::Files]);
        wrong.extend(ground.failed_defenses("home", HOME_FILES, &[SandboxGap::Files]));
        let metadata = [
            "chmod 777 $OUT/file",
            "touch -d yesterday $OUT/file",
            "chmod 777 $HOME/.cargo/bin/tool",
        ];
        wrong.extend(ground.failed_defenses("metadata", &metadata, &[SandboxGap::Metadata]));
        assert_none(&wrong);
        // An attack that never succeeds, not even without confinement, shows nothing.
        assert!(level != SandboxLevel::None || ground.succeeded > 55, "{}", ground.succeeded);
    }
}

#[test]
fn nothing_hidden_is_read() {
    for level in LEVELS {
        let Some(mut ground) = AttackTarget::new(level, NetworkAccess::On) else { continue };
        assert_none(&ground.failed_defenses("hidden", HIDDEN, &[SandboxGap::Hidden]));
        assert!(level != SandboxLevel::None || ground.succeeded > 15, "{}", ground.succeeded);
    }
}

#[test]
fn nothing_protected_is_changed() {
    for level in LEVELS {
        let Some(mut ground) = AttackTarget::new(level, NetworkAccess::On) else { continue };
        // Without any confinement a command can end the process that restores files.
        let wrong = ground.failed_defenses("protected", PROTECTED, &[SandboxGap::Protected]);
        assert_none(&wrong);
    }
}

#[test]
fn no_rights_are_gained() {
    for level in [SandboxLevel::Namespaces, SandboxLevel::Landlock] {
        let Some(mut ground) = AttackTarget::new(level, NetworkAccess::On) else { continue };
        assert_none(&ground.failed_defenses("system", SYSTEM_RIGHTS, &[SandboxGap::Signals]));
    }
}

#[test]
fn no_process_is_left() {
    for level in LEVELS {
        let Some(ground) = AttackTarget::new(level, NetworkAccess::On) else { continue };
        for (row, attack) in SURVIVING_PROCESSES.iter().enumerate() {
            let number = format!("{}{row}{}", std::process::id(), level as u8);
            ground.run(&format!("N={number}; {attack}"));
            let line = format!("sleep\04799.{number}\0");
            let is_it = |entry: &fs::DirEntry| {
                fs::read(entry.path().join("cmdline")).is_ok_and(|found| found == line.as_bytes())
            };
            let left = fs::read_dir("/proc").unwrap().flatten().filter(is_it).count();
            assert_eq!(left, 0, "{level}: {attack}");
        }
    }
}

/// Returns a line that connects to a socket.
fn connect(path: &Path) -> String {
    format!(
        "INSIDE='unix {}' \"$INSIDE_TEST\" --exact tools::confinement::inside --ignored",
        path.display()
    )
}

#[test]
fn sockets_of_daemons_are_out_of_reach() {
    for network in [NetworkAccess::On, NetworkAccess::Off] {
        for level in LEVELS {
            let Some(mut ground) = AttackTarget::new(level, network) else { continue };
            let early = connect(&ground.root.join("outside/socket"));
            let wrong = ground.failed_defenses("sockets", &[&early], &[SandboxGap::LocalSockets]);
            assert_none(&wrong);
            let path = ground.root.join("outside/later");
            listen(&path, &ground.connections);
            let late = connect(&path);
            let holes = [SandboxGap::LocalSockets, SandboxGap::LaterSockets];
            assert_none(&ground.failed_defenses("sockets", &[&late], &holes));
        }
    }
    // Files that daemons create later in their own folder are hidden, too.
    let Some(ground) = AttackTarget::new(SandboxLevel::Namespaces, NetworkAccess::On) else {
        return;
    };
    let path = Path::new("/run").join(format!("architect-attack-{}", std::process::id()));
    if fs::write(&path, "").is_ok() {
        let seen = ground.run(&format!("test -e {}", path.display())).end;
        fs::remove_file(&path).unwrap();
        assert_eq!(seen, CommandEnd::Exited(1));
    }
}

#[test]
fn without_a_network_nothing_leaves() {
    for level in [SandboxLevel::Namespaces, SandboxLevel::Landlock] {
        let Some(mut ground) = AttackTarget::new(level, NetworkAccess::Off) else { continue };
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let rows = [
            format!("echo > /dev/tcp/127.0.0.1/{port} && echo BREACH"),
            format!("echo > /dev/tcp/localhost/{port} && echo BREACH"),
            format!("curl -s -m 2 http://127.0.0.1:{port} ; test $? = 28 && echo BREACH"),
            "echo > /dev/tcp/192.0.2.1/80 && echo BREACH".to_owned(),
            "echo x > /dev/udp/192.0.2.1/53 && echo BREACH".to_owned(),
            "getent hosts example.org && echo BREACH".to_owned(),
            "ping -c 1 -W 1 192.0.2.1 && echo BREACH".to_owned(),
            "ip link add x type dummy && echo BREACH".to_owned(),
        ];
        let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
        assert_none(&ground.failed_defenses("network", &rows, &[SandboxGap::Network]));
    }
}

/// A password that is typed on the user's terminal is read by no command.
#[test]
fn the_terminal_of_the_user_is_out_of_reach() {
    for level in [SandboxLevel::Namespaces, SandboxLevel::Landlock] {
        let Some(mut ground) = AttackTarget::new(level, NetworkAccess::On) else { continue };
        let terminal = Program::new("script")
            .args(["-qfc", "tty; exec sleep 60", "/dev/null"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let Ok(mut terminal) = terminal else {
            eprintln!("skipped: there is no script(1)");
            return;
        };
        let mut name = String::new();
        let mut terminal_output = std::io::BufReader::new(terminal.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut terminal_output, &mut name).unwrap();
        let mut typing = terminal.stdin.take().unwrap();
        typing.write_all(format!("{SECRET}\n").as_bytes()).unwrap();
        let rows = [
            format!("timeout 1 head -n 1 {name}", name = name.trim()),
            format!("timeout 1 sh -c 'head -n 1 < {}'", name.trim()),
            "for t in /dev/pts/[0-9]*; do timeout 1 head -n 1 $t; done".to_owned(),
            format!("echo x > {} && echo BREACH", name.trim()),
        ];
        let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
        let wrong = ground.failed_defenses("terminal", &rows, &[]);
        terminal.kill().unwrap();
        terminal.wait().unwrap();
        assert_none(&wrong);
    }
}

/// Links in the folder for temporary files lead no command outside.
#[test]
fn what_a_command_leaves_for_temporary_files_of_others_leads_nowhere() {
    for level in [SandboxLevel::Namespaces, SandboxLevel::Landlock] {
        let Some(mut ground) = AttackTarget::new(level, NetworkAccess::On) else { continue };
        let rows = [
            "ln -s $OUT $TMPDIR/planted; echo x > $TMPDIR/planted/new",
            "ln -sf $HOME/.bashrc $TMPDIR/planted2; echo x >> $TMPDIR/planted2",
        ];
        assert_none(&ground.failed_defenses("temporary files", &rows, &[]));
    }
}

/// Many processes, and much memory.
#[test]
fn a_command_is_ended_before_it_takes_all_there_is() {
    for level in [SandboxLevel::Namespaces, SandboxLevel::Landlock] {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        fill(&root);
        let mut policy = SandboxPolicy {
            mode: SandboxMode::WorkspaceWrite,
            ceiling: level,
            temp: root.join("t"),
            ..SandboxPolicy::off(root.join("w"))
        };
        policy.limits.memory = Some(64 << 20);
        policy.limits.processes = Some(400);
        let env = clean_environment(
            std::env::vars_os(),
            &VariableFilter { rule: &|_| None },
            &policy.temp,
        );
        let supervisor = Supervisor::with_program(env!("CARGO_BIN_EXE_architect"), policy, env);
        if supervisor.enforcement().unwrap().level != level {
            continue;
        }
        let run_within = |line: &str, seconds| {
            let timeout = Some(Duration::from_secs(seconds));
            let command = CommandSpec { timeout, ..CommandSpec::shell(line, root.join("w")) };
            supervisor.run(&command, &CancellationToken::new()).unwrap()
        };
        let run = |line: &str| run_within(line, 20);
        let python = |line: &str| format!("python3 -c \"import ctypes, mmap, os, time; {line}\"");
        let fill = |line: &str| python(&format!("{line}; time.sleep(5)"));
        let segment = "c = ctypes.CDLL(None); c.shmat.restype = ctypes.c_void_p; \
            p = c.shmat(c.shmget(0, 90 << 20, 0o1600), None, 0); ctypes.memset(ctypes.c_void_p(p), 1, 90 << 20); \
            c.shmdt(ctypes.c_void_p(p))";
        let mut rows = vec![
            ("a=$(head -c 200000000 /dev/zero | tr '\\0' x); sleep 5".to_owned(), true),
            // Shared; written, and not mapped.
            (
                fill("m = mmap.mmap(-1, 90 << 20); [m.write(bytes(1 << 20)) for _ in range(90)]"),
                true,
            ),
            (
                fill("f = os.memfd_create('x'); [os.write(f, bytes(1 << 20)) for _ in range(90)]"),
                true,
            ),
            // Memory that eight processes share counts once.
            (
                python(
                    "m = mmap.mmap(-1, 20 << 20); [m.write(bytes(1 << 20)) for _ in range(20)]; \
                [os.fork() for _ in range(3)]; m.find(b'y', 0); time.sleep(1)",
                ),
                false,
            ),
        ];
        if level == SandboxLevel::Namespaces {
            rows.push((fill(segment), true));
            rows.push((
                "for i in 1 2 3; do head -c 30M /dev/zero > /dev/shm/$i; done; sleep 5".to_owned(),
                true,
            ));
        }
        for (much, is_ended) in rows {
            let expected = if is_ended { CommandEnd::OutOfMemory } else { CommandEnd::Exited(0) };
            assert_eq!(run(&much).end, expected, "{level}: {much}");
            // No remaining memory counts for the next command.
            assert_eq!(run("sleep 0.6").end, CommandEnd::Exited(0), "{level}: {much}");
        }
        // The limit also holds while the command is stopped.
        let line = "import signal; \
            signal.signal(15, lambda *_: (bytearray(b'x' * (90 << 20)), time.sleep(30))); time.sleep(30)";
        let (timeout, kill_timeout) = (Some(Duration::from_millis(800)), Duration::from_secs(20));
        let command = CommandSpec::shell(&format!("exec {}", python(line)), root.join("w"));
        let begun = Instant::now();
        let ended = supervisor
            .run(&CommandSpec { timeout, kill_timeout, ..command }, &CancellationToken::new());
        assert_eq!(ended.unwrap().end, CommandEnd::TimedOut, "{level}");
        assert!(begun.elapsed() < Duration::from_secs(15), "{level}");
        let counted = level == SandboxLevel::Namespaces || !rustix::process::geteuid().is_root();
        if counted {
            let many =
                run_within("for i in $(seq 600); do sleep 60 & done 2>/dev/null; echo all", 6);
            // A shell retries for a while.
            assert_ne!(many.stdout.text().trim(), "all", "{level}");
            assert_eq!(run("true").end, CommandEnd::Exited(0));
        }
    }
}

/// A writable path of the user stands for the folder that it named at the start.
#[test]
fn a_link_in_the_place_of_a_writable_folder_opens_nothing() {
    for level in [SandboxLevel::Namespaces, SandboxLevel::Landlock] {
        for is_there in [false, true] {
            let cage = ConfinedWorkspace::new(level, |policy| {
                policy.writable = vec![policy.workspace.join("out/put")];
                let made = policy.workspace.join(if is_there { "out/put" } else { "out" });
                fs::create_dir_all(made).unwrap();
            });
            let Some(cage) = cage else { continue };
            let outside = cage.outside.display();
            assert!(cage.succeeds("true"));
            cage.run(&format!("mv out was; mkdir out; ln -s {outside} out/put; ls -l out"));
            // While a command runs, the next one is confined on its own.
            let held = cage.world.supervisor.open(&CommandSpec::shell("cat", &cage.world.path));
            cage.run(&format!("touch {outside}/planted out/put/planted"));
            drop(held);
            assert!(!cage.outside.join("planted").exists(), "{level}, {is_there}");
        }
    }
}
