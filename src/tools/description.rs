//! Descriptions of the built-in tools for other modules; each tool has its own in its file.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::background::BackgroundCommands;
use super::settings::ToolSettings;
use super::tool::Tool;
use crate::exec::Supervisor;
use crate::policy::{CallKind, CallTarget, CommandTarget, PolicyEngine};
use crate::workspace::WorkspaceRoot;

/// A built-in tool.
pub struct BuiltInTool {
    /// The name.
    pub name: &'static str,
    /// The names of similar tools in other agents, from which users may copy rules.
    pub aliases: &'static [&'static str],
    /// The part of a call that rules match.
    pub target: TargetKind,
    /// Summarizes the arguments of a call for a log line.
    pub summarize: for<'a> fn(CallArguments<'a>) -> CallSummary<'a>,
    /// Builds the tool; `None` if the settings exclude it.
    pub(super) build: fn(&BuildContext<'_>) -> Option<Box<dyn Tool>>,
}

/// The part of a call that the rules of its tool match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetKind {
    /// Only the tool itself, which reads text stored by this program.
    Tool,
    /// The name of the skill that a call reads.
    Skill,
    /// The file that a call reads.
    Read,
    /// The folder that a call searches; by default the workspace.
    Search,
    /// The files that a call writes.
    Write,
    /// The command line.
    Command,
    /// A command that an earlier call has started, and that the call reads or stops; rules match only the tool itself.
    Running,
    /// The text that a call writes to such a command. Rules that deny commands apply to it, too; rules with the tool's
    /// own name match only the tool itself.
    Input,
}

/// The arguments of a call, for its summary.
#[derive(Clone, Copy, Debug)]
pub struct CallArguments<'a>(pub &'a Map<String, Value>);

/// A summary of the arguments of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallSummary<'a> {
    /// The subject of the call.
    pub subject: Subject<'a>,
    /// The folder of a search.
    pub within: Option<&'a str>,
    /// The operation on the subject.
    pub detail: Option<SummaryDetail>,
}

/// The subject of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject<'a> {
    /// A path, which is never shortened.
    Path(&'a str),
    /// A number of files.
    Files(usize),
    /// A command, a pattern, or other text.
    Text(&'a str),
    /// The text to search for.
    Quoted(&'a str),
}

/// The operation of a call on its subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SummaryDetail {
    /// Reads these lines, counted from 1; without `to`, up to the end.
    Range {
        /// The first line.
        from: u64,
        /// The last line.
        to: Option<u64>,
    },
    /// Writes this number of lines.
    Lines(usize),
    /// Replaces a number of lines.
    Change {
        /// The number of replaced lines.
        old: usize,
        /// The number of replacing lines.
        new: usize,
    },
}

/// The dependencies of the built-in tools.
pub(super) struct BuildContext<'a> {
    pub root: &'a WorkspaceRoot,
    pub supervisor: &'a Supervisor,
    pub settings: &'a ToolSettings,
    pub policy: Arc<PolicyEngine>,
    pub background: BackgroundCommands,
}

impl BuiltInTool {
    /// Returns the kind of effect of a call.
    pub fn kind(&self) -> CallKind {
        match self.target {
            TargetKind::Tool
            | TargetKind::Skill
            | TargetKind::Read
            | TargetKind::Search
            | TargetKind::Running => CallKind::Reads,
            TargetKind::Write => CallKind::Changes,
            TargetKind::Command | TargetKind::Input => CallKind::Command,
        }
    }

    /// Returns whether the tool is about commands, and so is useless if commands may not run.
    pub fn is_about_commands(&self) -> bool {
        matches!(self.target, TargetKind::Command | TargetKind::Running | TargetKind::Input)
    }
}

impl TargetKind {
    /// Returns whether a rule for the tool can have a pattern.
    pub fn takes_pattern(self) -> bool {
        !matches!(self, Self::Tool | Self::Running | Self::Input)
    }

    /// Returns the targets of a call in the notation of rules, `tool(text)`; `None` if a required text is empty.
    pub fn parse(self, text: &str) -> Option<Vec<CallTarget>> {
        let target = match self {
            Self::Tool | Self::Running => return text.is_empty().then(Vec::new),
            Self::Search if text.is_empty() => return Some(Vec::new()),
            _ if text.is_empty() => return None,
            Self::Skill => CallTarget::Name(text.to_owned()),
            Self::Read => CallTarget::Read(text.to_owned()),
            Self::Search => CallTarget::Search(text.to_owned()),
            Self::Write => CallTarget::Write(text.to_owned()),
            Self::Command => CallTarget::Command(CommandTarget::new(text, "", Vec::new())),
            Self::Input => CallTarget::Command(CommandTarget::input(text)),
        };
        Some(vec![target])
    }
}

impl<'a> CallArguments<'a> {
    /// Returns a string argument.
    pub fn text(self, name: &str) -> Option<&'a str> {
        self.0.get(name)?.as_str()
    }

    pub(super) fn number(self, name: &str) -> Option<u64> {
        self.0.get(name)?.as_u64()
    }

    pub(super) fn lines(self, name: &str) -> Option<usize> {
        Some(self.text(name)?.lines().count())
    }

    /// Summarizes a call by its path.
    pub(super) fn path(self, detail: Option<SummaryDetail>) -> CallSummary<'a> {
        let subject = Subject::Path(self.text("path").unwrap_or("."));
        CallSummary { subject, within: None, detail }
    }

    /// Summarizes a search by its subject and its folder.
    pub(super) fn search(self, subject: Subject<'a>) -> CallSummary<'a> {
        CallSummary { subject, within: self.text("path"), detail: None }
    }
}

impl<'a> From<Subject<'a>> for CallSummary<'a> {
    fn from(subject: Subject<'a>) -> Self {
        Self { subject, within: None, detail: None }
    }
}
