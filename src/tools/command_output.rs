//! `command_output`: reads the output of a command in the background.

use std::sync::Arc;
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::Deserialize;

use super::background::{BackgroundCommand, BackgroundCommands};
use super::calls::build_tool;
use super::description::{BuiltInTool, Subject, TargetKind};
use super::read_output::page_bytes;
use super::tool::{CallContext, ToolInvocation, ToolOutput, Truncation};
use crate::policy::CallKind;
use crate::types::{CallAccess, TimeSpan};

pub(super) const NAME: &str = "command_output";

pub(super) const TOOL: BuiltInTool = BuiltInTool {
    name: NAME,
    aliases: &[],
    target: TargetKind::Running,
    summarize: |arguments| Subject::Text(arguments.text("call_id").unwrap_or_default()).into(),
    build: |context| {
        let (commands, capacity) = (context.background.clone(), page_bytes(context.budget()));
        let description = format!(
            "Reads the output of a command that run_command has started in the background, and says whether it still runs. It \
             can wait for new output, or for the end of the command, up to {MAX_WAIT} seconds."
        );
        Some(build_tool(NAME, &description, move |arguments: Arguments| {
            let Arguments { call_id, offset, limit, wait, until_end } = arguments;
            let wait = wait.unwrap_or(0);
            if wait > MAX_WAIT {
                return Err(format!(
                    "Invalid arguments for {NAME}: wait is {wait}, and has to be at most {MAX_WAIT} seconds."
                ));
            }
            Ok(Call {
                commands: commands.clone(),
                id: call_id,
                first: offset,
                lines: limit.unwrap_or(DEFAULT_LINES).max(1),
                wait: Duration::from_secs(wait),
                until_end,
                capacity,
            })
        }))
    },
};

/// The arguments from the model.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The id of the call that has started the command.
    call_id: String,
    /// The first line to read, counted from 1. Default: what was not read yet.
    offset: Option<u64>,
    /// How many lines to read. Default: 200.
    #[schemars(range(min = 1))]
    limit: Option<u64>,
    /// For how many seconds to wait for output that was not read yet. Default: 0.
    wait: Option<u64>,
    /// Whether to wait for the end of the command instead.
    #[serde(default)]
    until_end: bool,
}

struct Call {
    commands: BackgroundCommands,
    id: String,
    first: Option<u64>,
    lines: u64,
    wait: Duration,
    until_end: bool,
    capacity: usize,
}

/// The default number of lines in a page.
const DEFAULT_LINES: u64 = 200;

/// The longest wait, in seconds.
const MAX_WAIT: u64 = 300;

impl ToolInvocation for Call {
    fn kind(&self) -> CallKind {
        CallKind::Reads
    }

    fn access(&self) -> CallAccess {
        CallAccess::Read([].into())
    }

    fn summary(&self) -> String {
        self.id.clone()
    }

    fn time_limit(&self) -> TimeSpan {
        TimeSpan::from(self.wait + Duration::from_secs(20))
    }

    fn run(self: Box<Self>, context: &CallContext<'_>) -> ToolOutput {
        let command = match self.commands.find(&self.id) {
            Ok(command) => command,
            Err(error) => return ToolOutput::failed(error),
        };
        let begun = Instant::now();
        if !self.wait.is_zero() {
            command.wait_until(Some(begun + self.wait), Some(&context.scope.cancel), |state| {
                state.ending.is_some() || !self.until_end && state.log.has_new()
            });
        }
        // After a wait, the result reports the time, and so differs from the result of the previous call.
        let has_waited = begun.elapsed() >= SHORT_WAIT;
        self.read(&command, has_waited)
    }
}

/// The shortest wait that a result reports.
const SHORT_WAIT: Duration = Duration::from_millis(900);

impl Call {
    fn read(&self, command: &Arc<BackgroundCommand>, has_waited: bool) -> ToolOutput {
        let mut state = command.state();
        let page = state.log.read(self.first, self.lines, self.capacity);
        let mut notes = Vec::new();
        match (page.lines, self.first) {
            (Some((first, last)), _) => {
                notes.push(format!("lines {first}-{last} of {}", page.total));
                if last < page.total {
                    notes.push(format!("read on with offset {}", last + 1));
                }
            }
            (None, Some(first)) if first > page.total => {
                notes.push(format!("there are {} lines, and no line {first}", page.total));
            }
            (None, _) => notes.push("no new output".to_owned()),
        }
        notes.push(match state.show_end() {
            Some(ending) => format!("it has ended: {}", ending.text),
            None if has_waited => format!("still running after {} s", command.age().as_secs()),
            None => "still running".to_owned(),
        });
        let text = format!("{}[{}]", page.text, notes.join("; "));
        ToolOutput { truncation: Truncation::Done, ..ToolOutput::ok(text) }
    }
}
