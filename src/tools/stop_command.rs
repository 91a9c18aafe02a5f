//! `stop_command`: stops a command in the background.

use schemars::JsonSchema;
use serde::Deserialize;

use super::background::BackgroundCommands;
use super::calls::build_tool;
use super::command_output;
use super::description::{BuiltInTool, Subject, TargetKind};
use super::read_output::page_bytes;
use super::tool::{CallContext, ToolInvocation, ToolOutput, Truncation};
use crate::policy::CallKind;
use crate::types::CallAccess;

pub(super) const NAME: &str = "stop_command";

pub(super) const TOOL: BuiltInTool = BuiltInTool {
    name: NAME,
    aliases: &[],
    target: TargetKind::Running,
    summarize: |arguments| Subject::Text(arguments.text("call_id").unwrap_or_default()).into(),
    build: |context| {
        let (commands, capacity) = (context.background.clone(), page_bytes(context.budget()));
        let description = "Stops a command that run_command has started in the background, with everything that it started, and \
                           returns the rest of its output.";
        Some(build_tool(NAME, description, move |Arguments { call_id }| {
            Ok(Call { commands: commands.clone(), id: call_id, capacity })
        }))
    },
};

/// The arguments from the model.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The id of the call that has started the command.
    call_id: String,
}

struct Call {
    commands: BackgroundCommands,
    id: String,
    capacity: usize,
}

impl ToolInvocation for Call {
    /// The call changes only what an earlier call has started.
    fn kind(&self) -> CallKind {
        CallKind::Reads
    }

    fn access(&self) -> CallAccess {
        CallAccess::Exclusive
    }

    fn summary(&self) -> String {
        self.id.clone()
    }

    fn run(self: Box<Self>, _: &CallContext<'_>) -> ToolOutput {
        let command = match self.commands.find(&self.id) {
            Ok(command) => command,
            Err(error) => return ToolOutput::failed(error),
        };
        let was_running = command.is_running();
        command.stop();
        let mut state = command.state();
        let page = state.log.read(None, u64::MAX, self.capacity);
        let mut notes = Vec::new();
        if let Some((_, last)) = page.lines.filter(|(_, last)| *last < page.total) {
            notes.push(format!("read on with {} and offset {}", command_output::NAME, last + 1));
        }
        let (is_ended, note) = match (state.show_end(), was_running) {
            (Some(ending), true) => (true, format!("stopped: {}", ending.text)),
            (Some(ending), false) => (true, format!("it had ended already: {}", ending.text)),
            (None, _) => (false, "it could not be ended yet".to_owned()),
        };
        notes.push(note);
        let text = format!("{}[{}]", page.text, notes.join("; "));
        let output = if is_ended { ToolOutput::ok(text) } else { ToolOutput::failed(text) };
        ToolOutput { truncation: Truncation::Done, ..output }
    }
}
