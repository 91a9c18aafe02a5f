//! The rules of a run: everything that the machine needs to know in advance.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{ImageBudget, MicroUsd, Price, RunTime, TimeSpan, Tokens};

/// The rules of a run. They don't change during the run, and they are stored with it for replays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRules {
    /// The seed for the jitter of retries.
    pub seed: u64,
    /// The limits that the user sets.
    pub limits: RunLimits,
    /// The session's use when the limits began. It doesn't count against them.
    #[serde(default, rename = "from", skip_serializing_if = "LimitBaseline::is_initial")]
    pub limit_baseline: LimitBaseline,
    /// The price of the model. Without it, no costs are counted.
    pub price: Option<Price>,
    /// The price of the model that writes summaries, if it is another one. Costs of summaries are counted only if the
    /// main model has a price, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary_price: Option<Price>,
    /// The model that writes summaries, if it is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary_model: Option<Arc<str>>,
    /// The model, followed by its fallbacks in order. Empty if there are no fallbacks.
    #[serde(default, skip_serializing_if = "<[ModelRules]>::is_empty")]
    pub models: Arc<[ModelRules]>,
    /// The limits of a call's output.
    pub output: OutputLimits,
    /// The context window, and the limits at which it is compacted.
    pub context: ContextLimits,
    /// The retries of failed calls.
    pub backoff: RetryBackoff,
    /// The maximum number of repetitions before the run ends.
    pub bounds: CountLimits,
    /// The number of repeated turns that count as a loop.
    #[serde(rename = "loops")]
    pub loop_detection: LoopDetection,
    /// The times after which the machine continues without an effect's completion.
    #[serde(rename = "watch")]
    pub timeouts: EffectTimeouts,
    /// Whether a final answer must pass checks: stop hooks, quality gates, a schema, queued follow-ups.
    #[serde(rename = "checked")]
    pub has_checks: bool,
    /// The treatment of a reply that ends for an unknown reason.
    #[serde(
        default = "UnknownFinishPolicy::retry",
        skip_serializing_if = "UnknownFinishPolicy::is_retry"
    )]
    pub unknown_finish: UnknownFinishPolicy,
    /// Whether a run with a denied tool call ends as partial instead of as a success.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fail_on_denied: bool,
}

/// The price and the limits of one of several models.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelRules {
    /// The name, as `provider/name`.
    pub name: Arc<str>,
    /// The price. Without it, no costs are counted.
    pub price: Option<Price>,
    /// The context window.
    pub window: Tokens,
    /// The maximum output of the model in one call.
    #[serde(rename = "output")]
    pub model_limit: Tokens,
}

impl RunRules {
    /// Returns the number of fallback models.
    pub fn fallbacks(&self) -> u32 {
        u32::try_from(self.models.len().saturating_sub(1)).unwrap_or(u32::MAX)
    }

    /// Returns the index of the model with this name among the models of the run.
    pub fn model_index(&self, name: &str) -> Option<u32> {
        let index = self.models.iter().position(|model| *model.name == *name)?;
        u32::try_from(index).ok()
    }

    /// Returns the price and the limits of a model, if the run has several.
    pub fn model(&self, index: u32) -> Option<&ModelRules> {
        self.models.get(usize::try_from(index).ok()?)
    }

    /// Returns the same rules with the price and the limits of one of the models.
    #[must_use]
    pub fn for_model(&self, index: u32) -> Self {
        let mut rules = self.clone();
        if let Some(model) = self.model(index) {
            rules.price = model.price;
            rules.context.window = model.window;
            rules.output.model_limit = model.model_limit;
        }
        rules
    }
}

/// Hashes nothing: all states of a run have the same rules.
impl Hash for RunRules {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

/// The treatment of a reply that ends for an unknown reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnknownFinishPolicy {
    /// The reply is dropped, and the call is retried. The default for stored sessions without this field.
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

/// The limits of a run. `None` means no limit; zero is a limit.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RunLimits {
    /// The number of replies whose tool calls may run.
    pub max_steps: u32,
    /// The total cost.
    pub budget: Option<MicroUsd>,
    /// Input and output tokens of all calls together.
    pub max_tokens: Option<Tokens>,
    /// The time for the whole run, the closing call included.
    pub timeout: Option<TimeSpan>,
    /// The time for one model call, its retries included.
    pub step_timeout: Option<TimeSpan>,
    /// The cost at which the user is warned.
    pub warn_at: Option<MicroUsd>,
}

/// The use of a session when it was resumed with another message, which starts new limits. All fields are zero before
/// that. Cost and tokens are not part of it: they count from the beginning of the session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct LimitBaseline {
    /// Replies with tool calls.
    pub steps: u32,
    /// Tool calls that were denied.
    #[serde(rename = "denied")]
    pub denied_calls: u32,
    /// The total time of its runs.
    #[serde(skip_serializing_if = "RunTime::is_start")]
    pub time: RunTime,
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

/// The limits of a call's output.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct OutputLimits {
    /// The user's limit for each call, or `None` to leave it to the provider.
    #[serde(rename = "max")]
    pub user_limit: Option<Tokens>,
    /// The maximum output of the model in one call. It is reserved if no other limit is set.
    #[serde(rename = "ceiling")]
    pub model_limit: Tokens,
    /// The lowest useful output limit: a call with a lower one isn't made.
    #[serde(rename = "least")]
    pub minimum: Tokens,
    /// The output that is reserved for the closing call.
    pub closing: Tokens,
    /// Whether replies arrive whole. The provider then writes the whole reply, and charges for it, even if the
    /// connection is lost. A streamed reply ends with its connection.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_whole: bool,
}

impl Default for OutputLimits {
    fn default() -> Self {
        Self {
            user_limit: None,
            model_limit: Tokens(32_000),
            minimum: Tokens(256),
            closing: Tokens(2_000),
            is_whole: false,
        }
    }
}

/// The context window, and the limits at which it is compacted.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ContextLimits {
    /// The context window of the model.
    pub window: Tokens,
    /// The percentage of the window above which the context is compacted.
    pub threshold: u64,
    /// The percentage of the window above which no call is made.
    #[serde(rename = "full")]
    pub full_at: u64,
    /// The number of exchanges that are needed for a compaction at the threshold.
    pub summarize_after: u32,
    /// The number of newest exchanges that a compaction keeps unchanged.
    pub keep_recent: u32,
    /// The maximum number of compactions in one run.
    pub max_compactions: u32,
    /// The images that the provider accepts in one request.
    #[serde(default, skip_serializing_if = "ImageBudget::is_unlimited")]
    pub images: ImageBudget,
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
            images: ImageBudget::UNLIMITED,
        }
    }
}

/// The retries of failed calls: exponential backoff with full jitter.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RetryBackoff {
    /// The maximum number of attempts after the first one.
    pub retries: u32,
    /// The time after the first failure of a call during which further attempts begin. It replaces the number of
    /// attempts.
    #[serde(default, rename = "for", skip_serializing_if = "Option::is_none")]
    pub retry_for: Option<TimeSpan>,
    /// The longest wait before the first retry. It doubles for each further retry.
    #[serde(rename = "base")]
    pub base_wait: TimeSpan,
    /// The longest wait that isn't requested by the provider.
    #[serde(rename = "cap")]
    pub max_wait: TimeSpan,
    /// The longest wait that a provider may request. If it requests more, the call fails.
    #[serde(rename = "longest")]
    pub max_provider_wait: TimeSpan,
}

impl Default for RetryBackoff {
    fn default() -> Self {
        Self {
            retries: 3,
            retry_for: None,
            base_wait: TimeSpan::from_secs(1),
            max_wait: TimeSpan::from_secs(30),
            max_provider_wait: TimeSpan::from_secs(60),
        }
    }
}

/// The maximum number of repetitions of the same thing before the run ends.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CountLimits {
    /// Tool calls of one reply that run concurrently.
    #[serde(rename = "parallel")]
    pub parallel_calls: u32,
    /// Tool calls of one reply that run at all.
    #[serde(rename = "calls")]
    pub calls_per_reply: u32,
    /// Consecutive replies that the output limit cuts off.
    pub continuations: u32,
    /// Consecutive empty replies.
    #[serde(rename = "empty")]
    pub empty_replies: u32,
    /// Consecutive turns that the provider pauses.
    pub pauses: u32,
    /// Consecutive replies whose tool calls are all invalid.
    #[serde(rename = "invalid")]
    pub invalid_replies: u32,
    /// Consecutive final answers that a stop hook or a gate sends back.
    pub sent_back: u32,
    /// Consecutive final answers that don't satisfy the schema.
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

/// The number of repeated turns that count as a loop.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LoopDetection {
    /// The number of repetitions after which the model is warned.
    #[serde(rename = "warn")]
    pub warn_at: u32,
    /// The number of repetitions after which the run closes.
    #[serde(rename = "end")]
    pub end_at: u32,
}

impl Default for LoopDetection {
    fn default() -> Self {
        Self { warn_at: 3, end_at: 5 }
    }
}

/// The times after which the machine continues without an effect's completion.
///
/// These are the last resort: model calls, tools and hooks have shorter limits of their own.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct EffectTimeouts {
    /// One attempt at a model call.
    pub attempt: TimeSpan,
    /// The preparation of a call, with its hooks.
    pub prepare: TimeSpan,
    /// The authorization of one tool call, with its hooks and the user's confirmation.
    #[serde(rename = "vet")]
    pub authorize: TimeSpan,
    /// The check of a final answer, with its hooks and gates.
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
