//! `command_input`: writes to the standard input of a command in the background.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use super::background::{BackgroundCommands, MAX_WRITTEN};
use super::calls::build_tool;
use super::command_output;
use super::description::{BuiltInTool, Subject, TargetKind};
use super::tool::{CallContext, ToolInvocation, ToolOutput};
use crate::policy::{CallKind, CallTarget, CommandTarget};
use crate::types::CallAccess;

const NAME: &str = "command_input";

pub(super) const TOOL: BuiltInTool = BuiltInTool {
    name: NAME,
    aliases: &[],
    target: TargetKind::Input,
    summarize: |arguments| Subject::Text(arguments.text("text").unwrap_or_default()).into(),
    build: |context| {
        let commands = context.background.clone();
        let description = "Writes lines to the standard input of a command that run_command has started in the background, or \
                           closes it. What the command answers is read with command_output.";
        Some(build_tool(NAME, description, move |arguments: Arguments| {
            let Arguments { call_id, text, close } = arguments;
            if text.is_empty() && !close {
                return Err(format!(
                    "Invalid arguments for {NAME}: text is empty, and close is not set."
                ));
            }
            let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
            Ok(Call { commands: commands.clone(), id: call_id, text: text + end, is_last: close })
        }))
    },
};

/// The arguments from the model.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The id of the call that has started the command.
    call_id: String,
    /// The lines to write. A line end is added if there is none.
    #[serde(default)]
    text: String,
    /// Whether to close the input after that, as Ctrl-D does.
    #[serde(default)]
    close: bool,
}

struct Call {
    commands: BackgroundCommands,
    id: String,
    text: String,
    is_last: bool,
}

/// The time limit for the command to read the text.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

impl ToolInvocation for Call {
    fn kind(&self) -> CallKind {
        CallKind::Command
    }

    fn access(&self) -> CallAccess {
        CallAccess::Exclusive
    }

    /// Returns the text by itself, and at the end of all text written before: a command may be split over several
    /// calls.
    fn targets(&self) -> Vec<CallTarget> {
        let before = self.commands.find(&self.id).map(|command| command.written());
        let whole =
            before.ok().filter(|before| !before.is_empty()).map(|before| before + &self.text);
        let texts = std::iter::once(self.text.clone()).chain(whole);
        texts.map(|text| CallTarget::Command(CommandTarget::input(&text))).collect()
    }

    fn summary(&self) -> String {
        let text = self.text.trim_end_matches('\n');
        let line = self.commands.find(&self.id).map(|command| command.short_line());
        let line = line.unwrap_or_else(|_| format!("'{}'", self.id));
        match (text.is_empty(), self.is_last) {
            (true, _) => format!("close the input of {line}"),
            (false, true) => format!("{text} (to {line}, and close its input)"),
            (false, false) => format!("{text} (to {line})"),
        }
    }

    fn run(self: Box<Self>, context: &CallContext<'_>) -> ToolOutput {
        let command = match self.commands.find(&self.id) {
            Ok(command) => command,
            Err(error) => return ToolOutput::failed(error),
        };
        if command.written().len() + self.text.len() > MAX_WRITTEN {
            return ToolOutput::failed(format!(
                "A command gets at most {MAX_WRITTEN} bytes of input: put the rest into a file that it reads"
            ));
        }
        let length = self.text.len();
        let written = match length {
            0 => Ok(0),
            _ => command.write(&self.text, WRITE_TIMEOUT, &context.scope.cancel),
        };
        if self.is_last {
            command.close_input();
        }
        match written {
            Ok(count) if count < length => ToolOutput::failed(format!(
                "The command has not read its input for {} s: it took {count} of {length} bytes.",
                WRITE_TIMEOUT.as_secs()
            )),
            Ok(_) if self.is_last => ToolOutput::ok("[written, and closed]"),
            Ok(_) => {
                ToolOutput::ok(format!("[written; read the answer with {}]", command_output::NAME))
            }
            Err(_) => {
                let ending = command.state().show_end();
                let ended = ending.map_or("its input is closed".to_owned(), |ending| {
                    format!("it has ended: {}", ending.text)
                });
                ToolOutput::failed(format!("The command takes no input: {ended}."))
            }
        }
    }
}
