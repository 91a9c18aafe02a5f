//! Observation of a sub-agent: its usage is charged to the dispatching run at once, and its calls are reported as they
//! happen, including denied ones.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::machine::{Authorization, BudgetUsage, Effect, Event, PricedUsage, RunContext};
use crate::port::{
    self, Disconnected, EffectContext, EffectMessage, EffectNotice, Observer, SubagentDenial,
};
use crate::tools::CallContext;
use crate::types::{CallId, EffectId, FileChange, ToolCall, ToolStatus};

/// Observes the run of a sub-agent.
pub(super) struct UsageMeter {
    scope: EffectContext,
    /// The call that dispatched the sub-agent.
    dispatched_by: CallId,
    agent: Arc<str>,
    /// The calls that are being authorized or run.
    open_calls: HashMap<EffectId, ToolCall>,
    reported: BudgetUsage,
    changes: ObservedChanges,
    /// Another observer of the run.
    next: Option<Box<dyn Observer>>,
}

/// The files that a sub-agent has changed, in order.
pub(super) type ObservedChanges = Arc<Mutex<Vec<FileChange>>>;

impl UsageMeter {
    /// Returns a meter that reports to the dispatching call. The usage in `reported` was already reported, by an earlier
    /// run of the same session.
    pub(super) fn new(
        context: &CallContext<'_>,
        agent: Arc<str>,
        reported: BudgetUsage,
        changes: ObservedChanges,
    ) -> Self {
        Self {
            scope: context.scope.clone(),
            dispatched_by: context.call.clone(),
            agent,
            open_calls: HashMap::new(),
            reported,
            changes,
            next: None,
        }
    }

    /// Returns the meter with another observer of the run.
    pub(super) fn with_observer(self, next: Option<Box<dyn Observer>>) -> Self {
        Self { next, ..self }
    }

    fn report_usage(&mut self, event: &Event, run: &RunContext) {
        let before = std::mem::replace(&mut self.reported, run.used);
        if run.used != before {
            let PricedUsage { usage, cost } = PricedUsage::between(before, run, Some(event));
            self.scope.send(EffectMessage::UsageReported(usage, cost));
        }
    }

    fn report_denied_call(&mut self, event: &Event) {
        let (Event::Authorized { id, .. } | Event::ToolCompleted { id, .. }) = event else {
            return;
        };
        let Some(call) = self.open_calls.remove(id) else { return };
        if let Event::Authorized { authorization: Authorization::Rejected { result }, .. }
        | Event::ToolCompleted { result, .. } = event
            && result.status == ToolStatus::Denied
        {
            self.scope.notify(EffectNotice::SubagentDenied(SubagentDenial {
                dispatched_by: self.dispatched_by.clone(),
                agent: Arc::clone(&self.agent),
                call,
                reason: Arc::clone(&result.text),
            }));
        }
    }

    fn add_open_calls(&mut self, effects: &[Effect]) {
        for effect in effects {
            if let Effect::Authorize { id, call } | Effect::RunTool { id, call, .. } = effect {
                self.open_calls.insert(*id, call.clone());
            }
        }
    }
}

impl Observer for UsageMeter {
    fn on_event(&mut self, seen: &port::RunEvent<'_>) -> Result<(), Disconnected> {
        if let Some(next) = &mut self.next {
            next.on_event(seen)?;
        }
        if let port::RunEvent::Started { output, .. } = seen {
            self.add_open_calls(&output.effects);
        }
        let port::RunEvent::Handled { event, machine, output, .. } = seen else {
            return Ok(());
        };
        self.report_denied_call(event);
        self.add_open_calls(&output.effects);
        let run = machine.state.run();
        self.report_usage(event, run);
        if let Event::ToolCompleted { result, .. } = event {
            let mut changes = port::lock(&self.changes);
            changes.extend(result.changes.iter().cloned());
        }
        if let Event::Authorized { authorization: Authorization::Abort, .. } = event {
            // The user sees one run, and an answer that aborts it ends all of it.
            self.scope.send(EffectMessage::Abort);
        }
        for effect in &output.effects {
            if let Effect::RunTool { call, .. } = effect {
                let text = format!("{} · {} · {}", self.agent, run.steps, call.name);
                self.scope.notify(EffectNotice::Progress { text: text.into() });
            }
        }
        Ok(())
    }
}
