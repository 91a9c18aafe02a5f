//! The traits of tools and of their calls.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::background::NeededWork;
use super::output_store::OutputStore;
use super::spooled_text::SpooledText;
use crate::exec::Omission;
use crate::machine::CallIntent;
use crate::net::Secrets;
use crate::policy::{CallKind, CallTarget};
use crate::port::{CancellationToken, EffectContext, ToolSpec};
use crate::types::{CallAccess, CallId, FileChange, TimeSpan, ToolStatus};
use crate::workspace::image::ImageSource;

/// A tool: its specification for the model, and a parser of its arguments.
///
/// For each call, the registry calls [`prepare`](Self::prepare), checks the policy, and then calls
/// [`plan`](ToolInvocation::plan) and [`run`](ToolInvocation::run).
pub trait Tool: Send + Sync {
    /// Returns the specification for the model.
    fn spec(&self) -> &ToolSpec;

    /// Parses the arguments, which are the text of a JSON object. Must be fast, and without side effects.
    ///
    /// # Errors
    ///
    /// Fails with a message for the model that names the error and its position.
    fn prepare(&self, arguments: &str) -> Result<Box<dyn ToolInvocation>, String>;

    /// Waits for work that earlier calls have left running and that has to end before the task is done, at most for the
    /// given time, and until the token is cancelled.
    fn wait_for_needed(&self, _: Duration, _: &CancellationToken) -> NeededWork {
        NeededWork::default()
    }

    /// Ends the work that earlier calls have left running, since the run is over. Waits for its end, at most for the
    /// given time.
    fn finish(&self, _: Duration) {}
}

/// A call with parsed arguments.
pub trait ToolInvocation: Send {
    /// Returns the kind of effect of the call.
    fn kind(&self) -> CallKind;

    /// Returns the resources that the call reads and writes, by which it is ordered among other calls.
    fn access(&self) -> CallAccess;

    /// Resolves the arguments against the file system right before the decision. May change the targets.
    ///
    /// # Errors
    ///
    /// Fails with a message for the model if the arguments are invalid.
    fn resolve(&mut self) -> Result<(), String> {
        Ok(())
    }

    /// Returns the targets that rules can match.
    fn targets(&self) -> Vec<CallTarget> {
        Vec::new()
    }

    /// Returns the targets of symbolic links in the arguments. Reads the file system.
    fn real_targets(&self) -> Vec<CallTarget> {
        Vec::new()
    }

    /// Returns a one-line summary for the user.
    fn summary(&self) -> String;

    /// Returns the time after which the call is abandoned; it exceeds every limit of the call itself.
    fn time_limit(&self) -> TimeSpan {
        TimeSpan::from_secs(120)
    }

    /// Computes the effects of the call without causing them. May read files.
    ///
    /// # Errors
    ///
    /// Fails with the output of the call if the call would fail.
    fn plan(&mut self) -> Result<CallPlan, Box<ToolOutput>> {
        let is_read_only = self.kind() == CallKind::Reads;
        let intent = if is_read_only { CallIntent::ReadOnly } else { CallIntent::Opaque };
        Ok(CallPlan { intent, changes: Vec::new() })
    }

    /// Returns the planned change of files as a unified diff; empty if the call changes no known files.
    fn diff(&self) -> String {
        String::new()
    }

    /// Runs the call.
    fn run(self: Box<Self>, context: &CallContext<'_>) -> ToolOutput;
}

/// The planned effects of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallPlan {
    /// The intent, with which a resumed run detects whether the call has run.
    pub intent: CallIntent,
    /// The files to be changed.
    pub changes: Vec<FileChange>,
}

/// The context in which a call runs.
#[derive(Debug)]
pub struct CallContext<'a> {
    /// The scope of the call.
    pub scope: &'a EffectContext,
    /// The id of the call.
    pub call: &'a CallId,
    /// The store for long results.
    pub results: &'a Arc<dyn OutputStore>,
    /// The secrets that are masked in the output. While an output is still growing, a call must also hide an end that
    /// may be the beginning of a secret.
    pub secrets: &'a Secrets,
}

/// The output of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolOutput {
    /// The status of the call.
    pub status: ToolStatus,
    /// The text for the model.
    pub text: String,
    /// The full text, if `text` is only a part of it.
    pub full_text: Option<Arc<str>>,
    /// The full text, if it is too long for memory.
    pub spooled: Option<Arc<SpooledText>>,
    /// The parts that `text` omits.
    pub omissions: Vec<Omission>,
    /// The changed files.
    pub changes: Vec<FileChange>,
    /// The files whose content is in the text, relative to the workspace.
    pub reads: Vec<Arc<str>>,
    /// Images for the model; each adds a line to the text.
    pub images: Vec<ImageSource>,
    /// Whether a long text may be shortened; pages are not.
    pub truncation: Truncation,
}

/// Whether a text may be shortened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truncation {
    /// The text is shortened if it is too long.
    Allowed,
    /// The text is already limited to the allowed length.
    Done,
}

impl ToolOutput {
    /// Returns the output of a successful call.
    pub fn ok(text: impl Into<String>) -> Self {
        Self::new(ToolStatus::Ok, text)
    }

    /// Returns the output of a failed call.
    pub fn failed(why: impl fmt::Display) -> Self {
        Self::new(ToolStatus::Failed, why.to_string())
    }

    /// Returns an output.
    pub fn new(status: ToolStatus, text: impl Into<String>) -> Self {
        Self {
            status,
            text: text.into(),
            full_text: None,
            spooled: None,
            omissions: Vec::new(),
            changes: Vec::new(),
            reads: Vec::new(),
            images: Vec::new(),
            truncation: Truncation::Allowed,
        }
    }
}
