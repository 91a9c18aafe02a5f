//! The syntax tree of a command line.

/// Commands, one after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::policy) struct ShellScript {
    /// What is run.
    pub pipelines: Vec<Pipeline>,
}

/// Commands connected by pipes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::policy) struct Pipeline {
    /// The commands in order.
    pub commands: Vec<ShellCommand>,
    /// Whether the shell does not wait for it.
    pub is_background: bool,
}

/// One command with its redirections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::policy) struct ShellCommand {
    /// The kind of command.
    pub body: CommandBody,
    /// The redirections.
    pub redirections: Vec<Redirection>,
}

/// The kinds of commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::policy) enum CommandBody {
    /// A program, a builtin of the shell, or variables that are set.
    Simple(SimpleCommand),
    /// A group, a loop or a condition.
    Group {
        /// The scripts in it.
        scripts: Vec<ShellScript>,
        /// The words of its head.
        words: Vec<ShellWord>,
        /// The variable that it sets, if it is a loop over words.
        variable: Option<String>,
    },
    /// The definition of a function.
    Function {
        /// Its name.
        name: String,
        /// Its body.
        body: Box<ShellCommand>,
    },
}

/// A program with its arguments, or a builtin of the shell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::policy) struct SimpleCommand {
    /// The variables that are set before it.
    pub assignments: Vec<Assignment>,
    /// The name and the arguments; empty if only variables are set.
    pub words: Vec<ShellWord>,
}

/// A variable that is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::policy) struct Assignment {
    /// Its name.
    pub name: String,
    /// Its value; several for an array.
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

impl ShellWord {
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
    let mut depth = 0;
    let (mut start, mut commas) = (None, Vec::new());
    for (at, char) in text.char_indices() {
        match char {
            '{' => {
                depth += 1;
                if depth == 1 {
                    start = Some(at);
                    commas.clear();
                }
            }
            ',' if depth == 1 => commas.push(at),
            '}' if depth > 0 => {
                depth -= 1;
                if let (0, Some(start), false) = (depth, start, commas.is_empty()) {
                    let (before, after) = (&text[..start], &text[at + 1..]);
                    let begins = std::iter::once(start).chain(commas.iter().copied());
                    let ends = commas.iter().copied().chain(std::iter::once(at));
                    let pieces = begins.zip(ends).map(|(from, to)| &text[from + 1..to]);
                    return pieces
                        .flat_map(|piece| expand_text(&format!("{before}{piece}{after}")))
                        .take(64)
                        .collect();
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
