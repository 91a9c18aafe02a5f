//! Asking the user.

use std::sync::Arc;

use crate::port::Scope;

/// Somebody who can be asked whether a call may run.
pub trait Confirm: Send + Sync {
    /// Asks, and waits for the answer; not longer than the scope lasts.
    fn ask(&self, question: &Question<'_>, scope: &Scope) -> Answer;
}

/// What the user is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question<'a> {
    /// The tool.
    pub tool: &'a str,
    /// The call in one line.
    pub summary: &'a str,
    /// Why the user is asked.
    pub why: &'a str,
}

/// What the user says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// The call may run.
    Yes,
    /// It may not.
    No,
    /// The run is to end.
    Abort,
    /// There is nobody to ask.
    Nobody,
}

/// Nobody is there. It never waits.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nobody;

impl Confirm for Nobody {
    fn ask(&self, _: &Question<'_>, _: &Scope) -> Answer {
        Answer::Nobody
    }
}

impl<C: Confirm + ?Sized> Confirm for Arc<C> {
    fn ask(&self, question: &Question<'_>, scope: &Scope) -> Answer {
        (**self).ask(question, scope)
    }
}
