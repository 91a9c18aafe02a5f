//! `architect loop`: repeats a task until its checks pass.

use std::path::Path;

use architect::app::ProcessEnv;
use architect::workflow::engine::machine::MetricDirection;
use architect::workflow::engine::{Metric, StepSetup, Workflow};
use architect::workspace::worktree::WorktreeContent;
use serde_json::json;

use crate::cli::args::LoopArgs;
use crate::cli::config_options;
use crate::cli::error::CliError;
use crate::cli::task_text;
use crate::cli::workflow_output::{
    StartedWorkflow, WorkflowFolder, defining_settings, workflow_limits,
};
use crate::cli::worktree_run::{self, WorktreeRun};

pub(crate) fn run(args: &LoopArgs, world: &ProcessEnv) -> Result<u8, CliError> {
    let metric = check_goal(args)?;
    let (mut config, mut saved) =
        config_options::load_config(&args.settings, Some(&args.output), world, None)?;
    let timeout = config.settings.limits.timeout;
    let prompt = task_text::read_task(args.prompt.as_deref(), args.stdin, timeout)?;
    if saved.dry_run {
        return Err(CliError::usage("a loop can't be a dry run: no check would ever pass")
            .hint("`architect run --dry-run` shows what one iteration would do"));
    }
    if args.metric.is_some() && !config.settings.checkpoints.enabled {
        return Err(CliError::usage("--metric needs checkpoints, to undo what makes it worse")
            .hint("set `checkpoints.enabled` to true"));
    }
    let workflow = Workflow::of_loop(prompt.clone(), args.check.clone(), metric, args.iterations);

    let workspace = config.real_workspace();
    let definition = json!({
        "loop": prompt,
        "checks": args.check,
        "metric": args.metric,
        "maximize": args.maximize,
        "settings": defining_settings(&args.settings, workspace),
        "worktree": args.worktree,
        "with_changes": args.with_changes,
    });
    let folder = WorkflowFolder::new("loop", &prompt, &definition, args.out.as_deref(), world);
    config.settings.sessions.dir = Some(folder.path.clone());
    saved.sets.push(format!("sessions.dir={}", folder.path.display()));
    let limits = workflow_limits(&config);

    // All problems are found before anything is created.
    let checked = saved.new_setup(config.clone(), world.clone())?;
    checked.model.check(&checked.config, world)?;
    let journal = folder.open(&workflow.program(), config.settings.sessions.durability, world)?;
    // The worktree is dropped after the setup, whose commands work in it. It is opened before the sweep, which removes
    // unused worktrees as abandoned.
    let worktree = args.worktree.as_deref().map(|name| {
        let content = match args.with_changes {
            true => WorktreeContent::Uncommitted,
            false => WorktreeContent::Commit(None),
        };
        let own = format!("loop-{}", folder.hash());
        let name = if name.is_empty() { own.as_str() } else { name };
        let marker = folder.path.join("worktree");
        WorktreeRun::open_or_create(&mut config, world, (name, &marker), content)
    });
    let worktree = worktree.transpose()?;
    worktree_run::sweep(world);
    let options = saved.to_json();
    let mut setup = saved.new_setup(config, world.clone())?;
    setup.origin = worktree.as_ref().and_then(WorktreeRun::origin).map(Path::to_owned);
    StartedWorkflow {
        kind: "loop",
        folder: &folder,
        workflow: &workflow,
        setups: vec![StepSetup { setup, options }],
        limits,
        iterations: Some(args.iterations),
        worktree: worktree.as_ref(),
        output: &args.output,
    }
    .run(journal)
}

/// Checks that the loop can end with success, or improve a number. Returns the number to improve.
fn check_goal(args: &LoopArgs) -> Result<Option<Metric>, CliError> {
    if args.check.iter().chain(&args.metric).any(|command| command.trim().is_empty()) {
        return Err(CliError::usage("the command of --check or --metric is empty"));
    }
    let direction = match (args.maximize, args.minimize) {
        (true, _) => Some(MetricDirection::Maximize),
        (_, true) => Some(MetricDirection::Minimize),
        (false, false) => None,
    };
    match (&args.metric, direction) {
        (None, Some(_)) => Err(CliError::usage("--maximize and --minimize need --metric CMD")
            .hint("the last line of the output of CMD is the number")),
        (Some(_), None) => Err(CliError::usage("--metric needs --maximize or --minimize")),
        (None, None) if args.check.is_empty() => {
            Err(CliError::usage("a loop needs --check CMD or --metric CMD")
                .hint("--check \"cargo test\" repeats the task until the command succeeds")
                .hint("--metric \"./size\" --minimize keeps what makes the number smaller")
                .hint("`architect run` runs a task once"))
        }
        (None, None) => Ok(None),
        (Some(command), Some(direction)) => {
            Ok(Some(Metric { command: command.clone(), direction }))
        }
    }
}
