//! Performing effects: one call of a port per effect.

use std::sync::{Arc, Mutex};

use super::driver::{Driver, PendingCall, PendingTiming};
use super::executor::{DriverInput, EffectTask, InputSink, TaskThread};
use crate::machine::{BudgetShare, CallIntent, CallPurpose, CheckResult, Effect, Event};
use crate::port::{
    AuthorizationOutcome, CallTiming, CancellationToken, EffectContext, JournalRecord, StoreError,
    lock,
};
use crate::types::{
    EffectId, Fault, FaultKind, Tokens, ToolCall, ToolResult, ToolStatus, UserMessage,
};

impl Driver {
    /// Returns whether the events before an effect must be durable before it starts.
    pub(super) fn needs_durable_journal(&self, effect: &Effect) -> bool {
        match effect {
            Effect::CallModel { .. } | Effect::CheckAnswer { .. } | Effect::End => true,
            Effect::Authorize { .. } => self.ports.tools.is_authorization_visible(),
            Effect::Prepare { purpose, .. } => self.ports.pre_call_hooks.applies(*purpose),
            // A call that changes nothing may run again after a crash.
            Effect::RunTool { call, .. } => {
                self.approved.get(&call.id).is_none_or(|call| call.intent != CallIntent::ReadOnly)
            }
            Effect::Cancel { .. } => false,
        }
    }

    /// Performs an effect, unless it isn't pending any more.
    pub(super) fn perform_effect(&mut self, effect: Effect) {
        match effect {
            Effect::Cancel { id } => {
                if let Err(error) = self.cancel(id) {
                    self.local_events.push_back(Event::StoreFailed { error: error.0 });
                }
            }
            Effect::End => {}
            Effect::RunTool { id, command, .. } if !self.is_pending(id) => {
                // A command that was not started counts as ended.
                self.local_events.extend(command.map(|id| Event::CommandEnded { id }));
            }
            Effect::Prepare { id, .. }
            | Effect::CallModel { id, .. }
            | Effect::Authorize { id, .. }
            | Effect::CheckAnswer { id, .. }
                if !self.is_pending(id) => {}
            Effect::Prepare { id, purpose } => self.prepare(id, purpose),
            Effect::CallModel { id, purpose, attempt, max_output } => {
                self.call_model(id, purpose, attempt, max_output);
            }
            Effect::Authorize { id, call } => self.authorize(id, call),
            Effect::RunTool { id, call, budget, command } => {
                self.run_tool(id, call, budget.map(|budget| *budget), command);
            }
            Effect::CheckAnswer { id, answer } => self.check_answer(id, answer),
        }
    }

    fn is_pending(&self, id: EffectId) -> bool {
        self.machine.state.pending_effects().contains(&id)
    }

    fn prepare(&mut self, id: EffectId, purpose: CallPurpose) {
        let messages = match purpose {
            CallPurpose::Agent => self.ports.messages.take_messages(),
            CallPurpose::Compaction | CallPurpose::Closing => Vec::new(),
        };
        if self.ports.pre_call_hooks.applies(purpose) {
            return self.run_pre_call_hooks(id, purpose, messages);
        }
        let event = self.prepared_event(id, messages);
        self.local_events.push_back(event);
    }

    /// Runs the hooks before a call. If they fail, the user's messages are still delivered.
    fn run_pre_call_hooks(
        &mut self,
        id: EffectId,
        purpose: CallPurpose,
        messages: Vec<UserMessage>,
    ) {
        let hooks = Arc::clone(&self.ports.pre_call_hooks);
        let rest = messages.clone();
        self.start_task(
            id,
            TaskThread::Dedicated,
            move |scope, _| {
                let messages = messages.into_iter().chain(hooks.run(purpose, scope)).collect();
                DriverInput::PreCallHooksRun { id, messages }
            },
            move |_| DriverInput::PreCallHooksRun { id, messages: rest },
        );
    }

    fn call_model(
        &mut self,
        id: EffectId,
        purpose: CallPurpose,
        attempt: u32,
        max_output: Option<Tokens>,
    ) {
        self.partial_text.clear();
        let asked = self.clock.now();
        let (model, context) = (&mut self.ports.model, &self.request_context);
        let (call, size) =
            context.with_request(&self.machine, (purpose, attempt, max_output), |request, size| {
                (model.prepare(request), size)
            });
        let call = match call {
            Ok(call) => call,
            Err(fault) => return self.local_events.push_back(Event::CallFailed { id, fault }),
        };
        let window = self.machine.state.run().rules.context.window;
        if size > window {
            let message = format!(
                "the request has about {} tokens, more than the context window of {}; it was not sent",
                size.0, window.0
            );
            let fault = Fault::new(FaultKind::Overflow, message);
            return self.local_events.push_back(Event::CallFailed { id, fault });
        }
        let ready = self.clock.now();
        let request = call.request_digest();
        let times = CallTiming { encode: ready.since(asked), request, ..CallTiming::default() };
        self.timing =
            Some(PendingTiming { id, received_bytes: 0, encoded_at: ready, timing: times });
        let tools = Arc::clone(&self.ports.tools);
        self.start_task(
            id,
            TaskThread::Dedicated,
            move |scope, send| {
                let mut sink = |delta| send(DriverInput::ReplyDelta { id, delta });
                match call.run(scope, &mut sink) {
                    Ok(reply) => {
                        let mut calls: Vec<_> =
                            reply.calls().map(|call| tools.prepare(call)).collect();
                        let access = calls.iter_mut().map(|call| call.access()).collect();
                        DriverInput::Replied { id, reply, access, calls }
                    }
                    Err(fault) => DriverInput::Event(Event::CallFailed { id, fault }),
                }
            },
            move |why| {
                DriverInput::Event(Event::CallFailed {
                    id,
                    fault: Fault::new(FaultKind::Connect, why),
                })
            },
        );
    }

    fn authorize(&mut self, id: EffectId, call: ToolCall) {
        let prepared = self.prepared.remove(&call.id);
        let tools = Arc::clone(&self.ports.tools);
        let lost = call.id.clone();
        self.start_task(
            id,
            TaskThread::Pool,
            move |scope, _| {
                let prepared = prepared.unwrap_or_else(|| tools.prepare(&call));
                let outcome = tools.authorize(&call, prepared, scope);
                DriverInput::Authorized { id, call: call.id, outcome }
            },
            move |why| {
                let result = ToolResult::new(lost.clone(), ToolStatus::Failed, why);
                DriverInput::Authorized {
                    id,
                    call: lost,
                    outcome: AuthorizationOutcome::Rejected(result),
                }
            },
        );
    }

    fn run_tool(
        &mut self,
        id: EffectId,
        call: ToolCall,
        budget: Option<BudgetShare>,
        command: Option<EffectId>,
    ) {
        let lost = call.id.clone();
        let Some(PendingCall { call: job, .. }) = self.approved.remove(&call.id) else {
            let text = "internal error: the call was approved, but there is nothing to run";
            let result = ToolResult::new(call.id, ToolStatus::Failed, text);
            self.local_events.extend(command.map(|id| Event::CommandEnded { id }));
            return self.local_events.push_back(Event::ToolCompleted { id, result });
        };
        let clock = Arc::clone(&self.clock);
        let command = command.map(|id| {
            let cancel = CancellationToken::new();
            self.cancellations.insert(id, cancel.clone());
            (id, cancel)
        });
        // The task takes it once it runs, and then reports the end of the command.
        let command = Arc::new(Mutex::new(command));
        let unstarted = Arc::clone(&command);
        self.start_task(
            id,
            TaskThread::Pool,
            move |scope, _| {
                let begun = clock.now();
                let scope = scope.clone().with_budget(budget);
                let command = lock(&command).take();
                let scope = match command {
                    Some((id, cancel)) => scope.with_command(id, cancel),
                    None => scope,
                };
                let mut result = job(&scope);
                result.duration = clock.now().since(begun);
                DriverInput::Event(Event::ToolCompleted { id, result })
            },
            move |why| {
                let result = ToolResult::new(lost, ToolStatus::Failed, why);
                let command = lock(&unstarted).take().map(|(id, _)| id);
                DriverInput::ToolLost { id, result, command }
            },
        );
    }

    /// Checks an answer. If it passes, a queued follow-up message comes before the end. A message beyond the limit
    /// stays in the queue, for a resume of the session.
    fn check_answer(&mut self, id: EffectId, answer: Arc<str>) {
        let follow_up = match self.machine.state.run().can_take_follow_up() {
            true => self.ports.messages.take_follow_up(),
            false => None,
        };
        let checks = Arc::clone(&self.ports.checks);
        self.start_task(
            id,
            TaskThread::Dedicated,
            move |scope, _| {
                let check = match (checks.check(&answer, scope), follow_up) {
                    (CheckResult::Passed, Some(message)) => CheckResult::FollowUp { message },
                    (check, _) => check,
                };
                DriverInput::Event(Event::Checked { id, result: check })
            },
            move |why| DriverInput::Event(Event::InternalError { error: why.into() }),
        );
    }

    /// Cancels an effect, and writes the part of a reply that has arrived.
    pub(super) fn cancel(&mut self, id: EffectId) -> Result<(), StoreError> {
        if let Some(token) = self.cancellations.remove(&id) {
            token.cancel();
        }
        let text = std::mem::take(&mut self.partial_text);
        if self.take_timing(id).is_some() && !text.is_empty() {
            let at = self.clock.now();
            return self.write(at, JournalRecord::Partial { id, text: &text });
        }
        Ok(())
    }

    fn start_task(
        &mut self,
        id: EffectId,
        thread: TaskThread,
        run: impl FnOnce(&EffectContext, &InputSink<'_>) -> DriverInput + Send + 'static,
        lost: impl FnOnce(&str) -> DriverInput + Send + 'static,
    ) {
        let cancel = CancellationToken::new();
        self.cancellations.insert(id, cancel.clone());
        self.executor.start(EffectTask {
            id,
            thread,
            cancel,
            run: Box::new(run),
            on_failure: Box::new(lost),
        });
    }
}
