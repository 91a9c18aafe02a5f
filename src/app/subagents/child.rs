//! One sub-agent at work.

use std::sync::Arc;

use super::crew::Crew;
use super::meter::{Meter, Seen};
use super::{Nesting, report};
use crate::app::error::AppError;
use crate::app::run::{Ended, Order, Stage};
use crate::app::session::Place;
use crate::app::setup::Setup;
use crate::app::staging::Rehearsal;
use crate::config::{Agent, LimitSettings};
use crate::journal::{Dispatcher, SessionId};
use crate::machine::Event;
use crate::model::{CallId, Signal, Span};
use crate::port::Scope;
use crate::runner::{Arrival, Hands, Inline, Ports, SystemClock, Threads};
use crate::tools::Output;
use crate::view::{Show, Source};

/// How long a sub-agent may work at the most.
pub(super) const LONGEST: Span = Span::secs(30 * 60);

/// Tools of a sub-agent that run at the same time at the most; its rules may allow less.
const PARALLEL: u32 = 4;

/// What a sub-agent is sent for.
pub(super) struct Errand<'a> {
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
pub(super) fn run(crew: &Crew, errand: Errand<'_>, scope: &Scope) -> Output {
    let Errand { agent, task, session, call } = errand;
    let name = agent.name.clone();
    let setup = within(&crew.setup, agent, scope);
    let order = Order {
        task: Some(task),
        place: match &crew.store {
            Some(store) => {
                let dispatcher = Dispatcher { session: crew.session, call: call.clone() };
                Place::Dispatched(store.clone(), session, dispatcher)
            }
            None => Place::Nowhere,
        },
        options: crew.options.clone(),
        source: Source::Subagent,
        exit_on_partial: None,
    };
    let seen = Seen::default();
    let meter = Meter::new(scope.clone(), name.as_str().into(), seen.clone());
    let ended = match crew.nesting {
        Nesting::Live => {
            let hands = Threads::new(Arc::new(SystemClock::start()), PARALLEL);
            let inbox = hands.inbox();
            let interrupt = Event::Interrupt { signal: Signal::Interrupt };
            let _listening = scope.cancel.on_cancel(move || inbox.post(Arrival::Event(interrupt)));
            drive(crew, &setup, order, hands, meter)
        }
        Nesting::Rehearsed => {
            let hands = Inline::new();
            let clock = hands.clock();
            let ended = drive(crew, &setup, order, hands, meter);
            // The time of the run passes for whoever waits for it.
            scope.sleep(Span(clock.now().0));
            ended
        }
    };
    report::of(&name, ended, seen.changes())
}

fn drive<H: Hands>(
    crew: &Crew,
    setup: &Setup,
    order: Order,
    hands: H,
    meter: Meter,
) -> Result<Ended, AppError> {
    // Who watches the dispatching run is told of this one through the meter alone.
    let stage =
        Stage { show: Show::new(Vec::new()), confirm: Arc::clone(&crew.confirm), sandbox: None };
    let rehearsal = Rehearsal {
        hands,
        model: Box::new(|model| model),
        ports: Box::new(|ports| Ports { observer: Box::new(meter), ..ports }),
        nesting: crew.nesting,
    };
    setup.drive(order, stage, rehearsal, Some(crew.shared.clone()))
}

/// Returns the set-up of an agent that works within what is set aside for it. Gates are for who answers the user.
fn within(setup: &Setup, agent: Agent, scope: &Scope) -> Setup {
    let mut config = setup.config.clone();
    let limits = &mut config.settings.limits;
    let allowance = scope.allowance;
    let time = allowance.and_then(|allowance| allowance.time);
    *limits = LimitSettings {
        budget_usd: allowance.and_then(|allowance| allowance.cost).or(limits.budget_usd),
        max_tokens: allowance.and_then(|allowance| allowance.tokens).or(limits.max_tokens),
        timeout: Some(time.map_or(LONGEST, |time| time.min(LONGEST))),
        warn_at_usd: None,
        ..limits.clone()
    };
    config.settings.guardrails.quality_gates.clear();
    setup.configured(config).acting_as(agent)
}
