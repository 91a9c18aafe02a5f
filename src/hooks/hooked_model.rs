//! Hooks around model calls.

use std::mem::{replace, take};
use std::sync::{Arc, Mutex};

use serde_json::Value;

use super::hook_input::HookInput;
use super::hook_list::{HookBlock, HookChainResult, Hooks};
use super::hooked_tools::{HookedTools, OfferedTools};
use crate::machine::CallPurpose;
use crate::port::{
    EffectContext, HookPoint, Model, ModelCall, ModelRequest, PreCallHooks, ReplyDelta,
    RequestDigest, Toolbox, lock,
};
use crate::types::{Fault, FaultKind, MessageOrigin, Reply, UserMessage};

/// A model with hooks around its calls. The [`PreCallHookRunner`] collects changes by hooks before a call.
pub struct HookedModel {
    model: Box<dyn Model>,
    shared: Arc<HookedModelState>,
}

/// Runs the hooks before each model call: `session_start` before the first call, `post_compact` before the first call
/// after a compaction, and `pre_llm_call` before every call.
pub struct PreCallHookRunner(Arc<HookedModelState>);

/// State shared by the hooks before a call and those around it.
struct HookedModelState {
    hooks: Arc<Hooks>,
    prompt: Arc<str>,
    system: Arc<str>,
    offered: OfferedTools,
    next: Mutex<NextModelCall>,
}

/// Changes for the next call.
#[derive(Default)]
struct NextModelCall {
    /// Whether the hooks before the first call have run.
    has_begun: bool,
    /// The replaced system prompt.
    system: Option<Arc<str>>,
    /// The fault of a call that a hook has blocked.
    blocked: Option<Fault>,
    /// Texts for the model from hooks after its last reply.
    context: Vec<String>,
    /// Whether the context was compacted since the last call.
    was_compacted: bool,
}

/// Returns a model and a toolbox with hooks around their calls, and the runner for the hooks before model calls. They
/// belong to a single run with this task and system prompt.
pub fn with_hooks(
    (model, toolbox): (Box<dyn Model>, Arc<dyn Toolbox>),
    hooks: &Arc<Hooks>,
    (prompt, system): (Arc<str>, Arc<str>),
) -> (HookedModel, HookedTools, PreCallHookRunner) {
    let (next, offered) = (Mutex::default(), OfferedTools::new(toolbox.specs()));
    let toolbox = HookedTools::new(toolbox, Arc::clone(hooks), offered.clone());
    let hooks = Arc::clone(hooks);
    let shared = Arc::new(HookedModelState { hooks, prompt, system, offered, next });
    let runner = PreCallHookRunner(Arc::clone(&shared));
    (HookedModel { model, shared }, toolbox, runner)
}

impl HookedModelState {
    /// Records the changes for the next call, and returns whether it is blocked.
    fn record(&self, chain: HookChainResult) -> bool {
        let mut next = lock(&self.next);
        let is_start = matches!(chain.input, HookInput::SessionStart { .. });
        let what = if is_start { "the run" } else { "the call" };
        if let HookInput::PreLlmCall { system, tools } = chain.input {
            next.system = (system != self.system).then_some(system);
            self.offered.limit_to(&tools);
        }
        next.blocked = chain.blocked.map(|blocked| blocked_fault(what, &blocked));
        next.blocked.is_some()
    }
}

impl PreCallHooks for PreCallHookRunner {
    fn applies(&self, purpose: CallPurpose) -> bool {
        let (hooks, next) = (&self.0.hooks, lock(&self.0.next));
        purpose == CallPurpose::Agent
            && (hooks.has_hooks_at(HookPoint::PreLlmCall)
                || !next.has_begun && hooks.has_hooks_at(HookPoint::SessionStart)
                || next.was_compacted && hooks.has_hooks_at(HookPoint::PostCompact)
                || !next.context.is_empty())
    }

    fn run(&self, _: CallPurpose, scope: &EffectContext) -> Vec<UserMessage> {
        let HookedModelState { hooks, prompt, system, offered, .. } = &*self.0;
        let (mut texts, was_compacted, has_begun) = {
            let mut next = lock(&self.0.next);
            let context = take(&mut next.context);
            (context, take(&mut next.was_compacted), replace(&mut next.has_begun, true))
        };
        let start = HookInput::SessionStart { prompt: Arc::clone(prompt) };
        let tools = offered.all().iter().map(|tool| Arc::clone(&tool.name)).collect();
        let call = HookInput::PreLlmCall { system: Arc::clone(system), tools };
        let start = (!has_begun).then_some(start);
        let compacted = was_compacted.then_some(HookInput::PostCompact);
        for input in start.into_iter().chain(compacted).chain([call]) {
            // A completed compaction cannot be blocked.
            let is_over = input == HookInput::PostCompact;
            let chain = hooks.run(input, scope);
            texts.extend(chain.context());
            if !is_over && self.0.record(chain) {
                break;
            }
        }
        let message = |text: String| UserMessage::new(MessageOrigin::Check, text);
        texts.into_iter().map(message).collect()
    }
}

impl Model for HookedModel {
    fn prepare(&mut self, ask: &ModelRequest<'_>) -> Result<Box<dyn ModelCall>, Fault> {
        let mut next = lock(&self.shared.next);
        let mut is_altered = false;
        let call = match ask.purpose {
            CallPurpose::Agent => {
                if let Some(fault) = next.blocked.take() {
                    return Err(fault);
                }
                let left = self.shared.offered.left();
                is_altered = next.system.is_some() || left.is_some();
                let system = next.system.as_ref().unwrap_or(ask.system);
                let tools = left.as_ref().unwrap_or(ask.tools);
                self.model.prepare(&ModelRequest { system, tools, ..*ask })?
            }
            CallPurpose::Compaction | CallPurpose::Closing => self.model.prepare(ask)?,
        };
        let (purpose, attempt, shared) = (ask.purpose, ask.attempt, Arc::clone(&self.shared));
        Ok(Box::new(HookedModelCall { call, purpose, attempt, is_altered, shared }))
    }

    fn request_settings(&self) -> Value {
        self.model.request_settings()
    }
}

/// A request with hooks around it.
struct HookedModelCall {
    call: Box<dyn ModelCall>,
    purpose: CallPurpose,
    attempt: u32,
    /// Whether hooks changed the system prompt or the tools.
    is_altered: bool,
    shared: Arc<HookedModelState>,
}

impl ModelCall for HookedModelCall {
    fn run(
        self: Box<Self>,
        scope: &EffectContext,
        sink: &mut dyn FnMut(ReplyDelta),
    ) -> Result<Reply, Fault> {
        let Self { call, purpose, attempt, shared, .. } = *self;
        let hooks = &shared.hooks;
        if purpose == CallPurpose::Compaction && attempt == 1 {
            lock(&shared.next).was_compacted = true;
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
        let chain = hooks.run(HookInput::PostLlmCall { text: reply.text(), tools }, scope);
        if let Some(blocked) = &chain.blocked {
            return Err(Fault { billed: true, ..blocked_fault("the reply", blocked) });
        }
        lock(&shared.next).context.extend(chain.context());
        Ok(reply)
    }

    fn request_digest(&self) -> Option<RequestDigest> {
        let digest = self.call.request_digest()?;
        Some(RequestDigest { is_altered: digest.is_altered || self.is_altered, ..digest })
    }
}

/// Returns the fault of a model call that a hook has blocked; it ends the run.
fn blocked_fault(what: &str, blocked: &HookBlock) -> Fault {
    let message = format!("hook {} refuses {what}: {}", blocked.hook, blocked.reason);
    Fault::new(FaultKind::Blocked, message)
}
