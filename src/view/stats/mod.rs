//! Statistics over stored sessions: as tables for a terminal, as JSON, and as a self-contained page.

mod page;
mod sections;
mod text;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Statistics over stored sessions. The serialized form is the output of `architect stats --json`.
///
/// Costs are in dollars, times in milliseconds, rates between 0 and 1. A rate is `None` if nothing was counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Statistics {
    /// The earliest creation of the counted sessions, in RFC 3339 or as a date; `None` for all sessions.
    pub since: Option<String>,
    /// Number of sessions, without those of sub-agents and evaluations.
    pub sessions: u64,
    /// Number of sessions of sub-agents.
    pub subagents: u64,
    /// Number of evaluations.
    pub evaluations: u64,
    /// Number of model calls of all these sessions that were answered or charged, including interrupted attempts.
    pub llm_calls: u64,
    /// Tokens of all requests.
    pub input_tokens: u64,
    /// Tokens of requests that were read from a provider's cache.
    pub cached_input_tokens: u64,
    /// Tokens of all replies.
    pub output_tokens: u64,
    /// The cost of the model calls; `None` if no call had a price.
    pub cost: Option<f64>,
    /// Number of replies with tool calls.
    pub steps: u64,
    /// The cost per step.
    pub cost_per_step: Option<f64>,
    /// The share of input tokens that were read from a provider's cache.
    pub cache_hit_rate: Option<f64>,
    /// Number of model calls after a failed attempt.
    pub retries: u64,
    /// Number of failed model calls.
    pub failed_calls: u64,
    /// Number of tool calls.
    pub tool_calls: u64,
    /// Number of tool calls denied by a rule, a hook or the user.
    pub denials: u64,
    /// The share of tool calls that ran and failed.
    pub tool_failure_rate: Option<f64>,
    /// The outcomes of the sessions, the most frequent first.
    pub outcomes: Vec<OutcomeCount>,
    /// The time in each state, the longest first.
    pub states: Vec<StateTotal>,
    /// The usage of each model, the most expensive first.
    pub models: Vec<ModelTotal>,
    /// The usage of each step, by its number in its session.
    pub step_costs: Vec<StepTotal>,
    /// The calls of each tool, the most frequent first.
    pub tools: Vec<ToolTotal>,
    /// Failed model calls by kind.
    pub failures: Vec<FailureCount>,
    /// Percentiles by nearest rank.
    pub percentiles: Vec<Percentiles>,
}

/// The number of sessions with one outcome.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OutcomeCount {
    /// The status; `unfinished` includes sessions that are running.
    pub status: String,
    /// The stop reason, if the newest run has ended.
    pub stop_reason: Option<String>,
    /// Number of sessions.
    pub sessions: u64,
}

/// The time in one state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StateTotal {
    /// The state.
    pub state: String,
    /// Number of times that the state was entered.
    pub visits: u64,
    /// The time in the state.
    pub time_ms: f64,
}

/// The usage of one model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModelTotal {
    /// The model, as named by the user.
    pub model: String,
    /// Number of calls that were answered or charged.
    pub llm_calls: u64,
    /// Tokens of the requests.
    pub input_tokens: u64,
    /// Tokens of requests that were read from the provider's cache.
    pub cached_input_tokens: u64,
    /// Tokens of the replies.
    pub output_tokens: u64,
    /// The cost; `None` if the model has no price.
    pub cost: Option<f64>,
    /// Number of replies with tool calls.
    pub steps: u64,
    /// Number of calls after a failed attempt.
    pub retries: u64,
    /// Number of failed calls.
    pub failures: u64,
}

/// The usage of one step, over all sessions that have this step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StepTotal {
    /// The step, counted from one in its session.
    pub step: u64,
    /// Number of calls with a reply that began the step.
    pub llm_calls: u64,
    /// Tokens of the requests.
    pub input_tokens: u64,
    /// Tokens of requests that were read from a provider's cache.
    pub cached_input_tokens: u64,
    /// Tokens of the replies.
    pub output_tokens: u64,
    /// The cost; `None` if no call had a price.
    pub cost: Option<f64>,
}

/// The calls of one tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolTotal {
    /// The name of the tool.
    pub name: String,
    /// Number of calls that have ended.
    pub calls: u64,
    /// Number of calls that did what was requested.
    pub ok: u64,
    /// Number of calls that ran and failed, or reached the tool's time limit.
    pub failed: u64,
    /// Number of calls denied by a rule, a hook or the user.
    pub denied: u64,
    /// Number of invalid calls: of an unknown tool, or with arguments that don't match its schema.
    pub invalid: u64,
    /// Number of calls that were interrupted, or did not run because the run ended.
    pub interrupted: u64,
    /// Percentiles of the calls' time.
    #[serde(flatten)]
    pub time_ms: Ranks,
}

/// The number of model calls with one kind of failure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FailureCount {
    /// The kind of the fault.
    pub kind: String,
    /// Number of calls.
    pub count: u64,
}

/// The percentiles of a measure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Percentiles {
    /// The name of the measure. Its ending is the unit.
    pub measure: String,
    /// Number of values.
    pub count: u64,
    /// The percentiles.
    #[serde(flatten)]
    pub ranks: Ranks,
}

/// Percentiles by nearest rank; `None` without values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ranks {
    /// Half of the values are not greater.
    pub p50: Option<f64>,
    /// 90 of 100 values are not greater.
    pub p90: Option<f64>,
    /// 99 of 100 values are not greater.
    pub p99: Option<f64>,
    /// The greatest value.
    pub max: Option<f64>,
}

/// Returns a part as a rate between 0 and 1; `None` if `whole` is zero.
#[allow(clippy::cast_precision_loss)] // counts far below 2^53
fn rate(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

impl Statistics {
    /// Computes the totals from the tables.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // counts far below 2^53
    pub fn with_totals(mut self) -> Self {
        let models = &self.models;
        let sum = |part: fn(&ModelTotal) -> u64| models.iter().map(part).sum::<u64>();
        self.llm_calls = sum(|model| model.llm_calls);
        self.input_tokens = sum(|model| model.input_tokens);
        self.cached_input_tokens = sum(|model| model.cached_input_tokens);
        self.output_tokens = sum(|model| model.output_tokens);
        self.steps = sum(|model| model.steps);
        self.retries = sum(|model| model.retries);
        self.failed_calls = sum(|model| model.failures);
        self.cost = models.iter().filter_map(|model| model.cost).reduce(|sum, cost| sum + cost);
        self.cost_per_step = match self.steps {
            0 => None,
            steps => self.cost.map(|cost| cost / steps as f64),
        };
        self.cache_hit_rate = rate(self.cached_input_tokens, self.input_tokens);
        let tools = &self.tools;
        let sum = |part: fn(&ToolTotal) -> u64| tools.iter().map(part).sum::<u64>();
        self.tool_calls = sum(|tool| tool.calls);
        self.denials = sum(|tool| tool.denied);
        self.tool_failure_rate = rate(sum(|tool| tool.failed), self.tool_calls);
        self
    }

    /// Returns the statistics as tables for a terminal.
    pub fn text(&self) -> String {
        text::render(self)
    }

    /// Returns the statistics as a page without scripts and external content.
    pub fn html(&self) -> String {
        page::render(self)
    }
}
