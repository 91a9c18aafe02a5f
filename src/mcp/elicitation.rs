//! Questions that a server asks the user during a call.
//!
//! A server can ask for a few plain values, but not for secrets: the requested values are checked by name, and anything
//! except a simple form is declined.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::tool_description::truncate;
use super::validate::CompiledSchema;
use crate::exec::is_secret_variable;
use crate::policy::{Elicitation, ElicitationAnswer, ElicitationField, ElicitationType};
use crate::port::lock;
use crate::types::strip_terminal_codes;

/// The method of the request.
pub(super) const ELICIT: &str = "elicitation/create";

/// Asks the user the questions of a server.
pub(super) struct UserQuestions<'a> {
    pub server: &'a str,
    pub ask: &'a dyn Fn(&Elicitation) -> ElicitationAnswer,
    /// The time that the user takes; it does not count as the server's.
    pub time: Arc<UserTime>,
    pub asked: AtomicUsize,
}

/// The total time for which the user has been asked.
#[derive(Default)]
pub(super) struct UserTime(Mutex<(Duration, Option<Instant>)>);

/// The maximum number of questions of a call, and of fields and choices of each question.
const MAX_QUESTIONS: usize = 10;
const MAX_FIELDS: usize = 20;
const MAX_CHOICES: usize = 50;

/// The maximum sizes of a message and of a field's description, in bytes.
const MAX_MESSAGE: usize = 2_000;
const MAX_TEXT: usize = 300;

impl<'a> UserQuestions<'a> {
    pub(super) fn new(server: &'a str, ask: &'a dyn Fn(&Elicitation) -> ElicitationAnswer) -> Self {
        Self { server, ask, time: Arc::default(), asked: AtomicUsize::new(0) }
    }

    /// Returns the result of a request with the user's answer.
    pub(super) fn answer(&self, params: &Value) -> Value {
        let question = match parse(self.server, params) {
            Ok(question) if self.asked.fetch_add(1, Ordering::Relaxed) < MAX_QUESTIONS => question,
            Ok(_) => return declined(),
            Err(why) => {
                log::warn!("a question of the MCP server `{}` is declined: {why}", self.server);
                return declined();
            }
        };
        match self.time.during(|| (self.ask)(&question)) {
            ElicitationAnswer::Accept(content) => {
                let owner = format!("a question of the MCP server `{}`", self.server);
                match CompiledSchema::default().check(&owner, &question.schema, &content) {
                    Ok(()) => json!({ "action": "accept", "content": content }),
                    Err(why) => {
                        log::warn!("an answer does not match its schema, and is not sent: {why}");
                        declined()
                    }
                }
            }
            ElicitationAnswer::Decline => declined(),
            ElicitationAnswer::Cancel => json!({ "action": "cancel" }),
        }
    }
}

/// Returns the answer of a run without a user.
pub(super) fn declined() -> Value {
    json!({ "action": "decline" })
}

impl UserTime {
    /// Returns the total time up to now.
    pub(super) fn total(&self) -> Duration {
        let (before, since) = *lock(&self.0);
        before + since.map(|since| since.elapsed()).unwrap_or_default()
    }

    fn during<T>(&self, ask: impl FnOnce() -> T) -> T {
        lock(&self.0).1 = Some(Instant::now());
        let answer = ask();
        let total = self.total();
        *lock(&self.0) = (total, None);
        answer
    }
}

/// Parses a question. Fails with the reason why it can't be asked.
fn parse(server: &str, params: &Value) -> Result<Elicitation, String> {
    if params.get("mode").is_some_and(|mode| mode != "form") {
        return Err("it is not a form".to_owned());
    }
    let text = |value: &Value, most: usize| {
        truncate(strip_terminal_codes(value.as_str().unwrap_or_default()), most)
    };
    let schema = params["requestedSchema"].clone();
    let properties = schema["properties"].as_object().ok_or("it has no fields")?;
    if properties.len() > MAX_FIELDS {
        return Err(format!("it has more than {MAX_FIELDS} fields"));
    }
    let required = schema["required"].as_array();
    let mut fields = Vec::new();
    for (name, property) in properties {
        let title = text(&property["title"], MAX_TEXT);
        if [name, &title].iter().any(|text| suggests_secret(text)) {
            return Err(format!("`{}` may be a secret", truncate(name.clone(), MAX_TEXT)));
        }
        let kind = field_type(property).ok_or("it asks for something else than plain values")?;
        let parts = [title, text(&property["description"], MAX_TEXT)];
        let parts: Vec<&str> =
            parts.iter().map(|part| &**part).filter(|it| !it.is_empty()).collect();
        fields.push(ElicitationField {
            name: name.clone(),
            description: parts.join(": "),
            kind,
            is_required: required.is_some_and(|all| all.iter().any(|one| one == name)),
            default: property.get("default").cloned(),
        });
    }
    let (server, message) = (server.to_owned(), text(&params["message"], MAX_MESSAGE));
    Ok(Elicitation { server, message, fields, schema })
}

fn suggests_secret(text: &str) -> bool {
    let name: String = text.chars().map(|c| if c.is_alphanumeric() { c } else { '_' }).collect();
    is_secret_variable(&format!("_{name}"))
}

fn field_type(property: &Value) -> Option<ElicitationType> {
    let choices = || {
        let titled = property["oneOf"].as_array().into_iter().flatten().map(|one| &one["const"]);
        let choices = property["enum"].as_array().into_iter().flatten().chain(titled);
        choices.map(|one| one.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>()
    };
    match property["type"].as_str()? {
        "string" => match choices()? {
            choices if choices.is_empty() => Some(ElicitationType::Text),
            choices => (choices.len() <= MAX_CHOICES).then_some(ElicitationType::Choice(choices)),
        },
        "number" => Some(ElicitationType::Number),
        "integer" => Some(ElicitationType::Integer),
        "boolean" => Some(ElicitationType::Boolean),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::connection::ReplyDeadline;
    use crate::port::CancellationToken;

    fn params(properties: &Value) -> Value {
        json!({ "message": "Who?", "requestedSchema": { "type": "object", "properties": properties, "required": ["a"] } })
    }

    fn answer(properties: &Value, answer: &ElicitationAnswer) -> Value {
        let ask = |_: &Elicitation| answer.clone();
        UserQuestions::new("s", &ask).answer(&params(properties))
    }

    fn accept(content: Value) -> ElicitationAnswer {
        let Value::Object(content) = content else { panic!("no object") };
        ElicitationAnswer::Accept(content)
    }

    #[test]
    fn a_question_has_plain_fields() {
        let question = parse(
            "s",
            &params(&json!({
                "a": { "type": "string", "title": "Name", "description": "of \u{1b}[31mwhom" },
                "b": { "type": "string", "oneOf": [{ "const": "x", "title": "X" }], "default": "x" },
                "c": { "type": "integer" },
            })),
        );
        let fields = question.unwrap().fields;
        assert_eq!((&*fields[0].description, fields[0].is_required), ("Name: of whom", true));
        assert_eq!(fields[1].kind, ElicitationType::Choice(vec!["x".to_owned()]));
        assert_eq!((&fields[1].default, fields[1].is_required), (&Some("x".into()), false));
        assert_eq!(fields[2].kind, ElicitationType::Integer);
    }

    #[test]
    fn secrets_and_other_forms_are_declined_without_asking() {
        let many: serde_json::Map<_, _> =
            (0..21).map(|n| (format!("f{n}"), json!({ "type": "string" }))).collect();
        for properties in [
            json!({ "password": { "type": "string" } }),
            json!({ "apiKey_API_KEY": { "type": "string" } }),
            json!({ "a": { "type": "string", "title": "Your password" } }),
            json!({ "a": { "type": "object" } }),
            json!({ "a": { "type": "array", "items": { "enum": ["x"] } } }),
            Value::Object(many),
        ] {
            let ask = |question: &Elicitation| -> ElicitationAnswer { panic!("{question:?}") };
            let questions = UserQuestions::new("s", &ask);
            assert_eq!(questions.answer(&params(&properties)), declined(), "{properties}");
        }
        let url = json!({ "mode": "url", "message": "Sign in.", "url": "https://h.example" });
        assert!(parse("s", &url).is_err());
    }

    #[test]
    fn an_answer_matches_the_schema_or_is_not_sent() {
        let fields = json!({ "a": { "type": "string", "maxLength": 3 } });
        let accepted = answer(&fields, &accept(json!({ "a": "me" })));
        assert_eq!(accepted, json!({ "action": "accept", "content": { "a": "me" } }));
        assert_eq!(answer(&fields, &accept(json!({ "a": "long" }))), declined());
        assert_eq!(answer(&fields, &accept(json!({}))), declined());
        assert_eq!(answer(&fields, &ElicitationAnswer::Cancel)["action"], "cancel");
    }

    /// The user's time does not count as the server's.
    #[test]
    fn a_deadline_moves_while_the_user_is_asked() {
        let ask = |_: &Elicitation| {
            let from = Instant::now();
            while from.elapsed().is_zero() {}
            ElicitationAnswer::Decline
        };
        let (questions, cancel) = (UserQuestions::new("s", &ask), CancellationToken::new());
        let wait = ReplyDeadline::new(Duration::from_secs(60), &cancel, &|_| {});
        let wait = ReplyDeadline { questions: Some(&questions), ..wait };
        assert_eq!(wait.until(), wait.at);
        let asked_at = Instant::now();
        questions.answer(&params(&json!({})));
        let moved = wait.until() - wait.at;
        assert!(!moved.is_zero() && moved <= asked_at.elapsed());
        assert_eq!(wait.until() - wait.at, moved);
    }

    #[test]
    fn the_questions_of_a_call_are_limited() {
        let ask = |_: &Elicitation| ElicitationAnswer::Cancel;
        let questions = UserQuestions::new("s", &ask);
        let params = params(&json!({}));
        let mut answers = (0..12).map(|_| questions.answer(&params)["action"].clone());
        assert!(answers.by_ref().take(10).all(|action| action == "cancel"));
        assert!(answers.all(|action| action == "decline"));
    }
}
