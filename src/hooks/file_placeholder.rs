//! The placeholder for a file name in a shell command.
//!
//! The model chooses file names, and a name may contain any characters. So it never becomes part of the command:
//! `{file}` is replaced by a variable that holds the name, in the form that fits the surrounding quotes. A shell does
//! not parse the value of a variable again, but a program that gets the value in a script does. So the placeholder must
//! be a word of its own, or be in a word that otherwise contains only path characters.

use thiserror::Error;

/// The variable that holds the file name.
pub(super) const FILE_VARIABLE: &str = "ARCHITECT_EDITED_FILE";

/// The placeholder in a command.
const FILE_PLACEHOLDER: &str = "{file}";

/// Programs that pass their arguments to a shell.
const SHELL_STARTERS: [&str; 3] = ["parallel", "ssh", "watch"];

/// Programs whose first word is a script, unless an option names one.
const SCRIPT_PROGRAMS: [&str; 6] = ["awk", "gawk", "jq", "mawk", "sed", "trap"];

/// Programs that start the program after them.
const PROGRAM_STARTERS: [&str; 11] = [
    "command", "doas", "env", "exec", "nice", "nohup", "setsid", "stdbuf", "sudo", "time",
    "timeout",
];

/// Long options before a script.
const SCRIPT_OPTIONS: [&str; 6] = ["command", "eval", "exec", "execute", "expression", "print"];

/// The characters that a word may have in addition to `{file}`, letters and digits.
const PATH_CHARACTERS: &str = "/._-+=:,@%";

/// The error for a `{file}` at a position where the name could be parsed as code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "`{{file}}` stands {0}, where the name could run as code; write \"${FILE_VARIABLE}\" there, with these quotes, and \
     a script around it between single quotes"
)]
pub struct UnsafePlaceholder(&'static str);

/// Checks the placeholders in the command of a hook for changed files.
///
/// # Errors
///
/// Fails when a placeholder is at a position where the name would be parsed as part of the command.
pub fn check_placeholder(command: &str) -> Result<(), UnsafePlaceholder> {
    with_variable(command).map(drop)
}

/// Returns the command with the variable in place of each `{file}`.
///
/// # Errors
///
/// Fails if the shell's parsing is unclear, and if the name could become part of a script, as in `sh -c "cat {file}"`.
pub(super) fn with_variable(command: &str) -> Result<String, UnsafePlaceholder> {
    let mut scan = CommandScan::default();
    let mut rest = command;
    while let Some(next) = rest.chars().next() {
        let took = match rest.starts_with(FILE_PLACEHOLDER) && scan.quotes != QuoteState::Comment {
            true => scan.insert_variable()?,
            false => scan.read(rest, next)?,
        };
        rest = &rest[took..];
    }
    scan.end_word()?;
    match scan.evaluates && scan.has_placeholder {
        true => Err(UnsafePlaceholder("in a command whose words a shell parses again")),
        false => Ok(scan.out),
    }
}

/// The state of a partly parsed command.
#[derive(Default)]
#[allow(clippy::struct_excessive_bools)] // any of them goes with any other
struct CommandScan {
    out: String,
    quotes: QuoteState,
    /// The current word, without its quotes.
    word: String,
    /// Whether the program of the current simple command has been named.
    has_program: bool,
    /// Whether the next word that is not an option is a script.
    expects_script: bool,
    /// Whether a word has begun; it may be empty.
    is_in_word: bool,
    /// The construct after which parsing is unclear.
    unsafe_after: Option<&'static str>,
    evaluates: bool,
    has_placeholder: bool,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum QuoteState {
    #[default]
    None,
    Single,
    Double,
    Comment,
}

impl CommandScan {
    /// Inserts the variable.
    fn insert_variable(&mut self) -> Result<usize, UnsafePlaceholder> {
        if let Some(why) = self.unsafe_after {
            return Err(UnsafePlaceholder(why));
        }
        let form = match self.quotes {
            QuoteState::None | QuoteState::Comment => format!("\"${FILE_VARIABLE}\""),
            QuoteState::Single => format!("'\"${FILE_VARIABLE}\"'"),
            QuoteState::Double => format!("${{{FILE_VARIABLE}}}"),
        };
        self.out.push_str(&form);
        self.word.push_str(FILE_PLACEHOLDER);
        (self.is_in_word, self.has_placeholder) = (true, true);
        Ok(FILE_PLACEHOLDER.len())
    }

    /// Parses anything except a placeholder, and returns its length in bytes.
    fn read(&mut self, rest: &str, next: char) -> Result<usize, UnsafePlaceholder> {
        let (long, quotes) = match (self.quotes, next) {
            (QuoteState::Comment, '\n') => (1, QuoteState::None),
            (QuoteState::Comment, _) => (next.len_utf8(), QuoteState::Comment),
            (QuoteState::Single, '\'') | (QuoteState::Double, '"') => (1, QuoteState::None),
            (QuoteState::Single, _) => self.read_text(next),
            (QuoteState::None, '\'') => (1, QuoteState::Single),
            (QuoteState::None, '"') => (1, QuoteState::Double),
            (QuoteState::None, '#') if !self.is_in_word => (1, QuoteState::Comment),
            (_, '\\') => (self.read_escape(rest), self.quotes),
            (_, '$') => (self.read_expansion(rest), self.quotes),
            (_, '`') => {
                self.unsafe_after = Some("behind a backtick");
                self.read_text(next)
            }
            (QuoteState::None, ' ' | '\t' | '\n' | ';' | '|' | '&' | '<' | '>' | '(' | ')') => {
                if rest.starts_with("<<") {
                    self.unsafe_after = Some("behind `<<`");
                }
                self.end_word()?;
                if matches!(next, '\n' | ';' | '|' | '&' | '(' | ')') {
                    (self.has_program, self.expects_script) = (false, false);
                }
                (1, QuoteState::None)
            }
            _ => self.read_text(next),
        };
        self.is_in_word |= quotes == QuoteState::Single || quotes == QuoteState::Double;
        self.quotes = quotes;
        self.out.push_str(&rest[..long]);
        Ok(long)
    }

    fn read_text(&mut self, next: char) -> (usize, QuoteState) {
        self.word.push(next);
        self.is_in_word = true;
        (next.len_utf8(), self.quotes)
    }

    /// Parses a backslash. Between double quotes, it is literal before most characters, but not before the inserted
    /// variable.
    fn read_escape(&mut self, rest: &str) -> usize {
        let Some(next) = rest.chars().nth(1) else { return 1 };
        let is_continued = next == '\n';
        match self.quotes {
            QuoteState::Double if !matches!(next, '$' | '`' | '"' | '\\' | '\n') => {
                if rest[1..].starts_with(FILE_PLACEHOLDER) {
                    self.unsafe_after = Some("behind a backslash");
                }
                self.read_text('\\').0
            }
            _ => {
                if !is_continued {
                    self.read_text(next);
                }
                1 + next.len_utf8()
            }
        }
    }

    /// Parses a dollar sign. `${file}` is a shell variable, not a placeholder.
    fn read_expansion(&mut self, rest: &str) -> usize {
        self.read_text('$');
        match rest.chars().nth(1) {
            Some('(') => self.unsafe_after = Some("behind `$(`"),
            Some('\'' | '"') if self.quotes == QuoteState::None => {
                self.unsafe_after = Some("behind `$` with a quote");
            }
            Some('{') => {
                let plain = |c: char| c.is_ascii_alphanumeric() || "_#%:?@*!+-=./".contains(c);
                let inside = rest[2..].split('}').next().filter(|inside| inside.chars().all(plain));
                match inside.filter(|inside| rest.len() > inside.len() + 2) {
                    Some(inside) => return inside.len() + 3,
                    None => self.unsafe_after = Some("behind `${`"),
                }
            }
            _ => {}
        }
        1
    }

    /// Ends a word.
    fn end_word(&mut self) -> Result<(), UnsafePlaceholder> {
        if !std::mem::take(&mut self.is_in_word) {
            return Ok(());
        }
        let word = std::mem::take(&mut self.word);
        let name = word.rsplit('/').next().unwrap_or_default();
        let is_program = !self.has_program;
        // Variables, options, and the time of `timeout` may precede the program.
        self.has_program |= !(PROGRAM_STARTERS.contains(&name)
            || word.contains('=')
            || word.starts_with(|c: char| c == '-' || c.is_ascii_digit()));
        self.evaluates |= word == "eval" || is_program && SHELL_STARTERS.contains(&name);
        if let Some((before, _)) = word.split_once(FILE_PLACEHOLDER) {
            if self.expects_script || is_script_option(before) {
                return Err(UnsafePlaceholder("in a script for another program"));
            }
            let is_plain = |c: char| c.is_alphanumeric() || PATH_CHARACTERS.contains(c);
            if !word.replace(FILE_PLACEHOLDER, "").chars().all(is_plain) {
                return Err(UnsafePlaceholder("beside blanks or special characters"));
            }
        }
        // Other options, and `--`, may precede the script.
        self.expects_script = is_script_option(&word)
            || is_program && SCRIPT_PROGRAMS.contains(&name)
            || self.expects_script && word.starts_with('-');
        Ok(())
    }
}

/// Returns whether a word is an option before a script, such as `-c`, `-ne` or `--eval=`.
fn is_script_option(word: &str) -> bool {
    let Some(name) = word.strip_prefix('-') else { return false };
    let long = name.trim_start_matches('-').trim_end_matches('=').to_lowercase();
    let is_short = name.chars().all(|c| c.is_ascii_alphanumeric());
    SCRIPT_OPTIONS.contains(&&*long) || is_short && name.ends_with(['c', 'e', 'E', 'p'])
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// File names that a model may choose.
    const NAMES: [&str; 22] = [
        "src/a.rs",
        "a b",
        "src/$(cd; touch PWN).py",
        "`touch PWN`",
        "a'b",
        "a\"b",
        "';touch PWN;'",
        "\";touch PWN;\"",
        "'\"$(touch PWN)\"'",
        "\"'$(touch PWN)'\"",
        ";touch PWN",
        "&touch PWN&",
        "|touch PWN",
        "\ntouch PWN\n",
        ">PWN",
        "*",
        "~",
        "#x",
        "\\",
        "}",
        "${IFS}{file}",
        "é \u{1f600}",
    ];

    /// Commands, with their output before and after the name.
    const COMMANDS: [(&str, &str, &str); 15] = [
        ("printf %s {file}", "", ""),
        ("printf %s \"{file}\"", "", ""),
        ("printf %s '{file}'", "", ""),
        ("printf %s \"a:{file}.é\"", "a:", ".é"),
        ("printf %s 'a/{file}+'", "a/", "+"),
        ("printf %s 'a'{file}\"b\"", "a", "b"),
        ("printf %s --path=\"a/\"{file}", "--path=a/", ""),
        ("printf %s -o{file}", "-o", ""),
        ("x={file}; printf %s \"$x\"", "", ""),
        ("# don't \"{file}\nprintf %s {file}", "", ""),
        ("true ${x:-y} ${#} && printf %s \"{file}\"", "", ""),
        ("(printf %s {file}) | cat", "", ""),
        ("printf %s a\\\n{file}", "a", ""),
        ("printf %s {file} && : $(true) `true`", "", ""),
        ("sh -c 'printf %s \"$1\"' sh {file}", "", ""),
    ];

    #[test]
    fn a_file_name_is_never_run() {
        let folder = tempfile::tempdir().unwrap();
        for (command, before, behind) in COMMANDS {
            let command = with_variable(command).unwrap();
            for name in NAMES {
                let ran = Command::new("/bin/sh")
                    .args(["-c", &command])
                    .env(FILE_VARIABLE, name)
                    .current_dir(&folder)
                    .env("HOME", folder.path())
                    .output()
                    .unwrap();
                let written = String::from_utf8(ran.stdout).unwrap();
                let errors = String::from_utf8_lossy(&ran.stderr).into_owned();
                assert_eq!(written, format!("{before}{name}{behind}"), "{command}: {errors}");
            }
        }
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
    }

    #[test]
    fn placeholders_in_unclear_positions_are_rejected() {
        for command in [
            "echo $(cat {file})",
            "echo \"$(cat {file})\"",
            "echo `cat {file}`",
            "cat <<EOF\n{file}\nEOF",
            "echo $'{file}'",
            "echo ${x:-{file}}",
            "echo ${x:-\"}\"} {file}",
            "echo ${x {file}",
            "echo \"\\{file}\"",
            "eval cat {file}",
            "x={file}; e'va'l \"cat $x\"",
            "sh -c \"cat {file}\"",
            "bash -lc 'cat {file}'",
            "python3 -c \"print('{file}')\" && true",
            "perl -ne 'print \"{file}\"' x",
            "sh -c -- \"cat {file}\"",
            "sh -c {file}",
            "sh -c -x -- '{file}'",
            "perl -E \"say '{file}'\"",
            "perl -e{file}",
            "node -p \"'{file}'\"",
            "node --eval={file}",
            "node --print {file}",
            "ssh h \"cat {file}\"",
            "true; /usr/bin/ssh h cat {file}",
            "LANG=C ssh h cat {file}",
            "env -i timeout 5 ssh h cat {file}",
            "awk {file}",
            "sed -n {file} a",
            "trap {file} EXIT",
            "awk \"BEGIN{print \\\"{file}\\\"}\"",
            "echo \"<{file}>\"",
            "echo '<'{file}",
            "echo it\\'s\\ {file}",
            "echo \"$x/{file}\"",
            "echo a#{file}",
            "echo \\\\{file}",
        ] {
            let refused = with_variable(command).unwrap_err().to_string();
            assert!(refused.contains("write \"$ARCHITECT_EDITED_FILE\""), "{command}: {refused}");
        }
    }

    #[test]
    fn other_text_is_unchanged() {
        for command in [
            "fmt \"$ARCHITECT_EDITED_FILE\"",
            "for file in a b; do echo ${file} \"${file}\"; done",
            "echo $(date) `date` # {file}",
            "echo \\{file}",
            "prettier -c x; eval y; ssh h \"cat x\"",
            "é '",
            "\\",
            "$",
            "${",
        ] {
            assert_eq!(with_variable(command).as_deref(), Ok(command));
        }
        for command in ["awk -f x.awk {file}", "sed -i s/a/b/ {file}", "jq . {file}"] {
            assert!(with_variable(command).is_ok(), "{command}");
        }
        let kept = with_variable("mkdir -p x; rsync -e ssh {file} h:").unwrap();
        assert_eq!(kept, "mkdir -p x; rsync -e ssh \"$ARCHITECT_EDITED_FILE\" h:");
    }
}
