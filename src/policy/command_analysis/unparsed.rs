//! Word-based analysis of lines that could not be parsed.

use crate::policy::shell::{Redirection, RedirectionKind, ShellCommand, ShellWord, WordForm};

/// The maximum number of words assigned to a program.
const MAX_WORDS: usize = 64;

/// Returns the programs that a text may run: every word is assumed to name one.
pub(in crate::policy) fn possible_programs(text: &str) -> impl Iterator<Item = ShellCommand> {
    text.split([';', '&', '|', '(', ')', '\n', '`']).flat_map(|piece| {
        let spaced = piece.replace('>', " > ").replace('<', " < ");
        let words = spaced.split_whitespace().map(parse_word).filter(|word| !word.text.is_empty());
        let words: Vec<ShellWord> = words.collect();
        (0..words.len()).map(move |from| {
            let mut program =
                ShellCommand::program(&words[from..words.len().min(from + MAX_WORDS)]);
            if let [sign, target, ..] = program.words.as_slice()
                && sign.text == ">"
            {
                let to = Redirection { kind: RedirectionKind::Write, target: target.clone() };
                program.redirections.push(to);
            }
            program
        })
    })
}

fn parse_word(text: &str) -> ShellWord {
    let text: String = text.chars().filter(|c| !matches!(c, '\'' | '"' | '\\')).collect();
    let form = match text.contains('$') || text.starts_with('~') {
        true => WordForm::Computed,
        false if text.contains(['*', '?', '[']) => WordForm::Pattern,
        false => WordForm::Literal,
    };
    ShellWord { text, form, ..ShellWord::default() }
}
