//! Loops and pipelines: bounded repetitions of steps. Each iteration is an ordinary session with a separate context.
//!
//! ```text
//!  command ──▶ Workflow (steps: prompt, checks, metric) ──▶ WorkflowRun ──▶ sessions, checks, undo
//!                                                              │   ▲
//!                                              event, detail   ▼   │ WorkflowState::activity
//!                                       DIR/workflow.jsonl ──▶ machine::step(program, state, event)
//! ```
//!
//! The [machine] has neither prompts nor files: it decides what comes next. Every event is stored before its
//! consequences happen, so that the same command continues after a killed process: the state is replayed from the
//! journal, and its activity is resumed. A session that had begun is resumed by its own journal.

mod condition;
mod earlier_results;
mod history;
mod journal;
pub mod machine;
mod parallel_items;
mod pipeline;
mod prompt;
mod run;
mod session;

pub use condition::{ComparisonOperator, Condition, MAX_ITEMS};
pub use earlier_results::{counted_result, earlier_results};
pub use history::{
    CheckReport, EventDetail, ItemReport, IterationRecord, SessionReport, StoredEvent,
    WorkflowHistory,
};
pub use journal::{JournalHeader, WorkflowJournal, WorkflowJournalError};
pub use pipeline::{Pipeline, PipelineStep};
pub use run::{
    StepSetup, WorkflowError, WorkflowEvent, WorkflowLimits, WorkflowObserver, WorkflowOutcome,
    WorkflowRun,
};
pub(in crate::workflow) use session::SessionRun;

use machine::{MetricDirection, Program, StepGoal, StepRules};
use serde::Serialize;
use serde_json::Value;

use crate::types::Sha256Digest;

/// The steps of a workflow, as its user defines them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Workflow {
    /// The steps, in order.
    pub steps: Vec<StepDefinition>,
}

/// A step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepDefinition {
    /// The unique name.
    pub name: String,
    /// The prompt of each iteration.
    pub prompt: String,
    /// Whether `{{steps.NAME.output}}` in the prompt is replaced by the answer of an earlier step.
    pub has_placeholders: bool,
    /// The list of items, one per line, with placeholders. Each item has an iteration, with `{{item}}` in the prompt.
    pub items: Option<String>,
    /// The number of items that run in parallel, each in its own worktree. All items together are one iteration then.
    /// With
    /// `None`, items run one after the other in the workspace.
    pub parallel: Option<u32>,
    /// The condition for running the step. If it does not hold, the step is skipped.
    pub when: Option<Condition>,
    /// The condition that ends the step if it holds after an iteration.
    pub until: Option<Condition>,
    /// Shell commands that have to succeed after an iteration.
    pub checks: Vec<String>,
    /// Whether the step is skipped if its checks pass before it.
    pub is_skipped_if_checked: bool,
    /// The number that each iteration has to improve.
    pub metric: Option<Metric>,
    /// The maximum number of iterations, and of items.
    pub iterations: u32,
    /// The number of iterations in a row without changes after which the step ends.
    pub max_unchanged: Option<u32>,
}

/// A number that has to be improved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Metric {
    /// The shell command whose last line of output is the number.
    pub command: String,
    /// The direction of improvement.
    pub direction: MetricDirection,
}

/// The name of the only step of a loop.
pub const LOOP_STEP: &str = "loop";

/// The number of iterations in a row without changes after which a loop ends.
const MAX_UNCHANGED: u32 = 2;

/// Returns the hash of a workflow's definition.
pub fn definition_hash(definition: &Value) -> String {
    Sha256Digest::of(definition.to_string().as_bytes()).to_string()
}

impl Workflow {
    /// Returns a loop: one task, repeated until its checks pass.
    pub fn of_loop(
        prompt: String,
        checks: Vec<String>,
        metric: Option<Metric>,
        iterations: u32,
    ) -> Self {
        let step = StepDefinition {
            name: LOOP_STEP.to_owned(),
            prompt,
            has_placeholders: false,
            items: None,
            parallel: None,
            when: None,
            until: None,
            is_skipped_if_checked: !checks.is_empty(),
            checks,
            metric,
            iterations,
            max_unchanged: Some(MAX_UNCHANGED),
        };
        Self { steps: vec![step] }
    }

    /// Returns the program for the machine.
    pub fn program(&self) -> Program {
        Program { steps: self.steps.iter().map(StepDefinition::rules).collect() }
    }
}

impl StepDefinition {
    fn rules(&self) -> StepRules {
        let goal = match &self.metric {
            // The items have passed their checks when the iteration ends.
            _ if self.parallel.is_some() => StepGoal::Answered,
            _ if self.items.is_some() && !self.checks.is_empty() => StepGoal::EachTested,
            _ if !self.checks.is_empty() || self.until.is_some() => StepGoal::Tested,
            Some(_) => StepGoal::Unbounded,
            None => StepGoal::Answered,
        };
        StepRules {
            goal,
            metric: self.metric.as_ref().map(|metric| metric.direction),
            iterations: self.iterations,
            max_unchanged: self.max_unchanged,
            is_rechecked: self.is_skipped_if_checked,
        }
    }
}
