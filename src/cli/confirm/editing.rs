//! Editing the arguments of a call: in the user's editor, or one by one.

use std::fs;
use std::io::Write;
use std::process::Command;

use architect::port::CancellationToken;
use architect::view::sanitize;
use serde_json::{Map, Value};

use super::terminal::Terminal;

/// The argument with the command line.
const COMMAND: &str = "command";

/// Returns the command line in the arguments of a call, if there is one.
pub(super) fn command_of(arguments: &str) -> Option<String> {
    let arguments: Map<String, Value> = serde_json::from_str(arguments).ok()?;
    arguments.get(COMMAND)?.as_str().map(str::to_owned)
}

/// Lets the user edit the arguments in an editor: a command as text, others as JSON. Returns `None` if they stay the
/// same.
///
/// # Errors
///
/// Fails with a sentence for the user if the editor fails, or if the result is not a JSON object.
pub(super) fn edit_in(
    editor: &str,
    arguments: &str,
    terminal: &mut Terminal,
) -> Result<Option<String>, String> {
    let before: Map<String, Value> =
        serde_json::from_str(arguments).map_err(|error| error.to_string())?;
    let command = before.get(COMMAND).and_then(Value::as_str);
    let (text, suffix) = match command {
        Some(command) => (command.to_owned(), ".sh"),
        None => (serde_json::to_string_pretty(&before).unwrap_or_default(), ".json"),
    };
    let edited = run_editor(editor, &text, suffix, terminal)
        .map_err(|error| format!("could not edit with {editor}: {error}"))?;
    let after = match command {
        Some(_) => with_argument(&before, COMMAND, edited.trim_end_matches('\n').into()),
        None => serde_json::from_str(&edited)
            .map_err(|error| format!("the edited arguments are not a JSON object: {error}"))?,
    };
    Ok((after != before).then(|| Value::Object(after).to_string()))
}

fn run_editor(
    editor: &str,
    text: &str,
    suffix: &str,
    terminal: &Terminal,
) -> std::io::Result<String> {
    let mut file = tempfile::Builder::new().prefix("architect-").suffix(suffix).tempfile()?;
    file.write_all(text.as_bytes())?;
    let mut command = Command::new("sh");
    // The variable may contain options, too.
    command.args(["-c", &format!("{editor} \"$1\""), "sh"]).arg(file.path());
    command.stdin(terminal.stdio()?).stdout(terminal.stdio()?).stderr(terminal.stdio()?);
    let status = command.status()?;
    if !status.success() {
        return Err(std::io::Error::other(status.to_string()));
    }
    fs::read_to_string(file.path())
}

/// Asks for each argument of one line; an empty line keeps the value. Returns `None` at the end of the input, or if the
/// run no longer waits; the inner `None` if nothing was changed.
#[allow(clippy::option_option)] // no answer, and no change
pub(super) fn edit_by_line(
    arguments: &str,
    terminal: &mut Terminal,
    cancel: &CancellationToken,
) -> Option<Result<Option<String>, String>> {
    let before: Map<String, Value> = match serde_json::from_str(arguments) {
        Ok(before) => before,
        Err(error) => return Some(Err(error.to_string())),
    };
    terminal.write("  an empty line keeps a value; set $EDITOR to edit in an editor\n");
    let mut after = before.clone();
    for (name, value) in &before {
        let shown = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let name_shown = sanitize::line(name).into_owned();
        if shown.contains('\n') {
            let lines = shown.lines().count();
            terminal.write(&format!("  {name_shown}: {lines} lines, kept\n"));
            continue;
        }
        terminal.write(&format!("  {name_shown} [{}]: ", sanitize::line(&shown)));
        let line = terminal.read_line(cancel).line()?;
        if line.is_empty() {
            continue;
        }
        let new = match value {
            Value::String(_) => Value::String(line),
            _ => match serde_json::from_str(&line) {
                Ok(new) => new,
                Err(error) => return Some(Err(format!("{name}: {error}"))),
            },
        };
        after = with_argument(&after, name, new);
    }
    Some(Ok((after != before).then(|| Value::Object(after).to_string())))
}

fn with_argument(arguments: &Map<String, Value>, name: &str, value: Value) -> Map<String, Value> {
    let mut arguments = arguments.clone();
    arguments.insert(name.to_owned(), value);
    arguments
}
