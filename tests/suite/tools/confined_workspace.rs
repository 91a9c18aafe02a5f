//! A confined workspace, for a test.

use std::fs;
use std::path::PathBuf;

use architect::exec::{Enforcement, SandboxLevel, SandboxMode, SandboxPolicy};
use serde_json::json;

use super::fixture::{ToolFixture, yolo_settings};

/// A confined workspace, and the folders around it.
pub(crate) struct ConfinedWorkspace {
    pub(crate) world: ToolFixture,
    pub(crate) enforced: Enforcement,
    pub(crate) outside: PathBuf,
}

impl ConfinedWorkspace {
    /// Returns a workspace confined at this level; `None` if the system does not support it.
    pub(crate) fn new(
        level: SandboxLevel,
        change: impl FnOnce(&mut SandboxPolicy),
    ) -> Option<Self> {
        let world = ToolFixture::with(yolo_settings(), |policy| {
            policy.mode = SandboxMode::WorkspaceWrite;
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
        let enforced = world.supervisor.enforcement().unwrap();
        let outside = world.path.parent().unwrap().join("outside");
        if enforced.level == level {
            Some(Self { world, enforced, outside })
        } else {
            eprintln!("skipped: {level} is not supported here: {enforced:?}");
            None
        }
    }

    /// Runs a command, and returns the text of its result.
    pub(crate) fn run(&self, command: &str) -> String {
        let call = json!({"command": command, "timeout": 20});
        self.world.call("run_command", &call).text.to_string()
    }

    /// Returns whether a command succeeds.
    pub(crate) fn succeeds(&self, command: &str) -> bool {
        let output = self.run(command);
        let can = output.contains("[exit code 0");
        println!(
            "{} {command}: {}",
            if can { "can" } else { "cannot" },
            output.replace('\n', " | ")
        );
        can
    }

    /// Returns whether [`inside`](super::confinement::inside) can do something.
    pub(crate) fn can_do(&self, what: &str) -> bool {
        let test = std::env::current_exe().unwrap();
        self.succeeds(&format!(
            "INSIDE='{what}' '{}' --exact tools::confinement::inside --ignored",
            test.display()
        ))
    }
}
