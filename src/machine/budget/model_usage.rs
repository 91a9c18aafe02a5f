//! The usage of a run by model.

use std::sync::Arc;

use crate::machine::effect::CallPurpose;
use crate::machine::event::Event;
use crate::machine::state::State;
use crate::types::MicroUsd;

/// The calls of a model, and what they cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelUsage {
    /// The name, as `provider/name`.
    pub model: Arc<str>,
    /// Its calls, each counted once with its retries.
    pub calls: u32,
    /// Their cost; `None` if the model has no price.
    pub cost: Option<MicroUsd>,
}

impl ModelUsage {
    /// Adds calls and costs of a model to those of several, which are in the order of their first calls.
    pub fn add(usages: &mut Vec<Self>, model: &Arc<str>, calls: u32, cost: Option<MicroUsd>) {
        if calls == 0 && cost.unwrap_or_default() == MicroUsd::ZERO {
            return;
        }
        if let Some(usage) = usages.iter_mut().find(|usage| usage.model == *model) {
            usage.calls += calls;
            let costs = [usage.cost, cost].into_iter().flatten();
            usage.cost = costs.reduce(|sum, cost| sum + cost);
        } else {
            usages.push(Self { model: Arc::clone(model), calls, cost });
        }
    }

    /// Adds what an event, or a resume if there is none, has used between two states of a run of this model.
    pub fn add_between(
        usages: &mut Vec<Self>,
        main: &Arc<str>,
        (before, event, now): (&State, Option<&Event>, &State),
    ) {
        let model = |state: &State| {
            let purpose = match state {
                State::Compacting(_) => CallPurpose::Compaction,
                State::Closing(_) => CallPurpose::Closing,
                State::Preparing(_) | State::Calling(_) | State::Executing(_) | State::Done(_) => {
                    CallPurpose::Agent
                }
            };
            Arc::clone(state.run().called_model(purpose).unwrap_or(main))
        };
        let (old, new) = (before.run(), now.run());
        let cost = old.rules.price.map(|_| new.used.cost.saturating_sub(old.used.cost));
        if matches!(event, Some(Event::UsageReported { .. })) {
            // The models of a sub-agent are not known; it begins with that of the run.
            Self::add(usages, main, u32::from(old.used != new.used), cost);
        } else {
            // The event ends a call of the state before, and may begin one.
            Self::add(usages, &model(before), 0, cost);
            let calls = new.model_calls.saturating_sub(old.model_calls);
            Self::add(usages, &model(now), calls, new.rules.price.map(|_| MicroUsd::ZERO));
        }
    }
}
