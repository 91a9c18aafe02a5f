//! Words: quotes, variables, the output of other commands.

use super::Unreadable;
use super::reader::{Reader, ends_word, is_name, is_variable};
use super::syntax::{Form, Word};

type Read<T> = Result<T, Unreadable>;

/// What an expansion stands in: shells read its inside differently.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Around {
    /// Nothing: what it becomes is split into words.
    Nothing,
    /// Double quotes, or an expression.
    Quotes,
    /// The text of a here-document.
    Here,
}

/// Returns whether a variable may be set inside of a word: the names of a script's own are small.
fn can_be_set(name: &str) -> bool {
    is_variable(name) && !name.contains(|char: char| char.is_ascii_uppercase())
}

/// What stands in the text of a word for the output of a script.
const OUTPUT: &str = "$(…)";

/// What stands in the text of a word for a file that a script writes or reads.
pub(in crate::tools::permission) const PIPED: &str = "<(…)";

impl Reader {
    /// Reads a word; none when there is none here.
    pub(super) fn word(&mut self) -> Read<Option<Word>> {
        let mut word = Word::default();
        let begun = self.position();
        while let Some(char) = self.peek() {
            match char {
                '<' | '>' if self.peek_at(1) == Some('(') => {
                    self.next();
                    self.output(&mut word, PIPED)?;
                }
                _ if ends_word(char) => break,
                '\'' => {
                    self.next();
                    self.single(&mut word.text)?;
                }
                '"' => {
                    self.next();
                    self.double(&mut word, Some('"'))?;
                }
                '\\' => {
                    self.next();
                    match self.next() {
                        Some('\n') => {}
                        Some(char) => word.text.push(char),
                        None => word.text.push('\\'),
                    }
                }
                '$' | '`' => self.expansion(&mut word, Around::Nothing)?,
                _ => {
                    let is_first = self.position() == begun;
                    self.next();
                    word.text.push(char);
                    match char {
                        '*' | '?' | '[' => word.at_least(Form::Pattern),
                        '{' => word.has_braces = true,
                        '~' if is_first || word.text.ends_with("=~") => {
                            word.at_least(Form::Computed);
                        }
                        _ => {}
                    }
                }
            }
        }
        if word.text.starts_with('{') && self.peek().is_some_and(|char| matches!(char, '<' | '>')) {
            // The variable in the braces is set to the number of what is opened.
            return Err(Unreadable("braces stand before a redirection"));
        }
        // A pair of braces with nothing in it is what it seems, where it is the only one.
        let is_pair = word.text.contains("{}")
            && word.text.matches('{').count() + word.text.matches('}').count() == 2;
        if word.has_braces && !is_pair {
            word.at_least(Form::Computed);
        }
        word.has_braces &= !is_pair;
        if word.text == "[" {
            // Nothing that it could be a pattern for.
            word.form = Form::Literal;
        }
        Ok((self.position() > begun).then_some(word))
    }

    /// Reads what stands between single quotes, the first of which was taken.
    fn single(&mut self, text: &mut String) -> Read<()> {
        loop {
            match self.next() {
                Some('\'') => return Ok(()),
                Some(char) => text.push(char),
                None => return Err(Unreadable("a quote is not closed")),
            }
        }
    }

    /// Reads the text of a here-document, as which this reader was made.
    pub(super) fn here_text(mut self) -> Read<Word> {
        let mut word = Word::default();
        self.double(&mut word, None)?;
        self.in_order()?;
        Ok(word)
    }

    /// Reads what stands between double quotes, or in the text of a here-document, which ends with the text.
    fn double(&mut self, word: &mut Word, end: Option<char>) -> Read<()> {
        let around = if end.is_some() { Around::Quotes } else { Around::Here };
        loop {
            match self.peek() {
                char if char == end => {
                    self.next();
                    return Ok(());
                }
                None => return Err(Unreadable("a quote is not closed")),
                Some('\\') => {
                    self.next();
                    match self.next() {
                        Some('\n') => {}
                        Some(char @ ('$' | '`' | '\\')) => word.text.push(char),
                        Some('"') if around == Around::Quotes => word.text.push('"'),
                        Some(char) => word.text.extend(['\\', char]),
                        None => return Err(Unreadable("a quote is not closed")),
                    }
                }
                // Inside, the other kind of quotes has no meaning behind a dollar.
                Some('$') if matches!(self.peek_at(1), Some('\'' | '"')) => {
                    self.next();
                    word.text.push('$');
                }
                Some('$' | '`') => self.expansion(word, around)?,
                Some(char) => {
                    self.next();
                    word.text.push(char);
                }
            }
        }
    }

    /// Reads what begins with a dollar or a backtick.
    fn expansion(&mut self, word: &mut Word, around: Around) -> Read<()> {
        self.deeper()?;
        self.inside += 1;
        self.expanded(word, around)?;
        self.inside -= 1;
        self.depth -= 1;
        Ok(())
    }

    fn expanded(&mut self, word: &mut Word, around: Around) -> Read<()> {
        let splits = around == Around::Nothing;
        if self.take("`") {
            word.splits |= splits;
            return self.backticks(word, around);
        }
        self.next();
        match self.peek() {
            Some('(') if self.peek_at(1) == Some('(') => self.arithmetic(word),
            Some('(') => {
                word.splits |= splits;
                self.output(word, OUTPUT)
            }
            Some('[') => Err(Unreadable("it uses $[…]")),
            Some('{') => {
                word.splits |= splits;
                self.parameter(word, around)
            }
            Some('\'' | '"') if around != Around::Nothing => {
                Err(Unreadable("quotes behind a dollar stand inside of others"))
            }
            Some('\'') => {
                self.next();
                self.escaped(&mut word.text)
            }
            Some('"') => {
                self.next();
                self.double(word, Some('"'))
            }
            Some(char) if is_name(char) || "@*#?-$!".contains(char) => {
                word.at_least(Form::Computed);
                // Numbers are not split; the arguments are several words even inside of quotes.
                word.splits |= char == '@' || splits && !"#?$!".contains(char);
                word.text.push('$');
                if !is_name(char) || char.is_ascii_digit() {
                    self.next();
                    word.text.push(char);
                } else {
                    while let Some(char) = self.peek().filter(|char| is_name(*char)) {
                        self.next();
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

    /// Reads a script in brackets whose output becomes a part of the word.
    fn output(&mut self, word: &mut Word, mark: &str) -> Read<()> {
        self.inside += 1;
        let script = self.bracketed()?;
        self.inside -= 1;
        word.at_least(Form::Computed);
        word.text += mark;
        word.scripts.push(script);
        Ok(())
    }

    fn backticks(&mut self, word: &mut Word, around: Around) -> Read<()> {
        let mut text = String::new();
        loop {
            match self.next() {
                Some('`') => break,
                Some('\\') => match self.next() {
                    Some(char @ ('`' | '\\' | '$')) => text.push(char),
                    Some('"') if around != Around::Nothing => {
                        return Err(Unreadable("quotes stand in backticks inside of others"));
                    }
                    Some(char) => text.extend(['\\', char]),
                    None => return Err(Unreadable("a backtick is not closed")),
                },
                Some(char) => text.push(char),
                None => return Err(Unreadable("a backtick is not closed")),
            }
        }
        word.at_least(Form::Computed);
        word.text += OUTPUT;
        word.scripts.push(super::script(&text, self.depth + 1)?);
        Ok(())
    }

    /// Reads `((…))`; what stands in it is harmless only when it has no names in it.
    pub(super) fn arithmetic(&mut self, word: &mut Word) -> Read<()> {
        self.take("((");
        let mut inner = Word::default();
        let mut depth = 2;
        while depth > 0 {
            match self.peek() {
                None => return Err(Unreadable("an expression is not closed")),
                Some('$' | '`') => self.expansion(&mut inner, Around::Quotes)?,
                Some('\'' | '"' | '\\') => {
                    return Err(Unreadable("an expression has quotes in it"));
                }
                Some(char) => {
                    self.next();
                    inner.text.push(char);
                    depth += i32::from(char == '(') - i32::from(char == ')');
                    // Otherwise it is a script that begins with a group.
                    if depth == 1 && char == ')' && self.peek() != Some(')') {
                        return Err(Unreadable("two brackets may be an expression or a script"));
                    }
                }
            }
        }
        // The name `_` is one, too, and its value is evaluated again.
        let is_sign = |char: char| char.is_ascii_digit() || " \t()+-*/%<>=!&|^~?:,".contains(char);
        let is_plain = inner.form == Form::Literal && inner.text.chars().all(is_sign);
        word.at_least(if is_plain { Form::Computed } else { Form::Evaluated });
        word.text += "$((…))";
        word.scripts.append(&mut inner.scripts);
        Ok(())
    }

    /// Reads `${…}`.
    fn parameter(&mut self, word: &mut Word, around: Around) -> Read<()> {
        self.next();
        let mut inner = Word::default();
        loop {
            match self.peek() {
                None => return Err(Unreadable("a brace is not closed")),
                Some('}') => break,
                Some('$' | '`') => self.expansion(&mut inner, around)?,
                // In some places a script in it is run, in others it is text.
                Some('<' | '>') if self.peek_at(1) == Some('(') => {
                    return Err(Unreadable("a script may stand in ${…}"));
                }
                // Whether these are quotes depends on the shell, and on what stands before them.
                Some('\'') if around != Around::Nothing => {
                    return Err(Unreadable("a quote stands in ${…} inside of others"));
                }
                Some('"') if around == Around::Here => {
                    return Err(Unreadable("a quote stands in ${…} in a here-document"));
                }
                Some('\'') => {
                    self.next();
                    self.single(&mut inner.text)?;
                }
                Some('"') => {
                    self.next();
                    self.double(&mut inner, Some('"'))?;
                }
                Some('\\') => {
                    self.next();
                    inner.text.extend(self.next());
                }
                Some(char) => {
                    self.next();
                    inner.text.push(char);
                }
            }
        }
        self.next();
        let name: String = inner.text.chars().take_while(|char| is_name(*char)).collect();
        let rest = &inner.text[name.len()..];
        let is_plain = match rest.chars().next() {
            None => true,
            Some('=') => can_be_set(&name),
            Some('-' | '?' | '+' | '#' | '%' | '/' | '^' | ',') => !name.is_empty(),
            Some(':') if rest[1..].starts_with('=') => can_be_set(&name),
            Some(':') => rest[1..].starts_with(['-', '?', '+']),
            Some(_) => false,
        };
        word.at_least(inner.form.max(if is_plain { Form::Computed } else { Form::Evaluated }));
        word.splits |= inner.splits;
        if is_variable(&name) && rest.is_empty() && !self.peek().is_some_and(is_name) {
            word.text.extend(["$", &name]);
        } else {
            word.text.extend(["${", &inner.text, "}"]);
        }
        word.scripts.append(&mut inner.scripts);
        Ok(())
    }

    /// Reads `$'…'`, in which characters may be written by their numbers.
    fn escaped(&mut self, text: &mut String) -> Read<()> {
        loop {
            match self.next() {
                None => return Err(Unreadable("a quote is not closed")),
                Some('\'') => return Ok(()),
                Some('\\') => {
                    let Some(kind) = self.next() else {
                        return Err(Unreadable("a quote is not closed"));
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
                        '\'' => return Err(Unreadable("a quote has another one in it")),
                        'x' => self.number(16, 2)?,
                        'u' => self.number(16, 4)?,
                        'U' => self.number(16, 8)?,
                        '0'..='7' => {
                            self.back_to(self.position() - 1);
                            self.number(8, 3)?
                        }
                        _ => return Err(Unreadable("a quote has an escape that is not known")),
                    };
                    text.push(char);
                }
                Some(char) => text.push(char),
            }
        }
    }

    /// Reads the number of a character.
    fn number(&mut self, radix: u32, most: usize) -> Read<char> {
        let mut code = 0;
        let mut digits = 0;
        while let Some(digit) = self.peek().and_then(|char| char.to_digit(radix)) {
            if digits == most {
                break;
            }
            code = code * radix + digit;
            digits += 1;
            self.next();
        }
        let char = char::from_u32(code).filter(|char| digits > 0 && *char != '\0');
        char.ok_or(Unreadable("a quote has an escape that is not known"))
    }
}
