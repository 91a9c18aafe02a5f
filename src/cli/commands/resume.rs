//! `architect resume`: a session goes on from where it was stored.

use std::sync::Arc;

use architect::app::{Chosen, Order, Place, Setup, World, store};
use architect::journal::{Past, Repair, SessionId, Store};
use architect::view::{Source, clean};

use super::run::with_document;
use crate::cli::args::{OutputArgs, ResumeArgs, SettingsArgs};
use crate::cli::error::Failure;
use crate::cli::settings::{self, FIRST_AGENT, Remembered};
use crate::cli::task::{self, Way};
use crate::cli::{logging, prompt, show};

pub(crate) fn run(args: &ResumeArgs, world: World) -> Result<u8, Failure> {
    with_document(show::format(&args.output), || begin(args, world))
}

fn begin(args: &ResumeArgs, world: World) -> Result<u8, Failure> {
    let store = here(&args.settings, &world)?;
    let session = store.resolve(&args.session)?;
    let prompt = args.prompt.as_deref().map(|text| prompt::read(Some(text), false)).transpose()?;
    let repair = if args.repair { Repair::Cut } else { Repair::Refuse };
    let how = How { repair, prompt, settings: &args.settings, output: &args.output };
    go_on(store, session, how, world)
}

/// How a session goes on.
pub(super) struct How<'a> {
    pub(super) repair: Repair,
    pub(super) prompt: Option<String>,
    pub(super) settings: &'a SettingsArgs,
    pub(super) output: &'a OutputArgs,
}

/// Returns the store that the options of a command name, whatever a session remembers.
pub(super) fn here(args: &SettingsArgs, world: &World) -> Result<Store, Failure> {
    Ok(store(&settings::of_sets(&args.set, world)?, world)?)
}

/// Goes on with a session as it remembers, and as the options say now.
pub(super) fn go_on(
    store: Store,
    session: SessionId,
    how: How<'_>,
    world: World,
) -> Result<u8, Failure> {
    let opened = store.reopen(session, how.repair)?;
    if let Some(torn) = &opened.torn {
        log::warn!("the end of the journal was torn; it is saved as {}", torn.display());
    }
    let before = before(&opened.past);
    let (config, remembered) = settings::read(how.settings, Some(how.output), &world, &before)?;
    logging::start(how.output.verbose, config.settings.logging.level);
    let model = Chosen::of(&config, &world)?;
    let agent = remembered.agent.as_deref().unwrap_or(FIRST_AGENT);
    let mut setup = Setup::new(config, world, agent, model)?;
    setup.effect = remembered.effect();
    if let Some(schema) = opened.past.setting.schema.as_deref() {
        setup = setup.answering(schema.clone())?;
    }
    let order = Order {
        task: how.prompt.map(Arc::from),
        place: Place::Stored(store, Box::new(opened)),
        options: remembered.to_json(),
        source: Source::Agent,
        exit_on_partial: how.output.exit_code_on_partial,
    };
    task::run(&setup, order, Way::Straight, how.output)
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
