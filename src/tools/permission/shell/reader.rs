//! The characters of a command line, and what every rule of its grammar needs of them.

use super::Unreadable;
use super::syntax::{Form, Word};

/// How deep scripts may be nested in each other.
const DEEPEST: usize = 24;

/// The longest line that is read.
const LONGEST: usize = 128 * 1024;

/// A command line and how far it was read.
pub(super) struct Reader {
    chars: Vec<char>,
    at: usize,
    pub(super) depth: usize,
}

impl Reader {
    /// Returns a reader at the start of a text.
    pub(super) fn new(text: &str, depth: usize) -> Result<Self, Unreadable> {
        if depth > DEEPEST {
            return Err(Unreadable("commands are nested too deeply"));
        }
        if text.len() > LONGEST {
            return Err(Unreadable("it is too long"));
        }
        Ok(Self { chars: text.chars().collect(), at: 0, depth })
    }

    /// Goes one level deeper.
    pub(super) fn deeper(&mut self) -> Result<(), Unreadable> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(Unreadable("commands are nested too deeply"));
        }
        Ok(())
    }

    pub(super) fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    pub(super) fn peek_at(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    pub(super) fn next(&mut self) -> Option<char> {
        let char = self.peek()?;
        self.at += 1;
        Some(char)
    }

    /// Takes a text if it comes next.
    pub(super) fn take(&mut self, text: &str) -> bool {
        let comes = text.chars().enumerate().all(|(n, char)| self.peek_at(n) == Some(char));
        if comes {
            self.at += text.chars().count();
        }
        comes
    }

    pub(super) fn position(&self) -> usize {
        self.at
    }

    pub(super) fn back_to(&mut self, position: usize) {
        self.at = position;
    }

    /// Takes spaces, and lines that are continued.
    pub(super) fn skip_blank(&mut self) {
        while self.take("\\\n") || self.take(" ") || self.take("\t") {}
    }

    /// Takes spaces, line ends and comments.
    pub(super) fn skip_lines(&mut self) {
        loop {
            self.skip_blank();
            match self.peek() {
                Some('\n') => self.at += 1,
                Some('#') => self.skip_comment(),
                Some(_) | None => return,
            }
        }
    }

    /// Takes a comment up to the end of its line.
    pub(super) fn skip_comment(&mut self) {
        while self.peek().is_some_and(|char| char != '\n') {
            self.at += 1;
        }
    }

    /// Returns whether the next word is this one, without quotes; takes it if so.
    pub(super) fn take_keyword(&mut self, keyword: &str) -> bool {
        let from = self.at;
        if self.take(keyword) && self.peek().is_none_or(ends_word) {
            return true;
        }
        self.at = from;
        false
    }

    /// Takes the here-document that begins behind this line out of the text, and returns it.
    pub(super) fn here_document(
        &mut self,
        delimiter: &str,
        without_tabs: bool,
    ) -> Result<String, Unreadable> {
        let rest = &self.chars[self.at..];
        let end = rest.iter().position(|char| *char == '\n');
        let Some(line) = end.map(|end| self.at + end + 1) else {
            return Err(Unreadable("a here-document has no text"));
        };
        let quotes = self.chars[self.at..line].iter().filter(|char| matches!(char, '\'' | '"'));
        if quotes.count() % 2 == 1 {
            return Err(Unreadable("a here-document begins inside quotes"));
        }
        let mut body = String::new();
        let mut from = line;
        while from < self.chars.len() {
            let rest = &self.chars[from..];
            let length = rest.iter().position(|char| *char == '\n').unwrap_or(rest.len());
            let text: String = rest[..length].iter().collect();
            let text = if without_tabs { text.trim_start_matches('\t') } else { &text };
            from = (from + length + 1).min(self.chars.len());
            if text == delimiter {
                self.chars.drain(line..from);
                return Ok(body);
            }
            body += text;
            body.push('\n');
        }
        Err(Unreadable("a here-document does not end"))
    }
}

/// Returns whether a character ends a word that has no quotes.
pub(super) fn ends_word(char: char) -> bool {
    matches!(char, ' ' | '\t' | '\n' | ';' | '&' | '|' | '<' | '>' | '(' | ')')
}

/// Returns whether a character may stand in the name of a variable.
pub(super) fn is_name(char: char) -> bool {
    char.is_ascii_alphanumeric() || char == '_'
}

/// Returns whether a text is the name of a variable.
pub(super) fn is_variable(text: &str) -> bool {
    text.chars().all(is_name) && text.starts_with(|char: char| !char.is_ascii_digit())
}

impl Word {
    /// Says that the word is at least of this form.
    pub(super) fn at_least(&mut self, form: Form) {
        self.form = self.form.max(form);
    }
}
