//! Hidden and protected files, and sockets, that a program outside makes again while architect runs.

use std::fs;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

use architect::exec::{SandboxGap, SandboxLevel};

use crate::kit::cli::CliFixture;
use crate::tools::confined_workspace::ConfinedWorkspace;

/// Writes a file as most programs do: under another name, and then in its place.
fn replace(path: &Path, content: &str) {
    let beside = path.with_extension("new");
    fs::write(&beside, content).unwrap();
    fs::rename(beside, path).unwrap();
}

/// A mount disappears with the file that it was made at.
#[test]
fn a_file_that_the_user_replaces_stays_hidden_and_protected() {
    for level in [SandboxLevel::Namespaces, SandboxLevel::Landlock] {
        let cage = ConfinedWorkspace::new(level, |policy| {
            let outside = policy.workspace.parent().unwrap().join("outside");
            fs::write(outside.join("token"), "first").unwrap();
            fs::write(policy.workspace.join(".git/config"), "# first\n").unwrap();
            policy.hidden.extend([outside.join("token"), outside.join("later/token")]);
            policy.protected.push(policy.workspace.join(".git/config"));
        });
        let Some(cage) = cage else { continue };
        let (token, later) = (cage.outside.join("token"), cage.outside.join("later/token"));
        let config = cage.world.path.join(".git/config");
        for round in 0..3 {
            assert!(cage.succeeds("true"));
            replace(&token, "CANARY");
            fs::create_dir_all(later.parent().unwrap()).unwrap();
            replace(&later, "CANARY");
            replace(&config, "# mine\n");
            let output = cage.run(&format!("cat {} {}", token.display(), later.display()));
            assert!(!output.contains("CANARY"), "{level}, {round}: {output}");
            cage.run("echo evil >> .git/config");
            assert_eq!(fs::read_to_string(&config).unwrap(), "# mine\n", "{level}, {round}");
        }
    }
}

/// A daemon that is started after the run, or again, is out of reach of the next command.
#[test]
fn sockets_that_are_made_between_commands_are_out_of_reach() {
    for level in [SandboxLevel::Namespaces, SandboxLevel::Landlock] {
        let Some(cage) = ConfinedWorkspace::new(level, |_| {}) else { continue };
        if cage.enforced.gaps.contains(&SandboxGap::LocalSockets) {
            continue;
        }
        assert!(cage.succeeds("true"));
        let path = cage.outside.join("socket");
        for round in 0..3 {
            let listener = UnixListener::bind(&path).unwrap();
            assert!(!cage.can_do(&format!("unix {}", path.display())), "{level}, {round}");
            drop(listener);
            fs::remove_file(&path).unwrap();
        }
    }
}

/// Architect itself writes the merged settings of a configuration; that gives the next command no other way to the
/// file.
#[test]
fn a_setting_that_is_taken_over_opens_the_way_for_no_other_one() {
    const SCRIPT: &str = r#"
[[turn]]
calls = [{ name = "run_command", arguments = { command = "git config user.name x" } }]
[[turn]]
calls = [{ name = "run_command", arguments = { command = "git config core.fsmonitor evil; echo '[core] pager = evil' >> .git/config" } }]
[[turn]]
calls = [{ name = "run_command", arguments = { command = "git config user.email y" } }]
[[turn]]
calls = [{ name = "run_command", arguments = { command = "git config core.sshCommand evil" } }]
[[turn]]
text = "Done."
"#;
    for args in [&[][..], &["--network", "off"]] {
        let world = CliFixture::new();
        let made =
            Command::new("git").args(["init", "-q", "."]).current_dir(world.path(".")).status();
        assert!(made.unwrap().success());
        assert_eq!(world.run_script(SCRIPT, &[&["--mode", "yolo"][..], args].concat()).code, 0);
        let config = fs::read_to_string(world.path(".git/config")).unwrap();
        assert!(config.contains("name = x") && config.contains("email = y"), "{config}");
        assert!(!config.contains("evil"), "{config}");
    }
}
