//! The rules of one run: everything that the machine needs to know beforehand.

use serde::{Deserialize, Serialize};

use super::{Micros, Price, Span, Tokens};

/// The rules of one run. They don't change while it lasts, and they are stored with it, so that a replay obeys the
/// same ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Rules {
    /// Where the jitter of retries comes from.
    pub seed: u64,
    /// What the user allows the run to use.
    pub limits: Limits,
    /// What the session had done when the limits began; that does not count against them.
    #[serde(default, skip_serializing_if = "LimitBase::is_start")]
    pub from: LimitBase,
    /// What the model costs; without it money is not counted.
    pub price: Option<Price>,
    /// How much a call may write.
    pub output: OutputRules,
    /// How full the context may get, and what is done about it.
    pub context: ContextRules,
    /// How failed calls are retried.
    pub backoff: Backoff,
    /// How often the same kind of thing may happen.
    pub bounds: Bounds,
    /// When repeated turns are a loop.
    pub loops: LoopRules,
    /// How long an effect may take before the machine goes on without it.
    pub watch: Watch,
    /// Whether a final answer has to pass checks: stop hooks, quality gates, a schema, waiting follow-ups.
    pub checked: bool,
    /// What happens to a text whose reply ends for an unknown reason.
    #[serde(default = "UnknownFinish::retry", skip_serializing_if = "UnknownFinish::is_retry")]
    pub unknown_finish: UnknownFinish,
    /// Whether a run in which a tool call was denied ends as partial instead of as a success.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fail_on_denied: bool,
}

/// What happens to a text whose reply ends for an unknown reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnknownFinish {
    /// The reply is dropped, and the call is retried. Sessions whose stored rules don't have this field work so.
    Retry,
    /// The text is kept, and the run ends as `truncated`.
    #[default]
    Keep,
}

impl UnknownFinish {
    fn retry() -> Self {
        Self::Retry
    }

    #[allow(clippy::trivially_copy_pass_by_ref)] // asked for by serde
    fn is_retry(&self) -> bool {
        *self == Self::Retry
    }
}

/// What the user allows a run to use. None means no limit; zero is a limit.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Limits {
    /// Replies whose tool calls may run.
    pub max_steps: u32,
    /// Money.
    pub budget: Option<Micros>,
    /// Input and output tokens of all calls together.
    pub max_tokens: Option<Tokens>,
    /// Time for the whole run, the closing call included.
    pub timeout: Option<Span>,
    /// Time for one model call, its retries included.
    pub step_timeout: Option<Span>,
    /// Money after which the user is warned.
    pub warn_at: Option<Micros>,
}

/// Where the limits of a session begin that begin again when it is resumed with another message. Both are zero until then;
/// money and tokens count from the beginning of the session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct LimitBase {
    /// Replies whose tool calls ran.
    pub steps: u32,
    /// Tool calls that were denied.
    pub denied: u32,
}

impl LimitBase {
    /// Returns whether the limits began with the session.
    pub fn is_start(&self) -> bool {
        *self == Self::default()
    }
}

impl Limits {
    /// Returns whether a model call may take any time at all.
    pub fn allow_calls(&self) -> bool {
        self.step_timeout != Some(Span::ZERO)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_steps: 50,
            budget: None,
            max_tokens: None,
            timeout: None,
            step_timeout: None,
            warn_at: None,
        }
    }
}

/// How much a call may write.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct OutputRules {
    /// The limit that the user set for each call; none leaves it to the provider.
    pub max: Option<Tokens>,
    /// The most that the model can write in one call; what is reserved when nothing else is set.
    pub ceiling: Tokens,
    /// A call that may write less than this is not worth making.
    pub least: Tokens,
    /// What is reserved for the reply of the closing call.
    pub closing: Tokens,
}

impl Default for OutputRules {
    fn default() -> Self {
        Self { max: None, ceiling: Tokens(32_000), least: Tokens(256), closing: Tokens(2_000) }
    }
}

/// How full the context may get, and what is done about it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ContextRules {
    /// The context window of the model.
    pub window: Tokens,
    /// The percentage of the window above which the context is compacted.
    pub threshold: u64,
    /// The percentage of the window above which no call is made.
    pub full: u64,
    /// Exchanges that there have to be before a threshold compacts them.
    pub summarize_after: u32,
    /// The newest exchanges, which a compaction leaves word for word.
    pub keep_recent: u32,
    /// Compactions of one run.
    pub max_compactions: u32,
}

impl Default for ContextRules {
    fn default() -> Self {
        Self {
            window: Tokens(128_000),
            threshold: 75,
            full: 95,
            summarize_after: 8,
            keep_recent: 4,
            max_compactions: 50,
        }
    }
}

/// How failed calls are retried: exponential, with full jitter.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Backoff {
    /// Attempts after the first one.
    pub retries: u32,
    /// The longest wait before the first retry; doubled for each one after it.
    pub base: Span,
    /// The longest wait of our own choice.
    pub cap: Span,
    /// The longest wait that a provider may ask for; a longer one fails at once.
    pub longest: Span,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { retries: 3, base: Span::secs(1), cap: Span::secs(30), longest: Span::secs(60) }
    }
}

/// How often the same kind of thing may happen before the run ends of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Bounds {
    /// Tool calls of one reply that run at the same time.
    pub parallel: u32,
    /// Tool calls of one reply that run at all.
    pub calls: u32,
    /// Replies in a row that the output limit cuts off.
    pub continuations: u32,
    /// Times that an empty reply is asked for again, in a row.
    pub empty: u32,
    /// Turns in a row that the provider pauses.
    pub pauses: u32,
    /// Replies in a row of whose tool calls none can be run.
    pub invalid: u32,
    /// Final answers in a row that a stop hook or a gate sends back.
    pub sent_back: u32,
    /// Final answers in a row that don't satisfy the schema and are asked to be mended.
    pub repairs: u32,
    /// Follow-up messages of one run.
    pub follow_ups: u32,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            parallel: 4,
            calls: 64,
            continuations: 3,
            empty: 2,
            pauses: 8,
            invalid: 4,
            sent_back: 5,
            repairs: 2,
            follow_ups: 100,
        }
    }
}

/// When repeated turns are a loop.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LoopRules {
    /// Repetitions after which the model is told.
    pub warn: u32,
    /// Repetitions after which the run closes.
    pub end: u32,
}

impl Default for LoopRules {
    fn default() -> Self {
        Self { warn: 3, end: 5 }
    }
}

/// How long an effect may take before the machine goes on without it.
///
/// These are the last line: model calls, tools and hooks have time limits of their own, which are shorter.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Watch {
    /// One attempt at a model call.
    pub attempt: Span,
    /// Preparing a call, with its hooks.
    pub prepare: Span,
    /// Judging one tool call, with its hooks and the user's confirmation.
    pub vet: Span,
    /// Checking a final answer, with its hooks and gates.
    pub check: Span,
}

impl Default for Watch {
    fn default() -> Self {
        Self {
            attempt: Span::secs(600),
            prepare: Span::secs(300),
            vet: Span::secs(3_600),
            check: Span::secs(1_800),
        }
    }
}
