//! Caches of package managers, and the places of temporary files.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use architect::exec::{
    CommandOutcome, CommandSpec, PackageCaches, SandboxLevel, SandboxMode, SandboxPolicy,
    Supervisor, VariableFilter, clean_environment,
};
use architect::port::CancellationToken;
use tempfile::TempDir;

/// A user with a cache, in a folder below the usual place for temporary files.
struct UserHome {
    folder: TempDir,
}

impl UserHome {
    fn new() -> Self {
        let user = Self { folder: tempfile::tempdir().unwrap() };
        for folder in ["home/.cargo/registry", "home/.npm", "w", "t", "state"] {
            fs::create_dir_all(user.path(folder)).unwrap();
        }
        fs::write(user.path("home/.cargo/registry/crate"), "mine\n").unwrap();
        fs::write(user.path("home/.cargo/config.toml"), "settings\n").unwrap();
        user
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join(name)
    }

    /// Returns the supervisor of commands at a level; `None` if this system does not support the level.
    fn supervisor(
        &self,
        level: SandboxLevel,
        change: impl FnOnce(&mut SandboxPolicy),
    ) -> Option<Supervisor> {
        let mut policy = SandboxPolicy {
            mode: SandboxMode::WorkspaceWrite,
            ceiling: level,
            temp: self.path("t"),
            caches: PackageCaches::detect(
                self.path("state/caches"),
                Some(&self.path("home")),
                |_| None,
            ),
            protected: vec![self.path("state")],
            ..SandboxPolicy::off(self.path("w"))
        };
        change(&mut policy);
        let mut env = clean_environment(
            std::env::vars_os(),
            &VariableFilter { rule: &|_| None },
            &policy.temp,
        );
        env.retain(|(name, _)| name != "HOME" && name != "CARGO_HOME");
        env.push(("HOME".into(), self.path("home").into()));
        let supervisor = Supervisor::with_program(env!("CARGO_BIN_EXE_architect"), policy, env);
        let enforced = supervisor.enforcement().unwrap();
        (enforced.level == level).then_some(supervisor)
    }
}

fn run(supervisor: &Supervisor, line: &str) -> CommandOutcome {
    let timeout = Some(Duration::from_secs(20));
    let command =
        CommandSpec { timeout, ..CommandSpec::shell(line, &supervisor.policy().workspace) };
    supervisor.run(&command, &CancellationToken::new()).unwrap()
}

fn output_of(supervisor: &Supervisor, line: &str) -> String {
    let outcome = run(supervisor, line);
    [outcome.stdout.text(), outcome.stderr.text()].concat()
}

#[test]
fn the_cache_of_the_user_is_read_and_a_private_one_is_written_and_kept() {
    let user = UserHome::new();
    let crates = user.path("home/.cargo/registry/crate");
    for round in 0..2 {
        let Some(supervisor) = user.supervisor(SandboxLevel::Namespaces, |_| {}) else { return };
        let seen = output_of(&supervisor, "cat ~/.cargo/registry/*");
        assert_eq!(seen, if round == 0 { "mine\n" } else { "evil\nnew\n" });
        run(&supervisor, "echo evil > ~/.cargo/registry/crate; echo new > ~/.cargo/registry/new");
        assert_eq!(fs::read_to_string(&crates).unwrap(), "mine\n");
        assert!(!user.path("home/.cargo/registry/new").exists());
        let elsewhere = "echo x > ~/x; echo x > ~/.bashrc; mkdir ~/.other";
        run(&supervisor, elsewhere);
        assert_eq!(fs::read_dir(user.path("home")).unwrap().count(), 2);
        // The user had no cache folder.
        let named = output_of(&supervisor, "echo x > $XDG_CACHE_HOME/x && echo $XDG_CACHE_HOME");
        assert!(Path::new(named.trim()).starts_with(user.path("state/caches")), "{named}");
    }
}

#[test]
fn two_at_a_time_have_caches_of_their_own() {
    let user = UserHome::new();
    let supervisors = [(); 2].map(|()| user.supervisor(SandboxLevel::Namespaces, |_| {}));
    let [Some(first), Some(second)] = &supervisors else { return };
    run(first, "echo first > ~/.cargo/registry/crate");
    assert_eq!(output_of(second, "cat ~/.cargo/registry/crate"), "mine\n");
    assert_eq!(output_of(first, "cat ~/.cargo/registry/crate"), "first\n");
}

#[test]
fn without_mounts_variables_name_private_caches() {
    let user = UserHome::new();
    let Some(supervisor) = user.supervisor(SandboxLevel::Landlock, |_| {}) else { return };
    let kept =
        "cat $CARGO_HOME/config.toml && echo x > $CARGO_HOME/x && echo x > $npm_config_cache/x";
    assert_eq!(output_of(&supervisor, kept), "settings\n");
    assert!(output_of(&supervisor, "echo x > ~/.cargo/registry/new").contains("Permission denied"));
    assert!(user.path("state/caches/private/cargo/x").exists());
}

/// A missing folder that the user makes writable is created. Commands write the user's own folder, also if it is a
/// cache.
#[test]
fn a_writable_folder_is_made_and_is_what_it_seems() {
    for level in [SandboxLevel::Namespaces, SandboxLevel::Landlock] {
        let user = UserHome::new();
        let own = [user.path("home/new/deep"), user.path("home/.cargo")];
        let Some(supervisor) = user.supervisor(level, |policy| policy.writable = own.to_vec())
        else {
            continue;
        };
        run(&supervisor, "echo x > ~/new/deep/x; echo x > ~/.cargo/x");
        assert!(own.iter().all(|folder| folder.join("x").exists()), "{level}");
    }
}

#[test]
fn a_workspace_in_a_cache_or_in_the_temporary_folder_is_what_it_seems() {
    let user = UserHome::new();
    let inside = user.path("home/.cargo/registry/project");
    fs::create_dir(&inside).unwrap();
    let change = |policy: &mut SandboxPolicy| policy.workspace = inside.clone();
    let Some(supervisor) = user.supervisor(SandboxLevel::Namespaces, change) else { return };
    run(&supervisor, "echo x > x; echo x > ../crate");
    assert!(inside.join("x").exists());
    assert_eq!(fs::read_to_string(user.path("home/.cargo/registry/crate")).unwrap(), "mine\n");
}

/// Files that programs write to `/tmp` are private, also if the workspace is there.
#[test]
fn a_workspace_below_tmp_has_a_private_tmp() {
    let Ok(folder) = tempfile::tempdir_in("/tmp") else { return };
    let user = UserHome { folder };
    for name in ["home", "w", "t", "state", "other"] {
        fs::create_dir(user.path(name)).unwrap();
    }
    fs::write(user.path("other/file"), "there\n").unwrap();
    let Some(supervisor) = user.supervisor(SandboxLevel::Namespaces, |_| {}) else { return };
    let name = format!("architect-private-{}", std::process::id());
    let line =
        format!("echo x > /tmp/{name} && cat ../other/file && echo x > own && test $TMPDIR = /tmp");
    assert_eq!(output_of(&supervisor, &line), "there\n");
    assert!(run(&supervisor, &line).end.is_success());
    assert!(!Path::new("/tmp").join(&name).exists() && user.path("w/own").exists());
    assert!(!run(&supervisor, "echo x > ../other/file").end.is_success());
    let outsider = tempfile::tempdir_in("/tmp").unwrap();
    let seen = run(&supervisor, "ls -A /tmp").stdout.text();
    let is_seen = |path: &Path| seen.lines().any(|line| path.ends_with(line));
    assert!(is_seen(user.folder.path()) && is_seen(Path::new(&name)), "{seen}");
    assert!(!is_seen(outsider.path()), "{seen}");
}
