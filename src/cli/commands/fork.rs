//! `architect fork`: continues in a copy of a session; the original stays as it is.

use std::time::SystemTime;

use architect::app::ProcessEnv;
use architect::journal::{DamagePolicy, ForkOptions, ReplacementResult};
use architect::model::ToolStatus;
use architect::workspace::read_input;

use super::resume::{ResumeRequest, resume_session};
use super::run::with_result_document;
use crate::cli::args::ForkArgs;
use crate::cli::error::CliError;
use crate::cli::session_lookup::SessionLookup;
use crate::cli::{journal_damage, output, sinks, task_text};

pub(crate) fn run(args: &ForkArgs, world: ProcessEnv) -> Result<u8, CliError> {
    with_result_document(sinks::output_format(&args.output), || fork(args, world))
}

fn fork(args: &ForkArgs, world: ProcessEnv) -> Result<u8, CliError> {
    let stored = SessionLookup::open(&args.settings.layers, args.last, &world)?;
    let (name, after) = match args.session.split_once('@') {
        None => (args.session.as_str(), None),
        Some((name, seq)) => {
            let seq = seq.parse::<u64>().map_err(|_| {
                CliError::usage(format!("'{seq}' is no number of a record"))
                    .hint("`architect sessions export ID` shows the records with their `seq`")
            })?;
            (name, Some(seq))
        }
    };
    let parent = stored.find(name)?;
    let after = match after {
        None if args.partial => {
            journal_damage::check_damage(&stored.store, parent, true)?;
            let (_, end) = stored.store.replay(parent, |_, _, _| {})?;
            Some(end.position.seq.saturating_sub(1))
        }
        after => after,
    };
    let prompt =
        args.prompt.as_deref().map(|text| task_text::read_task(Some(text), false)).transpose()?;
    let instead = match &args.tool_result {
        None => None,
        Some(path) => {
            let text = read_input(path)
                .map_err(|error| CliError::usage(format!("{}: {error}", path.display())))?;
            Some(ReplacementResult { status: ToolStatus::Ok, text: text.into() })
        }
    };
    let session = stored
        .store
        .fork(parent, &ForkOptions { after, replacement: instead, now: SystemTime::now() })?;
    if args.only {
        output::print(&session.to_string())?;
        return Ok(0);
    }
    let how = ResumeRequest {
        repair: DamagePolicy::Refuse,
        prompt,
        settings: &args.settings,
        output: &args.output,
    };
    resume_session(&stored, session, how, world)
}
