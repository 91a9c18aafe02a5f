//! A confined workspace, for a test.

use std::fs;
use std::path::PathBuf;

use architect::exec::{Enforced, Level, Mode, Policy};
use serde_json::json;

use super::world::{World, yolo};

/// A confined workspace, and what lies around it.
pub(crate) struct Cage {
    pub(crate) world: World,
    pub(crate) enforced: Enforced,
    pub(crate) outside: PathBuf,
}

impl Cage {
    /// Returns a cage of this level; none when the system has no such level.
    pub(crate) fn new(level: Level, change: impl FnOnce(&mut Policy)) -> Option<Self> {
        let world = World::with(yolo(), |policy| {
            policy.mode = Mode::WorkspaceWrite;
            policy.ceiling = level;
            let around = policy.workspace.parent().unwrap().to_owned();
            for folder in ["outside", "state", "w/.git/hooks", "w/.architect"] {
                fs::create_dir_all(around.join(folder)).unwrap();
            }
            fs::write(around.join("outside/file"), "secret\n").unwrap();
            fs::write(around.join("state/journal"), "journal\n").unwrap();
            policy.protected =
                vec![policy.workspace.join(".git/hooks"), policy.workspace.join(".architect")];
            policy.hidden = vec![around.join("state")];
            change(policy);
        });
        let enforced = world.supervisor.enforced().unwrap();
        let outside = world.path.parent().unwrap().join("outside");
        if enforced.level == level {
            Some(Self { world, enforced, outside })
        } else {
            eprintln!("skipped: {level} cannot be had here: {enforced:?}");
            None
        }
    }

    /// Runs a command, and returns what the model is told.
    pub(crate) fn run(&self, command: &str) -> String {
        let call = json!({"command": command, "timeout": 20});
        self.world.call("run_command", &call).text.to_string()
    }

    /// Returns whether a command succeeds.
    pub(crate) fn can(&self, command: &str) -> bool {
        let said = self.run(command);
        let can = said.contains("[exit code 0");
        println!("{} {command}: {}", if can { "can" } else { "cannot" }, said.replace('\n', " | "));
        can
    }

    /// Returns whether [`inside`](super::confinement::inside) can do something.
    pub(crate) fn manages(&self, what: &str) -> bool {
        let test = std::env::current_exe().unwrap();
        self.can(&format!(
            "INSIDE='{what}' '{}' --exact tools::confinement::inside --ignored",
            test.display()
        ))
    }
}
