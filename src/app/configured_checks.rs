//! Checks of a final answer: its JSON Schema, and quality gates, which are commands that must succeed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::error::AppError;
use super::function_tool::{MAX_STEPS, schema_errors};
use super::sandbox::Sandbox;
use crate::config::QualityGate;
use crate::exec::CommandSpec;
use crate::machine::{CheckResult, needed_commands_run};
use crate::net::Secrets;
use crate::port::{AnswerChecks, EffectContext, EffectNotice, HookOutcome, HookPoint, HookRun};
use crate::tools::{NeededWork, SchemaValidator, ToolRegistry, first_big_integer};

/// A sequence of checks; the first check that an answer does not pass decides.
pub(super) struct CheckSequence(pub(super) Vec<Arc<dyn AnswerChecks>>);

impl AnswerChecks for CheckSequence {
    fn check(&self, answer: &str, scope: &EffectContext) -> CheckResult {
        let results = self.0.iter().map(|check| check.check(answer, scope));
        let mut failed = results.filter(|result| *result != CheckResult::Passed);
        failed.next().unwrap_or(CheckResult::Passed)
    }
}

/// Checks that an answer is JSON that satisfies a schema.
pub(super) struct SchemaCheck(SchemaValidator);

/// The maximum number of violations shown to the model.
const MAX_REPORTED_ERRORS: usize = 5;

impl SchemaCheck {
    /// Returns the check for a schema.
    ///
    /// # Errors
    ///
    /// Fails if the schema is invalid.
    pub(super) fn new(schema: &Value) -> Result<Self, AppError> {
        let wrong =
            |error: String| AppError::InvalidSchema(format!("is not a JSON Schema: {error}"));
        SchemaValidator::new(schema).map(Self).map_err(|error| wrong(error.to_string()))
    }

    /// Returns the check, unless no answer can pass it.
    ///
    /// # Errors
    ///
    /// Fails with the reason why no answer can pass it.
    pub(super) fn require_satisfiable(self) -> Result<Self, AppError> {
        match self.0.unsatisfiable(MAX_STEPS) {
            Some(why) => Err(AppError::InvalidSchema(format!("can't be satisfied: {why}"))),
            None => Ok(self),
        }
    }

    fn validation_errors(&self, answer: &str) -> Vec<String> {
        match serde_json::from_str::<Value>(answer.trim()) {
            Err(_) if answer.trim().starts_with("```") => {
                vec![
                    "it is in a Markdown fence; answer with the JSON alone, without ```".to_owned(),
                ]
            }
            Err(error) => vec![format!("it is not JSON: {error}")],
            Ok(value) => match first_big_integer(answer) {
                Some(number) => vec![format!("the integer {number} has more than 64 bits")],
                None => schema_errors(&self.0, &value, MAX_REPORTED_ERRORS),
            },
        }
    }
}

impl AnswerChecks for SchemaCheck {
    fn check(&self, answer: &str, _: &EffectContext) -> CheckResult {
        let wrong = self.validation_errors(answer);
        if wrong.is_empty() {
            return CheckResult::Passed;
        }
        let message = format!(
            "[SYSTEM] The answer does not satisfy the JSON Schema that was asked for:\n- {}\nAnswer again, with nothing \
             but JSON that satisfies it.",
            wrong.join("\n- ")
        );
        CheckResult::SchemaViolation { message: message.into() }
    }
}

/// Waits for the background work that calls have declared as needed. Rejects an answer while the work runs, and once
/// more after it has ended if no call has shown its result.
pub(super) struct UnfinishedCalls(pub(super) Arc<ToolRegistry>);

impl AnswerChecks for UnfinishedCalls {
    fn check(&self, _: &str, scope: &EffectContext) -> CheckResult {
        let NeededWork { running, ended } = self.0.wait_for_needed(NEEDED_WAIT, &scope.cancel);
        let mut parts = Vec::new();
        if !ended.is_empty() {
            parts.push(format!(
                "What was started as needed has ended:\n{}\nTake that into account.",
                ended.join("\n")
            ));
        }
        if !running.is_empty() {
            parts.push(needed_commands_run(&running));
        }
        if parts.is_empty() {
            return CheckResult::Passed;
        }
        let message = format!("[SYSTEM] {} Then answer again.", parts.join("\n"));
        CheckResult::SentBack { message: message.into() }
    }
}

/// The time that an answer waits for needed work: less than the margin of the time limit of a check.
const NEEDED_WAIT: Duration = Duration::from_secs(20);

/// Runs the gates one after the other; all failures reject the answer together.
pub(super) struct QualityGates {
    gates: Vec<QualityGate>,
    sandbox: Sandbox,
    /// The secrets to mask in the outputs of gates.
    secrets: Secrets,
}

/// The number of bytes of a gate's output shown to the model, of the beginning and of the end each.
const MAX_SHOWN_BYTES: usize = 4 << 10;

impl QualityGates {
    /// Returns a check with these gates.
    pub(super) fn new(gates: &[QualityGate], sandbox: Sandbox, secrets: Secrets) -> Self {
        Self { gates: gates.to_vec(), sandbox, secrets }
    }

    /// Runs a gate; returns its output if it fails.
    fn run_gate(&self, gate: &QualityGate, scope: &EffectContext) -> Result<(), String> {
        let command = CommandSpec {
            timeout: Some(gate.timeout.into()),
            kept_bytes: MAX_SHOWN_BYTES,
            ..self.sandbox.command(&gate.command)
        };
        let outcome =
            self.sandbox.checks.run(&command, &scope.cancel).map_err(|error| error.to_string())?;
        outcome.failure().map_or(Ok(()), |text| Err(self.secrets.mask_cut(text)))
    }
}

impl AnswerChecks for QualityGates {
    fn check(&self, _: &str, scope: &EffectContext) -> CheckResult {
        let mut failed = Vec::new();
        for gate in &self.gates {
            if scope.cancel.is_cancelled() {
                break;
            }
            let begun = Instant::now();
            let done = self.run_gate(gate, scope);
            scope.notify(EffectNotice::Hook(HookRun {
                name: format!("gate {}", gate.name).into(),
                point: HookPoint::Stop,
                outcome: match (&done, gate.required) {
                    (Ok(()), _) => HookOutcome::Passed,
                    (Err(_), true) => HookOutcome::Blocked,
                    (Err(_), false) => HookOutcome::Failed,
                },
                duration: begun.elapsed().into(),
                call: None,
                message: done.as_ref().err().map(|error| error.as_str().into()),
            }));
            if let (Err(error), true) = (done, gate.required) {
                failed.push(format!(
                    "Quality gate {} (`{}`) failed: {error}",
                    gate.name, gate.command
                ));
            }
        }
        if failed.is_empty() {
            return CheckResult::Passed;
        }
        let message =
            format!("[SYSTEM] {}\n\nFix that, and then answer again.", failed.join("\n\n"));
        CheckResult::SentBack { message: message.into() }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_model_is_shown_what_is_wrong_with_its_answer() {
        let schema =
            json!({"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}});
        let schema = SchemaCheck::new(&schema).unwrap();
        assert_eq!(schema.validation_errors("{\"n\": 1}"), Vec::<String>::new());
        assert!(schema.validation_errors("n = 1")[0].starts_with("it is not JSON"));
        let fenced = schema.validation_errors("```json\n{\"n\": 1}\n```");
        assert!(fenced[0].starts_with("it is in a Markdown fence"), "{fenced:?}");
        let big = "{\"n\": 18446744073709551617}";
        assert!(schema.validation_errors(big)[0].contains("18446744073709551617 has more than"));
        assert!(schema.validation_errors("{\"n\": \"x\"}")[0].starts_with("/n: "));
    }

    #[test]
    fn an_invalid_schema_is_the_users_mistake() {
        for schema in [json!({"type": 7}), json!(false), json!({"$ref": "#"})] {
            let check = SchemaCheck::new(&schema).and_then(SchemaCheck::require_satisfiable);
            let Err(error) = check else { panic!("it was taken: {schema}") };
            assert!(error.is_user_error(), "{error}");
        }
    }
}
