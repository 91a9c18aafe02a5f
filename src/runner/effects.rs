//! What each effect means: a call of a port, an arm for each.

use std::sync::Arc;

use super::driver::{Cleared, Driver, Timing};
use super::hands::{Arrival, Hands, Lane, Post, Work};
use crate::machine::{Allowance, Check, Effect, Event, Intent, Purpose};
use crate::model::{
    Access, EffectId, Fault, FaultKind, Reply, Tokens, ToolCall, ToolResult, ToolStatus,
    UserMessage,
};
use crate::port::{Ask, CallTimes, Cancel, Record, Scope, Vetted};

impl<H: Hands> Driver<H> {
    /// Returns whether what justifies an effect has to be durable before it is done.
    pub(super) fn has_to_be_durable(&self, effect: &Effect) -> bool {
        match effect {
            Effect::Call { .. } | Effect::Check { .. } | Effect::End => true,
            Effect::Vet { .. } => self.ports.tools.vets_visibly(),
            Effect::Prepare { purpose, .. } => self.ports.prelude.applies(*purpose),
            // What changes nothing may run again after a crash.
            Effect::Run { call, .. } => {
                self.jobs.get(&call.id).is_none_or(|cleared| cleared.intent != Intent::Pure)
            }
            Effect::Cancel { .. } => false,
        }
    }

    /// Does one effect. One that is no longer awaited, because something came in between, is not done any more.
    pub(super) fn perform_one(&mut self, effect: Effect) {
        match effect {
            Effect::Prepare { id, purpose } if self.is_awaited(id) => self.prepare(id, purpose),
            Effect::Call { id, purpose, attempt, max_output } if self.is_awaited(id) => {
                self.call(id, purpose, attempt, max_output);
            }
            Effect::Vet { id, call } if self.is_awaited(id) => self.vet(id, call),
            Effect::Run { id, call, allowance } if self.is_awaited(id) => {
                self.run_tool(id, call, allowance.map(|allowance| *allowance));
            }
            Effect::Check { id, answer } if self.is_awaited(id) => self.check(id, &answer),
            Effect::Cancel { id } => self.cancel(id),
            Effect::Prepare { .. }
            | Effect::Call { .. }
            | Effect::Vet { .. }
            | Effect::Run { .. }
            | Effect::Check { .. }
            | Effect::End => {}
        }
    }

    fn is_awaited(&self, id: EffectId) -> bool {
        self.fold.state.outstanding().contains(&id)
    }

    fn prepare(&mut self, id: EffectId, purpose: Purpose) {
        let messages = match purpose {
            Purpose::Agent => self.ports.mailbox.messages(),
            Purpose::Compaction | Purpose::Closing => Vec::new(),
        };
        if self.ports.prelude.applies(purpose) {
            return self.prelude(id, purpose, messages);
        }
        let facts = self.fold.facts(&messages, self.brief.system_bytes());
        self.done.push_back(Event::Prepared { id, facts, messages: messages.into() });
    }

    /// Does what comes before a call; when it breaks down, the user's messages still arrive.
    fn prelude(&mut self, id: EffectId, purpose: Purpose, messages: Vec<UserMessage>) {
        let prelude = Arc::clone(&self.ports.prelude);
        let rest = messages.clone();
        self.start(
            id,
            Lane::Own,
            move |scope, _| {
                let messages = messages.into_iter().chain(prelude.play(purpose, scope)).collect();
                Arrival::Prelude { id, messages }
            },
            move |_| Arrival::Prelude { id, messages: rest },
        );
    }

    fn call(&mut self, id: EffectId, purpose: Purpose, attempt: u32, max_output: Option<Tokens>) {
        let no_tools = [].into();
        let request = self.fold.request(purpose, self.brief.system_bytes());
        let tools = match purpose {
            Purpose::Agent => &self.brief.tools,
            Purpose::Compaction | Purpose::Closing => &no_tools,
        };
        let ask = Ask {
            purpose,
            attempt,
            system: &self.brief.system,
            tools,
            entries: &request.entries,
            instruction: request.instruction.as_deref(),
            max_output,
            schema: self.brief.schema.as_ref().filter(|_| purpose == Purpose::Agent),
        };
        self.heard.clear();
        let asked = self.clock.now();
        let call = match self.ports.model.prepare(&ask) {
            Ok(call) => call,
            Err(fault) => return self.done.push_back(Event::Failed { id, fault }),
        };
        let window = self.fold.state.run().rules.context.window;
        if request.size > window {
            let fault = too_large(request.size, window);
            return self.done.push_back(Event::Failed { id, fault });
        }
        let ready = self.clock.now();
        let times = CallTimes { encode: ready.since(asked), first_byte: None };
        self.timing = Some(Timing { id, ready, times });
        let tools = Arc::clone(&self.ports.tools);
        self.start(
            id,
            Lane::Own,
            move |scope, post| {
                let mut sink = |delta| post(Arrival::Delta { id, delta });
                Arrival::Event(match call.run(scope, &mut sink) {
                    Ok(reply) => {
                        let access = access(&reply, |call| tools.access(call));
                        Event::Replied { id, reply, access }
                    }
                    Err(fault) => Event::Failed { id, fault },
                })
            },
            move |why| {
                Arrival::Event(Event::Failed { id, fault: Fault::new(FaultKind::Connect, why) })
            },
        );
    }

    fn vet(&mut self, id: EffectId, call: ToolCall) {
        let tools = Arc::clone(&self.ports.tools);
        let lost = call.id.clone();
        self.start(
            id,
            Lane::Pool,
            move |scope, _| {
                let vetted = tools.vet(&call, scope);
                Arrival::Vetted { id, call: call.id, vetted }
            },
            move |why| {
                let result = ToolResult::new(lost.clone(), ToolStatus::Failed, why);
                Arrival::Vetted { id, call: lost, vetted: Vetted::Refused(result) }
            },
        );
    }

    fn run_tool(&mut self, id: EffectId, call: ToolCall, allowance: Option<Allowance>) {
        let lost = call.id.clone();
        let Some(Cleared { job, .. }) = self.jobs.remove(&call.id) else {
            let text = "internal error: the call was cleared, but there is nothing to run";
            let result = ToolResult::new(call.id, ToolStatus::Failed, text);
            return self.done.push_back(Event::Settled { id, result });
        };
        let clock = Arc::clone(&self.clock);
        self.start(
            id,
            Lane::Pool,
            move |scope, _| {
                let begun = clock.now();
                let mut result = job.run(&scope.clone().allowing(allowance));
                result.took = clock.now().since(begun);
                Arrival::Event(Event::Settled { id, result })
            },
            move |why| {
                let result = ToolResult::new(lost, ToolStatus::Failed, why);
                Arrival::Event(Event::Settled { id, result })
            },
        );
    }

    /// Checks an answer; when it passes, a follow-up that waits goes before the end. One beyond the bound is left where it
    /// is, for when the session is resumed.
    fn check(&mut self, id: EffectId, answer: &Arc<str>) {
        let follow_up = match self.fold.state.run().takes_follow_up() {
            true => self.ports.mailbox.follow_up(),
            false => None,
        };
        let checks = Arc::clone(&self.ports.checks);
        let answer = Arc::clone(answer);
        self.start(
            id,
            Lane::Own,
            move |scope, _| {
                let check = match (checks.check(&answer, scope), follow_up) {
                    (Check::Passed, Some(message)) => Check::FollowUp { message },
                    (check, _) => check,
                };
                Arrival::Event(Event::Checked { id, check })
            },
            move |why| Arrival::Event(Event::Defect { error: why.into() }),
        );
    }

    fn cancel(&mut self, id: EffectId) {
        if let Some(token) = self.tokens.remove(&id) {
            token.cancel();
        }
        let text = std::mem::take(&mut self.heard);
        if self.times(id).is_some() && !text.is_empty() {
            let at = self.clock.now();
            if let Err(error) = self.write(at, Record::Partial { id, text: &text }) {
                self.done.push_back(Event::StoreFailed { error: error.0 });
            }
        }
    }

    fn start(
        &mut self,
        id: EffectId,
        lane: Lane,
        run: impl FnOnce(&Scope, &Post<'_>) -> Arrival + Send + 'static,
        lost: impl FnOnce(&str) -> Arrival + Send + 'static,
    ) {
        let cancel = Cancel::new();
        self.tokens.insert(id, cancel.clone());
        self.hands.start(Work { id, lane, cancel, run: Box::new(run), lost: Box::new(lost) });
    }
}

/// Returns the fault of a request that is not sent, since the context window has no room for it.
fn too_large(size: Tokens, window: Tokens) -> Fault {
    let (size, window) = (size.0, window.0);
    let message = format!(
        "the request has about {size} tokens, more than the context window of {window}; it was not sent"
    );
    Fault::new(FaultKind::Overflow, message)
}

fn access(reply: &Reply, of: impl Fn(&ToolCall) -> Access) -> Arc<[Access]> {
    reply.calls().map(of).collect()
}
