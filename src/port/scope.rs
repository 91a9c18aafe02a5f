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
    line: Option<Line>,
}

/// A way of telling something while an effect is under way.
pub type Voice = Arc<dyn Fn(Notice) + Send + Sync>;

/// A way of telling the run what it has to know while an effect is under way.
pub type Line = Arc<dyn Fn(Word) + Send + Sync>;

/// What an effect that is under way has to say to its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// A model call used this of the allowance, and cost this.
    Used(Usage, Micros),
    /// The user, asked in the effect, wants the run to end.
    Abort,
}

/// A way of waiting: real, or on a clock that only exists in a test.
pub trait Sleep: Send + Sync {
    /// Waits so long; returns earlier, and true, when the token is cancelled.
    fn sleep(&self, span: Span, cancel: &Cancel) -> bool;
}

impl Scope {
    /// Returns a scope with this token and this way of waiting.
    pub fn new(cancel: Cancel, sleep: Arc<dyn Sleep>) -> Self {
        Self { cancel, allowance: None, sleep, voice: None, line: None }
    }

    /// Returns the scope with somebody who listens to it.
    pub fn telling(self, voice: Voice) -> Self {
        Self { voice: Some(voice), ..self }
    }

    /// Returns the scope with the run at the other end of this line.
    pub fn connected(self, line: Line) -> Self {
        Self { line: Some(line), ..self }
    }

    /// Returns the scope with an allowance.
    pub fn allowing(self, allowance: Option<Allowance>) -> Self {
        Self { allowance, ..self }
    }

    /// Tells the run something. Unlike a notice this is never lost.
    pub fn say(&self, word: Word) {
        if let Some(line) = &self.line {
            line(word);
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
