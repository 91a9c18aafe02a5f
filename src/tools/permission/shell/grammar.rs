//! Scripts, pipelines and commands.

use super::Unreadable;
use super::reader::{Reader, ends_word, is_name, is_variable};
use super::syntax::{
    Assignment, Body, Command, Form, Pipeline, Redirect, Redirection, Script, Simple, Word,
};

type Read<T> = Result<T, Unreadable>;

/// Where a script ends.
#[derive(Clone, Copy)]
enum End {
    /// At the end of the text.
    Text,
    /// At a closing bracket.
    Bracket,
    /// At one of these words, where a command could begin.
    Words(&'static [&'static str]),
    /// At the end of a case.
    Case,
}

impl Reader {
    /// Reads a script up to the end of the text.
    pub(super) fn whole(&mut self) -> Read<Script> {
        let script = self.script(End::Text)?;
        self.in_order()?;
        if self.peek().is_some() {
            return Err(Unreadable("a bracket or a word stands where no command can begin"));
        }
        Ok(script)
    }

    /// Reads a script in brackets.
    pub(super) fn bracketed(&mut self) -> Read<Script> {
        self.take("(");
        self.deeper()?;
        let script = self.script(End::Bracket)?;
        self.depth -= 1;
        if !self.take(")") {
            return Err(Unreadable("a bracket is not closed"));
        }
        Ok(script)
    }

    /// Reads a script up to its end, which stays.
    fn script(&mut self, end: End) -> Read<Script> {
        let mut script = Script::default();
        loop {
            self.skip_lines();
            if self.is_at(end) {
                return Ok(script);
            }
            let mut pipeline = self.pipeline()?;
            self.skip_blank();
            if self.peek() == Some('#') {
                self.skip_comment();
            }
            match self.peek() {
                Some('&' | '|') if self.take("&&") || self.take("||") => {
                    self.skip_lines();
                    if self.peek().is_none() || self.is_at(end) {
                        return Err(Unreadable("a command is missing behind && or ||"));
                    }
                }
                Some('&') => {
                    self.next();
                    pipeline.in_background = true;
                }
                Some(';') if matches!(self.peek_at(1), Some(';' | '&')) => match end {
                    End::Case => {}
                    End::Text | End::Bracket | End::Words(_) => {
                        return Err(Unreadable("a case ends where there is none"));
                    }
                },
                Some(';') => {
                    self.next();
                }
                Some('\n') => self.end_line(),
                None => {}
                Some(')') if matches!(end, End::Bracket) => {}
                Some(_) if matches!(end, End::Words(_) | End::Case) && self.is_at(end) => {}
                Some(_) => return Err(Unreadable("a command does not end where it should")),
            }
            script.pipelines.push(pipeline);
        }
    }

    fn is_at(&mut self, end: End) -> bool {
        let begun = self.position();
        let is_at = match end {
            End::Text => self.peek().is_none(),
            End::Bracket => self.peek() == Some(')'),
            End::Words(words) => words.iter().any(|word| self.take_keyword(word)),
            End::Case => self.take(";;") || self.take(";&") || self.take_keyword("esac"),
        };
        self.back_to(begun);
        is_at
    }

    fn pipeline(&mut self) -> Read<Pipeline> {
        let mut pipeline = Pipeline::default();
        loop {
            self.skip_lines();
            while self.take_keyword("!") || self.take_keyword("time") {
                self.skip_blank();
                if self.take_keyword("-p") {
                    self.skip_blank();
                }
            }
            pipeline.stages.push(self.command()?);
            self.skip_blank();
            if self.peek() == Some('|') && self.peek_at(1) != Some('|') {
                self.take("|");
                self.take("&");
            } else {
                return Ok(pipeline);
            }
        }
    }

    fn command(&mut self) -> Read<Command> {
        self.deeper()?;
        let body = self.body()?;
        self.depth -= 1;
        match body {
            // Its redirections were read with it.
            Ok(simple) => Ok(simple),
            Err(body) => {
                let mut redirections = Vec::new();
                loop {
                    self.skip_blank();
                    match self.redirection()? {
                        Some(redirection) => redirections.push(redirection),
                        None => return Ok(Command { body, redirections }),
                    }
                }
            }
        }
    }

    /// Reads a simple command as a whole, or the body of another one.
    fn body(&mut self) -> Read<Result<Command, Body>> {
        let group = |scripts| Ok(Err(Body::Group { scripts, words: Vec::new(), variable: None }));
        if self.peek() == Some('(') && self.peek_at(1) == Some('(') {
            let mut word = Word::default();
            self.arithmetic(&mut word)?;
            word.at_least(Form::Evaluated);
            return Ok(Err(Body::Group { scripts: Vec::new(), words: vec![word], variable: None }));
        }
        if self.peek() == Some('(') {
            return group(vec![self.bracketed()?]);
        }
        if self.take_keyword("{") {
            return group(vec![self.until(&["}"])?.0]);
        }
        if self.take_keyword("if") {
            let mut scripts = Vec::new();
            loop {
                let (script, end) = self.until(&["then", "elif", "else", "fi"])?;
                scripts.push(script);
                if end == "fi" {
                    return group(scripts);
                }
            }
        }
        if self.take_keyword("while") || self.take_keyword("until") {
            let condition = self.until(&["do"])?.0;
            return group(vec![condition, self.until(&["done"])?.0]);
        }
        if self.take_keyword("for") || self.take_keyword("select") {
            return self.each().map(Err);
        }
        if self.take_keyword("case") {
            return self.case().map(Err);
        }
        if self.take_keyword("[[") {
            return self.condition().map(Ok);
        }
        if self.take_keyword("function") {
            self.skip_blank();
            let name = self.word()?.ok_or(Unreadable("a function has no name"))?;
            self.skip_blank();
            if self.take("(") && !self.take(")") {
                return Err(Unreadable("a function is not defined as usual"));
            }
            self.skip_lines();
            let body = Box::new(self.command()?);
            return Ok(Err(Body::Function { name: name.text, body }));
        }
        if self.take_keyword("coproc") {
            return Err(Unreadable("it uses coproc"));
        }
        self.simple()
    }

    /// Reads a script up to one of these words, and takes the word.
    fn until(&mut self, words: &'static [&'static str]) -> Read<(Script, &'static str)> {
        let script = self.script(End::Words(words))?;
        self.skip_blank();
        let end = words.iter().find(|word| self.take_keyword(word));
        end.map(|end| (script, *end)).ok_or(Unreadable("a group, loop or condition does not end"))
    }

    fn each(&mut self) -> Read<Body> {
        self.skip_blank();
        let (mut words, mut variable) = (Vec::new(), None);
        if self.peek() == Some('(') {
            let mut word = Word::default();
            self.arithmetic(&mut word)?;
            word.at_least(Form::Evaluated);
            words.push(word);
        } else {
            let name = self.word()?.filter(|name| name.is_literal() && is_variable(&name.text));
            variable = Some(name.ok_or(Unreadable("a loop has no variable"))?.text);
            self.skip_lines();
            if self.take_keyword("in") {
                self.skip_blank();
                while let Some(word) = self.word()? {
                    words.push(word);
                    self.skip_blank();
                }
            }
        }
        self.skip_blank();
        self.take(";");
        self.skip_lines();
        if !self.take_keyword("do") {
            return Err(Unreadable("a loop has no do"));
        }
        let scripts = vec![self.until(&["done"])?.0];
        Ok(Body::Group { scripts, words, variable })
    }

    fn case(&mut self) -> Read<Body> {
        self.skip_blank();
        let word = self.word()?.ok_or(Unreadable("a case has no word"))?;
        self.skip_lines();
        if !self.take_keyword("in") {
            return Err(Unreadable("a case has no in"));
        }
        let (mut words, mut scripts) = (vec![word], Vec::new());
        loop {
            self.skip_lines();
            if self.take_keyword("esac") {
                return Ok(Body::Group { scripts, words, variable: None });
            }
            self.take("(");
            loop {
                self.skip_blank();
                words.push(self.word()?.ok_or(Unreadable("a case has no pattern"))?);
                self.skip_blank();
                if !self.take("|") {
                    break;
                }
            }
            if !self.take(")") {
                return Err(Unreadable("the pattern of a case does not end"));
            }
            scripts.push(self.script(End::Case)?);
            let _ = self.take(";;&") || self.take(";;") || self.take(";&");
        }
    }

    /// Reads `[[ … ]]` as a simple command; inside, signs have no meaning for the shell.
    fn condition(&mut self) -> Read<Command> {
        let mut words = vec![Word::literal("[[")];
        let mut brackets = 0;
        self.inside += 1;
        loop {
            while self.take("\n") || self.take("\\\n") || self.take(" ") || self.take("\t") {}
            if self.take_keyword("]]") {
                words.push(Word::literal("]]"));
                break;
            }
            match self.word()? {
                Some(word) if word.text.starts_with('#') => {
                    return Err(Unreadable("a condition has a # in it"));
                }
                Some(word) => words.push(word),
                None => match self.next() {
                    Some(sign) => {
                        brackets += i32::from(sign == '(') - i32::from(sign == ')');
                        words.push(Word::literal(&sign.to_string()));
                    }
                    None => return Err(Unreadable("a condition does not end")),
                },
            }
        }
        self.inside -= 1;
        if brackets != 0 {
            return Err(Unreadable("a condition ends inside of brackets"));
        }
        let body = Body::Simple(Simple { assignments: Vec::new(), words });
        let mut redirections = Vec::new();
        self.skip_blank();
        while let Some(redirection) = self.redirection()? {
            redirections.push(redirection);
            self.skip_blank();
        }
        Ok(Command { body, redirections })
    }

    fn simple(&mut self) -> Read<Result<Command, Body>> {
        let mut simple = Simple::default();
        let mut redirections = Vec::new();
        loop {
            self.skip_blank();
            if self.peek() == Some('#') {
                self.skip_comment();
            }
            if let Some(redirection) = self.redirection()? {
                redirections.push(redirection);
                continue;
            }
            if simple.words.is_empty()
                && let Some(assignment) = self.assignment()?
            {
                simple.assignments.push(assignment);
                continue;
            }
            if self.peek() == Some('(') {
                let [name] = simple.words.as_slice() else {
                    return Err(Unreadable("a bracket stands where none can be"));
                };
                let name = name.text.clone();
                self.take("(");
                self.skip_blank();
                if !self.take(")") {
                    return Err(Unreadable("a bracket stands where none can be"));
                }
                self.skip_lines();
                return Ok(Err(Body::Function { name, body: Box::new(self.command()?) }));
            }
            match self.word()? {
                Some(word) => simple.words.push(word),
                None => break,
            }
        }
        if simple.words.is_empty() && simple.assignments.is_empty() && redirections.is_empty() {
            return Err(Unreadable("a command is missing"));
        }
        Ok(Ok(Command { body: Body::Simple(simple), redirections }))
    }

    /// Reads the setting of a variable; none when something else comes.
    fn assignment(&mut self) -> Read<Option<Assignment>> {
        let begun = self.position();
        let mut name = String::new();
        while let Some(char) = self.peek().filter(|char| is_name(*char)) {
            self.next();
            name.push(char);
        }
        let is_element = self.peek() == Some('[') && is_variable(&name);
        if is_element {
            // What stands in the brackets is evaluated.
            while self.peek().is_some_and(|char| char != ']' && !ends_word(char)) {
                self.next();
            }
            self.take("]");
        }
        let _ = self.take("+=") || self.take("=");
        if !is_variable(&name) || self.position() == begun || !self.was_equals() {
            self.back_to(begun);
            return Ok(None);
        }
        if is_element {
            return Err(Unreadable("it sets an element of an array"));
        }
        let mut values = Vec::new();
        let is_list = self.take("(");
        if is_list {
            self.inside += 1;
            self.skip_lines();
            while let Some(word) = self.word()? {
                values.push(word);
                self.skip_lines();
            }
            self.inside -= 1;
            if !self.take(")") {
                return Err(Unreadable("an array is not closed"));
            }
        } else {
            values.extend(self.word()?);
        }
        Ok(Some(Assignment { name, values, is_list }))
    }

    fn was_equals(&mut self) -> bool {
        let here = self.position();
        self.back_to(here.saturating_sub(1));
        let was = self.peek() == Some('=');
        self.back_to(here);
        was
    }

    /// Reads a redirection; none when something else comes.
    fn redirection(&mut self) -> Read<Option<Redirection>> {
        let begun = self.position();
        // A number, or a variable in braces, says which one is redirected.
        while self.peek().is_some_and(|char| char.is_ascii_digit()) {
            self.next();
        }
        let kind = match (self.peek(), self.peek_at(1)) {
            (Some('<' | '>'), Some('(')) if self.position() == begun => None,
            (Some('<'), Some('<')) if self.take("<<<") => Some(Redirect::Here),
            (Some('<'), Some('<')) => return self.here().map(Some),
            (Some('<'), _) if self.take("<&") => Some(Redirect::Duplicate),
            (Some('<'), _) if self.take("<>") => Some(Redirect::Write),
            (Some('<'), _) if self.take("<") => Some(Redirect::Read),
            (Some('>'), _) if self.take(">&") => Some(Redirect::Duplicate),
            (Some('>'), _) if self.take(">>") || self.take(">|") || self.take(">") => {
                Some(Redirect::Write)
            }
            (Some('&'), Some('>')) if self.position() == begun => {
                let _ = self.take("&>>") || self.take("&>");
                Some(Redirect::Write)
            }
            _ => None,
        };
        let Some(kind) = kind else {
            self.back_to(begun);
            return Ok(None);
        };
        self.skip_blank();
        let target = self.word()?.ok_or(Unreadable("a redirection has no target"))?;
        let is_number = target.text.trim_end_matches('-').chars().all(|c| c.is_ascii_digit());
        let kind = match kind {
            // `>&file` writes a file.
            Redirect::Duplicate if !(target.is_literal() && is_number) => Redirect::Write,
            kind => kind,
        };
        Ok(Some(Redirection { kind, target }))
    }

    fn here(&mut self) -> Read<Redirection> {
        let without_tabs = self.take("<<-") || !self.take("<<");
        self.skip_blank();
        let begun = self.position();
        let delimiter = self.word()?.ok_or(Unreadable("a here-document has no delimiter"))?;
        if !delimiter.is_literal() {
            return Err(Unreadable("the delimiter of a here-document is not plain"));
        }
        let is_quoted = match self.between(begun).as_slice() {
            _ if !delimiter.text.chars().all(|char| is_name(char) || "-.!+@%,:".contains(char)) => {
                return Err(Unreadable("the delimiter of a here-document is not plain"));
            }
            ['\'', inner @ .., '\''] | ['"', inner @ .., '"'] | ['\\', inner @ ..] => {
                if inner.iter().any(|char| matches!(char, '\'' | '"' | '\\' | '\n' | '$')) {
                    return Err(Unreadable("the delimiter of a here-document is not plain"));
                }
                true
            }
            bare if bare.iter().any(|char| matches!(char, '\'' | '"' | '\\' | '$')) => {
                return Err(Unreadable("the delimiter of a here-document is not plain"));
            }
            _ => false,
        };
        let text = self.here_document(&delimiter.text, without_tabs, is_quoted)?;
        let target = match is_quoted {
            true => Word::literal(&text),
            false => Self::new(&text, self.depth + 1)?.here_text()?,
        };
        Ok(Redirection { kind: Redirect::Here, target })
    }
}
