//! Words: quotes and expansions.

use super::parser::{ShellParser, ends_word, is_name, is_variable};
use super::syntax::{ShellWord, WordForm};
use super::{ParseResult, fail};

/// The quotes around an expansion, which determine how shells parse it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Quoting {
    /// None: the result is split into words.
    None,
    /// Double quotes, or an expression.
    Double,
    /// The text of a here-document.
    HereDocument,
}

/// The placeholder in the text of a word for the output of a script.
const COMMAND_OUTPUT: &str = "$(…)";

/// The placeholder in the text of a word for a file that a script writes or reads.
pub(in crate::policy) const PROCESS_SUBSTITUTION: &str = "<(…)";

/// The error for a text that ends within quotes.
const OPEN_QUOTE: &str = "a quote is not closed";

impl ShellParser {
    /// Parses a word; `None` if no word begins here.
    pub(super) fn parse_word(&mut self) -> ParseResult<Option<ShellWord>> {
        let mut word = ShellWord::default();
        let begun = self.at;
        while let Some(char) = self.peek() {
            match char {
                '<' | '>' if self.peek_at(1) == Some('(') => {
                    self.at += 1;
                    self.parse_command_output(&mut word, PROCESS_SUBSTITUTION)?;
                }
                _ if ends_word(char) => break,
                '\'' => self.parse_single_quotes(&mut word.text)?,
                '"' => self.parse_double_quotes(&mut word)?,
                '$' | '`' => self.parse_expansion(&mut word, Quoting::None)?,
                '\\' => {
                    self.at += 1;
                    let next = self.next_char().unwrap_or('\\');
                    word.text.extend(Some(next).filter(|next| *next != '\n'));
                }
                _ => {
                    let is_first = self.at == begun;
                    self.at += 1;
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
        if word.text.starts_with('{') && matches!(self.peek(), Some('<' | '>')) {
            // The variable in the braces is set to the number of the opened descriptor.
            return fail("braces stand before a redirection");
        }
        // A pair of empty braces is literal if there are no others.
        let is_pair = word.text.contains("{}") && word.text.matches(['{', '}']).count() == 2;
        word.has_braces &= !is_pair;
        if word.has_braces {
            word.raise_form(WordForm::Computed);
        }
        if word.text == "[" {
            // A single bracket is not a pattern.
            word.form = WordForm::Literal;
        }
        Ok((self.at > begun).then_some(word))
    }

    /// Parses text in single quotes.
    fn parse_single_quotes(&mut self, text: &mut String) -> ParseResult<()> {
        self.at += 1;
        *text += &self.take_while(|char| char != '\'');
        if self.take("'") { Ok(()) } else { fail(OPEN_QUOTE) }
    }

    /// Parses text in double quotes.
    fn parse_double_quotes(&mut self, word: &mut ShellWord) -> ParseResult<()> {
        self.at += 1;
        self.parse_quoted(word, Quoting::Double)?;
        if self.take("\"") { Ok(()) } else { fail(OPEN_QUOTE) }
    }

    /// Parses the text of a here-document, which this parser was created for.
    pub(super) fn parse_here_text(mut self) -> ParseResult<ShellWord> {
        let mut word = ShellWord::default();
        self.parse_quoted(&mut word, Quoting::HereDocument)?;
        self.check_here_documents()?;
        Ok(word)
    }

    /// Parses text up to double quotes, or to the end of a here-document.
    fn parse_quoted(&mut self, word: &mut ShellWord, around: Quoting) -> ParseResult<()> {
        let is_in_quotes = around == Quoting::Double;
        while let Some(char) = self.peek() {
            match (char, self.peek_at(1)) {
                ('"', _) if is_in_quotes => break,
                ('\\', None) => return fail(OPEN_QUOTE),
                ('\\', Some(next)) => {
                    self.at += 2;
                    match next {
                        '\n' => {}
                        '$' | '`' | '\\' => word.text.push(next),
                        '"' if is_in_quotes => word.text.push(next),
                        _ => word.text.extend([char, next]),
                    }
                }
                ('`', _) => self.parse_expansion(word, around)?,
                // In here, other quotes after a dollar sign have no meaning.
                ('$', next) if !matches!(next, Some('\'' | '"')) => {
                    self.parse_expansion(word, around)?;
                }
                _ => {
                    self.at += 1;
                    word.text.push(char);
                }
            }
        }
        Ok(())
    }

    /// Parses an expansion that begins with a dollar sign or a backtick.
    fn parse_expansion(&mut self, word: &mut ShellWord, around: Quoting) -> ParseResult<()> {
        self.enter()?;
        self.open_words += 1;
        self.parse_dollar(word, around)?;
        self.open_words -= 1;
        self.depth -= 1;
        Ok(())
    }

    fn parse_dollar(&mut self, word: &mut ShellWord, around: Quoting) -> ParseResult<()> {
        let splits = around == Quoting::None;
        if self.take("`") {
            word.is_split |= splits;
            return self.parse_backticks(word, around);
        }
        self.at += 1;
        match self.peek() {
            Some('(') if self.peek_at(1) == Some('(') => self.parse_arithmetic(word),
            Some('(') => {
                word.is_split |= splits;
                self.parse_command_output(word, COMMAND_OUTPUT)
            }
            Some('[') => fail("it uses $[…]"),
            Some('{') => {
                word.is_split |= splits;
                self.parse_parameter(word, around)
            }
            Some('\'' | '"') if !splits => fail("quotes behind a dollar stand inside of others"),
            Some('\'') => self.parse_ansi_quotes(&mut word.text),
            Some('"') => self.parse_double_quotes(word),
            Some(char) if is_name(char) || "@*#?-$!".contains(char) => {
                word.raise_form(WordForm::Computed);
                // Numbers are not split, but `$!` may be missing; the arguments are several words even in quotes.
                word.is_split |= char == '@' || splits && !"#?$".contains(char);
                word.text.push('$');
                if is_name(char) && !char.is_ascii_digit() {
                    word.text += &self.take_while(is_name);
                } else {
                    self.at += 1;
                    word.text.push(char);
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

    fn parse_backticks(&mut self, word: &mut ShellWord, around: Quoting) -> ParseResult<()> {
        let mut text = String::new();
        loop {
            let char = self.next_char();
            let next = if char == Some('\\') { self.next_char() } else { None };
            match (char, next) {
                (Some('`'), _) => break,
                (Some('\\'), Some('"')) if around != Quoting::None => {
                    return fail("there are quotes in backticks that are in quotes");
                }
                (None, _) | (Some('\\'), None) => return fail("a backtick is not closed"),
                (Some('\\'), Some(char @ ('`' | '\\' | '$'))) => text.push(char),
                (Some(char), next) => text.extend([Some(char), next].into_iter().flatten()),
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
                None => return fail("an expression is not closed"),
                Some('$' | '`') => self.parse_expansion(&mut inner, Quoting::Double)?,
                Some('\'' | '"' | '\\') => return fail("an expression has quotes in it"),
                Some(char) => {
                    self.at += 1;
                    inner.text.push(char);
                    depth += i32::from(char == '(') - i32::from(char == ')');
                    // Otherwise it is a script that begins with a group.
                    if depth == 1 && char == ')' && self.peek() != Some(')') {
                        return fail("two brackets may be an expression or a script");
                    }
                }
            }
        }
        // `_` is a name, too, and its value is evaluated in turn.
        let is_sign = |char: char| char.is_ascii_digit() || " \t()+-*/%<>=!&|^~?:,".contains(char);
        let is_plain = inner.form == WordForm::Literal && inner.text.chars().all(is_sign);
        word.raise_form(if is_plain { WordForm::Computed } else { WordForm::Evaluated });
        word.text += "$((…))";
        word.scripts.append(&mut inner.scripts);
        Ok(())
    }

    /// Parses `${…}`.
    fn parse_parameter(&mut self, word: &mut ShellWord, around: Quoting) -> ParseResult<()> {
        self.at += 1;
        let mut inner = ShellWord::default();
        loop {
            match self.peek() {
                None => return fail("a brace is not closed"),
                Some('}') => break,
                Some('$' | '`') => self.parse_expansion(&mut inner, around)?,
                // In some places, a script in the expansion is run; in others, it is text.
                Some('<' | '>') if self.peek_at(1) == Some('(') => {
                    return fail("a script may stand in ${…}");
                }
                // Whether these are quotes depends on the shell, and on the text before them.
                Some('\'') if around != Quoting::None => {
                    return fail("a quote stands in ${…} inside of others");
                }
                Some('"') if around == Quoting::HereDocument => {
                    return fail("a quote stands in ${…} in a here-document");
                }
                Some('\'') => self.parse_single_quotes(&mut inner.text)?,
                Some('"') => self.parse_double_quotes(&mut inner)?,
                Some('\\') => {
                    self.at += 1;
                    inner.text.extend(self.next_char());
                }
                Some(char) => {
                    self.at += 1;
                    inner.text.push(char);
                }
            }
        }
        self.at += 1;
        let name: String = inner.text.chars().take_while(|char| is_name(*char)).collect();
        let rest = &inner.text[name.len()..];
        // An expansion may assign only to a variable of the script itself, whose name is in lower case.
        let is_assignable = is_variable(&name) && !name.contains(|c: char| c.is_ascii_uppercase());
        let is_plain = match rest.strip_prefix(':').unwrap_or(rest).chars().next() {
            None => rest.is_empty(),
            Some('=') => is_assignable,
            Some('-' | '?' | '+') => !name.is_empty() || rest.starts_with(':'),
            Some('#' | '%' | '/' | '^' | ',') => !name.is_empty() && !rest.starts_with(':'),
            Some(_) => false,
        };
        word.raise_form(if is_plain { WordForm::Computed } else { WordForm::Evaluated });
        word.raise_form(inner.form);
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
        self.at += 1;
        while let Some(mut char) = self.next_char() {
            if char == '\'' {
                return Ok(());
            }
            if char == '\\' {
                char = match self.next_char() {
                    None => break,
                    Some('n') => '\n',
                    Some('t') => '\t',
                    Some('r') => '\r',
                    Some('a') => '\u{7}',
                    Some('b') => '\u{8}',
                    Some('e' | 'E') => '\u{1b}',
                    Some('f') => '\u{c}',
                    Some('v') => '\u{b}',
                    Some(sign @ ('\\' | '"' | '?')) => sign,
                    // Shells that don't know these quotes would see their end here.
                    Some('\'') => return fail("there is a quote within a quote"),
                    Some('x') => self.parse_char_number(16, 2)?,
                    Some('u') => self.parse_char_number(16, 4)?,
                    Some('U') => self.parse_char_number(16, 8)?,
                    Some(_) => {
                        self.at -= 1;
                        self.parse_char_number(8, 3)?
                    }
                };
            }
            text.push(char);
        }
        fail(OPEN_QUOTE)
    }

    /// Parses the digits of a numeric escape.
    fn parse_char_number(&mut self, radix: u32, most: usize) -> ParseResult<char> {
        let digits = self.chars[self.at..].iter().map_while(|char| char.to_digit(radix)).take(most);
        let digits: Vec<u32> = digits.collect();
        self.at += digits.len();
        let code = digits.iter().fold(0, |code, digit| code * radix + digit);
        match char::from_u32(code).filter(|char| !digits.is_empty() && *char != '\0') {
            Some(char) => Ok(char),
            None => fail("a quote has an escape that is not known"),
        }
    }
}
