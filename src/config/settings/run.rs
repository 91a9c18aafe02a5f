//! Limits, context, index, evaluation, costs, sessions, logs.

use std::path::PathBuf;

use super::llm::{DAY, SHORTEST, UnknownPrice};
use crate::config::reader::Reader;
use crate::config::setting::words;
use crate::config::text::PathPattern;
use crate::model::{Micros, Span, Tokens};

/// The language of the human log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// English.
    En,
    /// Spanish.
    Es,
}
words!(Language { "en" => En, "es" => Es });

/// What a run may use. None means no limit; zero is a limit.
#[derive(Clone, Debug, PartialEq)]
pub struct LimitSettings {
    /// Replies whose tool calls may run.
    pub max_steps: u32,
    /// Time for the whole run.
    pub timeout: Option<Span>,
    /// Time for one model call, its retries included.
    pub step_timeout: Option<Span>,
    /// Money.
    pub budget_usd: Option<Micros>,
    /// Input and output tokens of all calls together.
    pub max_tokens: Option<Tokens>,
    /// Money after which the user is warned.
    pub warn_at_usd: Option<Micros>,
}

/// The most steps that can be asked for.
pub(super) const MOST_STEPS: u32 = 1_000_000;
/// A year.
const YEAR: Span = Span::secs(365 * 86_400);
const MOST_MONEY: Micros = Micros(1_000_000_000_000);
const MOST_TOKENS: Tokens = Tokens(1_000_000_000_000);

impl LimitSettings {
    pub(super) fn read(from: &mut Reader<'_>) -> Self {
        Self {
            max_steps: from.within("max_steps", 50, 0..=MOST_STEPS),
            timeout: from.maybe_within("timeout", Span::ZERO..=YEAR),
            step_timeout: from.maybe_within("step_timeout", Span::ZERO..=YEAR),
            budget_usd: from.maybe_within("budget_usd", Micros::ZERO..=MOST_MONEY),
            max_tokens: from.maybe_within("max_tokens", Tokens::ZERO..=MOST_TOKENS),
            warn_at_usd: from.maybe_within("warn_at_usd", Micros::ZERO..=MOST_MONEY),
        }
    }
}

/// How full the context may get, and what is done about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Context {
    /// Tokens of a tool result that stay; zero leaves every result whole.
    pub max_tool_result_tokens: Tokens,
    /// Exchanges that there have to be before a threshold compacts them.
    pub summarize_after_steps: u32,
    /// The newest exchanges, which a compaction leaves word for word.
    pub keep_recent_steps: u32,
    /// The size of the context; none is that of the model.
    pub max_context_tokens: Option<Tokens>,
    /// Whether tools of one reply run at the same time.
    pub parallel_tools: bool,
    /// The part of the context above which it is compacted.
    pub threshold: f64,
}

impl Context {
    pub(super) fn read(from: &mut Reader<'_>) -> Self {
        let sizes = Tokens(1_000)..=Tokens(1_000_000_000);
        Self {
            max_tool_result_tokens: from.within(
                "max_tool_result_tokens",
                Tokens(2_000),
                Tokens::ZERO..=Tokens(10_000_000),
            ),
            summarize_after_steps: from.within("summarize_after_steps", 8, 0..=MOST_STEPS),
            keep_recent_steps: from.within("keep_recent_steps", 4, 0..=MOST_STEPS),
            max_context_tokens: from.maybe_within("max_context_tokens", sizes),
            parallel_tools: from.or("parallel_tools", true),
            threshold: from.within("threshold", 0.75, 0.05..=0.95),
        }
    }
}

/// The index of the workspace.
#[derive(Clone, Debug, PartialEq)]
pub struct Indexer {
    /// Whether the system prompt tells the structure of the project.
    pub enabled: bool,
    /// The size in bytes above which a file is not looked into.
    pub max_file_size: u64,
    /// What is left out, besides what `.gitignore` says.
    pub exclude: Vec<PathPattern>,
    /// How long an index is used again.
    pub cache_ttl: Span,
}

impl Indexer {
    pub(super) fn read(from: &mut Reader<'_>) -> Self {
        Self {
            enabled: from.or("enabled", true),
            max_file_size: from.within("max_file_size", 1_000_000, 0..=1_000_000_000),
            exclude: from.or("exclude", Vec::new()),
            cache_ttl: from.within("cache_ttl", Span::secs(300), Span::ZERO..=DAY),
        }
    }
}

/// What is done with a result.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluation {
    /// Whether the result is evaluated, and what follows.
    pub mode: EvaluationMode,
    /// How often a run goes on after a bad evaluation.
    pub max_retries: u32,
    /// The confidence from which on a result counts.
    pub confidence_threshold: f64,
}

/// Whether a result is evaluated, and what follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvaluationMode {
    /// It is not.
    Off,
    /// It is, and the evaluation is told.
    Basic,
    /// It is, and a bad result is worked on again.
    Full,
}
words!(EvaluationMode { "off" => Off, "basic" => Basic, "full" => Full });

impl Evaluation {
    pub(super) fn read(from: &mut Reader<'_>) -> Self {
        Self {
            mode: from.or("mode", EvaluationMode::Off),
            max_retries: from.within("max_retries", 2, 0..=20),
            confidence_threshold: from.within("confidence_threshold", 0.8, 0.0..=1.0),
        }
    }
}

/// What models cost.
#[derive(Clone, Debug, PartialEq)]
pub struct Costs {
    /// A file with prices that hold instead of the built-in ones.
    pub prices_file: Option<PathBuf>,
    /// What is done when a run has a budget and its model has no price.
    pub unknown_price: UnknownPrice,
}

impl Costs {
    pub(super) fn read(from: &mut Reader<'_>) -> Self {
        Self {
            prices_file: from.path("prices_file"),
            unknown_price: from.or("unknown_price", UnknownPrice::Refuse),
        }
    }
}

/// How sessions are stored.
#[derive(Clone, Debug, PartialEq)]
pub struct Sessions {
    /// Where; none is the state folder.
    pub dir: Option<PathBuf>,
    /// What a stored event survives.
    pub durability: Durability,
    /// The age in days from which on `cleanup` removes a session.
    pub cleanup_after_days: u32,
}

/// What a stored event survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// A power cut.
    Full,
    /// The death of this process.
    Os,
}
words!(Durability { "full" => Full, "os" => Os });

impl Sessions {
    pub(super) fn read(from: &mut Reader<'_>) -> Self {
        Self {
            dir: from.path("dir"),
            durability: from.or("durability", Durability::Full),
            cleanup_after_days: from.within("cleanup_after_days", 7, 0..=36_500),
        }
    }
}

/// The technical log.
#[derive(Clone, Debug, PartialEq)]
pub struct Logging {
    /// What is logged.
    pub level: LogLevel,
    /// A file for it, as JSON lines.
    pub file: Option<PathBuf>,
}

/// What is logged: this, and what is more important.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Nothing.
    Off,
    /// Errors.
    Error,
    /// Warnings.
    Warn,
    /// What happens.
    Info,
    /// What happens inside.
    Debug,
    /// Everything.
    Trace,
}
words!(LogLevel {
    "off" => Off,
    "error" => Error,
    "warn" => Warn,
    "info" => Info,
    "debug" => Debug,
    "trace" => Trace,
});

impl Logging {
    pub(super) fn read(from: &mut Reader<'_>) -> Self {
        Self { level: from.or("level", LogLevel::Warn), file: from.path("file") }
    }
}

/// Time limits of commands, hooks, gates and servers.
pub(super) fn time_limit(from: &mut Reader<'_>, name: &'static str, default: Span) -> Span {
    from.within(name, default, SHORTEST..=DAY)
}
