//! Parsing scripts.

use serde::Deserialize;
use serde_json::Value;

use super::{Script, ScriptError, ScriptedToolCall, ScriptedTurn};
use crate::llm::decode::estimate_usage;
use crate::llm::model_table::PriceRow;
use crate::model::{Fault, FaultKind, ReplyFinish, RetryAdvice, TimeSpan, Tokens, Usage};

/// A script in TOML; in JSON Lines, the line with options.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScriptFile {
    #[serde(default)]
    repeat: bool,
    price: Option<PriceRow>,
    window: Option<u64>,
    max_output: Option<u64>,
    #[serde(default)]
    turn: Vec<TurnEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TurnEntry {
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

pub(super) fn parse_toml(name: &str, text: &str) -> Result<Script, ScriptError> {
    let mut whole: ScriptFile = toml::from_str(text).map_err(|error| {
        let line = error.span().map_or(1, |span| line_of(text, span.start));
        ScriptError::Malformed { path: name.to_owned(), line, cause: error.message().to_owned() }
    })?;
    let starts = text.lines().enumerate().filter(|(_, line)| line.trim().starts_with("[[turn]]"));
    let starts: Vec<usize> = starts.map(|(index, _)| index + 1).collect();
    let turns = std::mem::take(&mut whole.turn).into_iter().enumerate();
    let turns =
        turns.map(|(index, turn)| (starts.get(index).copied().unwrap_or(1), turn)).collect();
    build_script(name, &whole, turns)
}

pub(super) fn parse_lines(name: &str, text: &str) -> Result<Script, ScriptError> {
    let (mut whole, mut turns) = (ScriptFile::default(), Vec::new());
    for (index, text) in text.lines().enumerate().filter(|(_, text)| !text.trim().is_empty()) {
        let line = index + 1;
        let malformed = |error: serde_json::Error| ScriptError::Malformed {
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
    build_script(name, &whole, turns)
}

fn build_script(
    name: &str,
    whole: &ScriptFile,
    turns: Vec<(usize, TurnEntry)>,
) -> Result<Script, ScriptError> {
    let malformed = |line, cause: &str| ScriptError::Malformed {
        path: name.to_owned(),
        line,
        cause: cause.to_owned(),
    };
    let price = match &whole.price {
        None => None,
        Some(line) => Some(line.price(None).ok_or_else(|| malformed(1, "invalid price"))?),
    };
    let turns: Result<Vec<ScriptedTurn>, ScriptError> = turns
        .into_iter()
        .map(|(line, turn)| turn.into_turn().map_err(|cause| malformed(line, cause)))
        .collect();
    let turns = turns?;
    if turns.is_empty() {
        return Err(malformed(1, "the script has no turns"));
    }
    Ok(Script {
        name: name.into(),
        turns: turns.into(),
        is_repeating: whole.repeat,
        price,
        window: whole.window.map(Tokens),
        max_output: whole.max_output.map(Tokens),
    })
}

impl TurnEntry {
    fn into_turn(self) -> Result<ScriptedTurn, &'static str> {
        let calls: Result<Vec<ScriptedToolCall>, _> =
            self.calls.into_iter().map(CallEntry::into_call).collect();
        let calls = calls?;
        let is_nothing = self.text.is_empty() && self.reasoning.is_empty() && calls.is_empty();
        if is_nothing && self.finish.is_none() && self.error.is_none() {
            return Err("the turn has none of text, calls, finish and error");
        }
        let finish = match self.finish.as_deref() {
            None if calls.is_empty() => ReplyFinish::Stop,
            None | Some("tool_calls") => ReplyFinish::ToolCalls,
            Some("stop") => ReplyFinish::Stop,
            Some("length") => ReplyFinish::Length,
            Some("pause") => ReplyFinish::Pause,
            Some("refused") => ReplyFinish::Refused,
            Some("context_full") => ReplyFinish::ContextFull,
            Some(other) => ReplyFinish::Other(other.into()),
        };
        let received = estimate_usage(0, self.text.len() + self.reasoning.len()).output;
        let error = self.error.map(|error| Fault {
            kind: error.kind,
            message: error.message.as_deref().unwrap_or("scripted error").into(),
            advice: error.retry,
            retry_after: error.wait_ms.map(TimeSpan::from_millis),
            billed: error.billed,
            received,
        });
        Ok(ScriptedTurn {
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
                is_estimated: false,
            }),
            delay: TimeSpan::from_millis(self.delay_ms),
            chunks: self.chunks.max(1),
            pace: TimeSpan::from_millis(self.pace_ms),
            error,
        })
    }
}

impl CallEntry {
    fn into_call(self) -> Result<ScriptedToolCall, &'static str> {
        let arguments = match (self.arguments, self.raw) {
            (Some(_), Some(_)) => return Err("a call has both arguments and raw"),
            (Some(value), None) => value.to_string(),
            (None, Some(raw)) => raw,
            (None, None) => "{}".to_owned(),
        };
        Ok(ScriptedToolCall { id: self.id, name: self.name, arguments })
    }
}

fn line_of(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        parse_toml("s.toml", text).unwrap_err().to_string()
    }

    #[test]
    fn toml_and_json_lines_are_equivalent() {
        let table = "repeat = true\nwindow = 9\n[[turn]]\ntext = \"a\"\nusage = { input = 3 }\n\
            [[turn]]\ncalls = [{ name = \"t\", arguments = { p = 1 } }, { name = \"u\", raw = \"{\" }]\n";
        let json = "{\"repeat\":true,\"window\":9}\n\n{\"text\":\"a\",\"usage\":{\"input\":3}}\n\
            {\"calls\":[{\"name\":\"t\",\"arguments\":{\"p\":1}},{\"name\":\"u\",\"raw\":\"{\"}]}\n";
        assert_eq!(parse_toml("s", table), parse_lines("s", json));
        let script = parse_toml("s", table).unwrap();
        assert_eq!(script.turns[1].finish, ReplyFinish::ToolCalls);
        assert_eq!(script.turns[1].calls[0].arguments, "{\"p\":1}");
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
        let error =
            parse_lines("s.jsonl", "{\"text\":\"a\"}\n{\"text\":1}\n").unwrap_err().to_string();
        assert!(error.starts_with("s.jsonl:2: invalid type"), "{error}");
        let error =
            parse_lines("s.jsonl", "{\"repeat\":true,\"text\":\"a\"}\n").unwrap_err().to_string();
        assert!(error.starts_with("s.jsonl:1: unknown field"), "{error}");
    }
}
