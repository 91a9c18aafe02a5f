//! `read_skill`: reads a file of a skill outside the workspace.

use schemars::JsonSchema;
use serde::Deserialize;

use super::calls::build_tool;
use super::description::{BuiltInTool, Subject, TargetKind};
use super::read_file::PageRequest;
use super::settings::SkillFolder;
use super::tool::{CallContext, ToolInvocation, ToolOutput};
use crate::policy::{CallKind, CallTarget};
use crate::types::CallAccess;
use crate::workspace::{FileKind, RelPath, WorkspaceRoot};

/// The name of the tool.
pub const NAME: &str = "read_skill";

pub(super) const TOOL: BuiltInTool = BuiltInTool {
    name: NAME,
    aliases: &[],
    target: TargetKind::Skill,
    summarize: |arguments| Subject::Text(arguments.text("name").unwrap_or_default()).into(),
    build: |context| {
        let skills = context.settings.skills.clone();
        if skills.is_empty() {
            return None;
        }
        let budget = context.budget();
        Some(build_tool(
            NAME,
            "Reads the instructions of a skill, or another file of its folder.",
            move |Arguments { name, path, offset, limit }| {
                let skill = skills.iter().find(|skill| skill.name == name).ok_or_else(|| {
                    let known: Vec<&str> = skills.iter().map(|skill| &*skill.name).collect();
                    format!(
                        "There is no skill '{name}' outside of the workspace. Skills: {}.",
                        known.join(", ")
                    )
                })?;
                let page =
                    (offset.is_some() || limit.is_some()).then(|| (offset.unwrap_or(1), limit));
                Ok(Call { skill: skill.clone(), path, request: PageRequest { page, budget } })
            },
        ))
    },
};

/// The arguments from the model.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The name of the skill.
    name: String,
    /// A file of the skill, relative to its folder. Default: `SKILL.md`.
    path: Option<String>,
    /// The first line to read, counted from 1. Default: 1.
    offset: Option<u64>,
    /// How many lines to read. Default: all.
    #[schemars(range(min = 1))]
    limit: Option<u64>,
}

struct Call {
    skill: SkillFolder,
    /// The requested file; `None` for the instructions.
    path: Option<String>,
    request: PageRequest,
}

/// The file with the instructions of a skill.
const INSTRUCTIONS: &str = "SKILL.md";

/// The maximum number of named files of a skill.
const MAX_NAMED_FILES: usize = 50;

/// The maximum number of examined entries of a folder.
const MAX_ENTRIES: usize = 200;

impl ToolInvocation for Call {
    fn kind(&self) -> CallKind {
        CallKind::Reads
    }

    fn access(&self) -> CallAccess {
        CallAccess::Read([].into())
    }

    fn targets(&self) -> Vec<CallTarget> {
        vec![CallTarget::Name(self.skill.name.clone())]
    }

    fn summary(&self) -> String {
        match &self.path {
            Some(path) => format!("{path} of {}", self.skill.name),
            None => self.skill.name.clone(),
        }
    }

    fn run(self: Box<Self>, _: &CallContext<'_>) -> ToolOutput {
        let Self { skill, path, request } = *self;
        let root = match WorkspaceRoot::open(&skill.path) {
            Ok(root) => root,
            Err(error) => {
                let text =
                    format!("The folder of the skill '{}' can't be read: {error}.", skill.name);
                return ToolOutput::failed(text);
            }
        };
        let asked = path.as_deref().unwrap_or(INSTRUCTIONS);
        let output = match root.resolve(asked) {
            Ok(file) => request.read(&root, &file),
            Err(error) => return ToolOutput::failed(error),
        };
        let mut output = output.unwrap_or_else(ToolOutput::failed);
        // The paths would be taken for paths of the workspace.
        output.reads = Vec::new();
        if path.is_none() && request.page.is_none() {
            output.text += &describe_folder(&skill, &root);
        }
        output
    }
}

/// Returns a description of the other files in the folder of a skill, and of their use.
fn describe_folder(skill: &SkillFolder, root: &WorkspaceRoot) -> String {
    let mut files = Vec::new();
    let mut folders = vec![RelPath::root()];
    while let Some(folder) = folders.pop().filter(|_| files.len() <= MAX_NAMED_FILES) {
        let (entries, _) = root.list(&folder, MAX_ENTRIES).unwrap_or_default();
        for entry in entries {
            let path = folder.join(&entry.name);
            match entry.kind {
                FileKind::Directory if entry.name != ".git" => folders.push(path),
                FileKind::File if path.as_path() != INSTRUCTIONS => files.push(path.to_string()),
                _ => {}
            }
        }
    }
    let more = if files.len() > MAX_NAMED_FILES { ", and more" } else { "" };
    files.truncate(MAX_NAMED_FILES);
    let others = match files.is_empty() {
        true => String::new(),
        false => format!(" Its other files: {}{more}.", files.join(", ")),
    };
    format!(
        "\n[The folder of this skill is {}; its paths are relative to it. Commands can read it but not write to it.{others}]",
        skill.path.display()
    )
}
