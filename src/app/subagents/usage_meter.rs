//! Observes a sub-agent: its usage is charged to the dispatching run at once, and its calls are reported as they happen.

use std::sync::{Arc, Mutex, PoisonError};

use crate::machine::{Authorization, BudgetUsage, Effect, Event, PricedUsage};
use crate::model::FileChange;
use crate::port::{self, Disconnected, EffectContext, EffectMessage, EffectNotice, Observer};

/// Watches the run of a sub-agent.
pub(super) struct UsageMeter {
    scope: EffectContext,
    agent: Arc<str>,
    reported: BudgetUsage,
    changes: ObservedChanges,
}

/// What was seen of a sub-agent's work.
#[derive(Clone, Default)]
pub(super) struct ObservedChanges(Arc<Mutex<Vec<FileChange>>>);

impl ObservedChanges {
    /// Returns the files that were changed, in order.
    pub(super) fn to_vec(&self) -> Vec<FileChange> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl UsageMeter {
    /// Returns a meter that reports to the dispatching call.
    pub(super) fn new(scope: EffectContext, agent: Arc<str>, seen: ObservedChanges) -> Self {
        Self { scope, agent, reported: BudgetUsage::default(), changes: seen }
    }

    fn report_usage(&mut self, event: &Event, now: BudgetUsage) {
        let before = std::mem::replace(&mut self.reported, now);
        if now != before {
            let PricedUsage { usage, cost } = PricedUsage::between(before, now, Some(event));
            self.scope.send(EffectMessage::UsageReported(usage, cost));
        }
    }
}

impl Observer for UsageMeter {
    fn on_event(&mut self, seen: &port::RunEvent<'_>) -> Result<(), Disconnected> {
        let port::RunEvent::Handled { event, machine: fold, output: outcomes, .. } = seen else {
            return Ok(());
        };
        let run = fold.state.run();
        self.report_usage(event, run.used);
        if let Event::ToolCompleted { result, .. } = event {
            let mut changes = self.changes.0.lock().unwrap_or_else(PoisonError::into_inner);
            changes.extend(result.changes.iter().cloned());
        }
        if let Event::Authorized { authorization: Authorization::Abort, .. } = event {
            // The user, when asked, sees one run, and ends all of it.
            self.scope.send(EffectMessage::Abort);
        }
        for effect in &outcomes.effects {
            if let Effect::RunTool { call, .. } = effect {
                let text = format!("{} · {} · {}", self.agent, run.steps, call.name);
                self.scope.notify(EffectNotice::Progress { text: text.into() });
            }
        }
        Ok(())
    }
}
