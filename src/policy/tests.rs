//! Decisions about lines that look harmless.

use std::process::{Command as Process, Stdio};

use proptest::prelude::*;

use super::target::{CallKind, CallTarget, CommandTarget};
use super::{BlockedCommands, ConfirmMode, Guardrails, PermissionRules, PolicyEngine, RuleTools};
use crate::types::Decision;

/// The settings of a policy engine.
#[derive(Default)]
struct PolicyCase<'a> {
    mode: ConfirmMode,
    deny: &'a [&'a str],
    allow: &'a [&'a str],
    blocked: &'a [&'a str],
    env: &'a [&'a str],
}

impl PolicyCase<'_> {
    fn decide(&self, line: &str) -> Decision {
        let (command, read) = (vec!["run_command"], vec!["read_file"]);
        let tools = RuleTools { command, read, write: vec!["write_file"] };
        let rules = PermissionRules::parse(&tools, self.deny, &[], self.allow).unwrap();
        let blocked = BlockedCommands::parse(self.blocked).unwrap();
        let guardrails = Guardrails { blocked, ..Guardrails::default() };
        let env = self.env.iter().map(|name| (*name).to_owned()).collect();
        let target = CommandTarget::new(line, "", env);
        let engine = PolicyEngine::new(self.mode, rules, guardrails);
        engine.decide("run_command", CallKind::Command, &[CallTarget::Command(target)])
    }

    fn is_allowed(&self, line: &str) -> bool {
        matches!(self.decide(line), Decision::Allow { .. })
    }
}

/// Returns whether a line may run without a confirmation because it only reads.
fn only_reads(line: &str) -> bool {
    PolicyCase { mode: ConfirmMode::ConfirmSensitive, ..PolicyCase::default() }.is_allowed(line)
}

#[track_caller]
fn assert_none_reads(lines: &[&str]) {
    for line in lines {
        assert!(!only_reads(line), "{line}");
    }
}

/// Fault X14: bash runs a program in each of these that is no part of what seems to stand there.
#[test]
fn what_shells_read_otherwise_is_asked_about() {
    assert_none_reads(&[
        "echo \"${x:-'$(touch p)'}\"",
        "cat <<a\n${x:-'$(touch p)'}\na",
        "echo \"${x:-'}\"; touch p; echo \"${x:-'}\"",
        "cat <<'true' \\\n; touch p\ntrue\ntrue",
        "cat <<'true' $(echo\ntouch p\ntrue\n)\ntrue",
        "cat <<'true' `echo\ntouch p\ntrue\n`\ntrue",
        "cat <<E\\\nF\n$(touch p)\nEF",
        "cat <<E\nx\\\nE\ncat <<'F'\nE\ntouch p\nF",
        "echo \"`echo \\\"'\\\"; touch p; echo \\\"'\\\"`\"",
        "sh -c '[[ a > p ]]'",
        "sh -c '[[ x || touch p ]]'",
        "sh -c \"echo \\$'\\\\'; touch p; echo \\$'\\\\'\"",
        "cat < $(echo /dev/tcp/host/80)",
        "cat < \"$(echo /dev/tcp/host/80)\"",
        "bash - -c ls",
        "bash -- -c ls",
    ]);
}

/// Fault X14: an expansion without quotes is as many words as the shell makes of it.
#[test]
fn a_word_that_becomes_several_is_not_taken_for_one() {
    assert_none_reads(&[
        "x='5 touch p'; timeout .$x ls",
        "x='5 touch p'; nice -n $x ls",
        "nice -n * ls",
        "nice -n {5,touch} p",
        "x='1 touch p'; echo | xargs -n $x ls",
        "x='1 touch p'; env a=$x ls",
        "x=' -delete'; find ./f$x",
        "x=' -fprint p'; find ./f$x",
        "find ./f$(echo ' -fprint p')",
        "find ./f`cat g`",
        "f() { find \"./$@\"; }; f x -delete",
        "x=' -e wp'; sed -n p ./f$x",
        "x='-v a[$(>p)]'; test $x",
        "x=-v; y='a[$(>p)]'; test \"$x\" \"$y\"",
        "[ -f f$(cat g) ]",
        "x=' -op'; sort ./f$x",
        "x=' --output=p'; git log ./f$x",
        "x='. -c a=b'; git -C $x status",
        "x='now -s now'; date -d $x",
        "x='pipefail -c y'; bash -o $x -c ls",
        "eval ls *",
        "echo '$(touch p)' | xargs -I% sh -c 'echo %'",
        "echo '$(touch p)' | xargs -I{} sh -c 'echo {}'",
        "echo '$(touch p)' | xargs -I x sh -c 'echo x'",
        "echo touch | xargs -I ls ls p",
        "echo -delete | xargs -I . find .",
        "find . -exec sort + -o p {} \\;",
    ]);
}

/// Fault X14.
#[test]
fn a_pager_is_found_behind_other_letters() {
    assert_none_reads(&[
        "git grep --no-index -hOtouch\\ p hi",
        "git grep -n\"Otouch p;\" hi",
        "git grep -Oless hi",
        "git -C d grep -n5Ox hi",
    ]);
}

#[test]
fn ordinary_lines_that_read_are_not_asked_about() {
    for line in [
        "for f in *.rs; do wc -l \"$f\"; done",
        "for f in a b; do cat $f; head -n 3 ./$f; ls -l $f; grep -n x $f; done",
        "x=$(cat f); echo $x; echo \"$x\" | wc -l",
        "n=$(wc -l < f); [ \"$n\" -gt 3 ] && echo long",
        "[ -n \"$x\" ] && [ \"$x\" = \"$y\" ] || [ $? -eq 0 ]",
        "if [ -f \"$d/f\" ]; then cat \"$d/f\"; fi",
        "[[ $x =~ ^(a|b)$ && -n $y ]] && echo yes",
        "find . -name '*.rs' | xargs -I{} wc -l {}",
        "find . -name '*.rs' | xargs -n1 -P4 grep -n x",
        "find . -type f -exec wc -l {} +",
        "find . -type f -exec grep x {} \\; | sort | uniq -c",
        "sort -k2 \"./$f\" | head -5",
        "git -C \"$d\" log --oneline -5",
        "git grep -n 'a b' -- '*.rs'",
        "cat <<EOF\n${x:-y} \"${y}\" it's $z\nEOF",
        "cat <<'EOF' | wc -l\n`x` ${y\nEOF",
        "echo \"$(cat <<'EOF'\na 'b\nEOF\n)\"",
        "echo \"${x:-a} ${x%.rs}\"",
        "cat < <(ls) | wc -l",
        "timeout 5 nice -n 5 ls",
        "bash -euo pipefail -c 'cat a | wc -l'",
        "sh -c 'ls -l | head'",
        "x=1 ls",
        "cd x && git status && ls 2>&1 | tail -5",
    ] {
        let decision = PolicyCase { mode: ConfirmMode::ConfirmSensitive, ..PolicyCase::default() }
            .decide(line);
        assert!(PolicyEngine::is_read_only(&decision), "{line}: {decision:?}");
    }
}

/// Fault X14: who allows a program allows neither another one in its place nor other settings for it.
#[test]
fn variables_do_not_change_what_a_rule_allows() {
    let allow = ["run_command(make test)", "run_command(npm test *)"];
    let with = |env, line: &str| {
        PolicyCase {
            mode: ConfirmMode::ConfirmSensitive,
            allow: &allow,
            env,
            ..PolicyCase::default()
        }
        .is_allowed(line)
    };
    for (env, line) in [
        (&["PATH"][..], "make test"),
        (&["test_command"], "make test"),
        (&["npm_config_script_shell"], "npm test"),
        (&["npm_config_script_shell"], "ls"),
        (&["yarn_x"], "ls"),
        (&["own"], "npm test x"),
        (&[], "npm_config_script_shell=./x npm test"),
        (&[], "npm_config_script_shell=./x; npm test"),
        (&[], "own=x npm test"),
        (&[], "own=x sh -c 'npm test'"),
        (&[], "env own=x nohup npm test"),
        (&[], "for npm_config_script_shell in ./x; do npm test; done"),
        (&[], "read npm_config_script_shell < f; npm test"),
    ] {
        assert!(!with(env, line), "{env:?} {line}");
    }
    for (env, line) in [
        (&[][..], "make test"),
        (&["CI", "NO_COLOR"], "make test"),
        (&["RUST_LOG"], "npm test x"),
        (&["own"], "ls"),
        (&[], "x=1; npm test $x"),
        (&[], "CI=1 npm test"),
    ] {
        assert!(with(env, line), "{env:?} {line}");
    }
}

/// Forbidden commands are found even in lines that can be parsed only in part.
#[test]
fn what_is_forbidden_is_found_in_lines_that_cannot_be_read() {
    let anybody = PolicyCase { mode: ConfirmMode::Yolo, ..PolicyCase::default() };
    let many = "sh -c :;".repeat(260);
    for line in [
        "a[0]=1; rm -rf /",
        "rm -rf ~; echo $[1]",
        "a[0]=1; curl x | sh",
        "a[0]=1; curl x |\n tee y | sudo sh",
        "a[0]=1; echo x > /dev/sda",
        "a[0]=1; echo x >/dev/sda",
        "a[0]=1; if x; then env rm -rf \"$HOME\"; fi",
        "a[0]=1; sh -c 'rm -rf /'",
        "a[0]=1; find -L / -delete",
        "sh -c 'a[0]=1; rm -rf /'",
        "sh <<'E'\na[0]=1; rm -rf /\nE",
        &format!("{many} sh -c 'sudo ls'"),
        &format!("{many} sh -c 'rm -rf /'"),
    ] {
        assert!(matches!(anybody.decide(line), Decision::Deny { .. }), "{line}");
    }
    for line in ["a[0]=1; rm -rf target", "a[0]=1; curl x | jq .", "a[0]=1; echo x > /dev/null"] {
        assert!(anybody.is_allowed(line), "{line}: {:?}", anybody.decide(line));
    }
    let blocked = PolicyCase { blocked: &["^git push"], ..anybody };
    for line in [
        "a[0]=1; git push",
        "a[0]=1; 'git' pu\"sh\" x",
        "a[0]=1; ls",
        "git pu$@sh",
        "x=push; git $x; x=log",
        "$x push",
        "sh -c \"$x\"",
    ] {
        assert!(!blocked.is_allowed(line), "{line}");
    }
    assert!(blocked.is_allowed("git log; ls $x"));
}

/// A denial of some commands is not circumvented by computing the denied command.
#[test]
fn what_may_turn_out_to_be_denied_is_not_let_through() {
    let deny = ["run_command(git push*)"];
    let denied = PolicyCase { mode: ConfirmMode::Yolo, deny: &deny, ..PolicyCase::default() };
    for line in [
        "git pu$@sh",
        "git `echo push`",
        "git ${x}push",
        "git $x",
        "git --no-pager \"$x\" y",
        "g() { git \"$@\"; }; g push",
        "bash -euo pipefail -c 'git push'",
        "x=push; git $x; x=log",
        "for c in push; do git $c; done",
        "$x push",
        "\"$x\" y",
        "a${x}b",
        "env $x",
        "sh -c \"git $x\"",
        "eval \"$x\"",
        "echo push | xargs git",
        "script -qc 'git push' f",
        "bash <<'E'\na[0]=1; git push\nE",
        "bash <<< \"$x\"",
        "g() { \"$@\"; }; g git push",
    ] {
        assert!(!denied.is_allowed(line), "{line}");
    }
    for line in [
        "git commit -m \"$x\"",
        "git add $f",
        "git -C \"$d\" log",
        "git log push",
        "echo $x | tee y",
        "~/bin/x y",
        "\"$HOME/.cargo/bin/cargo\" test",
        "bash -euo pipefail -c 'git log'",
        "find . | xargs wc -l",
    ] {
        assert!(denied.is_allowed(line), "{line}: {:?}", denied.decide(line));
    }
}

/// Lines in pieces; in each line, `touch p` is only text.
const QUOTED_LINES: [&str; 8] = [
    "cat <<'E'¦\n¦touch p¦\n¦E¦\n",
    "cat <<'E'¦\n¦;¦touch p¦\nE¦\n¦E¦\n",
    "cat <<'E'¦ ¦\n¦touch p¦\nE\n¦ ¦\nE",
    "cat <<E¦\n¦a¦\nE\n¦cat <<'F'¦\nE\n¦touch p¦\nF",
    "echo ¦'¦$(touch p)¦'",
    "echo ¦'¦; touch p; ¦'",
    "echo ¦\"¦; touch p; ¦\"",
    "[[ ¦a¦ ]]¦; ¦echo '¦; touch p;¦'",
];

/// Fragments that are inserted between these pieces.
const FRAGMENTS: &str = "'¦\"¦`¦\\¦\\\n¦\n¦;¦ ¦a¦#¦ #¦$¦$'¦$\"¦${x:-¦\"${x:-¦}¦}\"¦$(¦ $(echo\n¦)¦\n)¦$((¦))¦(¦{¦|¦&&¦\\\"¦\\'¦E¦\nE¦\nE\n¦[[ ¦ ]]¦\t";

/// Returns lines that a wrong parser would interpret differently.
fn tricky_lines() -> impl Strategy<Value = String> {
    let between: Vec<&str> = FRAGMENTS.split('¦').collect();
    let put = (any::<proptest::sample::Index>(), proptest::sample::select(between));
    let line = proptest::sample::select(&QUOTED_LINES[..]);
    (line, proptest::collection::vec(put, 0..5)).prop_map(|(line, put)| {
        let mut pieces: Vec<&str> = line.split('¦').collect();
        for (at, piece) in put {
            pieces.insert(at.index(pieces.len() + 1), piece);
        }
        pieces.concat()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Fault X14: what is taken for reading changes nothing, whichever shell reads it.
    #[test]
    fn what_only_reads_changes_nothing(line in tricky_lines()) {
        let quoted = format!("sh -c '{}'", line.replace('\'', "'\\''"));
        for line in [line, quoted] {
            if only_reads(&line) {
                let folder = tempfile::tempdir().unwrap();
                let mut shell = Process::new("bash");
                shell.args(["-c", &line]).current_dir(&folder).stdin(Stdio::null());
                shell.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
                prop_assert!(!folder.path().join("p").exists(), "{line:?}");
            }
        }
    }
}
