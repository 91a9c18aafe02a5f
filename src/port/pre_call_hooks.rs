//! What is done before a model is called.

use super::EffectContext;
use crate::machine::CallPurpose;
use crate::model::UserMessage;

/// Something that is done before a model is called: hooks of the user say.
pub trait PreCallHooks: Send + Sync {
    /// Returns whether there is anything to do before a call for this purpose. Quick and without I/O.
    fn applies(&self, purpose: CallPurpose) -> bool;

    /// Does it, and returns what the model is told first.
    fn run(&self, purpose: CallPurpose, scope: &EffectContext) -> Vec<UserMessage>;
}

/// Nothing is done before a call.
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
