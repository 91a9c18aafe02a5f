//! Hooks before model calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::list::Passage;
use super::model::{NextCall, Shared, refused};
use super::occasion::Occasion;
use crate::machine::Purpose;
use crate::model::{Origin, UserMessage};
use crate::port::{HookPoint, Prelude, Scope, ToolSpec};

/// Asks the hooks before each model call: `session_start` before the first one, `post_compact` before the first one
/// behind a compaction, `pre_llm_call` before every one.
pub struct HookedPrelude {
    shared: Arc<Shared>,
    prompt: Arc<str>,
    system: Arc<str>,
    tools: Arc<[ToolSpec]>,
    has_begun: AtomicBool,
}

impl HookedPrelude {
    pub(super) fn new(
        shared: Arc<Shared>,
        prompt: Arc<str>,
        system: Arc<str>,
        tools: Arc<[ToolSpec]>,
    ) -> Self {
        Self { shared, prompt, system, tools, has_begun: AtomicBool::new(false) }
    }

    /// Returns what is shown to the hooks before the next call, in order.
    fn occasions(&self, was_compacted: bool) -> Vec<Occasion> {
        let mut occasions = Vec::new();
        if !self.has_begun.swap(true, Ordering::Relaxed) {
            occasions.push(Occasion::SessionStart { prompt: Arc::clone(&self.prompt) });
        }
        if was_compacted {
            occasions.push(Occasion::PostCompact);
        }
        occasions.push(Occasion::PreLlmCall {
            system: Arc::clone(&self.system),
            tools: self.tools.iter().map(|tool| Arc::clone(&tool.name)).collect(),
        });
        occasions
    }

    /// Notes what the hooks want of the call.
    fn note(&self, next: &mut NextCall, passage: Passage) {
        let is_start = matches!(passage.occasion, Occasion::SessionStart { .. });
        let what = if is_start { "the run" } else { "the call" };
        if let Occasion::PreLlmCall { system, tools } = passage.occasion {
            next.system = (system != self.system).then_some(system);
            let left = || self.tools.iter().filter(|tool| tools.contains(&tool.name)).cloned();
            next.tools = (tools.len() != self.tools.len()).then(|| left().collect());
        }
        next.blocked = passage.blocked.map(|blocked| refused(what, &blocked));
    }
}

impl Prelude for HookedPrelude {
    fn applies(&self, purpose: Purpose) -> bool {
        let hooks = &self.shared.hooks;
        let begins = !self.has_begun.load(Ordering::Relaxed);
        purpose == Purpose::Agent
            && (hooks.any_at(HookPoint::PreLlmCall)
                || begins && hooks.any_at(HookPoint::SessionStart)
                || self.shared.next().was_compacted && hooks.any_at(HookPoint::PostCompact)
                || !self.shared.next().context.is_empty())
    }

    fn play(&self, _: Purpose, scope: &Scope) -> Vec<UserMessage> {
        let (mut said, was_compacted) = {
            let mut next = self.shared.next();
            (std::mem::take(&mut next.context), std::mem::take(&mut next.was_compacted))
        };
        for occasion in self.occasions(was_compacted) {
            // What has happened cannot be refused any more.
            let is_over = occasion == Occasion::PostCompact;
            let passage = self.shared.hooks.pass(occasion, scope);
            said.extend(passage.context());
            if is_over {
                continue;
            }
            let is_blocked = passage.blocked.is_some();
            self.note(&mut self.shared.next(), passage);
            if is_blocked {
                break;
            }
        }
        let message = |text: String| UserMessage { origin: Origin::Check, text: text.into() };
        said.into_iter().map(message).collect()
    }
}
