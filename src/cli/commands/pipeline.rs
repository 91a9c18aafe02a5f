//! `architect pipeline`: runs the steps of a file in order.

use std::path::Path;

use architect::app::{ProcessEnv, open_worktrees};
use architect::config::{Config, OptionOverride};
use architect::workflow::batch::{ManifestProblem, ManifestText};
use architect::workflow::engine::{Pipeline, PipelineStep, StepSetup};
use architect::workspace::read_input;
use serde_json::json;

use super::batch::refuse;
use crate::cli::args::PipelineArgs;
use crate::cli::config_options::{self, SavedOptions};
use crate::cli::error::CliError;
use crate::cli::workflow_output::{
    StartedWorkflow, WorkflowFolder, defining_settings, workflow_limits,
};
use crate::cli::worktree_run;

/// The key that --model sets.
const MODEL_KEY: &str = "llm.model";

pub(crate) fn run(mut args: PipelineArgs, world: &ProcessEnv) -> Result<u8, CliError> {
    let usual = load(&args, world)?;
    let (config, saved) = &usual;
    if saved.dry_run {
        return Err(CliError::usage(
            "a pipeline can't be a dry run: its steps build on each other",
        )
        .hint("`architect run --dry-run` shows what one step would do"));
    }
    let name = args.file.display().to_string();
    let text = read_input(&args.file).map_err(|error| {
        CliError::unreadable(&name, &error).hint(
            "the file has [[steps]] tables, as TOML; `architect pipeline --help` lists their keys",
        )
    })?;
    let (pipeline, mut problems) = Pipeline::parse(ManifestText { name: &name, text: &text });
    let workspace = config.real_workspace();
    let of_steps: Vec<_> = pipeline
        .steps
        .iter()
        .map(|step| json!([step.definition, step.agent, step.model]))
        .collect();
    let definition = json!({
        "pipeline": of_steps,
        "settings": defining_settings(&args.settings, workspace.clone()),
    });
    let title = args.file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let folder = WorkflowFolder::new("pipeline", &title, &definition, args.out.as_deref(), world);
    let limits = workflow_limits(config);

    let (agent, overrides) = (args.settings.agent.take(), args.settings.keys.overrides.clone());
    let mut setups = Vec::new();
    for step in &pipeline.steps {
        args.settings.agent = step.agent.clone().or_else(|| agent.clone());
        args.settings.keys.overrides.clone_from(&overrides);
        if let Some(model) = &step.model {
            let sets = &mut args.settings.keys.overrides;
            sets.retain(|set| set.key != MODEL_KEY);
            let (value, option) = (model.clone(), "--model".to_owned());
            sets.push(OptionOverride { key: MODEL_KEY, value, option });
        }
        // Usual steps share one configuration, so that its warnings are logged once.
        let is_usual = step.agent.is_none() && step.model.is_none();
        let loaded = if is_usual { Ok(usual.clone()) } else { load(&args, world) };
        match loaded.and_then(|loaded| set_up(loaded, &folder, world)) {
            Ok(setup) => setups.push(setup),
            Err(error) => problems.push(problem(&name, step, &error)),
        }
    }
    problems.extend(find_isolation_problems(&name, &pipeline, &workspace, world));
    problems.sort_by_key(|problem| problem.line);
    refuse(&problems)?;
    let workflow = pipeline.workflow();
    let journal = folder.open(&workflow.program(), config.settings.sessions.durability, world)?;
    worktree_run::sweep_except(world, Some(&folder.path));
    StartedWorkflow {
        kind: "pipeline",
        folder: &folder,
        workflow: &workflow,
        setups,
        limits,
        iterations: None,
        worktree: None,
        output: &args.output,
    }
    .run(journal)
}

fn load(args: &PipelineArgs, world: &ProcessEnv) -> Result<(Config, SavedOptions), CliError> {
    config_options::load_config(&args.settings, Some(&args.output), world, None)
}

/// Returns the setup of a step with this configuration.
fn set_up(
    (mut config, mut saved): (Config, SavedOptions),
    folder: &WorkflowFolder,
    world: &ProcessEnv,
) -> Result<StepSetup, CliError> {
    config.settings.sessions.dir = Some(folder.path.clone());
    saved.sets.push(format!("sessions.dir={}", folder.path.display()));
    let options = saved.to_json();
    let setup = saved.new_setup(config, world.clone())?;
    setup.model.check(&setup.config, world)?;
    Ok(StepSetup { setup, options })
}

/// Returns a problem for each step whose items need worktrees, if worktrees are not possible.
fn find_isolation_problems(
    file: &str,
    pipeline: &Pipeline,
    workspace: &Path,
    world: &ProcessEnv,
) -> Vec<ManifestProblem> {
    let reason = open_worktrees(world)
        .and_then(|worktrees| {
            worktrees.find_commit(workspace, None)?;
            Ok(worktrees.can_isolate(workspace))
        })
        .map_or_else(
            |error| Some(error.to_string()),
            |can| {
                (!can).then(|| {
                    "the repository has no work tree, or a merge or rebase is in progress"
                        .to_owned()
                })
            },
        );
    let steps = pipeline.steps.iter().filter(|step| step.definition.parallel.is_some());
    let problem = |(step, reason): (&PipelineStep, &String)| ManifestProblem {
        file: file.to_owned(),
        line: step.line,
        message: format!(
            "`parallel` needs git, for a worktree for each item: {reason}; without `parallel`, the items run one after the other"
        ),
        hints: Vec::new(),
    };
    steps.filter_map(|step| Some((step, reason.as_ref()?))).map(problem).collect()
}

fn problem(file: &str, step: &PipelineStep, error: &CliError) -> ManifestProblem {
    let message = error.to_result().output.to_string();
    let hints = error.hints().to_vec();
    ManifestProblem { file: file.to_owned(), line: step.line, message, hints }
}
