//! Any rule and command line lead to a decision, always the same, and a denial never makes a call freer.

use architect::policy::{
    CallKind, CallTarget, CommandTarget, ConfirmMode, Guardrails, PolicyEngine,
};
use architect::tools::permission_rules;
use architect::types::Decision;

use proptest::prelude::*;

use super::{almost_valid, proptest_config};

fn policy(mode: ConfirmMode, deny: &[&str], allow: &[&str]) -> Option<PolicyEngine> {
    let rules = permission_rules(deny, &[], allow).ok()?;
    Some(PolicyEngine::new(mode, rules, Guardrails::default()))
}

/// Returns a rank of the decision: denied, confirmation needed, allowed.
fn permissiveness(policy: &PolicyEngine, line: &str) -> u8 {
    let (line, folder) = (line.to_owned(), String::new());
    let target = CallTarget::Command(CommandTarget::new(&line, &folder, Vec::new()));
    match policy.decide("run_command", CallKind::Command, &[target]) {
        Decision::Deny { reason: why } => {
            assert!(!why.is_empty());
            0
        }
        Decision::Ask { .. } => 1,
        Decision::Allow { .. } => 2,
    }
}

proptest! {
    #![proptest_config(proptest_config(1_000))]

    /// Fault X14: no content of a command line can loosen anything.
    #[test]
    fn any_command_line_is_decided_and_a_stricter_policy_never_allows_more(
        line in almost_valid(&[
            "git ", "rm ", "-rf ", "/", "~", "sudo ", "ls ", ";", "&&", "||", "|", "&", "$(", ")", "`", "\"", "'", "\\",
            ">", "<<EOF\n", "EOF\n", "{", "}", "for i in ", "do ", "done", "a=b ", "${x:-y}", "#", "cat ", "\u{202e}", "! ",
            "eval ", "env ", "sh -c ", "exec ", "*", "if ", "then ", "fi", "((", "))", "[[ ", " ]]", "()",
        ]),
        rule in almost_valid(&["run_command", "write_file", "(", ")", "*", "**", "git ", "rm *", "|", "mcp_x", "[", "]", "{", "src/", " "]),
    ) {
        let free = policy(ConfirmMode::Yolo, &[], &["run_command"]).unwrap();
        let plain = policy(ConfirmMode::Yolo, &[], &[]).unwrap();
        let most = permissiveness(&free, &line);
        prop_assert!(permissiveness(&plain, &line) <= most);
        prop_assert_eq!(permissiveness(&plain, &line), permissiveness(&plain, &line));
        let Some(denied) = policy(ConfirmMode::Yolo, &[&rule], &["run_command"]) else { return Ok(()) };
        prop_assert!(permissiveness(&denied, &line) <= most);
        let careful = policy(ConfirmMode::ConfirmSensitive, &[&rule], &[]).unwrap();
        prop_assert!(permissiveness(&careful, &line) <= permissiveness(&plain, &line));
    }
}
