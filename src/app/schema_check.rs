//! Whether a final answer satisfies its JSON Schema.

use jsonschema::Validator;
use serde_json::Value;

use super::error::AppError;
use crate::machine::CheckResult;
use crate::port::{AnswerChecks, EffectContext};

/// Checks that an answer is JSON that satisfies a schema.
pub(super) struct SchemaCheck(Validator);

/// The most violations that the model is shown.
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
        jsonschema::validator_for(schema).map(Self).map_err(|error| wrong(error.to_string()))
    }

    fn validation_errors(&self, answer: &str) -> Vec<String> {
        match serde_json::from_str::<Value>(answer.trim()) {
            Err(error) => vec![format!("it is not JSON: {error}")],
            Ok(value) => {
                let errors = self.0.iter_errors(&value).take(MAX_REPORTED_ERRORS);
                errors.map(|error| format!("{}: {error}", error.instance_path())).collect()
            }
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
        assert!(schema.validation_errors("{\"n\": \"x\"}")[0].starts_with("/n: "));
    }

    #[test]
    fn a_schema_that_is_none_is_the_users_mistake() {
        let Err(error) = SchemaCheck::new(&json!({"type": 7})) else { panic!("it was taken") };
        assert!(error.is_user_error(), "{error}");
    }
}
