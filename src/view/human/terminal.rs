//! What a terminal can do, and what the user wants of it.

use std::str::FromStr;

use thiserror::Error;

/// When colours are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Color {
    /// On a terminal that has them, unless the environment says otherwise.
    #[default]
    Auto,
    /// Always, also in a pipe.
    Always,
    /// Never.
    Never,
}

/// A word that says nothing about colours.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("unknown colour setting '{0}'; there are: auto, always, never")]
pub struct UnknownColor(String);

impl FromStr for Color {
    type Err = UnknownColor;

    fn from_str(word: &str) -> Result<Self, UnknownColor> {
        match word {
            "auto" => Ok(Self::Auto),
            "always" => Ok(Self::Always),
            "never" => Ok(Self::Never),
            _ => Err(UnknownColor(word.to_owned())),
        }
    }
}

/// Returns whether to use colours: what the user typed counts first, then `NO_COLOR`, then `CLICOLOR_FORCE`, then
/// what the terminal can.
pub fn is_styled(color: Color, is_terminal: bool, env: impl Fn(&str) -> Option<String>) -> bool {
    let is_set = |name| env(name).is_some_and(|value| !value.is_empty());
    match color {
        Color::Always => true,
        Color::Never => false,
        Color::Auto if is_set("NO_COLOR") => false,
        Color::Auto
            if env("CLICOLOR_FORCE").is_some_and(|force| !force.is_empty() && force != "0") =>
        {
            true
        }
        Color::Auto if env("CLICOLOR").as_deref() == Some("0") => false,
        Color::Auto => is_terminal && !is_dumb(env),
    }
}

/// Returns whether a line can be drawn again and again in its place.
pub fn is_live(is_terminal: bool, env: impl Fn(&str) -> Option<String>) -> bool {
    is_terminal && !is_dumb(env)
}

fn is_dumb(env: impl Fn(&str) -> Option<String>) -> bool {
    env("TERM").is_none_or(|term| term.is_empty() || term == "dumb")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn styled(color: Color, is_terminal: bool, env: &[(&str, &str)]) -> bool {
        is_styled(color, is_terminal, |name| {
            env.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        })
    }

    /// Fault G11.
    #[test]
    fn colours_need_a_terminal_or_somebody_who_wants_them() {
        let term = ("TERM", "xterm-256color");
        assert!(styled(Color::Auto, true, &[term]));
        assert!(!styled(Color::Auto, false, &[term]));
        assert!(!styled(Color::Auto, true, &[("TERM", "dumb")]));
        assert!(!styled(Color::Auto, true, &[]));
        assert!(!styled(Color::Auto, true, &[term, ("NO_COLOR", "1")]));
        assert!(styled(Color::Auto, true, &[term, ("NO_COLOR", "")]));
        assert!(styled(Color::Auto, false, &[("CLICOLOR_FORCE", "1")]));
        assert!(!styled(Color::Auto, false, &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]));
        assert!(styled(Color::Always, false, &[("NO_COLOR", "1")]));
        assert!(!styled(Color::Never, true, &[term, ("CLICOLOR_FORCE", "1")]));
    }
}
