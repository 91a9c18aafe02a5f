//! Checks of a final answer, one after the other.

use std::sync::Arc;

use crate::machine::Check;
use crate::port::{Checks, Scope};

/// Several checks; the first one that an answer does not pass decides.
pub(super) struct InOrder(pub(super) Vec<Arc<dyn Checks>>);

impl Checks for InOrder {
    fn check(&self, answer: &str, scope: &Scope) -> Check {
        for check in &self.0 {
            match check.check(answer, scope) {
                Check::Passed => {}
                other => return other,
            }
        }
        Check::Passed
    }
}
