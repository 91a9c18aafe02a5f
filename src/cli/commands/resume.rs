//! `architect resume`: a session goes on from where it was stored.

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
    let how = ResumeRequest { repair, prompt, settings: &args.settings, output: &args.output };
    resume_session(&stored, session, how, world)
}

/// How a session goes on.
pub(super) struct ResumeRequest<'a> {
    pub(super) repair: DamagePolicy,
    pub(super) prompt: Option<String>,
    pub(super) settings: &'a SettingsArgs,
    pub(super) output: &'a OutputArgs,
}

/// Goes on with a session as it remembers, and as the options say now.
pub(super) fn resume_session(
    stored: &SessionLookup,
    session: SessionId,
    how: ResumeRequest<'_>,
    world: ProcessEnv,
) -> Result<u8, CliError> {
    let mut opened = stored.store.reopen(session, how.repair)?;
    if let Some(torn) = &opened.saved_tail {
        log::warn!("the end of the journal was torn; it is saved as {}", torn.display());
    }
    let before = saved_options(&opened.history);
    let (config, remembered) =
        config_options::load_config(how.settings, Some(how.output), &world, &before)?;
    logging::configure(
        how.output.verbose,
        config.settings.logging.level,
        collect_secrets(&config, &world),
    );
    let told = restart_limits(&mut opened, &config, &how);
    let model = ResolvedModel::from_config(&config, &world)?;
    let agent = remembered.agent.as_deref().unwrap_or(DEFAULT_AGENT);
    let mut setup = RunSetup::new(config, world, agent, model)?;
    setup.execution = remembered.execution_mode();
    if let Some(schema) = opened.history.setup.schema.as_deref() {
        setup = setup.with_schema(schema.clone())?;
    }
    if !how.output.quiet {
        stored
            .other_folder_note(&opened.history)
            .into_iter()
            .chain(told)
            .for_each(|told| output::print_stderr(&told));
    }
    let order = RunRequest {
        task: how.prompt.map(Arc::from),
        target: SessionTarget::Stored(stored.store.clone(), Box::new(opened)),
        options: remembered.to_json(),
        source: CostSource::Agent,
        exit_on_partial: how.output.exit_code_on_partial,
    };
    task::run(&setup, order, RunMode::Direct, how.output)
}

/// Lets the limits of steps and time begin again, with another message and after an end; those of money and tokens go on.
/// Returns what there is to tell of the latter.
fn restart_limits(
    opened: &mut OpenedSession,
    config: &Config,
    how: &ResumeRequest<'_>,
) -> Option<String> {
    if !app::restart_limits(opened, how.prompt.is_some()) {
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
    let told: Vec<String> = cost.into_iter().chain(tokens).collect();
    (!told.is_empty()).then(|| {
        let told = told.join("; ");
        format!("The limits of steps and time begin again; money and tokens go on: {told}.")
    })
}

/// Returns what a session remembers of the options that it was begun with. Those of an imported one could run a command
/// or send the user's key elsewhere, so they do not hold.
fn saved_options(past: &SessionHistory) -> SavedOptions {
    let mut before = SavedOptions::from_json(&past.setup.options);
    if past.is_imported_setup() {
        let names = sanitize::headline(&before.names().join(", "), 400);
        log::warn!(
            "this session was imported: it goes on in this folder, without the options that came with it ({names}); give \
             those again that you want, as options (`--workspace DIR`, `--set KEY=VALUE`), and it remembers them"
        );
        return SavedOptions::default();
    }
    // It works where it worked, wherever the command is typed.
    let root = &past.setup.workspace.root;
    before.sets.push(format!("workspace.root={}", root.display()));
    before
}
