//! One sub-agent at work.

use std::sync::Arc;

use super::report;
use super::subagent_context::SubagentContext;
use super::usage_meter::{ObservedChanges, UsageMeter};
use crate::app::environment::{Environment, SubagentClock};
use crate::app::error::AppError;
use crate::app::run::{FinishedRun, RunIo, RunRequest};
use crate::app::run_setup::RunSetup;
use crate::app::session::SessionTarget;
use crate::config::{AgentDefinition, LimitsConfig};
use crate::journal::{ParentCall, SessionId};
use crate::machine::Event;
use crate::model::{CallId, Signal, TimeSpan};
use crate::port::EffectContext;
use crate::runner::{DriverInput, Executor, InlineExecutor, Ports, SystemClock, ThreadExecutor};
use crate::tools::ToolOutput;
use crate::view::{CostSource, Reporter};

/// How long a sub-agent may work at the most.
pub(super) const MAX_RUN_TIME: TimeSpan = TimeSpan::from_secs(30 * 60);

/// Tools of a sub-agent that run at the same time at the most; its rules may allow less.
const MAX_PARALLEL_TOOLS: u32 = 4;

/// The task of a sub-agent.
pub(super) struct SubagentTask<'a> {
    /// The agent.
    pub(super) agent: AgentDefinition,
    /// What it is to do.
    pub(super) task: Arc<str>,
    /// The session of its run.
    pub(super) session: SessionId,
    /// The call that dispatches it.
    pub(super) call: &'a CallId,
}

/// Runs a sub-agent to its end, and returns the result of the call.
pub(super) fn run_subagent(
    subagents: &SubagentContext,
    run: SubagentTask<'_>,
    scope: &EffectContext,
) -> ToolOutput {
    let SubagentTask { agent, task, session, call } = run;
    let name = agent.name.clone();
    let setup = limited_setup(&subagents.setup, agent, scope);
    let request = RunRequest {
        task: Some(task),
        target: match &subagents.store {
            Some(store) => {
                let dispatcher = ParentCall { session: subagents.session, call: call.clone() };
                SessionTarget::Child(store.clone(), session, dispatcher)
            }
            None => SessionTarget::Ephemeral,
        },
        options: subagents.options.clone(),
        source: CostSource::Subagent,
        exit_on_partial: None,
    };
    let seen = ObservedChanges::default();
    let meter = UsageMeter::new(scope.clone(), name.as_str().into(), seen.clone());
    let ended = match subagents.clock {
        SubagentClock::Real => {
            let executor = ThreadExecutor::new(Arc::new(SystemClock::start()), MAX_PARALLEL_TOOLS);
            let inbox = executor.inbox();
            let interrupt = Event::Interrupt { signal: Signal::Interrupt };
            let _listening =
                scope.cancel.on_cancel(move || inbox.send(DriverInput::Event(interrupt)));
            drive(subagents, &setup, request, executor, meter)
        }
        SubagentClock::Simulated => {
            let executor = InlineExecutor::new();
            let clock = executor.clock();
            let ended = drive(subagents, &setup, request, executor, meter);
            // The time of the run passes for the call that waits for it.
            scope.sleep(TimeSpan(clock.now().0));
            ended
        }
    };
    report::output_of(&name, ended, seen.to_vec())
}

fn drive(
    subagents: &SubagentContext,
    setup: &RunSetup,
    request: RunRequest,
    executor: impl Executor + 'static,
    meter: UsageMeter,
) -> Result<FinishedRun, AppError> {
    // The observers of the dispatching run see this one through the meter alone.
    let io = RunIo {
        reporter: Reporter::new(Vec::new()),
        confirm: Arc::clone(&subagents.confirm),
        sandbox: None,
    };
    let environment = Environment::Custom {
        executor: Box::new(executor),
        subagent_clock: subagents.clock,
        ports: Box::new(|ports| Ports { observer: Box::new(meter), ..ports }),
    };
    setup.drive(environment, request, io, Some(subagents.shared.clone()))
}

/// Returns the set-up of an agent that works within what is set aside for it. Gates are for who answers the user.
fn limited_setup(setup: &RunSetup, agent: AgentDefinition, scope: &EffectContext) -> RunSetup {
    let mut config = setup.config.clone();
    let limits = &mut config.settings.limits;
    let share = scope.budget;
    let time = share.and_then(|share| share.time);
    *limits = LimitsConfig {
        budget_usd: share.and_then(|share| share.cost).or(limits.budget_usd),
        max_tokens: share.and_then(|share| share.tokens).or(limits.max_tokens),
        timeout: Some(time.map_or(MAX_RUN_TIME, |time| time.min(MAX_RUN_TIME))),
        warn_at_usd: None,
        ..limits.clone()
    };
    config.settings.guardrails.quality_gates.clear();
    setup.with_config(config).with_agent(agent)
}
