//! The tools that a model may call.

use std::sync::Arc;

use super::{EffectContext, ToolSpec};
use crate::machine::CallIntent;
use crate::types::{CallAccess, TimeSpan, ToolCall, ToolResult, ToolStatus, shorten};

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

/// A parsed tool call. The policy decides on it once, when the first method needs the decision.
pub trait PreparedCall: Send {
    /// Returns the files that the call touches, for scheduling; [`CallAccess::Exclusive`] if they are unknown.
    fn access(&mut self) -> CallAccess;

    /// Returns the result of a call that can't run even if the user confirms it: an unknown tool, invalid arguments, a
    /// denial.
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
    /// Creates a call with this access. The function authorizes it.
    pub fn from_fn(
        access: CallAccess,
        authorize: impl FnOnce(&EffectContext) -> AuthorizationOutcome + Send + 'static,
    ) -> Box<Self> {
        Box::new(FnCall { access, authorize })
    }

    /// Creates a call that can't run, with its result.
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
        /// The function that runs the call.
        call: ApprovedCall,
        /// The time after which the run continues without the call's result. It is longer than any limit of the call's
        /// own.
        timeout: TimeSpan,
        /// The information that a resume needs about the call.
        intent: CallIntent,
        /// The rule that allows the call.
        reason: Arc<str>,
    },
    /// The call may not run; this is its result.
    Rejected(ToolResult),
    /// The user has changed the arguments. The call is prepared and authorized again with them.
    Edited {
        /// The new arguments: the text of a JSON object.
        arguments: String,
    },
    /// The user aborts the run.
    Abort,
}

impl dyn Toolbox {
    /// Authorizes a call, and authorizes it again each time the user changes its arguments. Rules, hooks and other
    /// sources of a decision see the changed call as if the model had made it.
    pub fn authorize(
        &self,
        call: &ToolCall,
        prepared: Box<dyn PreparedCall>,
        scope: &EffectContext,
    ) -> AuthorizationOutcome {
        let (mut prepared, mut remark) = (prepared, None);
        loop {
            match prepared.authorize(scope) {
                AuthorizationOutcome::Edited { arguments } => {
                    let edited = ToolCall::new(call.id.clone(), &call.name, &arguments);
                    let shown = shorten(&arguments, SHOWN_ARGUMENT_CHARS);
                    remark =
                        Some(format!("[The user changed the arguments of this call to {shown}]"));
                    prepared = self.prepare(&edited);
                }
                outcome => {
                    return match remark {
                        Some(remark) => outcome.with_remark(remark),
                        None => outcome,
                    };
                }
            }
        }
    }
}

/// The maximum number of characters of changed arguments that the model is shown.
pub(crate) const SHOWN_ARGUMENT_CHARS: usize = 1_000;

impl AuthorizationOutcome {
    /// Returns the outcome with a line added to the result of the call.
    fn with_remark(self, remark: String) -> Self {
        let add = move |result: ToolResult| {
            let text = format!("{}\n{remark}", result.text.trim_end_matches('\n'));
            result.with_text(text)
        };
        match self {
            Self::Approved { call, timeout, intent, reason } => Self::Approved {
                call: Box::new(move |scope| add(call(scope))),
                timeout,
                intent,
                reason: format!("{reason}, after changing the arguments").into(),
            },
            Self::Rejected(result) => Self::Rejected(add(result)),
            outcome @ (Self::Edited { .. } | Self::Abort) => outcome,
        }
    }
}

/// Runs an approved call to its end. On cancellation, it stops everything that it has started and returns soon.
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
