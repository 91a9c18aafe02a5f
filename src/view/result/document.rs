//! The result document. Its JSON is a stable interface: fields are added, and never renamed.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use super::changed_files::ChangedFiles;
use crate::machine::{RunStatus, StopReason};
use crate::types::{
    Effort, FileAction, FileChange, FilePath, MicroUsd, Sha256Digest, TimeSpan, Usage,
};
use crate::view::CostSource;
use crate::view::public_events::{SCHEMA, TokenUsage, dollars, millis, reason, seconds};

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RunResult {
    /// The version of the document.
    pub schema: u32,
    /// The id of the session; null if it was not created yet.
    pub session_id: Option<Arc<str>>,
    /// The SHA-256 of the session's journal at the end of the run; missing without a journal.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub journal_hash: Option<Sha256Digest>,
    /// The status of the run.
    pub status: RunStatus,
    /// The stop reason; null if the run did not start.
    #[serde(serialize_with = "reason")]
    pub stop_reason: Option<StopReason>,
    /// The exit code.
    pub exit_code: u8,
    /// The final answer, or a sentence with the reason why it is missing.
    pub output: Arc<str>,
    /// The final answer as JSON, if a run with a requested schema ended as `llm_done`.
    pub structured_output: Option<Value>,
    /// The number of replies with tool calls.
    pub steps: u32,
    /// The number of model calls of every kind, including those of sub-agents. A call with its retries counts once.
    pub llm_calls: u32,
    /// The duration of the run.
    #[serde(rename = "duration_seconds", serialize_with = "seconds")]
    pub duration: TimeSpan,
    /// The model, as `provider/name`.
    pub model: Option<Arc<str>>,
    /// The effort of the model, if set by the user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effort: Option<Effort>,
    /// The tool calls of this process, in call order.
    pub tools_used: Vec<ToolUsed>,
    /// The files that the file tools of this process changed, each listed once. `architect diff` prints the changes of the
    /// session, also those by commands.
    #[serde(serialize_with = "files")]
    #[schemars(with = "Vec<ModifiedFile>")]
    pub files_modified: Vec<FileChange>,
    /// The usage of all calls.
    #[serde(with = "TokenUsage")]
    pub usage: Usage,
    /// The cost of all calls; null if the model has no price.
    #[serde(serialize_with = "dollars")]
    pub cost: Option<MicroUsd>,
    /// The same cost, by purpose.
    pub costs: RunCosts,
    /// The models and their calls, in the order of their first calls, if the run used several models.
    #[serde(skip_serializing_if = "is_single")]
    pub models: Vec<ModelUsed>,
    /// The denied tool calls, including those of sub-agents.
    pub denied: Vec<DeniedCall>,
    /// Unapplied work of sub-agents, as after an interrupt, that is still in their worktrees.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unapplied_work: Vec<UnappliedWork>,
    /// The error, if any.
    pub error: Option<Arc<str>>,
    /// The command that resumes the session after an early end; not part of the JSON.
    #[serde(skip)]
    pub resume_command: Option<Arc<str>>,
    /// The result of the self-evaluation, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Map<String, Value>")]
    pub evaluation: Option<Value>,
    /// The iterations of a loop or a pipeline.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Map<String, Value>")]
    pub workflow: Option<Value>,
    /// The isolated worktree of the run, if it had one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worktree: Option<WorktreeResult>,
}

/// The isolated worktree of a run, with its content at the end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct WorktreeResult {
    /// The name.
    pub name: String,
    /// The branch; null for a copy of a folder without git.
    pub branch: Option<String>,
    /// The folder.
    pub folder: String,
    /// The number of commits since the commit from which the branch began.
    pub commits: u64,
    /// The number of files that differ from that commit, committed or not.
    pub files_changed: u64,
    /// The number of added lines; null without git.
    pub lines_added: Option<u64>,
    /// The number of removed lines; null without git.
    pub lines_removed: Option<u64>,
    /// Paths with uncommitted changes.
    pub uncommitted: Vec<String>,
    /// A summary of the changes.
    pub summary: String,
    /// Whether it is kept. An unchanged worktree is removed.
    pub kept: bool,
    /// The command that merges it; null if it was removed.
    pub merge_command: Option<String>,
    /// The command that removes it; null if it was removed.
    pub remove_command: Option<String>,
}

/// Work of a sub-agent in its own worktree that is not applied to the files of its dispatcher.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnappliedWork {
    /// The id of the sub-agent's session.
    pub session_id: Option<String>,
    /// The name of the worktree.
    pub worktree: String,
    /// The branch; null for a copy of a folder without git.
    pub branch: Option<String>,
    /// The command that applies the work.
    pub merge_command: String,
}

/// The usage of one of several models.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModelUsed {
    /// The model, as `provider/name`.
    pub model: Arc<str>,
    /// The number of calls. A call with its retries counts once. Calls of sub-agents count for the model of the run.
    pub calls: u32,
    /// The cost of the calls; null if the model has no price.
    #[serde(serialize_with = "dollars", deserialize_with = "read_dollars", default)]
    pub cost: Option<MicroUsd>,
}

impl ModelUsed {
    /// Adds calls and their cost to the entry of a model.
    pub(super) fn add(used: &mut Vec<Self>, model: &Arc<str>, calls: u32, cost: Option<MicroUsd>) {
        if let Some(known) = used.iter_mut().find(|known| known.model == *model) {
            known.calls += calls;
            let costs = [known.cost, cost].into_iter().flatten();
            known.cost = costs.reduce(|sum, cost| sum + cost);
        } else {
            used.push(Self { model: Arc::clone(model), calls, cost });
        }
    }
}

fn is_single(models: &[ModelUsed]) -> bool {
    models.len() < 2
}

fn read_dollars<'de, D: Deserializer<'de>>(from: D) -> Result<Option<MicroUsd>, D::Error> {
    Ok(Option::<f64>::deserialize(from)?.and_then(MicroUsd::from_dollars))
}

/// A tool call.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ToolUsed {
    /// The name of the tool.
    pub name: Arc<str>,
    /// Whether the call succeeded.
    pub success: bool,
    /// The file or folder that the call names, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<Arc<str>>,
    /// The duration of the tool's run.
    #[serde(rename = "duration_ms", serialize_with = "millis")]
    pub duration: TimeSpan,
    /// The error of a failed call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Arc<str>>,
    /// The arguments on one line, such as a path or a command; for reports.
    #[serde(skip)]
    pub arguments_line: Arc<str>,
    /// The error of a failed call on one line; for reports.
    #[serde(skip)]
    pub error_line: Option<Arc<str>>,
}

/// A changed file, in its serialized form.
#[derive(Serialize, JsonSchema)]
struct ModifiedFile<'a> {
    /// The file, relative to the workspace. A path that is not UTF-8 is a NUL character and its bytes in hexadecimal.
    #[schemars(with = "String")]
    path: &'a FilePath,
    /// The difference between the start and the end of the run.
    action: FileAction,
}

/// The costs by purpose.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct RunCosts {
    /// The total; null if the model has no price.
    #[serde(rename = "total_cost_usd", serialize_with = "dollars")]
    pub total: Option<MicroUsd>,
    /// The cost of each kind of call.
    #[serde(serialize_with = "by_source")]
    pub by_source: BTreeMap<CostSource, MicroUsd>,
}

/// A denied tool call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DeniedCall {
    /// The sub-agent that made the call; missing for a call of the run's own agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Arc<str>>,
    /// The name of the tool.
    pub tool: Arc<str>,
    /// The arguments.
    pub arguments: Arc<Value>,
    /// The reason for the denial, with the rule.
    pub reason: Arc<str>,
}

/// Exit code for an invalid configuration or usage, and for an unknown session or agent.
const CONFIGURATION_EXIT_CODE: u8 = 3;

impl RunResult {
    /// Returns the document of a run that did not start, for example because of an invalid configuration.
    pub fn not_started(error: impl Into<Arc<str>>) -> Self {
        let error = error.into();
        Self {
            schema: SCHEMA,
            session_id: None,
            journal_hash: None,
            status: RunStatus::Failed,
            stop_reason: None,
            exit_code: CONFIGURATION_EXIT_CODE,
            output: Arc::clone(&error),
            structured_output: None,
            steps: 0,
            llm_calls: 0,
            duration: TimeSpan::ZERO,
            model: None,
            effort: None,
            tools_used: Vec::new(),
            files_modified: Vec::new(),
            usage: Usage::default(),
            cost: None,
            costs: RunCosts::default(),
            models: Vec::new(),
            denied: Vec::new(),
            unapplied_work: Vec::new(),
            error: Some(error),
            resume_command: None,
            evaluation: None,
            workflow: None,
            worktree: None,
        }
    }
}

impl RunCosts {
    /// Adds a cost.
    pub(super) fn add(&mut self, source: CostSource, cost: MicroUsd) {
        let sum = self.by_source.entry(source).or_default();
        *sum = *sum + cost;
        self.total = Some(self.total.unwrap_or_default() + cost);
    }
}

impl RunResult {
    /// Combines the results of consecutive runs: the run at `speaker` determines the output, while usage and changes
    /// are added up. Returns `None` if there is no such run.
    pub fn join(runs: &[Self], speaker: usize) -> Option<Self> {
        let mut files = ChangedFiles::default();
        for file in runs.iter().flat_map(|run| &run.files_modified) {
            files.add(file);
        }
        let last_runs = || last_of_each_session(runs);
        let mut costs = RunCosts::default();
        for (source, cost) in last_runs().flat_map(|run| &run.costs.by_source) {
            costs.add(*source, *cost);
        }
        let mut models = Vec::new();
        for used in last_runs().flat_map(|run| &run.models) {
            ModelUsed::add(&mut models, &used.model, used.calls, used.cost);
        }
        costs.total = last_runs().filter_map(|run| run.cost).reduce(|sum, cost| sum + cost);
        Some(Self {
            steps: last_runs().map(|run| run.steps).sum(),
            llm_calls: last_runs().map(|run| run.llm_calls).sum(),
            duration: TimeSpan(runs.iter().map(|run| run.duration.0).sum()),
            tools_used: runs.iter().flat_map(|run| run.tools_used.clone()).collect(),
            files_modified: files.changed(),
            usage: last_runs().fold(Usage::default(), |sum, run| sum + run.usage),
            cost: costs.total,
            costs,
            models,
            denied: runs.iter().flat_map(|run| run.denied.clone()).collect(),
            // The newest run of a session includes the unapplied work of the earlier ones.
            unapplied_work: last_runs().flat_map(|run| run.unapplied_work.clone()).collect(),
            ..runs.get(speaker)?.clone()
        })
    }

    /// Reads the counts of a document: steps, calls, tools, files, usage, costs, denied calls and unapplied work.
    /// Returns `None` if it is not a result document.
    pub fn from_counts(document: &Value) -> Option<Self> {
        let counts = RunCounts::deserialize(document).ok()?;
        let span = |millis: f64| Duration::try_from_secs_f64(millis / 1e3).unwrap_or_default();
        let tool = |tool: CountedTool| ToolUsed {
            name: tool.name,
            success: tool.success,
            path: tool.path,
            duration: span(tool.duration_ms).into(),
            error_line: tool.error.clone(),
            error: tool.error,
            arguments_line: "".into(),
        };
        let mut costs = RunCosts::default();
        for (source, dollars) in counts.costs.by_source {
            costs.add(source, MicroUsd::from_dollars(dollars).unwrap_or_default());
        }
        Some(Self {
            session_id: document["session_id"].as_str().map(Into::into),
            steps: counts.steps,
            llm_calls: counts.llm_calls,
            tools_used: counts.tools_used.into_iter().map(tool).collect(),
            files_modified: counts.files_modified,
            usage: counts.usage,
            cost: costs.total,
            costs,
            models: counts.models,
            denied: counts.denied,
            unapplied_work: counts.unapplied_work,
            error: None,
            ..Self::not_started("")
        })
    }
}

/// The counts of a result document.
#[derive(Deserialize)]
struct RunCounts {
    steps: u32,
    llm_calls: u32,
    tools_used: Vec<CountedTool>,
    files_modified: Vec<FileChange>,
    #[serde(with = "TokenUsage")]
    usage: Usage,
    costs: CountedCosts,
    #[serde(default)]
    models: Vec<ModelUsed>,
    denied: Vec<DeniedCall>,
    #[serde(default)]
    unapplied_work: Vec<UnappliedWork>,
}

#[derive(Deserialize)]
struct CountedTool {
    name: Arc<str>,
    success: bool,
    path: Option<Arc<str>>,
    duration_ms: f64,
    error: Option<Arc<str>>,
}

#[derive(Deserialize)]
struct CountedCosts {
    by_source: HashMap<CostSource, f64>,
}

/// Returns the newest run of each session, which includes the usage of the earlier runs of that session.
fn last_of_each_session(runs: &[RunResult]) -> impl Iterator<Item = &RunResult> {
    let is_newest = |index: usize, run: &RunResult| {
        runs.iter().skip(index + 1).all(|later| later.session_id != run.session_id)
    };
    runs.iter().enumerate().filter(move |(index, run)| is_newest(*index, run)).map(|(_, run)| run)
}

fn files<S: Serializer>(files: &[FileChange], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(files.iter().map(|file| ModifiedFile { path: &file.path, action: file.action }))
}

fn by_source<S: Serializer>(
    costs: &BTreeMap<CostSource, MicroUsd>,
    to: S,
) -> Result<S::Ok, S::Error> {
    to.collect_map(costs.iter().map(|(source, cost)| (source, cost.as_dollars())))
}
