//! Word-based analysis of lines that could not be parsed.

use super::command_line::Program;
use crate::policy::shell::{Redirection, RedirectionKind, ShellWord, WordForm};

/// The maximum number of words assigned to a program.
const MAX_WORDS: usize = 64;

/// Returns the pieces of a text between what may end a command, each as its words.
pub(super) fn possible_commands(text: &str) -> Vec<Vec<ShellWord>> {
    let is_end = |c: char| ";&|()\n`".contains(c);
    let pieces = text.split(is_end).map(|piece| {
        let spaced = piece.replace('>', " > ").replace('<', " < ");
        spaced.split_whitespace().map(parse_word).filter(|word| !word.text.is_empty()).collect()
    });
    pieces.filter(|words: &Vec<ShellWord>| !words.is_empty()).collect()
}

/// Returns the programs that a text may run: every word is assumed to be the name of one.
pub(in crate::policy) fn possible_programs(text: &str) -> impl Iterator<Item = Program> {
    possible_commands(text).into_iter().flat_map(|words| {
        (0..words.len()).map(move |from| {
            let rest = &words[from..words.len().min(from + MAX_WORDS)];
            let written = rest.first().is_some_and(|word| word.text == ">");
            let target = rest.get(1).filter(|_| written);
            let to =
                target.map(|to| Redirection { kind: RedirectionKind::Write, target: to.clone() });
            Program { words: rest.to_vec(), redirections: to.into_iter().collect() }
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
