//! The rule that is suggested to the user when a call needs a confirmation.

use super::engine::PolicyEngine;
use super::rules::{OPERATORS, PermissionRule, RuleTools};
use super::target::{CallKind, CallTarget, CommandTarget};
use crate::types::Decision;

/// Programs, and commands of them, that can be allowed with any arguments, because these only select what to work on.
/// Commands that run other programs or discard work are not among them.
const OPEN_COMMANDS: [(&str, &[&str]); 10] = [
    ("bun", &["test"]),
    ("cargo", &["bench", "build", "check", "clippy", "doc", "fmt", "test", "tree"]),
    ("dotnet", &["build", "format", "test"]),
    ("git", &["add", "commit", "fetch"]),
    ("go", &["build", "fmt", "mod", "test", "vet"]),
    ("gradle", &["build", "check", "test"]),
    ("mvn", &["compile", "package", "test", "verify"]),
    ("npm", &["test"]),
    ("pnpm", &["test"]),
    ("yarn", &["test"]),
];

impl PolicyEngine {
    /// Returns the engine with further rules that allow.
    pub fn with_allowed(&self, rules: &[PermissionRule]) -> Self {
        let mut engine = self.clone();
        engine.add_allowed(rules);
        engine
    }

    /// Returns a rule that would allow this and similar calls: the same command of a program, or files of the same
    /// folder. `None` if no rule would, since another rule asks.
    pub fn suggest_rule(
        &self,
        tools: &RuleTools,
        tool: &str,
        kind: CallKind,
        targets: &[CallTarget],
    ) -> Option<PermissionRule> {
        let rules = patterns(targets).into_iter().map(|pattern| match pattern {
            Some(pattern) => format!("{tool}({pattern})"),
            None => tool.to_owned(),
        });
        rules.filter_map(|text| PermissionRule::parse(tools, &text).ok()).find(|rule| {
            let engine = self.with_allowed(std::slice::from_ref(rule));
            matches!(engine.decide(tool, kind, targets), Decision::Allow { .. })
        })
    }
}

/// Returns the possible patterns, best first; `None` matches every call of the tool.
fn patterns(targets: &[CallTarget]) -> Vec<Option<String>> {
    match targets {
        [] => vec![None],
        [target, ..] if target.is_input() => Vec::new(),
        [CallTarget::Command(command)] => command_patterns(command).into_iter().map(Some).collect(),
        [CallTarget::Name(name)] => {
            is_plain_name(name).then(|| Some(name.clone())).into_iter().collect()
        }
        targets => {
            let paths = targets.iter().filter_map(|target| match target {
                CallTarget::Read(path) | CallTarget::Write(path) | CallTarget::Search(path) => {
                    Some(path.as_str())
                }
                CallTarget::Command(_) | CallTarget::Name(_) => None,
            });
            file_pattern(&paths.collect::<Vec<_>>()).into_iter().map(Some).collect()
        }
    }
}

/// Returns patterns for a command line: its command with any arguments, and the whole line.
///
/// A line gets no pattern if the same text can have another meaning. This holds for text that the shell replaces (`*`,
/// `$x`, `~`), which is a wildcard of the rule or depends on the time, and for invisible text (line ends, characters
/// without width).
fn command_patterns(command: &CommandTarget) -> Vec<String> {
    let text = command.text().trim_matches(' ');
    let is_plain = |c: char| c.is_alphanumeric() || " -_=./:@,+%'\";&|<>".contains(c);
    let line = command.line();
    if !text.chars().all(is_plain) || line.script.is_err() || !line.unparsed.is_empty() {
        return Vec::new();
    }
    let open = match (line.programs.as_slice(), text.split(' ').collect::<Vec<_>>().as_slice()) {
        // A quoted or redirected part is not an argument.
        ([_], [program, command, ..]) if !text.contains(OPERATORS) => OPEN_COMMANDS
            .iter()
            .any(|(name, commands)| name == program && commands.contains(command))
            .then(|| format!("{program} {command} *")),
        _ => None,
    };
    open.into_iter().chain([text.to_owned()]).collect()
}

/// Returns whether a name, taken as a pattern, matches only itself.
fn is_plain_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

/// Returns a pattern for the folder that contains the files, or for a file that is not in a folder.
fn file_pattern(paths: &[&str]) -> Option<String> {
    let folder = |path: &str| path.rsplit_once('/').map_or("", |(folder, _)| folder).to_owned();
    let first = folder(paths.first()?);
    // Rules have no quoting, and must not contain invisible characters.
    let is_plain = |c: char| {
        c.is_alphanumeric() || c == ' ' || c.is_ascii_punctuation() && !"*?[]{}\\".contains(c)
    };
    let is_inside = |path: &&str| !path.split('/').any(|part| matches!(part, "" | "." | ".."));
    if !paths.iter().all(|path| path.chars().all(is_plain)) || !paths.iter().all(is_inside) {
        return None;
    }
    match (paths, first.as_str()) {
        ([path], "") => Some((*path).to_owned()),
        (_, "") => None,
        (paths, first) => {
            paths.iter().all(|path| folder(path) == first).then(|| format!("{first}/**"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Guardrails, PermissionRules};
    use crate::types::ConfirmMode;

    fn tools() -> RuleTools {
        let (command, read) = (vec!["run_command"], vec!["read_file"]);
        RuleTools { command, read, write: vec!["write_file", "edit_file"] }
    }

    fn engine() -> PolicyEngine {
        let mode = ConfirmMode::ConfirmAll;
        PolicyEngine::new(mode, PermissionRules::default(), Guardrails::default())
    }

    fn command(line: &str) -> [CallTarget; 1] {
        [CallTarget::Command(CommandTarget::new(line, "", Vec::new()))]
    }

    fn suggested(line: &str) -> Option<PermissionRule> {
        engine().suggest_rule(&tools(), "run_command", CallKind::Command, &command(line))
    }

    /// Returns the pattern suggested for a command line.
    fn pattern(line: &str) -> Option<String> {
        let rule = suggested(line)?;
        let pattern = rule.as_str().strip_prefix("run_command(")?.strip_suffix(')')?;
        Some(pattern.to_owned())
    }

    fn allows(rule: &PermissionRule, line: &str) -> bool {
        let engine = engine().with_allowed(std::slice::from_ref(rule));
        let decision = engine.decide("run_command", CallKind::Command, &command(line));
        matches!(decision, Decision::Allow { .. })
    }

    fn files(tool: &str, paths: &[&str]) -> Option<String> {
        let targets: Vec<_> =
            paths.iter().map(|path| CallTarget::Write((*path).to_owned())).collect();
        let rule = engine().suggest_rule(&tools(), tool, CallKind::Changes, &targets)?;
        Some(rule.as_str().to_owned())
    }

    #[test]
    fn commands_that_work_on_their_arguments_are_allowed_with_all_of_them() {
        for (line, expected) in [
            ("cargo test", "cargo test *"),
            ("cargo test --lib 'a b'", "cargo test *"),
            (" git add src/a.rs ", "git add *"),
        ] {
            assert_eq!(pattern(line).as_deref(), Some(expected), "{line}");
        }
    }

    /// Commands that run a program in their arguments, discard work or affect others are allowed only unchanged.
    #[test]
    fn other_commands_are_allowed_as_they_are() {
        for line in [
            "make",
            "cargo run x",
            "cargo --config a test",
            "./cargo test",
            "git push origin main",
            "git -C d add x",
            "git checkout a",
            "git config a b",
            "npm run build",
            "rm -r build",
            "python3 a.py 'b c'",
            "make > log 2>&1",
            "cargo build && cargo test",
            "cargo test | tail -3",
            "cargo test; touch x",
        ] {
            assert_eq!(pattern(line).as_deref(), Some(line), "{line}");
        }
    }

    #[test]
    fn no_rule_is_suggested_for_what_can_mean_something_else() {
        for line in [
            "*",
            "**",
            "rm *.o",
            "rm a?",
            "rm [ab]",
            "rm {a,b}",
            "rm $x",
            "rm ~/x",
            "rm `ls`",
            "rm $(ls)",
            "(make)",
            "rm a\\ b",
            "rm a\nrm b",
            "cargo test\ncargo test",
            "cargo test\ttouch",
            "rm a # b",
            "! make",
            "rm a\u{a0}b",
            "rm a\u{a0}",
            "rm a\u{200b}",
            "rm a\u{202e}b",
            "rm 'a",
            "rm a &&",
            "cat << 'x'\nx",
            "",
        ] {
            assert_eq!(pattern(line), None, "{line:?}");
        }
        // A rule would not allow the call.
        let target = CommandTarget::new("make", "", vec!["LD_PRELOAD".to_owned()]);
        let target = [CallTarget::Command(target)];
        let rule = engine().suggest_rule(&tools(), "run_command", CallKind::Command, &target);
        assert!(rule.is_none());
    }

    /// A rule for a line allows only that line: no further program, redirection, word or blank, and not the same text
    /// with other quotes.
    #[test]
    fn a_rule_for_a_line_allows_that_line_only() {
        let near = |line: &str| {
            let quoted: Vec<String> = line.split(' ').map(|word| format!("'{word}'")).collect();
            let mut near = vec![quoted.join(" "), format!("'{line}'"), line.replace(' ', "\\ ")];
            let changes = [
                "; rm x", " && rm x", " | rm x", " & rm x", " > x", " >> x", "\nrm x", " $(rm x)",
                " `rm x`", " x", " *", "x", " ''", " <(rm x)", " ; rm x", "\u{a0}",
            ];
            near.extend(changes.iter().map(|more| format!("{line}{more}")));
            let before = ["rm x; ", "PATH=. ", "X=1 ", "cd /; ", "sudo ", "env ", "! "];
            near.extend(before.iter().map(|more| format!("{more}{line}")));
            near
        };
        for line in [
            "rm -r build",
            "make > log",
            "rm a; ls x",
            "touch a && touch b",
            "touch a | tee b",
            "touch a & touch b",
        ] {
            let rule = suggested(line).unwrap();
            assert!(allows(&rule, line) && allows(&rule, &format!(" {line} ")), "{line}");
            // A rule matches a command in any folder, with harmless variables, and with any quoting.
            let quoted = format!("'{}'", line.replace(' ', "' '"));
            let is_same = |other: &str| {
                let before = ["cd /; ", "X=1 ", "env ", "! "];
                let command = before.iter().find_map(|before| other.strip_prefix(before));
                !line.contains(OPERATORS) && (other == quoted || command == Some(line))
            };
            for other in near(line) {
                assert!(!allows(&rule, &other) || is_same(&other), "{line:?} allows {other:?}");
            }
        }
    }

    /// An open rule allows any arguments, and nothing else.
    #[test]
    fn an_open_rule_allows_arguments_only() {
        let rule = suggested("cargo test --lib").unwrap();
        for line in ["cargo test", "cargo test --lib x", "cargo test 'a;b'"] {
            assert!(allows(&rule, line), "{line}");
        }
        for line in [
            "cargo tests",
            "cargo",
            "cargo run test",
            "cargo test; rm x",
            "cargo test\nrm x",
            "cargo test && rm x",
            "cargo test | sh",
            "cargo test > x",
            "cargo test $(rm x)",
            "cargo test \"$(rm x)\"",
            "cargo test `rm x`",
            "cargo test <(rm x)",
            "PATH=. cargo test",
            "RUSTC_WRAPPER=./x cargo test",
            "cargo\\ test",
            "'cargo test'",
            "./cargo test",
        ] {
            assert!(!allows(&rule, line), "{line}");
        }
    }

    #[test]
    fn files_are_allowed_with_their_folder_and_those_of_none_by_name() {
        assert_eq!(files("edit_file", &["src/a.rs"]).as_deref(), Some("edit_file(src/**)"));
        assert_eq!(
            files("edit_file", &["src/a.rs", "src/b.rs"]).as_deref(),
            Some("edit_file(src/**)")
        );
        assert_eq!(files("edit_file", &["a.rs"]).as_deref(), Some("edit_file(a.rs)"));
        assert_eq!(
            files("edit_file", &["my (old) files/a"]).as_deref(),
            Some("edit_file(my (old) files/**)")
        );
    }

    /// The path, taken as a pattern, would not match only itself.
    #[test]
    fn no_rule_is_suggested_for_files_whose_path_is_no_pattern() {
        for path in [
            "*",
            "**",
            "a*",
            "src/*/a",
            "s?c/a",
            "[ab]/a",
            "{a,b}/a",
            "a\\b",
            "../a",
            "src/../a",
            "./a",
            "/etc/passwd",
            "/x",
            "src//a",
            "s\u{200b}rc/a",
            "s\nrc/a",
            " a",
            " src/a",
            "",
        ] {
            assert_eq!(files("edit_file", &[path]), None, "{path:?}");
        }
        assert_eq!(files("edit_file", &["a/x", "b/x"]), None);
        assert_eq!(files("edit_file", &["a", "b"]), None);
        assert_eq!(files("edit_file", &["a/x", "a/b/x"]), None);
    }

    #[test]
    fn a_tool_whose_targets_are_unknown_is_allowed_as_a_whole() {
        let rule = engine().suggest_rule(&tools(), "mcp_a_b", CallKind::External, &[]).unwrap();
        assert_eq!(rule.as_str(), "mcp_a_b");
    }

    /// A rule that asks or denies takes precedence over one that allows.
    #[test]
    fn no_rule_is_suggested_that_would_not_help() {
        for (deny, ask) in [(&["run_command(make)"][..], &[][..]), (&[], &["run_command(make)"])] {
            let rules = PermissionRules::parse(&tools(), deny, ask, &[]).unwrap();
            let engine = PolicyEngine::new(ConfirmMode::ConfirmAll, rules, Guardrails::default());
            let (kind, target) = (CallKind::Command, command("make"));
            assert!(engine.suggest_rule(&tools(), "run_command", kind, &target).is_none());
        }
    }
}
