//! One sub-agent at work.

use std::sync::{Arc, PoisonError};

use super::dispatch::DispatchCall;
use super::report;
use super::usage_meter::{ObservedChanges, UsageMeter};
use crate::app::environment::{Environment, SubagentClock};
use crate::app::run::{RunIo, RunRequest};
use crate::app::run_setup::RunSetup;
use crate::app::session::SessionTarget;
use crate::config::{AgentDefinition, LimitsConfig};
use crate::journal::ParentCall;
use crate::machine::Event;
use crate::model::{Signal, TimeSpan};
use crate::port::EffectContext;
use crate::runner::{DriverInput, Executor, InlineExecutor, Ports, SystemClock, ThreadExecutor};
use crate::tools::{CallContext, ToolOutput};
use crate::view::{CostSource, Reporter};

/// How long a sub-agent may work at the most.
pub(super) const MAX_RUN_TIME: TimeSpan = TimeSpan::from_secs(30 * 60);

/// Tools of a sub-agent that run at the same time at the most; its rules may allow less.
const MAX_PARALLEL_TOOLS: u32 = 4;

/// Runs a sub-agent to its end, and returns the result of the call.
pub(super) fn run_subagent(dispatched: DispatchCall, context: &CallContext<'_>) -> ToolOutput {
    let DispatchCall { subagents, agent, task, session } = dispatched;
    let scope = context.scope;
    let name = agent.name.clone();
    let setup = limited_setup(&subagents.setup, agent, scope);
    let target = match &subagents.store {
        Some(store) => {
            let dispatcher = ParentCall { session: subagents.session, call: context.call.clone() };
            SessionTarget::Child(store.clone(), session, dispatcher)
        }
        None => SessionTarget::Ephemeral,
    };
    let options = subagents.options.clone();
    let request = RunRequest { options, ..RunRequest::new(task, target, CostSource::Subagent) };
    let changes = ObservedChanges::default();
    let meter = UsageMeter::new(scope.clone(), name.as_str().into(), Arc::clone(&changes));
    let drive = |executor: Box<dyn Executor>| {
        // The observers of the dispatching run see this one through the meter alone.
        let reporter = Reporter::new(Vec::new());
        let io = RunIo { reporter, confirm: Arc::clone(&subagents.confirm), sandbox: None };
        let environment = Environment {
            executor,
            subagent_clock: subagents.clock,
            ports: Box::new(|ports| Ports { observer: Box::new(meter), ..ports }),
        };
        setup.drive(Some(environment), request, io, Some(subagents.shared.clone()))
    };
    let ended = match subagents.clock {
        SubagentClock::Real => {
            let executor = ThreadExecutor::new(Arc::new(SystemClock::start()), MAX_PARALLEL_TOOLS);
            let inbox = executor.inbox();
            let interrupt = Event::Interrupt { signal: Signal::Interrupt };
            let _listening =
                scope.cancel.on_cancel(move || inbox.send(DriverInput::Event(interrupt)));
            drive(Box::new(executor))
        }
        SubagentClock::Simulated => {
            let executor = InlineExecutor::new();
            let clock = executor.clock();
            let ended = drive(Box::new(executor));
            // The time of the run passes for the call that waits for it.
            scope.sleep(TimeSpan(clock.now().0));
            ended
        }
    };
    let changes = changes.lock().unwrap_or_else(PoisonError::into_inner).clone();
    report::output_of(&name, ended, changes)
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
