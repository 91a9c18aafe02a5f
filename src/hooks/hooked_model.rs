//! Hooks around model calls.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::hook_input::HookInput;
use super::hook_list::{HookBlock, Hooks};
use super::pre_call_hooks::PreCallHookRunner;
use crate::machine::CallPurpose;
use crate::model::{Fault, FaultKind, Reply};
use crate::port::{EffectContext, Model, ModelCall, ModelRequest, ReplyDelta, ToolSpec};

/// A model with hooks around its calls. What the hooks before a call change is collected by the [`PreCallHookRunner`].
pub struct HookedModel {
    model: Box<dyn Model>,
    shared: Arc<HookedModelState>,
}

/// What the hooks before a call and those around it know together.
pub(super) struct HookedModelState {
    pub(super) hooks: Arc<Hooks>,
    next: Mutex<NextModelCall>,
}

/// What the next call is like, as far as hooks decide.
#[derive(Default)]
pub(super) struct NextModelCall {
    /// Another system prompt.
    pub(super) system: Option<Arc<str>>,
    /// The tools that are left.
    pub(super) tools: Option<Arc<[ToolSpec]>>,
    /// What the call fails with instead of being made, as a hook demands.
    pub(super) blocked: Option<Fault>,
    /// What the model has to be told by hooks that looked at its last reply.
    pub(super) context: Vec<String>,
    /// Whether the context was compacted since the last call.
    pub(super) was_compacted: bool,
}

/// Returns a model with hooks around its calls, and what has to be done before them: both belong to one run, whose task,
/// system prompt and tools these are.
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

/// Returns the fault of a model call that a hook blocks. It ends the run.
pub(super) fn blocked_fault(what: &str, blocked: &HookBlock) -> Fault {
    let message = format!("hook {} refuses {what}: {}", blocked.hook, blocked.reason);
    Fault::new(FaultKind::Blocked, message)
}
