//! Systems that lack a layer: a wish that can't be met ends the run, a default that can't be had is told.

use std::collections::BTreeMap;

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, SeccompRule, apply_filter};

use crate::cli::world::{Ran, World, finish};

/// What a system lacks.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Lacking {
    Nothing,
    Namespaces,
    Landlock,
    Both,
}

const SCRIPT: &str = r#"
[[turn]]
calls = [{ name = "run_command", arguments = { command = "echo x > $HOME/evil; echo x > ran" } }]
[[turn]]
text = "Done."
"#;

fn refuse(call: i64, errno: i32) {
    let rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::from([(call, Vec::new())]);
    let action = SeccompAction::Errno(errno.unsigned_abs());
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, action, arch).unwrap();
    let program: BpfProgram = filter.try_into().unwrap();
    apply_filter(&program).unwrap();
}

/// Runs a task where something is lacking.
fn run(world: &World, lacking: Lacking, args: &[&str]) -> Ran {
    let model = world.script(SCRIPT);
    let args = [&["run", "Do it.", "--mode", "yolo", "--model", &model][..], args].concat();
    start(world, lacking, &args)
}

fn start(world: &World, lacking: Lacking, args: &[&str]) -> Ran {
    let mut command = world.command(args);
    // Whatever this thread may not do, the processes that it starts may not do either.
    let child = std::thread::scope(|scope| {
        let start = || {
            if matches!(lacking, Lacking::Namespaces | Lacking::Both) {
                refuse(libc::SYS_unshare, libc::EPERM);
            }
            if matches!(lacking, Lacking::Landlock | Lacking::Both) {
                refuse(libc::SYS_landlock_create_ruleset, libc::ENOSYS);
            }
            command.spawn().unwrap()
        };
        scope.spawn(start).join().unwrap()
    });
    finish(child)
}

#[test]
fn what_is_lacking_is_told_or_ends_the_run() {
    for (lacking, args, code, warns, escapes) in [
        (Lacking::Nothing, &[][..], 0, false, false),
        (Lacking::Namespaces, &[], 0, false, false),
        (Lacking::Landlock, &[], 0, false, false),
        (Lacking::Both, &[], 0, true, true),
        (Lacking::Nothing, &["--sandbox", "workspace-write"], 0, false, false),
        (Lacking::Namespaces, &["--sandbox", "workspace-write"], 0, false, false),
        (Lacking::Namespaces, &["--network", "off"], 0, false, false),
        (Lacking::Both, &["--sandbox", "workspace-write"], 3, false, false),
        (Lacking::Both, &["--network", "off"], 3, false, false),
        (Lacking::Both, &["--set", "sandbox.required=true"], 3, false, false),
        (Lacking::Both, &["--sandbox", "off"], 0, false, true),
    ] {
        let world = World::new();
        let ran = run(&world, lacking, args);
        let about = format!("{lacking:?} {args:?}: {}", ran.err);
        assert_eq!(ran.code, code, "{about}");
        let warning = ran.err.lines().filter(|line| line.contains("commands are not confined"));
        assert_eq!(warning.count(), usize::from(warns), "{about}");
        assert_eq!(world.home().join("evil").exists(), escapes, "{about}");
        assert_eq!(world.path("ran").exists(), code == 0, "{about}");
        if code == 3 {
            assert!(ran.err.contains("user namespaces"), "{about}");
        }
    }
}

/// What was said in one project, and what a command can find of it in another.
#[test]
fn stored_sessions_are_read_by_no_command() {
    const SAID: &str = r#"
[[turn]]
text = "CANARY-ANSWER"
"#;
    const SEARCH: &str = r#"
[[turn]]
calls = [{ name = "run_command", arguments = { command = "grep -rqs CANARY-ANSWER \"$HOME\" && echo x > found; echo x > ran" } }]
[[turn]]
text = "Done."
"#;
    for (lacking, args, finds) in [
        (Lacking::Nothing, &[][..], false),
        (Lacking::Nothing, &["--network", "off"], false),
        (Lacking::Namespaces, &[], false),
        (Lacking::Nothing, &["--sandbox", "off"], true),
    ] {
        let world = World::new();
        assert_eq!(world.play(SAID, &[]).code, 0);
        let model = world.script(SEARCH);
        let args = [&["run", "Do it.", "--mode", "yolo", "--model", &model][..], args].concat();
        let ran = start(&world, lacking, &args);
        assert!(world.path("ran").exists(), "{}", ran.err);
        assert_eq!(world.path("found").exists(), finds, "{lacking:?} {args:?}");
    }
}
