//! The place of a file's name in a command for a shell.
//!
//! The model chooses the names of files, and a name may be anything. So it never becomes a part of the command: `{file}`
//! is replaced by a variable that has it, in the form that is right between the quotes where it stands. What a shell
//! puts in for a variable it does not read again.

use thiserror::Error;

/// The variable that has the name of the file.
pub(super) const FILE_VARIABLE: &str = "ARCHITECT_EDITED_FILE";

/// What stands for the file in a command.
const FILE_PLACEHOLDER: &str = "{file}";

/// `{file}` stands where it can't be told how a shell reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "`{{file}}` stands {0}, where it can't be told how a shell reads it; write \"${FILE_VARIABLE}\" there, with these quotes"
)]
pub struct UnsafePlaceholder(&'static str);

/// Returns the command with the variable in place of `{file}`.
///
/// # Errors
///
/// Fails when it can't be told how a shell reads the place, and when the name would become a part of another program's
/// text, as in `sh -c "cat {file}"`.
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

/// How far a command was read.
#[derive(Default)]
struct CommandScan {
    out: String,
    quotes: QuoteState,
    /// The word that is being read, without its quotes, and the one before it.
    word: String,
    before: String,
    /// Whether something of the word was read; it may be empty.
    is_in_word: bool,
    /// After what nothing is clear any more.
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
    /// Puts the variable in.
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

    /// Reads what is no place, and returns how long it is, in bytes.
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

    /// A backslash. Between double quotes it is an ordinary character before most others, and what is put in behind it
    /// would make it another one.
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

    /// A dollar sign. A plain variable is read as a whole, so that `${file}` is a variable of the shell's.
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

    /// A word is over. One behind `-c` or `-e` that is more than a name is read by another program, as its own language.
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

    /// Names that the model may choose.
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

    /// Commands, with what they write before the name and behind it.
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
    fn whatever_a_file_is_called_its_name_is_never_run() {
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
                let said = String::from_utf8(ran.stdout).unwrap();
                let told = String::from_utf8_lossy(&ran.stderr).into_owned();
                assert_eq!(said, format!("{before}{name}{behind}"), "{command}: {told}");
            }
        }
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
    }

    #[test]
    fn where_it_is_not_clear_how_a_shell_reads_it_a_name_has_no_place() {
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
    fn what_is_no_place_stays_as_it_is() {
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
