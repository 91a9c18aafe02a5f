//! Scripts as they are written.

use serde::Deserialize;
use serde_json::Value;

use super::{BadScript, CallLine, Script, Turn};
use crate::llm::decode::estimate;
use crate::model::{Fault, FaultKind, Finish, Micros, Price, RetryAdvice, Span, Tokens, Usage};

/// A whole script in TOML; in JSON Lines, the line that holds for all of them.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Whole {
    #[serde(default)]
    repeat: bool,
    price: Option<PriceLine>,
    window: Option<u64>,
    max_output: Option<u64>,
    #[serde(default)]
    turn: Vec<TurnLine>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PriceLine {
    input: f64,
    output: f64,
    cached_input: Option<f64>,
    cache_write: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TurnLine {
    #[serde(default)]
    text: String,
    #[serde(default)]
    reasoning: String,
    #[serde(default)]
    calls: Vec<CallEntry>,
    finish: Option<String>,
    usage: Option<UsageEntry>,
    #[serde(default)]
    delay_ms: u64,
    #[serde(default = "one")]
    chunks: usize,
    #[serde(default)]
    pace_ms: u64,
    error: Option<ErrorEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CallEntry {
    id: Option<String>,
    name: String,
    arguments: Option<Value>,
    raw: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UsageEntry {
    #[serde(default)]
    input: u64,
    #[serde(default)]
    output: u64,
    #[serde(default)]
    cached_input: u64,
    #[serde(default)]
    cache_write: u64,
    #[serde(default)]
    reasoning: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ErrorEntry {
    kind: FaultKind,
    message: Option<String>,
    wait_ms: Option<u64>,
    #[serde(default)]
    retry: RetryAdvice,
    #[serde(default)]
    billed: bool,
}

fn one() -> usize {
    1
}

pub(super) fn toml(name: &str, text: &str) -> Result<Script, BadScript> {
    let mut whole: Whole = toml::from_str(text).map_err(|error| {
        let line = error.span().map_or(1, |span| line_of(text, span.start));
        BadScript::Malformed { path: name.to_owned(), line, cause: error.message().to_owned() }
    })?;
    let starts = text.lines().enumerate().filter(|(_, line)| line.trim().starts_with("[[turn]]"));
    let starts: Vec<usize> = starts.map(|(index, _)| index + 1).collect();
    let turns = std::mem::take(&mut whole.turn).into_iter().enumerate();
    let turns =
        turns.map(|(index, turn)| (starts.get(index).copied().unwrap_or(1), turn)).collect();
    script(name, &whole, turns)
}

pub(super) fn lines(name: &str, text: &str) -> Result<Script, BadScript> {
    let (mut whole, mut turns) = (Whole::default(), Vec::new());
    for (index, text) in text.lines().enumerate().filter(|(_, text)| !text.trim().is_empty()) {
        let line = index + 1;
        let malformed = |error: serde_json::Error| BadScript::Malformed {
            path: name.to_owned(),
            line,
            cause: error.to_string(),
        };
        let value: Value = serde_json::from_str(text).map_err(malformed)?;
        let is_setting =
            ["repeat", "price", "window", "max_output"].iter().any(|key| value.get(key).is_some());
        if is_setting {
            whole = serde_json::from_value(value).map_err(malformed)?;
        } else {
            turns.push((line, serde_json::from_value(value).map_err(malformed)?));
        }
    }
    script(name, &whole, turns)
}

fn script(name: &str, whole: &Whole, turns: Vec<(usize, TurnLine)>) -> Result<Script, BadScript> {
    let malformed = |line, cause: &str| BadScript::Malformed {
        path: name.to_owned(),
        line,
        cause: cause.to_owned(),
    };
    let price = match &whole.price {
        None => None,
        Some(line) => Some(line.price().ok_or_else(|| malformed(1, "the price is no price"))?),
    };
    let turns: Result<Vec<Turn>, BadScript> = turns
        .into_iter()
        .map(|(line, turn)| turn.turn().map_err(|cause| malformed(line, cause)))
        .collect();
    let turns = turns?;
    if turns.is_empty() {
        return Err(malformed(1, "there is no turn in it"));
    }
    Ok(Script {
        name: name.into(),
        turns: turns.into(),
        repeat: whole.repeat,
        price,
        window: whole.window.map(Tokens),
        max_output: whole.max_output.map(Tokens),
    })
}

impl TurnLine {
    fn turn(self) -> Result<Turn, &'static str> {
        let calls: Result<Vec<CallLine>, _> = self.calls.into_iter().map(CallEntry::call).collect();
        let calls = calls?;
        let is_nothing = self.text.is_empty() && self.reasoning.is_empty() && calls.is_empty();
        if is_nothing && self.finish.is_none() && self.error.is_none() {
            return Err("the turn has none of text, calls, finish and error");
        }
        let finish = match self.finish.as_deref() {
            None if calls.is_empty() => Finish::Stop,
            None | Some("tool_calls") => Finish::ToolCalls,
            Some("stop") => Finish::Stop,
            Some("length") => Finish::Length,
            Some("pause") => Finish::Pause,
            Some("refused") => Finish::Refused,
            Some("context_full") => Finish::ContextFull,
            Some(other) => Finish::Other(other.into()),
        };
        let heard = estimate(0, self.text.len() + self.reasoning.len()).output;
        let error = self.error.map(|error| Fault {
            kind: error.kind,
            message: error.message.as_deref().unwrap_or("the script says so").into(),
            retry: error.retry,
            wait: error.wait_ms.map(Span::millis),
            billed: error.billed,
            heard,
        });
        Ok(Turn {
            text: self.text,
            reasoning: self.reasoning,
            calls,
            finish,
            usage: self.usage.map(|usage| Usage {
                input: Tokens(usage.input),
                output: Tokens(usage.output),
                cached_input: Tokens(usage.cached_input),
                cache_write: Tokens(usage.cache_write),
                reasoning: Tokens(usage.reasoning),
                estimated: false,
            }),
            delay: Span::millis(self.delay_ms),
            chunks: self.chunks.max(1),
            pace: Span::millis(self.pace_ms),
            error,
        })
    }
}

impl CallEntry {
    fn call(self) -> Result<CallLine, &'static str> {
        let arguments = match (self.arguments, self.raw) {
            (Some(_), Some(_)) => return Err("a call has both arguments and raw"),
            (Some(value), None) => value.to_string(),
            (None, Some(raw)) => raw,
            (None, None) => "{}".to_owned(),
        };
        Ok(CallLine { id: self.id, name: self.name, arguments })
    }
}

impl PriceLine {
    fn price(&self) -> Option<Price> {
        let micros = |dollars| Micros::from_dollars(dollars).map(|micros| micros.0);
        let input = micros(self.input)?;
        Some(Price {
            input,
            output: micros(self.output)?,
            cached_input: self.cached_input.map_or(Some(input), micros)?,
            cache_write: self.cache_write.map_or(Some(input), micros)?,
            long: None,
        })
    }
}

fn line_of(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        toml("s.toml", text).unwrap_err().to_string()
    }

    #[test]
    fn both_forms_say_the_same() {
        let table = "repeat = true\nwindow = 9\n[[turn]]\ntext = \"a\"\nusage = { input = 3 }\n\
            [[turn]]\ncalls = [{ name = \"t\", arguments = { p = 1 } }, { name = \"u\", raw = \"{\" }]\n";
        let json = "{\"repeat\":true,\"window\":9}\n\n{\"text\":\"a\",\"usage\":{\"input\":3}}\n\
            {\"calls\":[{\"name\":\"t\",\"arguments\":{\"p\":1}},{\"name\":\"u\",\"raw\":\"{\"}]}\n";
        assert_eq!(toml("s", table), lines("s", json));
        let script = toml("s", table).unwrap();
        assert_eq!(script.turns[1].finish, Finish::ToolCalls);
        assert_eq!(script.turns[1].calls[0].arguments, "{\"p\":1}");
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let error = refused("[[turn]]\ntext = \"a\"\n\n[[turn]]\ntxt = \"b\"\n");
        assert!(error.starts_with("s.toml:5: unknown field `txt`"), "{error}");
        assert!(
            refused("repat = true\n[[turn]]\ntext = \"a\"").starts_with("s.toml:1: unknown field")
        );
        let error = refused("[[turn]]\ntext = \"a\"\n[[turn]]\ndelay_ms = 1\n");
        assert!(error.starts_with("s.toml:3: the turn has none"), "{error}");
        assert!(refused("[[turn]]\nerror = { kind = \"odd\" }").contains("unknown variant `odd`"));
        assert_eq!(refused(""), "s.toml:1: there is no turn in it");
        let error = lines("s.jsonl", "{\"text\":\"a\"}\n{\"text\":1}\n").unwrap_err().to_string();
        assert!(error.starts_with("s.jsonl:2: invalid type"), "{error}");
        let error = lines("s.jsonl", "{\"repeat\":true,\"text\":\"a\"}\n").unwrap_err().to_string();
        assert!(error.starts_with("s.jsonl:1: unknown field"), "{error}");
    }
}
