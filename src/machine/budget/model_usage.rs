//! The usage of a run by model.

use std::sync::Arc;

use crate::machine::effect::CallPurpose;
use crate::machine::event::Event;
use crate::machine::state::State;
use crate::types::MicroUsd;

/// The calls of a model, and their cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelUsage {
    /// The name, as `provider/name`.
    pub model: Arc<str>,
    /// The number of its calls. Retries are not counted.
    pub calls: u32,
    /// Their cost; `None` if the model has no price.
    pub cost: Option<MicroUsd>,
}

impl ModelUsage {
    /// Adds calls and costs of a model to those of several models, which are in the order of their first calls.
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

    /// Adds the usage between two states of a run of this model: that of an event, or of a resume if there is no event.
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
            // The models of a sub-agent are unknown. It begins with the model of the run.
            Self::add(usages, main, u32::from(old.used != new.used), cost);
        } else {
            // The event ends a call of the previous state, and may begin one.
            Self::add(usages, &model(before), 0, cost);
            let calls = new.model_calls.saturating_sub(old.model_calls);
            Self::add(usages, &model(now), calls, new.rules.price.map(|_| MicroUsd::ZERO));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::start;
    use crate::types::{ConversationItem, EffectId, MessageOrigin, Price, RunRules, Tokens, Usage};

    #[test]
    fn each_model_has_its_calls_and_costs() {
        let [a, b]: [Arc<str>; 2] = ["a".into(), "b".into()];
        let mut usages = Vec::new();
        for (model, calls, cost) in [(&a, 0, 0), (&a, 1, 0), (&b, 0, 5), (&a, 2, 7)] {
            ModelUsage::add(&mut usages, model, calls, Some(MicroUsd(cost)));
        }
        let usage = |model, calls, cost| ModelUsage { model, calls, cost: Some(MicroUsd(cost)) };
        assert_eq!(usages, [usage(a, 3, 7), usage(b, 0, 5)]);
    }

    #[test]
    fn a_call_of_a_sub_agent_counts_if_it_used_anything() {
        let task = ConversationItem::user(MessageOrigin::Task, "task");
        let rules = RunRules { price: Some(Price::default()), ..RunRules::default() };
        let before = start(rules, task).state;
        let mut now = before.clone();
        let usages = |now: &State, event: Option<&Event>| {
            let mut usages = Vec::new();
            ModelUsage::add_between(&mut usages, &"main".into(), (&before, event, now));
            usages
                .into_iter()
                .map(|usage| (usage.calls, usage.cost.map_or(0, |cost| cost.0)))
                .collect::<Vec<_>>()
        };
        let (id, usage, cost) = (EffectId(1), Usage::default(), MicroUsd::ZERO);
        let report = Event::UsageReported { id, usage, cost };
        assert_eq!(usages(&now, Some(&report)), []);
        now.run_mut().used.tokens = Tokens(5);
        assert_eq!(usages(&now, Some(&report)), [(1, 0)]);
        (now.run_mut().used.cost, now.run_mut().model_calls) = (MicroUsd(3), 2);
        assert_eq!(usages(&now, Some(&report)), [(1, 3)]);
        assert_eq!(usages(&now, None), [(2, 3)]);
    }
}
