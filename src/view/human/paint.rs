//! Colours, where they are wanted.

use anstyle::{AnsiColor, Style};

/// Paints pieces of text, or leaves them as they are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Paint {
    pub(super) is_styled: bool,
}

impl Paint {
    pub(super) fn strong(self, text: &str) -> String {
        self.with(Style::new().bold(), text)
    }

    pub(super) fn faint(self, text: &str) -> String {
        self.with(Style::new().dimmed(), text)
    }

    pub(super) fn good(self, text: &str) -> String {
        self.with(AnsiColor::Green.on_default(), text)
    }

    pub(super) fn bad(self, text: &str) -> String {
        self.with(AnsiColor::Red.on_default(), text)
    }

    pub(super) fn odd(self, text: &str) -> String {
        self.with(AnsiColor::Yellow.on_default(), text)
    }

    fn with(self, style: Style, text: &str) -> String {
        match self.is_styled {
            true => format!("{style}{text}{style:#}"),
            false => text.to_owned(),
        }
    }
}
