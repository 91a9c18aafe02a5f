//! The run of a sub-agent, the resources shared with the dispatching run, and the result of the call.

use std::fmt::Display;
use std::sync::Arc;

use serde_json::Value;

use super::dispatch::DispatchCall;
use super::isolation::{SubagentWorktrees, with_changes};
use super::usage_meter::{ObservedChanges, UsageMeter};
use crate::app::error::AppError;
use crate::app::run::FinishedRun;
use crate::app::run_environment::{RunEnvironment, SubagentClock};
use crate::app::run_io::{RunIo, RunRequest, SharedResources};
use crate::app::run_setup::RunSetup;
use crate::app::sandbox::watch_writes;
use crate::app::session::SessionTarget;
use crate::app::worktree::SandboxedGit;
use crate::config::{AgentDefinition, ConfigName, ConfigProblem, LimitsConfig};
use crate::journal::{DamagePolicy, ParentCall, SessionId, SessionStore};
use crate::machine::{BudgetUsage, Event, RunOutcome, RunStatus, StopReason};
use crate::policy::Confirmer;
use crate::port::{EffectContext, lock};
use crate::runner::{DriverInput, Executor, InlineExecutor, Ports, SystemClock, ThreadExecutor};
use crate::tools::{CallContext, ToolOutput};
use crate::types::{
    FileChange, RunTime, Signal, TimeSpan, ToolStatus, matches_wildcard, pluralize,
};
use crate::view::{CostSource, Reporter};
use crate::workspace::worktree::Worktree;

/// The agents that a run can dispatch, and the resources shared with them.
pub(in crate::app) struct SubagentContext {
    /// The setup of the dispatching run.
    pub(in crate::app) setup: RunSetup,
    /// The session of the dispatching run.
    pub(in crate::app) session: SessionId,
    /// The store of the sub-agents' sessions; `None` if they are not stored.
    pub(in crate::app) store: Option<SessionStore>,
    /// The stored options of the session, with which a sub-agent's session can be resumed on its own.
    pub(in crate::app) options: Value,
    /// Asks the user for confirmations.
    pub(in crate::app) confirm: Arc<dyn Confirmer>,
    /// Shows the dispatching run.
    pub(in crate::app) reporter: Reporter,
    /// The shared resources.
    pub(in crate::app) shared: SharedResources,
    /// The worktrees of sub-agents that may change files; `None` if worktrees are not possible.
    pub(in crate::app) worktrees: Option<Arc<SubagentWorktrees>>,
    /// The clock of the sub-agents' runs.
    pub(in crate::app) clock: SubagentClock,
}

impl SubagentContext {
    /// Returns an agent for dispatching: restricted to tools that its dispatcher has too.
    ///
    /// # Errors
    ///
    /// Fails if there is no such agent; the error suggests the one with the nearest name.
    pub(super) fn agent(
        &self,
        name: &str,
        inherited: &[Arc<str>],
    ) -> Result<AgentDefinition, ConfigProblem> {
        let agent = self.setup.config.agent(name)?;
        let has =
            |tool: &&Arc<str>| agent.allowed_tools.iter().any(|own| matches_wildcard(own, tool));
        let allowed_tools = inherited.iter().filter(has).map(ToString::to_string).collect();
        // The strictest mode is the first one.
        let confirm_mode = agent.confirm_mode.min(self.setup.agent.confirm_mode);
        Ok(AgentDefinition { allowed_tools, confirm_mode, ..agent })
    }
}

/// The maximum time of a sub-agent's run.
pub(super) const MAX_RUN_TIME: TimeSpan = TimeSpan::from_secs(30 * 60);

/// The maximum number of tools of a sub-agent that run at the same time; its rules may allow fewer.
const MAX_PARALLEL_TOOLS: u32 = 4;

/// Runs a sub-agent to its end, and returns the result of the call.
pub(super) fn run_subagent(dispatched: &DispatchCall, context: &CallContext<'_>) -> ToolOutput {
    if dispatched.worktrees().is_some() {
        return run_isolated(dispatched, context);
    }
    let DispatchCall { subagents, agent, session, .. } = dispatched;
    let target = match &subagents.store {
        Some(store) => {
            let dispatcher = ParentCall { session: subagents.session, call: context.call.clone() };
            SessionTarget::Child(store.clone(), *session, dispatcher)
        }
        None => SessionTarget::Ephemeral,
    };
    let setup =
        limited_setup(&subagents.setup, agent.clone(), context.scope, BudgetUsage::default());
    let (ended, changes) = drive(dispatched, &setup, target, context);
    ToolOutput { changes, ..output_of(&agent.name, ended) }
}

/// Drives the run of a sub-agent. Returns the finished run, and the files that its tools have changed.
fn drive(
    dispatched: &DispatchCall,
    setup: &RunSetup,
    target: SessionTarget,
    context: &CallContext<'_>,
) -> (Result<FinishedRun, AppError>, Vec<FileChange>) {
    let DispatchCall { subagents, agent, task, .. } = dispatched;
    let scope = context.scope;
    let options = subagents.options.clone();
    let at = target.opened().map_or(RunTime::START, |opened| opened.history.at);
    let used = target.opened().map(|opened| opened.history.machine.state.run().used);
    // A stored session already has its task.
    let task = used.is_none().then(|| Arc::clone(task));
    let request = RunRequest {
        task,
        images: Vec::new(),
        target,
        options,
        source: CostSource::Subagent,
        exit_on_partial: None,
    };
    let changes = ObservedChanges::default();
    let (agent_name, used) = (agent.name.as_str().into(), used.unwrap_or_default());
    let meter = UsageMeter::new(context, agent_name, used, Arc::clone(&changes));
    let drive = |executor: Box<dyn Executor>| {
        // Most outputs of the dispatching run show this one only through the meter.
        let sinks = subagents.reporter.subagent_sinks(context.call);
        let is_shown = !sinks.is_empty();
        let reporter = Reporter::new(sinks);
        let io = RunIo { reporter, confirm: Arc::clone(&subagents.confirm), sandbox: None };
        let environment = RunEnvironment {
            executor,
            subagent_clock: subagents.clock,
            ports: Box::new(move |ports| {
                let shown = is_shown.then_some(ports.observer);
                Ports { observer: Box::new(meter.with_observer(shown)), ..ports }
            }),
        };
        setup.drive(Some(environment), request, io, Some(subagents.shared.clone()))
    };
    let ended = match subagents.clock {
        SubagentClock::Real => {
            let clock = Arc::new(SystemClock::resume(at));
            let executor = ThreadExecutor::new(clock, MAX_PARALLEL_TOOLS);
            let inbox = executor.inbox();
            let interrupt = Event::Interrupt { signal: Signal::Interrupt };
            let _listening =
                scope.cancel.on_cancel(move || inbox.send(DriverInput::Event(interrupt)));
            drive(Box::new(executor))
        }
        SubagentClock::Simulated => {
            let executor = InlineExecutor::resume(at);
            let clock = executor.clock();
            let ended = drive(Box::new(executor));
            // The simulated time of the run also passes for the waiting call.
            scope.sleep(clock.now().since(at));
            ended
        }
    };
    let changes = lock(&changes).clone();
    (ended, changes)
}

/// Runs a sub-agent in its own worktree, or continues an interrupted one, and applies its changes.
fn run_isolated(dispatched: &DispatchCall, context: &CallContext<'_>) -> ToolOutput {
    let DispatchCall { subagents, agent, session, .. } = dispatched;
    let Some(worktrees) = dispatched.worktrees() else {
        return ToolOutput::failed("internal error: there are no worktrees");
    };
    let failed = |error: &dyn Display| {
        ToolOutput::failed(format!("The sub-agent {} could not begin: {error}.", agent.name))
    };
    let stored = match (&subagents.store, dispatched.is_interrupted) {
        (Some(store), true) => store.load(*session).ok(),
        _ => None,
    };
    let (env, config) = (&subagents.setup.env, &subagents.setup.config);
    let confined = SandboxedGit { config, env };
    let found = if dispatched.is_interrupted { worktrees.open(*session) } else { Ok(None) };
    let is_over = stored.as_ref().and_then(|(history, _)| {
        let run = history.machine.state.run();
        Some((history.machine.state.outcome()?.clone(), run.steps))
    });
    let mut worktree = match (found, is_over) {
        (Err(error), _) => return failed(&error),
        // The changes were already applied, or there were none.
        (Ok(None), Some((outcome, steps))) => {
            let output = format_answer(&agent.name, &outcome, steps);
            let applied = worktrees.applied(*session);
            return applied.map_or(output.clone(), |changes| with_changes(output, changes));
        }
        (Ok(Some(worktree)), Some((outcome, steps))) => {
            let output = format_answer(&agent.name, &outcome, steps);
            return finish_isolated(worktrees, worktree, output, is_usable(&outcome), &confined);
        }
        (Ok(Some(worktree)), None) => worktree,
        (Ok(None), None) => match worktrees.create(*session, &confined) {
            Ok(worktree) => worktree,
            Err(error) => return failed(&error),
        },
    };
    // An unchanged worktree is removed.
    let given_up = |worktree, error: &dyn Display| {
        finish_isolated(worktrees, worktree, failed(error), false, &confined)
    };
    if let Err(error) = worktree.use_for(Some(session.to_string())) {
        return given_up(worktree, &error);
    }
    worktrees.begin_work(&worktree);
    // The dispatcher's servers work in the dispatcher's files.
    let agent = agent.clone().without_server_tools();
    let target = match (&subagents.store, stored.is_some()) {
        (Some(store), true) => match store.reopen(*session, DamagePolicy::Refuse) {
            Ok(opened) => SessionTarget::Stored(store.clone(), Box::new(opened)),
            Err(error) => return given_up(worktree, &error),
        },
        (Some(store), false) => {
            let dispatcher = ParentCall { session: subagents.session, call: context.call.clone() };
            SessionTarget::Child(store.clone(), *session, dispatcher)
        }
        (None, _) => SessionTarget::Ephemeral,
    };
    let used = stored.map(|(history, _)| history.machine.state.run().used).unwrap_or_default();
    let setup = limited_setup(&subagents.setup, agent, context.scope, used);
    let setup = match setup.in_worktree(&worktree.workspace()) {
        Ok(setup) => setup,
        Err(error) => return given_up(worktree, &error),
    };
    let (ended, _) = drive(dispatched, &setup, target, context);
    // All processes of the run have ended.
    drop(setup);
    let outcome = ended.as_ref().ok().and_then(FinishedRun::outcome);
    let is_usable = !context.scope.cancel.is_cancelled() && outcome.is_some_and(is_usable);
    let output = output_of(&dispatched.agent.name, ended);
    finish_isolated(worktrees, worktree, output, is_usable, &confined)
}

/// Returns whether the changes of a run are applied: even an incomplete run is usable, but not one that ended with an
/// error.
fn is_usable(outcome: &RunOutcome) -> bool {
    outcome.reason.status() != RunStatus::Failed
}

/// Applies the changes of a worktree, or keeps the worktree with them.
fn finish_isolated(
    worktrees: &SubagentWorktrees,
    worktree: Worktree,
    output: ToolOutput,
    is_usable: bool,
    confined: &SandboxedGit<'_>,
) -> ToolOutput {
    if is_usable {
        let watch = watch_writes(confined.config, confined.env, worktree.origin());
        let output = worktrees.apply(worktree, output, confined);
        let denied = watch.finish();
        if denied.is_empty() {
            return output;
        }
        let text = format!("{}\n\n[{}]", output.text, denied.join("\n"));
        return ToolOutput { text, ..output };
    }
    let Some(stays) = worktrees.keep(worktree, confined) else { return output };
    let text = format!("{}\n\n[Its changes were not applied to your files. {stays}]", output.text);
    ToolOutput { text, ..output }
}

/// Returns the setup of an agent with the limits of the call's share, in addition to the earlier usage of its session.
/// Quality gates apply only to the agent that answers the user.
fn limited_setup(
    setup: &RunSetup,
    agent: AgentDefinition,
    scope: &EffectContext,
    used: BudgetUsage,
) -> RunSetup {
    let mut config = setup.config.clone();
    let limits = &mut config.settings.limits;
    let share = scope.budget;
    let time = share.and_then(|share| share.time);
    *limits = LimitsConfig {
        budget_usd: share.and_then(|share| Some(share.cost? + used.cost)).or(limits.budget_usd),
        max_tokens: share.and_then(|share| Some(share.tokens? + used.tokens)).or(limits.max_tokens),
        timeout: Some(time.map_or(MAX_RUN_TIME, |time| time.min(MAX_RUN_TIME))),
        warn_at_usd: None,
        ..limits.clone()
    };
    config.settings.guardrails.quality_gates.clear();
    setup.with_config(config).with_agent(agent)
}

/// Returns the result of the call that dispatched a sub-agent.
fn output_of(agent: &ConfigName, ended: Result<FinishedRun, AppError>) -> ToolOutput {
    let ended = match ended {
        Ok(ended) => ended,
        Err(error) => {
            let why = format!("The sub-agent {agent} could not begin: {error}.");
            return ToolOutput::failed(why);
        }
    };
    let run = ended.machine.state.run();
    match ended.outcome() {
        None => ToolOutput::failed(format!("The sub-agent {agent} broke down.")),
        // With an error, a hook has blocked the run.
        Some(RunOutcome { reason: StopReason::ChecksFailed, output, error: None })
            if run.denied_calls > 0 =>
        {
            // The user counts denied calls as a failure, so the dispatching call counts as denied, too.
            let calls = pluralize(run.denied_calls, "tool call", "tool calls");
            let answer = output.as_deref().unwrap_or_default().trim();
            let text = format!("The sub-agent {agent} was denied {calls}. What it says:\n{answer}");
            ToolOutput::new(ToolStatus::Denied, text)
        }
        Some(outcome) => format_answer(agent, outcome, run.steps),
    }
}

fn format_answer(agent: &ConfigName, outcome: &RunOutcome, steps: u32) -> ToolOutput {
    let RunOutcome { reason, output, error } = outcome;
    let answer = output.as_deref().map(str::trim).filter(|answer| !answer.is_empty());
    let status = match reason.status() {
        RunStatus::Success => return ToolOutput::ok(answer.unwrap_or("It gave no answer.")),
        // The answer is incomplete, and worth reading.
        RunStatus::Partial if answer.is_some() => ToolStatus::Ok,
        RunStatus::Partial | RunStatus::Failed => ToolStatus::Failed,
    };
    let why = error.as_deref().map(|error| format!(": {error}"));
    let text = format!(
        "The sub-agent {agent} stopped before it was done, after {} ({}{}).{}",
        pluralize(steps, "step", "steps"),
        reason.name(),
        why.unwrap_or_default(),
        answer.map(|answer| format!(" What it says:\n{answer}")).unwrap_or_default()
    );
    ToolOutput::new(status, text)
}
