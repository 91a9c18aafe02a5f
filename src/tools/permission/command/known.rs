//! Variables whose values stand in the line that uses them.

use std::collections::BTreeMap;

use crate::tools::permission::shell::{Assignment, Body, Form, Script, Word};

/// The values that variables may have while a line runs, as far as they stand in it.
#[derive(Debug, Default)]
pub(super) struct Known(BTreeMap<String, Vec<String>>);

/// Values of one variable that are tried at the most.
const MOST: usize = 32;

impl Known {
    /// Adds what a script sets; returns whether that can be kept in mind.
    pub(super) fn add(&mut self, script: &Script) -> bool {
        let mut set = |name: &String, word: &Word| {
            let values = self.0.entry(name.clone()).or_default();
            // The home is known, whatever it is called.
            let is_home = word.form == Form::Computed
                && !word.splits_more()
                && (word.text.starts_with("$HOME") || word.text.starts_with('~'));
            if (word.is_literal() || is_home)
                && !values.contains(&word.text)
                && values.len() <= MOST
            {
                values.push(word.text.clone());
            }
        };
        script.each(&mut |command| match &command.body {
            Body::Simple(simple) => {
                for Assignment { name, values, .. } in &simple.assignments {
                    if let [value] = values.as_slice() {
                        set(name, value);
                    }
                }
            }
            Body::Group { words, variable: Some(name), .. } => {
                words.iter().flat_map(Word::expanded).for_each(|word| set(name, &plain(word)));
            }
            Body::Group { .. } | Body::Function { .. } => {}
        });
        self.0.values().all(|values| values.len() <= MOST)
    }

    /// Returns what some words may be: as they stand there, and with each of the values that are known.
    pub(super) fn spelled(&self, words: &[Word]) -> Vec<Vec<Word>> {
        let words: Vec<Word> = words.iter().flat_map(Word::expanded).map(plain).collect();
        let mut all = vec![words.clone()];
        for round in 0..=MOST {
            let (mut changed, mut more) = (Vec::new(), false);
            for word in &words {
                match self.filled(word, round) {
                    Some((filled, has_more)) => {
                        changed.extend(filled);
                        more |= has_more;
                    }
                    None => changed.push(word.clone()),
                }
            }
            if changed != words {
                all.push(changed);
            }
            if !more {
                break;
            }
        }
        all
    }

    /// Returns a word with the values of its variables, and whether they have more of them; none when it has none that
    /// is known. Without a function around it there are no arguments.
    fn filled(&self, word: &Word, round: usize) -> Option<(Vec<Word>, bool)> {
        if word.form != Form::Computed || !word.text.contains('$') {
            return None;
        }
        let (mut text, mut more) = (String::new(), false);
        let mut rest = word.text.as_str();
        while let Some((before, after)) = rest.split_once('$') {
            text += before;
            let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let (name, behind) = match after.strip_prefix('{') {
                Some(braced) => braced.split_once('}')?,
                None if after.starts_with(['@', '*']) => after.split_at(1),
                None => after.split_at(after.find(|c| !is_name(c)).unwrap_or(after.len())),
            };
            match self.0.get(name).map(Vec::as_slice) {
                Some(values @ [.., last]) => {
                    text += values.get(round).unwrap_or(last);
                    more |= round + 1 < values.len();
                }
                _ if matches!(name, "@" | "*") => {}
                _ => return None,
            }
            rest = behind;
        }
        text += rest;
        let is_pattern = word.splits && text.contains(['*', '?', '[']);
        let form = match text.starts_with(['~', '$']) || word.has_braces {
            true => Form::Computed,
            false if is_pattern => Form::Pattern,
            false => Form::Literal,
        };
        let one = |text: &str| Word { text: text.to_owned(), form, ..Word::default() };
        let words: Vec<Word> = match word.splits {
            true => text.split_whitespace().map(one).collect(),
            false => vec![one(&text)],
        };
        (!text.is_empty()).then_some((words, more))
    }
}

/// Returns a word whose braces are expanded as one that is what it seems, if nothing else is against it.
fn plain(word: Word) -> Word {
    match word.has_braces && !word.text.contains(['{', '$', '~', '*', '?', '[']) {
        true => Word::literal(&word.text),
        false => word,
    }
}
