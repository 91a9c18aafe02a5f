//! Systems that lack a layer: an explicit option that can't be met ends the run, a default that can't be met is reported.

use std::collections::BTreeMap;

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, SeccompRule, apply_filter};

use crate::kit::cli::{CliFixture, CommandResult, wait_for_exit};

/// The layers that a system lacks.
#[derive(Clone, Copy, Debug, PartialEq)]
enum MissingLayer {
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

/// Runs a task on a system that lacks a layer.
fn run(world: &CliFixture, lacking: MissingLayer, args: &[&str]) -> CommandResult {
    let model = world.script_model(SCRIPT);
    let args = [&["run", "Do it.", "--mode", "yolo", "--model", &model][..], args].concat();
    start(world, lacking, &args)
}

fn start(world: &CliFixture, lacking: MissingLayer, args: &[&str]) -> CommandResult {
    let mut command = world.command(args);
    // The restrictions of this thread also hold for the processes that it starts.
    let child = std::thread::scope(|scope| {
        let start = || {
            if matches!(lacking, MissingLayer::Namespaces | MissingLayer::Both) {
                refuse(libc::SYS_unshare, libc::EPERM);
            }
            if matches!(lacking, MissingLayer::Landlock | MissingLayer::Both) {
                refuse(libc::SYS_landlock_create_ruleset, libc::ENOSYS);
            }
            command.spawn().unwrap()
        };
        scope.spawn(start).join().unwrap()
    });
    wait_for_exit(child)
}

#[test]
fn a_missing_layer_is_reported_or_ends_the_run() {
    for (lacking, args, code, warns, escapes) in [
        (MissingLayer::Nothing, &[][..], 0, false, false),
        (MissingLayer::Namespaces, &[], 0, false, false),
        (MissingLayer::Landlock, &[], 0, false, false),
        (MissingLayer::Both, &[], 0, true, true),
        (MissingLayer::Nothing, &["--sandbox", "workspace-write"], 0, false, false),
        (MissingLayer::Namespaces, &["--sandbox", "workspace-write"], 0, false, false),
        (MissingLayer::Namespaces, &["--network", "off"], 0, false, false),
        (MissingLayer::Both, &["--sandbox", "workspace-write"], 3, false, false),
        (MissingLayer::Both, &["--network", "off"], 3, false, false),
        (MissingLayer::Both, &["--set", "sandbox.required=true"], 3, false, false),
        (MissingLayer::Both, &["--sandbox", "off"], 0, false, true),
    ] {
        let world = CliFixture::new();
        let ran = run(&world, lacking, args);
        let about = format!("{lacking:?} {args:?}: {}", ran.err);
        assert_eq!(ran.code, code, "{about}");
        let warning =
            ran.err.lines().filter(|line| line.contains("commands are not fully confined"));
        assert_eq!(warning.count(), usize::from(warns), "{about}");
        assert_eq!(world.home().join("evil").exists(), escapes, "{about}");
        assert_eq!(world.path("ran").exists(), code == 0, "{about}");
        if code == 3 {
            assert!(ran.err.contains("user namespaces"), "{about}");
        }
    }
}

/// A command in one project finds nothing of a session in another one.
#[test]
fn stored_sessions_are_read_by_no_command() {
    const SESSION: &str = r#"
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
        (MissingLayer::Nothing, &[][..], false),
        (MissingLayer::Nothing, &["--network", "off"], false),
        (MissingLayer::Namespaces, &[], false),
        (MissingLayer::Nothing, &["--sandbox", "off"], true),
    ] {
        let world = CliFixture::new();
        assert_eq!(world.run_script(SESSION, &[]).code, 0);
        let model = world.script_model(SEARCH);
        let args = [&["run", "Do it.", "--mode", "yolo", "--model", &model][..], args].concat();
        let ran = start(&world, lacking, &args);
        assert!(world.path("ran").exists(), "{}", ran.err);
        assert_eq!(world.path("found").exists(), finds, "{lacking:?} {args:?}");
    }
}
