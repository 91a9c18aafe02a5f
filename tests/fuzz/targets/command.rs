//! The decision on a command line is always the same, and no mode or rule allows forbidden commands.
#![no_main]

use architect::policy::{CallKind, CallTarget, CommandTarget, Guardrails, PolicyEngine};
use architect::tools::permission_rules;
use architect::types::{ConfirmMode, Decision};

/// Returns policies, each at least as strict as the one before.
fn policies() -> [PolicyEngine; 3] {
    let policy = |mode, allow: &[&str], deny: &[&str]| {
        let rules = permission_rules(deny, &[], allow).unwrap();
        PolicyEngine::new(mode, rules, Guardrails::default())
    };
    [
        policy(ConfirmMode::Yolo, &["run_command"], &[]),
        policy(ConfirmMode::Yolo, &[], &["run_command(rm *)"]),
        policy(ConfirmMode::ConfirmSensitive, &[], &["run_command(rm *)"]),
    ]
}

thread_local!(static POLICIES: [PolicyEngine; 3] = policies());

/// Returns a rank of the decision: denied, confirmation needed, allowed.
fn freedom(policy: &PolicyEngine, line: &str) -> u8 {
    let command = CommandTarget::new(line, "", Vec::new());
    match policy.decide("run_command", CallKind::Command, &[CallTarget::Command(command)]) {
        Decision::Deny { reason } => {
            assert!(!reason.is_empty());
            0
        }
        Decision::Ask { .. } => 1,
        Decision::Allow { .. } => 2,
    }
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Ok(line) = std::str::from_utf8(data) else { return };
    POLICIES.with(|policies| {
        let free: Vec<u8> = policies.iter().map(|policy| freedom(policy, line)).collect();
        assert!(free.is_sorted_by(|a, b| a >= b), "{line:?}: {free:?}");
        assert_eq!(free[2], freedom(&policies[2], line));
    });
});
