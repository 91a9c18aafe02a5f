//! `architect run`: one task, to the end.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use architect::app::{Chosen, Order, Place, Setup, World, secrets, store};
use architect::journal::SessionId;
use architect::llm::Recorder;
use architect::model::Signal;
use architect::runner::before_runs;
use architect::view::{RunResult, Source, jsonl};
use serde_json::Value;

use crate::cli::args::{OutputFormat, RunArgs};
use crate::cli::error::Failure;
use crate::cli::settings::{self, FIRST_AGENT, Remembered};
use crate::cli::task::{self, Way};
use crate::cli::{logging, output, prompt, show};

pub(crate) fn run(args: &RunArgs, world: World) -> Result<u8, Failure> {
    with_document(show::format(&args.output), || begin(args, world))
}

/// Runs a task. A program that reads the output gets its document on every way out, also when a signal comes before
/// there is a run.
pub(super) fn with_document(
    format: OutputFormat,
    begin: impl FnOnce() -> Result<u8, Failure>,
) -> Result<u8, Failure> {
    before_runs(move |signal| {
        let why = format!("stopped by {} before the run began", signal_name(signal));
        let result = RunResult { exit_code: signal.exit_code(), ..RunResult::refused(why) };
        task::briefly(move || drop(tell(&result, format)));
    });
    let done = begin();
    if let Err(failure) = &done {
        // What is wrong is told in any case.
        if let Err(unwritten) = tell(&failure.document(), format) {
            log::debug!("{}", unwritten.message());
        }
    }
    done
}

/// Prints the document of a run that never began, for a program that reads the output.
pub(crate) fn refuse(failure: &Failure, format: OutputFormat) -> Result<(), Failure> {
    tell(&failure.document(), format)
}

fn signal_name(signal: Signal) -> &'static str {
    match signal {
        Signal::Interrupt => "SIGINT",
        Signal::Terminate => "SIGTERM",
        Signal::Hangup => "SIGHUP",
        Signal::Pipe => "SIGPIPE",
    }
}

fn tell(result: &RunResult, format: OutputFormat) -> Result<(), Failure> {
    let text = match format {
        OutputFormat::Text => return Ok(()),
        OutputFormat::Json => jsonl::line(result),
        OutputFormat::StreamJson => architect::view::StreamJson::last(result),
    };
    output::print(&String::from_utf8_lossy(&text.unwrap_or_default()))
}

fn begin(args: &RunArgs, world: World) -> Result<u8, Failure> {
    let (config, remembered) =
        settings::read(&args.settings, Some(&args.output), &world, &Remembered::default())?;
    logging::start(args.output.verbose, config.settings.logging.level, secrets(&config, &world));
    let text = prompt::read(args.prompt.as_deref(), args.stdin)?;
    let place = match (args.ephemeral, &args.session) {
        (true, _) => Place::Nowhere,
        (false, session) => {
            let session = session.as_deref().map(str::parse::<SessionId>).transpose()?;
            Place::New(store(&config, &world)?, session)
        }
    };
    let model = Chosen::of(&config, &world)?;
    let agent = remembered.agent.as_deref().unwrap_or(FIRST_AGENT);
    let mut setup = Setup::new(config, world, agent, model)?;
    setup.effect = remembered.effect();
    if let Some(path) = &args.output_schema {
        setup = setup.answering(schema(path)?)?;
    }
    if let Some(since) = &args.context_git_diff {
        setup = setup.showing_changes(since)?;
    }
    if let Some(path) = &args.record {
        let record = Recorder::create(&setup.config.workspace, path)
            .map_err(|error| Failure::usage(output::chain(&error)))?;
        setup.record = Some(record);
    }
    let order = Order {
        task: Some(Arc::from(text)),
        place,
        options: remembered.to_json(),
        source: Source::Agent,
        exit_on_partial: args.output.exit_code_on_partial,
    };
    let way = if args.plan_first { Way::PlanFirst } else { Way::Straight };
    let code = task::run(&setup, order, way, &args.output);
    if let (Some(path), Some(record)) = (&args.record, &setup.record)
        && record.is_empty()
    {
        let path = path.display();
        log::warn!(
            "the recording {path} is empty: no model was sent a request; a scripted model never is"
        );
    }
    code
}

fn schema(path: &Path) -> Result<Value, Failure> {
    let text = fs::read_to_string(path).map_err(|error| {
        Failure::usage(format!(
            "could not read the schema of the answer from {}: {error}",
            path.display()
        ))
        .hint("--output-schema names a file with a JSON Schema")
    })?;
    serde_json::from_str(&text).map_err(|error| {
        Failure::usage(format!("the schema in {} is not JSON: {error}", path.display()))
    })
}
