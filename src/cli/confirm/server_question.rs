//! Questions of a server.

use architect::policy::{Elicitation, ElicitationAnswer, ElicitationField, ElicitationType};
use architect::port::CancellationToken;
use architect::view::sanitize;
use serde_json::{Map, Value};

use super::terminal::Terminal;

/// Asks whether to answer, and then for each field. Returns `None` at the end of the input, or if the run no longer
/// waits.
pub(super) fn ask(
    question: &Elicitation,
    mut terminal: Terminal,
    cancel: &CancellationToken,
) -> Option<ElicitationAnswer> {
    terminal.discard_input();
    let message = sanitize::multiline(&question.message);
    let message: String = message.lines().map(|line| format!("  > {line}\n")).collect();
    terminal.write(&format!(
        "\nthe MCP server {} asks:\n{message}  it gets what you type; give it no password and no key\n",
        sanitize::line(&question.server)
    ));
    loop {
        terminal.write("  answer it? [y]es [n]o [c]ancel: ");
        match terminal.read_line(cancel).line()?.trim() {
            "y" | "Y" | "yes" | "sí" | "si" => break,
            "n" | "N" | "no" => return Some(ElicitationAnswer::Decline),
            "c" | "C" | "cancel" => return Some(ElicitationAnswer::Cancel),
            _ => {}
        }
    }
    let mut values = Map::new();
    for field in &question.fields {
        if let Some(value) = ask_field(field, &mut terminal, cancel)? {
            values.insert(field.name.clone(), value);
        }
    }
    Some(ElicitationAnswer::Accept(values))
}

/// Asks for the value of a field until the input is valid. The inner `None` stands for an omitted optional value.
#[allow(clippy::option_option)] // no answer, and no value
fn ask_field(
    field: &ElicitationField,
    terminal: &mut Terminal,
    cancel: &CancellationToken,
) -> Option<Option<Value>> {
    let kind = match &field.kind {
        ElicitationType::Text => "text".to_owned(),
        ElicitationType::Choice(choices) => {
            let numbered = choices.iter().enumerate().map(|(n, it)| format!("{} {it}", n + 1));
            numbered.collect::<Vec<_>>().join(", ")
        }
        ElicitationType::Number => "a number".to_owned(),
        ElicitationType::Integer => "a whole number".to_owned(),
        ElicitationType::Boolean => "yes or no".to_owned(),
    };
    let end = match (&field.default, field.is_required) {
        (Some(Value::String(default)), _) => format!("; empty for {default}"),
        (Some(default), _) => format!("; empty for {default}"),
        (None, true) => String::new(),
        (None, false) => "; may be empty".to_owned(),
    };
    let gap = if field.description.is_empty() { "" } else { ": " };
    let text = format!("  {}{gap}{} ({kind}{end}): ", field.name, field.description);
    loop {
        terminal.write(&sanitize::line(&text));
        if let Some(value) = field.parse(&terminal.read_line(cancel).line()?) {
            return Some(value);
        }
    }
}
