//! The syntax tree of a command line.

/// Commands, one after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::policy) struct ShellScript {
    /// What is run.
    pub pipelines: Vec<ShellPipeline>,
}

/// Commands connected by pipes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::policy) struct ShellPipeline {
    /// The commands in order.
    pub commands: Vec<ShellCommand>,
    /// Whether the shell does not wait for it.
    pub is_background: bool,
}

/// A command: a program with its arguments, a group or a function. What it runs besides is in `scripts` and its words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::policy) struct ShellCommand {
    /// The kind of command.
    pub kind: CommandKind,
    /// The variables that it sets: before a program, or in a loop one after the other.
    pub assignments: Vec<Assignment>,
    /// The name and the arguments of a program, or the words in the head of a group.
    pub words: Vec<ShellWord>,
    /// The scripts of a group or a function.
    pub scripts: Vec<ShellScript>,
    /// The redirections.
    pub redirections: Vec<Redirection>,
}

/// The kinds of commands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::policy) enum CommandKind {
    /// A program, a builtin of the shell, or variables that are set.
    #[default]
    Simple,
    /// A group, a loop or a condition.
    Group,
    /// The definition of a function with this name.
    Function(String),
}

/// A variable that is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::policy) struct Assignment {
    /// Its name.
    pub name: String,
    /// Its value; several for an array or a loop.
    pub values: Vec<ShellWord>,
    /// Whether it is an array.
    pub is_list: bool,
}

/// A word, as far as its value is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::policy) struct ShellWord {
    /// The text without quotes. Expansions are kept as they are written.
    pub text: String,
    /// Whether the text is what the program gets.
    pub form: WordForm,
    /// Whether it has unquoted expansions, which the shell may split into any number of words.
    pub is_split: bool,
    /// Whether it has braces that expand to several words.
    pub has_braces: bool,
    /// The scripts of its command substitutions.
    pub scripts: Vec<ShellScript>,
}

/// Whether the text of a word is what a program gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::policy) enum WordForm {
    /// It is literal.
    #[default]
    Literal,
    /// It is a pattern for file names.
    Pattern,
    /// It has expansions: variables, the home, or command substitutions.
    Computed,
    /// The shell evaluates it as an expression, in which again commands may be hidden.
    Evaluated,
}

/// Where a command reads from or writes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::policy) struct Redirection {
    /// What is done.
    pub kind: RedirectionKind,
    /// The file; for a here-document its text.
    pub target: ShellWord,
}

/// What a redirection does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::policy) enum RedirectionKind {
    /// It reads a file.
    Read,
    /// It writes a file.
    Write,
    /// It takes another one that is open already.
    Duplicate,
    /// It reads the text that stands there.
    HereDocument,
}

impl ShellScript {
    /// Returns every command, outermost first, those inside of groups and words included.
    pub(in crate::policy) fn commands(&self) -> Vec<&ShellCommand> {
        let commands = self.pipelines.iter().flat_map(|pipeline| &pipeline.commands);
        commands.flat_map(ShellCommand::commands).collect()
    }
}

impl ShellCommand {
    /// Returns a program with its arguments.
    pub(in crate::policy) fn program(words: &[ShellWord]) -> Self {
        Self { words: words.to_vec(), ..Self::default() }
    }

    /// Returns the name of its program without its folder; `None` if it is unknown or missing.
    pub(in crate::policy) fn name(&self) -> Option<&str> {
        let is_simple = self.kind == CommandKind::Simple;
        let first = self.words.first().filter(|word| is_simple && word.is_literal())?;
        first.text.rsplit('/').next().filter(|name| !name.is_empty())
    }

    /// Returns itself and every command inside of it.
    pub(in crate::policy) fn commands(&self) -> Vec<&Self> {
        let inner = self.inner_scripts().flat_map(ShellScript::commands);
        std::iter::once(self).chain(inner).collect()
    }

    /// Returns the scripts directly inside of it.
    pub(in crate::policy) fn inner_scripts(&self) -> impl Iterator<Item = &ShellScript> {
        let words = self.assignments.iter().flat_map(|set| &set.values).chain(&self.words);
        let redirected = self.redirections.iter().flat_map(|to| &to.target.scripts);
        words.flat_map(|word| &word.scripts).chain(&self.scripts).chain(redirected)
    }
}

impl ShellWord {
    /// Makes the word at least this uncertain.
    pub(in crate::policy) fn raise_form(&mut self, form: WordForm) {
        self.form = self.form.max(form);
    }

    /// Returns a word that is what it seems.
    pub(in crate::policy) fn literal(text: &str) -> Self {
        Self { text: text.to_owned(), ..Self::default() }
    }

    /// Returns whether the text is what the program will see.
    pub(in crate::policy) fn is_literal(&self) -> bool {
        self.form == WordForm::Literal
    }

    /// Returns whether the program may see something that looks like an option although this does not.
    pub(in crate::policy) fn may_be_option(&self) -> bool {
        match self.form {
            WordForm::Literal => self.text.starts_with('-'),
            WordForm::Pattern => self.text.starts_with(['-', '*', '?', '[']),
            WordForm::Computed | WordForm::Evaluated => {
                self.is_split || !self.text.starts_with(['/', '~', '.'])
            }
        }
    }

    /// Returns whether the word has more in it that is only known when it runs than one variable at its beginning.
    pub(in crate::policy) fn has_hidden_parts(&self) -> bool {
        self.has_braces || !self.scripts.is_empty() || self.text.matches('$').count() > 1
    }

    /// Returns what the word may become when its braces are expanded.
    pub(in crate::policy) fn expand_braces(&self) -> Vec<Self> {
        // Each group of braces is one step deeper.
        if !self.has_braces || self.text.len() > 1_000 {
            return vec![self.clone()];
        }
        let texts = expand_text(&self.text);
        texts.into_iter().take(64).map(|text| Self { text, ..self.clone() }).collect()
    }
}

/// Expands the braces of a text: `a{b,c}` is `ab` and `ac`.
fn expand_text(text: &str) -> Vec<String> {
    // Where the first group begins, and where its pieces end.
    let (mut depth, mut marks) = (0, Vec::new());
    for (at, char) in text.char_indices() {
        match char {
            '{' => {
                depth += 1;
                if depth == 1 {
                    marks = vec![at];
                }
            }
            ',' if depth == 1 => marks.push(at),
            '}' if depth > 0 => {
                depth -= 1;
                if depth == 0 && marks.len() > 1 {
                    let (before, after) = (&text[..marks[0]], &text[at + 1..]);
                    marks.push(at);
                    let pieces = marks.windows(2).map(|ends| &text[ends[0] + 1..ends[1]]);
                    let texts = pieces.map(|piece| format!("{before}{piece}{after}"));
                    return texts.flat_map(|text| expand_text(&text)).take(64).collect();
                }
            }
            _ => {}
        }
    }
    vec![text.to_owned()]
}

#[cfg(test)]
mod tests {
    use super::expand_text;

    #[test]
    fn braces_stand_for_several_words() {
        assert_eq!(expand_text("a{b,c{d,e}}f"), ["abf", "acdf", "acef"]);
        assert_eq!(expand_text("{a}"), ["{a}"]);
        assert_eq!(expand_text("{a,b}{c,d}"), ["ac", "ad", "bc", "bd"]);
    }
}
