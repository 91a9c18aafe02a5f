//! What a tool is.

use std::fmt;
use std::sync::Arc;

use crate::machine::CallIntent;
use crate::model::{CallAccess, CallId, FileChange, TimeSpan, ToolStatus};
use crate::policy::{CallKind, CallTarget};
use crate::port::{EffectContext, ToolSpec};

/// A tool: its specification for the model, and its parser of arguments.
///
/// The registry asks for everything in the same order: [`prepare`](Self::prepare), then the rules for its use, then
/// [`plan`](Prepared::plan), then [`run`](Prepared::run).
pub trait Tool: Send + Sync {
    /// Returns the specification for the model.
    fn spec(&self) -> &ToolSpec;

    /// Parses the arguments, the text of a JSON object. Fast, and without side effects.
    ///
    /// # Errors
    ///
    /// Fails with what is wrong with the arguments, and where; the model reads it.
    fn prepare(&self, arguments: &str) -> Result<Box<dyn ToolInvocation>, String>;
}

/// A call whose arguments are parsed.
pub trait ToolInvocation: Send {
    /// Returns what kind of effect the call has.
    fn kind(&self) -> CallKind;

    /// Returns what the call touches, for its order among others.
    fn access(&self) -> CallAccess;

    /// Looks at the files that the arguments depend on, right before the decision. Targets may differ afterwards.
    ///
    /// # Errors
    ///
    /// Fails with what is wrong with the arguments.
    fn resolve(&mut self) -> Result<(), String> {
        Ok(())
    }

    /// Returns what rules can match.
    fn targets(&self) -> Vec<CallTarget> {
        Vec::new()
    }

    /// Returns what the call touches by another name than its arguments say: where symbolic links lead. Looks at files.
    fn real_targets(&self) -> Vec<CallTarget> {
        Vec::new()
    }

    /// Returns the call in one line, for the user.
    fn summary(&self) -> String;

    /// Returns how long the call may take before it is abandoned; longer than any limit of its own.
    fn time_limit(&self) -> TimeSpan {
        TimeSpan::from_secs(120)
    }

    /// Computes what the call will do, without doing it. May read files.
    ///
    /// # Errors
    ///
    /// Fails with the output of the call if it is known to fail.
    fn plan(&mut self) -> Result<CallPlan, ToolOutput> {
        Ok(CallPlan::of(self.kind()))
    }

    /// Runs the call.
    fn run(self: Box<Self>, context: &CallContext<'_>) -> ToolOutput;
}

/// What a call is going to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallPlan {
    /// What a resume needs to know.
    pub intent: CallIntent,
    /// The files that it is going to change.
    pub changes: Vec<FileChange>,
}

/// What a call may use while it runs.
#[derive(Debug)]
pub struct CallContext<'a> {
    /// Its scope.
    pub scope: &'a EffectContext,
    /// Its id.
    pub call: &'a CallId,
}

/// The answer to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolOutput {
    /// How it ended.
    pub status: ToolStatus,
    /// The text for the model.
    pub text: String,
    /// The whole of which the text is only a part.
    pub full_text: Option<Arc<str>>,
    /// The files that were changed.
    pub changes: Vec<FileChange>,
    /// The files whose content the text has, relative to the workspace.
    pub reads: Vec<Arc<str>>,
    /// Whether the text may be shortened when it is long; what comes in pages is not.
    pub truncation: Truncation,
}

/// Whether a text may be shortened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truncation {
    /// When it is too long.
    Allowed,
    /// It has been cut to the allowed length already.
    Done,
}

impl CallPlan {
    /// Returns the plan of a call of which no more is known than its kind.
    pub fn of(kind: CallKind) -> Self {
        let intent = match kind {
            CallKind::Reads => CallIntent::ReadOnly,
            CallKind::Changes | CallKind::Command | CallKind::External | CallKind::Delegates => {
                CallIntent::Opaque
            }
        };
        Self { intent, changes: Vec::new() }
    }
}

impl ToolOutput {
    /// Returns the answer of a call that did what it was asked for.
    pub fn ok(text: impl Into<String>) -> Self {
        Self::new(ToolStatus::Ok, text)
    }

    /// Returns the answer of a call that could not do it.
    pub fn failed(why: impl fmt::Display) -> Self {
        Self::new(ToolStatus::Failed, why.to_string())
    }

    /// Returns an answer.
    pub fn new(status: ToolStatus, text: impl Into<String>) -> Self {
        Self {
            status,
            text: text.into(),
            full_text: None,
            changes: Vec::new(),
            reads: Vec::new(),
            truncation: Truncation::Allowed,
        }
    }
}
