//! Whatever a rule and a command line say, there is a decision, always the same, and nothing is freer for being denied.

use architect::tools::permission::{ConfirmMode, Decision, Guardrails, Judge, Rules};
use architect::tools::{CommandTarget, Kind, Target};
use proptest::prelude::*;

use super::{cases, nearly};

fn judge(mode: ConfirmMode, deny: &[&str], allow: &[&str]) -> Option<Judge> {
    let rules = Rules::parse(deny, &[], allow).ok()?;
    Some(Judge::new(mode, rules, Guardrails::default()))
}

/// How free a call is: refused, to be asked about, allowed.
fn freedom(judge: &Judge, line: &str) -> u8 {
    let (line, folder) = (line.to_owned(), String::new());
    let target = Target::Command(CommandTarget { line, folder, env: Vec::new() });
    match judge.decide_about("run_command", Kind::Command, &[target]) {
        Decision::Deny(why) => {
            assert!(!why.is_empty());
            0
        }
        Decision::Ask(_) => 1,
        Decision::Allow(_) => 2,
    }
}

proptest! {
    #![proptest_config(cases(1_000))]

    /// Fault X14: what stands in a command line can loosen nothing.
    #[test]
    fn any_command_line_is_judged_and_a_denial_never_loosens(
        line in nearly(&[
            "git ", "rm ", "-rf ", "/", "~", "sudo ", "ls ", ";", "&&", "||", "|", "&", "$(", ")", "`", "\"", "'", "\\",
            ">", "<<EOF\n", "EOF\n", "{", "}", "for i in ", "do ", "done", "a=b ", "${x:-y}", "#", "cat ", "\u{202e}", "! ",
            "eval ", "env ", "sh -c ", "exec ", "*", "if ", "then ", "fi", "((", "))", "[[ ", " ]]", "()",
        ]),
        rule in nearly(&["run_command", "write_file", "(", ")", "*", "**", "git ", "rm *", "|", "mcp_x", "[", "]", "{", "src/", " "]),
    ) {
        let free = judge(ConfirmMode::Yolo, &[], &["run_command"]).unwrap();
        let plain = judge(ConfirmMode::Yolo, &[], &[]).unwrap();
        let most = freedom(&free, &line);
        prop_assert!(freedom(&plain, &line) <= most);
        prop_assert_eq!(freedom(&plain, &line), freedom(&plain, &line));
        let Some(denied) = judge(ConfirmMode::Yolo, &[&rule], &["run_command"]) else { return Ok(()) };
        prop_assert!(freedom(&denied, &line) <= most);
        let careful = judge(ConfirmMode::ConfirmSensitive, &[&rule], &[]).unwrap();
        prop_assert!(freedom(&careful, &line) <= freedom(&plain, &line));
    }
}
