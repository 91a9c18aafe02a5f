//! The trajectory of a session in the Agent Trajectory Interchange Format (ATIF), which evaluation harnesses and training
//! pipelines read. The fields are those of its specification:
//! <https://github.com/harbor-framework/harbor/blob/main/rfcs/0001-trajectory-format.md>.

mod builder;
mod foreign_trace;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use builder::{TrajectoryBuilder, TrajectoryRecord};

/// The version that is written: the first one with embedded trajectories of sub-agents.
pub const ATIF_VERSION: &str = "ATIF-v1.7";

/// A trajectory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trajectory {
    /// The version of the format.
    pub schema_version: String,
    /// The session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// The identity of the trajectory among those of one document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trajectory_id: Option<String>,
    /// The agent.
    pub agent: TrajectoryAgent,
    /// What happened, in order.
    pub steps: Vec<TrajectoryStep>,
    /// Totals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub final_metrics: Option<TrajectoryTotals>,
    /// The trajectories of sub-agents.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subagent_trajectories: Vec<Trajectory>,
    /// What the format has no field for.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub extra: Map<String, Value>,
}

/// The program, model and tools of a trajectory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrajectoryAgent {
    /// The program.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_name: Option<String>,
    /// The tools, in the form of OpenAI's function definitions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_definitions: Vec<Value>,
    /// What the format has no field for.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub extra: Map<String, Value>,
}

/// A message, or a turn of the model with its tool calls and their results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrajectoryStep {
    /// Its number, counted from one.
    pub step_id: usize,
    /// When it came, in RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<String>,
    /// Who it comes from.
    pub source: StepSource,
    /// The model, if it differs from that of the trajectory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_name: Option<String>,
    /// The text, or a list of parts.
    pub message: Value,
    /// The model's reasoning, if its provider shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
    /// The tool calls.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<TrajectoryCall>,
    /// What came back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observation: Option<TrajectoryObservation>,
    /// The usage of the model call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics: Option<TrajectoryMetrics>,
    /// What the format has no field for.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub extra: Map<String, Value>,
}

/// Who a step comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepSource {
    /// The program around the model.
    System,
    /// The user.
    User,
    /// The model.
    Agent,
}

/// A tool call of a trajectory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrajectoryCall {
    /// Its identity.
    pub tool_call_id: String,
    /// The tool.
    pub function_name: String,
    /// The arguments; empty if the model has not written an object.
    pub arguments: Map<String, Value>,
    /// What the format has no field for.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub extra: Map<String, Value>,
}

/// The results of a step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrajectoryObservation {
    /// One for each call that has ended.
    pub results: Vec<TrajectoryResult>,
}

/// The result of a tool call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrajectoryResult {
    /// The call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_call_id: Option<String>,
    /// The text for the model, or a list of parts.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub content: Value,
    /// The sub-agents that worked on it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subagent_trajectory_ref: Vec<SubagentReference>,
    /// What the format has no field for.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub extra: Map<String, Value>,
}

/// The reference to the trajectory of a sub-agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SubagentReference {
    /// The trajectory in the same document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trajectory_id: Option<String>,
    /// The session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
}

/// The usage of a model call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrajectoryMetrics {
    /// Tokens of the request, those from a cache included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_tokens: Option<u64>,
    /// Tokens of the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_tokens: Option<u64>,
    /// Tokens from a cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_tokens: Option<u64>,
    /// The cost in dollars; `None` without a price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
    /// What the format has no field for.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub extra: Map<String, Value>,
}

/// The totals of a trajectory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrajectoryTotals {
    /// Tokens of all requests of the steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_prompt_tokens: Option<u64>,
    /// Tokens of all replies of the steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_completion_tokens: Option<u64>,
    /// Tokens from a cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_cached_tokens: Option<u64>,
    /// The cost in dollars, sub-agents included; `None` without a price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_cost_usd: Option<f64>,
    /// The number of steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_steps: Option<usize>,
    /// What the format has no field for.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub extra: Map<String, Value>,
}

impl Trajectory {
    /// Embeds the trajectory of a sub-agent that worked on a call.
    pub fn add_subagent(&mut self, call: &str, subagent: Self) {
        let reference = SubagentReference {
            trajectory_id: subagent.trajectory_id.clone(),
            session_id: subagent.session_id.clone(),
        };
        let observations = self.steps.iter_mut().filter_map(|step| step.observation.as_mut());
        let mut results = observations.flat_map(|observation| &mut observation.results);
        let result = results.find(|result| {
            let is_free = result.subagent_trajectory_ref.is_empty();
            is_free && result.source_call_id.as_deref() == Some(call)
        });
        if let Some(result) = result {
            result.subagent_trajectory_ref.push(reference);
        }
        self.subagent_trajectories.push(subagent);
    }
}
