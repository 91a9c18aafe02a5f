//! A model that plays back turns from a file: for tests, demonstrations and benchmarks, without key or network.
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
//! A turn with both text and an error says the text and then fails. Optional keys for the whole: `price` (dollars for a
//! million tokens: `input`, `output`, `cached_input`, `cache_write`), `window` and `max_output`, so that budgets and
//! compactions can be played through. Waiting is done by the scope, so that it takes no time where time is virtual.

mod parse;
mod scripted_model;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use thiserror::Error;

use crate::model::{Fault, Price, ReplyFinish, TimeSpan, Tokens, Usage};

pub use scripted_model::ScriptedModel;

/// A script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    name: Arc<str>,
    turns: Arc<[ScriptedTurn]>,
    is_repeating: bool,
    /// What its calls cost, for runs with a budget.
    pub price: Option<Price>,
    /// The context window that it pretends to have.
    pub window: Option<Tokens>,
    /// The most that it pretends to write in one reply.
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

/// Which turn comes next. Clones count together, so that a second run goes on where the first one stopped.
#[derive(Clone, Debug, Default)]
pub struct ScriptPosition(Arc<AtomicUsize>);

impl ScriptPosition {
    /// Returns a position after so many calls.
    pub fn after(calls: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(calls)))
    }

    /// Returns how many calls were made.
    pub fn calls(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Returns which call comes next, and counts it.
    pub(in crate::llm) fn advance(&self) -> usize {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

/// Why a script cannot be played.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ScriptError {
    /// The file cannot be read.
    #[error("could not read the script {path}: {cause}")]
    Unreadable {
        /// The file.
        path: String,
        /// What the system says.
        cause: String,
    },
    /// A line of it is wrong.
    #[error("{path}:{line}: {cause}")]
    Malformed {
        /// The file.
        path: String,
        /// The line, counted from one.
        line: usize,
        /// What is wrong with it.
        cause: String,
    },
}

impl Script {
    /// Reads a script; one whose name ends in `.jsonl` is JSON Lines, any other is TOML.
    ///
    /// # Errors
    ///
    /// Fails when the file cannot be read, or a line of it is wrong.
    pub fn load(path: &Path) -> Result<Self, ScriptError> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| ScriptError::Unreadable {
            path: name.clone(),
            cause: error.to_string(),
        })?;
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("jsonl" | "ndjson" | "json") => Self::from_lines(&name, &text),
            _ => Self::from_toml(&name, &text),
        }
    }

    /// Reads a script in TOML; `name` is what errors call it.
    ///
    /// # Errors
    ///
    /// Fails when a line of it is wrong.
    pub fn from_toml(name: &str, text: &str) -> Result<Self, ScriptError> {
        parse::parse_toml(name, text)
    }

    /// Reads a script in JSON Lines; `name` is what errors call it.
    ///
    /// # Errors
    ///
    /// Fails when a line of it is wrong.
    pub fn from_lines(name: &str, text: &str) -> Result<Self, ScriptError> {
        parse::parse_lines(name, text)
    }

    /// Returns the turn for a call, and how often the script was played before it.
    fn turn(&self, call: usize) -> Option<(&ScriptedTurn, usize)> {
        let length = self.turns.len();
        let round = call.checked_div(length)?;
        (self.is_repeating || round == 0).then(|| (&self.turns[call % length], round))
    }
}
