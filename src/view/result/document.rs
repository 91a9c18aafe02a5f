//! The result document. Its JSON is a stable interface: fields are added, never renamed.

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
    /// The session; null if it was not created yet.
    pub session_id: Option<Arc<str>>,
    /// The SHA-256 of the session's journal at the end of the run; missing without a journal.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub journal_hash: Option<Sha256Digest>,
    /// The status of the run.
    pub status: RunStatus,
    /// Why it ended; null if it did not start.
    #[serde(serialize_with = "reason")]
    pub stop_reason: Option<StopReason>,
    /// The exit code.
    pub exit_code: u8,
    /// The final answer, or a sentence that explains why it is missing.
    pub output: Arc<str>,
    /// The final answer as JSON, if it satisfies the requested schema.
    pub structured_output: Option<Value>,
    /// Replies with tool calls.
    pub steps: u32,
    /// Model calls of every kind, including those of sub-agents; each counts once with its retries.
    pub llm_calls: u32,
    /// How long it took.
    #[serde(rename = "duration_seconds", serialize_with = "seconds")]
    pub duration: TimeSpan,
    /// The model, as `provider/name`.
    pub model: Option<Arc<str>>,
    /// The effort of the model, if the user set it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effort: Option<Effort>,
    /// The tool calls, in call order.
    pub tools_used: Vec<ToolUsed>,
    /// The changed files, each once.
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
    /// The models and their calls, in the order of their first calls, if there were several.
    #[serde(skip_serializing_if = "is_single")]
    pub models: Vec<ModelUsed>,
    /// The tool calls that were denied, with those of sub-agents.
    pub denied: Vec<DeniedCall>,
    /// The work of sub-agents that is not applied, as after an interrupt, and that is still in their worktrees.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unapplied_work: Vec<UnappliedWork>,
    /// What went wrong, if anything.
    pub error: Option<Arc<str>>,
    /// The command that resumes the session after an early end; only for people.
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
    /// The worktree that the run worked in, if it was an isolated one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worktree: Option<WorktreeResult>,
}

/// The isolated worktree of a run, and what is in it at the end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct WorktreeResult {
    /// Its name.
    pub name: String,
    /// Its branch; null for a copy of a folder without git.
    pub branch: Option<String>,
    /// Its folder.
    pub folder: String,
    /// Commits since the commit that the branch began from.
    pub commits: u64,
    /// Files that differ from that commit, committed or not.
    pub files_changed: u64,
    /// Lines that were added; null without git.
    pub lines_added: Option<u64>,
    /// Lines that were removed; null without git.
    pub lines_removed: Option<u64>,
    /// Paths with changes that are not committed.
    pub uncommitted: Vec<String>,
    /// The changes, in words.
    pub summary: String,
    /// Whether it stays. An unchanged one is removed.
    pub kept: bool,
    /// The command that merges it; null if it is removed.
    pub merge_command: Option<String>,
    /// The command that removes it; null if it is removed.
    pub remove_command: Option<String>,
}

/// The work of a sub-agent in a worktree of its own that is not applied to the files of its dispatcher.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnappliedWork {
    /// The session of the sub-agent.
    pub session_id: Option<String>,
    /// The name of the worktree.
    pub worktree: String,
    /// Its branch; null for a copy of a folder without git.
    pub branch: Option<String>,
    /// The command that applies it.
    pub merge_command: String,
}

/// What one of several models was used for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModelUsed {
    /// The model, as `provider/name`.
    pub model: Arc<str>,
    /// Its calls, each counted once with its retries. Those of sub-agents count for the model of the run.
    pub calls: u32,
    /// Their cost; null if the model has no price.
    #[serde(serialize_with = "dollars", deserialize_with = "read_dollars", default)]
    pub cost: Option<MicroUsd>,
}

impl ModelUsed {
    /// Adds calls and costs of a model to those of several.
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

/// One tool call.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
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
    /// Its arguments in one line, such as a path or a command; for reports.
    #[serde(skip)]
    pub arguments_line: Arc<str>,
    /// Why it failed in one line, if it did; for reports.
    #[serde(skip)]
    pub error_line: Option<Arc<str>>,
}

/// A changed file, as it is written.
#[derive(Serialize, JsonSchema)]
struct ModifiedFile<'a> {
    /// The file, relative to the workspace. A path that is not UTF-8 is a NUL character and its bytes in hexadecimal.
    #[schemars(with = "String")]
    path: &'a FilePath,
    /// How it differs between the start and the end of the run.
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

/// A tool call that was denied.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DeniedCall {
    /// The sub-agent that made the call; missing for a call of the run's own agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Arc<str>>,
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
    /// Combines the results of consecutive runs: the `speaker` determines the output, and usage and changes are
    /// summed up. `None` if there is no such run.
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
            // A run knows that of the earlier runs of its session.
            unapplied_work: last_runs().flat_map(|run| run.unapplied_work.clone()).collect(),
            ..runs.get(speaker)?.clone()
        })
    }

    /// Reads what a document counts: steps, calls, tools, files, usage, costs, denied calls and unapplied work. `None` if it is not a
    /// result document.
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

/// What a result document counts.
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

/// Returns the newest run of each session, which includes the usage of those before it.
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
