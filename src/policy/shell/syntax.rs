//! The syntax tree of a command line.

/// A sequence of pipelines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::policy) struct ShellScript {
    /// The pipelines in order.
    pub pipelines: Vec<ShellPipeline>,
}

/// Commands connected by pipes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::policy) struct ShellPipeline {
    /// The commands in order.
    pub commands: Vec<ShellCommand>,
    /// Whether the shell does not wait for the end.
    pub is_background: bool,
}

/// A command: a program with its arguments, a group or a function. Inner commands are in `scripts` and in the words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::policy) struct ShellCommand {
    /// The kind of command.
    pub kind: CommandKind,
    /// The assigned variables: those before a program, or the values of a loop.
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
    /// A program, a builtin of the shell, or only assignments.
    #[default]
    Simple,
    /// A group, a loop or a condition.
    Group,
    /// The definition of a function with this name.
    Function(String),
}

/// An assignment of a variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::policy) struct Assignment {
    /// The name of the variable.
    pub name: String,
    /// The value; several values for an array or a loop.
    pub values: Vec<ShellWord>,
    /// Whether the variable is an array.
    pub is_list: bool,
}

/// A word, as far as its value is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::policy) struct ShellWord {
    /// The text without quotes, and with unexpanded expansions.
    pub text: String,
    /// The relation between the text and the word that the program gets.
    pub form: WordForm,
    /// Whether the word has unquoted expansions, which the shell may split into any number of words.
    pub is_split: bool,
    /// Whether the word has braces that expand to several words.
    pub has_braces: bool,
    /// The scripts in command substitutions of the word.
    pub scripts: Vec<ShellScript>,
}

/// The relation between the text of a word and the word that a program gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::policy) enum WordForm {
    /// The program gets the text itself.
    #[default]
    Literal,
    /// The text is a pattern for file names.
    Pattern,
    /// The text has expansions: variables, the home, or command substitutions.
    Computed,
    /// The shell evaluates the text as an expression, which may contain further commands.
    Evaluated,
}

/// A redirection of the input or output of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::policy) struct Redirection {
    /// The kind of redirection.
    pub kind: RedirectionKind,
    /// The file; for a here-document, its text.
    pub target: ShellWord,
}

/// The kinds of redirections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::policy) enum RedirectionKind {
    /// Reads a file.
    Read,
    /// Writes a file.
    Write,
    /// Duplicates an open descriptor.
    Duplicate,
    /// Reads the text of a here-document.
    HereDocument,
}

impl ShellScript {
    /// Returns every command, outermost first, including those inside groups and words.
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

    /// Returns the name of the program without its folder; `None` if it is unknown or missing.
    pub(in crate::policy) fn name(&self) -> Option<&str> {
        let is_simple = self.kind == CommandKind::Simple;
        let first = self.words.first().filter(|word| is_simple && word.is_literal())?;
        first.text.rsplit('/').next().filter(|name| !name.is_empty())
    }

    /// Returns the command itself, and every command inside it.
    pub(in crate::policy) fn commands(&self) -> Vec<&Self> {
        let inner = self.inner_scripts().flat_map(ShellScript::commands);
        std::iter::once(self).chain(inner).collect()
    }

    /// Returns the scripts directly inside the command.
    pub(in crate::policy) fn inner_scripts(&self) -> impl Iterator<Item = &ShellScript> {
        let words = self.assignments.iter().flat_map(|set| &set.values).chain(&self.words);
        let redirected = self.redirections.iter().flat_map(|to| &to.target.scripts);
        words.flat_map(|word| &word.scripts).chain(&self.scripts).chain(redirected)
    }
}

impl ShellWord {
    /// Raises the form of the word to at least the given one.
    pub(in crate::policy) fn raise_form(&mut self, form: WordForm) {
        self.form = self.form.max(form);
    }

    /// Returns a literal word.
    pub(in crate::policy) fn literal(text: &str) -> Self {
        Self { text: text.to_owned(), ..Self::default() }
    }

    /// Returns whether the program gets the text itself.
    pub(in crate::policy) fn is_literal(&self) -> bool {
        self.form == WordForm::Literal
    }

    /// Returns whether the word may expand to an option.
    pub(in crate::policy) fn may_be_option(&self) -> bool {
        match self.form {
            WordForm::Literal => self.text.starts_with('-'),
            WordForm::Pattern => self.text.starts_with(['-', '*', '?', '[']),
            WordForm::Computed | WordForm::Evaluated => {
                self.is_split || !self.text.starts_with(['/', '~', '.'])
            }
        }
    }

    /// Returns whether the word has more unknown parts than a single variable.
    pub(in crate::policy) fn has_hidden_parts(&self) -> bool {
        self.has_braces || !self.scripts.is_empty() || self.text.matches('$').count() > 1
    }

    /// Returns the words that result from expanding the braces.
    pub(in crate::policy) fn expand_braces(&self) -> Vec<Self> {
        // Each group of braces is one level deeper.
        if !self.has_braces || self.text.len() > 1_000 {
            return vec![self.clone()];
        }
        let texts = expand_text(&self.text);
        texts.into_iter().take(64).map(|text| Self { text, ..self.clone() }).collect()
    }
}

/// Expands the braces of a text: `a{b,c}` is `ab` and `ac`.
fn expand_text(text: &str) -> Vec<String> {
    // The positions at which the first group begins, and at which its pieces end.
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
