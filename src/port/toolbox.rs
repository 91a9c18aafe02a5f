//! The tools that a model may call.

use std::sync::Arc;

use super::{Scope, ToolSpec};
use crate::machine::Intent;
use crate::model::{Access, Span, ToolCall, ToolResult, ToolStatus};

/// A set of tools with the rules for their use.
pub trait Toolbox: Send + Sync {
    /// Returns the tools, in an order that never changes within a run.
    fn specs(&self) -> Arc<[ToolSpec]>;

    /// Returns what a call touches. Quick and without I/O; [`Access::Exclusive`] where it cannot be told.
    fn access(&self, call: &ToolCall) -> Access;

    /// Returns the answer to a call that cannot run whoever is asked: there is no such tool, its arguments are wrong, a
    /// rule is against it. Asks nobody, and changes nothing.
    fn refusal(&self, _: &ToolCall) -> Option<ToolResult> {
        None
    }

    /// Judges a call: its arguments, the rules, its hooks, and where needed the user.
    fn vet(&self, call: &ToolCall, scope: &Scope) -> Vetted;

    /// Returns whether judging may be noticed outside, by a hook say.
    fn vets_visibly(&self) -> bool {
        false
    }
}

/// What became of judging a call.
pub enum Vetted {
    /// It may run.
    Cleared {
        /// The call, ready to run.
        job: Box<dyn Job>,
        /// How long it may take before it is left alone; longer than any limit of its own.
        limit: Span,
        /// What a resume needs to know of it.
        intent: Intent,
        /// Which rule allows it.
        grounds: Arc<str>,
    },
    /// It may not, and this is its answer.
    Refused(ToolResult),
    /// The user aborts the run.
    Abort,
}

/// A call that was cleared.
pub trait Job: Send {
    /// Runs the call to its end. When the scope is cancelled, it stops what it started and returns soon.
    fn run(self: Box<Self>, scope: &Scope) -> ToolResult;
}

/// No tools at all.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoTools;

impl Toolbox for NoTools {
    fn specs(&self) -> Arc<[ToolSpec]> {
        [].into()
    }

    fn access(&self, _: &ToolCall) -> Access {
        Access::Exclusive
    }

    fn vet(&self, call: &ToolCall, _: &Scope) -> Vetted {
        let text = format!("Tool '{}' not found. There are no tools.", call.name);
        Vetted::Refused(ToolResult::new(call.id.clone(), ToolStatus::Unknown, text))
    }
}
