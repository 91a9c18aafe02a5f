//! Protected paths: parts of the workspace that a command may not write, and the ways around the protection.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use architect::exec::{SandboxLevel, SandboxPolicy};

use serde_json::json;

use super::confined_workspace::ConfinedWorkspace;
use crate::kit::cli::wait_until;

/// Makes a repository of the workspace, with its configuration protected besides its hooks.
fn repository(policy: &mut SandboxPolicy) {
    let init =
        Command::new("git").args(["init", "-q", "."]).current_dir(&policy.workspace).status();
    assert!(init.unwrap().success());
    policy.protected.extend(
        [".git/config", ".git/commondir", ".git/hooks"].map(|path| policy.workspace.join(path)),
    );
}

/// Fault X1: neither under another name nor with other folders around it.
#[test]
fn what_is_protected_cannot_be_replaced() {
    let Some(cage) = ConfinedWorkspace::new(SandboxLevel::Namespaces, repository) else { return };
    for denied in [
        "mv .git old && cp -r old .git && echo evil > .git/hooks/pre-commit",
        "mv .git/hooks .git/old",
        "mv .architect old",
        "rm -rf .architect",
        "ln -s .git/hooks way && echo evil > way/pre-commit",
        "ln .git/config other && echo evil >> other",
        "exec 3< .git/hooks; echo evil > /proc/self/fd/3/pre-commit",
        "mv $PWD/../w ../other",
        "umount .git/hooks",
        "echo evil >> .git/config",
    ] {
        assert!(!cage.succeeds(denied), "{denied}");
    }
    assert!(cage.run("mv .git old").contains("sandbox denied: "), "a busy folder is explained");
    cage.run("rm -rf .git; mkdir -p .git/hooks; echo evil > .git/hooks/pre-commit");
    let hooks = cage.world.path.join(".git/hooks");
    assert!(!hooks.join("pre-commit").exists() && cage.world.path.join(".git/config").exists());
}

/// Such a folder is searched for repositories, too: a command could close one with a repository in it.
#[test]
fn folders_that_are_closed_to_their_owner_stay_so() {
    for level in [SandboxLevel::Namespaces, SandboxLevel::Landlock] {
        let closed =
            [("none", 0o000), ("listed", 0o400), ("listed/inside", 0o500), ("sticky", 0o1060)];
        let Some(cage) = ConfinedWorkspace::new(level, |policy| {
            for (name, _) in closed {
                fs::create_dir_all(policy.workspace.join(name)).unwrap();
            }
            for (name, mode) in closed.iter().rev() {
                set_mode(&policy.workspace.join(name), *mode);
            }
        }) else {
            continue;
        };
        let path = |name: &str| cage.world.path.join(name);
        cage.run("mkdir -p own/in; git init -q own/in/r; echo '[core]\nfsmonitor = evil' > own/in/r/.git/config; chmod 0 own/in own");
        let modes = closed.map(|(name, _)| {
            let found = fs::metadata(path(name)).unwrap().permissions().mode();
            set_mode(&path(name), 0o700);
            (name, found & 0o7777)
        });
        assert_eq!(modes, closed, "{level}");
        set_mode(&path("own"), 0o700);
        set_mode(&path("own/in"), 0o700);
        let config = fs::read_to_string(path("own/in/r/.git/config")).unwrap_or_default();
        assert!(!config.contains("evil"), "{level}: {config}");
    }
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// A command in the background does not end for a long time, so the files that it makes are looked for when another
/// command has ended, from time to time, and at the end of the run.
#[test]
fn what_a_command_in_the_background_makes_is_set_aside_while_it_runs() {
    let script = "mkdir -p .vscode n; git init -q n; echo evil > .vscode/tasks.json\n\
                  echo '#!/bin/sh' > n/.git/hooks/post-checkout; chmod +x n/.git/hooks/post-checkout; touch made\n";
    for level in [SandboxLevel::Namespaces, SandboxLevel::Landlock] {
        let Some(cage) = ConfinedWorkspace::new(level, |policy| {
            repository(policy);
            policy.protected.push(policy.workspace.join(".vscode/tasks.json"));
        }) else {
            continue;
        };
        let path = |name: &str| cage.world.path.join(name);
        let hook = path("n/.git/hooks/post-checkout");
        let is_made = || path("made").exists();
        let again = |when: &str| {
            let _ = fs::remove_file(path("made"));
            cage.world.ok("command_input", &json!({"call_id": "call-1", "text": "go"}));
            wait_until(when, is_made);
        };
        cage.world.write("make.sh", script);
        let command = "trap 'sh make.sh; exit' TERM; while read x; do sh make.sh; done";
        let begin = json!({"command": command, "background": true});
        cage.world.ok("run_command", &begin);
        again("the files are made");
        cage.run("true");
        assert!(!hook.exists(), "{level}: after another command");
        wait_until("what was not there is set aside", || !path(".vscode/tasks.json").exists());
        again("the files are made again");
        wait_until("the hook is set aside", || !hook.exists());
        wait_until("what was not there is set aside", || !path(".vscode/tasks.json").exists());
        let state = cage.world.ok("command_output", &json!({"call_id": "call-1"}));
        assert!(state.ends_with("still running]"), "{state}");
        let _ = fs::remove_file(path("made"));
        cage.world.registry.finish(Duration::from_secs(20));
        assert!(is_made(), "{level}: it makes them at its end");
        assert!(!hook.exists() && !path(".vscode/tasks.json").exists(), "{level}: at the end");
    }
}

/// Undoing the changes of a command takes a copy. Without one, the command's result says so.
#[test]
fn protected_files_that_grow_too_large_to_be_restored_are_reported() {
    let Some(cage) = ConfinedWorkspace::new(SandboxLevel::Landlock, repository) else { return };
    assert!(cage.run("echo evil >> .git/config").contains("was undone"));
    let large = fs::File::create(cage.world.path.join(".git/hooks/large")).unwrap();
    large.set_len(33 << 20).unwrap();
    let text = cage.run("true");
    assert!(text.contains("protected files could not be recorded before the command"), "{text}");
}

/// A program that makes protected files again and again is stopped.
#[test]
fn a_command_in_the_background_that_does_not_give_up_is_stopped() {
    let Some(cage) = ConfinedWorkspace::new(SandboxLevel::Namespaces, |policy| {
        policy.protected.extend((0..30).map(|number| policy.workspace.join(format!("p{number}"))));
    }) else {
        return;
    };
    let command = "while true; do touch p{0..29}; sleep 0.1; done";
    cage.world.ok("run_command", &json!({"command": command, "background": true}));
    let wait = json!({"call_id": "call-1", "wait": 30, "until_end": true});
    let end = cage.world.ok("command_output", &wait);
    assert!(
        end.contains("it was stopped, since it changed protected files again and again"),
        "{end}"
    );
    assert!(end.contains("p0 is protected"), "{end}");
    assert!(!cage.world.path.join("p0").exists());
}

/// Fault X1: a path that does not exist cannot be made read-only, so it is looked for after the command, at any kind of
/// end.
#[test]
fn what_is_protected_and_not_there_is_set_aside() {
    for level in [SandboxLevel::Namespaces, SandboxLevel::Landlock] {
        let Some(cage) = ConfinedWorkspace::new(level, |policy| {
            repository(policy);
            fs::remove_dir(policy.workspace.join(".architect")).unwrap();
        }) else {
            continue;
        };
        let output =
            cage.run("mkdir .architect && echo evil > .architect/config.toml && chmod 555 .");
        assert!(output.contains("renamed to .architect.denied"), "{output}");
        assert!(!cage.world.path.join(".architect").exists());
        assert!(cage.world.path.join(".architect.denied/config.toml").exists());
        cage.run("ln -s elsewhere .git/commondir; kill -9 $$");
        assert!(fs::symlink_metadata(cage.world.path.join(".git/commondir")).is_err());
        cage.run("(setsid sh -c 'trap \"\" TERM; sleep 0.1; echo x > .git/commondir; sleep 60' &)");
        assert!(!cage.world.path.join(".git/commondir").exists());
    }
}

/// Files that the user makes meanwhile stay, and no command writes them from then on.
#[test]
fn what_the_user_makes_meanwhile_is_protected_as_well() {
    let change = |policy: &mut SandboxPolicy| {
        fs::remove_dir(policy.workspace.join(".architect")).unwrap();
    };
    let Some(cage) = ConfinedWorkspace::new(SandboxLevel::Namespaces, change) else { return };
    assert!(cage.succeeds("true"));
    cage.world.write(".architect/config.toml", "mine\n");
    assert!(!cage.succeeds("echo evil > .architect/config.toml"));
    assert_eq!(cage.world.read(".architect/config.toml"), "mine\n");
}

/// Fault X1: no command makes a program that runs as its owner, be that root.
#[test]
fn a_command_makes_no_set_uid_program() {
    for level in [SandboxLevel::Namespaces, SandboxLevel::Landlock] {
        let Some(cage) = ConfinedWorkspace::new(level, |_| {}) else { continue };
        assert!(cage.succeeds("cp /bin/sh own && chmod 755 own && chmod g+s .git"));
        for denied in ["chmod 4755 own", "chmod u+s own", "install -m 6755 /bin/sh other"] {
            assert!(!cage.succeeds(denied), "{level}: {denied}");
        }
        let mode = fs::metadata(cage.world.path.join("own")).unwrap().permissions().mode();
        assert_eq!(mode & 0o4000, 0);
    }
}
