//! `architect resume`: resumes a stored session.

use std::sync::Arc;

use architect::app::{
    self, ProcessEnv, ResolvedModel, RunRequest, RunSetup, SessionTarget, collect_secrets,
};
use architect::config::Config;
use architect::journal::{DamagePolicy, OpenedSession, SessionHistory, SessionId};
use architect::view::{CostSource, sanitize};

use super::run::with_result_document;
use crate::cli::args::{OutputArgs, ResumeArgs, SettingsArgs};
use crate::cli::config_options::{self, DEFAULT_AGENT, SavedOptions};
use crate::cli::error::CliError;
use crate::cli::session_lookup::SessionLookup;
use crate::cli::task::{self, RunMode};
use crate::cli::{logging, output, sinks, task_text};

pub(crate) fn run(args: &ResumeArgs, world: ProcessEnv) -> Result<u8, CliError> {
    with_result_document(sinks::output_format(&args.output), || resume(args, world))
}

fn resume(args: &ResumeArgs, world: ProcessEnv) -> Result<u8, CliError> {
    let stored = SessionLookup::open(&args.settings.layers, args.last, &world)?;
    let session = stored.find(&args.session)?;
    let prompt =
        args.prompt.as_deref().map(|text| task_text::read_task(Some(text), false)).transpose()?;
    let repair = if args.repair { DamagePolicy::Truncate } else { DamagePolicy::Refuse };
    let request = ResumeRequest { repair, prompt, settings: &args.settings, output: &args.output };
    resume_session(&stored, session, request, world)
}

/// How a session is resumed.
pub(super) struct ResumeRequest<'a> {
    pub(super) repair: DamagePolicy,
    pub(super) prompt: Option<String>,
    pub(super) settings: &'a SettingsArgs,
    pub(super) output: &'a OutputArgs,
}

/// Resumes a session with its stored options, and with those given now.
pub(super) fn resume_session(
    stored: &SessionLookup,
    session: SessionId,
    request: ResumeRequest<'_>,
    world: ProcessEnv,
) -> Result<u8, CliError> {
    let mut opened = stored.store.reopen(session, request.repair)?;
    if let Some(torn) = &opened.saved_tail {
        log::warn!("the end of the journal was torn; it is saved as {}", torn.display());
    }
    let stored_options = saved_options(&opened.history);
    let (config, saved) = config_options::load_config(
        request.settings,
        Some(request.output),
        &world,
        &stored_options,
    )?;
    logging::configure(
        request.output.verbose,
        config.settings.logging.level,
        collect_secrets(&config, &world),
    );
    let note = restart_limits(&mut opened, &config, &request);
    let model = ResolvedModel::from_config(&config, &world)?;
    let agent = saved.agent.as_deref().unwrap_or(DEFAULT_AGENT);
    let mut setup = RunSetup::new(config, world, agent, model)?;
    setup.execution = saved.execution_mode();
    if let Some(schema) = opened.history.setup.schema.as_deref() {
        setup = setup.with_schema(schema.clone())?;
    }
    if !request.output.quiet {
        stored
            .other_folder_note(&opened.history)
            .into_iter()
            .chain(note)
            .for_each(|note| output::print_stderr(&note));
    }
    let run_request = RunRequest {
        task: request.prompt.map(Arc::from),
        target: SessionTarget::Stored(stored.store.clone(), Box::new(opened)),
        options: saved.to_json(),
        source: CostSource::Agent,
        exit_on_partial: request.output.exit_code_on_partial,
    };
    task::run(&setup, run_request, RunMode::Direct, request.output)
}

/// Restarts the limits of steps and time, for a session that has ended or gets another message. Returns a note about
/// those of money and tokens, which count the whole session.
fn restart_limits(
    opened: &mut OpenedSession,
    config: &Config,
    request: &ResumeRequest<'_>,
) -> Option<String> {
    if !app::restart_limits(opened, request.prompt.is_some()) {
        return None;
    }
    let run = opened.history.machine.state.run();
    let limits = &config.settings.limits;
    let cost = limits.budget_usd.map(|most| {
        format!("{} of {most} is spent (--budget USD sets another total)", run.used.cost)
    });
    let tokens = limits.max_tokens.map(|most| {
        let used = run.used.tokens.0;
        format!("{used} of {} tokens are used (--max-tokens N sets another total)", most.0)
    });
    let note: Vec<String> = cost.into_iter().chain(tokens).collect();
    (!note.is_empty()).then(|| {
        let note = note.join("; ");
        format!("The limits of steps and time start again; money and tokens count on: {note}.")
    })
}

/// Returns the stored options of a session. Those of an imported one could run a command or send the user's key
/// elsewhere, so they are ignored.
fn saved_options(past: &SessionHistory) -> SavedOptions {
    let mut stored_options = SavedOptions::from_json(&past.setup.options);
    if past.is_imported_setup() {
        let names = stored_options.names();
        if names.is_empty() {
            log::warn!("this session was imported: it is resumed in this folder");
        } else {
            let names = sanitize::headline(&names.join(", "), 400);
            log::warn!(
                "this session was imported: it is resumed in this folder, without its stored options ({names}); give the \
                 ones that you want again (`--workspace DIR`, `--set KEY=VALUE`), and they are stored"
            );
        }
        return SavedOptions::default();
    }
    // It works where it worked, wherever the command is typed.
    let root = &past.setup.workspace.root;
    stored_options.sets.push(format!("workspace.root={}", root.display()));
    stored_options
}
