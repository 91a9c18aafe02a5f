//! The placeholder for a file name in a shell command.
//!
//! The model chooses file names, and a name may contain anything. So it never becomes part of the command: `{file}` is
//! replaced by a variable that holds the name, in the form that fits the surrounding quotes. A shell does not parse the
//! value of a variable again.

use thiserror::Error;

/// The variable that holds the file name.
pub(super) const FILE_VARIABLE: &str = "ARCHITECT_EDITED_FILE";

/// The placeholder in a command.
const FILE_PLACEHOLDER: &str = "{file}";

/// `{file}` is at a position where its parsing by the shell is unclear.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "`{{file}}` stands {0}, where it is unclear how a shell parses it; write \"${FILE_VARIABLE}\" there, with these quotes"
)]
pub struct UnsafePlaceholder(&'static str);

/// Checks the placeholders in the command of a hook for changed files.
///
/// # Errors
///
/// Fails when one is at a position where the name would be parsed as part of the command.
pub fn check_placeholder(command: &str) -> Result<(), UnsafePlaceholder> {
    with_variable(command).map(drop)
}

/// Returns the command with the variable in place of `{file}`.
///
/// # Errors
///
/// Fails where the parsing by the shell is unclear, and where the name would become part of another program's text, as
/// in `sh -c "cat {file}"`.
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
        true => Err(UnsafePlaceholder("in a command with `eval`")),
        false => Ok(scan.out),
    }
}

/// The state of a partly parsed command.
#[derive(Default)]
struct CommandScan {
    out: String,
    quotes: QuoteState,
    /// The current word, without its quotes, and the previous one.
    word: String,
    before: String,
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

    /// Parses anything but a placeholder, and returns its length in bytes.
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

    /// Parses a backslash. Between double quotes it is literal before most characters, but not before the inserted
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

    /// Parses a dollar sign. `${file}` is a variable of the shell, not a placeholder.
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

    /// Ends a word. A complex word after `-c` or `-e` is code in another language.
    fn end_word(&mut self) -> Result<(), UnsafePlaceholder> {
        if !std::mem::take(&mut self.is_in_word) {
            return Ok(());
        }
        let word = std::mem::take(&mut self.word);
        let before = std::mem::replace(&mut self.before, word);
        let word = &self.before;
        self.evaluates |= word == "eval";
        let flag = before.strip_prefix('-').filter(|flag| flag.ends_with(['c', 'e']));
        let is_flag = flag.is_some_and(|flag| flag.chars().all(|c| c.is_ascii_alphabetic()));
        let around = word.replace(FILE_PLACEHOLDER, "");
        let is_code = around.contains(|c: char| c.is_whitespace() || ";|&<>()$`'\"{}".contains(c));
        match is_flag && is_code && word.contains(FILE_PLACEHOLDER) {
            true => Err(UnsafePlaceholder("in the text of another program")),
            false => Ok(()),
        }
    }
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

    /// Commands, with the output before and after the name.
    const COMMANDS: [(&str, &str, &str); 20] = [
        ("printf %s {file}", "", ""),
        ("printf %s \"{file}\"", "", ""),
        ("printf %s '{file}'", "", ""),
        ("printf %s \"<{file}>\"", "<", ">"),
        ("printf %s '<{file}>'", "<", ">"),
        ("printf %s '<'{file}\">\"", "<", ">"),
        ("printf %s --path=\"a b/\"{file}", "--path=a b/", ""),
        ("printf %s \"it's {file}\"", "it's ", ""),
        ("printf %s it\\'s\\ {file}", "it's ", ""),
        ("printf %s '\"{file}\"'", "\"", "\""),
        ("printf %s \"\\\"{file}\\\"\"", "\"", "\""),
        ("printf %s \\\\{file}", "\\", ""),
        ("x={file}; printf %s \"$x\"", "", ""),
        ("# don't \"{file}\nprintf %s {file}", "", ""),
        ("printf %s a#{file}", "a#", ""),
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
            "prettier -c x; eval y",
            "é '",
            "\\",
            "$",
            "${",
        ] {
            assert_eq!(with_variable(command).as_deref(), Ok(command));
        }
        let kept = with_variable("prettier -c {file}").unwrap();
        assert_eq!(kept, "prettier -c \"$ARCHITECT_EDITED_FILE\"");
    }
}
