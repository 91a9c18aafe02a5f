//! The usage of a run by purpose.

use std::ops::Add;

use crate::machine::event::Event;
use crate::machine::run_context::{BudgetUsage, RunContext};
use crate::machine::state::StateKind;
use crate::types::{MicroUsd, Tokens, Usage};

/// The usage of a run by purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CostBreakdown {
    /// The task itself.
    pub agent: PricedUsage,
    /// The final summary after a limit.
    pub closing: PricedUsage,
    /// The summaries of older parts of the conversation.
    pub compaction: PricedUsage,
    /// Sub-agents.
    pub subagents: PricedUsage,
    /// The number of sub-agents' model calls that used anything.
    pub subagent_calls: u32,
}

/// The usage of model calls, with its price.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PricedUsage {
    /// The tokens; an estimate for calls without a reply.
    pub usage: Usage,
    /// The cost; zero if the model has no price.
    pub cost: MicroUsd,
}

impl PricedUsage {
    /// Returns the usage since `before`: as reported by the event, or estimated for a call without a reply.
    pub fn between(before: BudgetUsage, run: &RunContext, event: Option<&Event>) -> Self {
        let now = run.used;
        let (cost, tokens) =
            (now.cost.saturating_sub(before.cost), now.tokens.saturating_sub(before.tokens));
        let lost = |received: Tokens| {
            let output = received.min(tokens);
            Usage {
                input: tokens.saturating_sub(output),
                output,
                is_estimated: true,
                ..Usage::default()
            }
        };
        let usage = match event {
            Some(Event::UsageReported { usage, .. }) => *usage,
            Some(Event::Replied { reply, .. }) if reply.usage.total() == tokens => reply.usage,
            Some(_) | None => lost(run.received),
        };
        Self { usage, cost }
    }

    /// Returns the usage without a part of it.
    pub fn without(self, part: Self) -> Self {
        let (usage, less) = (self.usage, part.usage);
        let usage = Usage {
            input: usage.input.saturating_sub(less.input),
            output: usage.output.saturating_sub(less.output),
            cached_input: usage.cached_input.saturating_sub(less.cached_input),
            cache_write: usage.cache_write.saturating_sub(less.cache_write),
            reasoning: usage.reasoning.saturating_sub(less.reasoning),
            is_estimated: usage.is_estimated,
        };
        Self { usage, cost: self.cost.saturating_sub(part.cost) }
    }
}

impl Add for PricedUsage {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { usage: self.usage + other.usage, cost: self.cost + other.cost }
    }
}

impl CostBreakdown {
    /// Adds the usage of an event, or of a resume if there is no event. `met` is the kind and the usage of the previous
    /// state.
    pub fn add(&mut self, met: (StateKind, BudgetUsage), event: Option<&Event>, run: &RunContext) {
        let (kind, before) = met;
        // Only awaited events are charged.
        if before == run.used {
            return;
        }
        self.subagent_calls += u32::from(matches!(event, Some(Event::UsageReported { .. })));
        let charge = if matches!(event, Some(Event::UsageReported { .. })) {
            &mut self.subagents
        } else if matches!(kind, StateKind::CompactingSending | StateKind::CompactingWaiting) {
            &mut self.compaction
        } else if matches!(kind, StateKind::ClosingPreparing | StateKind::ClosingSending) {
            &mut self.closing
        } else {
            &mut self.agent
        };
        *charge = *charge + PricedUsage::between(before, run, event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::start;
    use crate::types::{
        ConversationItem, EffectId, Fault, FaultKind, MessageOrigin, Reply, ReplyFinish, RunRules,
    };

    /// Returns a run that has used ten tokens, and received four of a call without a reply.
    fn run() -> RunContext {
        let task = ConversationItem::user(MessageOrigin::Task, "task");
        let mut run = start(RunRules::default(), task).state.run().clone();
        run.used = BudgetUsage { cost: MicroUsd(5), tokens: Tokens(10) };
        run.received = Tokens(4);
        run
    }

    fn usage(input: u64, output: u64, is_estimated: bool) -> Usage {
        let (input, output) = (Tokens(input), Tokens(output));
        Usage { input, output, is_estimated, ..Usage::default() }
    }

    fn replied(usage: Usage) -> Event {
        let reply = Reply::text_only("text", ReplyFinish::Stop, usage);
        Event::Replied { id: EffectId(1), reply, access: [].into() }
    }

    fn reported() -> Event {
        Event::UsageReported { id: EffectId(1), usage: usage(1, 2, false), cost: MicroUsd(5) }
    }

    #[test]
    fn a_usage_is_what_was_reported_or_else_an_estimate() {
        let fault = Fault::new(FaultKind::Timeout, "late");
        let failed = Event::CallFailed { id: EffectId(1), fault };
        for (event, expected) in [
            (None, usage(6, 4, true)),
            (Some(failed), usage(6, 4, true)),
            (Some(replied(usage(8, 2, false))), usage(8, 2, false)),
            // The reply has other numbers than the charge.
            (Some(replied(usage(8, 3, false))), usage(6, 4, true)),
            (Some(reported()), usage(1, 2, false)),
        ] {
            let before = BudgetUsage::default();
            let between = PricedUsage::between(before, &run(), event.as_ref());
            assert_eq!(between, PricedUsage { usage: expected, cost: MicroUsd(5) });
        }
    }

    #[test]
    fn each_purpose_has_its_usage() {
        let mut costs = CostBreakdown::default();
        for kind in StateKind::ALL {
            costs.add((kind, BudgetUsage::default()), None, &run());
            costs.add((kind, run().used), None, &run());
        }
        let counts = [costs.compaction, costs.closing].map(|part| part.cost);
        assert_eq!(counts, [MicroUsd(10); 2]);
        let rest = MicroUsd(5 * (StateKind::ALL.len() as u64 - 4));
        assert_eq!((costs.agent.cost, costs.subagent_calls), (rest, 0));
        costs.add((StateKind::Executing, BudgetUsage::default()), Some(&reported()), &run());
        let subagents = PricedUsage { usage: usage(1, 2, false), cost: MicroUsd(5) };
        assert_eq!((costs.subagents, costs.subagent_calls), (subagents, 1));
        assert_eq!(costs.agent.cost, rest);
    }

    #[test]
    fn a_part_of_a_usage_is_taken_away() {
        let usage = |tokens: u64| Usage {
            input: Tokens(tokens),
            output: Tokens(2 * tokens),
            cached_input: Tokens(3 * tokens),
            cache_write: Tokens(4 * tokens),
            reasoning: Tokens(5 * tokens),
            is_estimated: true,
        };
        let priced = |tokens| PricedUsage { usage: usage(tokens), cost: MicroUsd(tokens) };
        assert_eq!(priced(3).without(priced(1)), priced(2));
    }
}
