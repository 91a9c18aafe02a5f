//! What a run has used so far, by what it was used for.

use crate::machine::event::Event;
use crate::machine::run_context::BudgetUsage;
use crate::machine::state::StateKind;
use crate::model::{MicroUsd, Tokens, Usage};

/// What a run has used so far, by what it was used for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CostBreakdown {
    /// The task itself.
    pub agent: PricedUsage,
    /// The last word after a watchdog.
    pub closing: PricedUsage,
    /// Summaries of older parts of the conversation.
    pub compaction: PricedUsage,
    /// The runs within the run.
    pub subagents: PricedUsage,
    /// Model calls of the runs within the run, as far as they used anything.
    pub subagent_calls: u32,
}

/// What model calls used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PricedUsage {
    /// Tokens; of calls that were lost, an estimate.
    pub usage: Usage,
    /// Money; nothing when the model has no price.
    pub cost: MicroUsd,
}

impl PricedUsage {
    /// Returns what was charged between two accounts: what was told of it, or what is estimated for a call that was lost.
    pub fn between(before: BudgetUsage, now: BudgetUsage, event: Option<&Event>) -> Self {
        let (cost, tokens) =
            (now.cost.saturating_sub(before.cost), now.tokens.saturating_sub(before.tokens));
        let lost = |heard: Tokens| {
            let output = heard.min(tokens);
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
            Some(Event::CallFailed { fault, .. }) => lost(fault.received),
            Some(_) | None => lost(Tokens::ZERO),
        };
        Self { usage, cost }
    }
}

impl CostBreakdown {
    /// Takes in what an event has charged, or what the run has when it went on; `met` is the state that this came to,
    /// with its account.
    pub fn add(&mut self, met: (StateKind, BudgetUsage), event: Option<&Event>, now: BudgetUsage) {
        let (kind, before) = met;
        // What comes too late is not charged.
        if before == now {
            return;
        }
        let PricedUsage { usage, cost } = PricedUsage::between(before, now, event);
        self.subagent_calls += u32::from(matches!(event, Some(Event::UsageReported { .. })));
        let charge = match event {
            Some(Event::UsageReported { .. }) => &mut self.subagents,
            Some(_) | None => self.entry_for(kind),
        };
        *charge = PricedUsage { usage: charge.usage + usage, cost: charge.cost + cost };
    }

    fn entry_for(&mut self, kind: StateKind) -> &mut PricedUsage {
        match kind {
            StateKind::CompactingSending | StateKind::CompactingWaiting => &mut self.compaction,
            StateKind::ClosingPreparing | StateKind::ClosingSending => &mut self.closing,
            StateKind::Preparing
            | StateKind::CallingSending
            | StateKind::CallingWaiting
            | StateKind::CallingChecking
            | StateKind::Executing
            | StateKind::Done => &mut self.agent,
        }
    }
}
