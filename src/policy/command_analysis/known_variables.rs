//! Variables whose values are set in the line that uses them.

use std::collections::BTreeMap;

use crate::policy::shell::{CommandKind, ShellScript, ShellWord, WordForm, is_name};

/// The values that variables may have while a line runs, if the line sets them.
#[derive(Debug, Default)]
pub(super) struct KnownVariables(BTreeMap<String, Vec<String>>);

/// The maximum number of values of a variable.
const MAX_VALUES: usize = 32;

impl KnownVariables {
    /// Adds the variables that a script sets; returns `false` if there are too many values.
    pub(super) fn add(&mut self, script: &ShellScript) -> bool {
        for command in script.commands() {
            let is_loop = command.kind != CommandKind::Simple;
            for set in command.assignments.iter().filter(|set| is_loop || set.values.len() == 1) {
                let known = self.0.entry(set.name.clone()).or_default();
                for word in set.values.iter().flat_map(ShellWord::expand_braces).map(without_braces)
                {
                    // The home is known, whatever the name of the variable.
                    let is_home = word.form == WordForm::Computed
                        && !word.has_hidden_parts()
                        && (word.text.starts_with("$HOME") || word.text.starts_with('~'));
                    let is_new = (word.is_literal() || is_home) && !known.contains(&word.text);
                    if is_new && known.len() <= MAX_VALUES {
                        known.push(word.text);
                    }
                }
            }
        }
        self.0.values().all(|values| values.len() <= MAX_VALUES)
    }

    /// Returns the possible forms of some words: as written, and with each known value.
    pub(super) fn possible_words(&self, words: &[ShellWord]) -> Vec<Vec<ShellWord>> {
        let words = words.iter().flat_map(ShellWord::expand_braces).map(without_braces);
        let words: Vec<ShellWord> = words.collect();
        let mut all = vec![words.clone()];
        if words.iter().all(|word| self.substitute(word, 0).is_none()) {
            return all;
        }
        for round in 0..self.0.values().map(Vec::len).max().unwrap_or(1) {
            let filled = |word| self.substitute(word, round).unwrap_or_else(|| vec![word.clone()]);
            let changed: Vec<ShellWord> = words.iter().flat_map(filled).collect();
            if !all.contains(&changed) {
                all.push(changed);
            }
        }
        all
    }

    /// Returns a word with its variables replaced by one value each: the one of this round, or the last one if there
    /// are fewer. `None` if it has no known variable. Outside a function, arguments are empty.
    fn substitute(&self, word: &ShellWord, round: usize) -> Option<Vec<ShellWord>> {
        if word.form != WordForm::Computed || !word.text.contains('$') {
            return None;
        }
        let mut text = String::new();
        let mut rest = word.text.as_str();
        while let Some((before, after)) = rest.split_once('$') {
            text += before;
            let (name, behind) = match after.strip_prefix('{') {
                Some(braced) => braced.split_once('}')?,
                None if after.starts_with(['@', '*']) => after.split_at(1),
                None => after.split_at(after.find(|c| !is_name(c)).unwrap_or(after.len())),
            };
            match self.0.get(name).map(Vec::as_slice) {
                Some(values @ [.., last]) => text += values.get(round).unwrap_or(last),
                _ if matches!(name, "@" | "*") => {}
                _ => return None,
            }
            rest = behind;
        }
        text += rest;
        let is_pattern = word.is_split && text.contains(['*', '?', '[']);
        let form = match text.starts_with(['~', '$']) || word.has_braces {
            true => WordForm::Computed,
            false if is_pattern => WordForm::Pattern,
            false => WordForm::Literal,
        };
        let one = |text: &str| ShellWord { text: text.to_owned(), form, ..ShellWord::default() };
        let words: Vec<ShellWord> = match word.is_split {
            true => text.split_whitespace().map(one).collect(),
            false => vec![one(&text)],
        };
        (!text.is_empty()).then_some(words)
    }
}

/// Returns a word with expanded braces as a literal word, if nothing else in it is expanded.
fn without_braces(word: ShellWord) -> ShellWord {
    match word.has_braces && !word.text.contains(['{', '$', '~', '*', '?', '[']) {
        true => ShellWord::literal(&word.text),
        false => word,
    }
}
