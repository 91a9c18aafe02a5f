//! What is done before a model is called.

use super::Scope;
use crate::machine::Purpose;
use crate::model::UserMessage;

/// Something that is done before a model is called: hooks of the user say.
pub trait Prelude: Send + Sync {
    /// Returns whether there is anything to do before a call for this purpose. Quick and without I/O.
    fn applies(&self, purpose: Purpose) -> bool;

    /// Does it, and returns what the model is told first.
    fn play(&self, purpose: Purpose, scope: &Scope) -> Vec<UserMessage>;
}

/// Nothing is done before a call.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoPrelude;

impl Prelude for NoPrelude {
    fn applies(&self, _: Purpose) -> bool {
        false
    }

    fn play(&self, _: Purpose, _: &Scope) -> Vec<UserMessage> {
        Vec::new()
    }
}
