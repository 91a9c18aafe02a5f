//! `architect resume`: a session goes on from where it was stored.

use std::sync::Arc;

use architect::app::{Chosen, Order, Place, Setup, World, secrets};
use architect::config::Config;
use architect::journal::{Opened, Past, Repair, SessionId};
use architect::machine::State;
use architect::model::LimitBase;
use architect::view::{Source, clean};

use super::run::with_document;
use crate::cli::args::{OutputArgs, ResumeArgs, SettingsArgs};
use crate::cli::error::Failure;
use crate::cli::settings::{self, FIRST_AGENT, Remembered};
use crate::cli::stored::Stored;
use crate::cli::task::{self, Way};
use crate::cli::{logging, output, prompt, show};

pub(crate) fn run(args: &ResumeArgs, world: World) -> Result<u8, Failure> {
    with_document(show::format(&args.output), || begin(args, world))
}

fn begin(args: &ResumeArgs, world: World) -> Result<u8, Failure> {
    let stored = Stored::open(&args.settings.layers, args.last, &world)?;
    let session = stored.find(&args.session)?;
    let prompt = args.prompt.as_deref().map(|text| prompt::read(Some(text), false)).transpose()?;
    let repair = if args.repair { Repair::Cut } else { Repair::Refuse };
    let how = How { repair, prompt, settings: &args.settings, output: &args.output };
    go_on(&stored, session, how, world)
}

/// How a session goes on.
pub(super) struct How<'a> {
    pub(super) repair: Repair,
    pub(super) prompt: Option<String>,
    pub(super) settings: &'a SettingsArgs,
    pub(super) output: &'a OutputArgs,
}

/// Goes on with a session as it remembers, and as the options say now.
pub(super) fn go_on(
    stored: &Stored,
    session: SessionId,
    how: How<'_>,
    world: World,
) -> Result<u8, Failure> {
    let mut opened = stored.store.reopen(session, how.repair)?;
    if let Some(torn) = &opened.torn {
        log::warn!("the end of the journal was torn; it is saved as {}", torn.display());
    }
    let before = before(&opened.past);
    let (config, remembered) = settings::read(how.settings, Some(how.output), &world, &before)?;
    logging::start(how.output.verbose, config.settings.logging.level, secrets(&config, &world));
    let told = limits(&mut opened, &config, &how);
    let model = Chosen::of(&config, &world)?;
    let agent = remembered.agent.as_deref().unwrap_or(FIRST_AGENT);
    let mut setup = Setup::new(config, world, agent, model)?;
    setup.effect = remembered.effect();
    if let Some(schema) = opened.past.setting.schema.as_deref() {
        setup = setup.answering(schema.clone())?;
    }
    if !how.output.quiet {
        stored
            .elsewhere(&opened.past)
            .into_iter()
            .chain(told)
            .for_each(|told| output::complain(&told));
    }
    let order = Order {
        task: how.prompt.map(Arc::from),
        place: Place::Stored(stored.store.clone(), Box::new(opened)),
        options: remembered.to_json(),
        source: Source::Agent,
        exit_on_partial: how.output.exit_code_on_partial,
    };
    task::run(&setup, order, Way::Straight, how.output)
}

/// Lets the limits of steps and time begin again, with another message and after an end; those of money and tokens go on.
/// Returns what there is to tell of the latter.
fn limits(opened: &mut Opened, config: &Config, how: &How<'_>) -> Option<String> {
    let (state, run) = (&opened.past.fold.state, opened.past.fold.state.run());
    if how.prompt.is_none() && !matches!(state, State::Done(_)) {
        return None;
    }
    opened.from = LimitBase { steps: run.steps, denied: run.denied };
    let limits = &config.settings.limits;
    let cost = limits.budget_usd.map(|most| {
        format!("{} of {most} is spent (--budget USD sets another total)", run.spent.cost)
    });
    let tokens = limits.max_tokens.map(|most| {
        let used = run.spent.tokens.0;
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
fn before(past: &Past) -> Remembered {
    let mut before = Remembered::of_json(&past.setting.options);
    if past.is_foreign() {
        let names = clean::headline(&before.names().join(", "), 400);
        log::warn!(
            "this session was imported: it goes on in this folder, without the options that came with it ({names}); give \
             those again that you want, as options (`--workspace DIR`, `--set KEY=VALUE`), and it remembers them"
        );
        return Remembered::default();
    }
    // It works where it worked, wherever the command is typed.
    let root = &past.setting.workspace.root;
    before.sets.push(format!("workspace.root={}", root.display()));
    before
}
