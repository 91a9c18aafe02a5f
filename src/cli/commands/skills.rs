//! `architect skills`: lists the skills.

use std::fmt::Write as _;

use architect::app::{ProcessEnv, Skill, SkillSources};
use architect::view::sanitize;
use architect::workspace::WorkspaceRoot;
use serde_json::{Value, json};

use crate::cli::args::SkillsArgs;
use crate::cli::error::CliError;
use crate::cli::{config_options, output};

pub(crate) fn run(args: &SkillsArgs, world: &ProcessEnv) -> Result<u8, CliError> {
    let config = config_options::load_settings(&args.settings, world)?;
    let root = WorkspaceRoot::open(&config.workspace).map_err(|error| {
        CliError::usage(format!("could not open {}: {error}", config.workspace.display()))
    })?;
    let skills = SkillSources::new(&config, world).find(&root);
    if args.json {
        let documents: Value = skills.iter().map(document).collect();
        return output::print(&documents.to_string());
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
    let file = skill.file.to_string_lossy();
    let (scope, file) = (skill.scope.as_str(), sanitize::line(&file));
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

fn document(skill: &Skill) -> Value {
    let about = &skill.about;
    json!({
        "name": skill.name,
        "description": about.description,
        "scope": skill.scope.as_str(),
        "file": skill.file,
        "status": skill.status.as_str(),
        "reason": skill.reason,
        "license": about.license,
        "compatibility": about.compatibility,
        "allowed_tools": about.allowed_tools,
        "problems": about.problems,
    })
}
