//! Tools made from functions.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::error::AppError;
use crate::policy::CallKind;
use crate::port::{CancellationToken, ToolSpec};
use crate::tools::{
    CallContext, SchemaValidator, Tool, ToolInvocation, ToolOutput, invalid_arguments,
    parse_arguments, tool_spec,
};
use crate::types::{CallAccess, TimeSpan};

/// A tool made from a function. The argument is usually a struct; the model sees its JSON Schema.
///
/// The agent may call the tool without confirmation.
#[derive(Clone)]
pub struct FunctionTool {
    spec: ToolSpec,
    is_read_only: bool,
    time_limit: TimeSpan,
    bind: Arc<BindArguments>,
}

/// The default time limit of a call.
const TIME_LIMIT: TimeSpan = TimeSpan::from_secs(120);

/// Parses arguments, and returns the call with these arguments.
type BindArguments = dyn Fn(&ToolSpec, &str) -> Result<BoundCall, String> + Send + Sync;

/// The maximum number of argument errors shown to the model.
const MAX_REPORTED_ERRORS: usize = 3;

type BoundCall = Box<dyn FnOnce(&CancellationToken) -> Result<String, String> + Send>;

impl FunctionTool {
    /// Returns a tool of this name. The function returns the tool's result as `Ok`, or the reason of a failure as
    /// `Err`; the model reads both.
    pub fn new<A, F>(name: &str, description: &str, function: F) -> Self
    where
        A: DeserializeOwned + JsonSchema + Send + 'static,
        F: Fn(A) -> Result<String, String> + Send + Sync + 'static,
    {
        let function = Arc::new(function);
        let bind = move |spec: &ToolSpec, text: &str| -> Result<BoundCall, String> {
            let arguments: A = parse_arguments(spec, text)?;
            let function = Arc::clone(&function);
            Ok(Box::new(move |_| function(arguments)))
        };
        Self::from_spec(tool_spec::<A>(name, description), bind)
    }

    /// Returns a tool whose arguments are a JSON object that satisfies a JSON Schema, for programs that know the type
    /// only at run time. A call with other arguments fails without calling the function. The token is cancelled once
    /// the result of the call is no longer awaited.
    ///
    /// # Errors
    ///
    /// Fails if the schema is invalid.
    pub fn with_schema<F>(
        name: &str,
        description: &str,
        schema: Value,
        function: F,
    ) -> Result<Self, AppError>
    where
        F: Fn(Value, &CancellationToken) -> Result<String, String> + Send + Sync + 'static,
    {
        let validator = SchemaValidator::new(&schema).map_err(|error| AppError::ToolSchema {
            name: name.to_owned(),
            cause: error.to_string(),
        })?;
        let function = Arc::new(function);
        let bind = move |spec: &ToolSpec, text: &str| -> Result<BoundCall, String> {
            let mut arguments: Value = parse_arguments(spec, text)?;
            let mut errors = schema_errors(&validator, &arguments, MAX_REPORTED_ERRORS);
            if !errors.is_empty() {
                // Many models write `null` for an omitted argument.
                let fields = arguments.as_object_mut();
                fields.into_iter().for_each(|fields| fields.retain(|_, value| !value.is_null()));
                errors = schema_errors(&validator, &arguments, MAX_REPORTED_ERRORS);
            }
            if !errors.is_empty() {
                return Err(invalid_arguments(spec, &errors.join("; ")));
            }
            let function = Arc::clone(&function);
            Ok(Box::new(move |cancel| function(arguments, cancel)))
        };
        let (name, description) = (name.into(), description.into());
        Ok(Self::from_spec(ToolSpec { name, description, schema }, bind))
    }

    fn from_spec(
        spec: ToolSpec,
        bind: impl Fn(&ToolSpec, &str) -> Result<BoundCall, String> + Send + Sync + 'static,
    ) -> Self {
        Self { spec, is_read_only: false, time_limit: TIME_LIMIT, bind: Arc::new(bind) }
    }

    /// Sets the maximum time of a call; after that, the run continues without it. Default: two minutes.
    pub fn time_limit(self, limit: Duration) -> Self {
        Self { time_limit: limit.into(), ..self }
    }

    /// Declares that the function changes nothing, so that its calls may run concurrently with other reads.
    pub fn read_only(self) -> Self {
        Self { is_read_only: true, ..self }
    }

    /// Returns the name of the tool.
    pub fn name(&self) -> &str {
        &self.spec.name
    }
}

/// The maximum number of steps of a validation.
pub(super) const MAX_STEPS: usize = 1_000_000;

/// Returns the errors in a value, up to a number.
pub(super) fn schema_errors(
    validator: &SchemaValidator,
    value: &Value,
    most: usize,
) -> Vec<String> {
    match validator.violations(value, MAX_STEPS) {
        Ok(wrong) => wrong.iter().take(most).map(ToString::to_string).collect(),
        Err(error) => vec![error.to_string()],
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
            time_limit: self.time_limit,
            run: |context: &CallContext<'_>| {
                call(&context.scope.cancel).map_or_else(ToolOutput::failed, ToolOutput::ok)
            },
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tool() -> FunctionTool {
        let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}, "unit": {"type": "string"}}, "required": ["n"]});
        let double = |arguments: Value, _: &CancellationToken| {
            Ok((arguments["n"].as_i64().unwrap_or(0) * 2).to_string())
        };
        FunctionTool::with_schema("double", "Doubles.", schema, double).unwrap()
    }

    #[test]
    fn arguments_have_to_satisfy_the_schema() {
        let call = (tool().bind)(tool().spec(), r#"{"n": 4}"#).unwrap();
        assert_eq!(call(&CancellationToken::new()), Ok("8".to_owned()));
        assert!((tool().bind)(tool().spec(), r#"{"n": 4, "unit": null}"#).is_ok());
        let Err(error) = (tool().bind)(tool().spec(), r#"{"n": "4"}"#) else { panic!("it ran") };
        assert!(error.starts_with("Invalid arguments for double: /n: "), "{error}");
        assert!(
            error.ends_with("It takes n (integer, required), unit (string, optional)."),
            "{error}"
        );
    }

    #[test]
    fn an_invalid_schema_is_refused() {
        let tool = FunctionTool::with_schema("t", "", json!({"type": 7}), |_, _| Ok(String::new()));
        let error = tool.unwrap_err();
        assert!(error.is_user_error() && error.to_string().contains("the tool 't'"), "{error}");
    }
}
