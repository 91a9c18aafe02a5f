//! Words: quotes and expansions.

use super::UnparsableLine;
use super::grammar::ParseResult;
use super::parser::{ShellParser, ends_word, is_name, is_variable};
use super::syntax::{ShellWord, WordForm};

/// The context of an expansion, which determines how shells parse it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ExpansionContext {
    /// No quotes: the result is split into words.
    Unquoted,
    /// Double quotes, or an expression.
    Quotes,
    /// The text of a here-document.
    HereDocument,
}

/// Returns whether a variable may be set inside of a word: the names of a script's own are small.
fn is_assignable(name: &str) -> bool {
    is_variable(name) && !name.contains(|char: char| char.is_ascii_uppercase())
}

/// Placeholder in the text of a word for the output of a script.
const COMMAND_OUTPUT: &str = "$(…)";

/// Placeholder in the text of a word for a file that a script writes or reads.
pub(in crate::policy) const PROCESS_SUBSTITUTION: &str = "<(…)";

impl ShellParser {
    /// Parses a word; `None` if there is none.
    pub(super) fn parse_word(&mut self) -> ParseResult<Option<ShellWord>> {
        let mut word = ShellWord::default();
        let begun = self.position();
        while let Some(char) = self.peek() {
            match char {
                '<' | '>' if self.peek_at(1) == Some('(') => {
                    self.next_char();
                    self.parse_command_output(&mut word, PROCESS_SUBSTITUTION)?;
                }
                _ if ends_word(char) => break,
                '\'' => {
                    self.next_char();
                    self.parse_single_quotes(&mut word.text)?;
                }
                '"' => {
                    self.next_char();
                    self.parse_double_quotes(&mut word, Some('"'))?;
                }
                '\\' => {
                    self.next_char();
                    match self.next_char() {
                        Some('\n') => {}
                        Some(char) => word.text.push(char),
                        None => word.text.push('\\'),
                    }
                }
                '$' | '`' => self.parse_expansion(&mut word, ExpansionContext::Unquoted)?,
                _ => {
                    let is_first = self.position() == begun;
                    self.next_char();
                    word.text.push(char);
                    match char {
                        '*' | '?' | '[' => word.raise_form(WordForm::Pattern),
                        '{' => word.has_braces = true,
                        '~' if is_first || word.text.ends_with("=~") => {
                            word.raise_form(WordForm::Computed);
                        }
                        _ => {}
                    }
                }
            }
        }
        if word.text.starts_with('{') && self.peek().is_some_and(|char| matches!(char, '<' | '>')) {
            // The variable in the braces is set to the number of what is opened.
            return Err(UnparsableLine("braces stand before a redirection"));
        }
        // A pair of braces with nothing in it is what it seems, where it is the only one.
        let is_pair = word.text.contains("{}")
            && word.text.matches('{').count() + word.text.matches('}').count() == 2;
        if word.has_braces && !is_pair {
            word.raise_form(WordForm::Computed);
        }
        word.has_braces &= !is_pair;
        if word.text == "[" {
            // Nothing that it could be a pattern for.
            word.form = WordForm::Literal;
        }
        Ok((self.position() > begun).then_some(word))
    }

    /// Parses text in single quotes after the opening quote.
    fn parse_single_quotes(&mut self, text: &mut String) -> ParseResult<()> {
        loop {
            match self.next_char() {
                Some('\'') => return Ok(()),
                Some(char) => text.push(char),
                None => return Err(UnparsableLine("a quote is not closed")),
            }
        }
    }

    /// Reads the text of a here-document, as which this reader was made.
    pub(super) fn parse_here_text(mut self) -> ParseResult<ShellWord> {
        let mut word = ShellWord::default();
        self.parse_double_quotes(&mut word, None)?;
        self.check_here_documents()?;
        Ok(word)
    }

    /// Parses text in double quotes, or the text of a here-document up to its end.
    fn parse_double_quotes(&mut self, word: &mut ShellWord, end: Option<char>) -> ParseResult<()> {
        let around =
            if end.is_some() { ExpansionContext::Quotes } else { ExpansionContext::HereDocument };
        loop {
            match self.peek() {
                char if char == end => {
                    self.next_char();
                    return Ok(());
                }
                None => return Err(UnparsableLine("a quote is not closed")),
                Some('\\') => {
                    self.next_char();
                    match self.next_char() {
                        Some('\n') => {}
                        Some(char @ ('$' | '`' | '\\')) => word.text.push(char),
                        Some('"') if around == ExpansionContext::Quotes => word.text.push('"'),
                        Some(char) => word.text.extend(['\\', char]),
                        None => return Err(UnparsableLine("a quote is not closed")),
                    }
                }
                // Inside, the other kind of quotes has no meaning behind a dollar.
                Some('$') if matches!(self.peek_at(1), Some('\'' | '"')) => {
                    self.next_char();
                    word.text.push('$');
                }
                Some('$' | '`') => self.parse_expansion(word, around)?,
                Some(char) => {
                    self.next_char();
                    word.text.push(char);
                }
            }
        }
    }

    /// Parses an expansion that begins with a dollar sign or a backtick.
    fn parse_expansion(
        &mut self,
        word: &mut ShellWord,
        around: ExpansionContext,
    ) -> ParseResult<()> {
        self.enter()?;
        self.open_words += 1;
        self.parse_dollar(word, around)?;
        self.open_words -= 1;
        self.depth -= 1;
        Ok(())
    }

    fn parse_dollar(&mut self, word: &mut ShellWord, around: ExpansionContext) -> ParseResult<()> {
        let splits = around == ExpansionContext::Unquoted;
        if self.take("`") {
            word.is_split |= splits;
            return self.parse_backticks(word, around);
        }
        self.next_char();
        match self.peek() {
            Some('(') if self.peek_at(1) == Some('(') => self.parse_arithmetic(word),
            Some('(') => {
                word.is_split |= splits;
                self.parse_command_output(word, COMMAND_OUTPUT)
            }
            Some('[') => Err(UnparsableLine("it uses $[…]")),
            Some('{') => {
                word.is_split |= splits;
                self.parse_parameter(word, around)
            }
            Some('\'' | '"') if around != ExpansionContext::Unquoted => {
                Err(UnparsableLine("quotes behind a dollar stand inside of others"))
            }
            Some('\'') => {
                self.next_char();
                self.parse_ansi_quotes(&mut word.text)
            }
            Some('"') => {
                self.next_char();
                self.parse_double_quotes(word, Some('"'))
            }
            Some(char) if is_name(char) || "@*#?-$!".contains(char) => {
                word.raise_form(WordForm::Computed);
                // Numbers are not split; the arguments are several words even inside of quotes.
                word.is_split |= char == '@' || splits && !"#?$!".contains(char);
                word.text.push('$');
                if !is_name(char) || char.is_ascii_digit() {
                    self.next_char();
                    word.text.push(char);
                } else {
                    while let Some(char) = self.peek().filter(|char| is_name(*char)) {
                        self.next_char();
                        word.text.push(char);
                    }
                }
                Ok(())
            }
            Some(_) | None => {
                word.text.push('$');
                Ok(())
            }
        }
    }

    /// Parses a script in parentheses whose output becomes a part of the word.
    fn parse_command_output(&mut self, word: &mut ShellWord, mark: &str) -> ParseResult<()> {
        self.open_words += 1;
        let script = self.parse_bracketed()?;
        self.open_words -= 1;
        word.raise_form(WordForm::Computed);
        word.text += mark;
        word.scripts.push(script);
        Ok(())
    }

    fn parse_backticks(
        &mut self,
        word: &mut ShellWord,
        around: ExpansionContext,
    ) -> ParseResult<()> {
        let mut text = String::new();
        loop {
            match self.next_char() {
                Some('`') => break,
                Some('\\') => match self.next_char() {
                    Some(char @ ('`' | '\\' | '$')) => text.push(char),
                    Some('"') if around != ExpansionContext::Unquoted => {
                        return Err(UnparsableLine("quotes stand in backticks inside of others"));
                    }
                    Some(char) => text.extend(['\\', char]),
                    None => return Err(UnparsableLine("a backtick is not closed")),
                },
                Some(char) => text.push(char),
                None => return Err(UnparsableLine("a backtick is not closed")),
            }
        }
        word.raise_form(WordForm::Computed);
        word.text += COMMAND_OUTPUT;
        word.scripts.push(super::parse_nested(&text, self.depth + 1)?);
        Ok(())
    }

    /// Parses `((…))`, which is harmless only without names.
    pub(super) fn parse_arithmetic(&mut self, word: &mut ShellWord) -> ParseResult<()> {
        self.take("((");
        let mut inner = ShellWord::default();
        let mut depth = 2;
        while depth > 0 {
            match self.peek() {
                None => return Err(UnparsableLine("an expression is not closed")),
                Some('$' | '`') => self.parse_expansion(&mut inner, ExpansionContext::Quotes)?,
                Some('\'' | '"' | '\\') => {
                    return Err(UnparsableLine("an expression has quotes in it"));
                }
                Some(char) => {
                    self.next_char();
                    inner.text.push(char);
                    depth += i32::from(char == '(') - i32::from(char == ')');
                    // Otherwise it is a script that begins with a group.
                    if depth == 1 && char == ')' && self.peek() != Some(')') {
                        return Err(UnparsableLine(
                            "two brackets may be an expression or a script",
                        ));
                    }
                }
            }
        }
        // The name `_` is one, too, and its value is evaluated again.
        let is_sign = |char: char| char.is_ascii_digit() || " \t()+-*/%<>=!&|^~?:,".contains(char);
        let is_plain = inner.form == WordForm::Literal && inner.text.chars().all(is_sign);
        word.raise_form(if is_plain { WordForm::Computed } else { WordForm::Evaluated });
        word.text += "$((…))";
        word.scripts.append(&mut inner.scripts);
        Ok(())
    }

    /// Parses `${…}`.
    fn parse_parameter(
        &mut self,
        word: &mut ShellWord,
        around: ExpansionContext,
    ) -> ParseResult<()> {
        self.next_char();
        let mut inner = ShellWord::default();
        loop {
            match self.peek() {
                None => return Err(UnparsableLine("a brace is not closed")),
                Some('}') => break,
                Some('$' | '`') => self.parse_expansion(&mut inner, around)?,
                // In some places a script in it is run, in others it is text.
                Some('<' | '>') if self.peek_at(1) == Some('(') => {
                    return Err(UnparsableLine("a script may stand in ${…}"));
                }
                // Whether these are quotes depends on the shell, and on what stands before them.
                Some('\'') if around != ExpansionContext::Unquoted => {
                    return Err(UnparsableLine("a quote stands in ${…} inside of others"));
                }
                Some('"') if around == ExpansionContext::HereDocument => {
                    return Err(UnparsableLine("a quote stands in ${…} in a here-document"));
                }
                Some('\'') => {
                    self.next_char();
                    self.parse_single_quotes(&mut inner.text)?;
                }
                Some('"') => {
                    self.next_char();
                    self.parse_double_quotes(&mut inner, Some('"'))?;
                }
                Some('\\') => {
                    self.next_char();
                    inner.text.extend(self.next_char());
                }
                Some(char) => {
                    self.next_char();
                    inner.text.push(char);
                }
            }
        }
        self.next_char();
        let name: String = inner.text.chars().take_while(|char| is_name(*char)).collect();
        let rest = &inner.text[name.len()..];
        let is_plain = match rest.chars().next() {
            None => true,
            Some('=') => is_assignable(&name),
            Some('-' | '?' | '+' | '#' | '%' | '/' | '^' | ',') => !name.is_empty(),
            Some(':') if rest[1..].starts_with('=') => is_assignable(&name),
            Some(':') => rest[1..].starts_with(['-', '?', '+']),
            Some(_) => false,
        };
        word.raise_form(inner.form.max(if is_plain {
            WordForm::Computed
        } else {
            WordForm::Evaluated
        }));
        word.is_split |= inner.is_split;
        if is_variable(&name) && rest.is_empty() && !self.peek().is_some_and(is_name) {
            word.text.extend(["$", &name]);
        } else {
            word.text.extend(["${", &inner.text, "}"]);
        }
        word.scripts.append(&mut inner.scripts);
        Ok(())
    }

    /// Parses `$'…'`, which may have numeric escapes.
    fn parse_ansi_quotes(&mut self, text: &mut String) -> ParseResult<()> {
        loop {
            match self.next_char() {
                None => return Err(UnparsableLine("a quote is not closed")),
                Some('\'') => return Ok(()),
                Some('\\') => {
                    let Some(kind) = self.next_char() else {
                        return Err(UnparsableLine("a quote is not closed"));
                    };
                    let char = match kind {
                        'n' => '\n',
                        't' => '\t',
                        'r' => '\r',
                        'a' => '\u{7}',
                        'b' => '\u{8}',
                        'e' | 'E' => '\u{1b}',
                        'f' => '\u{c}',
                        'v' => '\u{b}',
                        '\\' | '"' | '?' => kind,
                        // Shells that don't know these quotes would see the end of them.
                        '\'' => return Err(UnparsableLine("a quote has another one in it")),
                        'x' => self.parse_char_number(16, 2)?,
                        'u' => self.parse_char_number(16, 4)?,
                        'U' => self.parse_char_number(16, 8)?,
                        '0'..='7' => {
                            self.back_to(self.position() - 1);
                            self.parse_char_number(8, 3)?
                        }
                        _ => return Err(UnparsableLine("a quote has an escape that is not known")),
                    };
                    text.push(char);
                }
                Some(char) => text.push(char),
            }
        }
    }

    /// Parses a numeric escape.
    fn parse_char_number(&mut self, radix: u32, most: usize) -> ParseResult<char> {
        let mut code = 0;
        let mut digits = 0;
        while let Some(digit) = self.peek().and_then(|char| char.to_digit(radix)) {
            if digits == most {
                break;
            }
            code = code * radix + digit;
            digits += 1;
            self.next_char();
        }
        let char = char::from_u32(code).filter(|char| digits > 0 && *char != '\0');
        char.ok_or(UnparsableLine("a quote has an escape that is not known"))
    }
}
