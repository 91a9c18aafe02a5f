//! The tools that a model may call.

use std::sync::Arc;

use super::{EffectContext, ToolSpec};
use crate::machine::CallIntent;
use crate::model::{CallAccess, TimeSpan, ToolCall, ToolResult, ToolStatus};

/// A set of tools with the rules for their use.
pub trait Toolbox: Send + Sync {
    /// Returns the tools, in an order that never changes within a run.
    fn specs(&self) -> Arc<[ToolSpec]>;

    /// Returns what a call touches. Quick and without I/O; [`Access::Exclusive`] where it cannot be told.
    fn access(&self, call: &ToolCall) -> CallAccess;

    /// Returns the answer to a call that cannot run whoever is asked: there is no such tool, its arguments are wrong, a
    /// rule is against it. Asks nobody, and changes nothing.
    fn invalid_call_result(&self, _: &ToolCall) -> Option<ToolResult> {
        None
    }

    /// Judges a call: its arguments, the rules, its hooks, and where needed the user.
    fn authorize(&self, call: &ToolCall, scope: &EffectContext) -> AuthorizationOutcome;

    /// Returns whether judging may be noticed outside, by a hook say.
    fn is_authorization_visible(&self) -> bool {
        false
    }
}

/// What became of judging a call.
pub enum AuthorizationOutcome {
    /// It may run.
    Approved {
        /// The call, ready to run.
        call: Box<dyn ApprovedCall>,
        /// How long it may take before it is left alone; longer than any limit of its own.
        timeout: TimeSpan,
        /// What a resume needs to know of it.
        intent: CallIntent,
        /// Which rule allows it.
        reason: Arc<str>,
    },
    /// It may not, and this is its answer.
    Rejected(ToolResult),
    /// The user aborts the run.
    Abort,
}

/// A call that was cleared.
pub trait ApprovedCall: Send {
    /// Runs the call to its end. When the scope is cancelled, it stops what it started and returns soon.
    fn run(self: Box<Self>, scope: &EffectContext) -> ToolResult;
}

/// No tools at all.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoTools;

impl Toolbox for NoTools {
    fn specs(&self) -> Arc<[ToolSpec]> {
        [].into()
    }

    fn access(&self, _: &ToolCall) -> CallAccess {
        CallAccess::Exclusive
    }

    fn authorize(&self, call: &ToolCall, _: &EffectContext) -> AuthorizationOutcome {
        let text = format!("Tool '{}' not found. There are no tools.", call.name);
        AuthorizationOutcome::Rejected(ToolResult::new(call.id.clone(), ToolStatus::Unknown, text))
    }
}
