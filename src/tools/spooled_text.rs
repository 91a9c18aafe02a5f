//! The full text of a result whose outputs are in files.

use std::io::{self, Write};

use crate::exec::OutputCapture;
use crate::net::Secrets;

/// The outputs of a command with titles, and how it ended.
#[derive(Clone, Debug)]
pub struct SpooledText {
    /// The outputs, each with its title.
    pub sections: Vec<(&'static str, OutputCapture)>,
    /// The last line.
    pub end: String,
}

/// Texts are equal if they are the same.
impl PartialEq for SpooledText {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for SpooledText {}

impl SpooledText {
    /// Writes the text with secrets masked, in bounded memory. Returns what is not stored of it, as sentences.
    ///
    /// # Errors
    ///
    /// Fails if an output can't be read, or the text can't be written.
    pub(super) fn write(&self, secrets: &Secrets, out: &mut dyn Write) -> io::Result<String> {
        let mut missing = String::new();
        let mut masked = MaskedText { secrets, out, pending: String::new() };
        let sections = self.sections.iter().filter(|(_, output)| output.total() > 0);
        for (title, output) in sections {
            masked.add(title)?;
            let mut ends_line = true;
            let not_stored = output.write_whole(&mut |text| {
                ends_line = text.chars().next_back().map_or(ends_line, |last| last == '\n');
                masked.add(text)
            })?;
            missing.extend(not_stored.map(|missing| format!(" {missing}.")));
            if !ends_line {
                masked.add("\n")?;
            }
        }
        masked.add(&self.end)?;
        masked.finish()?;
        Ok(missing)
    }
}

/// Masks secrets in a text that is written piece by piece.
struct MaskedText<'a> {
    secrets: &'a Secrets,
    out: &'a mut dyn Write,
    /// What may be the beginning of a secret.
    pending: String,
}

impl MaskedText<'_> {
    fn add(&mut self, text: &str) -> io::Result<()> {
        self.pending.push_str(text);
        let masked = self.secrets.mask(std::mem::take(&mut self.pending));
        let (done, open) = masked.split_at(masked.len() - self.secrets.unfinished(&masked));
        self.pending.push_str(open);
        self.out.write_all(done.as_bytes())
    }

    fn finish(self) -> io::Result<()> {
        self.out.write_all(self.pending.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_masked_across_pieces() {
        let secrets = Secrets::from_values(["geheim-123456"]);
        let mut out = Vec::new();
        let mut masked = MaskedText { secrets: &secrets, out: &mut out, pending: String::new() };
        for piece in ["a gehei", "m-1", "23456 b gehe", "n"] {
            masked.add(piece).unwrap();
        }
        masked.finish().unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(!text.contains("123456") && text.ends_with(" b gehen"), "{text}");
    }
}
