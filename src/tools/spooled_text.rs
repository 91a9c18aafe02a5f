//! The full text of a result whose outputs are in files.

use std::io::{self, Write};

use crate::exec::OutputCapture;
use crate::net::Secrets;

/// The titled outputs of a command, and its end.
#[derive(Clone, Debug)]
pub struct SpooledText {
    /// The outputs, each with its title.
    pub sections: Vec<(&'static str, OutputCapture)>,
    /// The last line.
    pub end: String,
}

/// Texts are equal only if they are the same value in memory.
impl PartialEq for SpooledText {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for SpooledText {}

impl SpooledText {
    /// Writes the text with secrets masked, in bounded memory. Returns sentences about the parts that are not stored.
    ///
    /// # Errors
    ///
    /// Fails if an output can't be read, or the text can't be written.
    pub(super) fn write(&self, secrets: &Secrets, out: &mut dyn Write) -> io::Result<String> {
        let mut missing = String::new();
        let mut masked = MaskedText::new(secrets, out);
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
    /// Text that may be the beginning of a secret.
    pending: String,
    /// Whether `pending` follows an omitted part.
    is_at_cut: bool,
}

/// The assumed maximum length of a secret, in bytes.
const MAX_REST: usize = 16 << 10;

impl<'a> MaskedText<'a> {
    fn new(secrets: &'a Secrets, out: &'a mut dyn Write) -> Self {
        Self { secrets, out, pending: String::new(), is_at_cut: false }
    }

    fn add(&mut self, text: &str) -> io::Result<()> {
        if text.starts_with("\n[... ") {
            // The text before the cut may end with the beginning of a secret, and the text after it may begin with the
            // end of one.
            let before = std::mem::take(&mut self.pending);
            self.is_at_cut = true;
            let masked = self.secrets.mask_cut(before + text);
            return self.out.write_all(masked.as_bytes());
        }
        self.pending.push_str(text);
        if self.is_at_cut {
            // While the text may still be the end of a secret, the line before it is needed.
            if self.pending.len() < MAX_REST {
                return Ok(());
            }
            self.end_cut();
        }
        let rest = self.pending.split_off(self.secrets.complete(&self.pending));
        let done = std::mem::replace(&mut self.pending, rest);
        self.out.write_all(self.secrets.mask(done).as_bytes())
    }

    /// Masks the rest of a secret after a cut.
    fn end_cut(&mut self) {
        const NOTE: &str = "[... ...]\n";
        let masked = self.secrets.mask_cut(format!("{NOTE}{}", self.pending));
        masked[NOTE.len()..].clone_into(&mut self.pending);
        self.is_at_cut = false;
    }

    fn finish(mut self) -> io::Result<()> {
        if self.is_at_cut {
            self.end_cut();
        }
        self.out.write_all(self.secrets.mask(self.pending).as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(secrets: &Secrets, pieces: &[&str]) -> String {
        let mut out = Vec::new();
        let mut masked = MaskedText::new(secrets, &mut out);
        pieces.iter().for_each(|piece| masked.add(piece).unwrap());
        masked.finish().unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_secret_is_masked_across_pieces() {
        let secrets = Secrets::from_values(["geheim-123456"]);
        let text = masked(&secrets, &["a gehei", "m-1", "23456 b gehe", "n"]);
        assert!(!text.contains("123456") && text.ends_with(" b gehen"), "{text}");
    }

    #[test]
    fn what_a_cut_leaves_of_a_secret_is_masked() {
        let secrets = Secrets::from_values(["geheim-123456"]);
        for (before, behind) in
            [("a geheim-12345", " b"), ("a ", "eheim-123456 b"), ("geheim", "123456")]
        {
            let stored =
                masked(&secrets, &[before, "\n[... 9 bytes are not stored ...]\n", behind]);
            let shown = secrets.mask_cut(format!("{before}\n[... 9 bytes omitted ...]\n{behind}"));
            for text in [stored, shown] {
                assert!(!text.contains("hei") && !text.contains("345"), "{text}");
                assert!(text.contains("9 bytes"), "{text}");
            }
        }
    }

    #[test]
    fn the_longer_one_of_two_secrets_is_masked_across_pieces() {
        let secrets =
            Secrets::from_values(["geheim-123456", "geheim-123456-und-mehr", "56-noch-eines"]);
        for pieces in [["a geheim-123456", "-und-mehr b"], ["a geheim-123456", "-noch-eines b"]] {
            let text = masked(&secrets, &pieces);
            assert!(!text.contains("geheim") && !text.contains("mehr"), "{text}");
        }
    }
}
