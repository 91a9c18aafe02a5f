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
//! pace_ms = 5             # between two pieces
//!
//! [[turn]]
//! error = { kind = "rate_limited", message = "slow down", wait_ms = 500, retry = "yes", billed = false }
//! ```
//!
//! A turn with both text and an error streams the text and then fails. Optional keys at the top: `price` (dollars per
//! million tokens: `input`, `output`, `cached_input`, `cache_write`), `window` and `max_output`, for budgets and
//! compactions. Delays use the clock of the run, so that they take no time with a virtual clock.

mod parse;
mod scripted_model;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use thiserror::Error;

use crate::model::{Fault, Price, ReplyFinish, TimeSpan, Tokens, Usage};
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

/// One call of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ScriptedTurn {
    text: String,
    reasoning: String,
    calls: Vec<ScriptedToolCall>,
    finish: ReplyFinish,
    usage: Option<Usage>,
    delay: TimeSpan,
    chunks: usize,
    pace: TimeSpan,
    error: Option<Fault>,
}

/// A tool call of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ScriptedToolCall {
    id: Option<String>,
    name: String,
    arguments: String,
}

/// The position in a script. Clones share it, so that a second run continues where the first one stopped.
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

/// An error of loading a script.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ScriptError {
    /// The file can't be read.
    #[error("could not read the script {path}: {cause}")]
    Unreadable {
        /// The file.
        path: String,
        /// The error of the system.
        cause: String,
    },
    /// A line is invalid.
    #[error("{path}:{line}: {cause}")]
    Malformed {
        /// The file.
        path: String,
        /// The number of the line, counted from one.
        line: usize,
        /// The reason.
        cause: String,
    },
}

impl Script {
    /// Reads a script: JSON Lines if the name ends in `.jsonl`, or else TOML.
    ///
    /// # Errors
    ///
    /// Fails if the file can't be read, or for an invalid line.
    pub fn load(path: &Path) -> Result<Self, ScriptError> {
        let name = path.display().to_string();
        let text = read_input(path).map_err(|error| ScriptError::Unreadable {
            path: name.clone(),
            cause: error.to_string(),
        })?;
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("jsonl" | "ndjson" | "json") => Self::from_lines(&name, &text),
            _ => Self::from_toml(&name, &text),
        }
    }

    /// Parses a script in TOML; `name` is its name in errors.
    ///
    /// # Errors
    ///
    /// Fails for an invalid line.
    pub fn from_toml(name: &str, text: &str) -> Result<Self, ScriptError> {
        parse::parse_toml(name, text)
    }

    /// Parses a script in JSON Lines; `name` is its name in errors.
    ///
    /// # Errors
    ///
    /// Fails for an invalid line.
    pub fn from_lines(name: &str, text: &str) -> Result<Self, ScriptError> {
        parse::parse_lines(name, text)
    }

    /// Returns the turn for a call, and the number of completed repetitions.
    fn turn(&self, call: usize) -> Option<(&ScriptedTurn, usize)> {
        let length = self.turns.len();
        let round = call.checked_div(length)?;
        (self.is_repeating || round == 0).then(|| (&self.turns[call % length], round))
    }
}
