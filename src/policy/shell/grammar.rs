//! Scripts, pipelines and commands.

use super::UnparsableLine;
use super::parser::{ShellParser, ends_word, is_name, is_variable};
use super::syntax::{
    Assignment, CommandBody, Pipeline, Redirection, RedirectionKind, ShellCommand, ShellScript,
    ShellWord, SimpleCommand, WordForm,
};

pub(super) type ParseResult<T> = Result<T, UnparsableLine>;

/// Where a script ends.
#[derive(Clone, Copy)]
enum ScriptEnd {
    /// At the end of the text.
    EndOfText,
    /// At a closing bracket.
    Bracket,
    /// At one of these words, where a command could begin.
    Keywords(&'static [&'static str]),
    /// At the end of a case.
    Case,
}

impl ShellParser {
    /// Parses a script up to the end of the text.
    pub(super) fn parse_text(&mut self) -> ParseResult<ShellScript> {
        let script = self.parse_script(ScriptEnd::EndOfText)?;
        self.check_here_documents()?;
        if self.peek().is_some() {
            return Err(UnparsableLine("a bracket or a word stands where no command can begin"));
        }
        Ok(script)
    }

    /// Parses a script in parentheses.
    pub(super) fn parse_bracketed(&mut self) -> ParseResult<ShellScript> {
        self.take("(");
        self.enter()?;
        let script = self.parse_script(ScriptEnd::Bracket)?;
        self.depth -= 1;
        if !self.take(")") {
            return Err(UnparsableLine("a bracket is not closed"));
        }
        Ok(script)
    }

    /// Parses a script up to its end, which is not consumed.
    fn parse_script(&mut self, end: ScriptEnd) -> ParseResult<ShellScript> {
        let mut script = ShellScript::default();
        loop {
            self.skip_lines();
            if self.is_at_end(end) {
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
                    if self.peek().is_none() || self.is_at_end(end) {
                        return Err(UnparsableLine("a command is missing behind && or ||"));
                    }
                }
                Some('&') => {
                    self.next_char();
                    pipeline.is_background = true;
                }
                Some(';') if matches!(self.peek_at(1), Some(';' | '&')) => match end {
                    ScriptEnd::Case => {}
                    ScriptEnd::EndOfText | ScriptEnd::Bracket | ScriptEnd::Keywords(_) => {
                        return Err(UnparsableLine("a case ends where there is none"));
                    }
                },
                Some(';') => {
                    self.next_char();
                }
                Some('\n') => self.end_line(),
                None => {}
                Some(')') if matches!(end, ScriptEnd::Bracket) => {}
                Some(_)
                    if matches!(end, ScriptEnd::Keywords(_) | ScriptEnd::Case)
                        && self.is_at_end(end) => {}
                Some(_) => return Err(UnparsableLine("a command does not end where it should")),
            }
            script.pipelines.push(pipeline);
        }
    }

    fn is_at_end(&mut self, end: ScriptEnd) -> bool {
        let begun = self.position();
        let is_at = match end {
            ScriptEnd::EndOfText => self.peek().is_none(),
            ScriptEnd::Bracket => self.peek() == Some(')'),
            ScriptEnd::Keywords(words) => words.iter().any(|word| self.take_keyword(word)),
            ScriptEnd::Case => self.take(";;") || self.take(";&") || self.take_keyword("esac"),
        };
        self.back_to(begun);
        is_at
    }

    fn parse_pipeline(&mut self) -> ParseResult<Pipeline> {
        let mut pipeline = Pipeline::default();
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
            if self.peek() == Some('|') && self.peek_at(1) != Some('|') {
                self.take("|");
                self.take("&");
            } else {
                return Ok(pipeline);
            }
        }
    }

    fn parse_command(&mut self) -> ParseResult<ShellCommand> {
        self.enter()?;
        let body = self.parse_body()?;
        self.depth -= 1;
        match body {
            // Its redirections were read with it.
            Ok(simple) => Ok(simple),
            Err(body) => {
                let mut redirections = Vec::new();
                loop {
                    self.skip_blank();
                    match self.parse_redirection()? {
                        Some(redirection) => redirections.push(redirection),
                        None => return Ok(ShellCommand { body, redirections }),
                    }
                }
            }
        }
    }

    /// Parses a simple command, or the body of a compound one.
    fn parse_body(&mut self) -> ParseResult<Result<ShellCommand, CommandBody>> {
        let group =
            |scripts| Ok(Err(CommandBody::Group { scripts, words: Vec::new(), variable: None }));
        if self.peek() == Some('(') && self.peek_at(1) == Some('(') {
            let mut word = ShellWord::default();
            self.parse_arithmetic(&mut word)?;
            word.raise_form(WordForm::Evaluated);
            return Ok(Err(CommandBody::Group {
                scripts: Vec::new(),
                words: vec![word],
                variable: None,
            }));
        }
        if self.peek() == Some('(') {
            return group(vec![self.parse_bracketed()?]);
        }
        if self.take_keyword("{") {
            return group(vec![self.parse_until(&["}"])?.0]);
        }
        if self.take_keyword("if") {
            let mut scripts = Vec::new();
            loop {
                let (script, end) = self.parse_until(&["then", "elif", "else", "fi"])?;
                scripts.push(script);
                if end == "fi" {
                    return group(scripts);
                }
            }
        }
        if self.take_keyword("while") || self.take_keyword("until") {
            let condition = self.parse_until(&["do"])?.0;
            return group(vec![condition, self.parse_until(&["done"])?.0]);
        }
        if self.take_keyword("for") || self.take_keyword("select") {
            return self.parse_for().map(Err);
        }
        if self.take_keyword("case") {
            return self.parse_case().map(Err);
        }
        if self.take_keyword("[[") {
            return self.parse_condition().map(Ok);
        }
        if self.take_keyword("function") {
            self.skip_blank();
            let name = self.parse_word()?.ok_or(UnparsableLine("a function has no name"))?;
            self.skip_blank();
            if self.take("(") && !self.take(")") {
                return Err(UnparsableLine("a function is not defined as usual"));
            }
            self.skip_lines();
            let body = Box::new(self.parse_command()?);
            return Ok(Err(CommandBody::Function { name: name.text, body }));
        }
        if self.take_keyword("coproc") {
            return Err(UnparsableLine("it uses coproc"));
        }
        self.parse_simple()
    }

    /// Parses a script up to one of these words, and consumes the word.
    fn parse_until(
        &mut self,
        words: &'static [&'static str],
    ) -> ParseResult<(ShellScript, &'static str)> {
        let script = self.parse_script(ScriptEnd::Keywords(words))?;
        self.skip_blank();
        let end = words.iter().find(|word| self.take_keyword(word));
        end.map(|end| (script, *end))
            .ok_or(UnparsableLine("a group, loop or condition does not end"))
    }

    fn parse_for(&mut self) -> ParseResult<CommandBody> {
        self.skip_blank();
        let (mut words, mut variable) = (Vec::new(), None);
        if self.peek() == Some('(') {
            let mut word = ShellWord::default();
            self.parse_arithmetic(&mut word)?;
            word.raise_form(WordForm::Evaluated);
            words.push(word);
        } else {
            let name =
                self.parse_word()?.filter(|name| name.is_literal() && is_variable(&name.text));
            variable = Some(name.ok_or(UnparsableLine("a loop has no variable"))?.text);
            self.skip_lines();
            if self.take_keyword("in") {
                self.skip_blank();
                while let Some(word) = self.parse_word()? {
                    words.push(word);
                    self.skip_blank();
                }
            }
        }
        self.skip_blank();
        self.take(";");
        self.skip_lines();
        if !self.take_keyword("do") {
            return Err(UnparsableLine("a loop has no do"));
        }
        let scripts = vec![self.parse_until(&["done"])?.0];
        Ok(CommandBody::Group { scripts, words, variable })
    }

    fn parse_case(&mut self) -> ParseResult<CommandBody> {
        self.skip_blank();
        let word = self.parse_word()?.ok_or(UnparsableLine("a case has no word"))?;
        self.skip_lines();
        if !self.take_keyword("in") {
            return Err(UnparsableLine("a case has no in"));
        }
        let (mut words, mut scripts) = (vec![word], Vec::new());
        loop {
            self.skip_lines();
            if self.take_keyword("esac") {
                return Ok(CommandBody::Group { scripts, words, variable: None });
            }
            self.take("(");
            loop {
                self.skip_blank();
                words.push(self.parse_word()?.ok_or(UnparsableLine("a case has no pattern"))?);
                self.skip_blank();
                if !self.take("|") {
                    break;
                }
            }
            if !self.take(")") {
                return Err(UnparsableLine("the pattern of a case does not end"));
            }
            scripts.push(self.parse_script(ScriptEnd::Case)?);
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
                    return Err(UnparsableLine("a condition has a # in it"));
                }
                Some(word) => words.push(word),
                None => match self.next_char() {
                    Some(sign) => {
                        brackets += i32::from(sign == '(') - i32::from(sign == ')');
                        words.push(ShellWord::literal(&sign.to_string()));
                    }
                    None => return Err(UnparsableLine("a condition does not end")),
                },
            }
        }
        self.open_words -= 1;
        if brackets != 0 {
            return Err(UnparsableLine("a condition ends inside of brackets"));
        }
        let body = CommandBody::Simple(SimpleCommand { assignments: Vec::new(), words });
        let mut redirections = Vec::new();
        self.skip_blank();
        while let Some(redirection) = self.parse_redirection()? {
            redirections.push(redirection);
            self.skip_blank();
        }
        Ok(ShellCommand { body, redirections })
    }

    fn parse_simple(&mut self) -> ParseResult<Result<ShellCommand, CommandBody>> {
        let mut simple = SimpleCommand::default();
        let mut redirections = Vec::new();
        loop {
            self.skip_blank();
            if self.peek() == Some('#') {
                self.skip_comment();
            }
            if let Some(redirection) = self.parse_redirection()? {
                redirections.push(redirection);
                continue;
            }
            if simple.words.is_empty()
                && let Some(assignment) = self.parse_assignment()?
            {
                simple.assignments.push(assignment);
                continue;
            }
            if self.peek() == Some('(') {
                let [name] = simple.words.as_slice() else {
                    return Err(UnparsableLine("a bracket stands where none can be"));
                };
                let name = name.text.clone();
                self.take("(");
                self.skip_blank();
                if !self.take(")") {
                    return Err(UnparsableLine("a bracket stands where none can be"));
                }
                self.skip_lines();
                return Ok(Err(CommandBody::Function {
                    name,
                    body: Box::new(self.parse_command()?),
                }));
            }
            match self.parse_word()? {
                Some(word) => simple.words.push(word),
                None => break,
            }
        }
        if simple.words.is_empty() && simple.assignments.is_empty() && redirections.is_empty() {
            return Err(UnparsableLine("a command is missing"));
        }
        Ok(Ok(ShellCommand { body: CommandBody::Simple(simple), redirections }))
    }

    /// Parses an assignment; `None` if there is none.
    fn parse_assignment(&mut self) -> ParseResult<Option<Assignment>> {
        let begun = self.position();
        let mut name = String::new();
        while let Some(char) = self.peek().filter(|char| is_name(*char)) {
            self.next_char();
            name.push(char);
        }
        let is_element = self.peek() == Some('[') && is_variable(&name);
        if is_element {
            // What stands in the brackets is evaluated.
            while self.peek().is_some_and(|char| char != ']' && !ends_word(char)) {
                self.next_char();
            }
            self.take("]");
        }
        let _ = self.take("+=") || self.take("=");
        if !is_variable(&name) || self.position() == begun || !self.take_equals() {
            self.back_to(begun);
            return Ok(None);
        }
        if is_element {
            return Err(UnparsableLine("it sets an element of an array"));
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
                return Err(UnparsableLine("an array is not closed"));
            }
            // A shell takes what follows for a part of the assignment, so the command is the word after it.
            if self.peek().is_some_and(|char| !ends_word(char)) {
                return Err(UnparsableLine("a word continues after an array"));
            }
        } else {
            values.extend(self.parse_word()?);
        }
        Ok(Some(Assignment { name, values, is_list }))
    }

    fn take_equals(&mut self) -> bool {
        let here = self.position();
        self.back_to(here.saturating_sub(1));
        let was = self.peek() == Some('=');
        self.back_to(here);
        was
    }

    /// Parses a redirection; `None` if there is none.
    fn parse_redirection(&mut self) -> ParseResult<Option<Redirection>> {
        let begun = self.position();
        // A number, or a variable in braces, says which one is redirected.
        while self.peek().is_some_and(|char| char.is_ascii_digit()) {
            self.next_char();
        }
        let kind = match (self.peek(), self.peek_at(1)) {
            (Some('<' | '>'), Some('(')) if self.position() == begun => None,
            (Some('<'), Some('<')) if self.take("<<<") => Some(RedirectionKind::HereDocument),
            (Some('<'), Some('<')) => return self.parse_here_document().map(Some),
            (Some('<'), _) if self.take("<&") => Some(RedirectionKind::Duplicate),
            (Some('<'), _) if self.take("<>") => Some(RedirectionKind::Write),
            (Some('<'), _) if self.take("<") => Some(RedirectionKind::Read),
            (Some('>'), _) if self.take(">&") => Some(RedirectionKind::Duplicate),
            (Some('>'), _) if self.take(">>") || self.take(">|") || self.take(">") => {
                Some(RedirectionKind::Write)
            }
            (Some('&'), Some('>')) if self.position() == begun => {
                let _ = self.take("&>>") || self.take("&>");
                Some(RedirectionKind::Write)
            }
            _ => None,
        };
        let Some(kind) = kind else {
            self.back_to(begun);
            return Ok(None);
        };
        self.skip_blank();
        let target = self.parse_word()?.ok_or(UnparsableLine("a redirection has no target"))?;
        let is_number = target.text.trim_end_matches('-').chars().all(|c| c.is_ascii_digit());
        let kind = match kind {
            // `>&file` writes a file.
            RedirectionKind::Duplicate if !(target.is_literal() && is_number) => {
                RedirectionKind::Write
            }
            kind => kind,
        };
        Ok(Some(Redirection { kind, target }))
    }

    fn parse_here_document(&mut self) -> ParseResult<Redirection> {
        let without_tabs = self.take("<<-") || !self.take("<<");
        self.skip_blank();
        let begun = self.position();
        let delimiter =
            self.parse_word()?.ok_or(UnparsableLine("a here-document has no delimiter"))?;
        if !delimiter.is_literal() {
            return Err(UnparsableLine("the delimiter of a here-document is not plain"));
        }
        let is_quoted = match self.taken_since(begun).as_slice() {
            _ if !delimiter.text.chars().all(|char| is_name(char) || "-.!+@%,:".contains(char)) => {
                return Err(UnparsableLine("the delimiter of a here-document is not plain"));
            }
            ['\'', inner @ .., '\''] | ['"', inner @ .., '"'] | ['\\', inner @ ..] => {
                if inner.iter().any(|char| matches!(char, '\'' | '"' | '\\' | '\n' | '$')) {
                    return Err(UnparsableLine("the delimiter of a here-document is not plain"));
                }
                true
            }
            bare if bare.iter().any(|char| matches!(char, '\'' | '"' | '\\' | '$')) => {
                return Err(UnparsableLine("the delimiter of a here-document is not plain"));
            }
            _ => false,
        };
        let text = self.here_document(&delimiter.text, without_tabs, is_quoted)?;
        let target = match is_quoted {
            true => ShellWord::literal(&text),
            false => Self::new(&text, self.depth + 1)?.parse_here_text()?,
        };
        Ok(Redirection { kind: RedirectionKind::HereDocument, target })
    }
}
