//! Statistics over stored sessions: as tables for a terminal, as JSON, and as a self-contained page.

mod page;
mod sections;
mod text;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Statistics over stored sessions. The serialized form is what `architect stats --json` prints.
///
/// Costs are in dollars, times in milliseconds, rates between 0 and 1. A rate is `None` where nothing was counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Statistics {
    /// Since when the sessions were created, in RFC 3339 or as a date; `None` for all of them.
    pub since: Option<String>,
    /// Sessions, without those of sub-agents and evaluations.
    pub sessions: u64,
    /// Sessions of sub-agents.
    pub subagents: u64,
    /// Evaluations.
    pub evaluations: u64,
    /// Model calls that were answered or charged, of all these sessions; an attempt that was cut off is one of them.
    pub llm_calls: u64,
    /// Tokens of the requests.
    pub input_tokens: u64,
    /// The part of them that was read from a provider's cache.
    pub cached_input_tokens: u64,
    /// Tokens of the replies.
    pub output_tokens: u64,
    /// Their cost; `None` if no call had a price.
    pub cost: Option<f64>,
    /// Replies with tool calls.
    pub steps: u64,
    /// The cost for each of them.
    pub cost_per_step: Option<f64>,
    /// The part of the input tokens that was read from a provider's cache.
    pub cache_hit_rate: Option<f64>,
    /// Model calls after a failed attempt.
    pub retries: u64,
    /// Model calls that failed.
    pub failed_calls: u64,
    /// Tool calls.
    pub tool_calls: u64,
    /// Tool calls that a rule, a hook or the user denied.
    pub denials: u64,
    /// The part of the tool calls that ran and failed.
    pub tool_failure_rate: Option<f64>,
    /// How the sessions ended, the most frequent way first.
    pub outcomes: Vec<OutcomeCount>,
    /// The time in each state, the longest first.
    pub states: Vec<StateTotal>,
    /// Each model, the most expensive first.
    pub models: Vec<ModelTotal>,
    /// Each step, by its number in its session.
    pub step_costs: Vec<StepTotal>,
    /// Each tool, the most frequent first.
    pub tools: Vec<ToolTotal>,
    /// Failed model calls by kind.
    pub failures: Vec<FailureCount>,
    /// Percentiles by nearest rank.
    pub percentiles: Vec<Percentiles>,
}

/// How many sessions ended in one way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OutcomeCount {
    /// The status; `unfinished` includes sessions that a process runs.
    pub status: String,
    /// The stop reason, if the newest run has ended.
    pub stop_reason: Option<String>,
    /// Sessions.
    pub sessions: u64,
}

/// The time in one state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StateTotal {
    /// The state.
    pub state: String,
    /// How often it was entered.
    pub visits: u64,
    /// The time in it.
    pub time_ms: f64,
}

/// The usage of one model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModelTotal {
    /// The model, as the user names it.
    pub model: String,
    /// Calls that were answered or charged.
    pub llm_calls: u64,
    /// Tokens of the requests.
    pub input_tokens: u64,
    /// The part of them that was read from the provider's cache.
    pub cached_input_tokens: u64,
    /// Tokens of the replies.
    pub output_tokens: u64,
    /// The cost; `None` if the model has no price.
    pub cost: Option<f64>,
    /// Replies with tool calls.
    pub steps: u64,
    /// Calls after a failed attempt.
    pub retries: u64,
    /// Calls that failed.
    pub failures: u64,
}

/// The usage of one step, over all sessions that have it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StepTotal {
    /// The step, counted from one in its session.
    pub step: u64,
    /// Calls with a reply that began it.
    pub llm_calls: u64,
    /// Tokens of the requests.
    pub input_tokens: u64,
    /// The part of them that was read from a provider's cache.
    pub cached_input_tokens: u64,
    /// Tokens of the replies.
    pub output_tokens: u64,
    /// The cost; `None` if no call had a price.
    pub cost: Option<f64>,
}

/// The calls of one tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolTotal {
    /// The tool.
    pub name: String,
    /// Calls that have ended.
    pub calls: u64,
    /// Calls that did what was requested.
    pub ok: u64,
    /// Calls that ran and failed, or reached the tool's time limit.
    pub failed: u64,
    /// Calls that a rule, a hook or the user denied.
    pub denied: u64,
    /// Calls that can't run: an unknown tool, or arguments that don't match its schema.
    pub invalid: u64,
    /// Calls that were cut off, or did not run because the run ended.
    pub interrupted: u64,
    /// Percentiles of its time.
    #[serde(flatten)]
    pub time_ms: Ranks,
}

/// How many model calls failed in one way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FailureCount {
    /// The kind of the fault.
    pub kind: String,
    /// Calls.
    pub count: u64,
}

/// The percentiles of a measure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Percentiles {
    /// The measure; its ending is its unit.
    pub measure: String,
    /// Values.
    pub count: u64,
    /// The percentiles.
    #[serde(flatten)]
    pub ranks: Ranks,
}

/// Percentiles by nearest rank; `None` if there is no value.
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

/// Returns a part as a rate between 0 and 1; `None` if the whole is nothing.
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

    /// Returns the statistics as a page that loads and runs nothing.
    pub fn html(&self) -> String {
        page::render(self)
    }
}
