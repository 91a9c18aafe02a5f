//! A rule and, after a line end, the text that it is compared with: a denial always takes precedence over a permission.
#![no_main]

use architect::policy::{CallKind, CallTarget, CommandTarget, Guardrails, PolicyEngine};
use architect::tools::permission_rules;
use architect::types::{ConfirmMode, Decision};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (rule, what) = text.split_once('\n').unwrap_or((text, ""));
    let engine = |deny: &[&str], allow: &[&str]| {
        let rules = permission_rules(deny, &[], allow)?;
        Ok::<_, architect::policy::RuleError>(PolicyEngine::new(
            ConfirmMode::Yolo,
            rules,
            Guardrails::default(),
        ))
    };
    let (denies, both) = match (engine(&[rule], &[]), engine(&[rule], &[rule])) {
        (Ok(denies), Ok(both)) => (denies, both),
        (Err(error), Err(_)) => return assert!(!error.to_string().is_empty()),
        _ => panic!("a rule is valid in both lists or in neither"),
    };
    let command = CommandTarget::new(what, "", Vec::new());
    for (tool, kind, target) in [
        ("run_command", CallKind::Command, CallTarget::Command(command)),
        ("write_file", CallKind::Changes, CallTarget::Write(what.to_owned())),
        ("read_file", CallKind::Reads, CallTarget::Read(what.to_owned())),
    ] {
        let targets = [target];
        let decision = denies.decide(tool, kind, &targets);
        if let Decision::Deny { reason } = &decision {
            assert!(!reason.is_empty());
            assert_eq!(both.decide(tool, kind, &targets), decision);
        }
    }
});
