//! Protection against output that a CI system would interpret as commands.
//!
//! GitHub Actions interprets the output of a step: a line that begins with `::name::` or contains `##[name]` sets
//! outputs, masks values or stops the processing of commands. Azure Pipelines does the same for `##vso[…]`. Text of a
//! model or a tool must never be a command, so a zero-width space is inserted, which a reader does not see.

use std::borrow::Cow;
use std::io::{self, Write};

use super::background_writer::{flush_blocking, write_all_blocking};

/// The inserted zero-width space.
const ZERO_WIDTH_SPACE: &str = "\u{200b}";

/// Returns whether a CI system interprets the output of this process, according to the environment.
pub fn runs_in_ci(variable: impl Fn(&str) -> Option<String>) -> bool {
    ["GITHUB_ACTIONS", "TF_BUILD", "GITEA_ACTIONS", "FORGEJO_ACTIONS"].iter().any(|name| {
        variable(name).is_some_and(|value| value.eq_ignore_ascii_case("true") || value == "1")
    })
}

/// A writer that keeps lines from being commands to a CI system, if one interprets the output.
pub struct CommandEscaper<W> {
    out: W,
    is_active: bool,
    /// Whether the line so far is blank.
    is_line_start: bool,
    /// Whether one colon followed the blank beginning.
    has_colon: bool,
    /// The last bytes, which may be the beginning of a command with two hashes.
    last: [u8; 5],
}

impl<W: Write> CommandEscaper<W> {
    /// Returns a writer around another one. Without `is_read`, the writer changes nothing.
    pub fn new(out: W, is_read: bool) -> Self {
        Self { out, is_active: is_read, is_line_start: true, has_colon: false, last: [0; 5] }
    }

    /// Adds the next byte. Returns whether it would complete a command.
    fn is_completed_by(&mut self, byte: u8) -> bool {
        let is_command = self.has_colon && byte == b':';
        let is_old = byte == b'['
            && (self.last.ends_with(b"##") || self.last.eq_ignore_ascii_case(b"##vso"));
        let is_end = matches!(byte, b'\n' | b'\r');
        self.has_colon = self.is_line_start && byte == b':' && !is_command;
        // CI systems skip all Unicode white space before a command.
        let is_space = byte.is_ascii_whitespace() || byte.is_ascii_control() || !byte.is_ascii();
        self.is_line_start = is_end || self.is_line_start && is_space;
        self.last.rotate_left(1);
        self.last[4] = byte;
        is_command || is_old
    }
}

impl<W: Write> Write for CommandEscaper<W> {
    // Writes everything or fails: after a partial write, the caller would repeat a part.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        if !self.is_active {
            return write_all_blocking(&mut self.out, bytes);
        }
        let mut started = 0;
        for (at, byte) in bytes.iter().enumerate() {
            if self.is_completed_by(*byte) {
                write_all_blocking(&mut self.out, &bytes[started..at])?;
                write_all_blocking(&mut self.out, ZERO_WIDTH_SPACE.as_bytes())?;
                started = at;
            }
        }
        write_all_blocking(&mut self.out, &bytes[started..])
    }

    fn flush(&mut self) -> io::Result<()> {
        flush_blocking(&mut self.out)
    }
}

/// Returns a text without commands in its lines. Without `is_read`, the text is unchanged.
pub fn escape_commands(text: &str, is_read: bool) -> Cow<'_, str> {
    if !is_read {
        return Cow::Borrowed(text);
    }
    let mut clean = Vec::with_capacity(text.len());
    // Writing to memory does not fail.
    let _ = CommandEscaper::new(&mut clean, true).write_all(text.as_bytes());
    String::from_utf8(clean).map_or(Cow::Borrowed(text), Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_is_a_command() {
        for text in [
            "::add-mask::x",
            "a\n::set-output name=x::y",
            "a\r::stop-commands::t",
            " \t::error::x",
            "\u{a0}\u{2003}::error::x",
            "\u{feff}::error::x",
            "x ##[add-path]y",
            "##vso[task.setvariable]x",
            "##VSO[x]",
            "###[group]",
        ] {
            let clean = escape_commands(text, true);
            assert_eq!(clean.replace(ZERO_WIDTH_SPACE, ""), text.replace(ZERO_WIDTH_SPACE, ""));
            for line in clean.split(['\n', '\r']) {
                assert!(
                    !line
                        .trim_start_matches(|c: char| c.is_whitespace() || c == '\u{feff}')
                        .starts_with("::"),
                    "{clean:?}"
                );
                let lower = line.to_lowercase();
                assert!(!lower.contains("##[") && !lower.contains("##vso["), "{clean:?}");
            }
            // The result does not depend on the size of the written parts.
            let mut pieces = Vec::new();
            let mut out = CommandEscaper::new(&mut pieces, true);
            text.as_bytes().iter().for_each(|byte| out.write_all(&[*byte]).unwrap());
            assert_eq!(String::from_utf8(pieces).unwrap(), clean);
        }
        for text in ["std::fs::read", "a ::b", "# [x]", "## [x]", ":a:", "x\n: :"] {
            assert_eq!(escape_commands(text, true), text);
        }
        assert_eq!(escape_commands("::error::x", false), "::error::x");
    }

    #[test]
    fn the_environment_determines_whether_it_is_a_ci_system() {
        assert!(runs_in_ci(|name| (name == "GITHUB_ACTIONS").then(|| "true".to_owned())));
        assert!(!runs_in_ci(|_| None) && !runs_in_ci(|_| Some("false".to_owned())));
    }
}
