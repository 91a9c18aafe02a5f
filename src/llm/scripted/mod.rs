//! A model that plays turns from a file, without key or network: for tests, demonstrations and benchmarks.
//!
//! A script is TOML with a `[[turn]]` for each call, or JSON Lines with a turn on each line:
//!
//! ```toml
//! repeat = false          # start over at the end
//!
//! [[turn]]
//! text = "I'll look."     # what the model says
//! reasoning = "hm"        # what it thinks
//! calls = [{ name = "read_file", arguments = { path = "a.txt" } }]   # `id` if it matters; `raw` for broken arguments
//! finish = "tool_calls"   # stop, tool_calls, length, pause, refused, context_full, or anything unknown
//! usage = { input = 100, output = 20, cached_input = 0, cache_write = 0, reasoning = 0 }   # estimated if missing
//! delay_ms = 10           # before the reply begins
//! chunks = 4              # the text comes in so many pieces
//! pace_ms = 5             # between two pieces, and after the reasoning
//!
//! [[turn]]
//! error = { kind = "rate_limited", message = "slow down", wait_ms = 500, retry = "yes", billed = false }
//! ```
//!
//! A turn with both text and an error streams the text and then fails. Optional keys at the top: `price` (dollars per
//! million tokens: `input`, `output`, `cached_input`, `cache_write`), `window` and `max_output`, for budgets and
//! compactions. Delays use the clock of the run, so they take no time with a virtual clock.

mod parse;
mod scripted_model;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::PlaybackError;
use crate::types::{FaultKind, Price, RetryAdvice, Tokens};
use crate::workspace::read_input;

pub use scripted_model::ScriptedModel;

/// A script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    name: Arc<str>,
    turns: Arc<[ScriptedTurn]>,
    is_repeating: bool,
    /// The price, for runs with a budget.
    pub price: Option<Price>,
    /// The context window.
    pub window: Option<Tokens>,
    /// The output limit.
    pub max_output: Option<Tokens>,
}

/// One call of a script, as written in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ScriptedTurn {
    /// The text of the reply.
    text: String,
    /// The reasoning of the reply.
    reasoning: String,
    /// The tool calls of the reply.
    calls: Vec<ScriptedToolCall>,
    /// The finish reason: stop, `tool_calls`, length, pause, refused, `context_full`, or anything unknown.
    finish: Option<String>,
    /// The usage; estimated if it is missing.
    usage: Option<ScriptedUsage>,
    /// The delay before the reply begins, in milliseconds.
    delay_ms: u64,
    /// The number of parts in which the text is streamed.
    chunks: usize,
    /// The delay between two chunks, in milliseconds.
    pace_ms: u64,
    /// The error with which the call fails, after its text.
    error: Option<ScriptedError>,
}

/// A tool call of a script.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ScriptedToolCall {
    /// The id, if it matters.
    id: Option<String>,
    /// The name of the tool.
    name: String,
    /// The arguments.
    arguments: Option<Value>,
    /// The text of invalid arguments, instead of `arguments`.
    raw: Option<String>,
}

/// The usage of a scripted call, in tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct ScriptedUsage {
    input: Tokens,
    output: Tokens,
    cached_input: Tokens,
    cache_write: Tokens,
    reasoning: Tokens,
}

/// The failure of a scripted call.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ScriptedError {
    /// The kind of failure.
    kind: FaultKind,
    /// The error message.
    message: Option<String>,
    /// The delay that the provider asks for, in milliseconds.
    wait_ms: Option<u64>,
    /// The provider's advice about retrying.
    #[serde(default)]
    retry: RetryAdvice,
    /// Whether the call is charged for.
    #[serde(default)]
    billed: bool,
}

/// The position in a script. Clones share it, so that a second run continues at the point where the first one stopped.
#[derive(Clone, Debug, Default)]
pub struct ScriptPosition(Arc<AtomicUsize>);

impl ScriptPosition {
    /// Returns the position after a number of calls.
    pub fn after(calls: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(calls)))
    }

    /// Returns the number of calls so far.
    pub fn calls(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Returns the number of the next call, and advances.
    pub(in crate::llm) fn advance(&self) -> usize {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

impl Script {
    /// Reads a script: JSON Lines if the name ends in `.jsonl`, otherwise TOML.
    ///
    /// # Errors
    ///
    /// Fails if the file can't be read, or has an invalid line.
    pub fn load(path: &Path) -> Result<Self, PlaybackError> {
        let text = read_input(path).map_err(|error| PlaybackError::Unreadable {
            kind: "script",
            path: path.to_owned(),
            cause: error.to_string(),
        })?;
        let name = path.display().to_string();
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("jsonl" | "ndjson" | "json") => Self::from_lines(&name, &text),
            _ => Self::from_toml(&name, &text),
        }
    }

    /// Returns the turn for a call, and the number of completed repetitions.
    fn turn(&self, call: usize) -> Option<(&ScriptedTurn, usize)> {
        let length = self.turns.len();
        let round = call.checked_div(length)?;
        (self.is_repeating || round == 0).then(|| (&self.turns[call % length], round))
    }
}
