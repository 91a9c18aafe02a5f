//! Hooks around model calls.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::hook_input::HookInput;
use super::hook_list::{HookBlock, Hooks};
use super::pre_call_hooks::PreCallHookRunner;
use crate::machine::CallPurpose;
use crate::model::{Fault, FaultKind, Reply};
use crate::port::{EffectContext, Model, ModelCall, ModelRequest, ReplyDelta, ToolSpec};

/// A model with hooks around its calls. Changes by hooks before a call are collected by the [`PreCallHookRunner`].
pub struct HookedModel {
    model: Box<dyn Model>,
    shared: Arc<HookedModelState>,
}

/// State shared by the hooks before a call and around it.
pub(super) struct HookedModelState {
    pub(super) hooks: Arc<Hooks>,
    next: Mutex<NextModelCall>,
}

/// Changes to the next call.
#[derive(Default)]
pub(super) struct NextModelCall {
    /// The replaced system prompt.
    pub(super) system: Option<Arc<str>>,
    /// The remaining tools.
    pub(super) tools: Option<Arc<[ToolSpec]>>,
    /// The fault of a call blocked by a hook.
    pub(super) blocked: Option<Fault>,
    /// Texts for the model from hooks after its last reply.
    pub(super) context: Vec<String>,
    /// Whether the context was compacted since the last call.
    pub(super) was_compacted: bool,
}

/// Returns a model with hooks around its calls, and the runner for the hooks before them. Both belong to one run with
/// this task, system prompt and tools.
pub fn with_hooks(
    model: Box<dyn Model>,
    hooks: Arc<Hooks>,
    prompt: Arc<str>,
    system: Arc<str>,
    tools: Arc<[ToolSpec]>,
) -> (HookedModel, PreCallHookRunner) {
    let shared = Arc::new(HookedModelState { hooks, next: Mutex::default() });
    let prelude = PreCallHookRunner::new(Arc::clone(&shared), prompt, system, tools);
    (HookedModel { model, shared }, prelude)
}

impl HookedModelState {
    pub(super) fn next(&self) -> MutexGuard<'_, NextModelCall> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Model for HookedModel {
    fn prepare(&mut self, ask: &ModelRequest<'_>) -> Result<Box<dyn ModelCall>, Fault> {
        let mut next = self.shared.next();
        let call = match ask.purpose {
            CallPurpose::Agent => {
                if let Some(fault) = next.blocked.take() {
                    return Err(fault);
                }
                let system = next.system.as_ref().unwrap_or(ask.system);
                let tools = next.tools.as_ref().unwrap_or(ask.tools);
                self.model.prepare(&ModelRequest { system, tools, ..*ask })?
            }
            CallPurpose::Compaction | CallPurpose::Closing => self.model.prepare(ask)?,
        };
        let (purpose, attempt) = (ask.purpose, ask.attempt);
        Ok(Box::new(HookedModelCall { call, purpose, attempt, shared: Arc::clone(&self.shared) }))
    }
}

/// A request with hooks around it.
struct HookedModelCall {
    call: Box<dyn ModelCall>,
    purpose: CallPurpose,
    attempt: u32,
    shared: Arc<HookedModelState>,
}

impl ModelCall for HookedModelCall {
    fn run(
        self: Box<Self>,
        scope: &EffectContext,
        sink: &mut dyn FnMut(ReplyDelta),
    ) -> Result<Reply, Fault> {
        let Self { call, purpose, attempt, shared } = *self;
        let hooks = &shared.hooks;
        if purpose == CallPurpose::Compaction && attempt == 1 {
            shared.next().was_compacted = true;
            if let Some(blocked) = hooks.run(HookInput::PreCompact, scope).blocked {
                return Err(blocked_fault("the summary", &blocked));
            }
        }
        let reply = match call.run(scope, sink) {
            Ok(reply) => reply,
            Err(fault) => {
                let (fault_kind, message) = (Some(fault.kind), Arc::clone(&fault.message));
                hooks.run(HookInput::OnError { fault: fault_kind, message }, scope);
                return Err(fault);
            }
        };
        if purpose != CallPurpose::Agent {
            return Ok(reply);
        }
        let tools = reply.calls().map(|call| Arc::clone(&call.name)).collect();
        let passage = hooks.run(HookInput::PostLlmCall { text: reply.text(), tools }, scope);
        if let Some(blocked) = &passage.blocked {
            return Err(Fault { billed: true, ..blocked_fault("the reply", blocked) });
        }
        shared.next().context.extend(passage.context());
        Ok(reply)
    }
}

/// Returns the fault of a model call blocked by a hook, which ends the run.
pub(super) fn blocked_fault(what: &str, blocked: &HookBlock) -> Fault {
    let message = format!("hook {} refuses {what}: {}", blocked.hook, blocked.reason);
    Fault::new(FaultKind::Blocked, message)
}
