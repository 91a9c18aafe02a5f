//! The trajectory of a session in the Agent Trajectory Interchange Format (ATIF), for evaluation harnesses and training
//! pipelines. The fields are those of the specification:
//! <https://github.com/harbor-framework/harbor/blob/main/rfcs/0001-trajectory-format.md>.

mod builder;
mod foreign_trace;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use builder::{TrajectoryBuilder, TrajectoryRecord};

/// The written version of the format: the first one with embedded trajectories of sub-agents.
pub const ATIF_VERSION: &str = "ATIF-v1.7";

/// A trajectory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trajectory {
    /// The version of the format.
    pub schema_version: String,
    /// The id of the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// The id of the trajectory, unique within a document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trajectory_id: Option<String>,
    /// The agent.
    pub agent: TrajectoryAgent,
    /// The steps, in order.
    pub steps: Vec<TrajectoryStep>,
    /// The totals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub final_metrics: Option<TrajectoryTotals>,
    /// The trajectories of sub-agents.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subagent_trajectories: Vec<Trajectory>,
    /// Data without a field in the format.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub extra: Map<String, Value>,
}

/// The program, model and tools of a trajectory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrajectoryAgent {
    /// The name of the program.
    pub name: String,
    /// The version of the program.
    pub version: String,
    /// The name of the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_name: Option<String>,
    /// The tools, in the form of OpenAI's function definitions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_definitions: Vec<Value>,
    /// Data without a field in the format.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub extra: Map<String, Value>,
}

/// A message, or a turn of the model with its tool calls and their results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrajectoryStep {
    /// The number, counted from one.
    pub step_id: usize,
    /// The time of the step, in RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<String>,
    /// The source of the message.
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
    /// The results of the tool calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observation: Option<TrajectoryObservation>,
    /// The usage of the model call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics: Option<TrajectoryMetrics>,
    /// Data without a field in the format.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub extra: Map<String, Value>,
}

/// The source of a step.
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
    /// The id of the call.
    pub tool_call_id: String,
    /// The name of the tool.
    pub function_name: String,
    /// The arguments; empty if the model's arguments are not a JSON object.
    pub arguments: Map<String, Value>,
    /// Data without a field in the format.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub extra: Map<String, Value>,
}

/// The results of a step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrajectoryObservation {
    /// One result for each call that has ended.
    pub results: Vec<TrajectoryResult>,
}

/// The result of a tool call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrajectoryResult {
    /// The id of the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_call_id: Option<String>,
    /// The text for the model, or a list of parts.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub content: Value,
    /// The sub-agents that worked on the call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subagent_trajectory_ref: Vec<SubagentReference>,
    /// Data without a field in the format.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub extra: Map<String, Value>,
}

/// A reference to the trajectory of a sub-agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SubagentReference {
    /// The id of the trajectory in the same document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trajectory_id: Option<String>,
    /// The id of the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
}

/// The usage of a model call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrajectoryMetrics {
    /// Tokens of the request, including tokens from a cache.
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
    /// Data without a field in the format.
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
    /// The cost in dollars, including sub-agents; `None` without a price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_cost_usd: Option<f64>,
    /// The number of steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_steps: Option<usize>,
    /// Data without a field in the format.
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
