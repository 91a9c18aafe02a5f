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
use crate::config::{Agent, LimitsConfig};
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

/// What a sub-agent is sent for.
pub(super) struct SubagentTask<'a> {
    /// Who is sent.
    pub(super) agent: Agent,
    /// What it is to do.
    pub(super) task: Arc<str>,
    /// The session of its run.
    pub(super) session: SessionId,
    /// The call that sends it.
    pub(super) call: &'a CallId,
}

/// Lets a sub-agent work to its end, and returns what is told of it.
pub(super) fn run_subagent(
    crew: &SubagentContext,
    errand: SubagentTask<'_>,
    scope: &EffectContext,
) -> ToolOutput {
    let SubagentTask { agent, task, session, call } = errand;
    let name = agent.name.clone();
    let setup = limited_setup(&crew.setup, agent, scope);
    let order = RunRequest {
        task: Some(task),
        target: match &crew.store {
            Some(store) => {
                let dispatcher = ParentCall { session: crew.session, call: call.clone() };
                SessionTarget::Child(store.clone(), session, dispatcher)
            }
            None => SessionTarget::Ephemeral,
        },
        options: crew.options.clone(),
        source: CostSource::Subagent,
        exit_on_partial: None,
    };
    let seen = ObservedChanges::default();
    let meter = UsageMeter::new(scope.clone(), name.as_str().into(), seen.clone());
    let ended = match crew.clock {
        SubagentClock::Real => {
            let hands = ThreadExecutor::new(Arc::new(SystemClock::start()), MAX_PARALLEL_TOOLS);
            let inbox = hands.inbox();
            let interrupt = Event::Interrupt { signal: Signal::Interrupt };
            let _listening =
                scope.cancel.on_cancel(move || inbox.send(DriverInput::Event(interrupt)));
            drive(crew, &setup, order, hands, meter)
        }
        SubagentClock::Simulated => {
            let hands = InlineExecutor::new();
            let clock = hands.clock();
            let ended = drive(crew, &setup, order, hands, meter);
            // The time of the run passes for whoever waits for it.
            scope.sleep(TimeSpan(clock.now().0));
            ended
        }
    };
    report::output_of(&name, ended, seen.to_vec())
}

fn drive(
    crew: &SubagentContext,
    setup: &RunSetup,
    order: RunRequest,
    executor: impl Executor + 'static,
    meter: UsageMeter,
) -> Result<FinishedRun, AppError> {
    // Who watches the dispatching run is told of this one through the meter alone.
    let stage = RunIo {
        reporter: Reporter::new(Vec::new()),
        confirm: Arc::clone(&crew.confirm),
        sandbox: None,
    };
    let environment = Environment::Custom {
        executor: Box::new(executor),
        subagent_clock: crew.clock,
        ports: Box::new(|ports| Ports { observer: Box::new(meter), ..ports }),
    };
    setup.drive(environment, order, stage, Some(crew.shared.clone()))
}

/// Returns the set-up of an agent that works within what is set aside for it. Gates are for who answers the user.
fn limited_setup(setup: &RunSetup, agent: Agent, scope: &EffectContext) -> RunSetup {
    let mut config = setup.config.clone();
    let limits = &mut config.settings.limits;
    let allowance = scope.budget;
    let time = allowance.and_then(|allowance| allowance.time);
    *limits = LimitsConfig {
        budget_usd: allowance.and_then(|allowance| allowance.cost).or(limits.budget_usd),
        max_tokens: allowance.and_then(|allowance| allowance.tokens).or(limits.max_tokens),
        timeout: Some(time.map_or(MAX_RUN_TIME, |time| time.min(MAX_RUN_TIME))),
        warn_at_usd: None,
        ..limits.clone()
    };
    config.settings.guardrails.quality_gates.clear();
    setup.with_config(config).with_agent(agent)
}
