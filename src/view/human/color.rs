//! Colors of the log: the capabilities of a terminal, and the user's choice.

use anstyle::{AnsiColor, Style};

use crate::types::word_enum;

word_enum! {
    /// When the log has colors.
    #[derive(Default)]
    pub enum ColorChoice {
        /// If the terminal supports them and the environment does not say otherwise.
        #[default]
        Auto = "auto",
        /// Always, even in a pipe.
        Always = "always",
        /// Never.
        Never = "never",
    }
}

/// Returns whether to use colors. The user's option takes precedence over `NO_COLOR`, then `CLICOLOR_FORCE`, then the
/// capabilities of the terminal.
pub fn should_use_color(
    color: ColorChoice,
    is_terminal: bool,
    env: impl Fn(&str) -> Option<String>,
) -> bool {
    let is_set = |name| env(name).is_some_and(|value| !value.is_empty());
    let is_zero = |name| env(name).as_deref() == Some("0");
    match color {
        ColorChoice::Always => true,
        ColorChoice::Never => false,
        ColorChoice::Auto if is_set("NO_COLOR") => false,
        ColorChoice::Auto if is_set("CLICOLOR_FORCE") && !is_zero("CLICOLOR_FORCE") => true,
        ColorChoice::Auto if is_zero("CLICOLOR") => false,
        ColorChoice::Auto => is_terminal && !is_dumb(env),
    }
}

/// Returns whether a line can be redrawn in place.
pub fn can_redraw(is_terminal: bool, env: impl Fn(&str) -> Option<String>) -> bool {
    is_terminal && !is_dumb(env)
}

fn is_dumb(env: impl Fn(&str) -> Option<String>) -> bool {
    env("TERM").is_none_or(|term| term.is_empty() || term == "dumb")
}

/// Adds colors to text, or returns it unchanged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Painter {
    pub(super) has_color: bool,
}

pub(super) const BOLD: Style = Style::new().bold();
pub(super) const DIM: Style = Style::new().dimmed();
pub(super) const SUCCESS: Style = AnsiColor::Green.on_default();
pub(super) const ERROR: Style = AnsiColor::Red.on_default();
pub(super) const WARNING: Style = AnsiColor::Yellow.on_default();

impl Painter {
    pub(super) fn paint(self, style: Style, text: &str) -> String {
        if self.has_color { format!("{style}{text}{style:#}") } else { text.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn styled(color: ColorChoice, is_terminal: bool, env: &[(&str, &str)]) -> bool {
        should_use_color(color, is_terminal, |name| {
            env.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        })
    }

    /// Fault G11.
    #[test]
    fn colors_need_a_terminal_or_an_explicit_choice() {
        let term = ("TERM", "xterm-256color");
        assert!(styled(ColorChoice::Auto, true, &[term]));
        assert!(!styled(ColorChoice::Auto, false, &[term]));
        assert!(!styled(ColorChoice::Auto, true, &[("TERM", "dumb")]));
        assert!(!styled(ColorChoice::Auto, true, &[]));
        assert!(!styled(ColorChoice::Auto, true, &[term, ("NO_COLOR", "1")]));
        assert!(styled(ColorChoice::Auto, true, &[term, ("NO_COLOR", "")]));
        assert!(styled(ColorChoice::Auto, false, &[("CLICOLOR_FORCE", "1")]));
        assert!(!styled(ColorChoice::Auto, false, &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]));
        assert!(styled(ColorChoice::Always, false, &[("NO_COLOR", "1")]));
        assert!(!styled(ColorChoice::Never, true, &[term, ("CLICOLOR_FORCE", "1")]));
    }
}
