//! Any patch is applied as a whole or not at all, and never outside the workspace.

use std::fs;
use std::path::Path;

use architect::exec::{SandboxPolicy, Supervisor};
use architect::policy::ConfirmMode;
use architect::port::{AuthorizationOutcome, Toolbox};
use architect::tools::{FileDeletion, ToolRegistry, ToolSettings, standard_tools};
use architect::types::ToolCall;
use architect::workspace::WorkspaceRoot;
use proptest::prelude::*;
use serde_json::json;

use crate::kit::effect::scope;

use super::{almost_valid, proptest_config};

/// Everything below a folder, sorted.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push((path.display().to_string(), fs::read(&path).unwrap())),
        }
    }
    found.sort();
    found
}

/// Makes the call; returns whether it succeeded, and the text of its result.
fn apply(workspace: &Path, patch: &str) -> (bool, String) {
    let supervisor = Supervisor::in_process(SandboxPolicy::off(workspace), Vec::new());
    let settings = ToolSettings {
        mode: ConfirmMode::Yolo,
        delete: FileDeletion::Allowed,
        ..ToolSettings::default()
    };
    let root = WorkspaceRoot::open(workspace).unwrap();
    let registry = ToolRegistry::new(standard_tools(&root, &supervisor, &settings), settings);
    let call = ToolCall::new("c".into(), "apply_patch", &json!({"patch": patch}).to_string());
    let scope = scope();
    let result = match registry.prepare(&call).authorize(&scope) {
        AuthorizationOutcome::Approved { call: job, .. } => job(&scope),
        AuthorizationOutcome::Rejected(result) => result,
        AuthorizationOutcome::Abort | AuthorizationOutcome::Edited { .. } => {
            panic!("no user is asked")
        }
    };
    (result.is_ok(), result.text.to_string())
}

proptest! {
    #![proptest_config(proptest_config(400))]

    /// Fault T24.
    #[test]
    fn any_patch_is_applied_as_a_whole_or_not_at_all(text in almost_valid(&[
        "--- a/a\n+++ b/a\n@@ -1,3 +1,3 @@\n 1\n-2\n+two\n 3\n", "--- a/b\n+++ b/b\n", "--- /dev/null\n+++ b/new\n",
        "--- a/b\n+++ /dev/null\n", "@@ -1 +0,0 @@\n", "@@ -0,0 +1 @@\n", "@@ -1,9 +1,999999999999 @@\n", "@@\n", " 1\n",
        "-x\n", "+y\n", "diff --git a/a b/c\n", "rename from a\nrename to c\n", "new file mode 100755\n",
        "deleted file mode 100644\n", "--- a/../out\n+++ b/../out\n", "\\ No newline at end of file\n", "GIT binary patch\n",
        "\"a\\303\"\n", "\r\n", "*** Begin Patch\n",
    ])) {
        let folder = tempfile::tempdir().unwrap();
        let workspace = folder.path().join("w");
        fs::create_dir(&workspace).unwrap();
        fs::write(workspace.join("a"), "1\n2\n3\n").unwrap();
        fs::write(workspace.join("b"), "x\n").unwrap();
        let before = files(folder.path());
        let (is_ok, reported) = apply(&workspace, &text);
        prop_assert!(!reported.is_empty());
        let after = files(folder.path());
        prop_assert!(is_ok || before == after, "refused, and yet something is changed: {reported}");
        prop_assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "something is outside");
    }
}
