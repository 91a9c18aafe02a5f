//! The decision on a command line is always the same, and no mode or rule allows what is forbidden.
#![no_main]

use architect::model::ToolCall;
use architect::policy::{ConfirmMode, PermissionRules};
use architect::tools::{ToolRegistry, ToolSettings, standard_tools};
use architect::workspace::WorkspaceRoot;

/// Policies, each at least as strict as the one before.
struct Policies([ToolRegistry; 3], #[allow(dead_code)] tempfile::TempDir);

fn policies() -> Policies {
    let folder = architect_fuzz::folder();
    let registry = |mode, allow: &[&str], deny: &[&str]| {
        let rules = PermissionRules::parse(deny, &[], allow).unwrap();
        let settings = ToolSettings { mode, rules, ..ToolSettings::default() };
        let policy = architect::exec::SandboxPolicy::off(folder.path());
        let supervisor = architect::exec::Supervisor::in_process(policy, Vec::new());
        let root = WorkspaceRoot::open(folder.path()).unwrap();
        ToolRegistry::new(standard_tools(&root, &supervisor, &settings), settings)
    };
    let all = [
        registry(ConfirmMode::Yolo, &["run_command"], &[]),
        registry(ConfirmMode::Yolo, &[], &["run_command(rm *)"]),
        registry(ConfirmMode::ConfirmSensitive, &[], &["run_command(rm *)"]),
    ];
    Policies(all, folder)
}

thread_local!(static POLICIES: Policies = policies());

/// Returns a rank of the decision: denied, confirmation needed, allowed.
fn freedom(registry: &ToolRegistry, call: &ToolCall) -> u8 {
    match registry.judge(call) {
        Err(answer) => {
            assert!(!answer.text.is_empty());
            0
        }
        Ok(judged) => match judged.decision {
            architect::policy::Decision::Deny(_) => 0,
            architect::policy::Decision::Ask(_) => 1,
            architect::policy::Decision::Allow(_) => 2,
        },
    }
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Ok(line) = std::str::from_utf8(data) else { return };
    let arguments = serde_json::json!({"command": line}).to_string();
    let call = ToolCall::new("c".into(), "run_command", &arguments);
    POLICIES.with(|Policies(all, _)| {
        let free: Vec<u8> = all.iter().map(|registry| freedom(registry, &call)).collect();
        assert!(free.is_sorted_by(|a, b| a >= b), "{line:?}: {free:?}");
        assert_eq!(free[2], freedom(&all[2], &call));
    });
});
