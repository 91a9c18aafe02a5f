//! Limits, context, index, evaluation, costs, sessions, logs.

use std::path::PathBuf;

use super::llm::{DAY, MIN_TIMEOUT, UnknownPricePolicy};
use crate::config::setting_value::words;
use crate::config::settings_reader::SettingsReader;
use crate::config::text_types::PathPattern;
use crate::model::{MicroUsd, TimeSpan, Tokens};

/// The language of the human log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LanguageSetting {
    /// English.
    En,
    /// Spanish.
    Es,
}
words!(LanguageSetting { "en" => En, "es" => Es });

/// What a run may use. None means no limit; zero is a limit.
#[derive(Clone, Debug, PartialEq)]
pub struct LimitsConfig {
    /// Replies whose tool calls may run.
    pub max_steps: u32,
    /// Time for the whole run.
    pub timeout: Option<TimeSpan>,
    /// Time for one model call, its retries included.
    pub step_timeout: Option<TimeSpan>,
    /// Money.
    pub budget_usd: Option<MicroUsd>,
    /// Input and output tokens of all calls together.
    pub max_tokens: Option<Tokens>,
    /// Money after which the user is warned.
    pub warn_at_usd: Option<MicroUsd>,
}

/// The most steps that can be asked for.
pub(super) const MAX_STEPS: u32 = 1_000_000;
/// A year.
const YEAR: TimeSpan = TimeSpan::from_secs(365 * 86_400);
const MAX_BUDGET: MicroUsd = MicroUsd(1_000_000_000_000);
const MAX_TOKENS: Tokens = Tokens(1_000_000_000_000);

impl LimitsConfig {
    pub(super) fn read(from: &mut SettingsReader<'_>) -> Self {
        Self {
            max_steps: from.in_range_or("max_steps", 50, 0..=MAX_STEPS),
            timeout: from.optional_in_range("timeout", TimeSpan::ZERO..=YEAR),
            step_timeout: from.optional_in_range("step_timeout", TimeSpan::ZERO..=YEAR),
            budget_usd: from.optional_in_range("budget_usd", MicroUsd::ZERO..=MAX_BUDGET),
            max_tokens: from.optional_in_range("max_tokens", Tokens::ZERO..=MAX_TOKENS),
            warn_at_usd: from.optional_in_range("warn_at_usd", MicroUsd::ZERO..=MAX_BUDGET),
        }
    }
}

/// How full the context may get, and what is done about it.
#[derive(Clone, Debug, PartialEq)]
pub struct ContextConfig {
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

impl ContextConfig {
    pub(super) fn read(from: &mut SettingsReader<'_>) -> Self {
        let sizes = Tokens(1_000)..=Tokens(1_000_000_000);
        Self {
            max_tool_result_tokens: from.in_range_or(
                "max_tool_result_tokens",
                Tokens(2_000),
                Tokens::ZERO..=Tokens(10_000_000),
            ),
            summarize_after_steps: from.in_range_or("summarize_after_steps", 8, 0..=MAX_STEPS),
            keep_recent_steps: from.in_range_or("keep_recent_steps", 4, 0..=MAX_STEPS),
            max_context_tokens: from.optional_in_range("max_context_tokens", sizes),
            parallel_tools: from.value_or("parallel_tools", true),
            threshold: from.in_range_or("threshold", 0.75, 0.05..=0.95),
        }
    }
}

/// The index of the workspace.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexerConfig {
    /// Whether the system prompt tells the structure of the project.
    pub enabled: bool,
    /// The size in bytes above which a file is not looked into.
    pub max_file_size: u64,
    /// What is left out, besides what `.gitignore` says.
    pub exclude: Vec<PathPattern>,
    /// How long an index is used again.
    pub cache_ttl: TimeSpan,
}

impl IndexerConfig {
    pub(super) fn read(from: &mut SettingsReader<'_>) -> Self {
        Self {
            enabled: from.value_or("enabled", true),
            max_file_size: from.in_range_or("max_file_size", 1_000_000, 0..=1_000_000_000),
            exclude: from.value_or("exclude", Vec::new()),
            cache_ttl: from.in_range_or(
                "cache_ttl",
                TimeSpan::from_secs(300),
                TimeSpan::ZERO..=DAY,
            ),
        }
    }
}

/// What is done with a result.
#[derive(Clone, Debug, PartialEq)]
pub struct EvaluationConfig {
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

impl EvaluationConfig {
    pub(super) fn read(from: &mut SettingsReader<'_>) -> Self {
        Self {
            mode: from.value_or("mode", EvaluationMode::Off),
            max_retries: from.in_range_or("max_retries", 2, 0..=20),
            confidence_threshold: from.in_range_or("confidence_threshold", 0.8, 0.0..=1.0),
        }
    }
}

/// What models cost.
#[derive(Clone, Debug, PartialEq)]
pub struct CostsConfig {
    /// A file with prices that hold instead of the built-in ones.
    pub prices_file: Option<PathBuf>,
    /// What is done when a run has a budget and its model has no price.
    pub unknown_price: UnknownPricePolicy,
}

impl CostsConfig {
    pub(super) fn read(from: &mut SettingsReader<'_>) -> Self {
        Self {
            prices_file: from.path("prices_file"),
            unknown_price: from.value_or("unknown_price", UnknownPricePolicy::Refuse),
        }
    }
}

/// How sessions are stored.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionsConfig {
    /// Where; none is the state folder.
    pub dir: Option<PathBuf>,
    /// What a stored event survives.
    pub durability: DurabilitySetting,
    /// The age in days from which on `cleanup` removes a session.
    pub cleanup_after_days: u32,
}

/// What a stored event survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DurabilitySetting {
    /// A power cut.
    Full,
    /// The death of this process.
    Os,
}
words!(DurabilitySetting { "full" => Full, "os" => Os });

impl SessionsConfig {
    pub(super) fn read(from: &mut SettingsReader<'_>) -> Self {
        Self {
            dir: from.path("dir"),
            durability: from.value_or("durability", DurabilitySetting::Full),
            cleanup_after_days: from.in_range_or("cleanup_after_days", 7, 0..=36_500),
        }
    }
}

/// The technical log.
#[derive(Clone, Debug, PartialEq)]
pub struct LoggingConfig {
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

impl LoggingConfig {
    pub(super) fn read(from: &mut SettingsReader<'_>) -> Self {
        Self { level: from.value_or("level", LogLevel::Warn), file: from.path("file") }
    }
}

/// Time limits of commands, hooks, gates and servers.
pub(super) fn time_limit(
    from: &mut SettingsReader<'_>,
    name: &'static str,
    default: TimeSpan,
) -> TimeSpan {
    from.in_range_or(name, default, MIN_TIMEOUT..=DAY)
}
