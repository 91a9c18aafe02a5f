//! The result document. Its JSON is a stable interface: fields are added, never renamed.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Serialize, Serializer};
use serde_json::Value;

use super::changed_files::ChangedFiles;
use crate::machine::{RunStatus, StopReason};
use crate::model::{FileAction, FileChange, MicroUsd, TimeSpan};
use crate::view::CostSource;
use crate::view::public::{SCHEMA, TokenUsage, maybe_dollars, millis, seconds};

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunResult {
    /// The version of the document.
    pub schema: u32,
    /// The session; null if it was not created yet.
    pub session_id: Option<Arc<str>>,
    /// The status of the run.
    pub status: RunStatus,
    /// Why it ended; null if it did not start.
    #[serde(serialize_with = "name")]
    pub stop_reason: Option<StopReason>,
    /// The exit code.
    pub exit_code: u8,
    /// The final answer, or a sentence that explains why it is missing.
    pub output: Arc<str>,
    /// The final answer as JSON, if it satisfies the requested schema.
    pub structured_output: Option<Value>,
    /// Replies whose tool calls ran.
    pub steps: u32,
    /// Model calls of every kind, including those of sub-agents.
    pub llm_calls: u32,
    /// How long it took.
    #[serde(rename = "duration_seconds", serialize_with = "seconds")]
    pub duration: TimeSpan,
    /// The model, as `provider/name`.
    pub model: Option<Arc<str>>,
    /// The tool calls, in call order.
    pub tools_used: Vec<ToolUsed>,
    /// The changed files, each once.
    pub files_modified: Vec<FileModified>,
    /// The usage of all calls.
    pub usage: TokenUsage,
    /// The cost of all calls; null if the model has no price.
    #[serde(serialize_with = "maybe_dollars")]
    pub cost: Option<MicroUsd>,
    /// The same cost, by purpose.
    pub costs: RunCosts,
    /// The tool calls that were denied.
    pub denied: Vec<DeniedCall>,
    /// What went wrong, if anything.
    pub error: Option<Arc<str>>,
    /// The command that resumes the session after an early end; only for people.
    #[serde(skip)]
    pub resume_command: Option<Arc<str>>,
    /// The result of the self-evaluation, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evaluation: Option<Value>,
}

/// One tool call.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ToolUsed {
    /// The tool.
    pub name: Arc<str>,
    /// Whether it succeeded.
    pub success: bool,
    /// The file or folder that the call names, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<Arc<str>>,
    /// How long it ran.
    #[serde(rename = "duration_ms", serialize_with = "millis")]
    pub duration: TimeSpan,
    /// Why it failed, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Arc<str>>,
    /// Its arguments and its error, each in one line; for reports.
    #[serde(skip)]
    pub brief: ToolCallBrief,
}

/// A one-line summary of a tool call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolCallBrief {
    /// Its arguments, such as a path or a command.
    pub arguments: Arc<str>,
    /// Why it failed; `None` if it did not.
    pub error: Option<Arc<str>>,
}

/// A changed file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileModified {
    /// The file, relative to the workspace.
    pub path: Arc<str>,
    /// The net change.
    pub action: FileAction,
    /// Lines added in total.
    #[serde(skip)]
    pub added: u64,
    /// Lines removed in total.
    #[serde(skip)]
    pub removed: u64,
}

/// The costs by purpose.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RunCosts {
    /// The total; null if the model has no price.
    #[serde(rename = "total_cost_usd", serialize_with = "maybe_dollars")]
    pub total: Option<MicroUsd>,
    /// The cost of each kind of call.
    #[serde(serialize_with = "by_source")]
    pub by_source: BTreeMap<CostSource, MicroUsd>,
}

/// A tool call that was denied.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeniedCall {
    /// The tool.
    pub tool: Arc<str>,
    /// Its arguments.
    pub arguments: Arc<Value>,
    /// Why it was denied, with the rule.
    pub reason: Arc<str>,
}

/// The exit code for an invalid configuration or usage, an unknown session or agent.
const CONFIGURATION_EXIT_CODE: u8 = 3;

impl RunResult {
    /// Returns the document of a run that did not start, for example because its configuration is invalid.
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

impl RunResult {
    /// Combines the results of consecutive runs: the `speaker` determines the output, and usage and changes are
    /// summed up. `None` if there is no such run.
    pub fn join(runs: &[Self], speaker: usize) -> Option<Self> {
        let mut files = ChangedFiles::default();
        for file in runs.iter().flat_map(|run| &run.files_modified) {
            let (path, action) = (file.path.clone(), file.action);
            files.add(&FileChange { path, action, added: file.added, removed: file.removed });
        }
        let mut usage = TokenUsage::default();
        let mut by_source = BTreeMap::new();
        for run in last_of_each_session(runs) {
            usage += run.usage;
            for (source, cost) in &run.costs.by_source {
                let sum: &mut MicroUsd = by_source.entry(*source).or_default();
                *sum = *sum + *cost;
            }
        }
        let cost =
            last_of_each_session(runs).filter_map(|run| run.cost).reduce(|sum, cost| sum + cost);
        Some(Self {
            steps: last_of_each_session(runs).map(|run| run.steps).sum(),
            llm_calls: last_of_each_session(runs).map(|run| run.llm_calls).sum(),
            duration: TimeSpan(runs.iter().map(|run| run.duration.0).sum()),
            tools_used: runs.iter().flat_map(|run| run.tools_used.clone()).collect(),
            files_modified: files.changed(),
            usage,
            cost,
            costs: RunCosts { total: cost, by_source },
            denied: runs.iter().flat_map(|run| run.denied.clone()).collect(),
            ..runs.get(speaker)?.clone()
        })
    }
}

/// Returns the newest run of each session, which includes the usage of those before it.
fn last_of_each_session(runs: &[RunResult]) -> impl Iterator<Item = &RunResult> {
    let is_newest = |index: usize, run: &RunResult| {
        runs.iter().skip(index + 1).all(|later| later.session_id != run.session_id)
    };
    runs.iter().enumerate().filter(move |(index, run)| is_newest(*index, run)).map(|(_, run)| run)
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
