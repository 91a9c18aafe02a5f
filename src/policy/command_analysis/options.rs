//! Words of programs, and options as `getopt` reads them.

use crate::policy::shell::{ShellWord, WordForm};

/// The options with which a program only reads. Any other option counts as unknown.
pub(super) struct ReadingOptions {
    /// Short options without a value.
    pub flags: &'static str,
    /// Short options with a value, in the same word or in the next one.
    pub valued: &'static str,
    /// Long options in full, without the two hyphens, separated by spaces. A value follows `=`.
    pub long: &'static str,
}

impl ReadingOptions {
    /// Returns the number of operands; `None` if a word is, or may expand to, an unknown option.
    pub(super) fn operands(&self, words: &[ShellWord]) -> Option<usize> {
        let mut operands = 0;
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if may_be_option(word) {
                return None;
            }
            let text = word.text.as_str();
            if !word.is_literal() || !text.starts_with('-') || text == "-" {
                operands += 1;
            } else if let Some(long) = text.strip_prefix("--") {
                let name = long.split('=').next().unwrap_or_default();
                if !is_in(name, self.long) {
                    return None;
                }
            } else if self.takes_next(&text[1..])? && words.next().is_some_and(may_be_several_words)
            {
                return None;
            }
        }
        Some(operands)
    }

    /// Returns whether the next word is the value of the last letter; `None` if a letter is unknown.
    fn takes_next(&self, letters: &str) -> Option<bool> {
        for (at, flag) in letters.char_indices() {
            if self.valued.contains(flag) {
                return Some(at + flag.len_utf8() == letters.len());
            }
            if !self.flags.contains(flag) {
                return None;
            }
        }
        Some(false)
    }
}

/// Returns whether a list, separated by spaces, contains a word.
pub(in crate::policy) fn is_in(word: &str, list: &str) -> bool {
    list.split_ascii_whitespace().any(|known| known == word)
}

/// Returns the values of options, from the next word, or from the rest of the option's own word.
pub(super) fn option_values(words: &[ShellWord], options: &[&str]) -> Vec<ShellWord> {
    let value = |(at, word): (usize, &ShellWord)| {
        options.iter().find_map(|option| match word.text.strip_prefix(option)? {
            "" => words.get(at + 1).cloned(),
            rest => {
                let is_long = option.starts_with("--");
                let text = if is_long { rest.strip_prefix('=')? } else { rest };
                Some(ShellWord { text: text.to_owned(), ..word.clone() })
            }
        })
    };
    words.iter().enumerate().filter_map(value).collect()
}

/// Returns whether a word may expand to an option.
pub(super) fn may_be_option(word: &ShellWord) -> bool {
    !word.is_literal() && word.may_be_option()
}

/// Returns whether the shell may expand a word to several words.
pub(super) fn may_be_several_words(word: &ShellWord) -> bool {
    word.is_split || word.has_braces || word.form == WordForm::Pattern
}
