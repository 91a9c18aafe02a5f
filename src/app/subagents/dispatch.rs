//! `dispatch_subagent`: another agent works on a part of the task.

use std::sync::{Arc, OnceLock};

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::isolation::{SubagentWorktrees, WriterCount};
use super::subagent_run::{self, SubagentContext};
use crate::config::AgentDefinition;
use crate::journal::SessionId;
use crate::machine::CallIntent;
use crate::policy::{CallKind, CallTarget};
use crate::port::ToolSpec;
use crate::tools::{
    CallContext, CallPlan, Tool, ToolInvocation, ToolOutput, parse_arguments, tool_spec,
};
use crate::types::{CallAccess, Isolation, TimeSpan};

/// The name of the tool.
pub(crate) const DISPATCH: &str = "dispatch_subagent";

/// The tool with which an agent dispatches others.
pub(in crate::app) struct DispatchTool {
    subagents: Arc<SubagentContext>,
    /// The tools of the dispatching agent.
    inherited: Vec<Arc<str>>,
    spec: ToolSpec,
}

/// The arguments of a call.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct DispatchArguments {
    /// The agent for the task.
    agent: String,
    /// The task, with all that the agent has to know: it sees nothing of this conversation.
    task: String,
    /// The maximum number of steps before the agent has to stop and report. Default: as many as its settings allow.
    max_steps: Option<u32>,
}

/// A call of the tool: the task of a sub-agent.
pub(super) struct DispatchCall {
    pub(super) subagents: Arc<SubagentContext>,
    pub(super) agent: AgentDefinition,
    pub(super) task: Arc<str>,
    /// The session of the sub-agent's run.
    pub(super) session: SessionId,
    /// Whether the session is that of an interrupted call, which this call continues.
    pub(super) is_interrupted: bool,
    /// Counts this call among those that may change files.
    writer: Option<WriterCount>,
    /// Whether the sub-agent works in its own worktree, once decided.
    is_isolated: OnceLock<bool>,
}

impl DispatchTool {
    /// Returns the tool for an agent with these tools.
    pub(in crate::app) fn new(subagents: SubagentContext, inherited: Vec<Arc<str>>) -> Self {
        let agents: Vec<AgentDefinition> = subagents.setup.config.agents().collect();
        let listed = agents.iter().map(|agent| {
            let what = if agent.description.is_empty() { "" } else { ": " };
            format!("\n- {}{what}{}", agent.name, agent.description)
        });
        let description = format!(
            "Lets another agent work on a part of the task, on its own and with a fresh view, and returns its report. \
             Good for reading much of which little matters, and for a second opinion. Agents that are dispatched in one \
             reply work side by side if they only read, or each in a copy of the workspace: then its changes are applied \
             when it is done, and what conflicts with others is reported. Name files relative to the workspace. The \
             agents:{}",
            listed.collect::<String>()
        );
        let mut spec = tool_spec::<DispatchArguments>(DISPATCH, &description);
        let names: Vec<&str> = agents.iter().map(|agent| agent.name.as_str()).collect();
        spec.schema["properties"]["agent"]["enum"] = json!(names);
        Self { subagents: Arc::new(subagents), inherited, spec }
    }
}

impl Tool for DispatchTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare(&self, arguments: &str) -> Result<Box<dyn ToolInvocation>, String> {
        let DispatchArguments { agent, task, max_steps } = parse_arguments(&self.spec, arguments)?;
        let invalid = |why: String| format!("Invalid arguments for {DISPATCH}: {why}.");
        let agent = self.subagents.agent(&agent, &self.inherited);
        let agent = agent.map_err(|problem| invalid(problem.kind.to_string()))?;
        if task.trim().is_empty() {
            return Err(invalid("task is empty".to_owned()));
        }
        let max_steps = max_steps.unwrap_or(agent.max_steps).min(agent.max_steps);
        let worktrees = self.subagents.worktrees.as_ref();
        let worktrees =
            worktrees.filter(|_| !agent.is_read_only() && agent.isolation != Isolation::None);
        let interrupted = worktrees.and_then(|found| found.take_interrupted(arguments));
        Ok(Box::new(DispatchCall {
            subagents: Arc::clone(&self.subagents),
            agent: AgentDefinition { max_steps, ..agent },
            task: task.into(),
            session: interrupted.unwrap_or_else(SessionId::generate),
            is_interrupted: interrupted.is_some(),
            writer: worktrees.map(|found| found.count_writer()),
            is_isolated: interrupted.map_or_else(OnceLock::new, |_| true.into()),
        }))
    }
}

impl DispatchCall {
    /// Returns the worktrees if the sub-agent works in its own worktree. `has_others` determines whether other calls
    /// that may change files were dispatched at the same time.
    fn decide(&self, has_others: impl Fn(&WriterCount) -> bool) -> Option<&SubagentWorktrees> {
        let (writer, worktrees) = (self.writer.as_ref()?, self.subagents.worktrees.as_ref()?);
        let decide = || match self.agent.isolation {
            Isolation::Worktree => true,
            Isolation::Auto => {
                let is_fit = !self.asks() && !self.agent.has_server_tools();
                is_fit && has_others(writer) && worktrees.are_possible()
            }
            Isolation::None => false,
        };
        self.is_isolated.get_or_init(decide).then_some(worktrees)
    }

    /// Returns the worktrees if the sub-agent works in its own worktree. Without an earlier decision by
    /// `access`, as after a resume, other calls may be running.
    pub(super) fn worktrees(&self) -> Option<&SubagentWorktrees> {
        self.decide(|_| true)
    }

    fn asks(&self) -> bool {
        !self.subagents.setup.config.settings.permissions.ask.is_empty()
    }
}

impl ToolInvocation for DispatchCall {
    fn kind(&self) -> CallKind {
        CallKind::Delegates
    }

    fn targets(&self) -> Vec<CallTarget> {
        vec![CallTarget::Name(self.agent.name.to_string())]
    }

    /// Agents that change nothing in these files, and never ask, may run concurrently.
    fn access(&self) -> CallAccess {
        let is_isolated = self.decide(WriterCount::has_others).is_some();
        if (is_isolated || self.agent.is_read_only()) && !self.asks() {
            CallAccess::read("")
        } else {
            CallAccess::Exclusive
        }
    }

    fn summary(&self) -> String {
        format!("{}: {}", self.agent.name, self.task)
    }

    fn time_limit(&self) -> TimeSpan {
        TimeSpan(subagent_run::MAX_RUN_TIME.0 + TimeSpan::from_secs(60).0)
    }

    fn plan(&mut self) -> Result<CallPlan, Box<ToolOutput>> {
        let session = self.subagents.store.as_ref().map(|_| self.session.to_string().into());
        let worktree = self.worktrees().map(|_| SubagentWorktrees::name_of(self.session).into());
        Ok(CallPlan { intent: CallIntent::Delegated { session, worktree }, changes: Vec::new() })
    }

    fn run(self: Box<Self>, context: &CallContext<'_>) -> ToolOutput {
        subagent_run::run_subagent(&self, context)
    }
}
