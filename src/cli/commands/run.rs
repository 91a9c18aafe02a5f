//! `architect run`: runs one task.

use std::path::Path;

use architect::app::{ProcessEnv, RunRequest, SessionTarget, open_store};
use architect::journal::{JournalError, SessionId};
use architect::llm::Recorder;
use architect::runner::set_idle_action;
use architect::tools::first_big_integer;
use architect::view::{CostSource, JsonFormat, RunResult};
use architect::workspace::worktree::{WorktreeContent, WorktreeName};
use architect::workspace::{FileId, read_input};
use serde_json::Value;

use crate::cli::args::{OutputFormat, RunArgs};
use crate::cli::config_options;
use crate::cli::error::CliError;
use crate::cli::task::{self, RunMode, TaskRun};
use crate::cli::worktree_run::{self, WorktreeRun};
use crate::cli::{output, task_text};

/// Begins a run. A program that reads the output gets the result document in any case, even after a signal before the
/// run.
pub(super) fn with_result_document(
    format: OutputFormat,
    begin: impl FnOnce() -> Result<u8, CliError>,
) -> Result<u8, CliError> {
    set_idle_action(move |signal| {
        let why = format!("stopped by {} before the run began", signal.name());
        let result = RunResult { exit_code: signal.exit_code(), ..RunResult::not_started(why) };
        task::run_with_timeout(move || drop(print_result(&result, format)));
    });
    let done = begin();
    if let Err(failure) = &done {
        // The error itself is shown in any case.
        if let Err(unwritten) = print_result(&failure.to_result(), format) {
            log::debug!("{unwritten:?}");
        }
    }
    done
}

/// Prints the document of a run that never began, for a program that reads the output.
pub(crate) fn print_result(result: &RunResult, format: OutputFormat) -> Result<u8, CliError> {
    let text = match format {
        OutputFormat::Text => return Ok(0),
        OutputFormat::Json => JsonFormat::Document.result_line(result),
        OutputFormat::StreamJson => JsonFormat::Stream.result_line(result),
    };
    output::print(&String::from_utf8_lossy(&text.unwrap_or_default()))
}

pub(crate) fn run(args: &RunArgs, world: ProcessEnv) -> Result<u8, CliError> {
    let (mut config, saved) =
        config_options::load_config(&args.settings, Some(&args.output), &world, None)?;
    let (prompt, worktree) = prompt_and_worktree(args);
    let text = task_text::read_task(prompt, args.stdin, config.settings.limits.timeout)?;
    let images = task_text::read_images(&args.images)?;
    worktree_run::sweep(&world);
    let target = match (args.ephemeral, &args.session) {
        (true, _) => SessionTarget::Ephemeral,
        (false, session) => {
            let session = session
                .as_deref()
                .map(str::parse::<SessionId>)
                .transpose()
                .map_err(JournalError::from)?;
            // The record of a worktree contains the ID of its session.
            let session = session.or_else(|| worktree.map(|_| SessionId::generate()));
            SessionTarget::New(open_store(&config, &world)?, session)
        }
    };
    // The worktree is dropped after the setup, whose commands work in it.
    let worktree = worktree.map(|name| {
        let content = if args.with_changes {
            WorktreeContent::Uncommitted
        } else {
            WorktreeContent::Commit(None)
        };
        let name = match name {
            "" => WorktreeName::Generated("run"),
            name => WorktreeName::Given(name),
        };
        let mut run = WorktreeRun::create(&mut config, &world, name, content)?;
        run.use_for(target_session(&target))?;
        Ok::<_, CliError>(run)
    });
    let worktree = worktree.transpose()?;
    let mut setup = saved.new_setup(config, world)?;
    setup.origin = worktree.as_ref().and_then(WorktreeRun::origin).map(Path::to_owned);
    if let Some(path) = &args.output_schema {
        setup = setup.with_schema(read_schema(path)?)?;
    }
    if let Some(since) = &args.context_git_diff {
        setup = setup.with_diff_since(since)?;
    }
    if let Some(path) = &args.record {
        let record = Recorder::create(&setup.config.workspace, path);
        setup.recorder = Some(record.map_err(CliError::usage)?);
        setup.env.output_files.extend(FileId::at(path));
    }
    let request = RunRequest {
        options: saved.to_json(),
        images,
        exit_on_partial: args.output.exit_code_on_partial,
        ..RunRequest::new(text, target, CostSource::Agent)
    };
    let mode = if args.plan_first { RunMode::PlanFirst } else { RunMode::Direct };
    let task = TaskRun { request, mode, evaluations: &[] };
    let code = task::run(&setup, task, &args.output, worktree.as_ref());
    if let (Some(path), Some(record)) = (&args.record, &setup.recorder)
        && record.is_empty()
    {
        let path = path.display();
        log::warn!(
            "the recording {path} is empty: no request was sent (a scripted model sends none)"
        );
    }
    code
}

/// Returns the prompt, and the name of the worktree if there is to be one; an empty name stands for a generated one. A
/// text that can't be a name is the prompt.
fn prompt_and_worktree(args: &RunArgs) -> (Option<&str>, Option<&str>) {
    match (args.prompt.as_deref(), args.worktree.as_deref()) {
        (None, Some(text)) if text.contains(char::is_whitespace) => (Some(text), Some("")),
        (prompt, worktree) => (prompt, worktree),
    }
}

fn target_session(target: &SessionTarget) -> Option<SessionId> {
    match target {
        SessionTarget::New(_, session) => *session,
        SessionTarget::Child(_, session, _) => Some(*session),
        SessionTarget::Ephemeral | SessionTarget::Stored(..) => None,
    }
}

fn read_schema(path: &Path) -> Result<Value, CliError> {
    let text = read_input(path).map_err(|error| {
        CliError::usage(format!(
            "could not read the schema of the answer from {}: {error}",
            path.display()
        ))
        .hint("--output-schema names a file with a JSON Schema")
    })?;
    if let Some(number) = first_big_integer(&text) {
        let path = path.display();
        let text = format!("the schema in {path} has an integer of more than 64 bits: {number}");
        return Err(CliError::usage(text));
    }
    serde_json::from_str(&text).map_err(|error| {
        CliError::usage(format!("the schema in {} is not JSON: {error}", path.display()))
    })
}
