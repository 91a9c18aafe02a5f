//! `architect run`: runs one task.

use std::path::Path;

use architect::app::{ProcessEnv, RunRequest, SessionTarget, open_store};
use architect::journal::SessionId;
use architect::llm::Recorder;
use architect::runner::set_idle_action;
use architect::view::{CostSource, JsonFormat, RunResult};
use architect::workspace::read_input;
use serde_json::{Value, json};

use crate::cli::args::{OutputArgs, OutputFormat, RunArgs};
use crate::cli::config_options::{self, SavedOptions};
use crate::cli::error::CliError;
use crate::cli::task::{self, RunMode};
use crate::cli::{output, sinks, task_text};

/// Begins a run. A program that reads the output gets the result document in any case, also after a signal before the
/// run.
pub(super) fn with_result_document(
    output: &OutputArgs,
    begin: impl FnOnce() -> Result<u8, CliError>,
) -> Result<u8, CliError> {
    let format = sinks::output_format(output);
    set_idle_action(move |signal| {
        let why = format!("stopped by {} before the run began", signal.name());
        let result = RunResult { exit_code: signal.exit_code(), ..RunResult::not_started(why) };
        task::run_with_timeout(move || drop(print_result(&result, format)));
    });
    let done = begin();
    if let Err(failure) = &done {
        // The error is shown in any case.
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
    let (config, saved) = config_options::load_config(
        &args.settings,
        Some(&args.output),
        &world,
        &SavedOptions::default(),
    )?;
    let text = task_text::read_task(args.prompt.as_deref(), args.stdin)?;
    let target = match (args.ephemeral, &args.session) {
        (true, _) => SessionTarget::Ephemeral,
        (false, session) => {
            let session = session.as_deref().map(str::parse::<SessionId>).transpose()?;
            SessionTarget::New(open_store(&config, &world)?, session)
        }
    };
    let mut setup = saved.new_setup(config, world)?;
    if let Some(path) = &args.output_schema {
        setup = setup.with_schema(read_schema(path)?)?;
    }
    if let Some(since) = &args.context_git_diff {
        setup = setup.with_diff_since(since)?;
    }
    if let Some(path) = &args.record {
        let record = Recorder::create(&setup.config.workspace, path)
            .map_err(|error| CliError::usage(output::error_chain(&error)))?;
        setup.recorder = Some(record);
    }
    let request = RunRequest {
        options: json!(saved),
        exit_on_partial: args.output.exit_code_on_partial,
        ..RunRequest::new(text, target, CostSource::Agent)
    };
    let mode = if args.plan_first { RunMode::PlanFirst } else { RunMode::Direct };
    let code = task::run(&setup, request, mode, &args.output);
    if let (Some(path), Some(record)) = (&args.record, &setup.recorder)
        && record.is_empty()
    {
        let path = path.display();
        log::warn!(
            "the recording {path} is empty: no model was sent a request; a scripted model never is"
        );
    }
    code
}

fn read_schema(path: &Path) -> Result<Value, CliError> {
    let text = read_input(path).map_err(|error| {
        CliError::usage(format!(
            "could not read the schema of the answer from {}: {error}",
            path.display()
        ))
        .hint("--output-schema names a file with a JSON Schema")
    })?;
    serde_json::from_str(&text).map_err(|error| {
        CliError::usage(format!("the schema in {} is not JSON: {error}", path.display()))
    })
}
