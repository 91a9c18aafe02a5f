//! The result document, as a type. Its JSON is a contract: fields are added, never renamed.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::machine::{RunStatus, StopReason};
use crate::model::{FileAction, MicroUsd, TimeSpan};
use crate::view::CostSource;
use crate::view::public::{SCHEMA, TokenUsage, maybe_dollars, millis, seconds};

/// What a run came to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunResult {
    /// The version of the document.
    pub schema: u32,
    /// The session; null when there is none yet.
    pub session_id: Option<Arc<str>>,
    /// How the run went, in one word.
    pub status: RunStatus,
    /// Why it ended; null when it did not even begin.
    #[serde(serialize_with = "name")]
    pub stop_reason: Option<StopReason>,
    /// The exit code.
    pub exit_code: u8,
    /// The final answer, or a sentence that says why there is none.
    pub output: Arc<str>,
    /// The final answer as JSON, when a schema was asked for and is satisfied.
    pub structured_output: Option<Value>,
    /// Replies whose tool calls ran.
    pub steps: u32,
    /// Model calls of every kind, those of sub-agents included.
    pub llm_calls: u32,
    /// How long it took.
    #[serde(rename = "duration_seconds", serialize_with = "seconds")]
    pub duration: TimeSpan,
    /// The model, as `provider/name`.
    pub model: Option<Arc<str>>,
    /// The tool calls, in call order.
    pub tools_used: Vec<ToolUsed>,
    /// The files that are not what they were, each once.
    pub files_modified: Vec<FileModified>,
    /// What all calls used.
    pub usage: TokenUsage,
    /// What all calls cost; null when the model has no price.
    #[serde(serialize_with = "maybe_dollars")]
    pub cost: Option<MicroUsd>,
    /// The same money, by what it was spent on.
    pub costs: RunCosts,
    /// The tool calls that were denied.
    pub denied: Vec<DeniedCall>,
    /// What went wrong, when something did.
    pub error: Option<Arc<str>>,
    /// The command that resumes the session after an early end; told to people alone.
    #[serde(skip)]
    pub resume_command: Option<Arc<str>>,
    /// What the self-evaluation says, when there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evaluation: Option<Value>,
}

/// One tool call.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ToolUsed {
    /// The tool.
    pub name: Arc<str>,
    /// Whether it did what it was asked for.
    pub success: bool,
    /// The file or folder that the call names, if it names one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<Arc<str>>,
    /// How long it ran.
    #[serde(rename = "duration_ms", serialize_with = "millis")]
    pub duration: TimeSpan,
    /// Why it failed, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Arc<str>>,
    /// What it was called with and why it failed, each in one line; for reports.
    #[serde(skip)]
    pub brief: ToolCallBrief,
}

/// A tool call in few words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolCallBrief {
    /// What it was called with: a path, a command.
    pub arguments: Arc<str>,
    /// Why it failed; none when it did not.
    pub error: Option<Arc<str>>,
}

/// One file that is not what it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileModified {
    /// The file, relative to the workspace.
    pub path: Arc<str>,
    /// What was done to it, all in all.
    pub action: FileAction,
    /// Lines that were added, all in all.
    #[serde(skip)]
    pub added: u64,
    /// Lines that were removed, all in all.
    #[serde(skip)]
    pub removed: u64,
}

/// What the calls cost, by what they were for.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RunCosts {
    /// All of it; null when the model has no price.
    #[serde(rename = "total_cost_usd", serialize_with = "maybe_dollars")]
    pub total: Option<MicroUsd>,
    /// What each kind of call cost.
    #[serde(serialize_with = "by_source")]
    pub by_source: BTreeMap<CostSource, MicroUsd>,
}

/// A tool call that was denied.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeniedCall {
    /// The tool.
    pub tool: Arc<str>,
    /// What it was called with.
    pub arguments: Arc<Value>,
    /// Why it was denied, and by which rule.
    pub reason: Arc<str>,
}

/// The exit code for configuration, usage, an unknown session or agent.
const CONFIGURATION_EXIT_CODE: u8 = 3;

impl RunResult {
    /// Returns the document of a run that did not begin: its configuration is wrong, say.
    pub fn not_started(error: impl Into<Arc<str>>) -> Self {
        let error = error.into();
        Self {
            schema: SCHEMA,
            session_id: None,
            status: RunStatus::Failed,
            stop_reason: None,
            exit_code: CONFIGURATION_EXIT_CODE,
            output: Arc::clone(&error),
            structured_output: None,
            steps: 0,
            llm_calls: 0,
            duration: TimeSpan::ZERO,
            model: None,
            tools_used: Vec::new(),
            files_modified: Vec::new(),
            usage: TokenUsage::default(),
            cost: None,
            costs: RunCosts::default(),
            denied: Vec::new(),
            error: Some(error),
            resume_command: None,
            evaluation: None,
        }
    }
}

#[allow(clippy::ref_option, clippy::trivially_copy_pass_by_ref)] // asked for by serde
fn name<S: Serializer>(reason: &Option<StopReason>, to: S) -> Result<S::Ok, S::Error> {
    match reason {
        Some(reason) => to.serialize_str(reason.name()),
        None => to.serialize_none(),
    }
}

fn by_source<S: Serializer>(
    costs: &BTreeMap<CostSource, MicroUsd>,
    to: S,
) -> Result<S::Ok, S::Error> {
    to.collect_map(costs.iter().map(|(source, cost)| (source, cost.as_dollars())))
}
