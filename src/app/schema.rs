//! Whether a final answer satisfies its JSON Schema.

use jsonschema::Validator;
use serde_json::Value;

use super::error::AppError;
use crate::machine::Check;
use crate::port::{Checks, Scope};

/// Checks that an answer is JSON that satisfies a schema.
pub(super) struct Schema(Validator);

/// The most that the model is told of what is wrong.
const MOST: usize = 5;

impl Schema {
    /// Returns the check for a schema.
    ///
    /// # Errors
    ///
    /// Fails when the schema is none.
    pub(super) fn new(schema: &Value) -> Result<Self, AppError> {
        let wrong = |error: String| AppError::Schema(format!("is not a JSON Schema: {error}"));
        jsonschema::validator_for(schema).map(Self).map_err(|error| wrong(error.to_string()))
    }

    fn wrong(&self, answer: &str) -> Vec<String> {
        match serde_json::from_str::<Value>(answer.trim()) {
            Err(error) => vec![format!("it is not JSON: {error}")],
            Ok(value) => {
                let errors = self.0.iter_errors(&value).take(MOST);
                errors.map(|error| format!("{}: {error}", error.instance_path())).collect()
            }
        }
    }
}

impl Checks for Schema {
    fn check(&self, answer: &str, _: &Scope) -> Check {
        let wrong = self.wrong(answer);
        if wrong.is_empty() {
            return Check::Passed;
        }
        let message = format!(
            "[SYSTEM] The answer does not satisfy the JSON Schema that was asked for:\n- {}\nAnswer again, with nothing \
             but JSON that satisfies it.",
            wrong.join("\n- ")
        );
        Check::Unfit { message: message.into() }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_model_is_told_what_is_wrong_with_its_answer() {
        let schema =
            json!({"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}});
        let schema = Schema::new(&schema).unwrap();
        assert_eq!(schema.wrong("{\"n\": 1}"), Vec::<String>::new());
        assert!(schema.wrong("n = 1")[0].starts_with("it is not JSON"));
        assert!(schema.wrong("{\"n\": \"x\"}")[0].starts_with("/n: "));
    }

    #[test]
    fn a_schema_that_is_none_is_the_users_mistake() {
        let Err(error) = Schema::new(&json!({"type": 7})) else { panic!("it was taken") };
        assert!(error.is_usage(), "{error}");
    }
}
