//! The scope in which an effect runs: it can be cancelled, it can wait, and it can tell.

use std::fmt;
use std::sync::Arc;

use super::{Cancel, Notice};
use crate::machine::Allowance;
use crate::model::{Micros, Span, Usage};

/// What an effect may use while it runs.
#[derive(Clone)]
pub struct Scope {
    /// Cancelled when nobody waits for the effect any more.
    pub cancel: Cancel,
    /// What the effect may use, when it makes model calls of its own.
    pub allowance: Option<Allowance>,
    sleep: Arc<dyn Sleep>,
    voice: Option<Voice>,
    till: Option<Till>,
}

/// A way of telling something while an effect is under way.
pub type Voice = Arc<dyn Fn(Notice) + Send + Sync>;

/// A way of telling what an effect has used of its allowance.
pub type Till = Arc<dyn Fn(Usage, Micros) + Send + Sync>;

/// A way of waiting: real, or on a clock that only exists in a test.
pub trait Sleep: Send + Sync {
    /// Waits so long; returns earlier, and true, when the token is cancelled.
    fn sleep(&self, span: Span, cancel: &Cancel) -> bool;
}

impl Scope {
    /// Returns a scope with this token and this way of waiting.
    pub fn new(cancel: Cancel, sleep: Arc<dyn Sleep>) -> Self {
        Self { cancel, allowance: None, sleep, voice: None, till: None }
    }

    /// Returns the scope with somebody who listens to it.
    pub fn telling(self, voice: Voice) -> Self {
        Self { voice: Some(voice), ..self }
    }

    /// Returns the scope with somebody who is told what is used.
    pub fn charging(self, till: Till) -> Self {
        Self { till: Some(till), ..self }
    }

    /// Returns the scope with an allowance.
    pub fn allowing(self, allowance: Option<Allowance>) -> Self {
        Self { allowance, ..self }
    }

    /// Tells what a model call used of the allowance, and what it cost. Unlike a notice this is never lost.
    pub fn charge(&self, usage: Usage, cost: Micros) {
        if let Some(till) = &self.till {
            till(usage, cost);
        }
    }

    /// Tells something, if anybody listens.
    pub fn tell(&self, notice: Notice) {
        if let Some(voice) = &self.voice {
            voice(notice);
        }
    }

    /// Waits so long; returns earlier, and true, when the effect is cancelled.
    pub fn sleep(&self, span: Span) -> bool {
        self.sleep.sleep(span, &self.cancel)
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").field("cancel", &self.cancel).finish_non_exhaustive()
    }
}
