//! Scripts, pipelines and commands.

use super::parser::{ShellParser, ends_word, is_name, is_variable};
use super::syntax::{
    Assignment, CommandKind, Redirection, RedirectionKind, ShellCommand, ShellPipeline,
    ShellScript, ShellWord, WordForm,
};
use super::{ParseResult, UnparsableLine, fail};

/// The signs or words that end a script where a command could begin; if empty, the end of the text ends it.
type ScriptEnd = &'static [&'static str];

/// The ends of a script in a `case` command.
const CASE_END: ScriptEnd = &[";;", ";&", "esac"];

/// The redirection operators, longest first.
const REDIRECTIONS: [&str; 12] =
    ["<<<", "<<-", "<<", "<&", "<>", "<", ">&", ">>", ">|", ">", "&>>", "&>"];

impl ShellParser {
    /// Parses a script up to the end of the text.
    pub(super) fn parse_text(&mut self) -> ParseResult<ShellScript> {
        let script = self.parse_script(&[])?;
        self.check_here_documents()?;
        Ok(script)
    }

    /// Parses a script in parentheses.
    pub(super) fn parse_bracketed(&mut self) -> ParseResult<ShellScript> {
        self.take("(");
        self.enter()?;
        let script = self.parse_script(&[")"])?;
        self.depth -= 1;
        self.take(")");
        Ok(script)
    }

    /// Parses a script up to its end, without consuming the end.
    fn parse_script(&mut self, end: ScriptEnd) -> ParseResult<ShellScript> {
        let mut script = ShellScript::default();
        loop {
            self.skip_lines();
            if self.end_of_script(end).is_some() {
                return Ok(script);
            }
            let mut pipeline = self.parse_pipeline()?;
            self.skip_blank();
            if self.peek() == Some('#') {
                self.skip_comment();
            }
            match self.peek() {
                Some('&' | '|') if self.take("&&") || self.take("||") => {
                    self.skip_lines();
                    if self.peek().is_none() || self.end_of_script(end).is_some() {
                        return fail("a command is missing behind && or ||");
                    }
                }
                Some('&') => {
                    self.at += 1;
                    pipeline.is_background = true;
                }
                Some('\n') => self.end_line(),
                _ if self.end_of_script(end).is_some() => {}
                Some(';') if matches!(self.peek_at(1), Some(';' | '&')) => {
                    return fail("a case ends that has not begun");
                }
                Some(';') => self.at += 1,
                None => {}
                Some(_) => return fail("a command does not end where it should"),
            }
            script.pipelines.push(pipeline);
        }
    }

    /// Returns the end of the script at this position; an empty text at the end of the text, and `None` if the script
    /// continues.
    fn end_of_script(&mut self, end: ScriptEnd) -> Option<&'static str> {
        if end.is_empty() {
            return self.peek().is_none().then_some("");
        }
        let here = self.at;
        let is_sign = |token: &str| token.starts_with([')', ';']);
        let found = end.iter().find(|token| match is_sign(token) {
            true => self.take(token),
            false => self.take_keyword(token),
        });
        self.at = here;
        found.copied()
    }

    fn parse_pipeline(&mut self) -> ParseResult<ShellPipeline> {
        let mut pipeline = ShellPipeline::default();
        loop {
            self.skip_lines();
            while self.take_keyword("!") || self.take_keyword("time") {
                self.skip_blank();
                if self.take_keyword("-p") {
                    self.skip_blank();
                }
            }
            pipeline.commands.push(self.parse_command()?);
            self.skip_blank();
            if self.peek() != Some('|') || self.peek_at(1) == Some('|') {
                return Ok(pipeline);
            }
            let _ = self.take("|&") || self.take("|");
        }
    }

    fn parse_command(&mut self) -> ParseResult<ShellCommand> {
        self.enter()?;
        let mut command = self.parse_body()?;
        self.depth -= 1;
        self.skip_blank();
        while let Some(redirection) = self.parse_redirection()? {
            command.redirections.push(redirection);
            self.skip_blank();
        }
        Ok(command)
    }

    /// Parses a simple command with its redirections, or a compound command without them.
    fn parse_body(&mut self) -> ParseResult<ShellCommand> {
        let group =
            |scripts| ShellCommand { kind: CommandKind::Group, scripts, ..Default::default() };
        if self.peek() == Some('(') && self.peek_at(1) == Some('(') {
            return Ok(ShellCommand { words: vec![self.parse_evaluated()?], ..group(Vec::new()) });
        }
        if self.peek() == Some('(') {
            return Ok(group(vec![self.parse_bracketed()?]));
        }
        if self.take_keyword("{") {
            return Ok(group(vec![self.parse_until(&["}"])?.0]));
        }
        if self.take_keyword("if") {
            let mut scripts = Vec::new();
            loop {
                let (script, end) = self.parse_until(&["then", "elif", "else", "fi"])?;
                scripts.push(script);
                if end == "fi" {
                    return Ok(group(scripts));
                }
            }
        }
        if self.take_keyword("while") || self.take_keyword("until") {
            let condition = self.parse_until(&["do"])?.0;
            return Ok(group(vec![condition, self.parse_until(&["done"])?.0]));
        }
        if self.take_keyword("for") || self.take_keyword("select") {
            return self.parse_for();
        }
        if self.take_keyword("case") {
            return self.parse_case();
        }
        if self.take_keyword("[[") {
            return self.parse_condition();
        }
        if self.take_keyword("function") {
            self.skip_blank();
            let name = self.expect_word("a function has no name")?;
            self.skip_blank();
            if self.take("(") && !self.take(")") {
                return fail("a function is not defined as usual");
            }
            return self.parse_function(name.text);
        }
        if self.take_keyword("coproc") {
            return fail("it uses coproc");
        }
        self.parse_simple()
    }

    fn parse_function(&mut self, name: String) -> ParseResult<ShellCommand> {
        self.skip_lines();
        let body = ShellPipeline { commands: vec![self.parse_command()?], is_background: false };
        let scripts = vec![ShellScript { pipelines: vec![body] }];
        Ok(ShellCommand { kind: CommandKind::Function(name), scripts, ..Default::default() })
    }

    /// Parses a script up to one of these words, and consumes the word.
    fn parse_until(&mut self, end: ScriptEnd) -> ParseResult<(ShellScript, &'static str)> {
        let script = self.parse_script(end)?;
        let word = self.end_of_script(end).filter(|word| self.take(word));
        word.map(|word| (script, word))
            .ok_or(UnparsableLine("a group, loop or condition does not end"))
    }

    /// Parses an expression in double brackets.
    fn parse_evaluated(&mut self) -> ParseResult<ShellWord> {
        let mut word = ShellWord::default();
        self.parse_arithmetic(&mut word)?;
        word.raise_form(WordForm::Evaluated);
        Ok(word)
    }

    fn expect_word(&mut self, otherwise: &'static str) -> ParseResult<ShellWord> {
        self.parse_word()?.ok_or(UnparsableLine(otherwise))
    }

    fn parse_for(&mut self) -> ParseResult<ShellCommand> {
        self.skip_blank();
        let mut command = ShellCommand { kind: CommandKind::Group, ..Default::default() };
        if self.peek() == Some('(') {
            command.words.push(self.parse_evaluated()?);
        } else {
            let name = self.expect_word("a loop has no variable")?;
            if !name.is_literal() || !is_variable(&name.text) {
                return fail("a loop has no variable");
            }
            let mut values = Vec::new();
            self.skip_lines();
            if self.take_keyword("in") {
                self.skip_blank();
                while let Some(word) = self.parse_word()? {
                    values.push(word);
                    self.skip_blank();
                }
            }
            command.assignments.push(Assignment { name: name.text, values, is_list: false });
        }
        self.skip_blank();
        self.take(";");
        self.skip_lines();
        if !self.take_keyword("do") {
            return fail("a loop has no do");
        }
        command.scripts.push(self.parse_until(&["done"])?.0);
        Ok(command)
    }

    fn parse_case(&mut self) -> ParseResult<ShellCommand> {
        let mut command = ShellCommand { kind: CommandKind::Group, ..Default::default() };
        self.skip_blank();
        command.words.push(self.expect_word("a case has no word")?);
        self.skip_lines();
        if !self.take_keyword("in") {
            return fail("a case has no in");
        }
        loop {
            self.skip_lines();
            if self.take_keyword("esac") {
                return Ok(command);
            }
            self.take("(");
            loop {
                self.skip_blank();
                command.words.push(self.expect_word("a case has no pattern")?);
                self.skip_blank();
                if !self.take("|") {
                    break;
                }
            }
            if !self.take(")") {
                return fail("the pattern of a case does not end");
            }
            command.scripts.push(self.parse_script(CASE_END)?);
            let _ = self.take(";;&") || self.take(";;") || self.take(";&");
        }
    }

    /// Parses `[[ … ]]` as a simple command; operators inside have no meaning for the shell.
    fn parse_condition(&mut self) -> ParseResult<ShellCommand> {
        let mut words = vec![ShellWord::literal("[[")];
        let mut brackets = 0;
        self.open_words += 1;
        loop {
            while self.take("\n") || self.take("\\\n") || self.take(" ") || self.take("\t") {}
            if self.take_keyword("]]") {
                words.push(ShellWord::literal("]]"));
                break;
            }
            match self.parse_word()? {
                Some(word) if word.text.starts_with('#') => {
                    return fail("a condition has a # in it");
                }
                Some(word) => words.push(word),
                None => match self.next_char() {
                    Some(sign) => {
                        brackets += i32::from(sign == '(') - i32::from(sign == ')');
                        words.push(ShellWord::literal(&sign.to_string()));
                    }
                    None => return fail("a condition does not end"),
                },
            }
        }
        self.open_words -= 1;
        match brackets {
            0 => Ok(ShellCommand { words, ..Default::default() }),
            _ => fail("a condition ends inside of brackets"),
        }
    }

    fn parse_simple(&mut self) -> ParseResult<ShellCommand> {
        let mut command = ShellCommand::default();
        loop {
            self.skip_blank();
            if self.peek() == Some('#') {
                self.skip_comment();
            }
            if let Some(redirection) = self.parse_redirection()? {
                command.redirections.push(redirection);
                continue;
            }
            if command.words.is_empty()
                && let Some(assignment) = self.parse_assignment()?
            {
                command.assignments.push(assignment);
                continue;
            }
            if self.take("(") {
                self.skip_blank();
                return match command.words.as_slice() {
                    [name] if self.take(")") => self.parse_function(name.text.clone()),
                    _ => fail("a bracket stands where none can be"),
                };
            }
            match self.parse_word()? {
                Some(word) => command.words.push(word),
                None if command == ShellCommand::default() => return fail("a command is missing"),
                None => return Ok(command),
            }
        }
    }

    /// Parses an assignment; `None` if no assignment begins here.
    fn parse_assignment(&mut self) -> ParseResult<Option<Assignment>> {
        let begun = self.at;
        let name = self.take_while(is_name);
        let is_element = self.peek() == Some('[') && is_variable(&name);
        if is_element {
            // Text in the brackets is evaluated.
            self.take_while(|char| char != ']' && !ends_word(char));
            self.take("]");
        }
        if !is_variable(&name) || !(self.take("+=") || self.take("=")) {
            self.at = begun;
            return Ok(None);
        }
        if is_element {
            return fail("it sets an element of an array");
        }
        let mut values = Vec::new();
        let is_list = self.take("(");
        if is_list {
            self.open_words += 1;
            self.skip_lines();
            while let Some(word) = self.parse_word()? {
                values.push(word);
                self.skip_lines();
            }
            self.open_words -= 1;
            if !self.take(")") {
                return fail("an array is not closed");
            }
            // A shell takes adjoining text for a part of the assignment, so the command would be the word after it.
            if self.peek().is_some_and(|char| !ends_word(char)) {
                return fail("a word continues after an array");
            }
        } else {
            values.extend(self.parse_word()?);
        }
        Ok(Some(Assignment { name, values, is_list }))
    }

    /// Parses a redirection; `None` if no redirection begins here.
    fn parse_redirection(&mut self) -> ParseResult<Option<Redirection>> {
        let begun = self.at;
        // A number before the operator is the redirected descriptor.
        let has_number = !self.take_while(|char| char.is_ascii_digit()).is_empty();
        let is_script = !has_number && self.peek_at(1) == Some('(');
        let may_begin = |sign: &&&str| !is_script && (!has_number || !sign.starts_with('&'));
        let found = REDIRECTIONS.iter().filter(may_begin).find(|sign| self.take(sign));
        let Some(sign) = found else {
            self.at = begun;
            return Ok(None);
        };
        self.skip_blank();
        if let "<<" | "<<-" = *sign {
            let target = self.parse_here_document(*sign == "<<-")?;
            return Ok(Some(Redirection { kind: RedirectionKind::HereDocument, target }));
        }
        let target = self.expect_word("a redirection has no target")?;
        let is_number = target.text.trim_end_matches('-').chars().all(|c| c.is_ascii_digit());
        let kind = match *sign {
            "<<<" => RedirectionKind::HereDocument,
            "<" => RedirectionKind::Read,
            // `>&file` writes a file.
            "<&" | ">&" if target.is_literal() && is_number => RedirectionKind::Duplicate,
            _ => RedirectionKind::Write,
        };
        Ok(Some(Redirection { kind, target }))
    }

    /// Parses the delimiter of a here-document, and removes its text.
    fn parse_here_document(&mut self, without_tabs: bool) -> ParseResult<ShellWord> {
        let begun = self.at;
        let delimiter = self.expect_word("a here-document has no delimiter")?;
        let has_quotes = |text: &[char]| text.iter().any(|char| "'\"\\\n$".contains(*char));
        let is_plain = |char: char| is_name(char) || "-.!+@%,:".contains(char);
        let (inner, is_quoted) = match &self.chars[begun..self.at] {
            ['\'', inner @ .., '\''] | ['"', inner @ .., '"'] | ['\\', inner @ ..] => (inner, true),
            bare => (bare, false),
        };
        if !delimiter.is_literal() || !delimiter.text.chars().all(is_plain) || has_quotes(inner) {
            return fail("the delimiter of a here-document is not plain");
        }
        let text = self.here_document(&delimiter.text, without_tabs, is_quoted)?;
        match is_quoted {
            true => Ok(ShellWord::literal(&text)),
            false => Self::new(&text, self.depth + 1)?.parse_here_text(),
        }
    }
}
