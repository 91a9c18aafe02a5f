//! Hooks before a model call.

use super::EffectContext;
use crate::machine::CallPurpose;
use crate::types::UserMessage;

/// Hooks that run before a model call, such as the user's hooks.
pub trait PreCallHooks: Send + Sync {
    /// Returns whether there is anything to run before a call for this purpose. Fast and without I/O.
    fn applies(&self, purpose: CallPurpose) -> bool;

    /// Runs the hooks, and returns their messages for the model.
    fn run(&self, purpose: CallPurpose, scope: &EffectContext) -> Vec<UserMessage>;
}

/// No hooks.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoPreCallHooks;

impl PreCallHooks for NoPreCallHooks {
    fn applies(&self, _: CallPurpose) -> bool {
        false
    }

    fn run(&self, _: CallPurpose, _: &EffectContext) -> Vec<UserMessage> {
        Vec::new()
    }
}
