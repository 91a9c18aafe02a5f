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
    /// Summaries of older parts of the conversation.
    pub compaction: PricedUsage,
    /// Sub-agents.
    pub subagents: PricedUsage,
    /// Model calls of sub-agents that used anything.
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
    /// Returns the difference of two usages: as reported by the event, or estimated for a call without a reply.
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

    /// Returns what is left of a usage when a part of it is taken away.
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
    /// Adds the usage of an event, or of a resume if there is no event. `met` is the kind and the usage of the state before.
    pub fn add(&mut self, met: (StateKind, BudgetUsage), event: Option<&Event>, run: &RunContext) {
        let (kind, before) = met;
        // An event that isn't awaited isn't charged.
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
