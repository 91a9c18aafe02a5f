//! The system prompt.
//!
//! The prompt consists of the agent's own prompt, the environment, the project's instructions for agents, the available
//! skills, the structure of the project, and the changes since a commit if the user asks for them. The same files
//! result in the same bytes, because a provider's prompt cache is valid only as long as no byte changes: the prompt
//! contains no time and no date. All files of the workspace are read through its confined handle. Each part has a
//! maximum size; omissions are marked in place for the model, and reported to the user as notices.

mod diff;
pub(in crate::app) mod file_excerpt;
mod instructions;
mod skills;
mod structure;

use std::fmt::Write as _;
use std::sync::Arc;

pub use self::diff::{DiffError, WorkspaceDiff, diff_since, find_git};
pub(in crate::app) use self::skills::readable_skills;
use super::skills::Skill;
use crate::workspace::WorkspaceRoot;
use crate::workspace::index::{IndexSettings, WorkspaceIndex};

/// A system prompt, with notices for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemPrompt {
    /// The prompt.
    pub text: Arc<str>,
    /// The parts that were left out or could not be read, a sentence each.
    pub notices: Vec<String>,
}

/// A part of the prompt under a heading.
#[derive(Debug, Default)]
struct PromptSection {
    /// The text, without the heading; an empty section is left out.
    text: String,
    notices: Vec<String>,
}

/// Returns the system prompt, which begins with the agent's own prompt. Without index settings, the structure of the
/// workspace is left out.
pub fn build_system_prompt(
    agent_prompt: &str,
    root: &WorkspaceRoot,
    skills: &[Skill],
    index: Option<&IndexSettings>,
    diff: Option<&WorkspaceDiff>,
) -> SystemPrompt {
    let mut notices = Vec::new();
    let indexed = index.map(|settings| WorkspaceIndex::build(root, settings));
    let indexed =
        indexed.and_then(|indexed| indexed.map_err(|error| notices.push(error.to_string())).ok());
    let guides = indexed.as_ref().map_or(&[][..], |indexed| &indexed.index.instruction_files);
    let sections = [
        ("Environment", environment_section(root)),
        ("Project Instructions", instructions::instructions_section(root, guides)),
        ("Skills", skills::skills_section(skills)),
        (
            "Project Structure",
            indexed.as_ref().map(structure::structure_section).unwrap_or_default(),
        ),
        ("Changes", diff.map(diff::diff_section).unwrap_or_default()),
    ];
    let mut text = agent_prompt.trim().to_owned();
    for (heading, section) in sections {
        notices.extend(section.notices);
        if !section.text.is_empty() {
            let _ = write!(text, "\n\n## {heading}\n\n{}", section.text.trim_end());
        }
    }
    text.push('\n');
    SystemPrompt { text: text.into(), notices }
}

fn environment_section(root: &WorkspaceRoot) -> PromptSection {
    let path = crate::types::escape_name(root.path().as_os_str());
    let mut text = format!(
        "* Workspace: {path} (paths in tool calls are relative to it)\n* Platform: {} {}\n",
        std::env::consts::OS,
        std::env::consts::ARCH
    );
    if diff::repository_root(root.path()).is_some() {
        text.push_str("* Version control: git\n");
    }
    PromptSection { text, notices: Vec::new() }
}
