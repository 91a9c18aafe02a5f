//! Colours of the log.

use anstyle::{AnsiColor, Style};

/// Adds colours to text, or returns it unchanged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Painter {
    pub(super) has_color: bool,
}

impl Painter {
    pub(super) fn bold(self, text: &str) -> String {
        self.apply(Style::new().bold(), text)
    }

    pub(super) fn dim(self, text: &str) -> String {
        self.apply(Style::new().dimmed(), text)
    }

    pub(super) fn success(self, text: &str) -> String {
        self.apply(AnsiColor::Green.on_default(), text)
    }

    pub(super) fn error(self, text: &str) -> String {
        self.apply(AnsiColor::Red.on_default(), text)
    }

    pub(super) fn warning(self, text: &str) -> String {
        self.apply(AnsiColor::Yellow.on_default(), text)
    }

    fn apply(self, style: Style, text: &str) -> String {
        match self.has_color {
            true => format!("{style}{text}{style:#}"),
            false => text.to_owned(),
        }
    }
}
