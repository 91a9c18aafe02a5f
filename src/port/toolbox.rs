//! The tools that a model may call.

use std::sync::Arc;

use super::{EffectContext, ToolSpec};
use crate::machine::CallIntent;
use crate::model::{CallAccess, TimeSpan, ToolCall, ToolResult, ToolStatus};

/// A set of tools with the rules for their use.
pub trait Toolbox: Send + Sync {
    /// Returns the tools, in an order that doesn't change during a run.
    fn specs(&self) -> Arc<[ToolSpec]>;

    /// Parses a call. Decides nothing and changes nothing.
    fn prepare(&self, call: &ToolCall) -> Box<dyn PreparedCall>;

    /// Returns whether the authorization can have effects outside of the process, such as a hook's.
    fn is_authorization_visible(&self) -> bool {
        false
    }
}

/// A parsed tool call. The policy decides about it once, at the first method that needs the decision.
pub trait PreparedCall: Send {
    /// Returns what the call touches, for scheduling; [`CallAccess::Exclusive`] if that is unknown.
    fn access(&mut self) -> CallAccess;

    /// Returns the result of a call that cannot run whatever the user says: an unknown tool, invalid arguments, a denial.
    fn rejection(&mut self) -> Option<ToolResult> {
        None
    }

    /// Authorizes the call: runs its hooks, checks its limits and, where required, asks the user.
    fn authorize(self: Box<Self>, scope: &EffectContext) -> AuthorizationOutcome;
}

struct FnCall<F> {
    access: CallAccess,
    authorize: F,
}

impl dyn PreparedCall {
    /// Returns a call with this access that a function authorizes.
    pub fn from_fn(
        access: CallAccess,
        authorize: impl FnOnce(&EffectContext) -> AuthorizationOutcome + Send + 'static,
    ) -> Box<Self> {
        Box::new(FnCall { access, authorize })
    }

    /// Returns a call that can't run, with its result.
    pub fn rejected(result: ToolResult) -> Box<Self> {
        Box::new(RejectedCall(result))
    }
}

/// A call that can't run.
struct RejectedCall(ToolResult);

impl PreparedCall for RejectedCall {
    fn access(&mut self) -> CallAccess {
        CallAccess::Read([].into())
    }

    fn rejection(&mut self) -> Option<ToolResult> {
        Some(self.0.clone())
    }

    fn authorize(self: Box<Self>, _: &EffectContext) -> AuthorizationOutcome {
        AuthorizationOutcome::Rejected(self.0)
    }
}

impl<F: FnOnce(&EffectContext) -> AuthorizationOutcome + Send> PreparedCall for FnCall<F> {
    fn access(&mut self) -> CallAccess {
        self.access.clone()
    }

    fn authorize(self: Box<Self>, scope: &EffectContext) -> AuthorizationOutcome {
        (self.authorize)(scope)
    }
}

/// The outcome of an authorization.
pub enum AuthorizationOutcome {
    /// The call may run.
    Approved {
        /// Runs the call.
        call: ApprovedCall,
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

/// Runs a call that was approved, to its end. On cancellation it stops what it started and returns soon.
pub type ApprovedCall = Box<dyn FnOnce(&EffectContext) -> ToolResult + Send>;

/// No tools.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoTools;

impl Toolbox for NoTools {
    fn specs(&self) -> Arc<[ToolSpec]> {
        [].into()
    }

    fn prepare(&self, call: &ToolCall) -> Box<dyn PreparedCall> {
        let text = format!("Tool '{}' not found. There are no tools.", call.name);
        <dyn PreparedCall>::rejected(ToolResult::new(call.id.clone(), ToolStatus::Unknown, text))
    }
}
