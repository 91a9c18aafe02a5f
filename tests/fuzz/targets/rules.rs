//! A rule, and behind a line end what it is held against: a denial goes before a permission, whatever both are.
#![no_main]

use architect::policy::{ConfirmMode, Decision, Guardrails, Judge, Rules};
use architect::tools::{CommandTarget, Kind, Target};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (rule, what) = text.split_once('\n').unwrap_or((text, ""));
    let judge = |deny: &[&str], allow: &[&str]| {
        let rules = Rules::parse(deny, &[], allow)?;
        Ok::<_, architect::policy::RuleError>(Judge::new(
            ConfirmMode::Yolo,
            rules,
            Guardrails::default(),
        ))
    };
    let (denies, both) = match (judge(&[rule], &[]), judge(&[rule], &[rule])) {
        (Ok(denies), Ok(both)) => (denies, both),
        (Err(error), Err(_)) => return assert!(!error.to_string().is_empty()),
        _ => panic!("a rule is one or is none"),
    };
    let command = CommandTarget { line: what.to_owned(), folder: String::new(), env: Vec::new() };
    for (tool, kind, target) in [
        ("run_command", Kind::Command, Target::Command(command)),
        ("write_file", Kind::Changes, Target::Write(what.to_owned())),
        ("read_file", Kind::Reads, Target::Read(what.to_owned())),
    ] {
        let targets = [target];
        let decision = denies.decide_about(tool, kind, &targets);
        if let Decision::Deny(why) = &decision {
            assert!(!why.is_empty());
            assert_eq!(both.decide_about(tool, kind, &targets), decision);
        }
    }
});
