//! `architect skills`: lists the skills.

use std::borrow::Cow;
use std::fmt::Write as _;

use architect::app::{ProcessEnv, Skill, SkillScope, SkillSources, SkillStatus};
use architect::view::sanitize;
use architect::workspace::WorkspaceRoot;
use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::args::ListArgs;
use crate::cli::error::CliError;
use crate::cli::{config_options, output};

pub(crate) fn run(args: &ListArgs, world: &ProcessEnv) -> Result<u8, CliError> {
    let config = config_options::load_settings(&args.settings, world)?;
    let root = WorkspaceRoot::open(&config.workspace).map_err(|error| {
        CliError::usage(format!("could not open {}: {error}", config.workspace.display()))
    })?;
    let skills = SkillSources::new(&config, world).read().find(&root);
    if args.json {
        let documents: Vec<SkillDocument<'_>> = skills.iter().map(SkillDocument::new).collect();
        return output::print(&output::to_json(&documents));
    }
    let text: String = skills.iter().map(describe).collect();
    output::print(if text.is_empty() {
        "no skills were found; a skill is a folder with a SKILL.md in .agents/skills or ~/.config/architect/skills\n"
    } else {
        &text
    })
}

fn describe(skill: &Skill) -> String {
    let indent = " ".repeat(12);
    let mut text = format!("{:<12} {}\n", skill.name, skill.about.description);
    let (scope, file) = (skill.scope.as_str(), sanitize::path(&skill.file));
    let _ = write!(text, "{indent} {scope}: {file}; {}", skill.status.as_str());
    if let Some(reason) = &skill.reason {
        let _ = write!(text, ": {}", sanitize::line(reason));
    }
    text.push('\n');
    for problem in &skill.about.problems {
        let _ = writeln!(text, "{indent} problem: {problem}");
    }
    text
}

/// A skill, as `architect skills --json` lists it.
#[derive(Serialize, JsonSchema)]
pub(crate) struct SkillDocument<'a> {
    /// The name.
    name: &'a str,
    /// The purpose of the skill, and when to use it.
    description: &'a str,
    /// The origin of the skill.
    scope: SkillScope,
    /// The path of the skill's `SKILL.md`: relative to the workspace for the project's skills, otherwise absolute.
    file: Cow<'a, str>,
    /// Whether the model gets the skill.
    status: SkillStatus,
    /// The reason if the model does not get the skill.
    reason: Option<&'a str>,
    /// The licence.
    license: Option<&'a str>,
    /// The requirements on the environment.
    compatibility: Option<&'a str>,
    /// The tools that the author would have run without confirmation. This grants them no permission.
    allowed_tools: Option<&'a str>,
    /// Harmless violations of the specification.
    problems: &'a [String],
}

impl<'a> SkillDocument<'a> {
    fn new(skill: &'a Skill) -> Self {
        let about = &skill.about;
        Self {
            name: &skill.name,
            description: &about.description,
            scope: skill.scope,
            file: skill.file.to_string_lossy(),
            status: skill.status,
            reason: skill.reason.as_deref(),
            license: about.license.as_deref(),
            compatibility: about.compatibility.as_deref(),
            allowed_tools: about.allowed_tools.as_deref(),
            problems: &about.problems,
        }
    }
}
