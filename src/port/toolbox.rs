//! The tools that a model may call.

use std::sync::Arc;

use super::{EffectContext, ToolSpec};
use crate::machine::CallIntent;
use crate::model::{CallAccess, TimeSpan, ToolCall, ToolResult, ToolStatus};

/// A set of tools with the rules for their use.
pub trait Toolbox: Send + Sync {
    /// Returns the tools, in an order that doesn't change during a run.
    fn specs(&self) -> Arc<[ToolSpec]>;

    /// Returns what a call touches. Fast and without I/O; [`CallAccess::Exclusive`] if it is unknown.
    fn access(&self, call: &ToolCall) -> CallAccess;

    /// Returns the result of a call that can't run in any case: the tool is unknown, the arguments are invalid, or a rule
    /// denies it. Asks no one and changes nothing.
    fn invalid_call_result(&self, _: &ToolCall) -> Option<ToolResult> {
        None
    }

    /// Decides whether a call may run, by its arguments, the rules, its hooks and, if required, the user.
    fn authorize(&self, call: &ToolCall, scope: &EffectContext) -> AuthorizationOutcome;

    /// Returns whether the authorization can have effects outside of the process, such as a hook's.
    fn is_authorization_visible(&self) -> bool {
        false
    }
}

/// The outcome of an authorization.
pub enum AuthorizationOutcome {
    /// The call may run.
    Approved {
        /// The call, ready to run.
        call: Box<dyn ApprovedCall>,
        /// How long it may take before the run continues without it; longer than any limit of its own.
        timeout: TimeSpan,
        /// What a resume needs to know about it.
        intent: CallIntent,
        /// The rule that allows it.
        reason: Arc<str>,
    },
    /// The call may not run; this is its result.
    Rejected(ToolResult),
    /// The user aborts the run.
    Abort,
}

/// A call that was approved.
pub trait ApprovedCall: Send {
    /// Runs the call to its end. On cancellation it stops what it started and returns soon.
    fn run(self: Box<Self>, scope: &EffectContext) -> ToolResult;
}

/// No tools.
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
