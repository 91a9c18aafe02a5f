//! Questions of a server to the user.

use serde_json::{Map, Value};

/// A question that a server asks in a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Elicitation {
    /// The name of the server.
    pub server: String,
    /// The text of the question.
    pub message: String,
    /// The fields of the answer, in order.
    pub fields: Vec<ElicitationField>,
    /// The JSON Schema of the answer.
    pub schema: Value,
}

/// A field of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct ElicitationField {
    /// The name.
    pub name: String,
    /// A description of the value; empty if the name says enough.
    pub description: String,
    /// The type of the value.
    pub kind: ElicitationType,
    /// Whether a value is required.
    pub is_required: bool,
    /// The value if the user gives none.
    pub default: Option<Value>,
}

/// The type of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ElicitationType {
    /// Any text.
    Text,
    /// One of these texts.
    Choice(Vec<String>),
    /// A number.
    Number,
    /// A whole number.
    Integer,
    /// Yes or no.
    Boolean,
}

/// The answer to a question.
#[derive(Clone, Debug, PartialEq)]
pub enum ElicitationAnswer {
    /// The user's values.
    Accept(Map<String, Value>),
    /// The user declined to answer.
    Decline,
    /// There is no answer, and possibly no user.
    Cancel,
}

impl ElicitationField {
    /// Parses a line of text; `None` if it is not a value of this type. An empty line means the default.
    pub fn parse(&self, text: &str) -> Option<Option<Value>> {
        let text = text.trim();
        if text.is_empty() {
            let is_complete = self.default.is_some() || !self.is_required;
            return is_complete.then(|| self.default.clone());
        }
        let value = match &self.kind {
            ElicitationType::Text => Some(text.into()),
            ElicitationType::Choice(known) => {
                // The user may enter the number of a choice.
                let numbered = || known.get(text.parse::<usize>().ok()?.checked_sub(1)?);
                known
                    .iter()
                    .find(|known| *known == text)
                    .or_else(numbered)
                    .map(|it| it.as_str().into())
            }
            ElicitationType::Number => {
                text.parse::<f64>().ok().filter(|number| number.is_finite()).map(Value::from)
            }
            ElicitationType::Integer => text.parse::<i64>().ok().map(Value::from),
            ElicitationType::Boolean => match text.to_lowercase().as_str() {
                "y" | "yes" | "true" => Some(true.into()),
                "n" | "no" | "false" => Some(false.into()),
                _ => None,
            },
        };
        value.map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_means_a_value_of_the_type_of_its_field() {
        let field = |kind, is_required, default| ElicitationField {
            name: "f".to_owned(),
            description: String::new(),
            kind,
            is_required,
            default,
        };
        let choice = || ElicitationType::Choice(vec!["red".to_owned(), "7".to_owned()]);
        let value = |value: Value| Some(Some(value));
        for (kind, text, expected) in [
            (ElicitationType::Text, " a b ", value("a b".into())),
            (choice(), "red", value("red".into())),
            (choice(), "2", value("7".into())),
            (choice(), "7", value("7".into())),
            (choice(), "blue", None),
            (choice(), "0", None),
            (ElicitationType::Integer, "-3", value((-3).into())),
            (ElicitationType::Integer, "3.5", None),
            (ElicitationType::Number, "3.5", value(3.5.into())),
            (ElicitationType::Number, "inf", None),
            (ElicitationType::Boolean, "Yes", value(true.into())),
            (ElicitationType::Boolean, "maybe", None),
            (ElicitationType::Text, "", None),
        ] {
            assert_eq!(field(kind.clone(), true, None).parse(text), expected, "{kind:?} {text}");
        }
        assert_eq!(field(ElicitationType::Text, false, None).parse(""), Some(None));
        let default = Some(Value::from("x"));
        assert_eq!(field(ElicitationType::Text, true, default).parse(""), value("x".into()));
    }
}
