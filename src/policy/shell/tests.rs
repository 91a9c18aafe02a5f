//! Comparison of the parser with a shell.

use std::process::Command as Process;

use proptest::prelude::*;
use rustix::time::{ClockId, clock_gettime};

use super::*;

/// Returns the words of every program in a line, including inner programs.
fn programs(line: &str) -> Vec<String> {
    let mut found = Vec::new();
    let script = parse_line(line).unwrap_or_else(|why| panic!("{line}: {}", why.0));
    for command in script.commands() {
        if command.kind == CommandKind::Simple {
            let words: Vec<&str> = command.words.iter().map(|word| word.text.as_str()).collect();
            found.push(words.join("|"));
        }
    }
    found
}

#[test]
fn every_program_of_a_line_is_found() {
    for (line, expected) in [
        ("ls; touch x", &["ls", "touch|x"][..]),
        ("a && b || c & d", &["a", "b", "c", "d"]),
        ("a | b |& c", &["a", "b", "c"]),
        ("echo $(touch x) `touch y`", &["echo|$(…)|$(…)", "touch|x", "touch|y"]),
        ("echo \"$(touch \"a b\")\"", &["echo|$(…)", "touch|a b"]),
        ("cat <(touch x) > >(touch y)", &["cat|<(…)", "touch|x", "touch|y"]),
        ("(a; b); { c; d; }", &["a", "b", "c", "d"]),
        ("if a; then b; elif c; then d; else e; fi", &["a", "b", "c", "d", "e"]),
        ("while a; do b; done < f", &["a", "b"]),
        ("for x in $(a) b; do c $x; done", &["a", "c|$x"]),
        ("case $x in a|b) c;; (d) e ;; *) f; esac", &["c", "e", "f"]),
        ("f() { a; }; function g { b; }", &["a", "b"]),
        ("X=$(a) b", &["b", "a"]),
        ("a=(x $(b)); c", &["", "b", "c"]),
        ("! a; time -p b", &["a", "b"]),
        ("[[ -n $(a) && x < y ]] && b", &["[[|-n|$(…)|&|&|x|<|y|]]", "a", "b"]),
        ("a # b; c\nd", &["a", "d"]),
        ("a \\\n b", &["a|b"]),
        ("cat <<E | sh\n$(a)\nE\nb", &["cat", "a", "sh", "b"]),
        ("cat <<'E'\n$(a)\nE\nb", &["cat", "b"]),
        ("cat <<E # don't\n\"$(a)\" it's\nE\nb", &["cat", "a", "b"]),
        ("a <<'E' && (b\nx\nE\nc)", &["a", "b", "c"]),
        ("a <<E <<'F' | b \"$x\" $(c)\nE\n$(x)\nF\nd", &["a", "b|$x|$(…)", "c", "d"]),
        ("a \"$(b <<'E'\nit's $(x) (\nE\n)\"", &["a|$(…)", "b"]),
        ("a <<E\nb \\\nc\nE\nd", &["a", "d"]),
        ("echo ${x:-$(a)} $((1 + $(b)))", &["echo|${x:-$(…)}|$((…))", "a", "b"]),
        ("echo a#b", &["echo|a#b"]),
    ] {
        assert_eq!(programs(line), expected, "{line}");
    }
}

#[test]
fn quotes_are_taken_away() {
    for (line, expected) in [
        (r#"s"u"d'o' x"#, "sudo|x"),
        (r"\sudo x", "sudo|x"),
        (r"$'\x73udo' $'a\tb'", "sudo|a\tb"),
        (r#"'a b' "c $x" "\$d""#, "a b|c $x|$d"),
        ("${HOME}/x", "$HOME/x"),
    ] {
        assert_eq!(programs(line), [expected], "{line}");
    }
}

#[test]
fn uncertain_words_are_marked() {
    let form = |line: &str| {
        let script = parse_line(line).unwrap();
        let command = &script.pipelines[0].commands[0];
        assert_eq!(command.kind, CommandKind::Simple);
        command.words[0].form
    };
    assert_eq!(form("'$x*~'"), WordForm::Literal);
    assert_eq!(form("a*"), WordForm::Pattern);
    for computed in ["$x", "\"$x\"", "~", "{a,b}", "$(a)", "$((1+2))"] {
        assert_eq!(form(computed), WordForm::Computed, "{computed}");
    }
    for evaluated in ["$((x))", "${x@P}", "${!x}", "${x[1]}", "${x:y}"] {
        assert_eq!(form(evaluated), WordForm::Evaluated, "{evaluated}");
    }
}

#[test]
fn redirections_are_found() {
    let redirections = |line: &str| {
        let script = parse_line(line).unwrap();
        let found = script.pipelines[0].commands[0].redirections.iter();
        found.map(|found| (found.kind, found.target.text.clone())).collect::<Vec<_>>()
    };
    let (read, write, same) =
        (RedirectionKind::Read, RedirectionKind::Write, RedirectionKind::Duplicate);
    let expected = [(read, "a".into()), (write, "b".into()), (same, "1".into())];
    assert_eq!(redirections("x < a > b 2>&1"), expected);
    assert_eq!(redirections("x &> a")[0], (write, "a".into()));
    assert_eq!(redirections("x >& a")[0], (write, "a".into()));
    assert_eq!(redirections("{ x; } >> a")[0], (write, "a".into()));
    assert_eq!(redirections("x <<< a")[0], (RedirectionKind::HereDocument, "a".into()));
    assert_eq!(redirections("> a")[0], (write, "a".into()));
}

/// Fault X14: a line that is made to take long does not.
#[test]
fn no_line_takes_long() {
    for line in [
        "{a,b}".repeat(20_000),
        "env ".repeat(30_000),
        format!("xargs -Z {}", "a ".repeat(60_000)),
        "cat <<E\nE\n".repeat(10_000),
        format!("echo {}", "$(a) ".repeat(20_000)),
        "a|".repeat(60_000) + "a",
        "{a,".repeat(40_000),
        "cd a;".repeat(20_000),
        "a[0]=1 rm -rf x ".repeat(8_000),
        format!("a[0]=1;{}", "curl x|".repeat(18_000)),
        format!("a[0]=1;{}", "sh -c $(curl x) ".repeat(8_000)),
        format!("{}{}", "x=1;x=2;x=3;x=4;x=5;".repeat(5), "$x;".repeat(20_000)),
        format!(
            "{}{}",
            (0..30).map(|n| format!("x={n};")).collect::<String>(),
            "$x;".repeat(20_000)
        ),
        "x=".repeat(60_000),
        format!(
            "{}; {}",
            (0..30).map(|n| format!("x={n}")).collect::<Vec<_>>().join(";"),
            "$x ".repeat(40_000)
        ),
        "cat <<E\n".to_owned() + &"a\\\n".repeat(40_000) + "\nE",
    ] {
        let begun = clock_gettime(ClockId::ThreadCPUTime).tv_sec;
        let line = crate::policy::command_analysis::CommandLine::parse(&line, "");
        let _ = crate::policy::command_analysis::forbidden_reason(&line);
        let spent = clock_gettime(ClockId::ThreadCPUTime).tv_sec - begun;
        assert!(spent < 20, "{:.30}: {spent} s", line.raw);
    }
}

#[test]
fn unparsable_lines_are_rejected() {
    for line in [
        "a 'b",
        "a \"b",
        "a $(b",
        "a)",
        "a `b",
        "a &&",
        "a !(b)",
        "if a; then b",
        "coproc a",
        "cat << E",
        "a ;; b",
        "fi (",
        "a b(c)",
        "$((a); (b))",
        // Shells differ in reading these lines, or see their end elsewhere.
        "echo \"${x:-'$(a)'}\"",
        "echo \"${x:-'}\"; a; echo \"${x:-'}\"",
        "cat <<E\n${x:-'$(a)'}\nE",
        "cat <<E\n${x:-\"'$(a)'\"}\nE",
        "echo \"${x:-$'\\''$(a)'}\"",
        "echo $'\\'; a; echo $'\\'",
        "echo \"`echo \\\"'\\\"; a; echo \\\"'\\\"`\"",
        "cat <<'true' \\\n; a\ntrue\ntrue",
        "cat <<'true' $(echo\na\ntrue\n)\ntrue",
        "cat <<'true' `echo\na\ntrue\n`\ntrue",
        "cat <<'true' ${x:-\na\ntrue\n}\ntrue",
        "cat <<'true' \"a\na\ntrue\n\"\ntrue",
        "cat <<'true' 'a\na\ntrue\n'\ntrue",
        "cat <<'true' $((1+\n1))\ntrue\ntrue",
        "cat <<'true'; x=(\na\ntrue\n)\ntrue",
        "cat <<E\\\nF\n$(a)\nEF",
        "cat <<'E'F\na\nEF",
        "cat <<$'E'\na\nE",
        "cat <<E\nx\\\nE\ncat <<'F'\nE\na\nF",
        "cat <<EF\nE\\\nF\na\nEF",
        "[[ x =~ ( ]] && (cat <<'E' ) && [[ ) ]]\na\nE",
        "[[ x == # ]]; a\nx ]]",
    ] {
        assert!(parse_line(line).is_err(), "{line}");
    }
    assert!(parse_line(&"(".repeat(100_000)).is_err());
    assert!(parse_line(&"$(".repeat(100_000)).is_err());
    assert!(parse_line(&"${".repeat(60_000)).is_err());
    assert_eq!(parse_line("").unwrap(), ShellScript::default());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Fault X14: the parser terminates without a panic for every line.
    #[test]
    fn no_line_breaks_the_reader(line in "[a-c$(){}<>|&;'\"`\\\\ \n#=\\[\\]*~!]{0,40}") {
        let _ = parse_line(&line);
    }

    /// Fault X14: where the parser finds one program with these words, so does the shell.
    #[test]
    fn a_shell_sees_the_same_words(line in "[ab'\"\\\\ =#;|&-]{0,12}") {
        let Ok(script) = parse_line(&format!("printf '[%s]' {line}")) else { return Ok(()) };
        let [pipeline] = script.pipelines.as_slice() else { return Ok(()) };
        let [stage] = pipeline.commands.as_slice() else { return Ok(()) };
        if stage.kind != CommandKind::Simple {
            return Ok(());
        }
        let is_certain = stage.words.iter().all(ShellWord::is_literal) && !pipeline.is_background;
        if is_certain && stage.words.len() > 2 {
            let shell = Process::new("bash").args(["-c", &format!("printf '[%s]' {line}")]).output();
            let seen = String::from_utf8(shell.unwrap().stdout).unwrap();
            let words: Vec<&str> = stage.words[2..].iter().map(|word| word.text.as_str()).collect();
            let read = format!("[{}]", words.join("]["));
            prop_assert_eq!(read, seen);
        }
    }
}
