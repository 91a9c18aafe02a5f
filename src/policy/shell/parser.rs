//! The character-level parser of command lines.

use super::{ParseResult, fail};

/// The maximum nesting of scripts.
const MAX_DEPTH: usize = 24;

/// The maximum length of a line, in bytes.
const MAX_LINE_LENGTH: usize = 128 * 1024;

/// The maximum number of here-documents. Extracting one takes time proportional to the length of the line.
const MAX_HERE_DOCUMENTS: usize = 64;

/// A command line and the current position.
pub(super) struct ShellParser {
    pub(super) chars: Vec<char>,
    /// The number of consumed characters.
    pub(super) at: usize,
    pub(super) depth: usize,
    /// The number of open words that may continue after a line end.
    pub(super) open_words: usize,
    documents: usize,
    seams: Vec<RemovedDocuments>,
}

/// A line end after which here-documents were removed.
///
/// Here-documents begin after the end of a command line. Not every line end is one: it may be quoted, or be in the
/// output of another command. So the position of the removal is recorded, and the parser has to reach it as the end of
/// the command line.
#[derive(Clone, Copy, PartialEq, Eq)]
struct RemovedDocuments {
    at: usize,
    inside: usize,
}

impl ShellParser {
    /// Returns a parser at the start of a text.
    pub(super) fn new(text: &str, depth: usize) -> ParseResult<Self> {
        if depth > MAX_DEPTH {
            return fail("commands are nested too deeply");
        }
        if text.len() > MAX_LINE_LENGTH {
            return fail("it is too long");
        }
        let chars = text.chars().collect();
        Ok(Self { chars, at: 0, depth, open_words: 0, documents: 0, seams: Vec::new() })
    }

    /// Enters a deeper level of nesting.
    pub(super) fn enter(&mut self) -> ParseResult<()> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return fail("commands are nested too deeply");
        }
        Ok(())
    }

    pub(super) fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    pub(super) fn peek_at(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    pub(super) fn next_char(&mut self) -> Option<char> {
        let char = self.peek()?;
        self.at += 1;
        Some(char)
    }

    /// Consumes a text if it comes next, and returns whether it did.
    pub(super) fn take(&mut self, text: &str) -> bool {
        let comes = text.chars().enumerate().all(|(n, char)| self.peek_at(n) == Some(char));
        if comes {
            self.at += text.chars().count();
        }
        comes
    }

    /// Consumes spaces, and escaped line ends.
    pub(super) fn skip_blank(&mut self) {
        while self.take("\\\n") || self.take(" ") || self.take("\t") {}
    }

    /// Consumes spaces, line ends and comments.
    pub(super) fn skip_lines(&mut self) {
        loop {
            self.skip_blank();
            match self.peek() {
                Some('\n') => self.end_line(),
                Some('#') => self.skip_comment(),
                Some(_) | None => return,
            }
        }
    }

    /// Consumes a line end that ends a command.
    pub(super) fn end_line(&mut self) {
        let here = RemovedDocuments { at: self.at, inside: self.open_words };
        self.seams.retain(|seam| *seam != here);
        self.at += 1;
    }

    /// Checks that every here-document was removed where a shell looks for it.
    pub(super) fn check_here_documents(&self) -> ParseResult<()> {
        if self.seams.is_empty() {
            Ok(())
        } else {
            fail("a here-document begins where its line may not end")
        }
    }

    /// Consumes characters while a condition holds, and returns them.
    pub(super) fn take_while(&mut self, is_taken: impl Fn(char) -> bool) -> String {
        let taken: String =
            self.chars[self.at..].iter().take_while(|char| is_taken(**char)).collect();
        self.at += taken.chars().count();
        taken
    }

    /// Consumes a comment up to the end of its line.
    pub(super) fn skip_comment(&mut self) {
        self.take_while(|char| char != '\n');
    }

    /// Consumes the next word if it is the given keyword, without quotes. Returns whether it is.
    pub(super) fn take_keyword(&mut self, keyword: &str) -> bool {
        let from = self.at;
        if self.take(keyword) && self.peek().is_none_or(ends_word) {
            return true;
        }
        self.at = from;
        false
    }

    /// Removes the here-document that begins after this line from the text, and returns it.
    pub(super) fn here_document(
        &mut self,
        delimiter: &str,
        without_tabs: bool,
        is_quoted: bool,
    ) -> ParseResult<String> {
        self.documents += 1;
        if self.documents > MAX_HERE_DOCUMENTS {
            return fail("it has too many here-documents");
        }
        let rest = &self.chars[self.at..];
        let end = rest.iter().position(|char| *char == '\n');
        let Some(line) = end.map(|end| self.at + end + 1) else {
            return fail("a here-document has no text");
        };
        let seam = RemovedDocuments { at: line - 1, inside: self.open_words };
        if !self.seams.contains(&seam) {
            self.seams.push(seam);
        }
        let mut body = String::new();
        let mut joined = String::new();
        let mut from = line;
        while from < self.chars.len() {
            let rest = &self.chars[from..];
            let length = rest.iter().position(|char| *char == '\n').unwrap_or(rest.len());
            let text: String = rest[..length].iter().collect();
            let text = if without_tabs { text.trim_start_matches('\t') } else { &text };
            from = (from + length + 1).min(self.chars.len());
            // Without quotes, a backslash joins lines before the delimiter is looked for.
            joined += text;
            // Within `$(…)`, bash also ends the text at a line that begins with its delimiter.
            let may_end = |line: &str| line != delimiter && line.starts_with(delimiter);
            if may_end(text)
                || !is_quoted && (may_end(&joined) || (text == delimiter) != (joined == delimiter))
            {
                return fail("a line of a here-document may be its end");
            }
            match joined.len() - joined.trim_end_matches('\\').len() {
                n if n % 2 == 1 => joined.truncate(joined.len() - 1),
                _ => joined.clear(),
            }
            if text == delimiter {
                self.chars.drain(line..from);
                return Ok(body);
            }
            body += text;
            body.push('\n');
        }
        fail("a here-document does not end")
    }
}

/// Returns whether a character ends an unquoted word.
pub(super) fn ends_word(char: char) -> bool {
    matches!(char, ' ' | '\t' | '\n' | ';' | '&' | '|' | '<' | '>' | '(' | ')')
}

/// Returns whether a character can be part of the name of a variable.
pub(in crate::policy) fn is_name(char: char) -> bool {
    char.is_ascii_alphanumeric() || char == '_'
}

/// Returns whether a text is the name of a variable.
pub(in crate::policy) fn is_variable(text: &str) -> bool {
    text.chars().all(is_name) && text.starts_with(|char: char| !char.is_ascii_digit())
}
