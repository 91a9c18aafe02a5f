//! Tools made of a function.

use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use crate::model::{CallAccess, TimeSpan};
use crate::policy::CallKind;
use crate::port::ToolSpec;
use crate::tools::{CallContext, Tool, ToolInvocation, ToolOutput, parse_arguments, tool_spec};

/// A tool made of a function. Its argument is a struct, whose JSON Schema the model sees.
///
/// The agent may call it without asking.
#[derive(Clone)]
pub struct FunctionTool {
    spec: ToolSpec,
    is_read_only: bool,
    bind: Arc<BindArguments>,
}

/// How long a function may take.
const TIME_LIMIT: TimeSpan = TimeSpan::from_secs(120);

/// Parses arguments, and returns the call that is left to make.
type BindArguments = dyn Fn(&ToolSpec, &str) -> Result<BoundCall, String> + Send + Sync;

type BoundCall = Box<dyn FnOnce() -> Result<String, String> + Send>;

impl FunctionTool {
    /// Returns a tool of this name. `Ok` of the function is the tool's result, `Err` says why it failed; the model
    /// reads both.
    pub fn new<A, F>(name: &str, description: &str, function: F) -> Self
    where
        A: DeserializeOwned + JsonSchema + Send + 'static,
        F: Fn(A) -> Result<String, String> + Send + Sync + 'static,
    {
        let function = Arc::new(function);
        let bind = move |spec: &ToolSpec, text: &str| -> Result<BoundCall, String> {
            let arguments: A = parse_arguments(spec, text)?;
            let function = Arc::clone(&function);
            Ok(Box::new(move || function(arguments)))
        };
        let spec = tool_spec::<A>(name, description);
        Self { spec, is_read_only: false, bind: Arc::new(bind) }
    }

    /// Declares that the function changes nothing, so that its calls may run at the same time as others that read.
    pub fn read_only(self) -> Self {
        Self { is_read_only: true, ..self }
    }

    /// Returns the name of the tool.
    pub fn name(&self) -> &str {
        &self.spec.name
    }
}

impl fmt::Debug for FunctionTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FunctionTool").field("spec", &self.spec).finish_non_exhaustive()
    }
}

impl Tool for FunctionTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare(&self, arguments: &str) -> Result<Box<dyn ToolInvocation>, String> {
        let call = (self.bind)(&self.spec, arguments)?;
        Ok(Box::new(ExternalCall {
            is_read_only: self.is_read_only,
            summary: arguments.to_owned(),
            time_limit: TIME_LIMIT,
            run: |_: &CallContext<'_>| call().map_or_else(ToolOutput::failed, ToolOutput::ok),
        }))
    }
}

/// A call of code outside this program's tools.
pub(super) struct ExternalCall<F> {
    pub(super) is_read_only: bool,
    pub(super) summary: String,
    pub(super) time_limit: TimeSpan,
    pub(super) run: F,
}

impl<F: FnOnce(&CallContext<'_>) -> ToolOutput + Send> ToolInvocation for ExternalCall<F> {
    fn kind(&self) -> CallKind {
        if self.is_read_only { CallKind::Reads } else { CallKind::External }
    }

    fn access(&self) -> CallAccess {
        if self.is_read_only { CallAccess::read("") } else { CallAccess::Exclusive }
    }

    fn summary(&self) -> String {
        self.summary.clone()
    }

    fn time_limit(&self) -> TimeSpan {
        self.time_limit
    }

    fn run(self: Box<Self>, context: &CallContext<'_>) -> ToolOutput {
        (self.run)(context)
    }
}
