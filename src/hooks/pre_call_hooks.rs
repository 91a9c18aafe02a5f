//! Hooks before model calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::hook_input::HookInput;
use super::hook_list::HookChainResult;
use super::hooked_model::{HookedModelState, NextModelCall, blocked_fault};
use crate::machine::CallPurpose;
use crate::model::{MessageOrigin, UserMessage};
use crate::port::{EffectContext, HookPoint, PreCallHooks, ToolSpec};

/// Runs the hooks before each model call: `session_start` before the first one, `post_compact` before the first one
/// after a compaction, `pre_llm_call` before every one.
pub struct PreCallHookRunner {
    shared: Arc<HookedModelState>,
    prompt: Arc<str>,
    system: Arc<str>,
    tools: Arc<[ToolSpec]>,
    has_begun: AtomicBool,
}

impl PreCallHookRunner {
    pub(super) fn new(
        shared: Arc<HookedModelState>,
        prompt: Arc<str>,
        system: Arc<str>,
        tools: Arc<[ToolSpec]>,
    ) -> Self {
        Self { shared, prompt, system, tools, has_begun: AtomicBool::new(false) }
    }

    /// Returns the inputs for the hooks before the next call, in order.
    fn inputs(&self, was_compacted: bool) -> Vec<HookInput> {
        let mut occasions = Vec::new();
        if !self.has_begun.swap(true, Ordering::Relaxed) {
            occasions.push(HookInput::SessionStart { prompt: Arc::clone(&self.prompt) });
        }
        if was_compacted {
            occasions.push(HookInput::PostCompact);
        }
        occasions.push(HookInput::PreLlmCall {
            system: Arc::clone(&self.system),
            tools: self.tools.iter().map(|tool| Arc::clone(&tool.name)).collect(),
        });
        occasions
    }

    /// Records the changes to the next call.
    fn record(&self, next: &mut NextModelCall, passage: HookChainResult) {
        let is_start = matches!(passage.input, HookInput::SessionStart { .. });
        let what = if is_start { "the run" } else { "the call" };
        if let HookInput::PreLlmCall { system, tools } = passage.input {
            next.system = (system != self.system).then_some(system);
            let left = || self.tools.iter().filter(|tool| tools.contains(&tool.name)).cloned();
            next.tools = (tools.len() != self.tools.len()).then(|| left().collect());
        }
        next.blocked = passage.blocked.map(|blocked| blocked_fault(what, &blocked));
    }
}

impl PreCallHooks for PreCallHookRunner {
    fn applies(&self, purpose: CallPurpose) -> bool {
        let hooks = &self.shared.hooks;
        let begins = !self.has_begun.load(Ordering::Relaxed);
        purpose == CallPurpose::Agent
            && (hooks.has_hooks_at(HookPoint::PreLlmCall)
                || begins && hooks.has_hooks_at(HookPoint::SessionStart)
                || self.shared.next().was_compacted && hooks.has_hooks_at(HookPoint::PostCompact)
                || !self.shared.next().context.is_empty())
    }

    fn run(&self, _: CallPurpose, scope: &EffectContext) -> Vec<UserMessage> {
        let (mut texts, was_compacted) = {
            let mut next = self.shared.next();
            (std::mem::take(&mut next.context), std::mem::take(&mut next.was_compacted))
        };
        for occasion in self.inputs(was_compacted) {
            // A compaction that has happened cannot be blocked.
            let is_over = occasion == HookInput::PostCompact;
            let passage = self.shared.hooks.run(occasion, scope);
            texts.extend(passage.context());
            if is_over {
                continue;
            }
            let is_blocked = passage.blocked.is_some();
            self.record(&mut self.shared.next(), passage);
            if is_blocked {
                break;
            }
        }
        let message =
            |text: String| UserMessage { origin: MessageOrigin::Check, text: text.into() };
        texts.into_iter().map(message).collect()
    }
}
