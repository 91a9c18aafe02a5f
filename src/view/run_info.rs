//! Information about a run that is known before it begins.

use std::sync::Arc;

use jiff::Timestamp;

use crate::machine::{CallPurpose, CostBreakdown, ModelUsage, PricedUsage, RunStatus, StopReason};
use crate::types::{Effort, word_enum};

/// Information about a run that is known before it begins, apart from its rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunInfo {
    /// The id of the session.
    pub session_id: Arc<str>,
    /// The name of the agent.
    pub agent: Arc<str>,
    /// The model, as `provider/name`.
    pub model: Arc<str>,
    /// The effort of the model, if set by the user.
    pub effort: Option<Effort>,
    /// The workspace.
    pub workspace: Arc<str>,
    /// The task, as given by the user.
    pub task: Arc<str>,
    /// The confinement of commands, if it is shown.
    pub sandbox: Option<Arc<str>>,
    /// The wall-clock time of its start.
    pub started_at: Timestamp,
    /// The cost source of its calls with tools.
    pub cost_source: CostSource,
    /// Whether its answer has to satisfy a JSON schema.
    pub has_schema: bool,
    /// The user's exit code for a partial run.
    pub exit_on_partial: Option<u8>,
    /// Whether its session is a fork that has not run yet. Its earlier usage then belongs to another session.
    pub is_new_fork: bool,
    /// The earlier usage of its session.
    pub prior_usage: PriorUsage,
    /// The earlier usage by model, in the order of the models' first calls.
    pub prior_models: Vec<ModelUsage>,
}

/// The usage of a session before it was resumed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PriorUsage {
    /// The usage.
    pub costs: CostBreakdown,
    /// The number of replies with tool calls.
    pub steps: u32,
    /// The number of model calls, including those of sub-agents.
    pub llm_calls: u32,
}

word_enum! {
    /// The source of a cost.
    pub enum CostSource {
        /// The task itself.
        Agent = "agent",
        /// The final summary after a limit.
        Closing = "closing",
        /// Summaries of older parts of the conversation.
        Compaction = "compaction",
        /// The evaluation of an answer.
        Eval = "eval",
        /// The plan before a task.
        Plan = "plan",
        /// The sub-agents of the task.
        Subagent = "subagent",
    }
}

impl RunInfo {
    /// Returns the exit code of a run with this stop reason.
    pub fn exit_code(&self, reason: StopReason) -> u8 {
        match (reason.status(), reason, self.exit_on_partial) {
            // An interrupted run has the exit code of its signal.
            (RunStatus::Partial, StopReason::UserInterrupt(_), _) => reason.exit_code(),
            (RunStatus::Partial, _, Some(code)) => code,
            _ => reason.exit_code(),
        }
    }

    /// Returns the earlier charges and their sources.
    pub fn prior_charges(&self) -> impl Iterator<Item = (CostSource, PricedUsage)> {
        let CostBreakdown { agent, closing, compaction, subagents, .. } = self.prior_usage.costs;
        let charges = [
            (self.source_of(CallPurpose::Agent), agent),
            (self.source_of(CallPurpose::Closing), closing),
            (self.source_of(CallPurpose::Compaction), compaction),
            (CostSource::Subagent, subagents),
        ];
        charges.into_iter().filter(|(_, charge)| *charge != PricedUsage::default())
    }

    /// Returns the cost source of a call. In an evaluation and in a sub-agent, it is the source of the run.
    pub fn source_of(&self, purpose: CallPurpose) -> CostSource {
        match (self.cost_source, purpose) {
            (CostSource::Eval | CostSource::Subagent, _) | (_, CallPurpose::Agent) => {
                self.cost_source
            }
            (_, CallPurpose::Closing) => CostSource::Closing,
            (_, CallPurpose::Compaction) => CostSource::Compaction,
        }
    }
}
