//! The rules of one run: everything that the machine needs to know beforehand.

use serde::{Deserialize, Serialize};

use super::{MicroUsd, Price, TimeSpan, Tokens};

/// The rules of one run. They don't change while it lasts, and they are stored with it, so that a replay obeys the
/// same ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RunRules {
    /// Where the jitter of retries comes from.
    pub seed: u64,
    /// What the user allows the run to use.
    pub limits: RunLimits,
    /// What the session had done when the limits began; that does not count against them.
    #[serde(default, skip_serializing_if = "LimitBaseline::is_initial")]
    #[serde(rename = "from")]
    pub limit_baseline: LimitBaseline,
    /// What the model costs; without it money is not counted.
    pub price: Option<Price>,
    /// How much a call may write.
    pub output: OutputLimits,
    /// How full the context may get, and what is done about it.
    pub context: ContextLimits,
    /// How failed calls are retried.
    pub backoff: RetryBackoff,
    /// How often the same kind of thing may happen.
    pub bounds: CountLimits,
    /// When repeated turns are a loop.
    #[serde(rename = "loops")]
    pub loop_detection: LoopDetection,
    /// How long an effect may take before the machine goes on without it.
    #[serde(rename = "watch")]
    pub timeouts: EffectTimeouts,
    /// Whether a final answer has to pass checks: stop hooks, quality gates, a schema, waiting follow-ups.
    #[serde(rename = "checked")]
    pub has_checks: bool,
    /// What happens to a text whose reply ends for an unknown reason.
    #[serde(
        default = "UnknownFinishPolicy::retry",
        skip_serializing_if = "UnknownFinishPolicy::is_retry"
    )]
    pub unknown_finish: UnknownFinishPolicy,
    /// Whether a run in which a tool call was denied ends as partial instead of as a success.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fail_on_denied: bool,
}

/// What happens to a text whose reply ends for an unknown reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnknownFinishPolicy {
    /// The reply is dropped, and the call is retried. Sessions whose stored rules don't have this field work so.
    Retry,
    /// The text is kept, and the run ends as `truncated`.
    #[default]
    Keep,
}

impl UnknownFinishPolicy {
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
pub struct RunLimits {
    /// Replies whose tool calls may run.
    pub max_steps: u32,
    /// Money.
    pub budget: Option<MicroUsd>,
    /// Input and output tokens of all calls together.
    pub max_tokens: Option<Tokens>,
    /// Time for the whole run, the closing call included.
    pub timeout: Option<TimeSpan>,
    /// Time for one model call, its retries included.
    pub step_timeout: Option<TimeSpan>,
    /// Money after which the user is warned.
    pub warn_at: Option<MicroUsd>,
}

/// Where the limits of a session begin that begin again when it is resumed with another message. Both are zero until then;
/// money and tokens count from the beginning of the session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct LimitBaseline {
    /// Replies whose tool calls ran.
    pub steps: u32,
    /// Tool calls that were denied.
    #[serde(rename = "denied")]
    pub denied_calls: u32,
}

impl LimitBaseline {
    /// Returns whether the limits began with the session.
    pub fn is_initial(&self) -> bool {
        *self == Self::default()
    }
}

impl RunLimits {
    /// Returns whether a model call may take any time at all.
    pub fn allow_calls(&self) -> bool {
        self.step_timeout != Some(TimeSpan::ZERO)
    }
}

impl Default for RunLimits {
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
pub struct OutputLimits {
    /// The limit that the user set for each call; none leaves it to the provider.
    #[serde(rename = "max")]
    pub user_limit: Option<Tokens>,
    /// The most that the model can write in one call; what is reserved when nothing else is set.
    #[serde(rename = "ceiling")]
    pub model_limit: Tokens,
    /// A call that may write less than this is not worth making.
    #[serde(rename = "least")]
    pub minimum: Tokens,
    /// What is reserved for the reply of the closing call.
    pub closing: Tokens,
}

impl Default for OutputLimits {
    fn default() -> Self {
        Self {
            user_limit: None,
            model_limit: Tokens(32_000),
            minimum: Tokens(256),
            closing: Tokens(2_000),
        }
    }
}

/// How full the context may get, and what is done about it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ContextLimits {
    /// The context window of the model.
    pub window: Tokens,
    /// The percentage of the window above which the context is compacted.
    pub threshold: u64,
    /// The percentage of the window above which no call is made.
    #[serde(rename = "full")]
    pub full_at: u64,
    /// Exchanges that there have to be before a threshold compacts them.
    pub summarize_after: u32,
    /// The newest exchanges, which a compaction leaves word for word.
    pub keep_recent: u32,
    /// Compactions of one run.
    pub max_compactions: u32,
}

impl Default for ContextLimits {
    fn default() -> Self {
        Self {
            window: Tokens(128_000),
            threshold: 75,
            full_at: 95,
            summarize_after: 8,
            keep_recent: 4,
            max_compactions: 50,
        }
    }
}

/// How failed calls are retried: exponential, with full jitter.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RetryBackoff {
    /// Attempts after the first one.
    pub retries: u32,
    /// The longest wait before the first retry; doubled for each one after it.
    #[serde(rename = "base")]
    pub base_wait: TimeSpan,
    /// The longest wait of our own choice.
    #[serde(rename = "cap")]
    pub max_wait: TimeSpan,
    /// The longest wait that a provider may ask for; a longer one fails at once.
    #[serde(rename = "longest")]
    pub max_provider_wait: TimeSpan,
}

impl Default for RetryBackoff {
    fn default() -> Self {
        Self {
            retries: 3,
            base_wait: TimeSpan::from_secs(1),
            max_wait: TimeSpan::from_secs(30),
            max_provider_wait: TimeSpan::from_secs(60),
        }
    }
}

/// How often the same kind of thing may happen before the run ends of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CountLimits {
    /// Tool calls of one reply that run at the same time.
    #[serde(rename = "parallel")]
    pub parallel_calls: u32,
    /// Tool calls of one reply that run at all.
    #[serde(rename = "calls")]
    pub calls_per_reply: u32,
    /// Replies in a row that the output limit cuts off.
    pub continuations: u32,
    /// Times that an empty reply is asked for again, in a row.
    #[serde(rename = "empty")]
    pub empty_replies: u32,
    /// Turns in a row that the provider pauses.
    pub pauses: u32,
    /// Replies in a row of whose tool calls none can be run.
    #[serde(rename = "invalid")]
    pub invalid_replies: u32,
    /// Final answers in a row that a stop hook or a gate sends back.
    pub sent_back: u32,
    /// Final answers in a row that don't satisfy the schema and are asked to be mended.
    pub repairs: u32,
    /// Follow-up messages of one run.
    pub follow_ups: u32,
}

impl Default for CountLimits {
    fn default() -> Self {
        Self {
            parallel_calls: 4,
            calls_per_reply: 64,
            continuations: 3,
            empty_replies: 2,
            pauses: 8,
            invalid_replies: 4,
            sent_back: 5,
            repairs: 2,
            follow_ups: 100,
        }
    }
}

/// When repeated turns are a loop.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LoopDetection {
    /// Repetitions after which the model is told.
    #[serde(rename = "warn")]
    pub warn_at: u32,
    /// Repetitions after which the run closes.
    #[serde(rename = "end")]
    pub end_at: u32,
}

impl Default for LoopDetection {
    fn default() -> Self {
        Self { warn_at: 3, end_at: 5 }
    }
}

/// How long an effect may take before the machine goes on without it.
///
/// These are the last line: model calls, tools and hooks have time limits of their own, which are shorter.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct EffectTimeouts {
    /// One attempt at a model call.
    pub attempt: TimeSpan,
    /// Preparing a call, with its hooks.
    pub prepare: TimeSpan,
    /// Judging one tool call, with its hooks and the user's confirmation.
    #[serde(rename = "vet")]
    pub authorize: TimeSpan,
    /// Checking a final answer, with its hooks and gates.
    pub check: TimeSpan,
}

impl Default for EffectTimeouts {
    fn default() -> Self {
        Self {
            attempt: TimeSpan::from_secs(600),
            prepare: TimeSpan::from_secs(300),
            authorize: TimeSpan::from_secs(3_600),
            check: TimeSpan::from_secs(1_800),
        }
    }
}
