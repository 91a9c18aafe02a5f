//! Parses scripts.

use serde::Deserialize;
use serde_json::Value;
use toml::Spanned;

use super::{Script, ScriptedToolCall, ScriptedTurn};
use crate::llm::PlaybackError;
use crate::llm::model_table::PriceRow;
use crate::types::{ReplyFinish, Tokens};

/// A script in TOML; in JSON Lines, the line with options.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ScriptFile {
    repeat: bool,
    price: Option<PriceRow>,
    window: Option<Tokens>,
    max_output: Option<Tokens>,
    turn: Vec<Spanned<ScriptedTurn>>,
}

impl Script {
    /// Parses a script in TOML; `name` stands for the file in errors.
    ///
    /// # Errors
    ///
    /// Fails for an invalid line.
    pub fn from_toml(name: &str, text: &str) -> Result<Self, PlaybackError> {
        let line_of = |at: usize| text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1;
        let mut whole: ScriptFile = toml::from_str(text).map_err(|error| {
            malformed(name, error.span().map_or(1, |span| line_of(span.start)), error.message())
        })?;
        let turns = std::mem::take(&mut whole.turn).into_iter();
        let turns = turns.map(|turn| (line_of(turn.span().start), turn.into_inner())).collect();
        Self::build(name, &whole, turns)
    }

    /// Parses a script in JSON Lines; `name` stands for the file in errors.
    ///
    /// # Errors
    ///
    /// Fails for an invalid line.
    pub fn from_lines(name: &str, text: &str) -> Result<Self, PlaybackError> {
        let (mut whole, mut turns) = (ScriptFile::default(), Vec::new());
        for (index, text) in text.lines().enumerate().filter(|(_, text)| !text.trim().is_empty()) {
            let line = index + 1;
            let invalid = |error: serde_json::Error| malformed(name, line, &error.to_string());
            let value: Value = serde_json::from_str(text).map_err(invalid)?;
            let is_setting = ["repeat", "price", "window", "max_output"]
                .iter()
                .any(|key| value.get(key).is_some());
            if is_setting {
                whole = serde_json::from_value(value).map_err(invalid)?;
            } else {
                turns.push((line, serde_json::from_value(value).map_err(invalid)?));
            }
        }
        Self::build(name, &whole, turns)
    }

    fn build(
        name: &str,
        whole: &ScriptFile,
        turns: Vec<(usize, ScriptedTurn)>,
    ) -> Result<Self, PlaybackError> {
        let price = whole.price.as_ref().map(|price| price.price(None));
        if price == Some(None) {
            return Err(malformed(name, 1, "invalid price"));
        }
        for (line, turn) in &turns {
            turn.check().map_err(|cause| malformed(name, *line, cause))?;
        }
        if turns.is_empty() {
            return Err(malformed(name, 1, "the script has no turns"));
        }
        Ok(Self {
            name: name.into(),
            turns: turns.into_iter().map(|(_, turn)| turn).collect(),
            is_repeating: whole.repeat,
            price: price.flatten(),
            window: whole.window,
            max_output: whole.max_output,
        })
    }
}

fn malformed(name: &str, line: usize, cause: &str) -> PlaybackError {
    PlaybackError::Malformed { path: name.into(), line, cause: cause.to_owned() }
}

impl ScriptedTurn {
    fn check(&self) -> Result<(), &'static str> {
        let says_nothing = self.text.is_empty() && self.reasoning.is_empty();
        if says_nothing && self.calls.is_empty() && self.finish.is_none() && self.error.is_none() {
            return Err("the turn has none of text, calls, finish and error");
        }
        match self.calls.iter().any(|call| call.arguments.is_some() && call.raw.is_some()) {
            true => Err("a call has both arguments and raw"),
            false => Ok(()),
        }
    }

    pub(super) fn finish(&self) -> ReplyFinish {
        match self.finish.as_deref() {
            None if self.calls.is_empty() => ReplyFinish::Stop,
            None | Some("tool_calls") => ReplyFinish::ToolCalls,
            Some("stop") => ReplyFinish::Stop,
            Some("length") => ReplyFinish::Length,
            Some("pause") => ReplyFinish::Pause,
            Some("refused") => ReplyFinish::Refused,
            Some("context_full") => ReplyFinish::ContextFull,
            Some(other) => ReplyFinish::Other(other.into()),
        }
    }
}

impl ScriptedToolCall {
    pub(super) fn arguments(&self) -> String {
        match (&self.arguments, &self.raw) {
            (Some(value), _) => value.to_string(),
            (None, Some(raw)) => raw.clone(),
            (None, None) => "{}".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        Script::from_toml("s.toml", text).unwrap_err().to_string()
    }

    #[test]
    fn toml_and_json_lines_are_equivalent() {
        let table = "repeat = true\nwindow = 9\n[[turn]]\ntext = \"a\"\nusage = { input = 3 }\n\
            [[turn]]\ncalls = [{ name = \"t\", arguments = { p = 1 } }, { name = \"u\", raw = \"{\" }]\n";
        let json = "{\"repeat\":true,\"window\":9}\n\n{\"text\":\"a\",\"usage\":{\"input\":3}}\n\
            {\"calls\":[{\"name\":\"t\",\"arguments\":{\"p\":1}},{\"name\":\"u\",\"raw\":\"{\"}]}\n";
        assert_eq!(Script::from_toml("s", table), Script::from_lines("s", json));
        let script = Script::from_toml("s", table).unwrap();
        assert_eq!(script.turns[1].finish(), ReplyFinish::ToolCalls);
        assert_eq!(script.turns[1].calls[0].arguments(), "{\"p\":1}");
    }

    #[test]
    fn an_error_names_its_line() {
        let error = refused("[[turn]]\ntext = \"a\"\n\n[[turn]]\ntxt = \"b\"\n");
        assert!(error.starts_with("s.toml:5: unknown field `txt`"), "{error}");
        assert!(
            refused("repat = true\n[[turn]]\ntext = \"a\"").starts_with("s.toml:1: unknown field")
        );
        let error = refused("[[turn]]\ntext = \"a\"\n[[turn]]\ndelay_ms = 1\n");
        assert!(error.starts_with("s.toml:3: the turn has none"), "{error}");
        assert!(refused("[[turn]]\nerror = { kind = \"odd\" }").contains("unknown variant `odd`"));
        assert_eq!(refused(""), "s.toml:1: the script has no turns");
        let error = Script::from_lines("s.jsonl", "{\"text\":\"a\"}\n{\"text\":1}\n")
            .unwrap_err()
            .to_string();
        assert!(error.starts_with("s.jsonl:2: invalid type"), "{error}");
        let error = Script::from_lines("s.jsonl", "{\"repeat\":true,\"text\":\"a\"}\n")
            .unwrap_err()
            .to_string();
        assert!(error.starts_with("s.jsonl:1: unknown field"), "{error}");
    }
}
